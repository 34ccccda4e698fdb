"""Bootstrap of metrics over the evaluated examples, of many fits at once, from their predictions alone.

Nothing is fitted again: the examples, or whole groups of them, are drawn with replacement (Efron & Tibshirani 1993,
chapter 13), and every fit is evaluated on the same draws, so that differences between fits are paired.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics._sums import ADDITIVE, Rows, Score, Statistic, Units, statistic

__all__ = ["METRICS", "estimates", "interval", "intervals", "pseudo_values", "replicates", "statistics"]

METRICS = (*ADDITIVE, "spearman")
"""The metrics that are computed for all resamples at once."""
BLOCK = 1 << 24  # numbers held at once
KEPT = 1 << 26  # bytes of draws that are kept for the next call


def replicates(
    gold: np.ndarray, predicted: np.ndarray, metric: str, *, resamples: int = 1000, seed: int = 0, **more: Any
) -> np.ndarray:
    """The metric of F fits in each resample of the examples, float64 (F, resamples); NaN where it is undefined.

    The draws depend on the seed and the number of examples (groups) only: all fits, layers and models of a data set
    meet the same ones, whatever is asked for together.

    Parameters
    ----------
    gold : np.ndarray
        (n,), or (F, n) where the fits were asked for different labels; codes of classes, or numbers.
    predicted : np.ndarray
        (F, n).
    metric : str
        One of METRICS, as ``probekit.metrics`` defines them; "log-loss" is the mean of ``log_loss``, nats.
    **more
        groups, log_loss, label_names, score, sentences: see :func:`statistics`.

    Raises
    ------
    UsageError
        As :func:`statistics` does.
    """
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate(
        [np.concatenate([one.at(w) for w in draws(units.count, resamples, seed)], axis=1) for units, one in parts]
    )


def estimates(gold: np.ndarray, predicted: np.ndarray, metric: str, **more: Any) -> np.ndarray:
    """The metric of F fits on the examples as they are, float64 (F,); arguments as of :func:`replicates`."""
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate([one.at(np.ones((1, units.count)))[:, 0] for units, one in parts])


def pseudo_values(gold: np.ndarray, predicted: np.ndarray, metric: str, **more: Any) -> np.ndarray:
    """What each unit contributes to the metric, float64 (F, units): the jackknife's pseudo-values (Tukey 1958).

    With m units, m times the metric of all minus m - 1 times the metric without the unit; of a mean over examples it
    is the example's own score. Arguments as of :func:`replicates`.
    """
    parts = statistics(gold, predicted, metric, **more)
    return np.concatenate(
        [units.count * one.at(np.ones((1, units.count))) - (units.count - 1) * one.without() for units, one in parts]
    )


def statistics(
    gold: np.ndarray,
    predicted: np.ndarray,
    metric: str,
    *,
    groups: np.ndarray | None = None,
    log_loss: np.ndarray | None = None,
    label_names: Sequence[str] = (),
    score: Score | None = None,
    sentences: np.ndarray | None = None,
) -> Iterator[tuple[Units, Statistic]]:
    """The metric as a function of how often each unit is drawn, some fits at a time (memory), in order.

    gold (n,) or (F, n), predicted (F, n) : as of :func:`replicates`. For "span-f1": lists of tag names, one a
        sentence, or codes of ``label_names`` by word.

    Parameters
    ----------
    groups : np.ndarray, optional
        (n,), what is drawn as a whole: the sentence of each word, the document …; each example for None.
    log_loss : np.ndarray, optional
        (F, n), nats, of "log-loss"
    score : Score, optional
        The metric's own function of (gold, predicted), both (n,). It is called once a fit and resample where the name
        is unknown, or where its value on the first fit is not what the name says.
    sentences : np.ndarray, optional
        (n,), of "span-f1" the sentence of each word; the groups for None.

    Raises
    ------
    UsageError
        For shapes that do not go together, and for a metric that is neither known nor given.
    """
    if metric == "log-loss":
        if log_loss is None:
            raise UsageError("log-loss wants the losses of the examples (log_loss), and there are none.")
        predicted = log_loss
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    gold = gold[None] if gold.ndim == 1 else gold
    if predicted.ndim != 2 or gold.shape not in (predicted.shape, (1, predicted.shape[1])) or not predicted.size:
        raise UsageError(f"predictions (F, n) and gold (n,) or (F, n) are wanted, not {predicted.shape}, {gold.shape}.")
    if metric not in METRICS and score is None:
        raise UsageError(f"unknown metric {metric!r}; known are {', '.join(METRICS)}.")
    units = Units.of_groups(groups, predicted.shape[1])
    names = tuple(label_names) or _tag_names(metric, gold, predicted)
    known = metric in METRICS and (score is None or _agree(metric, score, gold[0], predicted[0], units, names))
    coded = metric in ("matthews", "macro-f1") and gold.dtype.kind in "iu"
    classes = 1 + int(gold.max()) - int(gold.min()) if coded else 1
    step = max(1, int(BLOCK // (max(units.count, units.rows // 8) * 3 * classes)))
    for at in range(0, len(predicted), step):
        g, p = (y if len(y) == 1 else y[at : at + step] for y in (gold, predicted))
        if known:
            yield units, statistic(metric, g, p, units, label_names=names, sentences=sentences)
        else:
            yield units, Rows(g, p, units, partial(_loop, score))  # type: ignore[arg-type]


def _tag_names(metric: str, gold: np.ndarray, predicted: np.ndarray) -> tuple[str, ...]:
    if metric != "span-f1" or gold.dtype != object:
        return ()
    return tuple(sorted({tag for y in (gold, predicted) for row in y for tags in row for tag in tags}))


def _agree(
    metric: str, score: Score, gold: np.ndarray, predicted: np.ndarray, units: Units, names: Sequence[str]
) -> bool:
    if metric == "span-f1" and gold.dtype != object:  # codes by word, where the metric's function wants lists of names
        return True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mine = statistic(metric, gold[None], predicted[None], units, label_names=names).at(np.ones((1, units.count)))
        return bool(np.isclose(mine[0, 0], score(gold, predicted), rtol=1e-6, atol=1e-9, equal_nan=True))


def _loop(score: Score, gold: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    drawn = (np.repeat(np.arange(len(gold)), row.astype(np.int64)) for row in weights)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a resample may hold one class only
        return np.array([float(score(gold[rows], predicted[rows])) for rows in drawn])


def draws(units: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each unit is drawn: float32 (resamples of this block, units), the same for the same three numbers."""
    block = max(1, BLOCK // units)
    kept = _kept(units, resamples, seed) if units * resamples <= KEPT else None
    rng = np.random.default_rng(seed)
    for at in range(0, resamples, block):
        size = min(block, resamples - at)
        yield (_draw(units, size, rng) if kept is None else kept[at : at + size]).astype(np.float32)


@lru_cache(maxsize=2)
def _kept(units: int, resamples: int, seed: int) -> np.ndarray:
    counts = _draw(units, resamples, np.random.default_rng(seed))
    counts.setflags(write=False)
    return counts


def _draw(units: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of ``units`` draws out of as many, uint8 (resamples, units): more than 255 of one do not happen."""
    counts = np.empty((resamples, units), dtype=np.uint8)
    step = max(1, (1 << 16) // units)  # what the processor's cache holds
    for at in range(0, resamples, step):
        drawn = rng.integers(units, size=(min(step, resamples - at), units), dtype=np.uint32).astype(np.int64)
        drawn += np.arange(len(drawn))[:, None] * units
        counts[at : at + step] = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return counts


def intervals(replicated: np.ndarray, *, level: float = 0.95, units: int | None = None) -> np.ndarray:
    """Percentile intervals of F fits, (F, 2), from their replicates (F, resamples).

    Replicates that are undefined are left out; (NaN, NaN) where fewer than half remain.

    Parameters
    ----------
    units : int, optional
        How many examples or groups were drawn. The percentiles are then those of the expanded interval (Hesterberg
        2015, section 5.3), which makes up for the narrowness of few units; of 400 it differs in the third digit.
    """
    if units is not None and units < 2:  # one thing drawn again is that thing
        return np.full((len(replicated), 2), np.nan)
    if units is not None:
        level = 1 - 2 * float(stats.norm.cdf(np.sqrt(units / (units - 1)) * stats.t.ppf((1 - level) / 2, units - 1)))
    ordered = np.sort(replicated, axis=1)  # NaN last
    known = np.isfinite(ordered).sum(1)
    enough = (known > 0) & (2 * known >= replicated.shape[1])
    out = np.full((len(ordered), 2), np.nan)
    for side, share in enumerate(((1 - level) / 2, (1 + level) / 2)):
        at = share * (np.maximum(known, 1) - 1)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(known, 1) - 1)
        rows = np.flatnonzero(enough)
        a, b = ordered[rows, low[rows]], ordered[rows, high[rows]]
        out[rows, side] = a + (at - low)[rows] * (b - a)
    return out


def interval(
    y_true: np.ndarray,
    y_pred: np.ndarray,
    score: Score,
    *,
    name: str = "",
    groups: np.ndarray | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Lower and upper bound of ``score(y_true, y_pred)``, (n,) both, of one fit; see :func:`replicates`.

    (NaN, NaN) for resamples=0, and where the score is undefined on more than half of the resamples.
    """
    if resamples == 0:
        return float("nan"), float("nan")
    again = replicates(
        y_true, np.asarray(y_pred)[None], name, score=score, groups=groups, resamples=resamples, seed=seed
    )
    units = Units.of_groups(groups, len(y_true)).count
    low, high = intervals(again, level=level, units=units)[0]
    return float(low), float(high)
