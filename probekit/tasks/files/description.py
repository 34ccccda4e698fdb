"""The TOML file that describes a user's data: its keys, validated. :mod:`probekit.tasks.files.custom` explains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from probekit.errors import DataError, UsageError
from probekit.metrics import metric, task_metrics
from probekit.tasks.datasets.sources import HUB_SPLITS
from probekit.tasks.task import Example, Split, Task, TaskKind
from probekit.toml import line_of, read_toml, what_is_wrong


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
LATER = ("entities", "pair_span")
"""Keys that came later: the digests of data without them are as before."""


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
    label: Column | bool | list[Column] = "label"
    separator: str | None = None
    id: Column | None = None
    domain: Column | None = None
    groups: Column | None = None
    words: Column | None = None
    tags: Column | None = None
    entities: str | None = None
    span: str | list[str] | None = None
    pair_span: str | list[str] | None = None
    targets: str | None = None
    unit: str | None = None
    labels: list[str | int] | None = None
    ordered: bool = False
    metrics: list[str] | None = None
    format: str | None = None
    header: bool = True
    comments: bool = False
    hub: str | None = None
    config: str | None = None
    source: str = ""
    licence: str = ""


class Dataset(TaskFile):
    """The keys of a data set that is installed: those of a task file, and in what its files differ.

    Attributes
    ----------
    title, shown : str
        A readable title, and the name in figures, tables and reports, as its authors write it.
    folder : str, default ''
        Usual name of its folder, if it is not the data set's; case, ``-`` and ``_`` are ignored.
    sizes : dict[str, int]
        Published number of examples in each split; 0 where none is stated.
    files : dict[str, list[str]]
        For each split the names (or patterns) that its file may have; PART stands for a treebank.
    also : str, default ''
        What else its folder must have, as the end of a message.
    reader : str, default ''
        The function that reads files which the other keys do not describe: a name in :mod:`probekit.tasks.load`, or
        "module:function" of an installed package; users' task files have no such key.
    part : bool, default False
        Whether a name after a colon (``ud:en_ewt``) is for the reader; otherwise it is a domain.
    columns : list[str]
        Names of the columns of files without a header.
    cells : list[str]
        What the files have for each of the labels, if it is not the label.
    unlabelled : str, optional
        What the files have where there is no label; any other cell that is no label is an error.
    optional : bool, default False
        Whether a file may lack the column of labels.
    between : list[float]
        The lowest and the highest score.
    decimals : int, optional
        To which scores are rounded.
    ids : list[str]
        Columns that may hold the ids: the first that is there counts.
    categories : dict[str, str]
        Columns by domain: an example is of all domains whose cells are not empty.
    split : str, default ''
        The column with the split of each row.
    ragged, drop_short : bool, default False
        As in :func:`probekit.tasks.files.readers.read_tsv`.
    quoted : bool, default False
        Whether cells of a .tsv file may be in quotation marks; otherwise they are ordinary characters.
    encoding : str, optional
        That of old files that are not UTF-8.
    revision : str, optional
        That of the copy on the hub.
    special : dict[str, dict]
        Other values of these keys for a split (or a pattern of splits), or for the hub's copy; false for the default.
    """

    splits: dict[str, str] = Field(default_factory=HUB_SPLITS.copy)
    title: str
    shown: str
    folder: str = ""
    sizes: dict[str, int] = Field(default_factory=dict)
    files: dict[str, list[str]]
    also: str = ""
    reader: str = ""
    part: bool = False
    columns: list[str] = Field(default_factory=list)
    cells: list[str] = Field(default_factory=list)
    unlabelled: str | None = None
    optional: bool = False
    between: list[float] = Field(default_factory=list)
    decimals: int | None = None
    ids: list[str] = Field(default_factory=list)
    categories: dict[str, str] = Field(default_factory=dict)
    split: str = ""
    ragged: bool = False
    drop_short: bool = False
    quoted: bool = False
    encoding: str | None = None
    revision: str | None = None
    special: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def kind(self) -> TaskKind:
        """The prediction target."""
        return TaskKind(self.type or TaskKind.CLASSIFICATION)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes by index."""
        return tuple(map(str, self.labels or ()))

    def of(self, place: str) -> Dataset:
        """The keys as they are for a split, or for the "hub", where files have the labels unless they say otherwise."""
        given = self.model_dump(exclude_unset=True, exclude={"special", *(["cells"] if place == "hub" else [])})
        for pattern, keys in self.special.items():
            if fnmatchcase(place, pattern):
                given |= keys
        return Dataset.model_validate({k: v for k, v in given.items() if v is not False or k == "label"})

    def task(
        self, splits: Mapping[str, Iterable[Example]], notes: Iterable[str] = (), *, name: str = "",
        labels: Iterable[str] | None = None,
    ) -> Task:  # fmt: skip
        """The task with these examples by split."""
        return Task(
            name=name or str(self.name),
            kind=self.kind,
            splits={split: Split(split, tuple(examples)) for split, examples in splits.items()},
            label_names=self.label_names if labels is None else tuple(labels),
            metrics=tuple(self.metrics or ()),
            source=self.source,
            licence=self.licence,
            notes=tuple(notes),
        )


