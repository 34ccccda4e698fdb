"""Tables of domains on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from probekit.domains import Terms

__all__ = ["show_domains", "show_pairs", "show_terms"]

PAIRS = 45
"""Rows of a table of pairs that are shown, the nearest first; all of them are written."""

MATRIX = 10
"""Domains beside each other in a matrix at most."""

NOTES = 5
"""Notes to pairs that are shown."""


def show_domains(terms: Terms, rows: pd.DataFrame) -> None:
    from rich.markup import escape

    halves = rows[rows["target"] == "halves"].drop_duplicates("domain_a").set_index("domain_a")
    measured = [f"halves: {halves['metric'].iloc[0]}"] if len(halves) else []
    table = _table("domain", "documents", "tokens", "outside", *measured)
    for i, name in enumerate(terms.names):
        cells = [f"{terms.documents[i]:,}", f"{terms.tokens[i]:,}", f"{terms.outside[i] / terms.tokens[i]:.2%}"]
        if len(halves):
            value, low, high = (_number(float(halves[key].loc[name])) for key in ("value", "ci_low", "ci_high"))
            cells.append(f"{value}  {low}–{high}")
        table.add_row(escape(name), *cells)
    _print(f"{len(terms.names)} domains, {len(terms.vocabulary):,} terms", table)
    for name, pruned in zip(terms.names, terms.pruned, strict=True):
        if pruned:
            typer.echo(f"{name}: {pruned:,} tokens of rare terms are outside because memory is bounded.")


def show_pairs(rows: pd.DataFrame, names: Sequence[str]) -> None:
    """The matrix of a measure, of few domains, and under it each pair with interval and null, the nearest first."""
    from rich.markup import escape

    from probekit.domains.divergence import ALIKE

    rows = rows[rows["target"] == "gold"]
    if rows.empty:
        return
    metric = str(rows["metric"].iloc[0])
    alike = metric in ALIKE
    rows = rows.sort_values("value", kind="stable", ascending=not alike)
    values = {(a, b): v for a, b, v in zip(rows["domain_a"], rows["domain_b"], rows["value"], strict=True)}
    if len(names) <= MATRIX:
        matrix = _table(metric, *names)
        for a in names:
            found = (values.get((a, b), values.get((b, a), float("nan"))) for b in names)
            matrix.add_row(escape(a), *(_number(v, 3) for v in found))
        _print("", matrix)
    table = _table("pair", "value", "95 % interval", "raw", "null", "≥ 95 %" if alike else "≤ 95 %", "p")
    for column in table.columns:
        column.no_wrap = column is not table.columns[0]
    for row in rows.head(PAIRS).to_dict("records"):
        interval = f"{_number(row['ci_low'])}–{_number(row['ci_high'])}" if row["ci_low"] == row["ci_low"] else ""
        others = [_number(row.get(key, float("nan"))) for key in ("raw", "null_mean", "null_high", "p")]
        cells = (_number(row["value"]), interval, *others)
        table.add_row(escape(f"{row['domain_a']} – {row['domain_b']}"), *cells)
    _print(metric, table)
    if len(rows) > PAIRS:
        typer.echo(f"… and {len(rows) - PAIRS:,} more pairs (--out writes all).")
    noted = rows[rows["note"] != ""].head(NOTES + 1).to_dict("records")
    for row in noted[:NOTES]:
        typer.echo(f"{row['domain_a']} – {row['domain_b']}: {row['note']}.".replace("..", "."))
    if len(noted) > NOTES:
        typer.echo("… and notes to more pairs (column note of --out).")


def show_terms(rows: pd.DataFrame) -> None:
    from rich.markup import escape

    a, b = rows["domain_a"].iloc[0], rows["domain_b"].iloc[0]
    table = _table("term", "bits", "share", a, b, "mostly")
    for row in rows.to_dict("records"):
        table.add_row(
            escape(row["term"]), f"{row['value']:.5f}", f"{row['share']:.2%}", f"{row['p']:.3%}", f"{row['q']:.3%}",
            escape(row["mostly"]),
        )  # fmt: skip
    _print(f"{a}, {b}: the terms that make up {rows['value'].sum():.4f} bits (raw)", table)


def _number(value: float, digits: int = 4) -> str:
    """A cell: empty for NaN, ∞ for infinity."""
    return f"{value:.{digits}f}" if isfinite(value) else "" if value != value else "∞"


def _table(first: str, *names: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(escape(first), no_wrap=True)
    for name in names:
        table.add_column(escape(name), justify="right", overflow="fold")
    return table


def _print(title: str, table: Table) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    if title:
        console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
