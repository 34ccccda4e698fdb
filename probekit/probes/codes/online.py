"""The online (prequential) code of labels: each portion is sent with probes trained on the portions before it.

Sender and receiver have the vectors; the sender has the labels. After each portion, both fit the same probes on the
labels sent so far; the next labels take -log2 of the probability that these probes assign them (Dawid 1984; Voita &
Titov 2020, section 2.2.2). No weights are sent, and a probe that learns from few examples needs few bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from scipy.special import logsumexp, softmax

from probekit.errors import UsageError
from probekit.probes.solvers.design import Design, moments, precision, product
from probekit.probes.solvers.logistic import CS, fit_logistic
from probekit.statistics.moments import Moments

FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Ends of the portions, as shares of the examples (Voita & Titov 2020)."""
TOL = {torch.float32: 1e-5, torch.float64: 1e-7}
"""Newton decrement of the last fits; earlier fits, on which fewer bits depend, stop at a proportionally larger one.

The length is then within 1e-4 bits per example of that of exact fits: measured 5e-5 for C up to 100.
"""


@dataclass(frozen=True, slots=True)
class OnlineCode:
    """The online code of some targets, for each penalty.

    The best C is not known before the labels are, so the shortest length is not the length of a code; sending the
    choice takes log2 |Cs| more bits. ``bits`` is instead the length of the mixture, -log2 of the mean over C of
    2^-L(C): each portion is predicted by all fits, weighted by how well they predicted so far. The mixture is a code,
    needs no choice, and is at most log2 |Cs| bits longer than the best.

    Attributes
    ----------
    portions : np.ndarray
        float64 (targets, Cs, portions), bits of each portion.
    ends : np.ndarray
        Int (portions,), number of examples sent by the end of each portion.
    classes : int
        Number of classes.
    Cs : tuple[float, ...]
        Penalties of the logistic regressions.
    converged : np.ndarray
        Bool (targets, Cs), whether the fits of all portions converged.
    each, prior : np.ndarray
        float64 (targets, n), approximate bits of each label (with the mixture weights at the start of its portion), and
        its bits in the prior's code, which uses only the class counts so far.
    """

    portions: np.ndarray
    ends: np.ndarray
    classes: int
    Cs: tuple[float, ...]
    converged: np.ndarray
    each: np.ndarray
    prior: np.ndarray

    @property
    def curve(self) -> np.ndarray:
        """Bits of each portion under the mixture, float64 (targets, portions)."""
        sent = np.log(2) * np.cumsum(self.portions, axis=2)
        return np.diff(-logsumexp(-sent, b=1 / len(self.Cs), axis=1) / np.log(2), axis=1, prepend=0.0)

    @property
    def bits(self) -> np.ndarray:
        """The code length, float64 (targets,)."""
        return self.curve.sum(1)

    @property
    def uniform_bits(self) -> float:
        """Bits of the labels under the uniform code: n log2 classes."""
        return float(self.ends[-1] * np.log2(self.classes))

    @property
    def prior_bits(self) -> np.ndarray:
        """Bits of the labels under the prior's code, which learns the class frequencies, float64 (targets,)."""
        return self.prior.sum(1)

    @property
    def compression(self) -> np.ndarray:
        """Uniform code length / code length, float64 (targets,); unbalanced classes are enough to exceed 1."""
        return self.uniform_bits / self.bits

    @property
    def best(self) -> np.ndarray:
        """The index of the single C with the shortest code, int (targets,)."""
        return self.portions.sum(2).argmin(1)


