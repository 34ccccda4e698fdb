"""Layer curves in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analyses.compare import curve_table
from probekit.analysis import Analysis, Reads
from probekit.display import shown_label
from probekit.grid import Grid
from probekit.public import public
from probekit.rows.schema import called
from probekit.statistics.options import SummaryOptions
from probekit.view import Options

if TYPE_CHECKING:
    import pandas as pd

    from probekit.rows import Result
    from probekit.statistics.predictions import Predictions


@public(options=SummaryOptions)
def summary(
    first: str | Path | Result | Predictions, /, *more: str | Path | Result | Predictions, options: SummaryOptions
) -> Result:
    """Summarise layer curves with intervals: best layer, centre of gravity, expected layer, first good layer.

    The column layers lists those not shown to be worse than the best. A layer is good if it reaches nine tenths of the
    way from the curve's worst value to its best (``margin=0.1``).

    Parameters
    ----------
    first : Result, Predictions or path
        Rows that probekit probe wrote, or their .examples.parquet.
    *more : Result, Predictions or path
        Further rows.
    options : SummaryOptions
        ``metric``, ``resamples``, ``level``, ``seed``; each may be given as a keyword.

    Returns
    -------
    Result
        Four rows per curve, in layers; the additional column ``of_metric`` is the metric of the curve.

    Raises
    ------
    UsageError
        If there is no layer curve.

    References
    ----------
    Tenney, Das & Pavlick 2019, BERT Rediscovers the Classical NLP Pipeline, section 3.

    Examples
    --------
    >>> probekit.summary("cola.parquet", "sst2.parquet", metric="matthews")  # doctest: +SKIP

    On the command line::

        probekit summary cola.parquet sst2.parquet --out summary.parquet
    """
    import pandas as pd

    from probekit.analyses.compare.measure import predictions_of
    from probekit.errors import UsageError
    from probekit.rows import Result
    from probekit.statistics.curves import curve_summary

    found = [predictions_of(given) for given in (first, *more)]
    whole = pd.concat([curve_summary(one, options) for tables, _ in found for one in tables], ignore_index=True)
    if whole.empty:
        raise UsageError("these tables contain no layer curve; give the predictions of probekit probe.")
    return Result(whole, reads=tuple(read for _, reads in found for read in reads))


def view(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """A line for each number of each curve; below, the best values, and why some have no interval."""
    rows = rows.assign(layers=rows["layers"].fillna(""))
    chosen = rows[rows["metric"] == "best-layer"].dropna(subset=["best_value", "best_low"])
    notes = [
        f"{name}: best {row['of_metric']} {row['best_value']:.3f}"
        + ("" if row["value"] != row["value"] else f" at layer {row['value']:.0f}")  # NaN if all layers are equal
        + f", between {row['best_low']:.3f} and {row['best_high']:.3f} (simultaneous over all layers)"
        for row, name in zip(chosen.to_dict("records"), _names(chosen), strict=True)
    ]
    notes += [f"no interval: {text}" for text in dict.fromkeys(rows["why"]) if text]
    yield curve_table(rows, "Layers", options, by="metric", more=("layers",)), notes


def _names(rows: pd.DataFrame) -> list[str]:
    """The curve of each row: task, model and pooling, and the columns in which the rows differ."""
    columns = ("split", "trained_on", "estimator", "seed")
    differ = [name for name in columns if rows[name].astype("string").nunique(dropna=False) > 1]
    return [
        ", ".join((str(row["task"]), shown_label(called(row)), *(str(row[name]) for name in differ)))
        for row in rows.to_dict("records")
    ]


ANALYSIS = Analysis(
    name="summary",
    help="Summarise layer curves: best layer, centre of gravity.",
    title="Curve summaries",
    reads=Reads.RESULTS,
    judge="probekit.analyses.summary.sentences:sentences",
    view="probekit.analyses.summary:view",
    place=95,
)
