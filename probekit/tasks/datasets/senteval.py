"""The ten probing tasks of SentEval (Conneau et al. 2018, https://arxiv.org/abs/1805.01070).

They ask what a sentence vector says about its sentence: surface properties (length, words), syntax (depth and top
constituents of the tree, order of two neighbouring words) and semantics (tense, number, a replaced word, exchanged
clauses). There is only a reader of local files: data/probing of the SentEval repository has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import examples, local_file
from probekit.tasks.task import Task, TaskKind

__all__ = ["LOADERS"]

SPLITS = {"tr": "train", "va": "dev", "te": "test"}


def _dataset(file: str, shown: str, title: str, classes: str = "") -> Dataset:
    return Dataset(
        f"senteval-{file.replace('_', '-')}",
        title,
        TaskKind.CLASSIFICATION,
        {"train": 100_000, "dev": 10_000, "test": 10_000},
        ("accuracy",),
        "Conneau et al. 2018, https://github.com/facebookresearch/SentEval",
        "not stated; the sentences are from the Toronto BookCorpus",
        tuple(classes.split()),
        folder="senteval",
        shown=shown,
    )


FILES = {
    "sentence_length": ("SentLen", "Surface: number of words in six bins, from 5-8 (0) to 26-28 (5)", "0 1 2 3 4 5"),
    "word_content": ("WC", "Surface: which of 1,000 words the sentence contains"),
    "tree_depth": ("TreeDepth", "Syntax: depth of the parse tree"),
    "top_constituents": (
        "TopConst",
        "Syntax: the constituents below the root, the 19 most frequent sequences or OTHER",
    ),
    "bigram_shift": ("BShift", "Syntax: two neighbouring words exchanged (I), or the original (O)", "I O"),
    "past_present": ("Tense", "Semantics: tense of the main verb", "PAST PRES"),
    "subj_number": ("SubjNum", "Semantics: number of the subject, singular (NN) or plural (NNS)", "NN NNS"),
    "obj_number": ("ObjNum", "Semantics: number of the direct object, singular (NN) or plural (NNS)", "NN NNS"),
    "odd_man_out": ("SOMO", "Semantics: a noun or verb replaced (C), or the original (O)", "C O"),
    "coordination_inversion": ("CoordInv", "Semantics: two clauses exchanged (I), or the original (O)", "I O"),
}
"""For each file: the paper's name of its task, a title, and the classes; without classes, those of the file."""


def _load(file: str, dataset: Dataset, root: str | Path | None = None) -> Task:
    """The task from ``FILE.txt``, with lines of tr, va or te, the class, and the sentence, separated by tabs."""
    path = local_file(dataset, root, f"{file}.txt", f"data/probing/{file}.txt")
    classes = dataset.label_names
    label = f"one of the classes {', '.join(classes)}" if classes else "a class"
    expected = f"expected tr, va or te, {label} and a sentence, separated by tabs"
    rows: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS.values()}
    for line, text in enumerate(read_lines(path), start=1):
        part, *cells = text.split("\t")
        known = len(cells) > 1 and (cells[0] in classes if classes else cells[0]) and cells[-1].strip()
        if part not in SPLITS or not known:
            raise DataError(f"{expected}, found {text[:60]!r}.", file=path, line=line)
        rows[SPLITS[part]].append((cells[0], cells[-1]))
    found = {label for part_rows in rows.values() for label, _ in part_rows}
    if not found:
        raise DataError(f"is empty; {expected}.", file=path)
    whole = all(label.isdecimal() for label in found)
    names = classes or tuple(sorted(found, key=int if whole else str))
    index = {name: i for i, name in enumerate(names)}
    splits = {
        split: examples(split, [sentence for _, sentence in part_rows], [index[label] for label, _ in part_rows])
        for split, part_rows in rows.items()
        if part_rows
    }
    return replace(dataset, label_names=names).task(splits)


LOADERS: dict[Dataset, Callable[..., Task]] = {
    (dataset := _dataset(file, *description)): partial(_load, file, dataset) for file, description in FILES.items()
}
