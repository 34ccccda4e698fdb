"""Data of your own: one TOML file says which files hold the splits and which columns hold what.

The smallest one, for tab-separated files whose header names the columns ``text`` and ``label``::

    [splits]
    train = "train.tsv"
    dev = "dev.tsv"

Files are found beside the TOML file. ``probekit tasks check mine.toml`` prints what was understood. Everything that may
be said, above ``[splits]``:

=========== ===================================================================================================
name        the task's name; default: the TOML file's
type        "classification", "regression" or "sequence-labelling"; default: sequence labelling where words and tags
            are named or the files are CoNLL files, otherwise classification
text, pair  columns of the sentence (default "text") and of the second sentence of a pair
label       column of the label (default "label"); an empty cell or null is an unlabelled example; ``label = false``
            says that there are no labels
id, domain  columns of a unique name, and of where the text comes from (genre, site …)
words, tags columns of a list of words and a list as long of tags (JSON lines, Parquet, hub); in CoNLL files the number
            of the column, default 1 and the last
labels      names of the classes or tags, in the order of their indices; default: all that occur, sorted
metrics     such as ["matthews", "accuracy"]; the first is the task's own
format      "tsv" (.tsv, .txt, .tab), "csv", "json-lines" (.jsonl, .ndjson, .json), "parquet", "conll" (.conll, .bio,
            .iob, .iob2), "conllu"; default: by the file's suffix
header      false for TSV and CSV files without header; columns are then numbers, from 1
comments    true where lines of CoNLL files that begin with # are comments
hub, config a Hugging Face dataset and its configuration, instead of files; ``[splits]`` then names the hub's splits
            (``dev = "validation"``), and may be left out
source, licence  for tables
=========== ===================================================================================================

A second example, sentence pairs in CSV files without header::

    type = "regression"
    header = false
    text = 1
    pair = 2
    label = 3

    [splits]
    train = "pairs/train.csv"
    test = "pairs/test.csv"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.tasks.readers import (
    CONLLU_COLUMNS,
    Sentence,
    Table,
    read_conll,
    read_conllu,
    read_csv,
    read_json_lines,
    read_lines,
    read_tsv,
)
from probekit.tasks.sources import examples, from_hub, hub_columns, number
from probekit.tasks.task import Kind, Label, Split, Task
from probekit.tasks.taskfile import SUFFIXES, Column, Format, TaskFile, read_task_file

__all__ = ["custom_task"]


@dataclass(frozen=True)
class _Rows:
    """The wanted columns of one split, by their role (text, label, …), and the line each row is on."""

    file: Path | str
    lines: Sequence[int]
    columns: Mapping[str, list[Any]]
    class_names: tuple[str, ...] = ()

    def error(self, i: int, role: str, message: str) -> DataError:
        return DataError(message, file=self.file, line=self.lines[i], column=role)


def custom_task(path: str | Path, data_dir: str | Path | None = None) -> Task:
    """The task that a TOML file describes.

    data_dir : folder that the file names in it are relative to; default: the TOML file's own
    Raises DataError naming the file, and the line and column or the key, of what is not as it should be.
    """
    path = Path(path)
    spec = read_task_file(path)
    base = Path(data_dir) if data_dir is not None else path.parent
    rows = _hub_rows(path, spec) if spec.hub else {s: _read(path, spec, base / name) for s, name in spec.splits.items()}
    for split, part in rows.items():
        if not part.lines:
            raise DataError(f"holds no rows for the split {split!r}.", file=part.file)
    if spec.label is not False and not any({"label", "tags", "words"} & set(part.columns) for part in rows.values()):
        message = (
            f"no split has a column {spec.label!r}; name the column (label = …), or say label = false for texts alone."
        )
        raise DataError(message, file=path)
    kind = _kind(path, spec, rows)
    notes = [f"{s} has no labels." for s, part in rows.items() if not {"label", "tags"} & set(part.columns)]
    names: tuple[str, ...] = ()
    if kind is not Kind.REGRESSION:
        names = _class_names(spec, rows)
        if spec.labels is None and names:
            notes.append(f"Labels found, sorted: {', '.join(names)}.")
    splits = {}
    for split, part in rows.items():
        get = part.columns.get
        ids = _ids(part)
        texts = _texts(part, "text")
        words = [tuple(w) for w in _lists(part, "words")] if "words" in part.columns else None
        splits[split] = Split(
            split,
            tuple(
                examples(
                    split,
                    [" ".join(w) for w in words] if words is not None and not texts else texts,
                    _labels(part, kind, names, words),
                    pairs=_texts(part, "pair") or None,
                    words=words,
                    ids=ids,
                    domains=None
                    if get("domain") is None
                    else [None if d is None else str(d) for d in get("domain", [])],
                )
            ),
        )
    metrics = tuple(spec.metrics or _default_metrics(kind, names))
    return Task(
        spec.name or path.stem,
        kind,
        splits,
        names,
        metrics,
        spec.source or spec.hub or str(path.name),
        spec.licence,
        tuple(notes),
    )


def _roles(spec: TaskFile) -> dict[str, Column]:
    """Column by role, for tables."""
    tokens = spec.words is not None or spec.tags is not None
    roles: dict[str, Column | None] = {
        "text": None if tokens and "text" not in spec.model_fields_set else spec.text,
        "pair": spec.pair,
        "label": None if tokens or isinstance(spec.label, bool) else spec.label,
        "id": spec.id,
        "domain": spec.domain,
        "words": spec.words,
        "tags": spec.tags,
    }
    return {role: column for role, column in roles.items() if column is not None}


def _read(spec_file: Path, spec: TaskFile, path: Path) -> _Rows:
    """One split's file."""
    if not path.is_file():
        raise DataError(f"there is no such file; it is named in {spec_file}.", file=path)
    if spec.format is None and path.suffix.lower() not in SUFFIXES:
        raise DataError(
            f'unknown suffix {path.suffix!r}; say format = "…" in {spec_file} ({", ".join(Format)}).', file=path
        )
    kind = Format(spec.format) if spec.format else SUFFIXES[path.suffix.lower()]
    if kind in (Format.CONLL, Format.CONLLU):
        return _column_file(spec, path, kind)
    roles = _roles(spec)
    if kind in (Format.TSV, Format.CSV):
        return _delimited(spec, path, kind, roles)
    numbered = [role for role, column in roles.items() if isinstance(column, int)]
    if numbered:
        raise DataError(f"{numbered[0]} = {roles[numbered[0]]}: columns of a {kind} file have names.", file=spec_file)
    names = {role: str(column) for role, column in roles.items()}
    return _json_lines(path, names) if kind is Format.JSON_LINES else _parquet(path, names)


