"""``probekit guidelines``: from finished runs to which regime to prefer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import GuidelinesOptions
from probekit.cli.show import console, saved, say

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["guidelines"]


def guidelines(
    run: Path,
    /,
    *runs: Path,
    options: Annotated[GuidelinesOptions, Parameter(name="*")] = GuidelinesOptions(),
    out: Path | None = None,
) -> None:
    """Say of each task and model whether to prefer fine-tuning or feature extraction, and how sure that is.

    The two are compared on the same examples, and over training seeds where several are given. A difference within the
    margin is "either"; what the runs cannot show is "cannot tell". p is corrected for the number of tasks (Holm).

    Examples:

        probekit guidelines runs/mrpc runs/mrpc-esim

        probekit guidelines runs/* --margin 0.02 --out guidelines.parquet

    Parameters
    ----------
    run
        A finished run.
    runs
        Further ones, of both regimes.
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit
    from probekit.analyses.guidelines import overview

    result = probekit.guidelines(run, *runs, options=options, out=out)
    _show(result.rows)
    for sentence in overview(result.rows):
        say(sentence)
    saved(result)


def _show(rows: pd.DataFrame) -> None:
    """A table of all tasks, and what it rests on, task by task."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("task")
    for name in ("prefer", "confidence"):
        table.add_column(name, no_wrap=True)
    for name in ("difference", "95 % interval", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    several = rows["model"].nunique() > 1
    names = [f"{row['task']}, {row['model']}" if several else row["task"] for row in rows.to_dict("records")]
    for name, row in zip(names, rows.to_dict("records"), strict=True):
        value, low, high, p = (row[key] for key in ("value", "ci_low", "ci_high", "p_adjusted"))
        numbers = [f"{value:+.3f}", f"{low:+.3f} – {high:+.3f}", f"{p:.3f}"] if p == p else [""] * 3  # NaN
        table.add_row(escape(name), row["prefer"], row["confidence"], *numbers)
    console().print(table)
    for caveat in filter(None, rows["caveat"].unique()):
        of = [name for name, told in zip(names, rows["caveat"], strict=True) if told == caveat]
        say(f"{', '.join(of)}: {caveat}")
    say("")
