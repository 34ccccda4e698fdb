"""``probekit places``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import PlaceOptions, VectorOptions
from probekit.cli.show import saved
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["places"]


def places(
    train: str,
    test: str,
    /,
    *more: str,
    task: str,
    data_dir: str | None = None,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[PlaceOptions, Parameter(name="*")] = PlaceOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Predict where places are from the vectors of their names; errors in kilometres.

    A ridge regression on each layer predicts latitude and longitude. Compare its error with that of the middle of train
    (centroid), of places exchanged at random in train (shuffled), and of layer 0, which knows only the pieces of a
    name.

    Examples:

        probekit cache-activations --model gpt2 --task us-places:latitude+us-places:longitude --split train --out a.h5

        probekit places train.h5 test.h5 --task us-places --data-dir D --out places.parquet

        probekit places train.h5 test.h5 random.train.h5 random.test.h5 --task us-places --data-dir D

    Parameters
    ----------
    train
        The cache to fit on; its task is TASK:latitude+TASK:longitude.
    test
        The cache to evaluate on.
    more
        Further pairs of caches, such as those of random weights.
    task
        world-places or us-places.
    data_dir
        Folder with the files of places.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.places(
            train, test, *more, task=task, data_dir=data_dir, vectors=vectors, options=options, out=out,
            progress=progress,
        )  # fmt: skip
    with tables_as(format_):
        for _, part in result.rows.groupby(["model", "checkpoint"], sort=False, dropna=False):
            _show(part, options.level)
        saved(result)


def _show(rows: pd.DataFrame, level: float) -> None:
    """A line for each layer."""
    from probekit.rows import called, layer_labels

    columns = [Column("layer", key=True), Column("mean error, km"), Column(f"{100 * level:g} % interval", dim=True)]
    columns += [Column("shuffled", dim=True), Column("median, km"), Column("R² latitude"), Column("R² longitude")]
    columns += [Column("minus the middle, km"), Column("p adjusted")]
    lines = []
    gold, noise = (rows[rows["target"] == name] for name in ("gold", "shuffled"))
    noise = noise[noise["metric"] == "great-circle-error"]
    for layer, part in gold.groupby(layer_labels(gold), sort=False):
        mean = part[part["metric"] == "great-circle-error"].iloc[0]
        median = part[part["metric"] == "great-circle-error-median"].iloc[0]
        low, high = float(mean["ci_low"]), float(mean["ci_high"])
        other = noise.loc[layer_labels(noise) == layer, "value"]
        line = [str(layer) or "centroid", f"{mean['value']:,.0f}", f"{low:,.0f} – {high:,.0f}" if isfinite(low) else ""]
        line += [f"{other.mean():,.0f}" if len(other) else "", f"{median['value']:,.0f}"]
        line += [f"{value:.3f}" for value in part.loc[part["metric"] == "r2", "value"]]
        less = part[(part["metric"] == "difference(great-circle-error)") & (part["against"] == "centroid")]
        lines.append([*line, *(_less(less.iloc[0]) if len(less) else ("", ""))])
    head = rows.iloc[-1]
    title = f"{head['task']} {head['split']}, {shown_label(called(head))}: {head['n']:,} places evaluated"
    show_table(Grid(columns, lines, title))


def _less(row: pd.Series) -> tuple[str, str]:
    """A paired difference in km, and its p."""
    p = float(row["p_adjusted"])
    return f"{row['value']:,.0f}", "" if not isfinite(p) else "< .001" if p < 0.001 else f"{p:.3f}"
