"""``probekit mdl``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.probes.codes.options import CodeOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl"]

WHOLE = ("codelength-bits", "compression", "compression-over-prior", "saved-bits")
LEVEL = 0.05


def mdl(
    train: str,
    /,
    *,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[CodeOptions, Parameter(name="*")] = CodeOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Measure the minimum description length of the labels of TRAIN.h5, given the vectors of each layer.

    The codelength is the number of bits that send the labels to a receiver who has the vectors. Compression divides
    the length of a code without vectors by it: the prior code, which learns the class frequencies, or the uniform code.
    If a layer's code is no shorter than the prior code, the probe finds no information about the labels in that layer.

    Examples:

        probekit mdl sst2.train.h5 --controls 5 --out mdl.parquet

        probekit mdl sst2.train.h5 --code variational --layers 0,6,-1

    Parameters
    ----------
    train
        The cache whose labels are sent.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.mdl(train, vectors=vectors, options=options, out=out, progress=progress)
    with tables_as(format_):
        _show(result.rows)
        saved(result)


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output: the code of the gold labels, compared with the prior code and controls."""
    from probekit.rows import called, layer_labels

    head = rows.iloc[0]
    codes = ("gold", "uniform", "prior")
    controls = [name for name in rows["target"].unique() if name not in codes]
    names = ("layer", "bits", "95 % interval", "over prior", "over uniform", "p adjusted")
    columns = [Column(name, key=name == "layer") for name in (*names, *(f"{name} (max)" for name in controls))]
    lines, uninformative = [], []
    for layer, part in ((str(name), own) for name, own in rows.groupby(layer_labels(rows), sort=False)):
        gold = part[(part["target"] == "gold") & part["metric"].isin(WHOLE)].set_index("metric")
        bits, saved = (gold.loc[name].to_dict() for name in ("codelength-bits", "saved-bits"))
        noise = part[part["metric"] == "compression-over-prior"].groupby("target")["value"].max()
        if not (saved["value"] > 0 and saved["p_adjusted"] <= LEVEL):
            uninformative.append(str(layer))
        known = isfinite(bits["ci_low"])
        cells = [
            str(layer),
            f"{bits['value']:,.0f}",
            f"{bits['ci_low']:,.0f} – {bits['ci_high']:,.0f}" if known else "",
            *(f"{value:.3f}" for value in gold["value"][["compression-over-prior", "compression"]]),
            f"{saved['p_adjusted']:.4f}" if known else "",
            *(f"{noise[name]:.3f}" for name in controls),
        ]
        lines.append(cells)
    model = shown_label(called(head))
    title = f"{head['task']} {head['split']}, {model}: {head['n']:,} labels of {head['classes']} classes"
    show_table(Grid(columns, lines, title))
    if rows["p_adjusted"].notna().any():
        say("p adjusted: corrected over the layers of this table (Holm).")
    say(f"without vectors: uniform code {head['uniform_bits']:,.0f} bits, prior code {head['prior_bits']:,.0f} bits")
    if uninformative:
        why = "" if rows["orders"].max() > 1 else " (or not shown to be shorter: one order gives no p)"
        say(f"no shorter than the prior code{why}: layer {', '.join(uninformative)}")
    if head["left_out"]:
        say(f"unlabelled, left out: {head['left_out']:,}")
