"""``probekit reproduce``."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from probekit.provenance.reproduce import Difference

__all__ = ["reproduce_command"]


def reproduce_command(
    card: Annotated[Path, typer.Argument(metavar="CARD.json", help="Or its rows, or a run of probekit train.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder for what is made; it is thrown away without it.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--from", help="The folder that the command was run in, where its files are.")
    ] = Path(),
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="How far a number may be off; to the bit without it.")
    ] = 0.0,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be run and what is otherwise, and stop.")
    ] = False,
) -> None:
    """Make rows again by the command on their evidence card, and compare. Exit status 1 where they differ.

    What is otherwise now than it was then is said first: versions, revision, caches, rows changed by hand. Only
    commands of probekit that write rows are run, and they write below --out only, so that a card of somebody else is
    no risk to files that are there; what the command reads it may read.

    Examples:

        probekit reproduce cola.json

        probekit reproduce figures/demo/layers.json --tolerance 1e-6

        probekit reproduce runs/mrpc --from ~/paper --out again/ --plan
    """
    from probekit.cli import app
    from probekit.errors import UsageError
    from probekit.provenance.reproduce import changes, compare_rows, read_any_card, rerun, unread, words_of
    from probekit.rows import read_rows

    told, rows = read_any_card(card)
    if not folder.expanduser().is_dir():
        raise UsageError(f"--from {folder} is no folder.")
    folder = folder.expanduser().resolve()
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is there already; give a new folder.")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()) if out is None else out).resolve()
        cli = typer.main.get_command(app)
        words, made = words_of(told, cli, scratch, folder)
        typer.echo(f"in {folder}: probekit {shlex.join(words)}")
        otherwise, missing = changes(told, rows, folder)
        missing += unread(told, cli, folder)
        for change in (*otherwise, *missing):
            typer.echo(f"- {change}.")
        if missing:
            first, more = missing[0].partition(";")[0], f", and {len(missing) - 1} more" if missing[1:] else ""
            raise UsageError(f"{first}{more}. Make it again there, or name the folder that it was in with --from.")
        if plan:
            return
        scratch.mkdir(parents=True, exist_ok=True)
        rerun(words, scratch, folder)
        difference = compare_rows(read_rows(rows), read_rows(made))
    _show(difference)
    if not difference.within(tolerance):
        typer.echo("not reproduced" + (f" within {tolerance:g}." if tolerance else " to the bit."))
        raise typer.Exit(1)
    exact = bool((difference.metrics["equal"] == difference.metrics["rows"]).all())
    typer.echo("reproduced to the bit." if exact else f"reproduced within {tolerance:g}.")


def _show(difference: Difference) -> None:
    """One line a metric, and how many rows have no counterpart."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Largest differences", title_justify="left")
    table.add_column("metric")
    for name in ("rows", "equal", "value", "interval", "others"):
        table.add_column(name, justify="right")
    table.add_column("also differ")
    for row in difference.metrics.to_dict("records"):
        numbers = (f"{row[name]:.3g}" for name in ("value", "interval", "others"))
        table.add_row(escape(row["metric"]), str(row["rows"]), str(row["equal"]), *numbers, escape(row["words"]))
    Console().print(table)
    for what, rows in (("missing", difference.missing), ("new", difference.new)):
        if not rows.empty:
            first = rows.iloc[0]
            where = f"{first['task']} {first['split']}, layer {first['layer_name'] or '-'}, {first['metric']}"
            typer.echo(f"{len(rows):,} rows are {what}, the first: {where}")
