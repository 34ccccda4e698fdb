"""Paired differences between layers, models and controls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.analysis import Analysis, Corrected
from probekit.display import p_value, shown_checkpoint, shown_label
from probekit.grid import Column, Grid
from probekit.public import public
from probekit.rows.schema import layer_labels
from probekit.statistics.options import CompareOptions
from probekit.view import Options, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.rows import Result
    from probekit.statistics.predictions import Predictions


@public(options=CompareOptions)
def compare(
    first: str | Path | Result | Predictions,
    second: str | Path | Result | Predictions | None = None,
    /,
    *,
    options: CompareOptions,
) -> Result:
    """Test paired differences on the same examples, with intervals and p-values corrected over the layers.

    Two fits are compared with a permutation test that exchanges their predictions on each example. Against permuted
    labels, the labels are in another order while the predictions stay, and the value is the distance to the mean for
    such labels. The interval is for the difference in the population that the examples are a sample of; it excludes 0
    exactly where p is at most 1 - level (half of that with ``tails="better"``).

    Parameters
    ----------
    first : Result, Predictions or path
        Rows that probekit probe or probekit train wrote, or their .examples.parquet.
    second : Result, Predictions or path, optional
        Rows of another model on the same examples.
    options : CompareOptions
        ``against``, ``metric``, ``correction``, ``family``, ``tails``, ``resamples``, ``level``, ``seed``; each may be
        given as a keyword. Each layer is compared with ``against``: "layer-0" (any "layer-NAME"), "best", "permuted",
        "control-task", "random", "bag-of-pieces", "tf-idf-of-pieces", "majority" or "type-majority"; by default with
        the same layer of ``second``, or else with layer 0.

    Returns
    -------
    Result
        Rows with the metric "difference(NAME)"; ``null`` (the null hypothesis of p), ``p``, ``p_adjusted``, the
        interval of each difference, and the interval that holds for all differences at once (``joint_low``,
        ``joint_high``). See :func:`probekit.statistics.comparisons.compare_predictions` for the tests.

    Raises
    ------
    UsageError
        If there is nothing to compare with, if there are no predictions, if the examples of the two differ, or for
        "shuffled" if the predictions have no labels (those of ``structural`` and ``pairs``).

    References
    ----------
    Westfall & Young 1993, Resampling-Based Multiple Testing, algorithm 2.8; Holm 1979; Hemerik & Goeman 2018, Exact
    testing with random permutations.

    Examples
    --------
    >>> from probekit.statistics.predictions import Predictions
    >>> import numpy as np, pandas as pd
    >>> gold = np.arange(200) % 2
    >>> right = np.arange(200)[None] % 10 < [[5], [9]]  # layer 0 is right on half, layer 1 on nine in ten
    >>> fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": [0, 1], "target": "gold"})
    >>> table = Predictions(fits, np.arange(200).astype(str), gold, np.where(right, gold, 1 - gold), ("accuracy",))
    >>> probekit.compare(table).rows[["layer", "metric", "value", "against"]].values.tolist()
    [[1, 'difference(accuracy)', 0.4, 'layer 0']]

    On the command line::

        probekit compare cola.parquet --against permuted --tails better
        probekit compare cola.parquet --against best --metric matthews
        probekit compare fine-tuned.parquet pretrained.parquet --out difference.parquet
        probekit compare runs/mrpc/dev.examples.parquet runs/mrpc-esim/dev.examples.parquet
    """
    from probekit.analyses.compare.measure import measure

    return measure(first, second, options)


LAYERS = ("best-layer", "first-good-layer")
"""Statistics of a curve whose values are numbers of layers."""


def curve_table(rows: pd.DataFrame, title: str, options: Options, *, by: str, more: tuple[str, ...]) -> Grid:
    """A line for each layer or statistic of each curve; what all curves share stands above the table."""
    import pandas as pd

    curve = ("task", "model", "checkpoint", "step", "representation")
    is_run = (rows["regime"] == "fine-tune") | rows["step"].notna()  # a run may be called "random-42"
    rows = rows.assign(checkpoint=rows["checkpoint"].where(is_run, rows["checkpoint"].map(shown_checkpoint)))
    names = (*(name for name in curve if (rows[name].astype("string").fillna("") != "").any()), by)
    columns = [Column(name, align="right" if name == "layer" else "left", key=True, label=name != by) for name in names]
    columns += [Column("value"), Column(interval(options), align="center", dim=True)]
    columns += [Column(name.replace("_", " ")) for name in more]
    lines = []
    for row in rows.assign(layer=layer_labels(rows), model=rows["model"].map(shown_label)).to_dict("records"):
        digits = 0 if row["metric"] in LAYERS else 3
        low, high, value = (f"{number:.{digits}f}" for number in (row["ci_low"], row["ci_high"], row["value"]))
        cells = ["" if pd.isna(row[name]) else str(row[name]) for name in names]
        ends = "" if low == "nan" else f"{low} – {high}"
        value = "undetermined" if value == "nan" else value
        lines.append([*cells, value, ends, *(_cell(row[name]) for name in more)])
    return Grid(columns, lines, title)


def _cell(value: Any) -> str:
    return p_value(value) if isinstance(value, float) else str(value)


def view(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """A line for each difference; below, what p is corrected for, and what it is."""
    from probekit.metrics import metric
    from probekit.statistics.comparisons import Null

    head, same = rows.iloc[0], rows["against"].nunique() == 1
    reference = head["against"] if same else "its reference (column against)"
    title = f"{head['task']} {head['split']}, {metric(head['metric']).of} minus {reference}, {head['n']:,} examples"
    more = ("p", "p_adjusted") if same else ("against", "p", "p_adjusted")
    notes = [_correction(options), *(Null(null).sentence for null in rows["null"].unique())]
    if "n_groups" in rows and rows["n_groups"].notna().any():
        notes = [note.replace(" (or sentence by sentence)", "") for note in notes]
        notes = [note.replace("example by example", "group by group") for note in notes]
    yield curve_table(rows, title, options, by="layer", more=more), notes


def _correction(options: Options) -> str:
    """What the column "p adjusted" is corrected for, and how."""
    over = {"curve": "the layers of each curve", "task": "all curves of a task", "model": "all curves of a model"}
    of = "all pairs of layers of each curve" if options["against"] == "best" else over["curve"]
    of = of if options["family"] == "curve" else over.get(options["family"], "all curves")
    tails = options["tails"]
    sided = "" if tails == "two-sided" else f"p is one-sided (--tails {tails}), the intervals are two-sided; "
    return f"{sided}p adjusted: corrected over {of} ({options['correction']})."


ANALYSIS = Analysis(
    name="compare",
    help="Test differences between layers or models.",
    title="Paired differences",
    corrected=Corrected.CURVE,
    judge="probekit.analyses.compare.sentences:sentences",
    view="probekit.analyses.compare:view",
    figure="differences",
    place=90,
)
