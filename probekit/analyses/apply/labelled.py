"""A kept probe on labelled data: its metrics beside those of its card, and paired with the predictions of then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import log_expit

from probekit.activations import ActivationCache
from probekit.analyses.apply import ApplyOptions
from probekit.analyses.cards import ABOVE, FOUND, share_above
from probekit.analyses.compare.measure import Evaluated, predictions_of
from probekit.analyses.vectors import LayerVectors, with_label_sets
from probekit.errors import UsageError
from probekit.metrics import metric, unfit
from probekit.monitors.probe import LABELS, NUMBERS, Probe
from probekit.probes.protocol.diagnostic import gathered
from probekit.probes.protocol.experiment import Fits
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import predictions_of_labels
from probekit.probes.protocol.rows import probe_rows
from probekit.recipe import Read
from probekit.rows.schema import layer_labels
from probekit.statistics.bootstrap import METRICS, estimates
from probekit.statistics.comparisons import compare_tables
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

KEPT = {"kept": "value", "kept_low": "ci_low", "kept_high": "ci_high"}
"""Columns of rows, and the keys of a card's metrics that they repeat."""


def evaluated(
    probe: Probe, logits: np.ndarray, cache: ActivationCache, of: LayerVectors, about: Mapping[str, Any]
) -> Predictions | None:
    """The predictions for the labelled rows of a cache; None if there are none of the probe's kind."""
    of = with_label_sets(of, cache)
    labels, names = of.labels, tuple(cache.spec["label_names"])
    if not labels.known.any() or (of.label_sets is not None) != (probe.kind in LABELS):
        return None
    if (labels.y.dtype.kind == "f") != (probe.kind in NUMBERS and of.label_sets is None):
        return None
    at = places(probe, names)
    metrics = _metrics(probe, cache)
    if of.label_sets is not None:
        return _of_sets(probe, logits[:, at], of.label_sets, labels, names, metrics, about)
    return _of_one(probe, logits, replace(labels, y=np.array([*at, -1])[labels.y]) if at else labels, metrics, about)


def _metrics(probe: Probe, cache: ActivationCache) -> tuple[str, ...]:
    """Those of the probe's card, then those of the data's task; the task's own if none fits its kind."""
    names = (*(one["metric"] for one in probe.card.get("metrics", ())), *cache.spec["metrics"])
    plain = (one for one in map(metric, dict.fromkeys(names)) if one.evaluates and not one.derived)
    found = tuple(one.name for one in plain if not unfit([one.name], cache.spec["kind"]))
    return found or tuple(cache.spec["metrics"])


def places(probe: Probe, names: tuple[str, ...]) -> list[int]:
    """The number of each class, label or number of the data among the probe's."""
    if strange := [name for name in names if name not in probe.classes]:
        what = "labels" if probe.kind in LABELS else "classes"
        raise UsageError(
            f"the data have the {what} {', '.join(strange)}, which the probe does not know; its {what} are "
            f"{', '.join(probe.classes)}. Rename the labels in the task file, or leave them out (label = false)."
        )
    return [*map(probe.classes.index, names)]


