"""The log of a training, and evaluations, with calibration and slices, as rows with one measured number each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.runs.constant import constant_answer, constant_rows
from probekit.adaptation.runs.predictions import RESAMPLES, Evaluation
from probekit.adaptation.training.multi_task import card_for, mixed_names, predictions_name
from probekit.adaptation.training.objective import Objective, Training
from probekit.adaptation.training.trainer import History
from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.metrics import derive, metric
from probekit.probes.protocol.by_label import by_label_rows
from probekit.rows import make_rows
from probekit.statistics.calibration import brier_score, calibration_error, temperature, tempered
from probekit.statistics.multiplicity import holm
from probekit.statistics.predictions import Predictions
from probekit.statistics.subsets import against_rest

if TYPE_CHECKING:
    import pandas as pd


Entry = Mapping[str, Any]
"""An entry of the Trainer's log."""


def columns_of(card: Mapping[str, Any], task: str | None = None) -> dict[str, Any]:
    """The columns that all rows of a run share, from its card; those of one of several tasks by its name."""
    of = card_for(card, task or card["task"])
    return {
        "task": of["task"], "trained_on": mixed_names(card), "model": card["model"], "checkpoint": card["run"],
        "regime": card["regime"], "head": of["head"]["head"], "variant": card.get("variant", ""),
        "representation": of["head"]["pooling"] or "tokens", "estimator": "", "target": "gold",
        "seed": card["seeds"]["seed"],
    }  # fmt: skip


