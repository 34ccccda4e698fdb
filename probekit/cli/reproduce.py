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
from probekit.grid import Column, Grid

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
    allow_remote: bool = False,
) -> int:
    """Recompute rows with the recipe on their evidence card, and compare them. Exit status 1 if they differ.

    The command first lists what has changed since: versions, processor, revision, caches, rows edited by hand. The
    verdict is "reproduced to the bit"; "reproduced to rounding" if another processor or library computed the rows and
    no number differs by more than 1e-5; or "different". Only public functions that write rows are run, and they write
    only below --out, so another person's card cannot overwrite your files. They may read any file, but fetch nothing
    without --allow-remote.

    Examples:

        probekit reproduce cola.parquet

        probekit reproduce figures/demo/layers.parquet --tolerance 1e-6

        probekit reproduce runs/mrpc --from ~/paper --out again/ --plan

        probekit reproduce cola.parquet --remake --model models/bert --data-dir data/

    Parameters
    ----------
    card
        The evidence card (.json), its rows, or a run of probekit train.
    out
        A new folder for the recomputed files; by default they are discarded.
    from_
        The folder in which the original command was run.
    tolerance
        Largest difference allowed in any number, on any processor and library.
    remake
        Recompute missing caches, below --out, if their models and data are available.
    model
        Folder of a model that a cache was computed with, if it is not where the card says; may be repeated.
    data_dir
        Folder with one subfolder of files per task, if they are not where the card says.
    plan
        Print the command and the changes, and stop.
    allow_remote
        Open addresses (s3://bucket/cache) that the card names, and fetch models and data from the hub.
    """
    from probekit.provenance.remake import Sources
    from probekit.provenance.reproduce import Verdict, plan_reproduction, run_reproduction

    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory())) if out is None else out
        planned = plan_reproduction(card, scratch, from_, allow_remote=allow_remote)
        say(f"in {planned.folder}: {planned.recipe}")
        for change in planned.changes:
            say(f"- changed since then: {change}.")
        for missing in planned.missing:
            say(f"- missing: {missing}.")
        if planned.missing and not remake:
            raise UsageError(planned.refusal)
        if plan:
            return 0
        done = run_reproduction(planned, tolerance, remake=remake, sources=Sources(model, data_dir))
    _show(done.comparison)
    largest = f"the largest difference is {done.comparison.largest:.3g}"
    exactness = "to the bit" if tolerance is None else f"within {tolerance:g}"
    sentences = {
        Verdict.EXACT: "reproduced to the bit.",
        Verdict.ROUNDING: f"reproduced to rounding, on another processor or library: {largest}.",
        Verdict.WITHIN: f"reproduced {exactness}: {largest}.",
        Verdict.DIFFERENT: f"different: not reproduced {exactness}.",
    }
    say(sentences[done.verdict])
    return int(done.verdict is Verdict.DIFFERENT)


def _show(comparison: Comparison) -> None:
    """One line per metric, and the number of rows without a counterpart."""
    numbers = map(Column, ("rows", "equal", "value", "interval", "others"))
    columns = [Column("metric", align="left", key=True), *numbers, Column("also differ", align="left", wrap=True)]
    lines = []
    for row in comparison.metrics.to_dict("records"):
        largest = (f"{row[name]:.3g}" for name in ("value", "interval", "others"))
        lines.append([row["metric"], str(row["rows"]), str(row["equal"]), *largest, row["words"]])
    show_table(Grid(columns, lines, "Largest differences"))
    for state, rows in (("missing", comparison.missing), ("new", comparison.new)):
        if not rows.empty:
            first = rows.iloc[0]
            where = f"{first['task']} {first['split']}, layer {first['layer_name'] or '-'}, {first['metric']}"
            say(f"{len(rows):,} rows are {state}, the first: {where}")
