"""The log of a training as rows, with one measured number each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from probekit.adaptation.runs.constant import constant_answer, constant_rows
from probekit.adaptation.runs.predictions import Evaluation
from probekit.adaptation.training.multi_task import card_for, mixed_names
from probekit.adaptation.training.objective import Objective, Training
from probekit.adaptation.training.trainer import History
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["columns_of", "evaluation_rows", "training_rows"]

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
    """Each metric with its interval, and the loss if there is one; ``headline`` marks the task's main metric."""
    shared = {"layer": None, "n": len(found.ids), "kept": True, **about}
    for name in found.task.metrics:
        value = {"metric": name, "value": found.metrics[name], **found.interval(name)}
        yield shared | value | {"headline": name == found.task.metrics[0]}
    if "loss" in found.metrics:
        yield shared | {"metric": found.task.loss, "value": found.metrics["loss"], "headline": False}


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
    about = columns_of(card)
    objective = training.objectives[0]
    constant = constant_answer(objective.task, objective.train)
    records, main = [*_of_log(training, history, found["dev"])], objective.metric.name
    if "test" in found:
        (entry,) = [e for e in history.log if "eval_loss" in e and e["step"] == history.step][-1:]
        records += _of_test(training, entry, found["test"])
    last = "test" if "test" in found else "dev"
    for record in records:
        record["kept"] = record["step"] == history.step
        record["headline"] = (record.pop("role"), record["metric"], record["kept"]) == (last, main, True)
    trained = card["parameters"]["trained"]
    shared = {**about, "analysis": "train", "layer": None, "trained_parameters": trained}
    rows = [{**shared, **record} for record in records]
    for role, evaluation in found.items():
        columns = {**about, "analysis": "train", "split": getattr(training.options, role)}
        rows += constant_rows(evaluation, constant, columns)
    for other, evaluations in others.items():
        for role, evaluation in evaluations.items():
            split = getattr(training.options, role)
            columns = {**columns_of(card, other.task.name), "analysis": "train", "layer": None, "split": split}
            records = [*_of_other(other, history, role, evaluation)]
            rows += [{**columns, "trained_parameters": trained, **record} for record in records]
            rows += constant_rows(evaluation, constant_answer(other.task, other.train), columns)
    return make_rows(rows)


def _of_other(other: Objective, history: History, role: str, found: Evaluation) -> Iterator[dict[str, Any]]:
    """The metrics of the kept weights on a further task."""
    data = getattr(other, role)
    (epoch,) = {e["epoch"] for e in history.log if "eval_loss" in e and e["step"] == history.step}
    shared = {
        "step": history.step, "epoch": epoch, "kept": True, "headline": False, "n": len(data),
        "examples": len(other.train), "unread_words": data.unread,
    }  # fmt: skip
    for name in other.task.metrics:
        yield shared | {"metric": name, "value": found.metrics[name], **found.interval(name)}
    yield shared | {"metric": other.task.loss, "value": found.metrics["loss"]}


def _of_log(training: Training, history: History, dev: Evaluation) -> Iterator[dict[str, Any]]:
    objective, layers = training.objectives[0], training.learner.layers
    loss, evaluations = objective.task.loss, {e["step"]: e for e in history.log if "eval_loss" in e}
    for entry in history.log:
        if "loss" in entry:
            added = sum(entry[f"loss_{term.name}"] for term in training.terms)
            if len({one.task.loss for one in training.objectives}) == 1:  # else they are added, but not alike
                names = "+".join(one.task.name for one in training.objectives)
                yield _row(training, "train", entry, loss, entry["loss"] - added) | {"task": names}
            for term in training.terms:
                value = entry[f"loss_{term.name}"]
                yield _row(training, "train", entry, "added-loss", value) | {"term": term.name}
    for entry in evaluations.values():
        for name in objective.task.metrics:
            ends = dev.interval(name) if entry["step"] == history.step else {}
            yield _row(training, "dev", entry, name, entry[f"eval_{name}"]) | ends
        yield _row(training, "dev", entry, loss, entry["eval_loss"])
        for i, layer in enumerate(layers):
            yield _row(training, "dev", entry, "mix-weight", entry[f"eval_mix_{i}"]) | {"layer": layer}
        if layers:
            yield _row(training, "dev", entry, "mix-gamma", entry["eval_mix_gamma"])


def _of_test(training: Training, entry: Entry, test: Evaluation) -> Iterator[dict[str, Any]]:
    task = training.objectives[0].task
    for name in task.metrics:
        yield _row(training, "test", entry, name, test.metrics[name]) | test.interval(name)
    yield _row(training, "test", entry, task.loss, test.metrics["loss"])


def _row(training: Training, role: str, entry: Entry, metric: str, value: float) -> dict[str, Any]:
    data, split = getattr(training.objectives[0], role), getattr(training.options, role)
    return {
        "role": role, "split": split, "step": entry["step"], "epoch": entry["epoch"], "kept": False,
        "metric": metric, "value": value, "n": len(data), "examples": len(training.objectives[0].train),
        "unread_words": data.unread,
    }  # fmt: skip
