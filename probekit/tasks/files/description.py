"""The TOML file that describes a user's data: its keys, validated. :mod:`probekit.tasks.files.custom` explains them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probekit.errors import DataError, UsageError
from probekit.metrics import metric, task_metrics
from probekit.tasks.task import TaskKind
from probekit.toml import line_of, read_toml, what_is_wrong

__all__ = ["SUFFIXES", "Column", "Format", "TaskFile", "read_task_file"]


class Format(StrEnum):
    """Format of a data file."""

    TSV = "tsv"
    CSV = "csv"
    JSON_LINES = "json-lines"
    PARQUET = "parquet"
    CONLL = "conll"
    CONLLU = "conllu"


SUFFIXES = {
    suffix: kind
    for kind, suffixes in {
        Format.TSV: ".tsv .txt .tab",
        Format.CSV: ".csv",
        Format.JSON_LINES: ".jsonl .ndjson .json",
        Format.PARQUET: ".parquet",
        Format.CONLL: ".conll .bio .iob .iob2",
        Format.CONLLU: ".conllu",
    }.items()
    for suffix in suffixes.split()
}

Column = int | str


class TaskFile(BaseModel):
    """The keys of a task file; see the module's description."""

    model_config = ConfigDict(extra="forbid", strict=True)

    splits: dict[str, str] = Field(default_factory=dict)
    name: str | None = None
    type: str | None = None
    text: Column = "text"
    messages: str | None = None
    pair: Column | None = None
    choices: list[Column] | Column | None = None
    label: Column | bool = "label"
    id: Column | None = None
    domain: Column | None = None
    groups: Column | None = None
    words: Column | None = None
    tags: Column | None = None
    span: str | None = None
    targets: str | None = None
    unit: str | None = None
    labels: list[str | int] | None = None
    metrics: list[str] | None = None
    format: str | None = None
    header: bool = True
    comments: bool = False
    hub: str | None = None
    config: str | None = None
    source: str = ""
    licence: str = ""


def read_task_file(path: Path) -> TaskFile:
    """The validated keys of a task file; raises DataError, one sentence that names the key."""
    raw, text = read_toml(path)
    try:
        spec = TaskFile.model_validate(raw)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        message = what_is_wrong(error, TaskFile, _EXPECTED)
        raise DataError(message, file=path, line=line_of(text, key)) from error
    problem = _problem(spec)
    if problem:
        key, message = problem
        raise DataError(message, file=path, line=line_of(text, key))
    return spec


_EXPECTED = (
    dict.fromkeys(TaskFile.model_fields, "a text in quotation marks")
    | {
        "splits": 'file names by split, such as train = "train.tsv" below [splits]',
        "header": "true or false",
        "comments": "true or false",
        "choices": "the columns of the choices in a list, or the name of one column that holds lists",
        "labels": 'a list such as ["no", "yes"]',
        "metrics": 'a list such as ["accuracy"]',
        "messages": "the column's name in quotation marks",
        "span": "the column's name in quotation marks",
        "targets": "the column's name in quotation marks",
        "unit": '"words" or "characters"',
        "label": "the column's name in quotation marks, its number (from 1), or false",
    }
    | dict.fromkeys(
        ("text", "pair", "id", "domain", "groups", "words", "tags"),
        "the column's name in quotation marks or its number (from 1)",
    )
)


def _problem(spec: TaskFile) -> tuple[str, str] | None:
    """The first inconsistency, with its key."""
    if not spec.splits and not spec.hub:
        return "splits", 'lists no files; add [splits] with a line such as train = "train.tsv".'
    misplaced = [name for name in spec.splits if name in TaskFile.model_fields and name != "text"]
    if misplaced:
        return (
            misplaced[0],
            f"{misplaced[0]!r} is below [splits], where every key names a split; move it above [splits].",
        )
    if spec.config and not spec.hub:
        return "config", "config is for a hub dataset; name the dataset with hub = …."
    if spec.type is not None and spec.type not in set(TaskKind):
        return "type", f"unknown type {spec.type!r}; expected one of {', '.join(TaskKind)}."
    if spec.format is not None and spec.format not in set(Format):
        return "format", f"unknown format {spec.format!r}; expected one of {', '.join(Format)}."
    if spec.unit not in (None, "words", "characters"):
        return "unit", f'unit is {spec.unit!r}; expected "words" or "characters".'
    mixed = {"text", "pair", "words", "tags", "choices", "targets"} & spec.model_fields_set
    if spec.messages is not None and (mixed or spec.type not in (None, "classification", "regression")):
        return "messages", "messages are classified or rated as a whole; leave out text, pair, words and targets."
    if (spec.targets is None) == (spec.type == TaskKind.SPAN_LABELLING):
        return "targets", 'type = "span-labelling" and targets = "COLUMN" go together; write both.'
    if spec.label is True:
        return "label", "label = true is not a column; give the column's name or number, or false."
    if spec.labels is not None and len(set(map(str, spec.labels))) < len(spec.labels):
        return "labels", "labels lists a label twice."
    try:
        for name in spec.metrics or ():
            if metric(name).function is None:
                return (
                    "metrics",
                    f"{name} cannot be computed from labels and predictions; use one of {', '.join(task_metrics())}.",
                )
    except UsageError as error:
        return "metrics", str(error)
    return None
