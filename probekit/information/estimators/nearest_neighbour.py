"""Mutual information from distances to nearest neighbours: Ross (2014) for classes, Kraskov et al. (2004) for numbers.

Without ties, the number of points nearer than the k-th neighbour of the same class is a rank in the sorted list of
neighbours. The lists are therefore computed once; shuffled labels only search them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.linalg import eigh
from scipy.spatial import cKDTree
from scipy.special import digamma
from scipy.stats import t as student

from probekit.errors import UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.grouping import grouped
from probekit.information.response import Response

JITTER = 1e-10  # of a standard deviation, added to break ties (Kraskov et al. 2004, section II)
TREE = 16  # dimensions up to which a tree of points is faster than all distances
BYTES = 1 << 26  # of neighbour lists that are held at a time
RARE = 512  # neighbours that are listed at most with a tree; whoever needs more looks at all points
HALVES = 100  # half-samples behind an interval
MANY = 20  # dimensions from which distances hardly differ, so that little is seen


def nearest_neighbour(
    x: np.ndarray,
    y: Response,
    *,
    neighbours: int = 5,
    components: int | None = 4,
    groups: np.ndarray | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Information:
    """Mutual information of vectors and labels by nearest neighbours, in bits.

    Classes: ψ(n) + ψ(k) - ⟨ψ(n_y) + ψ(m)⟩, where m is the rank of the k-th neighbour of the same class among all
    neighbours (Ross 2014, equation 2). Its mean over shuffled labels is 0 for every n and all classes. A class with k
    examples or fewer uses the largest possible k; a class with one example is left out. Numbers: estimator 1 of
    Kraskov, Stögbauer and Grassberger (2004, equation 8), each column of y scaled to unit variance. Both use Euclidean
    distances.

    Signal outside the components is missed: of 0.91 bits along one direction of low variance in 768 columns, the
    components show 0.01, all columns 0.48 (n = 1000), and logistic regression 0.82
    (:func:`probekit.information.estimators.bounds.logistic_bound`).

    The interval is for the information in these components and ignores bias: ± t times the standard deviation of 100
    estimates from random halves, which for a mean equals that of the whole (delete-d jackknife, Shao & Wu 1989).

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d).
    y : Response
        Classes, or numbers (n, m).
    neighbours : int, default 5
        k; a larger k gives less variance and more bias.
    components : int | None, default 4
        Number of principal components of the standardised columns, scaled so that the first has unit variance; None for
        the standardised columns themselves.
    groups : np.ndarray, optional
        (n,), groups to shuffle and leave out as wholes; equal vectors always form a group. The mean under shuffled
        groups is subtracted.
    draws : int, default 100
        Shuffles of the labels for ``null`` and ``p``.

    Raises
    ------
    NonFiniteError
        For NaN and infinity.
    UsageError
        For less than one neighbour or component, and if every class has only one example.
    """
    if neighbours < 1 or (components is not None and components < 1):
        raise UsageError(f"neighbours and components are 1 or more, not {neighbours} and {components}.")
    n, rng = len(y), np.random.default_rng(seed)
    points = principal_components(x, n if components is None else components, rotate=components is not None)
    points += JITTER * rng.standard_normal(points.shape)
    orders = np.tile(np.arange(n, dtype=np.int32), (1 + draws + HALVES, 1))
    whole = grouped(groups, x, n)
    unit = np.arange(n) if whole is None else whole.code
    if whole is None:
        orders[1 : 1 + draws] = rng.permuted(orders[1 : 1 + draws], axis=1)
    else:
        orders[1 : 1 + draws] = whole.orders(draws, seed)
    for half in orders[1 + draws :]:
        half[(rng.permutation(unit.max() + 1) > unit.max() // 2)[unit]] = -1
    alone = 0
    if y.codes is not None:
        alone = int((np.bincount(y.codes) < 2).sum())
        if alone == y.classes:
            raise UsageError("every label occurs once; nearest neighbours want classes of two examples or more.")
        bits = _ross(points, y.codes, orders, neighbours)
    else:
        bits = _kraskov(points, y.numbers, orders, min(neighbours, n // 2 - 1), rng)
    raw, null = float(bits[0]), bits[1 : 1 + draws]
    value = raw
    if whole is not None and draws:
        value, null = raw - float(null.mean()), null - null.mean()
    bound = min(y.entropy, math.log2(n))
    margin = float(student.ppf(0.975, HALVES - 1) * np.nanstd(bits[1 + draws :], ddof=1))
    unseen = float(np.quantile(null, 0.95)) if draws else 0.0
    mean = float(null.mean()) if draws else float("nan")
    undetermined = ""
    if draws and np.ptp(null) < 1e-9:
        undetermined = "distances between vectors drown those between labels; look at fewer components"
    elif unseen > bound / 2:
        undetermined = f"shuffled labels reach {unseen:.2f} of {bound:.2f} bits; more examples are needed"
    warnings = []
    if alone:
        warnings.append(f"{alone} classes of a single example are left out")
    if points.shape[1] > MANY:
        warnings.append(f"in {points.shape[1]} dimensions distances hardly differ; values come out low")
    how = f"{points.shape[1]} principal components" if components is not None else f"{points.shape[1]} columns"
    return Information(
        value=float("nan") if undetermined else min(max(value, 0.0), bound),
        raw=raw,
        entropy=y.entropy,
        n=n,
        estimator="knn" if components is not None else "knn-raw",
        null=null,
        null_mean=raw - value if y.codes is not None or value != raw else mean,
        p=p_value(value, null),
        ci_low=0.0 if undetermined else min(max(value - margin, 0.0), bound),
        ci_high=bound,
        shown_high=bound if undetermined else min(max(value + margin, 0.0), bound),
        groups=0 if whole is None else whole.count,
        undetermined=undetermined,
        warning="; ".join(warnings),
        view=f"{how}, {neighbours} neighbours",
    )


def principal_components(x: np.ndarray, count: int, *, rotate: bool = True) -> np.ndarray:
    """The first principal components of the standardised columns: float64 (n, at most count).

    The first has unit variance, the others less. If all had unit variance, components without signal would hide the
    others: of 0.91 bits in the first of 8, nearest neighbours would detect 0.83 instead of 0.91 (n = 1000). Constant
    columns, and components that come only from rounding, are left out; if none remains, the result is a column of 0.

    Parameters
    ----------
    rotate : bool, default True
        False for the standardised columns themselves.

    Raises
    ------
    NonFiniteError
        For NaN and infinity.
    """
    import torch

    from probekit.probes.solvers.design import Design, moments

    [sums] = moments(x, dtype=torch.float64)
    scale = sums.inverse_deviation
    if rotate:
        correlation = sums.scatter * scale * scale[:, None] / len(x)
        d = len(scale)
        power, vectors = eigh(correlation, subset_by_index=[max(0, d - count), d - 1])
        kept = power > 1e-10 * max(d, 1)
        turn = (scale[:, None] * vectors[:, kept] / np.sqrt(power[-1]))[:, ::-1].T
    else:
        turn = np.diag(scale)[scale > 0]
    if not len(turn):
        return np.zeros((len(x), 1))
    return Design(x, None, sums.mean, dtype=torch.float64)(torch.from_numpy(turn.copy())).numpy().T.copy()


def _ross(points: np.ndarray, codes: np.ndarray, orders: np.ndarray, k: int) -> np.ndarray:
    """Bits for every draw."""
    n, kinds = len(codes), int(codes.max()) + 1
    labels = np.where(orders < 0, -1, codes[orders]).astype(np.int32)
    counts = np.stack([np.bincount(own[own >= 0], minlength=kinds) for own in labels])
    labels[np.take_along_axis(counts, np.maximum(labels, 0), 1) < 2] = -1
    counts[counts < 2] = 0
    k_of = np.minimum(k, np.maximum(counts - 1, 0))
    psi = digamma(np.arange(1, n + 1))  # of 1 … n
    own = np.where(counts > 0, psi[k_of - 1] - psi[counts - 1], 0.0)
    total = counts.sum(1)
    share = counts[0][counts[0] > 0].min(initial=n) / n
    most = int((k + 5 * math.sqrt(k) + 10) / share)  # hardly any k-th neighbour of a class is further
    nats = (counts * own).sum(1)
    for first, nearest, _ in _lists(points, max(64, most)):
        rank = np.zeros((len(orders), len(nearest)), np.int32)
        _ranks(points, nearest, first, labels, k_of, rank)
        nats -= np.where(rank > 0, psi[rank - 1], 0.0).sum(1)
    return (psi[np.maximum(total, 1) - 1] + nats / np.maximum(total, 1)) / math.log(2)


def _kraskov(
    points: np.ndarray, numbers: np.ndarray | None, orders: np.ndarray, k: int, rng: np.random.Generator
) -> np.ndarray:
    """Bits for every draw."""
    assert numbers is not None
    n = len(points)
    scale = numbers.std(0)
    y = (numbers - numbers.mean(0)) / np.where(scale > 0, scale, 1)
    y += JITTER * rng.standard_normal(y.shape)
    psi = digamma(np.arange(1, n + 1))
    nats = np.zeros(len(orders))
    whole = _Others(y)
    others = [
        whole if (np.bincount(own + 1, minlength=n + 1)[1:] == 1).all() else _Others(y[own[own >= 0]]) for own in orders
    ]
    for first, nearest, distance in _lists(points, RARE):
        reach, inside = np.zeros((len(orders), len(nearest))), np.zeros((len(orders), len(nearest)), np.int64)
        _reaches(points, y, nearest, distance, first, orders, k, reach, inside)
        for i, (own, near, among) in enumerate(
            zip(orders[:, first : first + len(nearest)], reach, others, strict=True)
        ):
            used = own >= 0
            beside = among.count(y[own[used]], near[used])
            nats[i] -= (psi[inside[i, used]] + psi[beside - 1]).sum()  # beside counts the point itself
    total = (orders >= 0).sum(1)
    return (psi[k - 1] + psi[total - 1] + nats / total) / math.log(2)


class _Others:
    """Labels, prepared for counting how many lie nearer to each of some labels than its distance."""

    def __init__(self, y: np.ndarray) -> None:
        self.sorted = np.sort(y[:, 0]) if y.shape[1] == 1 else None
        self.tree = cKDTree(y) if y.shape[1] > 1 else None

    def count(self, y: np.ndarray, reach: np.ndarray) -> np.ndarray:
        if self.tree is not None:
            return self.tree.query_ball_point(y, np.nextafter(reach, 0), return_length=True)
        found = np.empty(len(y), np.int64)
        _nearer(self.sorted, y[:, 0].copy(), reach, found)
        return found


def _lists(points: np.ndarray, most: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Blocks of rows: the first one's number, neighbours int32 (b, K) from the nearest on, distances (b, K).

    With a tree the nearest ``most``, but at most RARE; without one all n - 1.
    """
    n, d = points.shape
    count = min(n - 1, most, RARE) if d <= TREE else n - 1
    size = max(1, BYTES // (24 * count))
    if d <= TREE:
        tree = cKDTree(points)
        for first in range(0, n, size):
            distance, nearest = tree.query(points[first : first + size], count + 1)
            yield first, np.ascontiguousarray(nearest[:, 1:], np.int32), np.ascontiguousarray(distance[:, 1:])
        return
    square = (points**2).sum(1)
    noise = np.random.default_rng(0)
    for first in range(0, n, size):
        own = slice(first, min(first + size, n))
        distance = square[own, None] + square - 2 * points[own] @ points.T
        # products round at about 1e-14 of the squares; equal points must come in random order
        distance = np.maximum(distance, 0) + 1e-10 * square.mean() * noise.random(distance.shape)
        rows = np.arange(own.stop - own.start)
        distance[rows, rows + first] = -1
        nearest = distance.argsort(1)[:, 1:]
        yield first, nearest.astype(np.int32), np.sqrt(np.take_along_axis(distance, nearest, 1))


@njit(nogil=True, cache=True)
def _square(points: np.ndarray, i: int, j: int) -> float:
    total = 0.0
    for c in range(points.shape[1]):
        total += (points[i, c] - points[j, c]) ** 2
    return total


@njit(nogil=True, cache=True)
def _insert(best: np.ndarray, value: float) -> None:
    """Keep the smallest values in ascending order."""
    at = len(best) - 1
    while at > 0 and best[at - 1] > value:
        best[at] = best[at - 1]
        at -= 1
    best[at] = value


@njit(nogil=True, cache=True)
def _nearer(values: np.ndarray, y: np.ndarray, reach: np.ndarray, found: np.ndarray) -> None:
    """found[i] : how many of the sorted values are nearer to y[i] than reach[i], by their difference as computed."""
    for i in range(len(y)):
        low, high = 0, len(values)
        while low < high:
            middle = (low + high) // 2
            if y[i] - values[middle] >= reach[i]:
                low = middle + 1
            else:
                high = middle
        start, high = low, len(values)
        while low < high:
            middle = (low + high) // 2
            if values[middle] - y[i] >= reach[i]:
                high = middle
            else:
                low = middle + 1
        found[i] = low - start


@njit(nogil=True, cache=True)
def _ranks(
    points: np.ndarray, nearest: np.ndarray, first: int, labels: np.ndarray, k_of: np.ndarray, rank: np.ndarray
) -> None:
    """rank[t, r] : place of the k-th neighbour of the same label among the labelled neighbours of point first + r.

    nearest : (b, K); labels : (T, n), -1 for points that are not there; k_of : k of each label (T, classes)
    If the list is too short, all points are searched. rank stays 0 for points without a label.
    """
    for t in range(len(labels)):
        label = labels[t]
        for r in range(len(nearest)):
            own = label[first + r]
            if own < 0:
                continue
            k, found, passed = k_of[t, own], 0, 0
            for j in nearest[r]:
                if label[j] >= 0:
                    passed += 1
                    if label[j] == own:
                        found += 1
                        if found == k:
                            break
            if found < k:
                best = np.full(k, np.inf)
                for j in range(len(label)):
                    if label[j] == own and j != first + r:
                        square = _square(points, first + r, j)
                        if square < best[k - 1]:
                            _insert(best, square)
                passed = 1
                for j in range(len(label)):
                    if label[j] >= 0 and j != first + r and _square(points, first + r, j) < best[k - 1]:
                        passed += 1
            rank[t, r] = passed


@njit(nogil=True, cache=True)
def _reaches(
    points: np.ndarray,
    y: np.ndarray,
    nearest: np.ndarray,
    distance: np.ndarray,
    first: int,
    orders: np.ndarray,
    k: int,
    reach: np.ndarray,
    inside: np.ndarray,
) -> None:
    """reach[t, r] : the k-th smallest max(‖Δx‖, ‖Δy‖) of point first + r; inside : how many have a smaller ‖Δx‖.

    orders : (T, n), which row of y goes with each point, -1 for points that are not there
    """
    best = np.empty(k)
    for t in range(len(orders)):
        draw = orders[t]
        for r in range(len(nearest)):
            i = first + r
            if draw[i] < 0:
                continue
            best[:] = np.inf
            settled = nearest.shape[1] == len(draw) - 1
            for s in range(nearest.shape[1]):
                if distance[r, s] >= best[k - 1]:
                    settled = True
                    break
                other = draw[nearest[r, s]]
                if other >= 0:
                    far = max(distance[r, s], math.sqrt(_square(y, draw[i], other)))
                    if far < best[k - 1]:
                        _insert(best, far)
            count = 0
            if settled:
                for s in range(nearest.shape[1]):
                    if distance[r, s] >= best[k - 1]:
                        break
                    count += draw[nearest[r, s]] >= 0
            else:
                best[:] = np.inf
                for j in range(len(draw)):
                    if draw[j] >= 0 and j != i:
                        far = math.sqrt(max(_square(points, i, j), _square(y, draw[i], draw[j])))
                        if far < best[k - 1]:
                            _insert(best, far)
                for j in range(len(draw)):
                    count += draw[j] >= 0 and j != i and math.sqrt(_square(points, i, j)) < best[k - 1]
            reach[t, r], inside[t, r] = best[k - 1], count
