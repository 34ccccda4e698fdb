"""Metrics as functions of a few sums over the examples, and metrics of classes above chance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from probekit.metrics import OUTSIDE, chrf, metric, span_closes, span_opens, span_part


@dataclass(frozen=True, slots=True)
class Additive:
    """A metric computed from sums.

    Attributes
    ----------
    planes : Callable[[np.ndarray, np.ndarray, int], Iterator[np.ndarray]]
        From gold (1 or F, n), predicted (F, n) and the number of classes: arrays (1 or F, n) to sum.
    value : Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
        From their totals, each (1 or F, R), and the number of rows drawn (R,): the metric (F, R).
    coded : bool, default False
        Whether gold and predicted must be codes 0 … classes - 1.
    """

    planes: Callable[[np.ndarray, np.ndarray, int], Iterator[np.ndarray]]
    value: Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]
    coded: bool = False


def _share_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield gold == predicted


def _mean(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return parts[0] / n


def _f1_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    true, pred = gold == 1, predicted == 1
    yield from (true & pred, true, pred)


def _f1(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    hit, true, pred = parts
    return np.nan_to_num(2 * hit / (true + pred))


def by_class_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    """For each class: right predictions, gold labels and predicted labels."""
    for c in range(classes):
        true, pred = gold == c, predicted == c
        yield from (true & pred, true, pred)


def _macro_f1(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """Over the classes that occur in the resample, in gold labels or predictions."""
    total, held = np.zeros(()), np.zeros(())
    for hit, true, pred in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        both = true + pred
        total, held = total + np.nan_to_num(2 * hit / both), held + (both > 0)
    return total / held


def _balanced(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """Over the classes that occur in the gold labels of the resample."""
    total, held = np.zeros(()), np.zeros(())
    for hit, true in zip(parts[::3], parts[1::3], strict=True):
        total, held = total + np.nan_to_num(hit / true), held + (true > 0)
    return total / held


def _matthews_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield gold == predicted
    for c in range(1, classes):  # rows of no other class are of class 0
        yield from (gold == c, predicted == c)


def _matthews(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """Gorodkin 2004, equation 8; 0 if gold labels or predictions are constant."""
    hit, true, pred = parts[0], parts[1::2], parts[2::2]
    true, pred = ([n - sum(counts), *counts] for counts in (true, pred))
    both, true2, pred2 = (
        sum(a * b for a, b in zip(x, y, strict=True)) for x, y in ((true, pred), (true, true), (pred, pred))
    )
    spread = (n**2 - pred2) * (n**2 - true2)
    return np.where(spread > 0, (hit * n - both) / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)


def _pearson_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    y, p = _centred(gold), _centred(predicted)
    yield from (y, p, y * y, p * p, y * p)


def _centred(x: np.ndarray) -> np.ndarray:
    """Standardise to mean 0 and deviation 1; constants become exactly 0."""
    x = x.astype(np.float64) - x[:, :1]
    x -= x.mean(1, keepdims=True)
    spread = x.std(1, keepdims=True)
    return x / np.where(spread == 0, 1, spread)


def _pearson(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return correlation(*(total / n for total in parts))


def correlation(my: np.ndarray, mp: np.ndarray, yy: np.ndarray, pp: np.ndarray, yp: np.ndarray) -> np.ndarray:
    """Pearson's coefficient from first and second moments. NaN for constant gold values, 0 for constant predictions."""
    vy, vp = yy - my**2, pp - mp**2
    flat = vp <= 1e-12 * np.maximum(1, pp)
    r = (yp - my * mp) / np.sqrt(np.where(vy > 1e-12 * np.maximum(1, yy), vy, np.nan) * np.where(flat, 1, vp))
    return np.where(flat & ~np.isnan(r), 0.0, r)


def _rmse_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield (gold.astype(np.float64) - predicted) ** 2


