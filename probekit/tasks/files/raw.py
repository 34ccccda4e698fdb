"""The columns of a file of labelled data, whatever its format, separator and header: nothing has to be said of it."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.files import parse_json, read_lines
from probekit.parquet import open_parquet
from probekit.tasks.chat import messages_of, problem
from probekit.tasks.datasets.sources import number
from probekit.tasks.files.description import SUFFIXES, Format
from probekit.tasks.files.group_column import GROUP_NAMES, NAMES
from probekit.tasks.files.readers import (
    Sentence,
    in_documents,
    is_quoted,
    parse_quoted,
    read_conll,
    read_conllu,
    read_json_lines,
)
from probekit.tasks.files.squad import question_columns

DELIMITERS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
SAMPLE = 5000
"""Number of rows on which a guess is based."""
DOCUMENT = "document"
"""The column of the documents that a file of sentences marks."""


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
    named : bool
        False for a CoNLL file, whose columns have no names, and for questions in the format of SQuAD.
    keys : dict
        The keys of a task file that reads it, such as header = false for a file whose columns are numbered.
    """

    path: Path
    columns: dict[str, list[Any]]
    how: str
    as_it_is: bool = True
    named: bool = True
    keys: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


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
    return with_messages(_read(path, kind))


def with_messages(raw: Raw) -> Raw:
    """The rows, with conversations of other layouts as lists of messages with role and content."""
    columns = dict(raw.columns)
    for name, values in raw.columns.items():
        some = [v for v in values[:SAMPLE] if v is not None]
        texts = any(isinstance(v, list) and v and isinstance(v[0], str) for v in some)
        known = name.lower() in NAMES["chats"] or not texts
        if known and some and all(isinstance(v, list) for v in some) and any(map(problem, some[:10])):
            chats = [messages_of(v) if isinstance(v, list) else None for v in values]
            if all(chat is not None or v is None for chat, v in zip(chats, values, strict=True)):
                columns[name] = chats
    changed = any(columns[name] is not raw.columns[name] for name in columns)
    return replace(raw, columns=columns, as_it_is=raw.as_it_is and not changed) if changed else raw


def _read(path: Path, kind: Format | None) -> Raw:
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
    keys: dict[str, Any] = {}
    if SUFFIXES[path.suffix.lower()] is not kind:
        keys["format"] = str(kind)
    word, tag, comments = 1, 3, kind is Format.CONLL and has_comments(read_lines(path))
    if comments:
        keys["comments"] = True
    found = read_conllu(path) if kind is Format.CONLLU else read_conll(path, comments=comments)
    sentences = in_documents(found, path)
    if kind is Format.CONLL:
        word, tag = _places(sentences)
        keys |= {"words": word + 1} if word else {}
        keys |= {"tags": tag + 1} if tag >= 0 else {}
    columns: dict[str, list[Any]] = {
        "words": [list(s.column(word)) for s in sentences],
        "tags": [list(s.column(tag)) for s in sentences],
    }
    if any(s.document for s in sentences):
        columns[DOCUMENT] = [s.document for s in sentences]
    return Raw(path, columns, f"one word per line ({kind})", named=False, keys=keys)


_COMMENT = re.compile(r"#\s*(newdoc|newpar|sent_id|text|global\.columns|doc_?id)\b(?!\t)")


def has_comments(lines: Sequence[str]) -> bool:
    """Whether a file of one word per line has lines such as ``# newdoc id = a`` and ``# text = …``."""
    pairs = itertools.pairwise(["", *lines])
    return any(_COMMENT.match(line) for before, line in pairs if not before.strip() or before[:1] == "#")


def _places(sentences: Sequence[Sentence]) -> tuple[int, int]:
    """The columns (from 0) of words and tags: the first that does not count words, and the last; -1 is the last.

    If the last column holds no tags of spans, but one before it does, that one counts.
    """
    some = sentences[:SAMPLE]
    widths = {len(row) for s in some for row in s.rows}
    width = min(widths, default=2)
    counts = width > 2 and all(s.column(0) == tuple(map(str, range(1, len(s.rows) + 1))) for s in some)
    spans = [k for k in range(1 + counts, width) if all(_SPAN_TAG.fullmatch(t) for s in some for t in s.column(k))]
    if not spans or (len(widths) == 1 and spans[-1] == width - 1):
        return int(counts), -1
    return int(counts), spans[-1]


_SPAN_TAG = re.compile(r"O|[BIES]-\S+")


def _one_word_per_line(lines: Sequence[str]) -> bool:
    """Whether the lines are short runs of words, each with the same number of cells, separated by empty lines."""
    comments = has_comments(lines)
    some = [line.strip() for line in lines[:SAMPLE] if not (comments and line[:1] == "#")]
    cells = Counter(len(line.split()) for line in some if line)
    return (
        "" in some[:-1] and bool(cells) and cells.most_common(1)[0][1] > 0.99 * cells.total() and 2 <= max(cells) <= 15
    )


def _json(path: Path) -> Raw:
    """JSON lines, one list of objects, or questions in the format of SQuAD; in place of an object, a conversation."""
    lines = read_lines(path)
    filled = [line for line in lines if line.strip()]
    alone = _parsed(filled[0]) if filled else None
    if alone is None or (len(filled) == 1 and not _is_chat(alone)):
        whole = _whole(path, lines) if filled and (alone is None or isinstance(alone, list)) else alone
        if isinstance(whole, dict) and isinstance(whole.get("data"), list):
            return Raw(path, question_columns(path), "questions in the format of SQuAD", named=False)
        if isinstance(whole, list):
            return _records(path, enumerate(whole, start=1), "a JSON list")
    if isinstance(alone, list):
        return _records(path, ((i, _parsed(line)) for i, line in enumerate(lines, 1) if line.strip()), "JSON lines")
    return _records(path, read_json_lines(path), "JSON lines")


def _parsed(line: str) -> Any:
    """What a line of JSON holds; None if it is not JSON."""
    try:
        return parse_json(line)
    except (ValueError, RecursionError):
        return None


def _whole(path: Path, lines: Sequence[str]) -> Any:
    """What a file holds that is one JSON value, or None; raises DataError for a list that is not JSON."""
    try:
        return parse_json("\n".join(lines))
    except json.JSONDecodeError as error:
        if next(line for line in lines if line.strip()).lstrip().startswith("["):
            raise DataError(f"is not JSON: {error.msg}.", file=path, line=error.lineno, column=error.colno) from error
        return None


def _records(path: Path, numbered: Iterable[tuple[int, Any]], how: str) -> Raw:
    """The columns of objects; an item that is a conversation has the column messages."""
    records, chats = list[dict[str, Any]](), False
    for place, record in numbered:
        if _is_chat(record):
            chats, record = True, {"messages": record}
        if not isinstance(record, dict):
            kind = "objects" if how == "a JSON list" else "an object in each line"
            raise DataError(f"expected {kind}, found {str(record)[:60]!r}.", file=path, line=place)
        records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    return Raw(path, columns, how, as_it_is=how == "JSON lines" and not chats)


def _is_chat(value: Any) -> bool:
    """Whether a value is a list of messages, whatever their keys are called."""
    return isinstance(value, list) and bool(value) and messages_of(value) is not None


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
    keys = {} if header else {"header": False}
    plain = (delimiter, suffix) in (("\t", Format.TSV), (",", Format.CSV)) and (not header or names == rows[0])
    how = f"{DELIMITERS[delimiter]}-separated, {'with' if header else 'without'} a header"
    return Raw(path, {n: [row[i] for row in body] for i, n in enumerate(names)}, how, plain, keys=keys)


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
