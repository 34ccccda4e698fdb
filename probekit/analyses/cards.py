"""Cards of kept probes: what they read, how good they are on dev, and what their scores mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors
from probekit.errors import UsageError
from probekit.monitors.format import check_replaced
from probekit.monitors.probe import LABELS, NUMBERS, Probe
from probekit.probes.kept import Weights
from probekit.rows.schema import layer_labels
from probekit.statistics.bootstrap import bounds
from probekit.statistics.calibration import BINS
from probekit.statistics.detection import (
    FEWEST_OF_CLASS,
    area,
    area_interval,
    own_recall,
    rate_interval,
    threshold,
    too_few_above,
)
from probekit.statistics.predictions import Predictions

RATES = (0.01, 0.05, 0.1)
"""Rates of false positives for which a card of two classes has thresholds."""
ABOVE, FOUND = "false-positives-at-threshold", "recall-at-threshold"
"""The shares of negatives and of positives above the card's threshold."""
OF_DATA = ("task", "split", "n", "data_digest")
ENCODER = (
    *("model", "checkpoint", "step", "revision", "weights_digest", "tokenizer_digest", "random_weights", "base"),
    *("adapters", "quantised", "dtype", "device", "cut_at", "part", "pooling", "tokens", "pairs", "positions"),
    *("chat_template", "context", "stateful", "generate", "width", "reads_at_most"),
)
"""Keys of a cache's spec that say which model reads a text, and how."""
MEASURED = ("value", "ci_low", "ci_high", "joint_low", "joint_high", "null_mean", "p", "p_adjusted", "value_unseen")


class Evaluation(Protocol):
    """How intervals are made."""

    @property
    def resamples(self) -> int | None: ...
    @property
    def level(self) -> float: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """A probe of gold labels, and its logits (n, K) of the labelled rows of dev."""

    layer: str
    weights: Weights
    logits: np.ndarray


def check_keep(keep: Path | None, pairs: int) -> None:
    """Raise UsageError if probes cannot be kept there, or of several pairs of caches."""
    if keep is None:
        return
    if pairs > 1:
        raise UsageError("--keep keeps the probes of one pair of caches; give one pair, or leave out --keep.")
    check_replaced(keep)


def check_work(keep: Path | None, train: ActivationCache, layers: Iterable[str]) -> None:
    """Raise UsageError if what is kept there is of another model or task, or of other layers as well."""
    if keep is not None:
        about = {"encoder": train.spec, "train": train.spec}
        check_replaced(keep, [{"layer": name, **about} for name in layers])


def shared_card(
    caches: tuple[ActivationCache, ActivationCache], vectors: Mapping[str, Any], options: Evaluation, **more: Any
) -> dict[str, Any]:
    """What the cards of all layers of a pair of caches, train and dev, have in common; ``vectors``: what a row is."""
    train, dev = caches
    return {
        "kind": train.spec["kind"], "classes": list(train.spec["label_names"]) or [train.spec["task"]],
        "encoder": _encoder(train, vectors), "vectors": {**vectors, "store": train.spec["store"]},
        "train": _data(train), "dev": _data(dev), "seed": options.seed, "level": options.level, **more,
    }  # fmt: skip


def probes_of(
    fitted: Sequence[Fitted], shared: Mapping[str, Any], rows: pd.DataFrame, found: Predictions, options: Evaluation,
    seen: np.ndarray | None = None,
) -> tuple[Probe, ...]:  # fmt: skip
    """The probes of one pair of caches with their cards, in the order of ``fitted``; rows are of gold labels too.

    ``seen``, bool (n,), says which labelled rows of dev share a text or a group with train; None if it is not known.
    """
    return tuple(_probe(one, shared, rows, found, options, seen) for one in fitted)


