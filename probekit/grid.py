"""A table of text cells, and how it is written as Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from io import StringIO
from typing import Literal


class Format(StrEnum):
    """How tables are printed: fitted to the terminal, or as source for a document or a spreadsheet."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


SUFFIXES = {".md": Format.MARKDOWN, ".tex": Format.LATEX, ".csv": Format.CSV}
"""The format of a file, by its suffix."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a grid.

    Attributes
    ----------
    name : str
        Its header.
    align : {"right", "left", "center"}
        Of its cells.
    key : bool
        It says which row this is, so that it is repeated where a wide table is split.
    label : bool
        It describes the rows, so that one value for all of them is shown once, above the table.
    wrap : bool
        Its cells are prose, which may take several lines.
    dim : bool
        Less important, shown so in a terminal.
    optional : int
        Left out where the terminal is too narrow, the highest number first; 0 for never.
    """

    name: str
    align: Literal["right", "left", "center"] = "right"
    key: bool = False
    label: bool = False
    wrap: bool = False
    dim: bool = False
    optional: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of text cells.

    Attributes
    ----------
    columns : sequence of Column
        From left to right.
    rows : sequence of sequence of str
        A cell for each column.
    title : str
        Shown above; "" for none.
    bold : collection of (int, int)
        Row and column of the cells that stand out.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""
    bold: Collection[tuple[int, int]] = field(default=())

    def shared(self) -> dict[str, str]:
        """Name and value of each label column that has one value for all of at least two rows."""
        first = self.rows[0] if len(self.rows) > 1 else ()
        same = [len({row[i] for row in self.rows}) == 1 for i in range(len(first))]
        return {c.name: cell for c, cell, one in zip(self.columns, first, same, strict=False) if c.label and one}

    def caption(self) -> str:
        """The title, and the labels that all rows share."""
        return "; ".join(filter(None, (self.title, *(f"{name} {value}" for name, value in self.shared().items()))))

    def compact(self) -> Grid:
        """The grid without shared label columns and without columns that are empty throughout."""
        shared = self.shared()
        keep = [
            i
            for i, column in enumerate(self.columns)
            if column.key or (column.name not in shared and (not self.rows or any(row[i] for row in self.rows)))
        ]
        keep = [i for i in keep if self.columns[i].name not in shared] or keep
        rows = [[row[i] for i in keep] for row in self.rows]
        bold = {(i, keep.index(j)) for i, j in self.bold if j in keep}
        return Grid([self.columns[i] for i in keep], rows, self.title, bold)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Header and cells as a table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(cell.split("\n")).replace("|", "\\|") for cell in cells) + " |\n"

    return line(head) + line(["---"] * len(head)) + "".join(map(line, rows))


def to_markdown(grid: Grid) -> str:
    """The grid as a table in Markdown, with its title and the labels that all rows share above."""
    above, grid = grid.caption(), grid.compact()
    rows = [
        [f"**{cell}**" if cell and (i, j) in grid.bold else cell for j, cell in enumerate(row)]
        for i, row in enumerate(grid.rows)
    ]
    return (f"**{above}**\n\n" if above else "") + markdown([column.name for column in grid.columns], rows)


def to_csv(grid: Grid) -> str:
    """The grid as CSV: one line of names, then its cells as they are shown. A title is a comment, ``# title``."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in grid.columns])
    writer.writerows([plain(cell)[0] for cell in row] for row in grid.rows)
    return (f"# {grid.title}\n" if grid.title else "") + file.getvalue()


def to_html(grid: Grid) -> str:
    """The grid as a table in HTML, with its title and the labels that all rows share as its caption."""
    above, grid = grid.caption(), grid.compact()

    def line(tag: str, cells: Sequence[str]) -> str:
        aligned = zip(grid.columns, cells, strict=True)
        return "<tr>" + "".join(f'<{tag} style="text-align: {c.align}">{text}</{tag}>' for c, text in aligned) + "</tr>"

    rows = [[escape(plain(cell)[0]) for cell in row] for row in grid.rows]
    for i, j in grid.bold:
        rows[i][j] = f"<b>{rows[i][j]}</b>"
    head = line("th", [escape(column.name) for column in grid.columns])
    return f"<table><caption>{escape(above)}</caption>{head}{''.join(line('td', row) for row in rows)}</table>"


SYMBOLS: Mapping[str, str] = {
    "×": r"$\times$", "Δ": r"$\Delta$", "≤": r"$\leq$", "≥": r"$\geq$", "±": r"$\pm$", "∞": r"$\infty$",
    "→": r"$\rightarrow$", "←": r"$\leftarrow$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "−": "$-$", "–": "--",
    "…": r"\ldots{}", "†": r"\dag{}", "·": r"$\cdot$", "☆": r"$\star$",
}  # fmt: skip
"""Characters of our tables that LaTeX's text fonts lack."""


def to_latex(grid: Grid) -> str:
    """The grid as a LaTeX ``tabular`` with the rules of booktabs; its title and shared labels are a comment.

    What TeX would obey in names and cells is escaped; minus signs are those of formulas.
    """
    import pandas as pd

    title, grid = " ".join(grid.caption().split()), grid.compact()
    cells_of = [[plain(cell) for cell in row] for row in grid.rows]
    frame = pd.DataFrame([[text for text, _ in row] for row in cells_of], columns=[c.name for c in grid.columns])
    style = frame.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis=1)
    text = style.to_latex(hrules=True, column_format="".join(column.align[0] for column in grid.columns))
    lines = text.splitlines()
    body = lines.index(r"\midrule") + 1 if grid.rows else len(lines)
    for i, row in enumerate(cells_of):
        cells = lines[body + i].removesuffix(r" \\").split(" & ")
        for j, (_, emphasised) in enumerate(row):
            form = r"\textbf{%s}" if (i, j) in grid.bold else r"\emph{%s}" if emphasised else "%s"
            cells[j] = form % cells[j] if cells[j] else ""
        lines[body + i] = " & ".join(cells) + r" \\"
    text = "\n".join(lines) + "\n"
    text = re.sub(r"(?<![\w$-])-(?=\d)", "$-$", text)
    text = "".join(SYMBOLS.get(character, character) for character in text)
    return f"% {title}\n{text}" if title else text


def plain(cell: str) -> tuple[str, bool]:
    """A cell on one line without the asterisks of Markdown, and whether it had them."""
    cell = " ".join(cell.split("\n"))
    emphasised = len(cell) > 2 and cell.startswith("*") and cell.endswith("*")
    return (cell[1:-1], True) if emphasised else (cell, False)


WRITERS: Mapping[Format, Callable[[Grid], str]] = {
    Format.MARKDOWN: to_markdown,
    Format.LATEX: to_latex,
    Format.CSV: to_csv,
}
"""What writes a grid in each format but text, which depends on the terminal."""
