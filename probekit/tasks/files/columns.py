"""The columns that a task file names, read from its files or from the hub."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.files import check_text, read_lines
from probekit.parquet import open_parquet
from probekit.tasks.datasets.sources import from_hub, hub_columns
from probekit.tasks.files.description import SUFFIXES, Column, Dataset, Format, TaskFile
from probekit.tasks.files.raw import SAMPLE, has_header
from probekit.tasks.files.readers import (
    CONLLU_COLUMNS,
    Table,
    domain_of,
    in_documents,
    is_quoted,
    read_conll,
    read_conllu,
    read_csv,
    read_json_lines,
    read_tsv,
)

CHAT_COLUMNS = ("tools", "chat_template_kwargs")
"""Fields of a JSON line with a conversation: descriptions of tools, and further variables of its chat template."""


@dataclass(frozen=True)
class Rows:
    """The columns of one split by role (text, label, …), and the line of each row.

    Attributes
    ----------
    left_out : str, default ''
        What of a published file is no example, as a sentence.
    """

    file: Path | str
    lines: Sequence[int]
    columns: Mapping[str, list[Any]]
    class_names: tuple[str, ...] = ()
    names: Mapping[str, Column] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: str = ""

    def with_columns(self, columns: Mapping[str, list[Any]]) -> Rows:
        """The same rows with other columns."""
        return replace(self, columns=columns)

    def error(self, i: int, role: str, message: str) -> DataError:
        """An error at row i; ``names`` holds the file's column name for each role."""
        return DataError(message, file=self.file, line=self.lines[i], column=self.names.get(role, role))


def roles_of(spec: TaskFile) -> dict[str, Column]:
    """Column by role, for tables."""
    tokens = spec.words is not None or spec.tags is not None
    roles: dict[str, Column | None] = {
        "text": None if (tokens and "text" not in spec.model_fields_set) or spec.messages else spec.text,
        "messages": spec.messages,
        "pair": spec.pair,
        **_several("choice", spec.choices, "choices"),
        "label": None if tokens or spec.entities or isinstance(spec.label, bool | list) else spec.label,
        **({f"label {i}": c for i, c in enumerate(spec.label, 1)} if isinstance(spec.label, list) else {}),
        "id": spec.id,
        "domain": spec.domain,
        "groups": spec.groups,
        "words": spec.words,
        "tags": spec.tags,
        "entities": spec.entities,
        **_several("span", spec.span),
        **_several("pair_span", spec.pair_span),
        "targets": spec.targets,
    }
    if isinstance(spec, Dataset):
        roles |= {"split": spec.split or None, **{f"category {name}": c for name, c in spec.categories.items()}}
    return {role: column for role, column in roles.items() if column is not None}


def _several(role: str, given: Sequence[Column] | Column | None, whole: str = "") -> dict[str, Column | None]:
    """The columns of a role that may have several: "choice 1", "choice 2" …; or the one that holds all."""
    if isinstance(given, list):
        return {f"{role} {i}": column for i, column in enumerate(given, start=1)}
    return {whole or role: given}  # type: ignore[dict-item]


def read_rows(spec_file: Path, spec: TaskFile, path: Path) -> Rows:
    """One split's file."""
    if not path.is_file():
        raise DataError(f"does not exist, but is named in {spec_file}.", file=path)
    if spec.format is None and path.suffix.lower() not in SUFFIXES:
        check_text(path)
        raise DataError(
            f'unknown suffix {path.suffix!r}; set format = "…" in {spec_file} ({", ".join(Format)}).', file=path
        )
    kind = Format(spec.format) if spec.format else SUFFIXES[path.suffix.lower()]
    if kind in (Format.CONLL, Format.CONLLU):
        return _column_file(spec, path, kind)
    roles = roles_of(spec)
    if kind in (Format.TSV, Format.CSV):
        return _delimited(spec_file, spec, path, kind, roles)
    numbered = [role for role, column in roles.items() if isinstance(column, int)]
    if numbered:
        raise DataError(
            f"{numbered[0]} = {roles[numbered[0]]}: name the column; the columns of a {kind} file have names.",
            file=spec_file,
        )
    names = {role: str(column) for role, column in roles.items()}
    if kind is Format.PARQUET:
        return _parquet(path, names, spec_file)
    records = list(read_json_lines(path))
    names |= _id(spec, {name for _, record in records for name in record})
    return record_columns(path, records, names, spec_file)


