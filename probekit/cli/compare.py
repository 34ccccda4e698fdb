"""``probekit compare`` and ``probekit summary``: differences and curve statistics from evaluated examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from probekit.cli.show import console, saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown_label
from probekit.grid import Column, Format, Grid
from probekit.statistics.options import CompareOptions, SummaryOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "summary"]

LAYERS = ("best-layer", "first-good-layer")
"""Statistics of a curve whose values are numbers of layers."""


def compare(
    first: str,
    second: str | None = None,
    /,
    *,
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Test paired differences on the same examples, with intervals and p-values corrected over the layers.

    Two fits are compared with a permutation test that exchanges their predictions on each example. Against permuted
    labels, the labels are in another order while the predictions stay, and the value is the distance to the mean for
    such labels. The interval is for the difference in the population that the examples are a sample of; it excludes 0
    exactly where p is at most 1 - level (half of that with --tails better).

    Examples:

        probekit compare cola.parquet --against permuted --tails better

        probekit compare cola.parquet --against best --metric matthews

        probekit compare fine-tuned.parquet pretrained.parquet --out difference.parquet

        probekit compare runs/mrpc/dev.examples.parquet runs/mrpc-esim/dev.examples.parquet

    Parameters
    ----------
    first
        Rows that probekit probe or probekit train wrote, or their .examples.parquet.
    second
        Rows of another model on the same examples.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.metrics import metric
    from probekit.statistics.comparisons import Null

    result = probekit.compare(first, second, options=options, out=out)
    rows = result.rows
    head, same = rows.iloc[0], rows["against"].nunique() == 1
    reference = head["against"] if same else "its reference (column against)"
    title = f"{head['task']} {head['split']}, {metric(head['metric']).of} minus {reference}, {head['n']:,} examples"
    more = ("p", "p_adjusted") if same else ("against", "p", "p_adjusted")
    with tables_as(format_):
        _show(rows, title, options.level, by="layer", more=more)
        console().print(_correction(rows, options), style="dim", highlight=False, soft_wrap=True)
        for null in rows["null"].unique():
            sentence = Null(null).sentence
            if "n_groups" in rows and rows["n_groups"].notna().any():
                sentence = sentence.replace(" (or sentence by sentence)", "")
                sentence = sentence.replace("example by example", "group by group")
            console().print(sentence, style="dim", highlight=False, soft_wrap=True)
        saved(result)


def _correction(rows: pd.DataFrame, options: CompareOptions) -> str:
    """What the column "p adjusted" is corrected for, and how."""
    over = {"curve": "the layers of each curve", "task": "all curves of a task", "model": "all curves of a model"}
    of = "all pairs of layers of each curve" if options.against == "best" else over["curve"]
    of = of if options.family == "curve" else over.get(str(options.family), "all curves")
    sided = (
        ""
        if options.tails == "two-sided"
        else f"p is one-sided (--tails {options.tails}), the intervals are two-sided; "
    )
    return f"{sided}p adjusted: corrected over {of} ({options.correction})."


def summary(
    first: str,
    /,
    *more: str,
    options: Annotated[SummaryOptions, Parameter(name="*")] = SummaryOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Summarise layer curves with intervals: best layer, centre of gravity, expected layer, first good layer.

    The column layers lists those not shown to be worse than the best. A layer is good if it reaches nine tenths of the
    way from the curve's worst value to its best (--margin 0.1).

    Examples:

        probekit summary cola.parquet sst2.parquet --out summary.parquet

    Parameters
    ----------
    first
        Rows that probekit probe wrote, or their .examples.parquet.
    more
        Further rows.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit

    result = probekit.summary(first, *more, options=options, out=out)
    rows = result.rows.assign(layers=result.rows["layers"].fillna(""))
    chosen = rows[rows["metric"] == "best-layer"].dropna(subset=["best_value", "best_low"])
    with tables_as(format_):
        _show(rows, "Layers", options.level, by="metric", more=("layers",))
        for row, name in zip(chosen.to_dict("records"), _names(chosen), strict=True):
            at = "" if row["value"] != row["value"] else f" at layer {row['value']:.0f}"  # NaN if all layers are equal
            say(
                f"{name}: best {row['of_metric']} {row['best_value']:.3f}{at}, between {row['best_low']:.3f} and "
                f"{row['best_high']:.3f} (simultaneous over all layers)"
            )
        for text in filter(None, dict.fromkeys(rows["why"])):
            say(f"no interval: {text}")
        saved(result)


def _show(rows: pd.DataFrame, title: str, level: float, *, by: str, more: tuple[str, ...] = ()) -> None:
    """A row for each layer or statistic of each curve; what all curves share stands above the table."""
    import pandas as pd

    from probekit.rows import layer_labels

    curve = ("task", "model", "checkpoint", "step", "representation")
    rows = rows.assign(checkpoint=_checkpoints(rows))
    names = (*(name for name in curve if (rows[name].astype("string").fillna("") != "").any()), by)
    columns = [Column(name, align="right" if name == "layer" else "left", key=True, label=name != by) for name in names]
    columns += [Column("value"), Column(f"{100 * level:g} % interval", align="center", dim=True)]
    columns += [Column(name.replace("_", " ")) for name in more]
    lines = []
    for row in rows.assign(layer=layer_labels(rows), model=rows["model"].map(shown_label)).to_dict("records"):
        digits = 0 if row["metric"] in LAYERS else 3
        low, high, value = (f"{number:.{digits}f}" for number in (row["ci_low"], row["ci_high"], row["value"]))
        cells = ["" if pd.isna(row[name]) else str(row[name]) for name in names]
        interval = "" if low == "nan" else f"{low} – {high}"
        value = "undetermined" if value == "nan" else value
        lines.append([*cells, value, interval, *(_cell(row[name]) for name in more)])
    show_table(Grid(columns, lines, title))


def _names(rows: pd.DataFrame) -> list[str]:
    """The curve of each row: task, model and pooling, and the columns in which the rows differ."""
    from probekit.rows import called

    rows = rows.assign(checkpoint=_checkpoints(rows))
    columns = ("split", "trained_on", "estimator", "seed")
    differ = [name for name in columns if rows[name].astype("string").nunique(dropna=False) > 1]
    return [
        ", ".join((str(row["task"]), called(row), *(str(row[name]) for name in differ)))
        for row in rows.to_dict("records")
    ]


def _checkpoints(rows: pd.DataFrame) -> pd.Series:
    """The names of checkpoints; those of random weights in words, with a seed other than 0."""
    if "random_weights" not in rows:
        return rows["checkpoint"]
    seeds = rows["random_weights"].astype("Int64")
    random = ("random weights " + seeds.astype("string")).where(seeds != 0, "random weights")
    return rows["checkpoint"].where(seeds.isna(), random)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
