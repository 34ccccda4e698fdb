"""A metric by layer, one curve per model, with its controls: Figures 1 and 2 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analysis import analyses, load
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.curves import CURVE, INFORMATION, CurveStyles, curves, of_analyses, plot_rows
from probekit.plots.heat import heat_panels
from probekit.plots.layer_axes import draw_layers
from probekit.plots.layer_captions import layer_words
from probekit.plots.look import Look, band_title
from probekit.plots.noise import HOLLOW, NOT_ABOVE, controls_by_layer, not_above_noise
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.pairs import pairs_by
from probekit.plots.panels import PANEL, legend, one_axes, panels, same_scale
from probekit.rows import as_rows
from probekit.rows.selection import over_curves

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYERED = tuple(one.name for one in analyses().values() if one.layered)
"""The analyses with curves by layer."""
SAME = 1e-9
"""A larger difference of two values in bits is not of rounding."""
NEARLY_ALL = 0.9
"""An estimator that has its lowest value at more than this share of the layers says nothing."""
SETTINGS = ("n", "n_train", "groups", "n_groups")
"""Columns that differ between rows of other data or options, but do not distinguish curves."""
INPUTS = {
    "majority": "majority class",
    "mean": "mean of train",
    "bag-of-pieces": "bag of word pieces",
    "tf-idf-of-pieces": "tf-idf of word pieces",
    "word-type": "majority by word type",
    "cosine": "cosine of the two",
}


def layer_curve(
    rows: Any, *, metric: str | None = None, summary: Any = None, shuffled: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw a metric by layer: one curve per model, with its intervals and controls.

    - **Curves.** Rows that differ in checkpoint, representation, estimator … are separate curves, labelled by what
      differs. Models with random weights are dashed and grey. ``final_norm``, and other sites without a number, come
      after the last layer. Curves that differ only in the seed (of a run, of random weights, or of the analysis) are
      thin lines with one style and label, without intervals.
    - **Intervals** of up to two models (and one with random weights) are bands; those of more models are bars.
    - **Noise** is a grey band. For probes it is what permuted labels reach with the same predictions, from their mean
      to the value that a layer must exceed for a corrected p of 0.05; otherwise the noise level over the draws of a
      control (if the rows contain only single draws, their range). Bands of models with random weights are drawn only
      if there are no others.
    - **Horizontal lines** are baselines without a layer and constant predictions.
    - **Hollow markers** are layers not above noise: p_adjusted is above 0.05. For probes it is that of
      :func:`probekit.compare` against permuted labels, corrected over all layers of all curves drawn of a task, as in
      the verdict: a filled marker is always outside the grey band of permuted labels, and with one curve a marker
      outside it is always filled. If rows have no p_adjusted, or too few shuffles to reach 0.05, a marker is hollow if
      the interval (or the value without one) reaches the noise of the same model. This is a visual criterion, not a
      test.
    - **Half-filled markers** are layers whose interval reaches the control task. Control tasks are not drawn for span
      metrics, with which they cannot be compared: see "token-accuracy" and its selectivity.
    - **Crosses** on the bottom line are undetermined layers. A dotted line shows the possible values; it may extend
      beyond the top of the axes.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of analyses of layers for one task; of similarity those of the same layers of both models, of minimal pairs
        those of all pairs, of shift a curve for each data set that probes were fitted on.
    metric : str, optional
        By default the first in the rows that is not a difference; "selectivity(accuracy)" has a line at zero.
    summary : DataFrame, Result or path, optional
        Rows of :func:`probekit.summary`, drawn in a strip below the curve: best layer, centre of gravity …
    shuffled : bool
        Also draw what probes *trained* on shuffled labels reach, a hatched band: their difference from a curve is
        "above-shuffled(…)", which is not what p tests.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If the rows are of several tasks, lack the metric, or have two values for one point.

    Examples
    --------
    >>> probekit.plots.layer_curve("cola.parquet", metric="accuracy")  # doctest: +SKIP
    """
    rows, new_figure, below = as_curves(kept(plot_rows(rows))), ax is None, _summary(summary)
    ax = one_axes(rows, ax, 2.8 if below is None else 3.5, ("layer_curve", "layer_panels"))
    rows = of_metric(rows, metric)
    styles = CurveStyles.of(gold_of(rows), alike=True)
    points = curve_rows(rows, styles=styles, shuffled=shuffled)
    draw_layers(ax, points, filled(styles, points), summary=below)
    legend(ax, below=new_figure)
    return ax