def _fit(probe: Probe, about: Mapping[str, Any], n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What tells the probe from others, and the sizes."""
    fit = {name: about[name] for name in ("layer", "estimator", "target", "draw")}
    return fit, {"n": n, "n_train": probe.card.get("n_train"), "seed": probe.card.get("seed")}


def _of_one(
    probe: Probe, logits: np.ndarray, labels: Labels, metrics: tuple[str, ...], about: Mapping[str, Any]
) -> Predictions:
    at = np.flatnonzero(labels.known)
    own, z = labels[at], logits[at]
    fit, sizes = _fit(probe, about, len(at))
    question = Question(probe.kind, metrics, probe.classes, {k: v for k, v in about.items() if k not in fit})
    said, loss, proba = probe.predicted(z), None, None
    if question.classify:
        log_p = probe.weights.log_proba(z)
        loss, proba = -log_p[np.arange(len(at)), own.y][None], probe.proba(z)
    return gathered([Fits([fit], said[None], loss, proba)], question, sizes, own, own.y[None], None)


def _of_sets(
    probe: Probe, logits: np.ndarray, sets: np.ndarray, labels: Labels, names: tuple[str, ...],
    metrics: tuple[str, ...], about: Mapping[str, Any],
) -> Predictions:  # fmt: skip
    """Of several labels, or numbers, of a text: of each pair of a text and a label."""
    at = np.flatnonzero(labels.known)
    gold, z = sets[labels.y[at]], logits[at]
    fit, sizes = _fit(probe, about, len(at))
    fits = pd.DataFrame([{**about, **sizes, **fit, "labels": len(names), "converged": True, "penalty_at_edge": False}])
    loss = None if probe.kind in NUMBERS else -log_expit(np.where(gold, z, -z)).reshape(1, -1)
    said = probe.predicted(z).reshape(1, -1)
    return predictions_of_labels(fits, labels[at], names, metrics, gold.reshape(1, -1), said, loss)


def beside_card(probe: Probe, found: Predictions, options: ApplyOptions) -> pd.DataFrame:
    """The rows of metrics, each with that on the dev split of the card."""
    how: dict[str, Any] = {"resamples": options.resamples or 0, "level": options.level, "seed": options.seed}
    rows = probe_rows(found, by_label=None, **how)
    alike = found.of_label is None or {*found.of_label.tolist()} == {*probe.classes}
    known = {one["metric"]: one for one in probe.card.get("metrics", ()) if alike}
    whole = rows["label"].isna() if "label" in rows else pd.Series(data=True, index=rows.index)
    kept = [known.get(name, {}) if of_all else {} for name, of_all in zip(rows["metric"], whole, strict=True)]
    return rows.assign(**{
        column: [np.nan if (value := one.get(key)) is None else value for one in kept] for column, key in KEPT.items()
    })  # fmt: skip


def at_threshold(
    probe: Probe, found: Predictions, scores: np.ndarray, rate: float, options: ApplyOptions
) -> pd.DataFrame:
    """The rate of false positives and the recall at the card's threshold, beside those of the card."""
    point, gold = probe.operating_point(rate), np.atleast_2d(found.gold)[0]
    rows = []
    for side, (name, key) in enumerate(((ABOVE, "rate"), (FOUND, "recall"))):
        value, low, high, why = share_above(point, gold, scores, side, found.groups, options)
        kept = {column: point.get(key + end) for column, end in zip(KEPT, ("", "_low", "_high"), strict=True)}
        rows.append({"metric": name, "value": value, "ci_low": low, "ci_high": high, "why": why, **kept})
    counts = [int((gold == side).sum()) for side in (0, 1)]
    fit = found.fits.iloc[[0, 0]].reset_index(drop=True)
    return pd.concat([fit.drop(columns="n"), pd.DataFrame(rows).assign(n=counts)], axis=1)


def paired(
    probe: Probe, now: Predictions, given: Evaluated, digest: Any, options: ApplyOptions
) -> tuple[pd.DataFrame, list[Read]]:
    """Each metric now minus that of the predictions of when the probe was kept, on the same examples.

    Raises
    ------
    UsageError
        If the predictions are not of this probe, or of other examples.
    """
    if not options.resamples:
        raise UsageError("beside compares example by example, which needs resamples; leave out resamples 0.")
    if digest != (own := probe.card.get("dev", {}).get("data_digest")):
        dev = " ".join(str(probe.card.get("dev", {}).get(name, "?")) for name in ("task", "split"))
        raise UsageError(
            f"these examples are not those of {dev} that the probe was evaluated on when it was kept (digest {own}, "
            f"here {digest}), so they have no predictions of then; leave out beside."
        )
    tables, reads = predictions_of(given)
    fits = [(table, _own_fit(probe, table)) for table in tables if {*table.ids} == {*now.ids}]
    of_then = [(table, fit) for table, fit in fits if fit is not None]
    if not of_then:
        raise UsageError(
            f"beside has no predictions of this probe ({probe.card['estimator']}, layer {probe.layer}) for these "
            "examples; give the rows that probe --keep --out wrote, or their .examples.parquet."
        )
    table, fit = of_then[0]
    then = table.take([fit])
    parts = []
    for name in (name for name in now.metrics if name in METRICS and name in (*then.metrics, "log-loss")):
        how = CompareOptions(metric=name, resamples=options.resamples, level=options.level, seed=options.seed)
        parts.append(compare_tables([(now, then)], how))
    return pd.concat(parts, ignore_index=True).assign(analysis="apply", against="when kept"), reads


def _own_fit(probe: Probe, table: Predictions) -> int | None:
    """The place of the fit of this probe, which has its layer, estimator and first metric."""
    fits = table.fits
    same = (
        table.is_gold & (layer_labels(fits) == probe.layer).to_numpy() & (fits["estimator"] == probe.card["estimator"])
    )
    known = {one["metric"]: one["value"] for one in probe.card.get("metrics", ())}
    name = next((name for name in table.metrics if name in known), None)
    if name is None:
        return None
    for fit in np.flatnonzero(same):
        value = float(estimates(metric=name, **table.take([int(fit)]).sample())[0])
        if known[name] is not None and abs(value - known[name]) < 1e-6:  # the card has the same number, in JSON
            return int(fit)
    return None
