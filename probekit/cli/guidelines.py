"""``probekit guidelines``: from finished runs to which regime to prefer."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["guidelines_command"]


def guidelines_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Finished runs, of both regimes.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="That all tasks have; each task's first without it.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="The last that all runs of a task evaluated without it.")
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="Differences below this, on the metric's scale, make none in practice.")
    ] = 0.01,
    resamples: Annotated[int, typer.Option("--resamples", min=1000, help="Of the examples.")] = 5000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the resamples.")] = 0,
) -> None:
    """Say of each task and model whether to prefer fine-tuning or feature extraction, and how sure that is.

    The two are compared on the same examples, and over training seeds where several are given. A difference within the
    margin is "either"; what the runs cannot show is "cannot tell". p is corrected for the number of tasks (Holm).

    Examples:

        probekit guidelines runs/mrpc runs/mrpc-esim

        probekit guidelines runs/* --margin 0.02 --out guidelines.parquet
    """
    from probekit.analyses.guidelines import guidelines, overview
    from probekit.rows import check_out, evidence, write_rows

    check_out(out)
    began = monotonic()
    arguments: dict[str, Any] = {"metric": metric, "split": split, "margin": margin, "resamples": resamples}
    rows = guidelines(runs, seed=seed, **arguments)
    _show(rows)
    for sentence in overview(rows):
        typer.echo(sentence)
    if out is not None:
        seconds = monotonic() - began
        arguments |= {"runs": [str(run) for run in runs]}
        card = evidence(arguments=arguments, seeds={"seed": seed}, durations={"guidelines": seconds})
        typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")


def _show(rows: pd.DataFrame) -> None:
    """A table of all tasks, and what it rests on, task by task."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
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
    Console().print(table)
    for name, row in zip(names, rows.to_dict("records"), strict=True):
        typer.echo(f"{name}: {row['prefer']}. {row['why']}")
    typer.echo("")
    for caveat in filter(None, rows["caveat"].unique()):
        of = [name for name, told in zip(names, rows["caveat"], strict=True) if told == caveat]
        typer.echo(f"{', '.join(of)}: {caveat}")
    typer.echo("")
