"""Labels that have nothing to do with what is predicted: what they give by chance, and what gold labels give above it.

Predictions stay what they are, and labels move to other examples, or whole groups of them. Where labels and predictions
are independent the test is exact, whatever the metric. How far gold labels are above chance is another number: the
metric minus that of labels as frequent as gold's and independent of the predictions, which are as frequent as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from probekit.errors import UsageError
from probekit.statistics._additive import ADDITIVE, BY_CLASS, span_finder
from probekit.statistics._sums import EXACT, Statistic, Sums, Units, statistic
from probekit.statistics.bootstrap import bounds, replicates, unbiased
from probekit.statistics.permutation import BLOCK, Chance, ranks
from probekit.statistics.predictions import Predictions

__all__ = ["above_chance", "relabelled", "shuffles"]

FEWEST = 10
"""Groups of similar size among which labels move."""


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


def above_chance(
    evaluated: Predictions, fits: Sequence[int], metric: str, chance: Chance, *, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """How far a metric of some fits is from that of labels that have nothing to do with what they predict.

    Labels are as frequent as gold's, and predictions as they are, in each resample its own. Of span F1, where this is
    no function of frequencies, chance is the mean of permuted labels.

    Parameters
    ----------
    chance : tuple of ndarray
        What :func:`relabelled` returns.

    Returns
    -------
    tuple of ndarray
        The distance, float64 (K,), and its replicates, (K, resamples).
    """
    part = evaluated.take(list(fits))
    if metric == "span-f1":
        found = bounds(metric=metric, resamples=resamples, seed=seed, **part.sample())
        mean = np.nanmean(chance[1], axis=1)
        return chance[0] - mean, np.where(found.why == "", found.again.T - mean, np.nan).T
    if metric in ("matthews", "pearson", "spearman"):  # 0 by chance
        how = part.sample() | {"gold": np.atleast_2d(part.gold)[0]}
        return chance[0], replicates(metric=metric, resamples=resamples, seed=seed, **how)
    units, gold = Units.of_groups(part.groups, len(part.ids)), np.atleast_2d(part.gold)[:1]
    one: Statistic
    if metric == "log-loss":
        one = _losses(part, gold[0], units)
    else:
        one = statistic(f"{metric} above chance", gold, part.predicted, units)
    value = one.at(np.ones((1, units.count)))[:, 0]
    return value, unbiased(one, value, units, resamples, seed)


def _losses(e: Predictions, gold: np.ndarray, units: Units) -> Sums:
    """Log loss minus that of labels as frequent and independent, of the classes' shares and mean losses."""
    losses = _losses_by_class(e)
    share = gold == np.arange(len(losses))[:, None]
    planes = [np.where(share[:, None], losses, 0).sum(0), *losses, *share[:, None], np.ones((1, len(gold)))]
    blocks = [units.total(np.asarray(plane, dtype=np.float64)) for plane in planes]

    def value(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
        own, mean, true = parts[0], parts[1 : 1 + len(losses)], parts[1 + len(losses) :]
        return own / n - sum(a * b for a, b in zip(mean, true, strict=True)) / n**2

    return Sums(np.concatenate(blocks), (0, *np.cumsum([len(b) for b in blocks]).tolist()), len(e), value)


def _losses_by_class(e: Predictions) -> np.ndarray:
    """What each class would cost, nats, float64 (classes, F, n)."""
    if e.probabilities is None or len(e.probabilities) != len(e):
        raise UsageError("log-loss of permuted labels wants the predicted probabilities, and there are none.")
    return np.moveaxis(-np.log(np.maximum(e.probabilities.astype(np.float64), 1e-38)), 2, 0)


def _relabelling(e: Predictions, gold: np.ndarray, metric: str) -> Callable[[np.ndarray], np.ndarray]:
    """The metric of all fits as a function of orders of the labels, (R, n) -> (F, R)."""
    if metric == "span-f1":
        return _by_spans(e, gold)
    if metric == "log-loss":
        losses = _losses_by_class(e)
        return _by_class(gold, range(len(losses)), losses, lambda hits, _: hits.sum(0) / len(gold))
    if metric in ("pearson", "spearman", "rmse"):
        return _by_products(gold, e.predicted, metric)
    if metric not in BY_CLASS:
        raise UsageError(f"there is no test of {metric} on permuted labels; there is of {', '.join(BY_CLASS)}.")
    classes = [1] if metric == "f1" else np.unique(np.concatenate([np.unique(gold), np.unique(e.predicted)]))
    said = np.stack([e.predicted == c for c in classes])
    total = said.sum(2, dtype=np.float64)[..., None]

    def value(hits: np.ndarray, true: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return ADDITIVE[metric].value(BY_CLASS[metric](hits, true, total), np.full(hits.shape[2], float(len(gold))))

    return _by_class(gold, classes, said.astype(np.float32 if len(gold) < EXACT else np.float64), value)


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