def _delimited(spec_file: Path, spec: TaskFile, path: Path, kind: Format, roles: Mapping[str, Column]) -> Rows:
    if {"words", "tags", "targets", "messages", "entities"} & set(roles):
        raise DataError(
            "words, tags, targets, messages and entities are lists; store them in JSON lines, Parquet or a CoNLL file.",
            file=path,
        )
    if "choices" in roles:
        raise DataError(
            'choices are lists; name a column for each (choices = ["…", "…"]), or use JSON lines.', file=path
        )
    if not spec.header:
        named_role = next((role for role, column in roles.items() if isinstance(column, str)), None)
        if named_role == "label" and "label" not in spec.model_fields_set:
            message = "header = false, so columns are numbered: write label = 2, for instance, or label = false."
            raise DataError(message, file=path)
        if named_role is not None:
            message = (
                f"header = false, so columns are numbered: write {named_role} = 1, for instance, not "
                f"{roles[named_role]!r}."
            )
            raise DataError(message, file=path)
    quoted = kind is Format.TSV and not isinstance(spec, Dataset) and is_quoted(read_lines(path, ends=True))
    if isinstance(spec, Dataset):
        table = _published(spec, path, kind, roles)
        roles = {**roles, **_id(spec, table.columns)}
    elif kind is Format.TSV and not quoted:
        table = read_tsv(path, header=spec.header)
    else:
        table = read_csv(path, header=spec.header, delimiter="\t" if quoted else ",")
    columns = {}
    for role, column in roles.items():
        if isinstance(column, int) and not 1 <= column <= len(table.columns):
            message = f"{role} = {column}, but the file has {len(table.columns)} columns."
            raise DataError(message, file=path, line=1)
        name = table.columns[column - 1] if isinstance(column, int) else column
        if role == "label" and name not in table.columns:
            continue
        if isinstance(spec, Dataset) and (parts := _named_in(name)) != [name]:
            cells = zip(*map(table.column, parts), strict=True)
            columns[role] = [_TEMPLATE.sub("{}", name).format(*some) for some in cells]
            continue
        columns[role] = table.column(name, "" if name in table.columns else _column_hint(spec_file, table, role))
    note = "cells are in quotation marks where they need them, as spreadsheets write them; the marks are not read."
    short = f"{table.short} truncated rows are left out." if table.short else ""
    return Rows(path, table.lines, columns, names=roles, notes=(note,) if quoted else (), left_out=short)


_TEMPLATE = re.compile(r"\{([^}]+)\}")


def _named_in(column: str) -> list[str]:
    """The columns that a template such as "{title} {text}" names; any other text is a column itself."""
    return _TEMPLATE.findall(column) or [column]


def _published(spec: Dataset, path: Path, kind: Format, roles: Mapping[str, Column]) -> Table:
    """The table of a published file, which must have every column; a quotation mark in it is an ordinary character."""
    known = [c for role, c in roles.items() if role != "label" or not spec.optional]
    needed = spec.columns or [name for column in known for name in _named_in(str(column))]
    if kind is Format.CSV or spec.quoted:
        return read_csv(path, spec.columns or None, required=needed, delimiter="\t" if spec.quoted else ",")
    return read_tsv(path, spec.columns or None, required=needed, ragged=spec.ragged, drop_short=spec.drop_short)


def _id(spec: TaskFile, columns: Container[str]) -> dict[str, str]:
    """The role of the first of the columns that may hold ids, if one is there."""
    some = [name for name in spec.ids if name in columns] if isinstance(spec, Dataset) else []
    return {"id": some[0]} if some else {}


def _column_hint(spec_file: Path, table: Table, role: str) -> str:
    """What to do about a column that the header does not have."""
    if has_header([list(table.columns), *table.rows[:SAMPLE]]):
        return f"Name the column in {spec_file}: {_key(role)}"
    role = "label" if role.startswith("label ") else role
    return (
        f"If the file has no header, write header = false in {spec_file}, and give the columns by number ({role} = 1)."
    )


def _key(role: str) -> str:
    """What to write in a task file to name the column of a role; one of several labels is "label 2"."""
    return 'label = ["…", "…"]' if role.startswith("label ") else f"{role} = …"


def record_columns(
    path: Path | str,
    records: Sequence[tuple[int, dict[str, Any]]],
    roles: Mapping[str, str],
    spec_file: Path | None = None,
) -> Rows:
    """The columns of records with their line numbers; raises DataError for a record without a required field."""
    lines = [line for line, _ in records]
    columns: dict[str, list[Any]] = {}
    for role, name in roles.items():
        if role == "label" and not any(name in record for _, record in records):
            continue
        columns[role] = [record.get(name) for _, record in records]
        line_without = next((line for line, record in records if name not in record), None)
        if line_without is not None and (
            role in ("text", "messages", "pair", "words", "id", "groups", "targets", "entities")
            or role.startswith(("choice", "span", "pair_span", "label "))
        ):
            keys = ", ".join(map(repr, next(r for at, r in records if at == line_without)))
            misspelt = spec_file is not None and not any(name in record for _, record in records)
            hint = f" Name the field in {spec_file}: {_key(role)}" if misspelt else ""
            raise DataError(f"the object has no {name!r} ({role}); it has {keys}.{hint}", file=path, line=line_without)
    if "messages" in roles:  # what else a chat template reads, where it is given
        columns |= {name: [record.get(name) for _, record in records] for name in CHAT_COLUMNS}
    return Rows(path, lines, columns, names=roles)