def layer_panels(
    rows: Any,
    *,
    metric: str | None = None,
    by: str | None = None,
    summary: Any = None,
    shuffled: bool = False,
    columns: int = 4,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Plot a metric by layer, with its controls: one panel per task, one curve per model.

    The grey band of probes shows what permuted labels reach with the same predictions, from their mean to p = 0.05;
    that of other analyses the range of shuffled labels, as --shuffled does for probes trained on them; hatched bands
    are control tasks, horizontal lines baselines without a model. A hollow marker is a layer not shown to be above
    noise (p > 0.05, corrected over layers and curves as in the verdict; in rows without p, its interval reaches the
    noise). A half-filled marker is above noise, but its interval reaches the control task; for span F1 no control task
    is drawn. Several seeds (of random weights or training) are thin lines in one colour, with one legend entry and
    without intervals. Each estimator of mutual information has its own panel; a cross marks a layer whose information
    is undetermined, a dotted line the values that are possible; panels without any determined layer are left out. More
    than eight curves in a panel are lines of a heat map, without intervals.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit probe, shift, mi, mdl, pairs, similarity, movement, geometry or structural wrote (.parquet,
        .csv).
    metric : str, optional
        By default the first of each task that is not a difference.
    by : str, optional
        Of minimal pairs: a level of groups, each of which has its own panel; "label" of rows by label.
    summary : DataFrame, Result or path, optional
        Rows of :func:`probekit.summary` for any of the tasks.
    shuffled : bool
        As in :func:`layer_curve`.
    columns : int
        Largest number of panels side by side.
    width : float, optional
        Printed width of the figure in inches, such as ``WIDTHS["page"]``.
    look : Look, optional
        Names, position of the legend, and coverage of the intervals.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw one :func:`layer_curve` per task, side by side in the order of the rows, with one legend.

    Runs of the same kind have the same style in all panels. Each estimator of mutual information has its own panel,
    because the estimators measure different things; the panels of a task share one scale.

    Examples
    --------
    On the command line::

        probekit plot layers cola.parquet sst2.parquet --out layers.pdf --out layers.png
        probekit plot layers tags.parquet --metric "selectivity(token-accuracy)"
        probekit plot layers cola.parquet --summary cola-summary.parquet
        probekit plot layers cola.parquet sst2.parquet --width page --out figure1.pdf
        probekit plot layers trees.parquet --metric uuas
        probekit plot layers pairs.parquet --by phenomenon
        probekit plot layers entities.parquet --by label
    """
    import pandas as pd

    rows = plot_rows(rows if by is None else pairs_by(as_rows(rows), by))
    rows, below = in_metric(kept(of_analyses(rows, *LAYERED)), metric), _summary(summary)
    rows, _ = informative(rows)
    styles = CurveStyles.of(gold_of(rows), panel=("task", "panel"), alike=True)
    if styles.crowd and below is None:
        return heat_panels(
            rows, styles.style, partial(curve_rows, styles=styles), columns=columns, width=width, look=look
        )
    natural = PANEL if len(styles.style) < 5 else 1.4 * PANEL
    height = 2.35 if below is None else 3.05
    figure, drawn = panels(rows, columns, height, by="panel", width=width, natural=natural, look=look)
    scales: dict[str, list[Axes]] = {}
    by_panel = rows.groupby(["task", "panel"], sort=False)
    points = {key: curve_rows(part, styles=styles, shuffled=shuffled) for key, part in by_panel}
    styles = filled(styles, pd.concat(points.values()))
    for ax, part in drawn:
        draw_layers(ax, points[tuple(part[["task", "panel"]].iloc[0])], styles, summary=below, look=look)
        scales.setdefault(part["task"].iloc[0], []).append(ax)
    for axes in scales.values():
        same_scale(axes)
    return figure


def informative(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[str, list[str]]]]:
    """The rows with a column "panel", without the estimators that say nothing of a task, if others do.

    Also returns why estimators are left out: by reason and task their names.
    """
    rows = rows.assign(panel=rows["estimator"].where(rows["metric"] == INFORMATION, ""))
    parts = dict(list(rows[rows["panel"] != ""].groupby(["task", "panel"], sort=False)))
    silent = {key: why for key, part in parts.items() if (why := _silence(part))}
    if len(silent) == len(parts) and not (rows["panel"] == "").any():
        return rows, {}
    gone: dict[str, dict[str, list[str]]] = {}
    for (task, panel), why in silent.items():
        gone.setdefault(why, {}).setdefault(str(task), []).append(str(panel))
    return rows[[key not in silent for key in zip(rows["task"], rows["panel"], strict=True)]], gone


def _silence(rows: pd.DataFrame) -> str:
    """Why the rows of an estimator say nothing of a task; "" if they do."""
    gold = rows["target"] == "gold"
    values, shuffled = (rows["value"][some & (rows["layer_name"] != "")] for some in (gold, ~gold))
    if values.isna().all():
        return "undetermined at every layer"
    floor, draws = shuffled.min(), shuffled.dropna()
    on_floor = len(draws) > 0 and np.ptp(draws) < SAME and ((values - floor).abs() < SAME).mean() > NEARLY_ALL
    without_interval = rows.loc[gold, "ci_high"].isna().all()
    return "at the estimator's floor, as with shuffled labels" if on_floor and without_interval else ""


def _summary(rows: Any) -> pd.DataFrame | None:
    if rows is None or (isinstance(rows, tuple) and not rows):
        return None
    return plot_rows(list(rows) if isinstance(rows, tuple) else rows)


def in_metric(rows: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """The curves of each task in one metric, by default the first of the task that is not a difference."""
    import pandas as pd

    rows = as_curves(rows)
    parts = [of_metric(part, metric) for _, part in rows.groupby("task", sort=False)]
    return pd.concat(parts) if parts else rows


def curve_rows(
    rows: Any, metric: str | None = None, *, styles: CurveStyles | None = None, shuffled: bool = False
) -> pd.DataFrame:
    """Return the values that :func:`layer_curve` draws, one row per point, in drawing order.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one task.
    metric : str, optional
        By default the first in the rows that is not a difference.
    styles : CurveStyles, optional
        Styles of the whole figure; by default those of these rows.
    shuffled : bool
        As in :func:`layer_curve`.

    Returns
    -------
    DataFrame
        The columns of rows, and ``role``: "curve", "control" (a band at each layer) or "line" (one value for all);
        ``series``, the number of the curve or band; ``label``, as in the legend;
        ``owner``, the label of the curve of a band; ``hollow``, why a value is not above
        noise, or ""; ``random``, whether weights are random; ``one_of_seeds``, drawn thin and without its interval.

    Raises
    ------
    UsageError
        For a metric that the rows lack, and for two values of one point.
    """
    import pandas as pd

    rows = as_curves(kept(plot_rows(rows)))
    rows = of_metric(rows, metric)
    name = str(rows["metric"].iloc[0])
    if name == "mix-weight":
        raise UsageError("mix-weight rows are layer weights, not metrics; use mix_panels, or probekit plot mix.")
    styles = styles or CurveStyles.of(gold_of(rows), alike=True)
    controls = controls_by_layer(rows, shuffled=shuffled)
    gold = sorted(curves(gold_of(rows)), key=lambda pair: styles.rank(pair[0]))
    same = [c for c in CURVE if c != "target"]
    theirs = {tuple(key.values()): part for key, part in curves(controls, same)}
    parts = []
    for i, (key, curve) in enumerate(gold):
        label = styles.called(key)
        if (twice := curve["layer_name"].duplicated()).any():
            raise UsageError(f"{label} has two values for layer {_two_values(curve, twice)}")
        noise = theirs.get(tuple(key[c] for c in same), controls.iloc[:0])
        hollow = pd.Series("", index=curve.index)
        for why, some in not_above_noise(curve, noise, name).items():
            hollow[some] = why
        thin = label in styles.seeds.values()
        parts.append(curve.assign(role="curve", series=i, label=label, hollow=hollow, one_of_seeds=thin))
    of = rows["analysis"].unique().tolist()
    analysis = str(of[0]) if len(of) == 1 else ""
    trained = any(not styles.is_random(key) for key, _ in gold)
    for i, (key, band) in enumerate(curves(controls)):
        if not (trained and bool(band["random"].all())):
            owner = styles.label({**key, "target": "gold"})
            words = {"label": band_title(key["target"], analysis), "owner": styles.seeds.get(owner, owner)}
            parts.append(band.assign(role="control", series=i, **words))
    return pd.concat([*parts, _lines(rows)], ignore_index=True)


def filled(styles: CurveStyles, points: pd.DataFrame) -> CurveStyles:
    """The styles, with hollow markers for curves that are nowhere above noise."""
    curve = points[points["role"] == "curve"]
    return styles.unfilled(curve, curve["hollow"].isin([NOT_ABOVE, HOLLOW]))


def _two_values(curve: pd.DataFrame, twice: pd.Series) -> str:
    """The end of a message about two values: layer, what differs in the rows, and what to do."""
    layer = curve["layer_name"][twice].iloc[0]
    both = curve[curve["layer_name"] == layer]
    values = ", ".join(f"{value:.4g}" for value in both["value"])
    if curve.duplicated()[twice].all():
        return f"{layer}; were the same rows given twice?"
    named = [c for c in SETTINGS if c in both and both[c].nunique(dropna=False) > 1]
    listed = "; ".join(f"{c}: {', '.join(map(str, both[c].unique()))}" for c in named)
    differ = f"differ in {listed}" if named else "do not say why; compare dtype and options in their cards (.json)"
    return (
        f"{layer} ({values}); the rows {differ}. Draw one file only; or, to draw two caches of one model side by side, "
        "give one another name (cache-activations --model-name NAME-bf16) and probe it again."
    )


def _lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Baselines without a layer, and constant predictions: each value once."""
    rows = rows[rows["layer_name"] == ""]
    names = rows["representation"].where(rows["representation"] != "none", rows["estimator"])
    rows = rows.assign(name=names, value=rows["value"].round(12)).dropna(subset="value")
    rows = rows.drop_duplicates(["name", "value"])
    order = {name: i for i, name in enumerate(names.unique())}
    rows = rows.sort_values("name", key=lambda column: column.map(order), kind="stable")
    label = rows["name"].map(lambda name: INPUTS.get(name, name.replace("-", " ")))
    return rows.assign(role="line", label=label)


def gold_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the curves."""
    return rows[(rows["layer_name"] != "") & (rows["target"] == "gold")]


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the weights that a training run kept; all rows of other analyses."""
    return rows[rows["kept"].fillna(value=True).astype(bool)] if "kept" in rows else rows


def as_curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as curves by layer, which are made of the rows of some analyses: see :class:`probekit.analysis.Analysis`."""
    import pandas as pd

    known, analysis = analyses(), rows["analysis"]
    vectors = analysis.isin([one.name for one in known.values() if one.of_vectors])
    if vectors.any():  # regime and head say nothing more than the run
        rows = rows.assign(method=rows["method"].where(~vectors, ""))
    makers = {one.name: one.curves for one in known.values() if one.curves}
    found = [name for name in analysis.unique() if name in makers]
    if not found:
        return rows
    parts = [rows[~analysis.isin(found)], *(load(makers[name])(rows[analysis == name]) for name in found)]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def of_metric(rows: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """The rows of one metric, by default the first that is not a difference; raises UsageError without such rows."""
    task, available = rows["task"].iloc[0], rows.loc[rows["layer_name"] != "", "metric"].unique()
    if not len(available):
        raise UsageError(f"the rows of {task} have no layers, so there is no curve to draw.")
    if metric is None:
        metric = next((name for name in available if not metric_called(name).derived), available[0])
    if metric not in available:
        derived = dict.fromkeys(f"{word}(…)" for name in available if (word := metric_called(name).derived))
        plain = [name for name in available if not metric_called(name).derived]
        found = ", ".join(plain or available) + (f" (and {', '.join(derived)})" if plain and derived else "")
        raise UsageError(
            f"the rows of {task} have no {metric!r}; they have {found}. Choose one, or make the rows again with "
            f"--metrics {metric}."
        )
    if metric_called(metric).derived == "difference":
        raise UsageError("these rows are differences; use layer_differences, or probekit plot differences.")
    rows = rows[rows["metric"] == metric]
    return rows if "p_shown" in rows else rows.assign(p_shown=over_curves(rows))


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`layer_panels` after its first sentence."""
    rows, gone = informative(in_metric(pairs_by(kept(of_analyses(rows, *LAYERED)), options.by), options.metric))
    styles = CurveStyles.of(gold_of(rows), panel=("task", "panel"), alike=True)
    by_panel = rows.groupby(["task", "panel"], sort=False)
    parts = [curve_rows(part, styles=styles, shuffled=options.shuffled) for _, part in by_panel]
    yield from layer_words(rows, parts, gone, look, crowd=styles.crowd and not options.summary)


FIGURE = FigureKind(head="Results by layer.", draw=layer_panels, caption=caption)