def online_code(
    x: np.ndarray,
    Y: np.ndarray,
    *,
    Cs: Sequence[float] = CS,
    classes: int | None = None,
    groups: np.ndarray | None = None,
    fractions: Sequence[float] = FRACTIONS,
    seed: int | Sequence[int] = 0,
) -> OnlineCode:
    """Code lengths of labels given vectors, for all targets and penalties at once.

    The first portion takes log2 ``classes`` bits per example. After n examples, logistic regressions (scikit-learn's
    objective) are fitted on them, standardised by their mean and deviation; class k of the next portion then has the
    probability (n p + 1/2) / (n + classes/2), where p is the probability from the probe, or 0 for a class that it has
    not seen. With frequencies as p, this is the estimate of Krichevsky & Trofimov 1981: no label is ever impossible,
    and the cost of smoothing vanishes as n grows.

    The fits share the sums (Gram matrix) of earlier portions; no row is summed twice.

    Parameters
    ----------
    x : np.ndarray
        Float (n, d).
    Y : np.ndarray
        Int (n,) or (n, targets), class indices, all labelled.
    classes : int, optional
        Number of classes (default: the largest index + 1); some may not occur.
    groups : np.ndarray, optional
        Int (n,), groups that are sent as a whole, such as the words of a sentence (default: single examples).
    fractions : Sequence[float], default FRACTIONS
        Ends of the portions, moved to the end of a group; empty portions are left out.
    seed : int or sequence of int, default 0
        Seed of the order in which the examples are sent.

    Raises
    ------
    UsageError
        For numeric labels (no code is defined), unlabelled rows, or shapes that do not match.
    NonFiniteError
        For NaN and infinity.
    """
    codes, classes = checked_codes(x, Y, classes)
    order, ends = _portions(len(x), groups, fractions, np.random.default_rng(seed))
    if not len(Cs) or min(Cs) <= 0:
        raise UsageError(f"Cs must be positive numbers, not {tuple(Cs)}.")
    bits = np.empty((len(codes), len(Cs), len(ends)))
    bits[:, :, 0] = ends[0] * np.log2(classes)
    parts = [np.sort(order[a:b]) for a, b in pairwise([0, *ends])]
    converged = np.ones(bits.shape[:2], dtype=bool)
    each, prior = np.full((2, *codes.shape), np.log2(classes))
    for i, sums in enumerate(accumulate(moments(x, parts[:-1])), 1):
        sent, portion = np.sort(order[: ends[i - 1]]), parts[i]
        weights, intercepts, reached = _fit(x, sent, sums, codes[:, sent], classes, Cs, len(x) / (2 * len(sent)))
        mix = softmax(-np.log(2) * bits[:, :, :i].sum(2), axis=1)
        design = Design(x, portion, sums.mean)
        bits[:, :, i], each[:, portion] = _bits(design, codes[:, portion], weights, intercepts, len(sent), mix)
        counts = np.stack([np.bincount(labels[sent], minlength=classes) for labels in codes])
        shares = (counts + 0.5) / (len(sent) + classes / 2)
        prior[:, portion] = -np.log2(np.take_along_axis(shares, codes[:, portion], 1))
        converged &= reached
    return OnlineCode(bits, ends, classes, tuple(float(c) for c in Cs), converged, each, prior)


def checked_codes(x: np.ndarray, Y: np.ndarray, classes: int | None) -> tuple[np.ndarray, int]:
    """The labels as int64 (targets, n), and the number of classes; raises UsageError as :func:`online_code`."""
    y = np.asarray(Y)
    if y.dtype.kind not in "iub":
        raise UsageError(f"code lengths are defined only for classes (whole numbers); these labels are {y.dtype}.")
    if x.ndim != 2 or y.ndim not in (1, 2) or len(y) != len(x):
        raise UsageError(f"vectors must be (n, d) and labels (n,) or (n, targets), not {x.shape} and {y.shape}.")
    if len(x) < 2 or y.min() < 0:
        raise UsageError(
            f"a code needs two or more examples, all labelled, not {len(x)} with {(y < 0).sum()} unlabelled."
        )
    found = int(y.max()) + 1
    if (classes or found) < max(found, 2):
        raise UsageError(
            f"the largest label is {found - 1}, for {classes or found} classes; there must be {max(found, 2)}."
        )
    return y.reshape(len(y), -1).T.astype(np.int64), classes or found


