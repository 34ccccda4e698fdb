"""The prediction target: the part of a task that caches and cards store, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from probekit.adaptation.heads.head import IGNORED
from probekit.metrics import metric
from probekit.tasks.task import Task, TaskKind, check_one_label


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
        check_one_label(task.name, task.kind)
        part = task.split(split)
        marked = len(part[0].spans) if len(part) and task.kind is TaskKind.CLASSIFICATION else 0
        return cls(task.name, task.kind, task.label_names, task.metrics, part.paired, marked)

    @classmethod
    def of_cache(cls, spec: Mapping[str, Any]) -> TaskSpec:
        """The spec from that of an activation cache."""
        check_one_label(spec["task"], spec["kind"])
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
        """The number of outputs of a head: one per class, one for a number, or two for the ends of an answer."""
        if self.answers:
            return 2  # start and end
        return 1 if self.kind is TaskKind.REGRESSION else len(self.label_names)

    @property
    def loss(self) -> str:
        """The name of the loss in rows."""
        return "mean-squared-error" if self.kind is TaskKind.REGRESSION else "log-loss"

    @property
    def labels_in_words(self) -> str:
        """The labels in words, for messages."""
        names = self.label_names
        return f"the classes {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "numbers as labels"

    def score(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The task's metrics but perplexity, by name, from arrays of predictions and labels as heads use them."""
        gold: Any = labels
        guess: Any = predictions
        if self.tags:
            names, kept = np.array(self.label_names, dtype=object), labels != IGNORED
            gold = [names[row[k]].tolist() for row, k in zip(labels, kept, strict=True)]
            guess = [names[row[k]].tolist() for row, k in zip(predictions, kept, strict=True)]
        if self.answers:
            gold, guess = [json.loads(answers) for answers in labels], predictions.tolist()
        return {name: metric(name)(gold, guess) for name in self.metrics if metric(name).function is not None}


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
