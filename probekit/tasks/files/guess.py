"""Guesses about a file of labelled data: its separator and header, and which column is the text, the label …

Every guess comes with its reason, which ``probekit tasks new`` writes next to it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.files import parse_json, read_lines
from probekit.parquet import open_parquet
from probekit.tasks.chat import problem
from probekit.tasks.datasets.sources import number
from probekit.tasks.files.description import SUFFIXES, Format
from probekit.tasks.files.group_column import GROUP_NAMES, NAMES, GroupGuess, group_column
from probekit.tasks.files.readers import in_documents, is_quoted, parse_quoted, read_conll, read_conllu, read_json_lines
from probekit.tasks.task import TaskKind

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
CLASSES = 20
"""With more distinct numbers than this, labels are scores."""
SAMPLE = 5000
"""Number of rows on which a guess is based."""
DOCUMENT = "document"
"""The column of the documents that a file of sentences marks."""
SPLITS = NAMES["split_names"]


@dataclass(frozen=True)
class Raw:
    """A file's columns by name, in order, and a description of its format.

    Attributes
    ----------
    columns : dict of str to list
        One value per row.
    how : str
        The format in words: "comma-separated, with a header".
    as_it_is : bool
        Whether a task file can name this file; if not, its rows are written to a new file.
    header : bool
        False for a delimited file whose columns are numbered.
    named : bool
        False for a CoNLL file, whose columns have no names.
    """

    path: Path
    columns: dict[str, list[Any]]
    how: str
    as_it_is: bool = True
    header: bool = True
    named: bool = True

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass(frozen=True)
class Guess:
    """The kind of task, and the column for each role with the reason for it."""

    kind: TaskKind
    roles: Mapping[str, str]
    why: Mapping[str, str]
    classes: Mapping[str, int]
    repeated: Mapping[str, int] = field(default_factory=dict)
    """Without groups: the columns whose values are repeated, and how many values each has."""


def split_files(folder: Path) -> dict[str, Path]:
    """The files in a folder by split, found by their names: train, dev (or valid, validation, val) and test.

    Raises
    ------
    DataError
        If no file is named like train, or more than one like any split.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        for split in splits_named(path.stem):
            if path.is_file() and path.suffix.lower() in SUFFIXES:
                found.setdefault(split, []).append(path)
    if twice := next((split for split, paths in found.items() if len(paths) > 1), None):
        several = ", ".join(path.name for path in found[twice])
        raise DataError(
            f"several files could be the {twice} split: {several}. Give the folder of one data set.", file=folder
        )
    if "train" not in found:
        there = [path.name for path in sorted(folder.iterdir())[:8]]
        data = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]
        here = f"{', '.join(there[:-1])} and {there[-1]}" if there[1:] else "".join(there) or "nothing"
        one = f" (probekit tasks new {data[0]})" if data else ""
        suffix = data[0].suffix if data else ".csv"
        raise DataError(
            f"there is no training file; the folder holds {here}. Name the training file train{suffix}, or give one "
            f"file{one}, which is then split into train, dev and test.",
            file=folder,
        )
    return {split: found[split][0] for split in SPLITS if split in found}


def splits_named(text: str) -> list[str]:
    """The splits that a text names, such as that of a file or a cell: "Validation", "my_train_2"."""
    words = set(re.split(r"[^a-z]+", text.lower()))
    return [split for split, names in SPLITS.items() if words & set(names)]


def _of_a_split(cell: str) -> bool:
    """Whether a cell says nothing but the name of a split, unlike "train station"."""
    words = set(re.findall(r"[^\W\d_]+", cell.lower()))
    return words <= {"split", "set", "data", *itertools.chain(*SPLITS.values())}


