"""``probekit compare`` and ``probekit summary``: from evaluated examples to differences and curve statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from probekit.cli.show import console, saved, say
from probekit.statistics.options import CompareOptions, SummaryOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "summary"]


def compare(
    first: str,
    second: str | None = None,
    /,
    *,
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions(),
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
    _show(rows, title, options.level, by="layer", more=("p", "p_adjusted") if same else ("against", "p", "p_adjusted"))
    for null in rows["null"].unique():
        console().print(Null(null).sentence, style="dim", highlight=False, soft_wrap=True)
    saved(result)


def summary(
    first: str,
    /,
    *more: str,
    options: Annotated[SummaryOptions, Parameter(name="*")] = SummaryOptions(),
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
    out
        Write the rows: .parquet or .csv, an evidence card (.json) beside it.
    """
    import probekit

    result = probekit.summary(first, *more, options=options, out=out)
    rows = result.rows.assign(layers=result.rows["layers"].fillna(""))
    _show(rows, "Layers", options.level, by="metric", more=("layers",))
    for row in rows[rows["metric"] == "best-layer"].dropna(subset=["best_value", "best_low"]).to_dict("records"):
        say(
            f"{row['of_metric']} at the best layer: {row['best_value']:.3f}, between {row['best_low']:.3f} and "
            f"{row['best_high']:.3f} (all layers at once: it was chosen among them)"
        )
    for text in filter(None, dict.fromkeys(rows["why"])):
        say(f"no interval: {text}")
    saved(result)


def _show(rows: pd.DataFrame, title: str, level: float, *, by: str, more: tuple[str, ...] = ()) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from probekit.rows import called, layer_labels

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("curve", by, "value"):
        table.add_column(name, justify="left" if name == "curve" else "right")
    table.add_column(f"{100 * level:g} % interval", justify="center", style="dim")
    for name in more:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows.assign(layer=layer_labels(rows)).to_dict("records"):
        curve = f"{row['task']}, {called(row)}"
        low, high = row["ci_low"], row["ci_high"]
        interval = "" if low != low else f"{low:.3f} – {high:.3f}"  # NaN
        value = "undetermined" if row["value"] != row["value"] else f"{row['value']:.3f}"
        table.add_row(escape(curve), str(row[by]), value, interval, *(_cell(row[name]) for name in more))
    console().print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console().print(table)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
