"""Tables of domains on the terminal."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["show_domains", "show_pairs", "show_terms"]

BY_SIZE = "js-divergence-by-size"
PAIRS = 45
"""Rows shown in a table of pairs, the nearest first; all of them are written."""

MATRIX = 10
"""Domains in a matrix, at most."""

NOTES = 5
"""Notes on pairs that are shown, at most."""


def show_domains(rows: pd.DataFrame) -> None:
    """A line for each domain: its size, its share of tokens outside the vocabulary, the divergence of its halves."""
    rows = rows[rows["terms"].notna() & (rows["metric"] != BY_SIZE)]
    halves = rows[rows["target"] == "halves"].drop_duplicates("domain_a").set_index("domain_a")
    measured = [f"halves: {halves['metric'].iloc[0]}"] if len(halves) else []
    lines, domains = [], _domains(rows)
    for name, counts in domains.items():
        cells = [name, f"{counts['documents']:,.0f}", f"{counts['tokens']:,.0f}", f"{counts['outside']:.2%}"]
        if len(halves):
            value, low, high = (_number(float(halves[key].loc[name])) for key in ("value", "ci_low", "ci_high"))
            cells.append(f"{value}  {low}–{high}")
        lines.append(cells)
    title = f"{len(domains)} domains, {rows['terms'].iloc[0]:,.0f} terms"
    show_table(Grid(_columns("domain", "documents", "tokens", "outside", *measured), lines, title))
    for name, counts in domains.items():
        if counts["pruned"]:
            say(f"{name}: {counts['pruned']:,.0f} tokens of rare terms count as outside, to bound memory.")


def _domains(rows: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Documents, tokens, pruned tokens and share outside the vocabulary by domain, in the order of the pairs."""
    found: dict[str, dict[str, float]] = {}
    for row in rows.to_dict("records"):
        for side in "ab":
            counts = {key: float(row[f"{key}_{side}"]) for key in ("documents", "tokens", "outside", "pruned")}
            found.setdefault(str(row[f"domain_{side}"]), counts)
    return found


def show_pairs(rows: pd.DataFrame) -> None:
    """The matrix of a measure, if the domains are few, and below it each pair with interval and null, nearest first."""
    from probekit.metrics import metric as metric_called

    rows = rows[rows["target"] == "gold"]
    if rows.empty:
        return
    metric = str(rows["metric"].iloc[0])
    alike = metric_called(metric).alike
    names = list(dict.fromkeys(rows[["domain_a", "domain_b"]].to_numpy().ravel()))
    rows = rows.sort_values("value", kind="stable", ascending=not alike)
    values = {(a, b): v for a, b, v in zip(rows["domain_a"], rows["domain_b"], rows["value"], strict=True)}
    if len(names) <= MATRIX:
        cells = [[values.get((a, b), values.get((b, a), float("nan"))) for b in names] for a in names]
        matrix = [[a, *(_number(v, 3) for v in row)] for a, row in zip(names, cells, strict=True)]
        show_table(Grid(_columns(metric, *names), matrix))
    lines = []
    for row in rows.head(PAIRS).to_dict("records"):
        interval = f"{_number(row['ci_low'])}–{_number(row['ci_high'])}" if row["ci_low"] == row["ci_low"] else ""
        others = [_number(row.get(key, float("nan"))) for key in ("raw", "null_mean", "null_high", "p")]
        pair_cells = (_number(row["value"]), interval, *others)
        lines.append([f"{row['domain_a']} – {row['domain_b']}", *pair_cells])
    columns = _columns("pair", "value", "95 % interval", "raw", "null", "≥ 95 %" if alike else "≤ 95 %", "p")
    show_table(Grid(columns, lines, metric))
    if len(rows) > PAIRS:
        say(f"… and {len(rows) - PAIRS:,} more pairs (--out writes all).")
    noted = rows[rows["note"] != ""].head(NOTES + 1).to_dict("records")
    for row in noted[:NOTES]:
        say(f"{row['domain_a']} – {row['domain_b']}: {row['note']}.".replace("..", "."))
    if len(noted) > NOTES:
        say("… and notes on more pairs (column note of --out).")


def show_terms(rows: pd.DataFrame) -> None:
    """The terms that contribute most to the divergence of two domains."""
    a, b = rows["domain_a"].iloc[0], rows["domain_b"].iloc[0]
    lines = []
    for row in rows.to_dict("records"):
        shares = (f"{row['share']:.2%}", f"{row['share_a']:.3%}", f"{row['share_b']:.3%}")
        lines.append([row["term"], f"{row['value']:.5f}", *shares, row["mostly"]])
    title = f"{a}, {b}: the terms that make up {rows['value'].sum():.4f} bits (raw)"
    show_table(Grid(_columns("term", "bits", "share", a, b, "mostly"), lines, title))


def _number(value: float, digits: int = 4) -> str:
    """A cell: empty for NaN, ∞ for infinity."""
    return f"{value:.{digits}f}" if isfinite(value) else "" if value != value else "∞"


def _columns(first: str, *names: str) -> list[Column]:
    return [Column(first, align="left", key=True), *map(Column, names)]
