"""How the rows of an analysis are shown: one table by layer for each model, the same in every format and place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from probekit.display import shown_label
from probekit.grid import Column, Grid
from probekit.rows.schema import called, layer_labels

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EACH", "Cells", "View", "interval"]

Options = Mapping[str, Any]
EACH = ("task", "split", "model", "checkpoint", "step")
"""The columns of rows that tell the tables of an analysis apart."""


def interval(options: Options) -> str:
    """The header of intervals: their coverage."""
    return f"{100 * options['level']:g} % interval"


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of a table: one number of each line's rows.

    Attributes
    ----------
    title : str
        Its header.
    metric, target : str
        Of the rows with the number.
    column : str
        The column of rows that holds it; "interval" for ``ci_low – ci_high``.
    form : str or callable
        How it is formatted; a number that is missing, NaN or infinite is an empty cell. Or what makes the text of the
        row, a mapping.
    over : {"first", "mean", "max"}
        Which of several rows of a line.
    dim, best : bool
        Less important; the largest value stands out.
    align : {"right", "left", "center"}
        Of the cells.
    """

    title: str
    metric: str
    column: str = "value"
    form: str | Callable[[Mapping[str, Any]], str] = ".3f"
    target: str = "gold"
    over: Literal["first", "mean", "max"] = "first"
    dim: bool = False
    best: bool = False
    align: Literal["right", "left", "center"] = "right"

    def texts(self, rows: pd.DataFrame, lines: Sequence[str]) -> list[str]:
        """A cell for each line, "" where the rows lack the number; ``rows`` have the column "line"."""
        its = rows[(rows["metric"] == self.metric) & (rows["target"] == self.target)]
        if not isinstance(self.form, str):
            known = {row["line"]: self.form(row) for row in reversed(its.to_dict("records"))}
            return [known.get(line, "") for line in lines]
        by = (its[its["draw"].isna()] if self.over == "first" else its).groupby("line", sort=False)
        ends = ("ci_low", "ci_high") if self.column == "interval" else (self.column,)
        if not set(ends) <= set(rows):
            return [""] * len(lines)
        values = by[list(ends)].agg(self.over).reindex(list(lines)).to_numpy(dtype=float)
        return [" – ".join(format(v, self.form) for v in row) if isfinite(row[0]) else "" for row in values.tolist()]

    def largest(self, rows: pd.DataFrame, lines: Sequence[str]) -> int | None:
        """The line with the largest value."""
        its = rows[(rows["metric"] == self.metric) & (rows["target"] == self.target) & rows["value"].notna()]
        return None if its.empty else lines.index(str(its["line"].iloc[int(its["value"].argmax())]))


@dataclass(frozen=True, slots=True)
class View:
    """The tables of an analysis.

    Attributes
    ----------
    cells : callable
        The columns after the layer, from the rows of one table and the options of the analysis.
    title : callable
        How the title goes on after task, split and model, from the same.
    notes : callable
        The lines below the table, from the same.
    each : tuple of str
        The columns of rows that tell its tables apart.
    """

    cells: Callable[[pd.DataFrame, Options], Iterable[Cells]]
    title: Callable[[pd.DataFrame, Options], str] = lambda rows, options: f": {rows['n'].iloc[0]:,} examples"
    notes: Callable[[pd.DataFrame, Options], Iterator[str]] = lambda rows, options: iter(())
    each: tuple[str, ...] = EACH

    def __call__(self, rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
        """Each table, and the lines below it.

        Parameters
        ----------
        rows : DataFrame
            Rows of the analysis.
        options : mapping
            The arguments of the analysis, with defaults.
        """
        for _, part in rows.groupby(list(self.each), sort=False, dropna=False):
            part = part.assign(line=layer_labels(part))
            lines = [line for line in dict.fromkeys(part.loc[part["target"] == "gold", "line"]) if line]
            columns, texts, bold = [Column("layer", key=True)], [lines], set[tuple[int, int]]()
            for cells in self.cells(part, options):
                its = cells.texts(part, lines)
                if any(its) or (cells.column == "value" and not cells.dim):
                    columns.append(Column(cells.title, cells.align, dim=cells.dim))
                    texts.append(its)
                if cells.best and (at := cells.largest(part, lines)) is not None:
                    bold.add((at, len(columns) - 1))
            head = part.iloc[0]
            title = f"{head['task']} {head['split']}, {shown_label(called(head))}{self.title(part, options)}"
            yield Grid(columns, list(zip(*texts, strict=True)), title, bold), list(self.notes(part, options))