def by_split(raw: Raw) -> tuple[str, dict[str, list[int]]]:
    """The column that names the split of each row, and the rows of each; "" and no splits if there is none.

    Raises
    ------
    DataError
        If the column names splits, but not of each row, or no rows of train.
    """
    lower = {name.lower(): name for name in raw.columns}
    for name in (lower[known] for known in NAMES["splits"] if known in lower):
        rows: dict[str, list[int]] = {}
        for i, value in enumerate(raw.columns[name]):
            rows.setdefault(str(value), []).append(i)
        of = {value: splits_named(value) if _of_a_split(value) else [] for value in rows}
        if not any(of.values()) or len(raw) < 2:
            continue
        if wrong := next((value for value, splits in of.items() if len(splits) != 1), None):
            raise DataError(
                f"the column {name!r} names the split of each row, but {wrong!r} ({len(rows[wrong]):,} rows) is none "
                f"of {', '.join(SPLITS)}; correct it, remove these rows, or rename the column.",
                file=raw.path,
            )
        found: dict[str, list[int]] = {split: [] for split in SPLITS}
        for value, (split,) in of.items():
            found[split] += rows[value]
        if not found["train"]:
            raise DataError(
                f"the column {name!r} names the split of each row, and no row is of train; add rows, or remove the "
                "column to have splits drawn.",
                file=raw.path,
            )
        return name, {split: sorted(some) for split, some in found.items() if some}
    return "", {}


def read_any(path: Path) -> Raw:
    """The columns of a file of labelled data, whatever its format, separator and header.

    Raises
    ------
    DataError
        If the file cannot be read; the message names the file and the line.
    """
    if not path.is_file():
        raise DataError("does not exist.", file=path)
    kind = SUFFIXES.get(path.suffix.lower())
    if kind in (Format.CONLL, Format.CONLLU):
        return _words(path, kind)
    if kind is Format.PARQUET:
        with open_parquet(path) as file:
            table = file.read()
            return Raw(path, {name: table[name].to_pylist() for name in table.column_names}, "Parquet")
    if kind is Format.JSON_LINES:
        return _json(path)
    if kind is Format.TSV and _one_word_per_line(read_lines(path)):
        return _words(path, Format.CONLL)
    return _delimited(path)


def _words(path: Path, kind: Format) -> Raw:
    """A CoNLL or CoNLL-U file."""
    word, tag = (1, 3) if kind is Format.CONLLU else (0, -1)
    sentences = in_documents(read_conllu(path) if kind is Format.CONLLU else read_conll(path), path)
    columns: dict[str, list[Any]] = {
        "words": [list(s.column(word)) for s in sentences],
        "tags": [list(s.column(tag)) for s in sentences],
    }
    if any(s.document for s in sentences):
        columns[DOCUMENT] = [s.document for s in sentences]
    return Raw(path, columns, f"one word per line ({kind})", named=False)


def _one_word_per_line(lines: Sequence[str]) -> bool:
    """Whether the lines are short runs of words, each with the same number of cells, separated by empty lines."""
    some = [line.strip() for line in lines[:SAMPLE]]
    cells = Counter(len(line.split()) for line in some if line)
    return (
        "" in some[:-1] and bool(cells) and cells.most_common(1)[0][1] > 0.99 * cells.total() and 2 <= max(cells) <= 15
    )


def _json(path: Path) -> Raw:
    lines = read_lines(path)
    listed = next((line for line in lines if line.strip()), "").lstrip().startswith("[")
    if listed:
        try:
            records = parse_json("\n".join(lines))
        except json.JSONDecodeError as error:
            raise DataError(f"is not JSON: {error.msg}.", file=path, line=error.lineno, column=error.colno) from error
        if not all(isinstance(record, dict) for record in records):
            raise DataError("expected a list of JSON objects.", file=path)
    else:
        records = [record for _, record in read_json_lines(path)]
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    return Raw(path, columns, "a JSON list" if listed else "JSON lines", as_it_is=not listed)


