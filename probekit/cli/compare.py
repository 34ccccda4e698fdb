"""``probekit compare`` and ``probekit summary``: from evaluated examples to differences and curve statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from probekit.cli.show import console, saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.tables.grid import Column, Format, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "summary"]


def compare(
    first: str,
    second: str | None = None,
    /,
    *,
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Paired differences on the same examples, with intervals and p-values corrected over the layers.

    Two fits are tested by exchanging what they said of each example and computing the metric again; against shuffled
    labels, the labels are permuted and the predictions stay, and the value is the distance to what such labels give on
    average. The interval is of the value on all examples that these are a sample of. At the edge it may disagree with
    p; p adjusted is the one to go by.

    Examples:

        probekit compare cola.parquet --against shuffled --tails better

        probekit compare cola.parquet --against best --metric matthews

        probekit compare fine-tuned.parquet pretrained.parquet --out difference.parquet

        probekit compare runs/mrpc/dev.examples.parquet runs/mrpc-esim/dev.examples.parquet

    Parameters
    ----------
    first
        What probekit probe or probekit train wrote: rows, or their .examples.parquet.
    second
        Another model, on the same examples.
    format_
        How tables are printed: text, markdown, latex or csv. Other than text, all else goes to standard error.
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit
    from probekit.metrics import metric
    from probekit.statistics.comparisons import Null

    result = probekit.compare(first, second, options=options, out=out)
    rows = result.rows
    head, same = rows.iloc[0], rows["against"].nunique() == 1
    what = head["against"] if same else "what stands beside it"
    title = f"{head['task']} {head['split']}, {metric(head['metric']).of} minus {what}, {head['n']:,} examples"
    more = ("p", "p_adjusted") if same else ("against", "p", "p_adjusted")
    with tables_as(format_):
        _show(rows, title, options.level, by="layer", more=more)
        for null in rows["null"].unique():
            console().print(Null(null).sentence, style="dim", highlight=False, soft_wrap=True)
        saved(result)


def summary(
    first: str,
    /,
    *more: str,
    options: Annotated[SummaryOptions, Parameter(name="*")] = SummaryOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Layer curves in a few numbers, with intervals: best layer, centre of gravity, expected layer, first good layer.

    Beside the best layer stand the layers that are not shown to be worse. A layer is good where it reaches nine tenths
    of the way from the curve's worst value to its best (--margin 0.1).

    Examples:

        probekit summary cola.parquet sst2.parquet --out summary.parquet

    Parameters
    ----------
    first
        What probekit probe wrote: rows, or their .examples.parquet.
    more
        Further ones.
    format_
        How tables are printed: text, markdown, latex or csv. Other than text, all else goes to standard error.
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit

    result = probekit.summary(first, *more, options=options, out=out)
    rows = result.rows.assign(layers=result.rows["layers"].fillna(""))
    chosen = rows[rows["metric"] == "best-layer"].dropna(subset=["best_value", "best_low"])
    with tables_as(format_):
        _show(rows, "Layers", options.level, by="metric", more=("layers",))
        for row in chosen.to_dict("records"):
            say(
                f"{row['of_metric']} at the best layer: {row['best_value']:.3f}, between {row['best_low']:.3f} and "
                f"{row['best_high']:.3f} (all layers at once: it was chosen among them)"
            )
        for text in filter(None, dict.fromkeys(rows["why"])):
            say(f"no interval: {text}")
        saved(result)


def _show(rows: pd.DataFrame, title: str, level: float, *, by: str, more: tuple[str, ...] = ()) -> None:
    """A row for each layer or statistic of each curve; what all curves share stands above the table."""
    from probekit.rows import layer_labels

    curve = ("task", "model", "checkpoint", "step", "representation")
    names = (*(name for name in curve if rows[name].notna().any()), by)
    columns = [Column(name, align="right" if name == "layer" else "left", key=True, label=name != by) for name in names]
    columns += [Column("value"), Column(f"{100 * level:g} % interval", align="center", dim=True)]
    columns += [Column(name.replace("_", " ")) for name in more]
    lines = []
    for row in rows.assign(layer=layer_labels(rows)).to_dict("records"):
        low, high = row["ci_low"], row["ci_high"]
        interval = "" if low != low else f"{low:.3f} – {high:.3f}"  # NaN
        value = "undetermined" if row["value"] != row["value"] else f"{row['value']:.3f}"
        cells = ["" if row[name] != row[name] else str(row[name]) for name in names]
        lines.append([*cells, value, interval, *(_cell(row[name]) for name in more)])
    show_table(Grid(columns, lines, title))


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
