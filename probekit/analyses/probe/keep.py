"""Cards of the probes of a pair of caches: what they read, how good they are, and what their scores mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors
from probekit.monitors.probe import LABELS, NUMBERS, Probe
from probekit.probes.kept import Weights
from probekit.probes.protocol.options import ProbeOptions
from probekit.rows.schema import layer_labels
from probekit.statistics.calibration import BINS
from probekit.statistics.detection import own_recall, rate_interval, threshold, too_few_above
from probekit.statistics.predictions import Predictions

RATES = (0.01, 0.05, 0.1)
"""Rates of false positives for which a card of two classes has thresholds."""
OF_DATA = ("task", "split", "n", "data_digest")
ENCODER = (
    *("model", "checkpoint", "step", "revision", "weights_digest", "tokenizer_digest", "random_weights", "base"),
    *("adapters", "quantised", "dtype", "device", "cut_at", "part", "pooling", "tokens", "pairs", "positions"),
    *("chat_template", "context", "stateful", "generate", "width", "reads_at_most"),
)
"""Keys of a cache's spec that say which model reads a text, and how."""
MEASURED = ("value", "ci_low", "ci_high", "joint_low", "joint_high", "null_mean", "p", "p_adjusted")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A probe of gold labels, and its logits (n, K) of the labelled rows of dev."""

    layer: str
    weights: Weights
    logits: np.ndarray


def probes_of(
    fitted: Sequence[Fitted], caches: tuple[ActivationCache, ActivationCache],
    vectors: tuple[LayerVectors, VectorOptions], rows: pd.DataFrame, found: Predictions, options: ProbeOptions,
) -> tuple[Probe, ...]:  # fmt: skip
    """The probes of one pair of caches with their cards, in the order of the layers."""
    train, dev = caches
    shared = {
        "kind": train.spec["kind"], "classes": list(train.spec["label_names"]) or [train.spec["task"]],
        "encoder": _encoder(train, vectors[0]),
        "vectors": _read(*vectors), "train": _data(train), "dev": _data(dev),
        "balanced": options.balanced, "seed": options.seed, "level": options.level,
    }  # fmt: skip
    return tuple(_probe(one, shared, rows, found, options) for one in sorted(fitted, key=_place(train)))


def _place(cache: ActivationCache) -> Any:
    order = {name: i for i, name in enumerate(cache.layers)}
    return lambda one: order[one.layer]


def _encoder(cache: ActivationCache, of: LayerVectors) -> dict[str, Any]:
    """What makes the vectors: of pooled ones their pooling, of words and pieces the level of the tokens."""
    found = {k: cache.spec[k] for k in ENCODER if cache.spec.get(k) is not None}
    if of.words or of.representation == cache.spec["tokens"]:
        return {k: v for k, v in found.items() if k != "pooling"}
    return {k: v for k, v in found.items() if k != "tokens"} | {"pooling": of.representation}


def _read(of: LayerVectors, options: VectorOptions) -> dict[str, Any]:
    return {
        "representation": of.representation, "words": of.words and of.targets is None, "spans": of.targets is not None,
        "span": None if options.span is None else str(options.span), "span_pair": str(options.span_pair),
    }  # fmt: skip


def _data(cache: ActivationCache) -> dict[str, Any]:
    return {name: cache.spec.get(name) for name in OF_DATA} | {"grouped": cache.groups is not None}


def _probe(
    one: Fitted, shared: Mapping[str, Any], rows: pd.DataFrame, found: Predictions, options: ProbeOptions
) -> Probe:
    own = rows[(layer_labels(rows) == one.layer) & (rows["target"] == "gold") & (rows["site"] != "")]
    own = own if "label" not in own else own[own["label"].isna()]
    fit = own.iloc[0]
    about = {
        "layer": one.layer, **shared, "estimator": fit["estimator"], "penalty": _number(fit["penalty"]),
        "converged": bool(fit["converged"]), "n": int(fit["n"]), "n_train": int(fit["n_train"]),
        "metrics": [{"metric": row["metric"], **_numbers(row)} for _, row in own.iterrows()],
    }  # fmt: skip
    probe = Probe(one.weights, about)
    if probe.kind in (*NUMBERS, *LABELS):
        return probe
    gold, proba = found.gold[0], probe.proba(one.logits)
    more = {"temperature": _number(fit.get("temperature")), "reliability": _reliability(proba, gold)}
    if probe.two_classes:
        more["thresholds"] = [_threshold(rate, gold, probe.scores(one.logits), found.groups, options) for rate in RATES]
    return Probe(one.weights, {**about, **more})


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


def _threshold(
    rate: float, gold: np.ndarray, scores: np.ndarray, groups: np.ndarray | None, options: ProbeOptions
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