def _delimited(path: Path) -> Raw:
    lines = read_lines(path, ends=True)
    if not any(line.rstrip("\r\n") for line in lines):
        raise DataError("is empty.", file=path)
    places = {delimiter: _parse(lines, delimiter) for delimiter in DELIMITERS}
    parsed = {delimiter: [row for _, row in rows] for delimiter, rows in places.items()}
    width = {delimiter: Counter(map(len, rows)).most_common(1)[0] for delimiter, rows in parsed.items()}
    score = {d: count / len(parsed[d]) for d, (columns, count) in width.items() if columns > 1}
    delimiter = max(score, key=lambda d: (score[d] > 0.9, width[d][0] > 1, score[d], width[d][0])) if score else "\t"
    rows, columns = parsed[delimiter], width[delimiter][0]
    last, row = places[delimiter][-1]
    if delimiter != "\t" and any("\n" in cell for cell in row) and _unclosed(lines[last - 1 :], delimiter):
        raise DataError(
            "a quotation mark opens here and is not closed. Close it, or put the cell in quotation marks and write the "
            'mark in it twice ("").',
            file=path,
            line=last,
        )
    header = has_header(rows)
    names = [name.strip() for name in rows[0]] if header else [str(i + 1) for i in range(columns)]
    body = rows[1:] if header else rows
    if bad := [i for i, row in enumerate(body) if len(row) != len(names)]:
        at, row = places[delimiter][bad[0] + header]
        many, it = ("1 row does", "it") if len(bad) == 1 else (f"{len(bad):,} of {len(body):,} rows do", "them")
        raise DataError(
            f"found {len(row)} column{'s' * (len(row) != 1)}, expected {len(names)}, {DELIMITERS[delimiter]}-separated "
            f"({', '.join(names)}): {str(row)[:80]}. {many} not have {len(names)} columns; complete or delete {it}.",
            file=path,
            line=at,
        )
    if len(set(names)) < len(names):
        raise DataError(f"the header repeats a column name: {', '.join(names)}.", file=path, line=1)
    suffix = SUFFIXES.get(path.suffix.lower())
    plain = (delimiter, suffix) in (("\t", Format.TSV), (",", Format.CSV)) and (not header or names == rows[0])
    how = f"{DELIMITERS[delimiter]}-separated, {'with' if header else 'without'} a header"
    return Raw(path, {n: [row[i] for row in body] for i, n in enumerate(names)}, how, plain, header)


