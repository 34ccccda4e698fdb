"""TREC question classification (Li and Roth 2002, https://aclanthology.org/C02-1150/)."""

from __future__ import annotations

from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import HUB_SPLITS, PARQUET, examples, from_hub, hub_columns, hub_labels, locate
from probekit.tasks.task import Example, Task, TaskKind

__all__ = ["LOADERS", "trec_6", "trec_50"]

SIZES = {"train": 5452, "test": 500}
SOURCE = "Li and Roth 2002, https://cogcomp.seas.upenn.edu/Data/QA/QC/"
FINE = {
    "ABBR": "abb exp",
    "DESC": "def desc manner reason",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant product religion sport "
    "substance symbol techmeth termeq veh word",
    "HUM": "desc gr ind title",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other perc period speed temp volsize weight",
}

TREC_6 = Dataset(
    "trec-6",
    "TREC questions, 6 coarse classes",
    TaskKind.CLASSIFICATION,
    SIZES,
    ("accuracy", "macro-f1"),
    SOURCE,
    "not stated",
    tuple(FINE),
    folder="trec",
    shown="TREC-6",
)
TREC_50 = Dataset(
    "trec-50",
    "TREC questions, 50 fine classes",
    TaskKind.CLASSIFICATION,
    SIZES,
    ("accuracy", "macro-f1"),
    SOURCE,
    "not stated",
    tuple(f"{coarse}:{fine}" for coarse, fines in FINE.items() for fine in fines.split()),
    folder="trec",
    shown="TREC-50",
)


def trec_6(root: str | Path | None = None) -> Task:
    """TREC-6: the type of answer that a question asks for, in six classes. Splits: train and test; there is no dev.

    Files: train_5500.label and TREC_10.label, with lines ``COARSE:fine question``; ASCII, except for a Latin-1 byte in
    some copies.
    """
    return _trec(root, TREC_6, "coarse_label")


def trec_50(root: str | Path | None = None) -> Task:
    """TREC-50: the same questions in fifty classes, of which 42 occur in test. Files as for :func:`trec_6`."""
    return _trec(root, TREC_50, "fine_label")


LOADERS = {TREC_6: trec_6, TREC_50: trec_50}


def _trec(root: str | Path | None, dataset: Dataset, column: str) -> Task:
    splits = {}
    if root is None:
        data = from_hub(dataset.name, "CogComp/trec", revision=PARQUET)
        for split in SIZES:
            rows = data[HUB_SPLITS[split]]
            splits[split] = examples(split, hub_columns(rows, "text")[0], hub_labels(rows, column, dataset.label_names))
        return dataset.task(splits)
    files = locate(root, {"train": ("train_5500.label",), "test": ("TREC_10.label",)}, folder="trec", what="TREC")
    for split, path in files.items():
        splits[split] = _questions(split, path, dataset)
    return dataset.task(splits)


def _questions(split: str, path: Path, dataset: Dataset) -> list[Example]:
    index = {name: i for i, name in enumerate(dataset.label_names)}
    texts, labels = [], []
    for line, text in enumerate(read_lines(path, fallback="latin-1"), start=1):
        fine, blank, question = text.partition(" ")
        label = index.get(fine if dataset is TREC_50 else fine.partition(":")[0])
        if label is None or not blank:
            message = f"expected a class such as 'NUM:dist', a space and a question, found {text[:40]!r}."
            raise DataError(message, file=path, line=line)
        texts.append(question)
        labels.append(label)
    return examples(split, texts, labels)