def _parquet(path: Path, roles: Mapping[str, str], spec_file: Path) -> Rows:
    if not path.is_file():
        raise DataError("does not exist.", file=path)
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        missing = {role: name for role, name in roles.items() if name not in names and role != "label"}
        for role, name in missing.items():
            known = ", ".join(map(repr, names))
            hint = f"Name the column in {spec_file}: {_key(role)}"
            raise DataError(f"has no column {name!r}; it has {known}. {hint}", file=path)
        table = file.read(columns=[name for name in roles.values() if name in names])
        columns = {role: table[name].to_pylist() for role, name in roles.items() if name in names}
    return Rows(path, range(1, table.num_rows + 1), columns, names=roles)


def _column_file(spec: TaskFile, path: Path, kind: Format) -> Rows:
    """A CoNLL or CoNLL-U file."""
    conllu = kind is Format.CONLLU
    word, tag = spec.words or (2 if conllu else 1), spec.tags or (4 if conllu else 0)
    if conllu:
        word, tag = (CONLLU_COLUMNS.index(c) + 1 if c in CONLLU_COLUMNS else c for c in (word, tag))
    for role, column in (("words", word), ("tags", tag)):
        if isinstance(column, str):
            known = f"one of {', '.join(CONLLU_COLUMNS)}, or a number" if conllu else "a number (from 1)"
            raise DataError(f"{role} = {column!r}, expected {known}.", file=path)
    if spec.groups is not None:
        begin = "# newdoc" if conllu else "-DOCSTART-"
        raise DataError(
            f"groups cannot be a column, since each line is a word; {begin} lines mark documents, the groups.",
            file=path,
        )
    if spec.targets is not None:
        raise DataError("targets are lists; store them in JSON lines or Parquet.", file=path)
    least_columns = max(2, int(word), int(tag))
    if conllu and least_columns > len(CONLLU_COLUMNS):
        raise DataError(f"words or tags names column {least_columns}, but CoNLL-U has 10 columns.", file=path)
    encoding = spec.encoding if isinstance(spec, Dataset) else None
    sentences = in_documents(
        read_conllu(path)
        if conllu
        else read_conll(path, columns=least_columns, comments=spec.comments, fallback=encoding),
        path,
    )
    columns: dict[str, list[Any]] = {
        "sentence": sentences,
        "words": [list(s.column(int(word) - 1)) for s in sentences],
        "tags": [[None if conllu and t == "_" else t for t in s.column(int(tag) - 1)] for s in sentences],
    }
    documents = [s.document for s in sentences]
    if any(documents):
        columns["groups"] = documents
    if any(s.comments.get("text") for s in sentences):
        columns["text"] = [s.comments.get("text") or " ".join(s.column(int(word) - 1)) for s in sentences]
    if isinstance(spec, Dataset) and spec.domain is not None:
        columns["domain"] = [domain_of(s.comments, path.name.partition("-ud-")[0]) for s in sentences]
    ids = [s.comments.get("sent_id", "") for s in sentences]
    if all(ids) and len(set(ids)) == len(ids):
        columns["id"] = ids
    note = f"{len(set(documents)):,} documents are marked; each is held out and resampled as a whole."
    if not conllu:
        note += " The -DOCSTART- lines are not examples."
    lines, notes = [s.line for s in sentences], (note,) if any(documents) else ()
    multiword, empty = sum(s.multiword for s in sentences), sum(s.empty for s in sentences)
    apart = f"{multiword} multiword tokens and {empty} empty nodes are left out." if conllu else ""
    return Rows(path, lines, columns, notes=notes, left_out=apart)


def hub_rows(what: Path | str, spec: TaskFile, **options: Any) -> dict[str, Rows]:
    """The rows of each split of a data set of the hub; ``options`` are those of ``datasets.load_dataset``."""
    assert spec.hub is not None
    data = from_hub(str(what), spec.hub, spec.config, **options)
    hub_splits = spec.splits or {"dev" if name == "validation" else name: name for name in data}
    missing = [name for name in hub_splits.values() if name not in data]
    if missing and not isinstance(spec, Dataset):
        raise DataError(f"{spec.hub} has no split {missing[0]!r}; it has {', '.join(data)}.", file=what)
    rows = {}
    for split, hub_split in hub_splits.items():
        if hub_split in missing:
            continue
        dataset = data[hub_split]
        roles = {r: str(c) for r, c in roles_of(spec).items() if r != "label" or str(c) in dataset.column_names}
        roles |= _id(spec, dataset.column_names)
        columns = dict(zip(roles, hub_columns(dataset, *roles.values()), strict=True))
        names: tuple[str, ...] = ()
        for role in ("label", "tags"):
            feature = dataset.features[roles[role]] if role in roles else None
            found = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
            if found:
                names = tuple(found)
                columns[role] = [_class_name(value, names) for value in columns[role]]
        rows[split] = Rows(f"{spec.hub} ({hub_split})", range(1, len(dataset) + 1), columns, names, roles)
    return rows


def _class_name(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_class_name(v, names) for v in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None