File = TypeVar("File", bound=TaskFile)


def read_task_file(path: Path) -> TaskFile:
    """The validated keys of a task file; raises DataError, one sentence that names the key."""
    return read_keys(path, TaskFile)


def read_keys(path: Path, model: type[File]) -> File:
    """The validated keys of a task file, or of the file of a data set."""
    raw, text = read_toml(path)
    try:
        spec = model.model_validate(raw)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        message = what_is_wrong(error, model, _EXPECTED)
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
        "ordered": "true or false",
        "comments": "true or false",
        "choices": "the columns of the choices in a list, or the name of one column that holds lists",
        "labels": 'a list such as ["no", "yes"]',
        "metrics": 'a list such as ["accuracy"]',
        "messages": "the column's name in quotation marks",
        "entities": "the column's name in quotation marks",
        "span": "the column's name in quotation marks, or a list of two columns of numbers",
        "pair_span": "the column's name in quotation marks, or a list of two columns of numbers",
        "targets": "the column's name in quotation marks",
        "unit": '"words" or "characters"',
        "label": "the column's name in quotation marks, its number (from 1), a list of columns, or false",
        "separator": 'what is between the labels of a cell, such as ";"',
    }
    | dict.fromkeys(
        ("text", "pair", "id", "domain", "groups", "words", "tags"),
        "the column's name in quotation marks or its number (from 1)",
    )
)


def _problem(spec: TaskFile) -> tuple[str, str] | None:
    """The first inconsistency, with its key."""
    if not (spec.splits or spec.hub or isinstance(spec, Dataset)):
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
    for key, value in (("span", spec.span), ("pair_span", spec.pair_span)):
        if isinstance(value, list) and len(value) != 2:
            return key, f'{key} lists {len(value)} columns; expected two, such as ["start", "end"].'
    if spec.pair_span is not None and (spec.pair is None or spec.span is None):
        return "pair_span", "pair_span is the part of pair, beside the one of text; name pair and span, too."
    if spec.entities is not None and (wrong := {"pair", "label", "words", "tags", "messages"} & spec.model_fields_set):
        return "entities", f"entities are tags of the words of text; leave out {min(wrong)}."
    mixed = {"text", "pair", "words", "tags", "choices", "targets"} & spec.model_fields_set
    if spec.messages is not None and (mixed or spec.type not in (None, "classification", "regression")):
        return "messages", "messages are classified or rated as a whole; leave out text, pair, words and targets."
    if (spec.targets is None) == (spec.type == TaskKind.SPAN_LABELLING) and not isinstance(spec, Dataset):
        return "targets", 'type = "span-labelling" and targets = "COLUMN" go together; write both.'
    if spec.label is True:
        return "label", "label = true is not a column; give the column's name or number, or false."
    if isinstance(spec.label, list):
        if len(spec.label) < 2 or len(set(map(str, spec.label))) < len(spec.label):
            return "label", "label lists the columns of two or more different labels."
        if spec.labels is not None and len(spec.labels) != len(spec.label):
            return "labels", f"labels has {len(spec.labels)} names, but label lists {len(spec.label)} columns."
    if spec.separator is not None and (not spec.separator or not isinstance(spec.label, str | int)):
        return "separator", 'separator is what is between the labels of one column, such as ";".'
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