def _portions(
    n: int, groups: np.ndarray | None, fractions: Sequence[float], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The order in which rows are sent, int (n,), and the number sent by the end of each portion."""
    if not fractions or fractions[-1] != 1 or not (np.diff([0, *fractions]) > 0).all():
        raise UsageError(f"fractions must increase from above 0 to 1, not {tuple(fractions)}.")
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    place = rng.permutation(int(unit.max()) + 1)[unit]
    order = np.argsort(place, kind="stable")
    whole = np.append(np.flatnonzero(np.diff(place[order])) + 1, n)  # where a group has ended
    ends = np.unique(whole[np.searchsorted(whole, np.round(np.asarray(fractions) * n))])
    if len(ends) < 2:
        raise UsageError(
            "all examples fall into one portion; the code needs two or more (use more groups or fractions)."
        )
    return order, ends


def _fit(
    x: np.ndarray, rows: np.ndarray, sums: Moments, codes: np.ndarray, classes: int, Cs: Sequence[float], slack: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit the regressions of each target on the classes seen so far.

    Returns weights (targets, Cs, classes, d) on x - mean and intercepts (targets, Cs, classes), float64, and which fits
    converged (targets, Cs). An unseen class has weights 0 and the intercept -inf, its maximum likelihood value. If two
    of more classes are seen, their softmax weights are ±w/2, where w comes from the binary regression with twice the
    C. ``slack`` multiplies the tolerance.

    Targets with equally many seen classes are solved together. (Starting from the solutions of the previous portion
    takes more iterations, because the fits change most where they are hardest.)
    """
    shape = (len(codes), len(Cs), classes)
    weights, intercepts = np.zeros((*shape, x.shape[1])), np.full(shape, -np.inf)
    converged = np.ones(shape[:2], dtype=bool)
    dtype = precision(len(rows), x.shape[1])
    seen = np.stack([np.bincount(y, minlength=classes) for y in codes]) > 0
    for many in np.unique(seen.sum(1)):
        targets = np.flatnonzero(seen.sum(1) == many)
        at = targets[:, None, None], np.arange(len(Cs))[:, None], np.nonzero(seen[targets])[1].reshape(-1, 1, many)
        if many == 1:
            intercepts[at] = 0
            continue
        rank = np.cumsum(seen[targets], axis=1) - 1  # of a class among those seen
        fit = fit_logistic(
            x,
            np.take_along_axis(rank, codes[targets], axis=1),
            int(many),
            np.asarray(Cs) * (2 if many == 2 < classes else 1),
            rows=rows,
            sums=sums,
            tol=min(1e-3, slack * TOL[dtype]),
            dtype=dtype,
        )
        w, b = fit.weights, fit.intercepts
        if many == 2:
            w, b = np.concatenate([-w, w], axis=2) / 2, np.concatenate([-b, b], axis=2) / 2
        weights[at], intercepts[at], converged[targets] = w, b, fit.converged
    return weights, intercepts, converged


def _bits(
    portion: Design, codes: np.ndarray, weights: np.ndarray, intercepts: np.ndarray, sent: int, mix: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bits that the labels of a portion take, float64 (targets, Cs), and each label under a mixture, (targets, n)."""
    targets, penalties, classes, width = weights.shape
    w = torch.from_numpy(weights.reshape(-1, width)).to(portion.dtype)
    b = torch.from_numpy(intercepts)[..., None].to(portion.dtype)
    y, total, each = torch.from_numpy(codes), np.zeros((targets, penalties)), np.empty(codes.shape)
    weight = torch.from_numpy(mix)[..., None]
    for rows, block in portion.blocks():
        z = product(w, block).view(targets, penalties, classes, -1) + b
        gold = y[:, None, None, rows].expand(-1, penalties, -1, -1)
        p = z.log_softmax(2).gather(2, gold)[:, :, 0].double().exp()
        p = (sent * p + 0.5) / (sent + classes / 2)
        total -= p.log2().sum(2).numpy()
        each[:, rows] = -(weight * p).sum(1).log2().numpy()
    return total, each
