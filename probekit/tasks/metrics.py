"""Metrics by their standard names.

    metric("f1").function([0, 1, 1], [0, 1, 0])     # 0.666…

Gold values come first. Predictions that are all the same carry no information about the gold values, so a
correlation with them is 0, where scipy would give NaN and a warning. Where the *gold* values are constant there is
nothing to correlate with, and Pearson's and Spearman's coefficients are NaN.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import UsageError

__all__ = ["METRICS", "Metric", "metric"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    name : as on the command line
    title : for axes and tables
    range : lowest and highest value
    function : ``function(y_true, y_pred) -> float``. Class indices or numbers, shape (n,); for ``span-f1`` lists of
        tag names, one list a sentence; for ``token-accuracy`` either of them. Raises UsageError where the two differ
        in length, are empty, or the gold ones hold unlabelled examples (-1 or NaN).
    """

    name: str
    title: str
    range: tuple[float, float]
    higher_is_better: bool
    function: Callable[[Any, Any], float]


def metric(name: str) -> Metric:
    """The metric called ``name``; raises UsageError with the closest names."""
    if name in METRICS:
        return METRICS[name]
    close = difflib.get_close_matches(name, METRICS, n=3) or list(METRICS)
    raise UsageError(f"unknown metric {name!r}; did you mean {' or '.join(close)}?")


def _pair(y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays of one dimension and equal length, the gold one fully labelled."""
    gold, guess = np.asarray(y_true), np.asarray(y_pred)
    if gold.ndim != 1 or gold.shape != guess.shape:
        raise UsageError(f"a metric wants two arrays of one shape (n,), not {gold.shape} and {guess.shape}.")
    if not len(gold):
        raise UsageError("a metric of no examples at all is not defined.")
    unlabelled = np.isnan(gold) if gold.dtype.kind == "f" else gold == -1 if gold.dtype.kind == "i" else None
    if unlabelled is not None and unlabelled.any():
        raise UsageError(f"{unlabelled.sum()} of {len(gold)} gold labels are missing; choose a labelled split.")
    return gold, guess


def _accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of equal values."""
    gold, guess = _pair(y_true, y_pred)
    return float(np.mean(gold == guess))


def _f1(y_true: Any, y_pred: Any) -> float:
    """F1 of class 1; 0 where neither gold nor prediction has it."""
    from sklearn.metrics import f1_score

    gold, guess = _pair(y_true, y_pred)
    if gold.max() > 1:
        raise UsageError(f"f1 is for two classes (0 and 1), found class {gold.max()}; use macro-f1.")
    return float(f1_score(gold == 1, guess == 1, zero_division=0.0))


def _macro_f1(y_true: Any, y_pred: Any) -> float:
    """Mean of the classes' F1, over the classes that occur in gold or prediction."""
    from sklearn.metrics import f1_score

    return float(f1_score(*_pair(y_true, y_pred), average="macro", zero_division=0.0))


def _matthews(y_true: Any, y_pred: Any) -> float:
    """Matthews correlation (many classes: Gorodkin's R_K); 0 where gold or prediction is constant."""
    from sklearn.metrics import matthews_corrcoef

    gold, guess = _pair(y_true, y_pred)
    if (gold == gold[0]).all() or (guess == guess[0]).all():
        return 0.0
    return float(matthews_corrcoef(gold, guess))


def _correlation(name: str) -> Callable[[Any, Any], float]:
    def correlate(y_true: Any, y_pred: Any) -> float:
        from scipy import stats

        gold, guess = (np.asarray(y, dtype=np.float64) for y in _pair(y_true, y_pred))
        if (gold == gold[0]).all() or not np.isfinite(guess).all():
            return float("nan")
        if (guess == guess[0]).all():
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.NearConstantInputWarning)
            return float(getattr(stats, name)(gold, guess).statistic)

    return correlate


def _rmse(y_true: Any, y_pred: Any) -> float:
    """Root of the mean squared error."""
    gold, guess = _pair(y_true, y_pred)
    return float(np.sqrt(np.mean((gold.astype(np.float64) - guess) ** 2)))


def _sentences(y_true: Sequence[Sequence[Any]], y_pred: Sequence[Sequence[Any]]) -> None:
    if [len(s) for s in y_true] != [len(s) for s in y_pred]:
        raise UsageError("gold and predicted tags differ in the number of sentences, or of words in a sentence.")
    if not any(len(s) for s in y_true):
        raise UsageError("a metric of no words at all is not defined.")


def _span_f1(y_true: Sequence[Sequence[str]], y_pred: Sequence[Sequence[str]]) -> float:
    """Micro-averaged F1 of whole entities, as conlleval counts them (seqeval, default mode); 0 where there are none.

    BIO, IOB1, BIOES, BIOUL and BMES tags; broken sequences are read as they come: an I- that nothing began begins an
    entity. AllenNLP's SpanBasedF1Measure is the same, but for what it is told to ignore, for the C- and R- types of
    semantic roles, which it joins to what they continue, and for broken BIOUL, which it refuses.
    """
    from seqeval.metrics import f1_score

    _sentences(y_true, y_pred)
    gold, guess = ([[_bioes(tag) for tag in s] for s in y] for y in (y_true, y_pred))
    return float(f1_score(gold, guess, zero_division=0))


def _bioes(tag: str) -> str:
    """The tag with the prefix that seqeval knows: last is end, unit is single, middle is inside."""
    prefix, dash, entity = tag.partition("-")
    return {"L": "E", "U": "S", "M": "I"}.get(prefix, prefix) + dash + entity


def _token_accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of words with the right tag."""
    if len(y_true) and isinstance(y_true[0], Sequence | np.ndarray) and not isinstance(y_true[0], str):
        _sentences(y_true, y_pred)
        y_true, y_pred = ([tag for sentence in y for tag in sentence] for y in (y_true, y_pred))
    return _accuracy(y_true, y_pred)


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("accuracy", "Accuracy", (0.0, 1.0), higher_is_better=True, function=_accuracy),
        Metric("f1", "F1", (0.0, 1.0), higher_is_better=True, function=_f1),
        Metric("macro-f1", "Macro F1", (0.0, 1.0), higher_is_better=True, function=_macro_f1),
        Metric("matthews", "Matthews correlation", (-1.0, 1.0), higher_is_better=True, function=_matthews),
        Metric("pearson", "Pearson correlation", (-1.0, 1.0), higher_is_better=True, function=_correlation("pearsonr")),
        Metric(
            "spearman", "Spearman correlation", (-1.0, 1.0), higher_is_better=True, function=_correlation("spearmanr")
        ),
        Metric("rmse", "Root mean squared error", (0.0, float("inf")), higher_is_better=False, function=_rmse),
        Metric("span-f1", "Span F1", (0.0, 1.0), higher_is_better=True, function=_span_f1),
        Metric("token-accuracy", "Token accuracy", (0.0, 1.0), higher_is_better=True, function=_token_accuracy),
    )
}
