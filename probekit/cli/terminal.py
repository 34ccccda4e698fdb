"""Tables on a terminal: cells stay whole, and a table that is too wide is turned or split into blocks."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from probekit.cli.show import console
from probekit.display import shown
from probekit.grid import WRITERS, Column, Format, Grid, plain

if TYPE_CHECKING:
    from rich.table import Table

NARROWEST = 40
"""The width of a terminal that is narrower, or that reports none."""
LINE = 16
"""Characters of a line of prose, at least."""
_PRINTED: ContextVar[tuple[Format, TextIO] | None] = ContextVar("printed", default=None)


@contextmanager
def tables_as(form: Format) -> Iterator[None]:
    """Print the tables of the block in a format. Where that is not text, all other lines go to standard error."""
    if form is Format.TEXT:
        yield
        return
    token = _PRINTED.set((form, sys.stdout))
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _PRINTED.reset(token)


def show_paragraph(text: str) -> None:
    """Print a text, its lines broken between words where they are longer than the terminal."""
    width = _terminal_width()
    console(width=width, highlight=False).print(text, markup=False, soft_wrap=width is None)


def show_facts(facts: Mapping[str, str]) -> None:
    """Print a line for each fact, its name in a column; long ones on several lines in a terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, fact in facts.items():
        table.add_row(f"[bold]{escape(name)}[/]", escape(fact))
    longest = sum(max(map(_cell_width, texts), default=0) for texts in (facts.keys(), facts.values()))
    console(width=_terminal_width() or longest + 4).print(table)


def show_table(grid: Grid) -> None:
    """Print a table: fitted to the terminal, at full width in a file or pipe, or in the format of ``tables_as``."""
    from rich.markup import escape

    if printed := _PRINTED.get():
        form, stream = printed
        print(shown(WRITERS[form](grid)), file=stream)
        return
    width, labels, grid = _terminal_width(), grid.shared(), _unmarked(grid.compact())
    out = console(width=width or max(console().width, _width(grid)), highlight=False)
    if grid.title:
        out.print(f"[bold]{escape(grid.title)}[/]", soft_wrap=width is None)
    if labels:
        out.print(escape("; ".join(f"{name} {value}" for name, value in labels.items())), soft_wrap=width is None)
    for part in _fitted(_needed(grid, width), width) if width else [grid]:
        out.print(_table(part, width))


def _unmarked(grid: Grid) -> Grid:
    """The grid without the asterisks of Markdown."""
    return replace(grid, rows=[[plain(cell)[0] for cell in row] for row in grid.rows])


def _terminal_width() -> int | None:
    """Columns of the terminal, or of $COLUMNS; None where standard output is a file or a pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(console().width, NARROWEST)
    return None


def _needed(grid: Grid, width: int) -> Grid:
    """The grid without as many of its optional columns as make it too wide."""
    while _width(grid) > width and (most := max(column.optional for column in grid.columns)):
        grid = _part(grid, [i for i, column in enumerate(grid.columns) if column.optional != most])
    return grid


def _fitted(grid: Grid, width: int) -> list[Grid]:
    """The first that fits: the grid; with headers on several lines; rows as columns; keys on several lines; blocks."""
    folded, turned = _folded(grid), _folded(_turned(grid))
    narrow = [_with_narrow_keys(folded), _with_narrow_keys(turned)]
    for whole in (grid, folded, turned, *narrow):
        if _width(whole) <= width:
            return [whole]
    return min((_blocks(one, width) for one in narrow), key=lambda blocks: sum(len(block.rows) for block in blocks))


def _with_narrow_keys(grid: Grid) -> Grid:
    """The grid with keys that may take several lines."""
    return replace(grid, columns=[replace(column, wrap=column.wrap or column.key) for column in grid.columns])


def _folded(grid: Grid) -> Grid:
    """The grid with headers that are wider than their cells on several lines, broken at spaces."""
    columns = []
    for i, column in enumerate(grid.columns):
        words = [*column.name.split(), *(row[i] for row in grid.rows)]
        lines = textwrap.wrap(
            column.name, max(map(_cell_width, words), default=1) or 1, break_long_words=False, break_on_hyphens=False
        )
        columns.append(replace(column, name="\n".join(lines)))
    return replace(grid, columns=columns)


def _turned(grid: Grid) -> Grid:
    """The grid with its rows as columns."""
    keys = [i for i, column in enumerate(grid.columns) if column.key]
    others = [i for i in range(len(grid.columns)) if i not in keys]
    corner = Column(", ".join(grid.columns[i].name for i in keys), align="left", key=True)
    heads = [Column(", ".join(filter(None, (row[i] for i in keys)))) for row in grid.rows]
    rows = [[grid.columns[j].name, *(row[j] for row in grid.rows)] for j in others]
    bold = {(others.index(j), i + 1) for i, j in grid.bold if j in others}
    return Grid([corner, *heads], rows, grid.title, bold)


def _blocks(grid: Grid, width: int) -> list[Grid]:
    """The grid's columns in as few blocks as fit, about equally wide, each after the columns that name the rows."""
    found = _filled(grid, width)
    for narrower in range(width - 1, NARROWEST, -1):
        even = _filled(grid, narrower)
        if len(even) > len(found) or any(_width(block) > narrower for block in even):
            break
        found = even
    return found


def _filled(grid: Grid, width: int) -> list[Grid]:
    """The grid's columns in blocks, each as full as it can be."""
    keys = [i for i, column in enumerate(grid.columns) if column.key]
    blocks: list[list[int]] = [keys]
    for i in (i for i in range(len(grid.columns)) if i not in keys):
        if len(blocks[-1]) > len(keys) and _width(_part(grid, [*blocks[-1], i])) > width:
            blocks.append(keys)
        blocks[-1] = [*blocks[-1], i]
    return [_part(grid, block) for block in blocks]


def _part(grid: Grid, at: Sequence[int]) -> Grid:
    bold = {(i, at.index(j)) for i, j in grid.bold if j in at}
    return Grid([grid.columns[i] for i in at], [[row[i] for i in at] for row in grid.rows], grid.title, bold)


def _width(grid: Grid) -> int:
    """Columns of the terminal that a grid takes, its prose as narrow as it may be."""
    widths = []
    for i, column in enumerate(grid.columns):
        width = max(map(_cell_width, (column.name, *(row[i] for row in grid.rows))))
        widths.append(min(width, _least(grid, i)) if column.wrap else width)
    return sum(widths) + 2 * len(widths) + 1


def _least(grid: Grid, i: int) -> int:
    """The width that a column of prose needs: a line, or its longest word, of which more than 40 letters are folded."""
    texts = (grid.columns[i].name, *(row[i] for row in grid.rows))
    longest = max([LINE, *(_cell_width(word) for text in texts for word in text.split())])
    return min(longest, NARROWEST)


def _cell_width(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, shown(text).split("\n")))


def _table(grid: Grid, width: int | None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    too_wide = width is not None and _width(grid) > width
    for i, column in enumerate(grid.columns):
        width_of = max(map(_cell_width, (column.name, *(row[i] for row in grid.rows))))
        table.add_column(
            escape(column.name), justify=column.align, style="dim" if column.dim else "",
            no_wrap=not (column.wrap or too_wide), overflow="fold",
            min_width=min(width_of, _least(grid, i)) if column.wrap and not too_wide else None,
        )  # fmt: skip
    for i, row in enumerate(grid.rows):
        cells = [f"[bold]{escape(cell)}[/]" if (i, j) in grid.bold else escape(cell) for j, cell in enumerate(row)]
        table.add_row(*cells)
    return table
