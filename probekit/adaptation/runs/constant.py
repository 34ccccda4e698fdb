"""The constant prediction as a baseline: the majority class (of each label whether it holds) or the mean."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.data.batches import Data
from probekit.adaptation.data.task_spec import TaskSpec, merged_classes
from probekit.adaptation.runs.predictions import Evaluation
from probekit.metrics import metric
from probekit.tasks.files.squad import ANSWERS

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

CONSTANT = ("majority", "mean")
"""Values of ``estimator``, as in the rows of probes: the most frequent class in train, or the mean."""
NOT_BETTER = "is not shown to be better than the constant prediction"
WORSE = "is worse than the constant prediction"


def constant_answer(task: TaskSpec, train: Data) -> dict[str, Any]:
    """The constant prediction for a card: ``answer`` and, for classes, tags or labels, their ``shares`` of train.

    Of several labels or numbers it is a list with one for each. For questions it is "no answer"; empty if each question
    has one.
    """
    labels = np.asarray(train.labels)
    if task.responses:
        return {}
    if task.answers:
        return {"answer": ""} if ANSWERS[1] in task.label_names else {}
    if task.numbers:
        return {"answer": labels.mean(0).tolist()}
    if task.kind.several:
        shares = np.clip(labels.mean(0), 0.5 / len(labels), 1 - 0.5 / len(labels))
        return {"answer": (shares > 0.5).astype(int).tolist(), "shares": shares.tolist()}
    count = np.bincount(labels[labels >= 0], minlength=len(task.label_names))
    return {"answer": int(count.argmax()), "shares": (np.maximum(count, 0.5) / count.sum()).tolist()}


def merged_constant(constant: Mapping[str, Any], learned: Sequence[str], target: Sequence[str]) -> Mapping[str, Any]:
    """The constant prediction for a task whose classes may each include several of the learned ones."""
    classes = merged_classes(learned, target)
    if classes is None:
        return constant
    shares = np.bincount(classes, weights=constant["shares"])
    return {"answer": int(shares.argmax()), "shares": shares.tolist()}


def constant_rows(found: Evaluation, constant: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The metrics of the constant prediction on the evaluated examples, with intervals, and for labels its loss."""
    if not constant:
        return
    task, answer = found.task, constant["answer"]
    same = replace(found, predictions=[np.full_like(one, answer) for one in found.predictions], metrics={})
    if found.probabilities is not None:
        same = replace(same, probabilities=[_shares(task, constant, len(one)) for one in found.labels])
    scores = same.measured()
    shared = {**about, "layer": None, "regime": "", "head": "", "representation": "none", "n": len(found.ids)}
    shared |= {"estimator": CONSTANT[1] if task.numbers else CONSTANT[0], "kept": False, "headline": False}
    for name, value in scores.items():
        yield shared | {"metric": name, "value": value, **same.interval(name)}
    if not task.tags and not task.answers:
        yield shared | {"metric": task.loss, "value": float(_losses(task, found.joined("labels"), constant).mean())}


def _shares(task: TaskSpec, constant: Mapping[str, Any], count: int) -> np.ndarray:
    """The probabilities of the constant prediction for the words or labels of an example."""
    shares = np.asarray(constant["shares"], dtype=np.float32)
    return np.stack([1 - shares, shares], axis=1) if task.kind.several else np.tile(shares, (count, 1))


def _losses(task: TaskSpec, gold: np.ndarray, constant: Mapping[str, Any]) -> np.ndarray:
    """The loss of the constant prediction for each label or number."""
    if task.numbers:
        return np.asarray((gold - np.asarray(constant["answer"])) ** 2)
    shares = np.asarray(constant["shares"])
    return -np.log(np.where(gold == 1, shares, 1 - shares) if task.kind.several else shares[gold])


def constants_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the constant prediction among those of a run, an evaluation or a search."""
    return rows[rows["estimator"].isin(CONSTANT)]


def warn_of_constant(rows: pd.DataFrame) -> None:
    """Warn if the interval of a main metric includes the value of the constant prediction."""
    known = {(row["task"], row["split"], row["metric"]): row["value"] for row in constants_of(rows).to_dict("records")}
    for row in rows[rows["headline"].fillna(value=False).astype(bool)].to_dict("records"):
        constant = known.get((row["task"], row["split"], row["metric"]))
        if constant is None:
            continue
        sign = metric(row["metric"]).sign
        low, high = (row["ci_low"], row["ci_high"]) if sign > 0 else (row["ci_high"], row["ci_low"])
        if sign and not sign * low > sign * constant:  # also for NaN, because there is no interval
            log.warning(
                f"%s %s: %s %.4f [%.4f, %.4f] {WORSE if sign * high < sign * constant else NOT_BETTER}, %.4f.",
                *(row["task"], row["split"], row["metric"], row["value"], row["ci_low"], row["ci_high"], constant),
            )
