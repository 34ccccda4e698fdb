"""``probekit mi``."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.analyses.options import VectorOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.information.options import InformationOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mi"]

CURVE = ("task", "split", "model", "checkpoint", "step", "representation", "estimator")
MARKS = {"undetermined": "?", "warning": "†"}  # no asterisks: beside a number they read as significance


def mi(
    *caches: str,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[InformationOptions, Parameter(name="*")] = InformationOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Estimate the mutual information of each layer of CACHE.h5 and the labels, in bits, with a noise level.

    The default estimator, edge, finds directions on some examples, measures on others, and subtracts the value for
    shuffled labels. An estimate that cannot be distinguished from noise is marked as undetermined, with the reason. p
    is corrected over the layers of a curve. Further caches (for example, of the same model with random weights) and
    further estimators add curves to the same rows.

    Examples:

        probekit mi cola.train.h5 --out cola.parquet

        probekit mi cola.train.h5 cola.train-random.h5 --estimator edge,edge-4.3.1 --out cola.parquet

        probekit mi pos.train.h5 --layers 0,6,12 --shuffles 200

        probekit plot layers cola.parquet --out layers.pdf

    Parameters
    ----------
    caches
        One or more caches, of any models, splits and tasks.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.mi(*caches, vectors=vectors, options=options, out=out, progress=progress)
    with tables_as(format_):
        for _, curve in result.rows.groupby([*CURVE], sort=False, dropna=False):
            _show(curve)
        saved(result)


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output, and below it the meaning of its marks."""
    from probekit.rows import called, layer_labels

    head = rows.iloc[0]
    bins = f" in {head['bins']:g} bins" if head["bins"] else ""
    entropy = f"; entropy of the labels {head['entropy']:.3f} bits{bins}" if isfinite(head["entropy"]) else ""
    model = shown_label(called(head))
    title = f"{head['task']} {head['split']}, {model}, {head['estimator']}: {head['n']:,} examples{entropy}"
    whole = rows[rows["draw"].isna()].assign(shown=layer_labels(rows))
    gold, noise = (whole[whole["target"] == name].set_index("shown") for name in ("gold", "shuffled"))
    marks = dict(_marks(gold))
    show_table(_grid(gold, noise["ci_high"], marks, title))
    if gold["p_adjusted"].notna().any():
        say("p adjusted: corrected over the layers of this table (Holm).")
    for (column, text), mark in marks.items():
        say(f"{mark}  undetermined: {text}" if column == "undetermined" else f"{mark}  {text}")
    if head["left_out"]:
        say(f"unlabelled, left out: {head['left_out']:,}")


def _grid(gold: pd.DataFrame, noise: pd.Series, marks: dict[tuple[str, str], str], title: str) -> Grid:
    columns = [
        Column("layer", key=True),
        Column("bits"),
        Column("at least (97.5 %)", align="center", dim=True),
        Column("noise, 97.5 %", dim=True),
        *(Column(name) for name in ("p adjusted", "share", "raw")),
    ]
    best, rows = gold["value"].max(), []
    for layer, row in gold.iterrows():
        value, low, high = row["value"], row["ci_low"], row["ci_high"]
        bound = f"{low:.3f} – {high:.3f}" if row["undetermined"] else _number(low, ".3f")
        signs = [marks[column, row[column]] for column in MARKS if row[column]]
        cells = [
            str(layer),
            " ".join((_number(value, ".3f"), *signs)).strip(),
            bound if isfinite(low) else "",
            _number(noise.get(layer, float("nan")), ".3f"),
            _number(row["p_adjusted"], ".4f"),
            _number(row["share"], ".1%"),
            _number(row["raw"], ".3f"),
        ]
        rows.append(cells)
    return Grid(columns, rows, title, {(i, 1) for i, value in enumerate(gold["value"]) if value == best})


def _number(value: float, form: str) -> str:
    """A cell: empty where there is no number."""
    return f"{value:{form}}" if isfinite(value) else ""


def _marks(gold: pd.DataFrame) -> Iterator[tuple[tuple[str, str], str]]:
    """The remarks on some layers, by column and text, each with its own mark: ?, ??, … and †, ††, …"""
    for column, sign in MARKS.items():
        for i, text in enumerate(dict.fromkeys(text for text in gold[column] if text), 1):
            yield (column, text), sign * i
