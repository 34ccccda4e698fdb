"""Reading data files: delimited text, JSON lines, CoNLL columns, CoNLL-U.

All files are UTF-8 (a byte-order mark is skipped). Only ``\\n`` ends a line, a final ``\\r`` is dropped, and every
other character, including control characters and U+2028, belongs to the text. Comma-separated files are quoted as in
RFC 4180. Tab-separated files of published data sets have no quoting: a ``"`` is an ordinary character; those of users
may have it, see :func:`is_quoted`. Each error is a :class:`~probekit.errors.DataError` that names file, line and
column.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from probekit.errors import DataError, Faults
from probekit.files import parse_json, read_lines, stream_lines

DOCSTART = "-DOCSTART-"
_RETURN = re.compile(r"\r(?!\n|\Z)")
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
CONLLU_COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of named columns, as read from a delimited file.

    Attributes
    ----------
    lines : Sequence[int]
        The line of the file (from 1) on which each row begins.
    short : int, default 0
        Number of rows left out because they had too few columns.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[list[str]]
    lines: Sequence[int]
    short: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str, hint: str = "") -> list[str]:
        """The cells of one column; raises DataError naming the columns there are, and ``hint``, what to do."""
        at = self.index(name, hint)
        return [row[at] for row in self.rows]

    def index(self, name: str, hint: str = "") -> int:
        """The place of a column; raises DataError naming the columns there are, and ``hint``, what to do."""
        if name not in self.columns:
            hint = (_separator(self.path, self.columns[0]) if len(self.columns) == 1 else "") or hint
            header = ", ".join(map(repr, self.columns)) or "nothing"
            message = f"there is no column {name!r}; the header has {header}. {hint}".strip()
            raise DataError(message, file=self.path, line=1)
        return self.columns.index(name)


def read_tsv(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    header: bool = True,
    required: Sequence[str] = (),
    ragged: bool = False,
    drop_short: bool = False,
) -> Table:
    """Read a tab-separated file, without quoting.

    Parameters
    ----------
    columns : Sequence[str], optional
        Column names of a file without a header; None takes the first line as the header.
    header : bool, default True
        False if the file has no header and ``columns`` is None; the columns are then called "1", "2", …
    required : Sequence[str], default ()
        Required columns; all of them for a file without a header.
    ragged : bool, default False
        Whether rows may have more columns than named, or end after the last required one (the others are then empty).
    drop_short : bool, default False
        Whether rows with too few columns are left out and counted; otherwise they are an error.
    """
    lines = read_lines(path)
    while lines and not lines[-1]:
        lines.pop()
    rows = [line.split("\t") for line in lines]
    first = 1
    if columns is None:
        columns, rows, first = *_header(path, rows, header), 2 if header else 1
    return _table(path, columns, rows, range(first, first + len(rows)), required, ragged=ragged, drop_short=drop_short)


def read_csv(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    header: bool = True,
    required: Sequence[str] = (),
    delimiter: str = ",",
) -> Table:
    """Read a comma-separated file with RFC 4180 quoting; a quoted cell may hold commas, quotes and line ends.

    Other arguments as for :func:`read_tsv`.
    """
    source = read_lines(path, ends=True)
    parsed, error = parse_quoted(source, delimiter)
    if error is not None:
        if columns is None and delimiter not in source[0] and (hint := _separator(path, source[0])):
            raise DataError(f"{hint[0].lower()}{hint[1:]}", file=path, line=1) from error
        message = (
            f"is not valid CSV, probably because of a quotation mark ({error}). Is one left open? A cell that begins "
            'with a quotation mark must end with one; inside the cell, write it twice ("").'
        )
        raise DataError(message, file=path, line=parsed[-1][0] if parsed else 1) from error
    lines, rows = [line for line, _ in parsed], [row for _, row in parsed]
    if columns is None:
        columns, rows = _header(path, rows, header)
        lines = lines[1:] if header else lines
    return _table(path, columns, rows, lines, required, ragged=False, drop_short=False)


def parse_quoted(
    lines: Iterable[str], delimiter: str, *, strict: bool = True
) -> tuple[list[tuple[int, list[str]]], csv.Error | None]:
    """The rows of lines with their ends, each with the number of its first line; after an error those before it.

    The last row is then empty, with the number of the line at which the wrong row begins. A carriage return within a
    line is a character like others: Python's csv writes it so.
    """
    reader = csv.reader((_RETURN.sub("\0", line) for line in lines), delimiter=delimiter, strict=strict)
    rows, begin = list[tuple[int, list[str]]](), 1
    limit = csv.field_size_limit(2**31 - 1)  # the default refuses cells of more than 131072 characters
    try:
        for row in reader:
            if row:
                rows.append((begin, [cell.replace("\0", "\r") for cell in row]))
            begin = reader.line_num + 1
    except csv.Error as error:
        return [*rows, (begin, [])], error
    finally:
        csv.field_size_limit(limit)
    return rows, None


def is_quoted(lines: Sequence[str]) -> bool:
    """Whether tab-separated lines, with their ends, have quoted cells, as pandas and spreadsheets write them.

    All quotation marks must then be what such a program writes: around cells that need them, because a tab, a
    quotation mark (written twice) or a line end is in them, or around every cell that is not a number. Elsewhere, as in
    many published files, a ``"`` is an ordinary character.

    Examples
    --------
    >>> is_quoted(['text\\tlabel\\n', '"He said ""yes"" twice"\\tpos\\n'])
    True
    >>> is_quoted(['text\\tlabel\\n', '"Never" again\\tneg\\n', '"Never again"\\tneg\\n'])
    False
    """
    if not any('"' in line for line in lines):
        return False
    rows, error = parse_quoted(lines, "\t")
    if error is not None or len({len(row) for _, row in rows}) > 1:
        return False
    if len({line.count("\t") for line in lines}) == 1 and len(rows) < len(lines):
        return False  # a cell of several lines that are rows, too: marks that only look like a pair
    begins = [begin - 1 for begin, _ in rows]
    given = ["".join(lines[a:b]).rstrip("\r\n") for a, b in pairwise([*begins, len(lines)])]
    return any(
        all("\t".join(map(write, row)) == text for (_, row), text in zip(rows, given, strict=True))
        for write in _WRITERS
    )


def _writer(needs: str, also: Callable[[str], bool]) -> Callable[[str], str]:
    """How a program writes a cell: in quotation marks if it has one of the characters ``needs``, or ``also`` holds."""

    def write(cell: str) -> str:
        quoted = '"' + cell.replace('"', '""') + '"'
        return quoted if any(c in cell for c in needs) or also(cell) else cell

    return write


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


_ALSO: tuple[Callable[[str], bool], ...] = (
    lambda cell: False,
    lambda cell: not _is_number(cell),
    lambda cell: not _is_number(cell) and bool(cell),
    lambda cell: True,
)
"""What programs quote beside cells that need it: nothing, all but numbers (with or without empty cells), or all."""
_WRITERS = [_writer(needs, also) for needs in ('\t"\r\n', '\t"\n') for also in _ALSO]


def _separator(path: Path, header: str) -> str:
    """What to do about a header of one cell that seems to hold another separator, or ""."""
    found = next((name for mark, name in SEPARATORS.items() if mark in header), "")
    right = "tabs" if path.suffix == ".tsv" else "commas"
    convert = f"or write a new task file with a converted copy: probekit tasks new {path} --out NEW.toml."
    return (
        f"The columns seem to be separated by {found}, not by {right}. Save it with {right}, {convert}" if found else ""
    )


def _header(path: Path, rows: list[list[str]], header: bool) -> tuple[list[str], list[list[str]]]:
    """The column names, and the rows below them."""
    if not rows:
        raise DataError(f"is empty; expected {'a header line' if header else 'rows'}.", file=path)
    if header and any("\r" in name for name in rows[0]):
        raise DataError(
            "lines end with carriage returns; save the file with the line ends of Unix or Windows.", file=path
        )
    return (rows[0], rows[1:]) if header else ([str(i + 1) for i in range(len(rows[0]))], rows)


def _table(
    path: Path,
    columns: Sequence[str],
    rows: list[list[str]],
    lines: Sequence[int],
    required: Sequence[str],
    *,
    ragged: bool,
    drop_short: bool,
) -> Table:
    """Check the header and the number of columns of every row."""
    repeated = sorted({name for name in columns if list(columns).count(name) > 1} & set(required or columns))
    if repeated:
        raise DataError(f"the header names {', '.join(map(repr, repeated))} more than once.", file=path, line=1)
    table = Table(path, tuple(columns), rows, lines)
    least_columns = 1 + max((table.index(name) for name in required), default=len(columns) - 1)
    least, most = (least_columns, float("inf")) if ragged else (len(columns), len(columns))
    bad = [i for i, row in enumerate(rows) if not least <= len(row) <= most]
    if not bad:
        for row in rows if ragged else ():
            row.extend([""] * (len(columns) - len(row)))
        return table
    if drop_short and all(len(rows[i]) < least for i in bad):
        out = set(bad)
        kept = [i for i in range(len(rows)) if i not in out]
        return Table(path, table.columns, [rows[i] for i in kept], [lines[i] for i in kept], len(bad))
    width = f"at least {least}" if ragged else f"{len(columns)}"
    hint = (_separator(path, columns[0]) if len(columns) == 1 else "") or (
        f"Is the file cut short, or separated by something else? probekit tasks new {path} finds the separator."
    )
    if any('"' in cell for i in bad for cell in rows[i]):
        hint = (
            'A quotation mark is an ordinary character here; a cell with a tab or line end needs marks around it (""), '
            f"and then all marks of the file must be written as CSV does. {hint}"
        )
    expected = f"expected {width} ({', '.join(columns)}). {hint}"
    if len(bad) == 1:
        raise DataError(f"found {_columns(len(rows[bad[0]]))}, {expected}", file=path, line=lines[bad[0]])
    faults = [f"line {lines[i]} has {len(rows[i])}" for i in bad[: Faults.MOST]]
    more = f", and {len(bad) - len(faults):,} more rows" if len(bad) > len(faults) else ""
    raise DataError(
        f"{len(bad):,} of {len(rows):,} rows have the wrong number of columns: {', '.join(faults)}{more}; {expected}",
        file=path,
        line=lines[bad[0]],
    )


def _columns(n: int) -> str:
    return "1 column" if n == 1 else f"{n} columns"


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON lines file with their line numbers; blank lines are skipped."""
    for number, line in enumerate(stream_lines(path), start=1):
        if line.strip():
            yield number, json_record(line, path, number)