def _rmse(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    return np.sqrt(parts[0] / n)


def _absolute_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield abs(gold.astype(np.float64) - predicted)


def _r2_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    y = _centred(gold)
    yield from (y, y * y, (gold.astype(np.float64) - predicted) ** 2 / gold.var(1, keepdims=True))


def _r2(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """NaN for constant gold values."""
    y, yy, errors = (part / n for part in parts)
    spread = yy - y**2
    return 1 - errors / np.where(spread > 1e-12, spread, np.nan)


def _loss_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    yield predicted.astype(np.float64)


def _answer_planes(name: str, gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    """A metric of answers for each question; gold values are JSON lists of answers."""
    one, answers = metric(name), [[json.loads(text) for text in row] for row in gold]
    rows = zip(answers * (len(predicted) if len(answers) == 1 else 1), predicted, strict=True)
    values = [[one([g], [p]) for g, p in zip(row, said, strict=True)] for row, said in rows]
    yield np.array(values) if name.startswith("answer") else np.array(values) > 0


def _chrf_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    rows = gold if len(gold) > 1 else np.repeat(gold, len(predicted), 0)
    yield np.array([[chrf(a, b) for a, b in zip(*both, strict=True)] for both in zip(rows, predicted, strict=True)])


def span_finder(
    names: Sequence[str], ends: np.ndarray
) -> tuple[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]], int]:
    """Entities by conlleval's rules from tags as codes; ``ends`` marks the ends of sentences, bool (words,).

    Returns a function of codes (words,): whether an entity closes at the word, where it began, and its type; and the
    number of types.
    """
    kinds = [OUTSIDE, *map(span_part, names)]
    opens, closes = (np.array([[f(a, b) for b in kinds] for a in kinds]) for f in (span_opens, span_closes))
    types = np.unique([kind for _, kind in kinds], return_inverse=True)[1]
    starts = np.append(True, ends[:-1])  # an entity that no tag opens begins with its sentence

    def spans(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        tags = codes + 1  # 0 separates sentences
        after = np.where(ends, 0, np.append(tags[1:], 0))
        before = np.append(0, np.where(ends, 0, tags)[:-1])
        begin = np.maximum.accumulate(np.where(opens[before, tags] | starts, np.arange(len(tags)), -1))
        return closes[tags, after], begin, types[tags]

    return spans, int(types.max()) + 1


def span_planes(
    gold: np.ndarray, predicted: np.ndarray, ends: np.ndarray, names: Sequence[str]
) -> Iterator[np.ndarray]:
    """Entities at their last word: right ones, gold ones, predicted ones."""
    spans, _ = span_finder(names, ends)
    true = [spans(row) for row in gold]
    pred = [spans(row) for row in predicted]
    hits = [
        t[0] & p[0] & (t[1] == p[1]) & (t[2] == p[2])
        for t, p in zip(true * (len(pred) if len(true) == 1 else 1), pred, strict=True)
    ]
    yield from (np.array(hits), np.array([t[0] for t in true]), np.array([p[0] for p in pred]))


def _moment_planes(gold: np.ndarray, predicted: np.ndarray, classes: int) -> Iterator[np.ndarray]:
    y, p = (x.astype(np.float64) - gold.mean() for x in (gold, predicted))
    yield from (y, p, y * y, p * p, y * p)


def _quadratic_kappa(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """1 - squared distances over those of independent labels and predictions with the same frequencies."""
    y, p, yy, pp, yp = (part / n for part in parts)
    expected = yy + pp - 2 * y * p
    return 1 - (yy + pp - 2 * yp) / np.where(expected > 1e-12, expected, np.nan)


ADDITIVE: dict[str, Additive] = {
    "accuracy": Additive(_share_planes, _mean),
    "token-accuracy": Additive(_share_planes, _mean),
    "f1": Additive(_f1_planes, _f1),
    "macro-f1": Additive(by_class_planes, _macro_f1, coded=True),
    "balanced-accuracy": Additive(by_class_planes, _balanced, coded=True),
    "matthews": Additive(_matthews_planes, _matthews, coded=True),
    "span-f1": Additive(_f1_planes, _f1),
    "pearson": Additive(_pearson_planes, _pearson),
    "rmse": Additive(_rmse_planes, _rmse),
    "mean-absolute-error": Additive(_absolute_planes, _mean),
    "r2": Additive(_r2_planes, _r2),
    "log-loss": Additive(_loss_planes, _mean),
    "quadratic-kappa": Additive(_moment_planes, _quadratic_kappa),
    "chrf": Additive(_chrf_planes, _mean),
    **{
        name: Additive(partial(_answer_planes, name), _mean)
        for name in ("exact-match", "exact-match-1.1", "answer-f1", "answer-f1-1.1")
    },
}

COUNTED = (
    *("accuracy", "token-accuracy", "balanced-accuracy", "f1", "macro-f1", "matthews", "span-f1"),
    *("exact-match", "exact-match-1.1"),
)
"""The metrics that are functions of a table of counts."""


def _by_three(hit: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    return [part for three in zip(hit, true, predicted, strict=True) for part in three]


def _by_two(hit: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    return [hit.sum(0), *(part for two in zip(true[1:], predicted[1:], strict=True) for part in two)]


BY_CLASS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], list[np.ndarray]]] = {
    "accuracy": lambda hit, true, said: [hit.sum(0)],
    "token-accuracy": lambda hit, true, said: [hit.sum(0)],
    "f1": _by_three,
    "macro-f1": _by_three,
    "balanced-accuracy": _by_three,
    "matthews": _by_two,
}
"""The sums of a metric of classes from right predictions (C, F, R), gold counts (C, 1, R) and predicted counts (C, F, 1
or R) of each class; for "f1" only class 1."""


def _above_chance(name: str, parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    """A metric of classes minus its value for independent gold labels and predictions with the same frequencies."""
    if name == "f1" and len(parts) == 3:  # without class 1
        return np.zeros(np.shape(parts[0]))
    one = slice(1, 2) if name == "f1" else slice(None)
    hit, true, said = (np.stack(parts[i::3])[one] for i in range(3))
    gold, chance = (ADDITIVE[name].value(BY_CLASS[name](hits, true, said), n) for hits in (hit, true * said / n))
    return gold - chance


def _rmse_below_chance(parts: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
    y, p, yy, pp, yp = (part / n for part in parts)
    return np.sqrt(np.maximum(yy + pp - 2 * yp, 0)) - np.sqrt(np.maximum(yy + pp - 2 * y * p, 0))


ABOVE_CHANCE: dict[str, Additive] = {
    f"{name} above chance": Additive(by_class_planes, partial(_above_chance, name), coded=True)
    for name in ("accuracy", "token-accuracy", "balanced-accuracy", "f1", "macro-f1")
} | {"rmse above chance": Additive(_moment_planes, _rmse_below_chance)}
"""Metrics minus their value for independent labels and predictions with the same frequencies."""
