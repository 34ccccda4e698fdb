"""How the rows of an analysis are shown: one table by layer for each model, the same in every format and place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from probekit.analysis import analyses, load
from probekit.display import p_value, shown_label
from probekit.grid import Column, Grid
from probekit.rows.schema import called, layer_labels

if TYPE_CHECKING:
    import pandas as pd

Options = Mapping[str, Any]
EACH = ("task", "split", "model", "checkpoint", "step")
"""The columns of rows that tell the tables of an analysis apart."""
NO_VECTORS = ("none", "lm-head")
"""Representations of rows that are of a whole model, which titles leave out."""


def interval(options: Options) -> str:
    """The header of intervals: their coverage, if it is known."""
    return "interval" if options["level"] is None else f"{100 * options['level']:g} % interval"


def bracketed(
    row: Mapping[Any, Any], form: str, names: Sequence[str] = ("value", "ci_low", "ci_high"), *, scale: float = 1
) -> str:
    """A number of a row, followed by its interval in brackets where it has one: .012 [.003, .021]."""
    value, low, high = (scale * row[name] for name in names)
    return f"{value:{form}}" + (f" [{low:{form}}, {high:{form}}]" if isfinite(low) else "")


def by_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the layer as their line."""
    return rows.assign(line=layer_labels(rows))


def lines_of(*columns: pd.Series) -> pd.Series:
    """The texts of several columns as one, with tabs between them; a tab within a text becomes a space."""
    texts = [column.astype(str).str.replace("\t", " ") for column in columns]
    return reduce(lambda line, text: line + "\t" + text, texts)


def tables(analysis: str, rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """The tables of an analysis, each with the lines below it; none of one without a view.

    Parameters
    ----------
    analysis : str
        Its name.
    rows : DataFrame
        Its rows.
    options : mapping
        The arguments with which they were made; others have their defaults.
    """
    from probekit.functions import parameters

    one = analyses().get(analysis)
    if one and one.view:
        defaults = {name: p.default for name, p in parameters(analysis).items()}
        yield from load(one.view)(rows, {**defaults, **options})


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
        How it is formatted, "p" for p-values; a number that is missing, NaN or infinite is an empty cell. Or what makes
        the text of the row, a mapping.
    over : {"first", "mean", "max", "range"}
        Which of several rows of a line; a range is from the smallest to the largest.
    where : mapping
        What its rows have in other columns.
    dim, best, label : bool
        Less important; the best values of layers stand out; it describes the line, see :class:`probekit.grid.Column`.
    align : {"right", "left", "center"}
        Of the cells.
    optional : int
        As in :class:`probekit.grid.Column`.
    """

    title: str
    metric: str
    column: str = "value"
    form: str | Callable[[Mapping[str, Any]], str] = ".3f"
    target: str = "gold"
    over: Literal["first", "mean", "max", "range"] = "first"
    where: Mapping[str, Any] = field(default_factory=dict)
    dim: bool = False
    best: bool = False
    label: bool = False
    align: Literal["right", "left", "center"] = "right"
    optional: int = 0

    def texts(self, rows: pd.DataFrame, lines: Sequence[str]) -> list[str]:
        """A cell for each line, "" where the rows lack the number; ``rows`` have the column "line"."""
        its = self._of(rows)
        if not isinstance(self.form, str):
            known = {row["line"]: self.form(row) for row in reversed(its.to_dict("records"))}
            return [known.get(line, "") for line in lines]
        by = (its[its["draw"].isna()] if self.over == "first" else its).groupby("line", sort=False)
        ends = ("ci_low", "ci_high") if self.column == "interval" else (self.column,)
        if not set(ends) <= set(rows):
            return [""] * len(lines)
        found = by[list(ends)].agg(["min", "max"] if self.over == "range" else self.over).reindex(list(lines))
        values = found.to_numpy(dtype=float).tolist()
        text = p_value if self.form == "p" else f"{{:{self.form}}}".format
        return [" – ".join(map(text, row)) if isfinite(row[0]) else "" for row in values]

    def _of(self, rows: pd.DataFrame) -> pd.DataFrame:
        its = rows[(rows["metric"] == self.metric) & (rows["target"] == self.target)]
        for name, value in self.where.items():
            its = its[its[name] == value]
        return its

    def best_of(self, rows: pd.DataFrame) -> set[str]:
        """The lines of layers with the best value."""
        from probekit.metrics import metric

        its = self._of(rows)
        its = its[its["value"].notna() & (its["site"] != "")]
        if its.empty:
            return set()
        value = its["value"].to_numpy(dtype=float)
        return set(its.loc[value == value[metric(self.metric).best(value)], "line"])


@dataclass(frozen=True, slots=True)
class View:
    """The tables of an analysis.

    Attributes
    ----------
    cells : callable
        The columns after those that name a line, from the rows of one table and the options of the analysis.
    title : callable
        How the title goes on after task, split and model, from the same.
    notes : callable
        The lines below the table, from the same.
    each : tuple of str
        The columns of rows that tell its tables apart.
    keys : tuple of Column
        The columns that name a line.
    lined : callable
        From all rows those that are shown, with the column "line": for each of ``keys`` a text, with tabs between them,
        or "".
    """

    cells: Callable[[pd.DataFrame, Options], Iterable[Cells]]
    title: Callable[[pd.DataFrame, Options], str] = lambda rows, options: f": {rows['n'].iloc[0]:,} examples"
    notes: Callable[[pd.DataFrame, Options], Iterator[str]] = lambda rows, options: iter(())
    each: tuple[str, ...] = EACH
    keys: tuple[Column, ...] = (Column("layer", key=True),)
    lined: Callable[[pd.DataFrame], pd.DataFrame] = by_layer

    def __call__(self, rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
        """Each table, and the lines below it.

        Parameters
        ----------
        rows : DataFrame
            Rows of the analysis.
        options : mapping
            The arguments of the analysis, with defaults.
        """
        for _, part in self.lined(rows).groupby(list(self.each), sort=False, dropna=False):
            lines = [line for line in dict.fromkeys(part.loc[part["target"] == "gold", "line"]) if line]
            columns, bold = [*self.keys], set[tuple[int, int]]()
            texts = [list(its) for its in zip(*(line.split("\t") for line in lines), strict=True)]
            for cells in self.cells(part, options):
                its = cells.texts(part, lines)
                if any(its) or (cells.column == "value" and not cells.dim):
                    columns.append(
                        Column(cells.title, cells.align, label=cells.label, dim=cells.dim, optional=cells.optional)
                    )
                    texts.append(its)
                if cells.best:
                    bold |= {(lines.index(line), len(columns) - 1) for line in cells.best_of(part)}
            head = part.iloc[int((part["site"] != "").to_numpy().argmax())]
            of = f"{head['task']} {head['split']}, " if "task" in self.each else ""
            vectors = "" if head["representation"] in NO_VECTORS else head["representation"]
            title = f"{of}{shown_label(called({**head, 'representation': vectors}))}{self.title(part, options)}"
            yield Grid(columns, list(zip(*texts, strict=True)), title, bold), list(self.notes(part, options))
