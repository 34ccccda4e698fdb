"""The diagnostic sets of GLUE (Wang et al. 2018, section 4) and SuperGLUE (AX-b: the same pairs with two classes).

The domains of an example are its categories: lexical-semantics, predicate-argument-structure, logic and knowledge.
There is only a test split, for classifiers that were trained on MNLI or RTE, and only a reader of local files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.glue import ENTAILMENT, MNLI
from probekit.tasks.datasets.sources import class_labels, examples, local_file
from probekit.tasks.files.readers import Table, read_json_lines, read_tsv
from probekit.tasks.task import SEVERAL, Task, TaskKind

__all__ = ["LOADERS", "axb", "glue_diagnostic"]

Root = str | Path | None
CATEGORIES = {
    "lexical-semantics": "Lexical Semantics", "predicate-argument-structure": "Predicate-Argument Structure",
    "logic": "Logic", "knowledge": "Knowledge",
}  # fmt: skip
"""The categories as in AX-b, and as in GLUE's file."""

DIAGNOSTIC = Dataset(
    "glue-diagnostic",
    "GLUE's diagnostic set",
    TaskKind.CLASSIFICATION,
    {"test": 1104},
    ("matthews", "accuracy"),
    "Wang et al. 2018, https://gluebenchmark.com/diagnostics",
    "not stated",
    MNLI.label_names,
    folder="diagnostic",
    shown="GLUE diagnostic",
)
AXB = Dataset(
    "ax-b",
    "SuperGLUE's broadcoverage diagnostic set",
    TaskKind.CLASSIFICATION,
    {"test": 1104},
    ("matthews", "accuracy"),
    "Wang et al. 2019, https://super.gluebenchmark.com/diagnostics",
    "not stated",
    ENTAILMENT,
    folder="AX-b",
    shown="AX-b",
)


def glue_diagnostic(root: Root = None) -> Task:
    """GLUE's diagnostic set with three classes; Matthews correlation is R3 (Gorodkin 2004).

    File: diagnostic-full.tsv, with the columns Lexical Semantics, Predicate-Argument Structure, Logic, Knowledge,
    Premise, Hypothesis and Label.
    """
    path = local_file(DIAGNOSTIC, root, "diagnostic-full.tsv", "diagnostic_full.tsv")
    table = read_tsv(path, required=(*CATEGORIES.values(), "Premise", "Hypothesis", "Label"))
    categories = [table.column(name) for name in CATEGORIES.values()]
    return _task(DIAGNOSTIC, table, "Premise", "Hypothesis", "Label", categories)


def axb(root: Root = None) -> Task:
    """SuperGLUE's AX-b, entailment or not. File: AX-b.jsonl, with idx, sentence1, sentence2, label and categories."""
    path = local_file(AXB, root, "AX-b.jsonl", "superglue_AX-b.jsonl")
    columns = ("idx", "sentence1", "sentence2", "label", *CATEGORIES)
    rows, lines = [], []
    for line, record in read_json_lines(path):
        if missing := [c for c in columns[1:4] if not isinstance(record.get(c), str)]:
            raise DataError("expected a text.", file=path, line=line, column=missing[0])
        rows.append(["" if record.get(c) is None else str(record[c]) for c in columns])
        lines.append(line)
    table = Table(path, columns, rows, lines)
    categories = [table.column(name) for name in CATEGORIES]
    return _task(AXB, table, "sentence1", "sentence2", "label", categories, ids=table.column("idx"))


LOADERS = {DIAGNOSTIC: glue_diagnostic, AXB: axb}


def _task(
    dataset: Dataset, table: Table, text: str, pair: str, label: str, categories: Sequence[Sequence[str]],
    ids: Sequence[str] | None = None,
) -> Task:  # fmt: skip
    classes: Mapping[str, int | None] = {name: i for i, name in enumerate(dataset.label_names)}
    domains = [
        SEVERAL.join(name for name, cell in zip(CATEGORIES, cells, strict=True) if cell.strip()) or None
        for cells in zip(*categories, strict=True)
    ]
    rows = examples(
        "test", table.column(text), class_labels(table, label, classes), pairs=table.column(pair), ids=ids,
        domains=domains,
    )  # fmt: skip
    return dataset.task({"test": rows})