def evaluation_rows(found: Evaluation, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each metric with its interval, and the loss if there is one; ``headline`` marks the task's main metric.

    Several labels or numbers have :func:`label_rows`, too.
    """
    shared = {"layer": None, "n": len(found.ids), "kept": True, **about}
    for name in found.task.metrics:
        value = {"metric": name, "value": found.metrics[name], **found.interval(name)}
        yield shared | value | {"headline": name == found.task.metrics[0]}
    if "loss" in found.metrics:
        yield shared | {"metric": found.task.loss, "value": found.metrics["loss"], "headline": False}
    yield from (shared | row for row in label_rows(found))


OF_LABEL = ["metric", "label", "value", "ci_low", "ci_high", "why", "support"]


def label_rows(found: Evaluation) -> Iterator[dict[str, Any]]:
    """Columns of each of several labels or numbers alone, as of probes: "by-label(…)", ``label``, ``support`` …"""
    if found.task.kind.several:
        table = by_label_rows(
            found.table({"step": 0, "seed": 0}), resamples=RESAMPLES, level=0.95, seed=0, tested=False
        )
        rows: Any = table[OF_LABEL].to_dict("records")
        yield from (row | {"headline": False} for row in rows)


def training_rows(
    training: Training, history: History, card: Mapping[str, Any], found: Mapping[str, Evaluation],
    others: Mapping[Objective, Mapping[str, Evaluation]],
) -> pd.DataFrame:  # fmt: skip
    """Rows of a training, from :func:`probekit.rows.make_rows`.

    Each evaluation gives the metrics and, if layers are mixed, ``mix-weight`` by layer and ``mix-gamma``. The loss on
    train (``log-loss``, nats, or ``mean-squared-error``) is the mean since the previous entry, without added terms;
    each of these has rows ``added-loss`` with its name in the column ``term``.

    Additional columns: ``trained_parameters`` is the number of weights that any epoch trains, with the head;
    ``examples`` is the number of training examples; ``epoch`` counts the passes over train; ``kept`` marks the kept
    weights, whose metrics have intervals; ``unread_words`` is the number of words without a piece to tag: metrics of
    word tags cover only the other words, so they are comparable to published numbers only if it is 0; ``headline``
    marks the number that represents the run: its main metric, on test if it was tested, otherwise on dev. Rows with the
    estimator "majority" or "mean" are for the constant prediction on the same examples.

    Parameters
    ----------
    card : Mapping[str, Any]
        The card of the run.
    found : Mapping[str, Evaluation]
        Predictions of the kept weights for "dev" and, if there is one, "test".
    others : Mapping[Objective, Mapping[str, Evaluation]]
        The same for each further task.
    """
    more = {"analysis": "train", "layer": None, "trained_parameters": card["parameters"]["trained"]}
    main, rows = training.objectives[0], list[dict[str, Any]]()
    about = columns_of(card) | more
    headline = "" if "test" in found else main.metric.name
    rows += ({**about, **row} for row in _of_log(training, history, found["dev"], headline))
    if "test" in found:
        rows += _of_kept(training, main, history, "test", found["test"], about)
    constant = constant_answer(main.task, main.train)
    for role, evaluation in found.items():
        rows += constant_rows(evaluation, constant, columns_of(card) | _split(training, role))
    for other, evaluations in others.items():
        about = columns_of(card, other.task.name)
        for role, evaluation in evaluations.items():
            of_split = _of_kept(training, other, history, role, evaluation, about | more)
            rows += (row | {"headline": False} for row in of_split)
            rows += constant_rows(evaluation, constant_answer(other.task, other.train), about | _split(training, role))
    return make_rows(rows)


def _split(training: Training, role: str) -> dict[str, Any]:
    return {"analysis": "train", "split": getattr(training.options, role)}


def _of_kept(
    training: Training, objective: Objective, history: History, role: str, found: Evaluation, about: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The metrics of the kept weights on one split of a task."""
    (epoch,) = {e["epoch"] for e in history.log if "eval_loss" in e and e["step"] == history.step}
    unread = getattr(objective, role).unread
    shared = {"step": history.step, "epoch": epoch, "examples": len(objective.train), "unread_words": unread}
    return evaluation_rows(found, {**about, **_split(training, role), **shared})


def _of_log(training: Training, history: History, dev: Evaluation, headline: str) -> Iterator[dict[str, Any]]:
    """Losses on train, and metrics on dev; ``headline`` is the metric that represents the run, "" if none does."""
    objective, layers = training.objectives[0], training.learner.layers

    def row(role: str, entry: Entry, metric: str, value: float, **more: Any) -> dict[str, Any]:
        data, kept = getattr(objective, role), entry["step"] == history.step
        return {
            "split": getattr(training.options, role), "step": entry["step"], "epoch": entry["epoch"], "kept": kept,
            "metric": metric, "value": value, "n": len(data), "examples": len(objective.train),
            "unread_words": data.unread, "headline": kept and (role, metric) == ("dev", headline), **more,
        }  # fmt: skip

    loss, evaluations = objective.task.loss, {e["step"]: e for e in history.log if "eval_loss" in e}
    for entry in history.log:
        if "loss" in entry:
            added = sum(entry[f"loss_{term.name}"] for term in training.terms)
            if len({one.task.loss for one in training.objectives}) == 1:  # else they are added, but not alike
                names = "+".join(one.task.name for one in training.objectives)
                yield row("train", entry, loss, entry["loss"] - added, task=names)
            for term in training.terms:
                yield row("train", entry, "added-loss", entry[f"loss_{term.name}"], term=term.name)
    for entry in evaluations.values():
        for name in objective.task.metrics:
            ends = dev.interval(name) if entry["step"] == history.step else {}
            yield row("dev", entry, name, entry[f"eval_{name}"], **ends)
        yield row("dev", entry, loss, entry["eval_loss"])
        for i, layer in enumerate(layers):
            yield row("dev", entry, "mix-weight", entry[f"eval_mix_{i}"], layer=layer)
        if layers:
            yield row("dev", entry, "mix-gamma", entry["eval_mix_gamma"])
    for one in label_rows(dev):
        yield row("dev", evaluations[history.step], **one)


def dev_temperature(folder: Path, card: Mapping[str, Any], split: str) -> float:
    """The temperature that minimises the log loss of a run on dev (Guo et al. 2017), from its stored predictions.

    Raises
    ------
    UsageError
        If the split to evaluate is this one, or the run stores no probabilities of dev.
    """
    dev = str(card["splits"][1])
    if split == dev:
        raise UsageError(f"--calibrate fits a temperature on {dev}; evaluate on another split.")
    file = folder / predictions_name(card, dev)
    if not file.is_file():
        raise UsageError(
            f"{folder} has no predictions of {dev} ({file.name}), on which --calibrate fits a temperature."
        )
    table = Predictions.read(file)
    if table.probabilities is None:
        raise UsageError(f"{folder} stores no probabilities, so there is nothing to calibrate.")
    return float(temperature(_logarithm(table.probabilities), np.atleast_2d(table.gold)[0])[0])


def calibration_rows(
    found: Evaluation, degrees: float, about: Mapping[str, Any], *, same_classes: bool = True
) -> Iterator[dict[str, Any]]:
    """Log loss, Brier score and calibration error as they are and, as "…, scaled", at a temperature.

    Parameters
    ----------
    degrees : float
        The temperature, also in the column ``temperature`` of the scaled ones.
    same_classes : bool
        Whether the classes are those of the run; merged classes have other temperatures.

    Raises
    ------
    UsageError
        For merged classes, several labels, and predictions without probabilities.
    """
    if found.probabilities is None or not same_classes:
        raise UsageError("--calibrate needs the probabilities of the run's own classes.")
    if found.task.kind.several:
        raise UsageError(f"--calibrate is for tasks with one class per text; {found.task.name} is {found.task.kind}.")
    gold = np.concatenate(found.labels)
    log_p = _logarithm(np.concatenate(found.probabilities)[None])
    for suffix, scores, more in (("", log_p, {}), (", scaled", tempered(log_p, np.array([degrees])), _at(degrees))):
        loss = -scores[0, np.arange(len(gold)), gold].mean()
        values = {
            "log-loss": loss, "brier": brier_score(scores, gold)[0],
            "calibration-error-15": calibration_error(scores, gold)[0],
        }  # fmt: skip
        for name, value in values.items():
            if suffix or name != "log-loss":  # the loss as it is has a row already
                yield {**about, "metric": name + suffix, "value": float(value), "headline": False, **more}


def _at(degrees: float) -> dict[str, float]:
    return {"temperature": degrees}


def _logarithm(shares: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(shares.astype(np.float64), 1e-38))


REST, LEVEL = "rest", 0.05
"""The value of ``against`` in rows of differences, and the level of the sentences."""


def slice_rows(
    found: Evaluation, slices: Mapping[str, Set[str]], about: Mapping[str, Any], constant: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """Each metric on each slice, as of a task "TASK:SLICE", and the main metric minus that on the other examples.

    The latter rows have ``against`` "rest", the two-sided ``p`` of no difference, and ``p_adjusted``, with Holm's
    correction over the slices. Perplexities have none.

    Parameters
    ----------
    slices : Mapping[str, Set[str]]
        The ids of the examples of each slice, by name.
    about : Mapping[str, Any]
        Columns of all rows; ``task`` is the name of the whole task.
    constant : Mapping[str, Any], optional
        The constant prediction.
    """
    differences = []
    for name, ids in slices.items():
        inside = np.array([str(i) in ids for i in found.ids])
        columns = {**about, "task": f"{about['task']}:{name}", "slice": name}
        part = found.subset(np.flatnonzero(inside))
        rows = [row | {"headline": False} for row in evaluation_rows(part, columns)]
        yield from rows
        if constant:
            yield from constant_rows(part, constant, columns)
        if found.losses is None:
            differences.append(rows[0] | {"why": ""} | _difference(found, inside, rows[0]))
    adjusted = holm(np.array([row["p"] for row in differences]))
    yield from (row | {"p_adjusted": p, "correction": "holm"} for row, p in zip(differences, adjusted, strict=True))


def _difference(found: Evaluation, inside: np.ndarray, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the difference from the other examples; no interval if one of the two has none."""
    name = row["metric"]
    columns = {"metric": derive("difference", name), "against": REST}
    none = {"ci_low": np.nan, "ci_high": np.nan, "p": np.nan}
    if inside.all():
        return columns | none | {"value": np.nan, "why": "all examples are in the slice"}
    chosen = np.repeat(inside, [len(one) for one in found.labels])
    one, p = against_rest(chosen, name, resamples=RESAMPLES, **found.table({"step": 0, "seed": 0}).sample())
    why = row.get("why") or found.subset(np.flatnonzero(~inside)).interval(name).get("why")
    if why or np.isnan(p):
        return columns | none | {"value": one.value, "why": why or "the metric is the same in all resamples"}
    return columns | {"value": one.value, "ci_low": one.ci_low, "ci_high": one.ci_high, "p": p}


def slice_sentences(rows: pd.DataFrame) -> Iterator[str]:
    """For each task and split a sentence that names the slices that are worse than the other examples.

    They are those whose difference has a p of at most .05 after Holm's correction over the slices.
    """
    if "against" not in rows:
        return
    rows = rows[rows["against"] == REST]
    of = [task.removesuffix(f":{name}") for task, name in zip(rows["task"], rows["slice"], strict=True)]
    for (task, split, name), part in rows.groupby([np.array(of, dtype=object), "split", "metric"], sort=False):
        base = metric(name)
        tested = part[part["p"].notna()]
        worse = tested[(tested["p_adjusted"] <= LEVEL) & (base.sign * tested["value"].astype(float) < 0)]
        family = f"Holm over {len(tested)} slice{'s' * (len(tested) != 1)}"
        listed = [
            f"{row['slice']} ({row['value']:+.4f}, 95 % interval {row['ci_low']:+.4f} to {row['ci_high']:+.4f}, "
            f"{row['n']:,} examples, {p_equals(row['p_adjusted'])})"
            for row in worse.to_dict("records")
        ]
        said = (
            f"{base.of} is worse than on the other examples on {', '.join(listed)}; {family}"
            if listed
            else f"no slice is shown to be worse than the other examples ({base.of}; {family})"
        )
        yield f"{task} {split}: {said}"
        for row in part[part["p"].isna()].to_dict("records"):
            yield f"{task} {split}: {row['slice']} is not compared with the other examples: {row['why']}"
