"""``probekit mdl``."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl_command"]


def mdl_command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN.h5", help="The cache whose labels are sent.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows: .parquet or .csv, an evidence card (.json) beside it.")
    ] = None,
    code: Annotated[
        str, typer.Option("--code", help="online (what a probe learns as labels come in) or variational.")
    ] = "online",
    controls: Annotated[
        int,
        typer.Option("--controls", help="Shufflings of the labels to send beside them; of words, control tasks too."),
    ] = 3,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Which sentence vectors; the cache's first without it.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Some of the layers, with commas: 0,6,final_norm.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of the order in which labels are sent, and of the controls.")
    ] = 0,
) -> None:
    """Measure in how many bits the labels of TRAIN.h5 can be sent to one who has the vectors of a layer.

    Compression is the length of the uniform code over that. Shuffled labels show what the frequencies of the classes
    alone give: 1 where all classes are equally frequent.

        probekit mdl sst2.train.h5 --controls 5 --out mdl.parquet
    """
    from probekit.activations import ActivationCache
    from probekit.analyses.mdl import mdl
    from probekit.cli.progress import bar
    from probekit.probes.codes.mdl import Code
    from probekit.rows import check_out, evidence, write_rows

    check_out(out)
    if controls < 0 or seed < 0:
        raise UsageError(f"controls and a seed are 0 or more, not {controls} and {seed}.")
    if code not in tuple(Code):
        raise UsageError(f"--code is {' or '.join(Code)}, not {code!r}.")
    began = monotonic()
    names = None if layers is None else [word.strip() for word in layers.split(",") if word.strip()]
    arguments = {"code": code, "controls": controls, "pooling": pooling, "layers": names}
    with ActivationCache(train) as cache:
        with bar() as progress:
            rows = mdl(cache, seed=seed, progress=progress, **arguments)  # type: ignore[arg-type]
        seconds = monotonic() - began
        _show(rows)
        if out is not None:
            card = evidence(caches=(cache,), arguments=arguments, seeds={"seed": seed}, durations={"mdl": seconds})
            typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output: gold's code length and compression, and that of the controls."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.rows import called

    head = rows.iloc[0]
    kind = rows["target"].str.replace(r"-\d+$", "", regex=True)
    controls = [name for name in kind.unique() if name != "gold"]
    table = Table()
    for name in ("layer", "bits", "bits / example", "compression", *(f"{name} (max)" for name in controls)):
        table.add_column(name, justify="right")
    for layer, part in rows.groupby("layer_name", sort=False):
        gold = part[part["target"] == "gold"].set_index("metric")["value"]
        noise = part[part["metric"] == "compression"].groupby(kind)["value"].max()
        values = [f"{gold['codelength-bits']:,.0f}", f"{gold['bits-per-example']:.3f}", f"{gold['compression']:.3f}"]
        table.add_row(str(layer), *values, *(f"{noise[name]:.3f}" for name in controls))
    title = f"{head['task']} {head['split']}, {called(head)}: {head['n']:,} labels of {head['classes']} classes"
    console = Console()
    console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
    if head["left_out"]:
        typer.echo(f"unlabelled, left out: {head['left_out']:,}")
