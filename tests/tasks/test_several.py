"""Several labels or numbers a text, in every layout that a task file describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from probekit.errors import DataError
from probekit.tasks.check import check_task
from probekit.tasks.files.custom import custom_task
from probekit.tasks.task import Task, TaskKind

COLUMNS = 'label = ["sad", "angry"]\n'
LISTED = 'labels = ["sad", "angry"]\n'
NUMBERS = 'type = "regression"\n'
WANTED = [(0, 1), (), None, (1,)]


def rows(*labels: Any) -> list[dict[str, Any]]:
    return [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Task]:
    def load(toml: str, name: str, text: str | list | None) -> Task:
        if text is not None:
            lines = text if isinstance(text, str) else "\n".join(map(json.dumps, text))
            (tmp_path / name).write_text(lines, encoding="utf-8")
        (tmp_path / "mine.toml").write_text(f'{toml}[splits]\ntrain = "{name}"\n')
        return custom_task(tmp_path / "mine.toml")

    return load


@pytest.mark.parametrize(
    ("toml", "name", "text"),
    [
        (COLUMNS, "t.csv", "text,sad,angry\na,1,1\nb,0,0\nc,,\nd,0,1\n"),
        (COLUMNS, "t.tsv", "text\tsad\tangry\na\tTrue\tyes\nb\tno\tFALSE\nc\t\t\nd\tfalse\ttrue\n"),
        ("header = false\ntext = 1\nlabel = [2, 3]\n" + LISTED, "t.csv", "a,1,1\nb,0,0\nc,,\nd,0,1\n"),
        (LISTED, "t.jsonl", rows(["angry", "sad"], [], None, ["angry"])),
        ("", "t.jsonl", rows({"sad": 1, "angry": 1}, {"sad": 0, "angry": False}, None, {"sad": 0, "angry": 1.0})),
    ],
)  # fmt: skip
def test_any_number_of_labels(own: Callable, toml: str, name: str, text: str | list) -> None:
    task = own(toml, name, text)
    assert (task.kind, task.label_names, task.metrics) == (
        TaskKind.MULTI_LABEL, ("sad", "angry"), ("micro-f1", "macro-f1")
    )  # fmt: skip
    assert [e.label for e in task.split("train")] == WANTED
    assert task.labels("train").tolist() == [[1, 1], [0, 0], [-1, -1], [0, 1]]
    split = check_task(task).splits[0]
    assert (split.labelled, split.labels) == (3, {"sad": 1, "angry": 2})


def test_separated_cells_and_parquet(own: Callable, tmp_path: Path) -> None:
    task = own('separator = ";"\n', "t.csv", "text,label\na,x; y\nb,y;y;\nc,\n")
    assert (task.label_names, [e.label for e in task.split("train")]) == (("x", "y"), [(0, 1), (1,), None])
    assert "train: unlabelled, left out: 1; and no example is said to have no label" in str(check_task(task))
    pq.write_table(pa.table({"text": ["a", "b"], "label": [["y", "x"], []]}), tmp_path / "t.parquet")
    assert [e.label for e in own("", "t.parquet", None).split("train")] == [(0, 1), ()]


def test_several_numbers(own: Callable) -> None:
    for toml, name, text in (
        ('label = ["v", "a"]\n', "t.csv", "text,v,a\nx,.5,2\ny,,\n"),
        ('labels = ["v", "a"]\n', "t.jsonl", [{"text": "x", "label": [0.5, 2]}, {"text": "y", "label": None}]),
        ("", "t.jsonl", [{"text": "x", "label": {"v": 0.5, "a": 2}}, {"text": "y", "label": None}]),
    ):
        task = own(f'type = "regression"\n{toml}', name, text)
        assert (task.kind, task.label_names, task.metrics) == (
            TaskKind.MULTI_OUTPUT, ("v", "a"), ("pearson", "spearman")
        )  # fmt: skip
        np.testing.assert_array_equal(task.labels("train"), [[0.5, 2], [np.nan, np.nan]])
        assert check_task(task).splits[0].numbers == {"v": (0.5, 0.5, 0.5), "a": (2, 2, 2)}


def test_ordered_classes(own: Callable) -> None:
    text = "text,label\na,good\nb,bad\nc,fair\n"
    task = own('ordered = true\nlabels = ["bad", "fair", "good"]\n', "t.csv", text)
    assert (task.kind, task.label_names) == (TaskKind.CLASSIFICATION, ("bad", "fair", "good"))
    assert task.metrics == ("quadratic-kappa", "spearman", "accuracy")
    assert own("ordered = true\n", "t.csv", "text,label\na,3\nb,10\nc,5\n").label_names == ("3", "5", "10")


@pytest.mark.parametrize(
    ("toml", "name", "text", "message"),
    [
        ("ordered = true\n", "t.csv", "text,label\na,x\nb,y\nc,z\n", "ordered = true needs their order: write labels"),
        ("ordered = true\n", "t.csv", "text,label\na,1\nb,2\n", "is for three or more classes"),
        ('metrics = ["spearman"]\n', "t.csv", "text,label\na,x\nb,y\n", "spearman is for ordered classes, and x, y"),
        (LISTED, "t.jsonl", rows(["angri"]), "line 1, column 'label': 'angri' is not one of .*; did you mean 'angry'?"),
        (COLUMNS, "t.csv", "text,sad,angry\na,1,2\n", "line 2, column 'angry': expected 1 or 0 .* '2'. If these"),
        (COLUMNS, "t.csv", "text,sad,angry\na,1,\n", "column 'angry': there is no value for 'angry'; give all labels"),
        (COLUMNS, "t.csv", "text,sad\na,1\n", "there is no column 'angry'.*: label = "),
        (COLUMNS, "t.jsonl", [{"text": "a", "sad": 1}], r'no .angry. \(label 2\); .*: label = \["…", "…"\]'),
        (NUMBERS + LISTED, "t.jsonl", rows([1]), "found 1 numbers, expected 2: sad, angry"),
        (NUMBERS + COLUMNS, "t.csv", "text,sad,angry\na,1,x\n", "column 'angry': expected a number, found 'x'"),
        ("", "t.jsonl", rows(["x"], "y"), "line 2, column 'label': expected a list of labels, found 'y'"),
        ('label = ["a"]\n', "t.csv", "text,a\n", "label lists the columns of two or more"),
        (COLUMNS + 'separator = ";"\n', "t.csv", "text,sad,angry\na,1,1\n", "separator is what is between"),
        (COLUMNS + 'metrics = ["accuracy"]\n', "t.csv", "text,sad,angry\na,1,1\n", "accuracy cannot be used for mul"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(own: Callable, toml: str, name: str, text: str | list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        own(toml, name, text)
