"""Labels independent of the predictions: their metric by chance, and the distance of gold labels above it.

Predictions do not change, and labels are permuted among examples or groups. If labels and predictions are independent,
the test is exact for every metric. The distance above chance is a different number: the metric minus that of
independent labels and predictions with the same frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from probekit.errors import UsageError
from probekit.notes import logger
from probekit.statistics._additive import ADDITIVE, BY_CLASS, span_finder
from probekit.statistics._sums import EXACT, Statistic, Units, UnitSums, statistic
from probekit.statistics.bootstrap import COUNTED_AS, bounds, replicates, unbiased
from probekit.statistics.over_labels import ALONE, mean_of, over_labels, rows_that_count
from probekit.statistics.permutation import BLOCK, Chance, ranks
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import SORTED, measured

log = logger(__name__)
FEWEST = 10
"""Minimum number of groups of similar size among which labels are permuted."""


def relabelled(evaluated: Predictions, fits: Sequence[int], metric: str, *, draws: int, seed: int) -> Chance:
    """A metric of several fits with the actual labels, and with permuted labels, the same for all fits.

    Predictions do not change. If labels are independent of them, this is exact for every metric; log-loss needs the
    predicted probabilities. Labels are permuted as in :func:`shuffles`.

    Parameters
    ----------
    evaluated : Predictions
        Of n examples.
    fits : sequence of int
        Positions of fits with the same target labels.

    Returns
    -------
    tuple of ndarray
        The metric, float64 (K,), and that of each draw, (K, draws).

    Raises
    ------
    UsageError
        If the fits have different target labels, or there are no probabilities for log-loss.
    """
    part = evaluated.take(list(fits))
    gold = np.atleast_2d(part.gold)
    if (gold != gold[:1]).any():
        raise UsageError("the fits have different target labels; permutation needs the same labels for all fits.")
    value = _relabelling(part, gold[0], metric)
    observed = value(np.arange(len(part.ids))[None])[:, 0]
    found, moved = [np.empty((len(observed), 0))], False
    for order in shuffles(len(part.ids), part.groups, draws=draws, seed=seed):
        found.append(value(order))
        moved = moved or bool((gold[0][order] != gold[0]).any())
    if draws and not moved and len(np.unique(gold[0])) > 1:
        log.warning(
            "permuted labels equal the labels: groups of one size have the same labels in the same order, so p is 1 "
            "whatever was predicted. Change the order of the rows within groups, or use --groups none."
        )
    return observed, np.concatenate(found, axis=1)


def above_chance(
    evaluated: Predictions, fits: Sequence[int], metric: str, chance: Chance, *, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The distance of a metric of several fits from that of labels independent of the predictions.

    Independent labels and predictions have the same frequencies as in each resample. For span F1, micro F1 and
    metrics of scores, where frequencies do not determine it, chance is the mean over permuted labels.

    Parameters
    ----------
    chance : tuple of ndarray
        The result of :func:`relabelled`.

    Returns
    -------
    tuple of ndarray
        The distance, float64 (K,), and its replicates, (K, resamples).
    """
    part = evaluated.take(list(fits))
    if metric in ("span-f1", "micro-f1", *SORTED) or over_labels(metric, evaluated.of_label):
        found = bounds(metric=metric, resamples=resamples, seed=seed, **part.sample())
        mean = mean_of(chance[1].T)
        return chance[0] - mean, np.where(found.why == "", found.resampled.T - mean, np.nan).T
    if metric in ("matthews", "pearson", "spearman", "quadratic-kappa"):  # 0 by chance
        arguments = part.sample() | {"gold": np.atleast_2d(part.gold)[0]}
        return chance[0], replicates(metric=metric, resamples=resamples, seed=seed, **arguments)
    units, gold = Units.of_groups(part.groups, len(part.ids)), np.atleast_2d(part.gold)[:1]
    one: Statistic
    if metric == "log-loss":
        one = _losses(part, gold[0], units)
    else:
        one = statistic(f"{metric} above chance", gold, part.predicted, units)
    value = one.at(np.ones((1, units.count)))[:, 0]
    return value, unbiased(one, value, units, resamples, seed)