def _parse(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """The rows, each with the number of its first line."""
    cells = ((i, line.removesuffix("\n").removesuffix("\r")) for i, line in enumerate(lines, 1))
    plain = ((i, line.split(delimiter)) for i, line in cells if line)
    if delimiter == "\t":
        return parse_quoted(lines, "\t")[0] if is_quoted(lines) else list(plain)
    rows, error = parse_quoted(lines, delimiter, strict=False)
    return rows if error is None else list(plain)


def _unclosed(lines: Sequence[str], delimiter: str) -> bool:
    """Whether the lines end inside a quoted cell."""
    _, error = parse_quoted(lines, delimiter)
    return "unexpected end" in str(error)


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is a header: known column names, or short distinct strings that no row below repeats."""
    first = [cell.strip().lower() for cell in rows[0]]
    alone = ("labels", "texts", "words", "tags", "ids", "domains", "splits")
    known = {*GROUP_NAMES, *(name for key in alone for name in NAMES[key]), *itertools.chain(*NAMES["pairs"])}
    if set(first) & known:
        return True
    if len(set(first)) < len(first) or any(not cell or number(cell) is not None or len(cell) > 30 for cell in first):
        return False
    below = [{row[i].strip().lower() for row in rows[1:SAMPLE] if i < len(row)} for i in range(len(first))]
    return len(rows) > 1 and not any(cell in cells for cell, cells in zip(first, below, strict=True))


def guess(raw: Raw, groups: str | None = None) -> Guess:
    """The likely role of each column of a file, and the kind of task that follows.

    Parameters
    ----------
    groups : str, optional
        The column that groups the rows, or "none" for no groups, instead of a guess.

    Raises
    ------
    DataError
        If no column holds text.
    UsageError
        If there is no such column of groups, or it is the label.
    """
    sample = {name: values[:SAMPLE] for name, values in raw.columns.items()}
    roles, why = dict[str, str](), dict[str, str]()

    def take(role: str, name: str | None, reason: str) -> None:
        if name is not None and name not in roles.values():
            roles[role], why[role] = name, reason

    lists = {name for name, values in sample.items() if any(isinstance(v, list) for v in values)}
    kind = TaskKind.CLASSIFICATION
    chats = {name for name in lists if not any(problem(v) for v in sample[name][:10])}
    lists -= {name for name in lists if any(isinstance(v, list) and v and isinstance(v[0], dict) for v in sample[name])}
    if chats:
        take("messages", _first_named(chats, ("messages", "conversation")) or min(chats), "lists of messages")
        others = {n: v for n, v in sample.items() if n not in roles.values() and not isinstance(v[0], list | dict)}
        take("label", _first_named(sample, NAMES["labels"]), "by its name")
        if "label" not in roles:
            take("label", *_fewest(others))
    elif words := _first_named(lists, NAMES["words"]) or next(iter(lists), None):
        take("words", words, "lists of words")
        take(
            "tags",
            _first_named(lists - {words}, NAMES["tags"]) or next(iter(lists - {words}), None),
            "lists of the same length",
        )
        kind = TaskKind.SEQUENCE_LABELLING
    else:
        lower = {name.lower(): name for name in sample}
        for first, second in NAMES["pairs"]:
            if first in lower and second in lower:
                take("text", lower[first], "by its name")
                take("pair", lower[second], "by its name")
                break
        take("label", _first_named(sample, NAMES["labels"]), "by its name")
        if "text" not in roles:
            _take_text(take, {n: v for n, v in sample.items() if n not in roles.values()})
        if "text" not in roles:
            raise DataError(
                f"no column holds text; the columns are {', '.join(map(repr, raw.columns))}.", file=raw.path
            )
        if "label" not in roles:
            take("label", *_fewest({n: v for n, v in sample.items() if n not in roles.values()}))
    found = _groups(raw, roles, groups)
    remaining = {name: v for name, v in sample.items() if name not in {*roles.values(), found.column}}
    unique = {name for name, values in remaining.items() if len({str(v) for v in values}) == len(values)}
    take("id", _first_named(unique, NAMES["ids"]), "unique")
    if found.column is not None:
        roles["groups"], why["groups"] = found.column, found.why
    take("domain", _first_named(set(remaining) - unique, NAMES["domains"]), "by its name")
    classes = Counter[str]()
    if "label" in roles:
        labels = [v for v in raw.columns[roles["label"]] if v is not None and str(v).strip() != ""]
        numbers = [None if isinstance(v, bool) else number(str(v)) for v in labels]
        integers = None in numbers or all(x == int(x) for x in numbers)  # type: ignore[arg-type]
        if None not in numbers and (not integers or len(set(numbers)) > CLASSES):
            kind = TaskKind.REGRESSION
        else:
            classes.update(str(v) for v in labels)
    return Guess(kind, roles, why, dict(classes.most_common()), found.repeated or {})


def _groups(raw: Raw, roles: Mapping[str, str], groups: str | None) -> GroupGuess:
    """The column of groups: the one that is given, or a guess from the columns without a role."""
    if groups is None and not raw.named and DOCUMENT in raw.columns:
        return GroupGuess(DOCUMENT, "the documents that the file marks")
    if groups is None:
        return group_column({name: values for name, values in raw.columns.items() if name not in roles.values()})
    if groups == "none":
        return GroupGuess()
    if groups not in raw.columns:
        raise UsageError(f"groups is {groups!r}, but there is no such column; {did_you_mean(groups, raw.columns)}")
    if groups in (roles.get("label"), roles.get("tags"), roles.get("words")):
        raise UsageError(f"groups is {groups!r}, which holds the labels or words; choose another column, or none.")
    return GroupGuess(groups, "as given with --groups")


def _first_named(columns: Any, names: Sequence[str]) -> str | None:
    """The first column that has one of these names."""
    lower = {name.lower(): name for name in columns}
    return next((lower[name] for name in names if name in lower), None)


def _mean_words(values: Sequence[Any]) -> float:
    texts = [v for v in values if isinstance(v, str)]
    return fmean(len(v.split()) for v in texts) if texts else 0.0


def _take_text(take: Any, columns: Mapping[str, Sequence[Any]]) -> None:
    length = {name: _mean_words(values) for name, values in columns.items()}
    text = {n: v for n, v in columns.items() if length[n] and any(number(str(cell)) is None for cell in v)}
    if name := _first_named(text, NAMES["texts"]):
        take("text", name, "by its name")
    elif text:
        name = max(text, key=length.__getitem__)
        take("text", name, f"the longest texts, {length[name]:.1f} words on average")


def _fewest(columns: Mapping[str, Sequence[Any]]) -> tuple[str | None, str]:
    """The column with the fewest distinct values if they repeat as labels do, otherwise the last column of numbers."""
    distinct = {name: len({str(v) for v in values}) for name, values in columns.items()}
    likely = {name: d for name, d in distinct.items() if 2 <= d <= max(CLASSES, len(columns[name]) // 10)}
    if likely:
        name = min(likely, key=likely.__getitem__)
        return name, f"{likely[name]} distinct values, the fewest"
    scores = [n for n, values in columns.items() if distinct[n] > 1 and all(number(str(v)) is not None for v in values)]
    return (scores[-1], "numbers") if scores else (None, "")
