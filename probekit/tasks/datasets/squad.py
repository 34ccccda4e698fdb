"""SQuAD 1.1 and 2.0: questions whose answer is a part of a paragraph (Rajpurkar et al. 2016, 2018)."""

from __future__ import annotations

from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import from_hub, hub_columns, locate
from probekit.tasks.files.squad import ANSWERS, question, read_squad
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "squad", "squad2"]

SQUAD = Dataset(
    "squad",
    "SQuAD 1.1, answers in paragraphs of Wikipedia",
    TaskKind.QUESTION_ANSWERING,
    {"train": 87599, "dev": 10570},
    ("answer-f1-1.1", "exact-match-1.1"),
    "Rajpurkar et al. 2016, https://rajpurkar.github.io/SQuAD-explorer/",
    "CC BY-SA 4.0",
    ANSWERS[:1],
    shown="SQuAD 1.1",
)
SQUAD2 = Dataset(
    "squad2",
    "SQuAD 2.0, with questions that have no answer",
    TaskKind.QUESTION_ANSWERING,
    {"train": 130319, "dev": 11873},
    ("answer-f1", "exact-match"),
    "Rajpurkar, Jia and Liang 2018, https://rajpurkar.github.io/SQuAD-explorer/",
    "CC BY-SA 4.0",
    ANSWERS,
    folder="squad",
    shown="SQuAD 2.0",
)


def squad(root: str | Path | None = None) -> Task:
    """SQuAD 1.1: every question has an answer; several in dev. Files: train-v1.1.json and dev-v1.1.json."""
    return _squad(root, SQUAD, "1.1", "rajpurkar/squad")


def squad2(root: str | Path | None = None) -> Task:
    """SQuAD 2.0: a third of the questions in train, half in dev, have no answer in the paragraph.

    Files: train-v2.0.json and dev-v2.0.json.
    """
    return _squad(root, SQUAD2, "2.0", "rajpurkar/squad_v2")


LOADERS = {SQUAD: squad, SQUAD2: squad2}


def _squad(root: str | Path | None, dataset: Dataset, version: str, repository: str) -> Task:
    if root is None:
        splits = _from_hub(dataset, repository)
    else:
        names = {split: (f"{split}-v{version}.json",) for split in dataset.sizes}
        files = locate(root, names, folder="squad", what=dataset.shown)
        splits = {split: read_squad(path) for split, path in files.items()}
    for split, found in splits.items():
        unanswered = next((e.id for e in found if e.label == 1), None)
        if unanswered is not None and dataset is SQUAD:
            raise DataError(
                f"squad {split}: question {unanswered} has no answer, but all have one in SQuAD 1.1. Take squad2."
            )
    return dataset.task(splits)


def _from_hub(dataset: Dataset, repository: str) -> dict[str, list[Example]]:
    data = from_hub(dataset.name, repository)
    splits = {}
    for split, theirs in {"train": "train", "dev": "validation"}.items():
        columns = hub_columns(data[theirs], "id", "title", "context", "question", "answers")
        splits[split] = [
            question(repository, name, text, context, zip(given["text"], given["answer_start"], strict=True), title)
            for name, title, context, text, given in zip(*columns, strict=True)
        ]
    return splits
