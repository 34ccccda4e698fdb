"""``probekit reproduce``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from probekit.cli.show import say
from probekit.cli.terminal import show_table
from probekit.errors import UsageError
from probekit.tables.grid import Column, Grid

if TYPE_CHECKING:
    from probekit.provenance.comparison import Comparison

__all__ = ["reproduce"]


def reproduce(
    card: Path,
    /,
    *,
    out: Path | None = None,
    from_: Path = Path(),
    tolerance: Annotated[float | None, Parameter(validator=validators.Number(gte=0))] = None,
    remake: bool = False,
    model: tuple[str, ...] = (),
    data_dir: Path | None = None,
    plan: bool = False,
) -> int:
    """Make rows again by the recipe on their evidence card, and compare. Exit status 1 where they differ.

    What is otherwise now than it was then is said first: versions, processor, revision, caches, rows changed by hand.
    Rows are reproduced to the bit; or to rounding, where another processor or library computed them and no number is
    further off than 1e-5; or they are different. Only public functions that write rows are run, and they write below
    --out only, so that a card of somebody else is no risk to files that are there; what they read they may read.

    Examples:

        probekit reproduce cola.parquet

        probekit reproduce figures/demo/layers.parquet --tolerance 1e-6

        probekit reproduce runs/mrpc --from ~/paper --out again/ --plan

        probekit reproduce cola.parquet --remake --model models/bert --data-dir data/

    Parameters
    ----------
    card
        CARD.json, its rows, or a run of probekit train.
    out
        A new folder for what is made; it is thrown away without it.
    from_
        The folder that the command was run in, where its files are.
    tolerance
        How far a number may be off, whatever computed it.
    remake
        Make the caches that are not there, below --out, where their models and data are here.
    model
        Folder of a model that caches are of, where the card does not find it; may be repeated.
    data_dir
        Folder with a folder for each task's files, where the card does not find them.
    plan
        Say what would be run and what is otherwise, and stop.
    """
    from probekit.provenance.remake import Sources
    from probekit.provenance.reproduce import Verdict, plan_reproduction, run_reproduction

    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else out
        planned = plan_reproduction(card, scratch, from_)
        say(f"in {planned.folder}: {planned.recipe}")
        for change in (*planned.changes, *planned.missing):
            say(f"- {change}.")
        if planned.missing and not remake:
            raise UsageError(planned.refusal)
        if plan:
            return 0
        done = run_reproduction(planned, tolerance, remake=remake, sources=Sources(model, data_dir))
    _show(done.comparison)
    largest = f"the largest difference is {done.comparison.largest:.3g}"
    wanted = "to the bit" if tolerance is None else f"within {tolerance:g}"
    told = {
        Verdict.EXACT: "reproduced to the bit.",
        Verdict.ROUNDING: f"reproduced to rounding, of another processor or library: {largest}.",
        Verdict.WITHIN: f"reproduced {wanted}: {largest}.",
        Verdict.DIFFERENT: f"different: not reproduced {wanted}.",
    }
    say(told[done.verdict])
    return int(done.verdict is Verdict.DIFFERENT)


def _show(comparison: Comparison) -> None:
    """One line a metric, and how many rows have no counterpart."""
    numbers = map(Column, ("rows", "equal", "value", "interval", "others"))
    columns = [Column("metric", align="left", key=True), *numbers, Column("also differ", align="left", wrap=True)]
    lines = []
    for row in comparison.metrics.to_dict("records"):
        largest = (f"{row[name]:.3g}" for name in ("value", "interval", "others"))
        lines.append([row["metric"], str(row["rows"]), str(row["equal"]), *largest, row["words"]])
    show_table(Grid(columns, lines, "Largest differences"))
    for what, rows in (("missing", comparison.missing), ("new", comparison.new)):
        if not rows.empty:
            first = rows.iloc[0]
            where = f"{first['task']} {first['split']}, layer {first['layer_name'] or '-'}, {first['metric']}"
            say(f"{len(rows):,} rows are {what}, the first: {where}")