def _losses(e: Predictions, gold: np.ndarray, units: Units) -> UnitSums:
    """Log loss minus that of independent labels with the same frequencies, from class frequencies and mean losses."""
    losses = _losses_by_class(e)
    share = gold == np.arange(len(losses))[:, None]
    planes = [np.where(share[:, None], losses, 0).sum(0), *losses, *share[:, None], np.ones((1, len(gold)))]
    blocks = [units.total(np.asarray(plane, dtype=np.float64)) for plane in planes]

    def value(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
        own, mean, true = parts[0], parts[1 : 1 + len(losses)], parts[1 + len(losses) :]
        return own / n - sum(a * b for a, b in zip(mean, true, strict=True)) / n**2

    return UnitSums(np.concatenate(blocks), (0, *np.cumsum([len(b) for b in blocks]).tolist()), len(e), value)


def _losses_by_class(e: Predictions) -> np.ndarray:
    """The log loss for each class as the label, nats, float64 (classes, F, n)."""
    if e.probabilities is None or len(e.probabilities) != len(e):
        raise UsageError("log-loss of permuted labels needs the predicted probabilities, but there are none.")
    return np.moveaxis(-np.log(np.maximum(e.probabilities.astype(np.float64), 1e-38)), 2, 0)


def _relabelling(e: Predictions, gold: np.ndarray, metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """The metric of all fits as a function of orders of the labels, (R, n) -> (F, R)."""
    if e.of_label is not None and over_labels(metric, e.of_label):
        return _over_labels(e, gold, metric, e.of_label)
    if metric == "span-f1":
        return _by_spans(e, gold)
    if metric in SORTED and (scores := e.scores) is not None:
        every = scores.part(0, len(e))
        return lambda order: np.stack([measured(metric, gold[order], one) for one in every])
    metric = COUNTED_AS.get(metric, metric)
    if metric == "log-loss":
        losses = _losses_by_class(e)
        return _by_class(gold, range(len(losses)), losses, lambda hits, _: hits.sum(0) / len(gold))
    if metric in ("pearson", "spearman", "rmse", "quadratic-kappa"):
        return _by_products(gold, e.predicted, metric)
    if metric not in BY_CLASS:
        raise UsageError(f"there is no permutation test for {metric}; choose one of {', '.join(BY_CLASS)}.")
    classes = [1] if metric == "f1" else np.unique(np.concatenate([np.unique(gold), np.unique(e.predicted)]))
    predictions = np.stack([e.predicted == c for c in classes])
    total = predictions.sum(2, dtype=np.float64)[..., None]

    def value(hits: np.ndarray, true: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return ADDITIVE[metric].value(BY_CLASS[metric](hits, true, total), np.full(hits.shape[2], float(len(gold))))

    return _by_class(gold, classes, predictions.astype(np.float32 if len(gold) < EXACT else np.float64), value)


def _over_labels(
    e: Predictions, gold: np.ndarray, metric: str, of_label: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """The mean over labels; all labels of an example move together, so each label gets one of its own."""
    parts = []
    for rows in rows_that_count(of_label, gold):
        own = replace(e.of_rows(rows), of_label=None, gold=gold[rows])
        parts.append((rows, _relabelling(own, gold[rows], ALONE.get(metric, metric))))

    def of(order: np.ndarray) -> np.ndarray:
        return mean_of(np.stack([value(np.searchsorted(rows, order[:, rows])) for rows, value in parts]))

    return of


def _by_class(
    gold: np.ndarray, classes: Sequence[int] | np.ndarray, predictions: np.ndarray, value: Callable[..., np.ndarray]
) -> Callable[[np.ndarray], np.ndarray]:
    """``value`` of the sums of ``predictions`` (C, F, n) over examples with each class, and of its counts."""

    def of(order: np.ndarray) -> np.ndarray:
        labels = gold[order]
        hits = np.empty((len(predictions), predictions.shape[1], len(order)))
        true = np.empty((len(predictions), 1, len(order)))
        for i, c in enumerate(classes):
            one = (labels == c).T
            hits[i], true[i, 0] = predictions[i] @ one.astype(predictions.dtype), one.sum(0)
        return np.broadcast_to(value(hits, true), (predictions.shape[1], len(order)))

    return of


def _by_products(gold: np.ndarray, predicted: np.ndarray, metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """Correlations and errors of numbers: sums of gold values, their squares, and products with predictions."""
    y, p = gold[None].astype(np.float64), predicted.astype(np.float64)
    if metric == "spearman":
        y, p, metric = ranks(y), ranks(p), "pearson"
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
    """Span F1: the spans of the labels are found again in each order; a sentence's labels move together."""
    sentences = e.groups if e.sentences is None else e.sentences
    if sentences is None:
        raise UsageError("span-f1 needs the sentence of each word (sentences or groups).")
    ends = np.append(np.diff(np.unique(sentences, return_inverse=True)[1].reshape(-1)) != 0, True)
    spans, count = span_finder(e.label_names, ends)
    predicted_spans = np.stack([_keys(spans(row), count) for row in e.predicted])
    total = (predicted_spans >= 0).sum(1, dtype=np.float64)

    def of(order: np.ndarray) -> np.ndarray:
        out = np.empty((len(predicted_spans), len(order)))
        for r, one in enumerate(order):
            key = _keys(spans(gold[one]), count)
            last = np.flatnonzero(key >= 0)
            hits = (predicted_spans[:, last] == key[last]).sum(1)
            out[:, r] = 2 * hits / np.maximum(total + len(last), 1)
        return out

    return of


def _keys(found: tuple[np.ndarray, np.ndarray, np.ndarray], types: int) -> np.ndarray:
    """A code for each span at its last word, from its start and type; -1 elsewhere."""
    closes, begin, kind = found
    return np.where(closes, begin * types + kind, -1)


def shuffles(n: int, groups: np.ndarray | None, *, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Random orders of n labels, in blocks, int64 (R, n): entry i is the row whose label row i gets.

    Without groups all orders are equally likely. With groups, labels move as a whole and in order among groups of the
    same size, which preserves dependence within groups. Sizes with fewer than ten groups are joined with the next
    sizes: a group's labels are truncated if too many and repeated if too few.
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
    """Groups of similar size: their rows (g, most), repeated for shorter groups; the rows, group, position."""
    count = np.bincount(unit)
    order = np.argsort(unit, kind="stable")
    first = np.cumsum(count) - count
    sizes, n_groups = np.unique(count, return_counts=True)
    cuts, n_members = [0], 0
    for i, many in enumerate(n_groups):
        n_members += many
        if n_members >= FEWEST:
            cuts.append(i + 1)
            n_members = 0
    if n_members:
        cuts = [*cuts[:-1], len(sizes)] if len(cuts) > 1 else [0, len(sizes)]
    found = []
    for a, b in pairwise(cuts):
        members_of_bin = np.flatnonzero((count >= sizes[a]) & (count <= sizes[b - 1]))
        members = order[first[members_of_bin][:, None] + np.arange(sizes[b - 1]) % count[members_of_bin][:, None]]
        group = np.repeat(np.arange(len(members_of_bin)), count[members_of_bin])
        position = np.arange(len(group)) - np.repeat(
            np.cumsum(count[members_of_bin]) - count[members_of_bin], count[members_of_bin]
        )
        found.append((members, members[group, position], group, position))
    return found
