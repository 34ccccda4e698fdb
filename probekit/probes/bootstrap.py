"""Percentile bootstrap of a metric over the evaluated examples (Efron & Tibshirani 1993, chapter 13)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

__all__ = ["interval"]

Score = Callable[[np.ndarray, np.ndarray], float]
Twin = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
BLOCK = 1 << 22  # weights held at once: 32 MB


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
    """Lower and upper bound of ``score(y_true, y_pred)`` when the examples are drawn again, with replacement.

    y_true, y_pred : (n,); groups : int (n,), what is drawn as a whole (the sentence of a word), each example for None.
    name : a metric known to this module by name is computed for all resamples at once, but only where that agrees
        with ``score`` on the examples themselves; otherwise ``score`` is called once a resample.
    The same seed draws the same resamples, so layers and models are compared on equal terms. Resamples on which the
    score is undefined are left out; (NaN, NaN) where fewer than half remain, or for resamples=0.
    """
    unit = np.arange(len(y_true)) if groups is None else np.unique(groups, return_inverse=True)[1]
    twin = TWINS.get(name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a resample may hold one class only
        if twin is not None and not _agree(twin, score, y_true, y_pred):
            twin = None
        values = [
            twin(y_true, y_pred, w) if twin else np.array([_again(score, y_true, y_pred, row) for row in w])
            for w in _weights(unit, resamples, np.random.default_rng(seed))
        ]
    known = np.concatenate(values)[np.isfinite(np.concatenate(values))] if values else np.empty(0)
    if len(known) == 0 or len(known) < resamples / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _weights(unit: np.ndarray, resamples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each example is drawn: float64 (resamples of this block, n)."""
    units = int(unit.max()) + 1
    block = max(1, BLOCK // len(unit))
    for start in range(0, resamples, block):
        b = min(block, resamples - start)
        drawn = rng.integers(units, size=(b, units)) + np.arange(b)[:, None] * units
        counts = np.bincount(drawn.ravel(), minlength=b * units).reshape(b, units)
        yield counts.astype(np.float64)[:, unit]


def _again(score: Score, y_true: np.ndarray, y_pred: np.ndarray, weights: np.ndarray) -> float:
    rows = np.repeat(np.arange(len(y_true)), weights.astype(int))
    return float(score(y_true[rows], y_pred[rows]))


def _agree(twin: Twin, score: Score, y_true: np.ndarray, y_pred: np.ndarray) -> bool:
    mine, given = float(twin(y_true, y_pred, np.ones((1, len(y_true))))[0]), float(score(y_true, y_pred))
    return bool(np.isclose(mine, given, rtol=1e-6, atol=1e-9, equal_nan=True))


def _accuracy(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (w @ (y_true == y_pred)) / w.sum(1)


def _f1(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.nan_to_num(_f1_by_class(y_true, y_pred, w, np.array([1]))[:, 0])


def _macro_f1(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.nanmean(_f1_by_class(y_true, y_pred, w, np.union1d(y_true, y_pred)), axis=1)


def _f1_by_class(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray, classes: np.ndarray) -> np.ndarray:
    true, pred = (y[:, None] == classes for y in (y_true, y_pred))
    return 2 * (w @ (true & pred)) / (w @ (true.astype(float) + pred))  # 0/0 where a resample lacks the class


def _span_f1(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of sentences: y_true and y_pred (n,) hold one list of tag names each."""
    from seqeval.metrics.sequence_labeling import get_entities

    true, pred = ([set(get_entities(list(tags))) for tags in y] for y in (y_true, y_pred))
    hits = w @ np.array([len(t & p) for t, p in zip(true, pred, strict=True)], dtype=float)
    return np.nan_to_num(2 * hits / (w @ np.array([len(t) + len(p) for t, p in zip(true, pred, strict=True)], float)))


def _matthews(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    classes = np.union1d(y_true, y_pred)
    true, pred = w @ (y_true[:, None] == classes).astype(float), w @ (y_pred[:, None] == classes).astype(float)
    n, hit = w.sum(1), w @ (y_true == y_pred)
    spread = (n**2 - (pred**2).sum(1)) * (n**2 - (true**2).sum(1))  # Gorodkin 2004, equation 8
    return np.where(spread > 0, (hit * n - (true * pred).sum(1)) / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)


def _pearson(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _correlation(y_true - y_true.mean(), y_pred - y_pred.mean(), w)


def _correlation(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weighted correlation by row of w; x and y are (n,), or (resamples, n)."""
    n = w.sum(1)
    mx, my = (w * x).sum(1) / n, (w * y).sum(1) / n
    cov, vx, vy = ((w * a * b).sum(1) / n for a, b in ((x, y), (x, x), (y, y)))
    return (cov - mx * my) / np.sqrt((vx - mx**2) * (vy - my**2))


def _spearman(y_true: np.ndarray, y_pred: np.ndarray, w: np.ndarray) -> np.ndarray:
    return _correlation(_ranks(y_true, w), _ranks(y_pred, w), w)


def _ranks(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Average ranks of x (n,) in each resample, (resamples, n), centred for the sake of rounding."""
    position = stats.rankdata(x, method="dense") - 1
    order = np.argsort(position, kind="stable")
    starts = np.flatnonzero(np.diff(position[order], prepend=-1))
    count = np.add.reduceat(w[:, order], starts, axis=1)
    return (np.cumsum(count, 1) - (count - 1) / 2)[:, position] - (w.sum(1, keepdims=True) + 1) / 2


TWINS: dict[str, Twin] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "macro-f1": _macro_f1,
    "span-f1": _span_f1,
    "token-accuracy": _accuracy,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
}