def _delimited(spec: TaskFile, path: Path, kind: Format, roles: Mapping[str, Column]) -> _Rows:
    read = read_tsv if kind is Format.TSV else read_csv
    if {"words", "tags"} & set(roles):
        raise DataError("words and tags are lists; keep them in JSON lines, Parquet or a CoNLL file.", file=path)
    if spec.header:
        table: Table = read(path)
    else:
        named = next((role for role, column in roles.items() if isinstance(column, str)), None)
        if named == "label" and "label" not in spec.model_fields_set:
            message = "header = false, so columns are numbers: say label = 2, for instance, or label = false."
            raise DataError(message, file=path)
        if named is not None:
            message = f"header = false, so columns are numbers: say {named} = 1, for instance, not {roles[named]!r}."
            raise DataError(message, file=path)
        width = _width(path, kind)
        table = read(path, [str(i + 1) for i in range(width)])
    columns = {}
    for role, column in roles.items():
        if isinstance(column, int) and not 1 <= column <= len(table.columns):
            message = f"{role} = {column}, but the file has {len(table.columns)} columns."
            raise DataError(message, file=path, line=1)
        name = table.columns[column - 1] if isinstance(column, int) else column
        if role == "label" and name not in table.columns:
            continue
        columns[role] = table.column(name)
    return _Rows(path, table.lines, columns)


def _width(path: Path, kind: Format) -> int:
    """Number of columns of the first row of a file without header."""
    if kind is Format.CSV:
        return len(read_csv(path).columns)
    lines = read_lines(path)
    return len(lines[0].split("\t")) if lines else 0


def _json_lines(path: Path, roles: Mapping[str, str]) -> _Rows:
    records = list(read_json_lines(path))
    lines = [line for line, _ in records]
    columns: dict[str, list[Any]] = {}
    for role, name in roles.items():
        if role == "label" and not any(name in record for _, record in records):
            continue
        columns[role] = [record.get(name) for _, record in records]
        absent = next((line for line, record in records if name not in record), None)
        if absent is not None and role in ("text", "pair", "words", "id"):
            keys = ", ".join(map(repr, next(r for at, r in records if at == absent)))
            raise DataError(f"the object has no {name!r} ({role}); it has {keys}.", file=path, line=absent)
    return _Rows(path, lines, columns)