def json_record(line: str, path: Path, number: int) -> dict[str, Any]:
    """The object of a line of JSON; raises DataError with file and line."""
    try:
        record = parse_json(line, unique=True)
        if "\\u" in line:  # an escaped lone surrogate is valid JSON, but not text
            json.dumps(record, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg}."
        raise DataError(message, file=path, line=number, column=error.colno) from error
    except UnicodeEncodeError as error:
        message = "contains half of a surrogate pair (\\ud800 to \\udfff), which is not a character."
        raise DataError(message, file=path, line=number) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot be read as JSON: {error}.", file=path, line=number) from error
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise DataError(f"expected a JSON object, found a {kind}.", file=path, line=number)
    return record


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence from a column file.

    Attributes
    ----------
    line : int
        The line (from 1) of its first word.
    comments : dict[str, str]
        The values of its ``# key = value`` lines; a comment without ``=`` is a key with an empty value.
    rows : tuple[tuple[str, ...], ...]
        The columns of each word.
    multiword, empty : int, default 0
        Number of CoNLL-U multiword tokens (``8-9``) and empty nodes (``8.1``) left out of ``rows``.
    document : str, default ''
        The document it belongs to: its ``# newdoc id``, or the file's name and a number; "" if documents are not
        marked.
    """

    line: int
    comments: dict[str, str]
    rows: tuple[tuple[str, ...], ...]
    multiword: int = 0
    empty: int = 0
    document: str = ""

    def column(self, index: int) -> tuple[str, ...]:
        """One column (from 0; negative from the end) of every word."""
        return tuple(row[index] for row in self.rows)


def read_conll(
    path: Path, *, columns: int = 2, comments: bool = False, fallback: str | None = None
) -> Iterator[Sentence]:
    """Sentences of a file with one word per line; a line with only spaces and tabs ends a sentence.

    A line with a tab is split at tabs, any other at spaces. A ``-DOCSTART-`` line begins a document and is not a word.

    Parameters
    ----------
    columns : int, default 2
        The minimum number of columns per word.
    comments : bool, default False
        Whether a line that begins with ``#`` is a comment (in tweets it may be a word).
    """
    for block in _blocks(path, comments=comments, fallback=fallback):
        for number, row in block.rows:
            if row[0] == DOCSTART:
                raise DataError(f"{DOCSTART} begins a document; put an empty line before it.", file=path, line=number)
            if len(row) < columns or not row[0]:
                raise DataError(
                    f"found {' '.join(row)[:40]!r}, expected at least {columns} columns, the first of them a word.",
                    file=path,
                    line=number,
                )
        if block.rows:
            rows = tuple(row for _, row in block.rows)
            yield Sentence(block.rows[0][0], block.comments, rows, document=block.document)


def read_conllu(path: Path) -> Iterator[Sentence]:
    """Sentences of a CoNLL-U file; multiword tokens and empty nodes are counted and left out.

    Each row has the ten columns of https://universaldependencies.org/format.html; word ids must count from 1.
    """
    for block in _blocks(path, comments=True):
        words: list[tuple[str, ...]] = []
        multiword = empty = 0
        for number, row in block.rows:
            if len(row) != len(CONLLU_COLUMNS):
                raise DataError(
                    f"found {_columns(len(row))}, expected 10 ({', '.join(CONLLU_COLUMNS)}).", file=path, line=number
                )
            if "-" in row[0]:
                multiword += 1
            elif "." in row[0]:
                empty += 1
            elif row[0] == str(len(words) + 1):
                words.append(row)
            else:
                message = f"expected the word with ID {len(words) + 1}, found {row[0]!r}. Is an empty line missing?"
                raise DataError(message, file=path, line=number, column="ID")
        if not words:
            raise DataError("the sentence has no words.", file=path, line=block.rows[0][0])
        yield Sentence(block.rows[0][0], block.comments, tuple(words), multiword, empty, block.document)


def in_documents(sentences: Iterable[Sentence], path: Path) -> list[Sentence]:
    """The sentences of a file; those before its first mark of a document are one, too, if there are marks at all."""
    found = list(sentences)
    first = next((i for i, sentence in enumerate(found) if sentence.document), 0)
    return [*(replace(sentence, document=f"{path.name} 0") for sentence in found[:first]), *found[first:]]


def domain_of(comments: Mapping[str, str], treebank: str) -> str | None:
    """The genre of a sentence: its ``# genre``, or in English EWT the first part of its id."""
    if treebank == "en_ewt" and "-" in comments.get("sent_id", ""):
        return comments["sent_id"].partition("-")[0]
    return comments.get("genre")


@dataclass(slots=True)
class _Block:
    comments: dict[str, str]
    rows: list[tuple[int, tuple[str, ...]]]
    document: str = ""


def _blocks(path: Path, *, comments: bool, fallback: str | None = None) -> Iterator[_Block]:
    """Runs of word lines with their line numbers, the comments before and between them, and their document.

    Lines that begin a document (-DOCSTART-) are left out.
    """
    block, count, name = _Block({}, []), 0, ""
    lines: Iterable[str] = stream_lines(path) if fallback is None else read_lines(path, fallback=fallback)
    for number, line in enumerate(chain(lines, [""]), start=1):
        if line.strip(" \t"):
            if comments and line[0] == "#":
                key, _, value = line[1:].partition("=")
                block.comments[key.strip()] = value.strip()
            else:
                cells = line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]
                block.rows.append((number, tuple(cells)))
        elif block.rows:
            begins = "newdoc" in block.comments or "newdoc id" in block.comments
            while block.rows and block.rows[0][1][0] == DOCSTART:
                del block.rows[0]
                begins = True
            if begins:
                count += 1
                name = block.comments.get("newdoc id") or f"{path.name} {count}"
            block.document = name
            yield block
            block = _Block({}, [])
