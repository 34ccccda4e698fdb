"""Tables of domains: their sizes, each measure of their pairs, and the terms that contribute most."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

from probekit.display import p_value
from probekit.grid import Column, Grid
from probekit.metrics import metric as metric_called
from probekit.view import Options

if TYPE_CHECKING:
    import pandas as pd

SIZES, TERMS = "js-divergence-by-size", "js-contribution"
PAIRS = 45
"""Rows shown in a table of pairs, the nearest first; all of them are written."""
MATRIX = 10
"""Domains in a matrix, at most."""
NOTES = 5
"""Notes on pairs that are shown, at most."""


def tables(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """The domains; for each measure the matrix of few domains, and the pairs, the nearest first; terms of pairs."""
    yield _sizes(rows[rows["terms"].notna() & (rows["metric"] != SIZES)])
    gold = rows[(rows["target"] == "gold") & ~rows["metric"].isin((SIZES, TERMS))]
    for metric, part in gold.groupby("metric", sort=False):
        yield from _pairs(part, str(metric))
    for (a, b), part in rows[rows["metric"] == TERMS].groupby(["domain_a", "domain_b"], sort=False):
        yield _terms(part, str(a), str(b))


def _sizes(rows: pd.DataFrame) -> tuple[Grid, list[str]]:
    """A line for each domain: its size, its share of tokens outside the vocabulary, the divergence of its halves."""
    halves = rows[rows["target"] == "halves"].drop_duplicates("domain_a").set_index("domain_a")
    measured = [f"halves: {halves['metric'].iloc[0]}"] if len(halves) else []
    lines, notes, domains = [], [], _domains(rows)
    for name, counts in domains.items():
        cells = [name, f"{counts['documents']:,.0f}", f"{counts['tokens']:,.0f}", f"{counts['outside']:.2%}"]
        if measured:
            value, low, high = (_number(float(halves[key].loc[name])) for key in ("value", "ci_low", "ci_high"))
            cells.append(f"{value}  {low}–{high}")
        lines.append(cells)
        if counts["pruned"]:
            notes.append(f"{name}: {counts['pruned']:,.0f} tokens of rare terms count as outside, to bound memory.")
    title = f"{len(domains)} domains, {rows['terms'].iloc[0]:,.0f} terms"
    return _grid(["domain", "documents", "tokens", "outside", *measured], lines, title), notes


def _domains(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Documents, tokens, pruned tokens and share outside the vocabulary by domain, in the order of the pairs."""
    found: dict[str, dict[str, float]] = {}
    for row in rows.to_dict("records"):
        for side in "ab":
            counts = {key: float(row[f"{key}_{side}"]) for key in ("documents", "tokens", "outside", "pruned")}
            found.setdefault(str(row[f"domain_{side}"]), counts)
    return found


def _pairs(rows: pd.DataFrame, metric: str) -> Iterator[tuple[Grid, list[str]]]:
    """The matrix of a measure, if the domains are few, and each pair with interval and null, nearest first."""
    alike = metric_called(metric).alike
    names = list(dict.fromkeys(rows[["domain_a", "domain_b"]].to_numpy().ravel()))
    rows = rows.sort_values("value", kind="stable", ascending=not alike)
    values = {(a, b): v for a, b, v in zip(rows["domain_a"], rows["domain_b"], rows["value"], strict=True)}
    if len(names) <= MATRIX:
        cells = [[values.get((a, b), values.get((b, a), float("nan"))) for b in names] for a in names]
        matrix = [[a, *(_number(v, 3) for v in row)] for a, row in zip(names, cells, strict=True)]
        yield _grid([metric, *names], matrix), []
    lines = []
    for row in rows.head(PAIRS).to_dict("records"):
        interval = f"{_number(row['ci_low'])}–{_number(row['ci_high'])}" if row["ci_low"] == row["ci_low"] else ""
        others = [_number(row.get(key, float("nan"))) for key in ("raw", "null_mean", "null_high")]
        p = p_value(row.get("p", float("nan")))
        lines.append([f"{row['domain_a']} – {row['domain_b']}", _number(row["value"]), interval, *others, p])
    columns = ["pair", "value", "95 % interval", "raw", "null", "≥ 95 %" if alike else "≤ 95 %", "p"]
    yield _grid(columns, lines, metric), [*_notes(rows)]


def _notes(rows: pd.DataFrame) -> Iterator[str]:
    if len(rows) > PAIRS:
        yield f"… and {len(rows) - PAIRS:,} more pairs (--out writes all)."
    noted = rows[rows["note"] != ""].to_dict("records")
    for row in noted[:NOTES]:
        yield f"{row['domain_a']} – {row['domain_b']}: {row['note']}.".replace("..", ".")
    if len(noted) > NOTES:
        yield "… and notes on more pairs (column note of --out)."


def _terms(rows: pd.DataFrame, a: str, b: str) -> tuple[Grid, list[str]]:
    """The terms that contribute most to the divergence of two domains."""
    lines = []
    for row in rows.to_dict("records"):
        shares = (f"{row['share']:.2%}", f"{row['share_a']:.3%}", f"{row['share_b']:.3%}")
        lines.append([row["term"], f"{row['value']:.5f}", *shares, row["mostly"]])
    title = f"{a}, {b}: the terms that make up {rows['value'].sum():.4f} bits (raw)"
    return _grid(["term", "bits", "share", a, b, "mostly"], lines, title), []


def _number(value: float, digits: int = 4) -> str:
    """A cell: empty for NaN, ∞ for infinity."""
    return f"{value:.{digits}f}" if isfinite(value) else "" if value != value else "∞"


def _grid(names: list[str], lines: list[list[str]], title: str = "") -> Grid:
    return Grid([Column(names[0], align="left", key=True), *map(Column, names[1:])], lines, title)