def _encoder(cache: ActivationCache, vectors: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the vectors: of pooled ones their pooling, of words and pieces the level of the tokens."""
    found = {k: cache.spec[k] for k in ENCODER if cache.spec.get(k) is not None}
    if vectors["words"] or vectors["spans"] or vectors["representation"] == cache.spec["tokens"]:
        return {k: v for k, v in found.items() if k != "pooling"}
    return {k: v for k, v in found.items() if k != "tokens"} | {"pooling": vectors["representation"]}


def rows_read(of: LayerVectors, options: VectorOptions) -> dict[str, Any]:
    """What a row of the vectors is, as a card says it."""
    return {
        "representation": of.representation, "words": of.words and of.targets is None, "spans": of.targets is not None,
        "span": None if options.span is None else str(options.span), "span_pair": str(options.span_pair),
    }  # fmt: skip


def _data(cache: ActivationCache) -> dict[str, Any]:
    groups = None if cache.groups is None else len(np.unique(cache.groups))
    return {name: cache.spec.get(name) for name in OF_DATA} | {"grouped": groups is not None, "groups": groups}


def card_of(layer: str, shared: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, Any]:
    """The card of a probe without calibration; ``rows`` are those of its metrics."""
    fit = rows.iloc[0]
    return {
        "layer": layer, **shared, "estimator": fit["estimator"], "penalty": _number(fit.get("penalty")),
        "converged": _flag(fit.get("converged")), "n": int(fit["n"]), "n_train": _whole(fit.get("n_train")),
        "dev": {**shared["dev"], "seen_in_train": _whole(fit.get("seen_in_train"))},
        "metrics": [{"metric": row["metric"], **_numbers(row)} for _, row in rows.iterrows()],
    }  # fmt: skip


def _probe(
    one: Fitted, shared: Mapping[str, Any], rows: pd.DataFrame, found: Predictions, options: Evaluation,
    seen: np.ndarray | None,
) -> Probe:  # fmt: skip
    own = rows[(layer_labels(rows) == one.layer) & (rows["target"] == "gold") & (rows["site"] != "")]
    about = card_of(one.layer, shared, own if "label" not in own else own[own["label"].isna()])
    probe = Probe(one.weights, about)
    if probe.kind in LABELS:
        return probe
    if probe.kind in NUMBERS:
        errors = bounds(
            metric="rmse", **found.sample(), resamples=options.resamples or 0, level=options.level, seed=options.seed
        )
        return Probe(
            one.weights,
            {**about, "rmse": _interval(errors.value, errors.ci[:, 0], errors.ci[:, 1], str(errors.why[0]))},
        )
    gold = np.atleast_2d(found.gold)[0]
    at = _new(gold, found.groups, seen)
    gold, logits, groups = gold[at], one.logits[at], None if found.groups is None else found.groups[at]
    temperature = own["temperature"].iloc[0] if "temperature" in own else None
    more: dict[str, Any] = {
        "temperature": _number(temperature), "reliability": _reliability(probe.proba(logits), gold),
        "scores_on": {"n": len(gold), "seen_in_train": None if seen is None else int(seen[at].sum())},
    }  # fmt: skip
    if probe.two_classes:
        scores = probe.scores(logits)
        more["thresholds"] = [threshold_of(rate, gold, scores, groups, options) for rate in RATES]
        low, high, why = area_interval(gold, scores[None], groups, options.level)
        more["auroc"] = _interval(area(gold, scores[None]), low, high, why)
    return Probe(one.weights, {**about, **more})


def _new(gold: np.ndarray, groups: np.ndarray | None, seen: np.ndarray | None) -> np.ndarray:
    """The rows of dev on which scores are judged: those that share no text or group with train; all if few are left.

    Few are less than ``FEWEST_OF_CLASS``, or groups of them, of a class that dev has.
    """
    everything = np.arange(len(gold))
    if seen is None or not seen.any():
        return everything
    at = np.flatnonzero(~seen)
    units = everything if groups is None else groups
    left = [len(np.unique(units[at][gold[at] == one])) for one in np.unique(gold)]
    return at if min(left) >= FEWEST_OF_CLASS else everything


def _interval(value: np.ndarray, low: np.ndarray, high: np.ndarray, why: str) -> dict[str, Any]:
    ends = {"value": value[0], "ci_low": low[0], "ci_high": high[0]}
    return {name: _number(end) for name, end in ends.items()} | {"why": why}


def _flag(value: Any) -> bool | None:
    return None if value is None or pd.isna(value) else bool(value)


def _whole(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)


def _numbers(row: pd.Series) -> dict[str, float | None]:
    return {name: _number(row.get(name)) for name in MEASURED}


def _number(value: Any) -> float | None:
    """A number as JSON has it; None for one that is missing."""
    return None if value is None or pd.isna(value) else float(value)


def _reliability(proba: np.ndarray, gold: np.ndarray) -> list[dict[str, float]]:
    """Bins of equal mass: the mean probability of class 1 of two, or of the predicted class, and how often it holds."""
    two = proba.shape[1] == 2
    said, right = (proba[:, 1], gold == 1) if two else (proba.max(1), proba.argmax(1) == gold)
    parts = np.array_split(np.argsort(said, kind="stable"), min(BINS, len(said)))
    return [{"said": float(said[at].mean()), "held": float(right[at].mean()), "n": len(at)} for at in parts]


def threshold_of(
    rate: float, gold: np.ndarray, scores: np.ndarray, groups: np.ndarray | None, options: Evaluation
) -> dict[str, Any]:
    """The threshold for a rate of false positives, and the rate and the recall at it with their intervals."""
    negative = gold == 0
    of_negatives = scores[negative].astype(np.float64)
    at, above = float(threshold(of_negatives[None], rate)[0]), int(rate * len(of_negatives) + 1e-9)
    found = {"rate": rate, "threshold": _number(at), "negatives": int(negative.sum()), "above": above}
    if np.isnan(at):
        why = f"{len(of_negatives)} negatives cannot resolve it; {round(1 / rate)} can"
        return found | {"why": why}
    low, high = rate_interval(of_negatives, above, None if groups is None else groups[negative], options.level)
    value, recall_low, recall_high, _ = own_recall(
        gold, scores[None], rate, groups, resamples=options.resamples or 0, level=options.level, seed=options.seed
    )
    if why := too_few_above(gold, scores, rate, groups):
        recall_low = recall_high = np.array([np.nan])
    return found | {
        "rate_low": low, "rate_high": high, "recall": _number(value[0]), "recall_low": _number(recall_low[0]),
        "recall_high": _number(recall_high[0]), "level": options.level, "why": why,
    }  # fmt: skip


def share_above(
    point: Mapping[str, Any], gold: np.ndarray, scores: np.ndarray, side: int, groups: np.ndarray | None,
    options: Evaluation,
) -> tuple[float, float, float, str]:  # fmt: skip
    """The share of the examples of class ``side`` above the card's threshold, its interval, and why it has none."""
    mine = gold == side
    above = (scores[mine] > point["threshold"]).astype(np.int64)
    if not len(above):
        return np.nan, np.nan, np.nan, "no example of the class"
    found = bounds(
        np.ones(len(above), np.int64), above[None], "accuracy", groups=None if groups is None else groups[mine],
        resamples=options.resamples or 0, level=options.level, seed=options.seed,
    )  # fmt: skip
    low, high = found.ci[0]
    return float(found.value[0]), float(low), float(high), str(found.why[0])