def _parquet(path: Path, roles: Mapping[str, str]) -> _Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        missing = [name for role, name in roles.items() if name not in names and role != "label"]
        if missing:
            raise DataError(f"there is no column {missing[0]!r}; it has {', '.join(map(repr, names))}.", file=path)
        table = pq.read_table(path, columns=[name for name in roles.values() if name in names])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as Parquet: {error}.", file=path) from error
    columns = {role: table[name].to_pylist() for role, name in roles.items() if name in names}
    return _Rows(path, range(1, table.num_rows + 1), columns)


def _column_file(spec: TaskFile, path: Path, kind: Format) -> _Rows:
    """A CoNLL or CoNLL-U file."""
    conllu = kind is Format.CONLLU
    word, tag = spec.words or (2 if conllu else 1), spec.tags or (4 if conllu else 0)
    if conllu:
        word, tag = (CONLLU_COLUMNS.index(c) + 1 if c in CONLLU_COLUMNS else c for c in (word, tag))
    for role, column in (("words", word), ("tags", tag)):
        if isinstance(column, str):
            known = f"one of {', '.join(CONLLU_COLUMNS)}, or a number" if conllu else "a number (from 1)"
            raise DataError(f"{role} = {column!r}, expected {known}.", file=path)
    need = max(2, int(word), int(tag))
    if conllu and need > len(CONLLU_COLUMNS):
        raise DataError(f"column {need} was asked for, but CoNLL-U has 10.", file=path)
    sentences = list(read_conllu(path) if conllu else read_conll(path, columns=need, comments=spec.comments))
    columns: dict[str, list[Any]] = {
        "words": [list(s.column(int(word) - 1)) for s in sentences],
        "tags": [[None if conllu and t == "_" else t for t in s.column(int(tag) - 1)] for s in sentences],
    }
    if any(s.comments.get("text") for s in sentences):
        columns["text"] = [s.comments.get("text") or " ".join(s.column(int(word) - 1)) for s in sentences]
    if _all_have(sentences, "sent_id"):
        columns["id"] = [s.comments["sent_id"] for s in sentences]
    return _Rows(path, [s.line for s in sentences], columns)


def _all_have(sentences: Sequence[Sentence], key: str) -> bool:
    return bool(sentences) and all(s.comments.get(key) for s in sentences)


