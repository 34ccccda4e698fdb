"""What chance gives: metrics computed again after predictions were exchanged, or labels permuted.

A metric such as F1 or Matthews' coefficient is a ratio of sums over the examples, so chance is not a sum over examples
either: the exchange is done, and the metric computed again of what it leaves. All draws are a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics._sums import ADDITIVE, EXACT, Sums, Units, span_finder, statistic
from probekit.statistics.predictions import Predictions

__all__ = ["exchanged", "of_controls", "relabelled", "shuffles"]

BLOCK = 1 << 24  # numbers held at once
FEWEST = 10
"""Groups of similar size among which labels move."""
Chance = tuple[np.ndarray, np.ndarray]
"""What was observed, (K,), and the same in each draw of chance, (K, R); NaN where it is undefined."""


def exchanged(
    evaluated: Predictions, pairs: Sequence[tuple[int, Sequence[int]]], metric: str, *, draws: int, seed: int
) -> Chance:
    """Differences between a fit and the mean of some others, and what they are once the fits' outcomes are exchanged.

    For each example (group) a number is drawn, and what the 1 + k fits of a pair said of it moves on by so many fits;
    the metric of each is then computed again. Where it makes no difference which fit said what of an example this is
    exact, whatever the metric (Hemerik & Goeman 2018, theorem 2: these moves are a group). The gold label moves with
    the prediction, which tells only where fits were asked for different labels. The same numbers are drawn for all
    pairs.

    Parameters
    ----------
    evaluated : Predictions
        Of n examples.
    pairs : sequence of tuple
        Positions of a fit and of those it is held against.
    metric : str
        Of "pearson" and "spearman", predictions are exchanged as they enter it: standardised, or as ranks.

    Returns
    -------
    tuple of ndarray
        The differences, float64 (K,), and those of each draw, (K, draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    place = {f: i for i, f in enumerate(used)}
    sums = _sums(evaluated.take(used), metric)
    observed, null = np.empty(len(pairs)), np.empty((len(pairs), draws))
    for size in sorted({1 + len(others) for _, others in pairs}):
        at = [k for k, (_, others) in enumerate(pairs) if 1 + len(others) == size]
        fits = np.array([[place[f] for f in (pairs[k][0], *pairs[k][1])] for k in at])
        rows = np.stack([np.where(many, a + fits, a) for a, many in _planes(sums)], axis=2)
        units = sums.matrix.shape[1]
        observed[at] = _moved(sums, rows, np.zeros((1, units), dtype=np.int8))[:, 0]
        rng, block = np.random.default_rng([seed, size]), max(1, BLOCK // units)
        inner = max(1, BLOCK // (size * (len(sums.matrix) + rows.size)))
        for start in range(0, draws, block):
            slots = rng.integers(size, size=(min(block, draws - start), units), dtype=np.int32).astype(np.int16)
            for i in range(0, len(slots), inner):
                part = slots[i : i + inner]
                null[at, start + i : start + i + len(part)] = _moved(sums, rows, part)
    return observed, null


def _planes(sums: Sums) -> list[tuple[int, bool]]:
    """Where each block of sums begins, and whether it has a row for each fit; without the count of rows."""
    return [(a, b - a > 1) for a, b in pairwise(sums.cuts)][:-1]


def _moved(sums: Sums, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """First minus the mean of the others, (pairs, R), once unit u of pairs has moved on by slots (R, u) fits.

    rows (pairs, 1 + k, planes): where a fit's sums are in the matrix.
    """
    size, n = rows.shape[1], sums.matrix[-1].sum(dtype=np.float64)
    parts = [sums.matrix @ (slots == s).T.astype(sums.matrix.dtype) for s in range(size)]
    values = []
    for i in range(size):
        total = sum(parts[s][rows[:, (i + s) % size]].astype(np.float64) for s in range(size))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = sums.value(list(np.moveaxis(total, 1, 0)), np.full(len(slots), n))
        values.append(np.broadcast_to(value, (len(rows), len(slots))))
    return values[0] - np.mean(values[1:], axis=0)


def _sums(e: Predictions, metric: str) -> Sums:
    """The sums by unit of all fits."""
    gold, predicted = e.gold, _said(e, metric)
    if gold.ndim == 2 and (gold == gold[:1]).all():
        gold = gold[0]
    gold = np.atleast_2d(gold)
    if metric == "spearman":  # Pearson's coefficient of ranks
        gold, predicted, metric = _ranks(gold), _ranks(predicted), "pearson"
    units = Units.of_groups(e.groups, len(e.ids))
    found = statistic(metric, gold, predicted, units, label_names=e.label_names, sentences=e.sentences)
    if not isinstance(found, Sums):
        raise UsageError(f"{metric} is no function of sums over examples; fits cannot be exchanged by it.")
    return found


def _said(e: Predictions, metric: str) -> np.ndarray:
    if metric != "log-loss":
        return e.predicted
    if e.log_loss is None:
        raise UsageError("log-loss wants the losses of the examples (log_loss), and there are none.")
    return e.log_loss


def _ranks(x: np.ndarray) -> np.ndarray:
    return np.asarray(stats.rankdata(x, axis=1, nan_policy="propagate"))


def relabelled(evaluated: Predictions, fits: Sequence[int], metric: str, *, draws: int, seed: int) -> Chance:
    """A metric of some fits on the labels as they are, and on permuted labels, the same for all of them.

    What was predicted stays. Where labels have nothing to do with it this is exact, whatever the metric; log-loss wants
    the predicted probabilities. Labels move as :func:`shuffles` says.

    Parameters
    ----------
    evaluated : Predictions
        Of n examples.
    fits : sequence of int
        Positions of fits that were asked for the same labels.

    Returns
    -------
    tuple of ndarray
        The metric, float64 (K,), and that of each draw, (K, draws).

    Raises
    ------
    UsageError
        Where the fits were asked for different labels, or log-loss has no probabilities.
    """
    part = evaluated.take(list(fits))
    gold = np.atleast_2d(part.gold)
    if (gold != gold[:1]).any():
        raise UsageError("labels are permuted where all fits were asked for the same ones.")
    value = _relabelling(part, gold[0], metric)
    observed = value(np.arange(len(part.ids))[None])[:, 0]
    blocks = shuffles(len(part.ids), part.groups, draws=draws, seed=seed)
    return observed, np.concatenate([value(order) for order in blocks], axis=1)


def _relabelling(e: Predictions, gold: np.ndarray, metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """The metric of all fits as a function of orders of the labels, (R, n) -> (F, R)."""
    if metric == "span-f1":
        return _by_spans(e, gold)
    if metric == "log-loss":
        if e.probabilities is None or len(e.probabilities) != len(e):
            raise UsageError("log-loss of permuted labels wants the predicted probabilities, and there are none.")
        log_p = np.moveaxis(np.log(np.maximum(e.probabilities.astype(np.float64), 1e-38)), 2, 0)
        return _by_class(gold, range(len(log_p)), -log_p, lambda hits, _: hits.sum(0) / len(gold))
    if metric in ("pearson", "spearman", "rmse"):
        return _by_products(gold, e.predicted, metric)
    if metric not in BY_HITS:
        raise UsageError(f"there is no test of {metric} on permuted labels; there is of {', '.join(BY_HITS)}.")
    classes = [1] if metric == "f1" else np.unique(np.concatenate([np.unique(gold), np.unique(e.predicted)]))
    said = np.stack([e.predicted == c for c in classes])
    total = said.sum(2, dtype=np.float64)[..., None]

    def value(hits: np.ndarray, true: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return ADDITIVE[metric].value(BY_HITS[metric](hits, true, total), np.full(hits.shape[2], float(len(gold))))

    return _by_class(gold, classes, said.astype(np.float32 if len(gold) < EXACT else np.float64), value)


def _confusion(hits: np.ndarray, true: np.ndarray, said: np.ndarray) -> list[np.ndarray]:
    return [part for three in zip(hits, true, said, strict=True) for part in three]


def _matthews(hits: np.ndarray, true: np.ndarray, said: np.ndarray) -> list[np.ndarray]:
    return [hits.sum(0), *(part for two in zip(true[1:], said[1:], strict=True) for part in two)]


BY_HITS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], list[np.ndarray]]] = {
    "accuracy": lambda hits, true, said: [hits.sum(0)],
    "token-accuracy": lambda hits, true, said: [hits.sum(0)],
    "f1": _confusion,
    "macro-f1": _confusion,
    "matthews": _matthews,
}
"""What a metric of classes sums, of hits (C, F, R), gold counts (C, 1, R) and predicted counts (C, F, 1)."""


def _by_class(
    gold: np.ndarray, classes: Sequence[int] | np.ndarray, said: np.ndarray, value: Callable[..., np.ndarray]
) -> Callable[[np.ndarray], np.ndarray]:
    """``value`` of the sums of ``said`` (C, F, n) over what is labelled with each class, and of the class's counts."""

    def of(order: np.ndarray) -> np.ndarray:
        labels = gold[order]
        hits = np.empty((len(said), said.shape[1], len(order)))
        true = np.empty((len(said), 1, len(order)))
        for i, c in enumerate(classes):
            one = (labels == c).T
            hits[i], true[i, 0] = said[i] @ one.astype(said.dtype), one.sum(0)
        return np.broadcast_to(value(hits, true), (said.shape[1], len(order)))

    return of


def _by_products(gold: np.ndarray, predicted: np.ndarray, metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """Correlations and the error of numbers: sums of gold, its square, and its product with what was predicted."""
    y, p = gold[None].astype(np.float64), predicted.astype(np.float64)
    if metric == "spearman":
        y, p, metric = _ranks(y), _ranks(p), "pearson"
    if metric == "pearson":
        y, p = ((x - x.mean(1, keepdims=True)) / np.maximum(x.std(1, keepdims=True), 1e-300) for x in (y, p))
    flat = np.ptp(predicted, axis=1) == 0
    p = np.where(flat[:, None], 0.0, p) if metric == "pearson" else p
    n, sp, spp = len(gold), p.sum(1, keepdims=True), (p**2).sum(1, keepdims=True)

    def of(order: np.ndarray) -> np.ndarray:
        moved = y[0][order]
        sy, syy, syp = moved.sum(1)[None], (moved**2).sum(1)[None], p @ moved.T
        with np.errstate(invalid="ignore", divide="ignore"):
            if metric == "rmse":
                return np.sqrt(np.maximum(syy - 2 * syp + spp, 0) / n)
            return ADDITIVE[metric].value([sy, sp, syy, spp, syp], np.full(len(order), float(n)))

    return of


def _by_spans(e: Predictions, gold: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """F1 of spans: those of the labels are found again in each order, a sentence's labels moving as one."""
    sentences = e.groups if e.sentences is None else e.sentences
    if sentences is None:
        raise UsageError("span-f1 wants the sentence of each word.")
    ends = np.append(np.diff(np.unique(sentences, return_inverse=True)[1].reshape(-1)) != 0, True)
    spans, count = span_finder(e.label_names, ends)
    said = np.stack([_keys(spans(row), count) for row in e.predicted])
    total = (said >= 0).sum(1, dtype=np.float64)

    def of(order: np.ndarray) -> np.ndarray:
        out = np.empty((len(said), len(order)))
        for r, one in enumerate(order):
            key = _keys(spans(gold[one]), count)
            last = np.flatnonzero(key >= 0)
            hits = (said[:, last] == key[last]).sum(1)
            out[:, r] = 2 * hits / np.maximum(total + len(last), 1)
        return out

    return of


def _keys(found: tuple[np.ndarray, np.ndarray, np.ndarray], types: int) -> np.ndarray:
    """A number for each span at its last word: where it begins, and of what type; -1 elsewhere."""
    closes, begin, kind = found
    return np.where(closes, begin * types + kind, -1)


def shuffles(n: int, groups: np.ndarray | None, *, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Orders of n labels, some at a time, int64 (R, n): at row i stands whose label it is given.

    Without groups any order is as likely. Of groups the labels move as a whole, in their order, among groups of the
    same size, so that what the labels of a group have in common stays together. Sizes of fewer than ten groups are
    taken together with the next ones: a group's labels that are too many for their place are cut, too few begin again.
    """
    rng, block = np.random.default_rng([seed, 2]), max(1, BLOCK // (4 * n))
    bins = None if groups is None else _bins(np.unique(np.asarray(groups), return_inverse=True)[1])
    for at in range(0, draws, block):
        size = min(block, draws - at)
        if bins is None:
            yield rng.permuted(np.tile(np.arange(n), (size, 1)), axis=1)
            continue
        order = np.empty((size, n), dtype=np.int64)
        for members, rows, group, position in bins:
            moved = rng.permuted(np.tile(np.arange(len(members)), (size, 1)), axis=1)
            order[:, rows] = members[moved[:, group], position]
        yield order


def _bins(unit: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Groups of similar size: their rows (g, most), a shorter one's again from the first; the rows, group, position."""
    count = np.bincount(unit)
    order = np.argsort(unit, kind="stable")
    first = np.cumsum(count) - count
    sizes, how_many = np.unique(count, return_counts=True)
    cuts, held = [0], 0
    for i, many in enumerate(how_many):
        held += many
        if held >= FEWEST:
            cuts.append(i + 1)
            held = 0
    if held:
        cuts = [*cuts[:-1], len(sizes)] if len(cuts) > 1 else [0, len(sizes)]
    found = []
    for a, b in pairwise(cuts):
        own = np.flatnonzero((count >= sizes[a]) & (count <= sizes[b - 1]))
        members = order[first[own][:, None] + np.arange(sizes[b - 1]) % count[own][:, None]]
        group = np.repeat(np.arange(len(own)), count[own])
        position = np.arange(len(group)) - np.repeat(np.cumsum(count[own]) - count[own], count[own])
        found.append((members, members[group, position], group, position))
    return found


def of_controls(evaluated: Predictions, pairs: Sequence[tuple[int, Sequence[int]]], metric: str) -> Chance:
    """A metric of fits of gold labels, and of each of their controls as if it were gold.

    Exact where gold labels are one more draw of the control's; p is no smaller than 1 / (1 + draws).
    """
    used = sorted({f for one, others in pairs for f in (one, *others)})
    part = evaluated.take(used)
    with np.errstate(invalid="ignore"):
        value = dict(zip(used, _sums(part, metric).at(np.ones((1, _units(part))))[:, 0], strict=True))
    draws = min(len(others) for _, others in pairs)
    return np.array([value[f] for f, _ in pairs]), np.array([[value[g] for g in o[:draws]] for _, o in pairs])


def _units(e: Predictions) -> int:
    return Units.of_groups(e.groups, len(e.ids)).count
