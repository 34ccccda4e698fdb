"""``probekit mdl``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.show import console, saved, say
from probekit.probes.codes.options import CodeOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl"]


def mdl(
    train: str,
    /,
    *,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[CodeOptions, Parameter(name="*")] = CodeOptions(),
    out: Path | None = None,
) -> None:
    """Measure in how many bits the labels of TRAIN.h5 can be sent to one who has the vectors of a layer.

    Compression is the length of the uniform code over that. Shuffled labels show what the frequencies of the classes
    alone give: 1 where all classes are equally frequent.

    Examples:

        probekit mdl sst2.train.h5 --controls 5 --out mdl.parquet

        probekit mdl sst2.train.h5 --code variational --layers 0,6,-1

    Parameters
    ----------
    train
        The cache whose labels are sent.
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.mdl(train, vectors=vectors, options=options, out=out, progress=progress)
    _show(result.rows)
    saved(result)


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output: gold's code length and compression, and that of the controls."""
    from rich.markup import escape
    from rich.table import Table

    from probekit.rows import called, layer_labels

    head = rows.iloc[0]
    controls = [name for name in rows["target"].unique() if name != "gold"]
    table = Table()
    for name in ("layer", "bits", "bits / example", "compression", *(f"{name} (max)" for name in controls)):
        table.add_column(name, justify="right")
    for layer, part in rows.groupby(layer_labels(rows), sort=False):
        gold = part[part["target"] == "gold"].set_index("metric")["value"]
        noise = part[part["metric"] == "compression"].groupby("target")["value"].max()
        values = [f"{gold['codelength-bits']:,.0f}", f"{gold['bits-per-example']:.3f}", f"{gold['compression']:.3f}"]
        table.add_row(str(layer), *values, *(f"{noise[name]:.3f}" for name in controls))
    title = f"{head['task']} {head['split']}, {called(head)}: {head['n']:,} labels of {head['classes']} classes"
    console().print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console().print(table)
    if head["left_out"]:
        say(f"unlabelled, left out: {head['left_out']:,}")