def _hub_rows(path: Path, spec: TaskFile) -> dict[str, _Rows]:
    assert spec.hub is not None
    data = from_hub(str(path), spec.hub, spec.config)
    wanted = spec.splits or {"dev" if name == "validation" else name: name for name in data}
    missing = [name for name in wanted.values() if name not in data]
    if missing:
        raise DataError(f"{spec.hub} has no split {missing[0]!r}; it has {', '.join(data)}.", file=path)
    rows = {}
    for split, theirs in wanted.items():
        dataset = data[theirs]
        roles = {r: str(c) for r, c in _roles(spec).items() if r != "label" or str(c) in dataset.column_names}
        columns = dict(zip(roles, hub_columns(dataset, *roles.values()), strict=True))
        names: tuple[str, ...] = ()
        for role in ("label", "tags"):
            feature = dataset.features[roles[role]] if role in roles else None
            found = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
            if found:
                names = tuple(found)
                columns[role] = [_named(value, names) for value in columns[role]]
        rows[split] = _Rows(f"{spec.hub} ({theirs})", range(1, len(dataset) + 1), columns, names)
    return rows


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(v, names) for v in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def _kind(path: Path, spec: TaskFile, rows: Mapping[str, _Rows]) -> Kind:
    tokens = any("words" in part.columns for part in rows.values())
    if spec.type is not None:
        kind = Kind(spec.type)
        if (kind is Kind.SEQUENCE_LABELLING) != tokens:
            need = "needs words and tags" if not tokens else "has one label a text, but words and tags are given"
            raise DataError(f'type = "{kind}" {need}.', file=path)
        return kind
    if tokens:
        return Kind.SEQUENCE_LABELLING
    labels = [v for part in rows.values() for v in part.columns.get("label", ()) if not _missing(v)]
    numeric = [number(str(v)) for v in labels]
    if (
        labels
        and spec.labels is None
        and all(v is not None for v in numeric)
        and any(v != int(v) for v in numeric if v)
    ):
        example = next(v for v, x in zip(labels, numeric, strict=True) if x is not None and x != int(x))
        raise DataError(
            f'labels such as {example} look like scores; say type = "regression" or type = "classification".', file=path
        )
    return Kind.CLASSIFICATION


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _name(value: Any) -> str:
    """A label as the name of a class."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _class_names(spec: TaskFile, rows: Mapping[str, _Rows]) -> tuple[str, ...]:
    if spec.labels is not None:
        return tuple(str(label) for label in spec.labels)
    for part in rows.values():
        if part.class_names:
            return part.class_names
    names = {_name(v) for part in rows.values() for v in part.columns.get("label", ()) if not _missing(v)}
    for part in rows.values():
        if "tags" in part.columns:
            names |= {_name(t) for tags in _lists(part, "tags", holes=True) for t in tags if not _missing(t)}
    whole = all(re.fullmatch(r"-?\d{1,18}", name) for name in names)
    return tuple(sorted(names, key=int) if whole else sorted(names))


def _texts(part: _Rows, role: str) -> list[str]:
    values = part.columns.get(role, [])
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise part.error(i, role, f"expected a text, found {value!r}.")
    return values


def _lists(part: _Rows, role: str, *, holes: bool = False) -> list[list[Any]]:
    """A column of lists: of words, or (with ``holes``) of tags, which may be missing."""
    values = part.columns[role]
    for i, value in enumerate(values):
        if holes and value is None:
            continue
        if not isinstance(value, list) or not (holes or all(isinstance(w, str) for w in value)):
            raise part.error(i, role, f"expected a list of {'tags' if holes else 'words'}, found {str(value)[:60]!r}.")
        if not value:
            raise part.error(i, role, "a sentence without words.")
    return [value or [] for value in values]


def _labels(
    part: _Rows, kind: Kind, names: Sequence[str], words: Sequence[tuple[str, ...]] | None
) -> list[Label] | None:
    index = {name: i for i, name in enumerate(names)}
    out: list[Label] = []
    if words is not None:
        if "tags" not in part.columns:
            return None
        for i, tags in enumerate(_lists(part, "tags", holes=True)):
            if tags and len(tags) != len(words[i]):
                raise part.error(i, "tags", f"{len(tags)} tags for {len(words[i])} words.")
            out.append(tuple(-1 if _missing(t) else _index(part, i, "tags", t, index) for t in tags) or None)
        return out
    if "label" not in part.columns:
        return None
    for i, value in enumerate(part.columns["label"]):
        if _missing(value):
            out.append(None)
        elif kind is Kind.REGRESSION:
            score = None if isinstance(value, bool) else number(str(value))
            if score is None:
                raise part.error(i, "label", f"expected a number, found {value!r}.")
            out.append(score)
        else:
            out.append(_index(part, i, "label", value, index))
    return out


def _index(part: _Rows, i: int, role: str, value: Any, index: Mapping[str, int]) -> int:
    if isinstance(value, list | dict):
        raise part.error(i, role, f"expected one label, found {str(value)[:60]!r}.")
    if _name(value) not in index:
        raise part.error(i, role, f"{_name(value)!r} is none of the labels {', '.join(map(repr, index))}.")
    return index[_name(value)]


def _ids(part: _Rows) -> list[str] | None:
    """The ids as texts; raises DataError, with both lines, where one occurs twice."""
    if "id" not in part.columns:
        return None
    first: dict[str, int] = {}
    for i, value in enumerate(part.columns["id"]):
        if _missing(value):
            raise part.error(i, "id", "has no id.")
        if str(value) in first:
            before = part.lines[first[str(value)]]
            raise part.error(i, "id", f"the id {str(value)!r} is that of line {before} already; ids must be unique.")
        first[str(value)] = i
    return list(first)


def _default_metrics(kind: Kind, names: Sequence[str]) -> tuple[str, ...]:
    if kind is Kind.REGRESSION:
        return ("pearson", "spearman")
    if kind is Kind.SEQUENCE_LABELLING:
        spans = any(name.startswith("B-") for name in names)
        return ("span-f1", "token-accuracy") if spans else ("token-accuracy",)
    return ("accuracy", "macro-f1")
