"""``probekit transferability``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import TransferabilityOptions, VectorOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.metrics import METRICS
from probekit.tables.grid import Column, Format, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["transferability"]

BESIDE = {
    "null_mean": ("by chance", ".3f"),
    "calibrated": ("calibrated", ".3f"),
    "p_adjusted": ("p adjusted", ".4f"),
}
"""Columns of rows next to the value: their titles and formats."""


def transferability(
    *caches: str,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[TransferabilityOptions, Parameter(name="*")] = TransferabilityOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Score how well linear functions of each layer explain the labels, without training a classifier.

    LogME is the evidence of a Bayesian linear model of the labels, in nats per example, and the only score for numbers.
    H-score compares the variance between classes with that of all vectors. TransRate is the number of nats that a code
    of the vectors saves if the classes are known. Each is shown with its mean over permuted labels; p is corrected over
    the layers of a cache.

    Examples:

        probekit transferability cola.train.h5 --out scores.parquet

        probekit transferability cola.train.h5 sst2.train.h5 --measures logme,h-score --permutations 1000

        probekit plot layers scores.parquet --metric logme

    Parameters
    ----------
    caches
        One or more caches; each is scored separately.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.transferability(*caches, vectors=vectors, options=options, out=out, progress=progress)
    with tables_as(format_):
        by = ["task", "split", "model", "checkpoint", "step"]
        for _, part in result.rows.groupby(by, sort=False, dropna=False):
            _show(part[part["target"] == "gold"], options)
        saved(result)


def _show(rows: pd.DataFrame, options: TransferabilityOptions) -> None:
    """A line for each layer of one cache, with the columns of each score."""
    from probekit.rows import called, layer_labels

    head, bold = rows.iloc[0], set()
    columns = [Column("layer", key=True)]
    lines = [[layer] for layer in layer_labels(rows[rows["metric"] == head["metric"]])]
    for metric in options.measures:
        part = rows[rows["metric"] == metric]
        if part["value"].notna().any():
            bold.add((int(part["value"].argmax()), len(columns)))
        for column, (title, form) in {"value": (METRICS[metric].title, ".3f"), **BESIDE}.items():
            if column == "value" or (column in part and part[column].notna().any()):
                columns.append(Column(title, dim=column == "null_mean"))
                for line, number in zip(lines, part[column], strict=True):
                    line.append(f"{number:{form}}" if isfinite(number) else "")
    title = f"{head['task']} {head['split']}, {shown_label(called(head))}: {head['n']:,} examples"
    show_table(Grid(columns, lines, title, bold))
    for metric, note in dict.fromkeys((m, n) for m, n in zip(rows["metric"], rows["note"], strict=True) if n):
        say(f"{METRICS[metric].title}: {note}")
    if head["left_out"]:
        say(f"unlabelled, left out: {head['left_out']:,}")
