"""The prediction target: the part of a task that caches and cards store, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from probekit.adaptation.heads.head import IGNORED
from probekit.metrics import metric
from probekit.statistics.bootstrap import estimates
from probekit.tasks.task import Task, TaskKind


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task without its examples.

    Attributes
    ----------
    metrics : tuple[str, ...]
        Names, the main one first.
    paired : bool
        Whether examples are pairs of sentences.
    marked : int, default 0
        Number of marked words in each example, which the label is about.
    """

    name: str
    kind: TaskKind
    label_names: tuple[str, ...]
    metrics: tuple[str, ...]
    paired: bool
    marked: int = 0

    @classmethod
    def of_task(cls, task: Task, split: str) -> TaskSpec:
        """The spec of a task; ``split`` shows whether examples are pairs, and whether words are marked."""
        part = task.split(split)
        marked = len(part[0].spans) if len(part) and task.kind is TaskKind.CLASSIFICATION else 0
        return cls(task.name, task.kind, task.label_names, task.metrics, part.paired, marked)

    @classmethod
    def of_cache(cls, spec: Mapping[str, Any]) -> TaskSpec:
        """The spec from that of an activation cache."""
        names, metrics = tuple(spec["label_names"]), tuple(spec["metrics"])
        return cls(spec["task"], TaskKind(spec["kind"]), names, metrics, spec["pairs"] is not None)

    @classmethod
    def of_card(cls, card: Mapping[str, Any]) -> TaskSpec:
        """The spec from the card of a run."""
        target = card["target"]
        names, metrics = tuple(target["label_names"]), tuple(target["metrics"])
        marked = target.get("marked", 0)
        return cls(target["task"], TaskKind(target["kind"]), names, metrics, target["paired"], marked)

    def on_card(self) -> dict[str, Any]:
        """The JSON values for a card."""
        values = asdict(self)
        if not self.marked:
            del values["marked"]
        return {"task": values.pop("name"), **values}

    @property
    def tags(self) -> bool:
        """Whether words are tagged."""
        return self.kind is TaskKind.SEQUENCE_LABELLING

    @property
    def numbers(self) -> bool:
        """Whether numbers are predicted: one of a text, or several."""
        return self.kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT)

    @property
    def answers(self) -> bool:
        """Whether texts are predicted: answers to questions."""
        return self.kind is TaskKind.QUESTION_ANSWERING

    @property
    def responses(self) -> bool:
        """Whether responses to prompts are generated."""
        return self.kind is TaskKind.RESPONSE_GENERATION

    @property
    def spans(self) -> bool:
        """Whether the tags mark spans (B-…, I-…)."""
        return self.tags and any(name.startswith("B-") for name in self.label_names)

    @property
    def outputs(self) -> int:
        """The number of outputs of a head: one per class, label or number, or two for the ends of an answer."""
        if self.answers:
            return 2  # start and end
        return 1 if self.kind is TaskKind.REGRESSION else len(self.label_names)

    @property
    def loss(self) -> str:
        """The name of the loss in rows."""
        return "mean-squared-error" if self.numbers else "log-loss"

    @property
    def scored(self) -> tuple[str, ...]:
        """The metrics of scores, such as AUROC, which need probabilities."""
        return tuple(name for name in self.metrics if metric(name).needs == "scores")

    @property
    def labels_in_words(self) -> str:
        """The labels in words, for messages."""
        names = self.label_names
        what = "classes" if not self.kind.several else "numbers" if self.numbers else "labels"
        return f"the {what} {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "numbers as labels"

    def score(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The task's metrics but perplexity and :attr:`scored` ones, by name, from predictions and labels of heads."""
        gold: Any = labels
        guess: Any = predictions
        if self.tags:
            names, kept = np.array(self.label_names, dtype=object), labels != IGNORED
            gold = [names[row[k]].tolist() for row, k in zip(labels, kept, strict=True)]
            guess = [names[row[k]].tolist() for row, k in zip(predictions, kept, strict=True)]
        if self.kind.several:
            return several_scores(self.metrics, labels, predictions, self.label_names)
        if self.answers:
            gold, guess = [json.loads(answers) for answers in labels], predictions.tolist()
        return {name: metric(name)(gold, guess) for name in self.metrics if metric(name).function is not None}


def several_scores(
    metrics: Sequence[str], labels: np.ndarray, predictions: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """Metrics of several labels or numbers, (n, k), by name, as probes have them: of all pairs, or means over labels.

    Those of scores are left out.

    Examples
    --------
    >>> gold, said = np.array([[1, 0], [1, 1]]), np.array([[1, 0], [1, 0]])
    >>> several_scores(["micro-f1", "macro-f1"], gold, said, ["a", "b"])
    {'micro-f1': 0.8, 'macro-f1': 0.5}
    """
    of_label = np.tile(np.array(names), len(labels))
    given: dict[str, Any] = {"gold": labels.ravel(), "predicted": predictions.reshape(1, -1), "of_label": of_label}
    known = {name: score for name in metrics if (score := metric(name).function) is not None}
    return {name: float(estimates(metric=name, score=score, **given)[0]) for name, score in known.items()}


def merged_classes(learned: Sequence[str], target: Sequence[str]) -> np.ndarray | None:
    """The class of ``target`` for each learned class, where the target has one of them and "not_" it; else None.

    Examples
    --------
    >>> merged_classes(("entailment", "neutral", "contradiction"), ("entailment", "not_entailment")).tolist()
    [0, 1, 1]
    """
    if len(target) != 2 or len(learned) < 3:
        return None
    one, other = sorted(target, key=lambda name: name.startswith("not_"))
    if other != f"not_{one}" or one not in learned:
        return None
    return np.array([list(target).index(one if name == one else other) for name in learned])
