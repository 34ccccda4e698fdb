"""Rows as tables of a page: numbers with intervals; values that are equal in all rows are given once, below."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import p_value
from probekit.grid import plain
from probekit.rows.tidy import TESTS
from probekit.view import tables as made

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 500
"""Rows of one table on a page, at most."""
INTERVALS = {
    "interval": ("ci_low", "ci_high"),
    "noise": ("noise_low", "noise_high"),
    "interval of feature extraction": ("feature_low", "feature_high"),
    "interval of fine-tuning": ("fine_low", "fine_high"),
}
"""Pairs of columns shown as one."""
REAL = (
    "value",
    "raw",
    "control_task",
    "feature_extraction",
    "fine_tuning",
    *(name for ends in INTERVALS.values() for name in ends),
)
"""Numbers on one scale, written with the same number of decimals."""
KEPT = (*REAL, "layer", "best layer", "verdict")
"""Columns that stay in the table even if they are equal in all rows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """``text`` is shown; ``exact`` is used for sorting and CSV, "" if it equals the text."""

    text: str
    exact: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """``csv`` : the name in CSV; two names separated by a comma for an interval"""

    name: str
    csv: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` are shown out of ``total``; ``same`` has the values that are equal in all rows."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    total: int
    same: dict[str, str] = field(default_factory=dict)


def table(rows: pd.DataFrame, caption: str, *, whole: bool = False) -> Table:
    """A data frame as a table with at most :data:`LARGEST` rows, without empty columns.

    Parameters
    ----------
    whole : bool, default False
        Keep columns that are equal in all rows.
    """
    rows = rows.dropna(axis="columns", how="all") if len(rows) else rows
    same = {}
    for name in [] if whole or len(rows) < 2 else list(rows.columns):
        first = rows[name].iloc[0]
        if (name not in KEPT or first == "") and rows[name].notna().all() and _equal(rows[name]):
            if text := _cell(first).text:
                same[str(name)] = text
            rows = rows.drop(columns=name)
    shown = rows.head(LARGEST)
    columns, cells = [], []
    sizes = shown[[c for c in ("value", "fine_tuning") if c in shown]].abs().max()
    fixed = bool((sizes >= 0.01).any())
    pairs = {low: (name, low, high) for name, (low, high) in INTERVALS.items() if {low, high} <= set(rows.columns)}
    skipped = {high for _, _, high in pairs.values()}
    for name in map(str, rows.columns):
        if name in skipped:
            continue
        if name in pairs:
            title, low, high = pairs[name]
            columns.append(Column(title, f"{low},{high}", numeric=True))
            cells.append([_interval(*ends, fixed=fixed) for ends in zip(shown[low], shown[high], strict=True)])
        else:
            numeric = rows[name].dtype.kind in "iuf" or name == "layer"
            columns.append(Column(name.replace("_", " "), name, numeric))
            whole_numbers = rows[name].dtype.kind == "f" and name not in REAL and (rows[name].dropna() % 1 == 0).all()
            values = shown[name].astype("Int64") if whole_numbers else shown[name]
            tested = name in TESTS
            cells.append([_p(v) if tested else _cell(v, fixed=fixed and name in REAL) for v in values])
    return Table(caption, columns, [list(row) for row in zip(*cells, strict=True)], len(rows), same)


def views(analysis: str, rows: pd.DataFrame, cards: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    """The tables of an analysis as its command prints them, of the rows of each file.

    Parameters
    ----------
    cards : mapping
        The evidence cards by file, which say with which options the rows were made.
    """
    for file, part in rows.groupby("file", sort=False):
        recipe = cards.get(str(file), {}).get("recipe") or {}
        try:
            options = {**recipe.get("defaults", {}), **recipe.get("arguments", {})}
            shown = list(made(analysis, part, options))
        except Exception as error:  # rows of an earlier version must not lose the page
            yield Table(f"The tables of {file} cannot be made: {type(error).__name__}: {error}", [], [], 0)
            continue
        for grid, notes in shown:
            small = grid.compact()
            columns = [Column(c.name, c.name, numeric=c.align == "right") for c in small.columns]
            cells = [[Cell(plain(text)[0]) for text in row] for row in small.rows[:LARGEST]]
            yield Table(". ".join(filter(None, (grid.caption(), *notes))), columns, cells, len(small.rows))


def number(value: float, *, fixed: bool = True) -> str:
    """A number to read: three decimals, fewer if large; ∞; "" for NaN. Unless fixed, small numbers get two digits."""
    if value != value:
        return ""
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if 0 < size < 0.001 and not fixed:
        text = f"{value:.2g}"
    else:
        text = f"{value:z.3f}" if size < 1000 else f"{value:,.0f}" if size < 1e6 else f"{value:.3g}"
    return text.replace("-", "−")


def _equal(column: pd.Series) -> bool:
    values = column.map(str) if column.dtype == object else column  # lists cannot be compared
    return bool((values == values.iloc[0]).all())


def _cell(value: Any, *, fixed: bool = False) -> Cell:
    import pandas as pd

    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple):
        return Cell(json.dumps(value, default=str, ensure_ascii=False))
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return Cell("")
    if isinstance(value, str):
        return Cell(value)
    if isinstance(value, bool | np.bool_):
        return Cell("yes" if value else "no")
    if isinstance(value, float | np.floating):
        value = float(value)
        whole = value.is_integer() and abs(value) < 1e15
        text = f"{int(value):,}".replace("-", "−") if whole and abs(value) >= 1000 else number(value, fixed=fixed)
        return Cell(text, {"∞": "Infinity", "−∞": "-Infinity"}.get(text, repr(value)))
    try:
        whole_number = int(value)
    except (TypeError, ValueError):
        return Cell(str(value))
    text = f"{whole_number:,}".replace("-", "−")
    return Cell(text, str(whole_number) if text != str(whole_number) else "")


def _p(value: Any) -> Cell:
    """A p-value as sentences and other tables have it."""
    cell = _cell(value)
    return Cell(p_value(float(value)), repr(float(value))) if cell.text else cell


def _interval(low: float, high: float, *, fixed: bool) -> Cell:
    if low != low or high != high:
        return Cell("")
    return Cell(f"{number(low, fixed=fixed)} – {number(high, fixed=fixed)}", f"{float(low)!r};{float(high)!r}")
