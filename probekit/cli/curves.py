"""Analyses of pairs of caches: run one, and show a table for each pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from probekit.cli.show import saved
from probekit.cli.terminal import tables_as
from probekit.grid import Format

if TYPE_CHECKING:
    import pandas as pd

    from probekit.rows import Result

__all__ = ["curves", "run_and_show"]


def curves(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each pair of caches."""
    groups = rows.groupby(["task", "split", "model", "checkpoint", "step"], sort=False, dropna=False)
    return [part for _, part in groups]


def run_and_show(
    analysis: Callable[..., Result],
    *caches: str,
    show: Callable[[pd.DataFrame], None],
    format_: Format,
    **how: Any,
) -> None:
    """Run an analysis with a progress bar, and print the table of each pair, and where the result was saved."""
    from probekit.cli.progress import bar

    with bar() as progress:
        result = analysis(*caches, progress=progress, **how)
    with tables_as(format_):
        for curve in curves(result.rows):
            show(curve)
        saved(result)
