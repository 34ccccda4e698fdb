"""A metric by layer, one curve a model, over its controls: Figures 1 and 2 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.curves import CURVE, CurveStyles, curves, of_analyses, plot_rows
from probekit.plots.layer_axes import draw_layers
from probekit.plots.look import Look
from probekit.plots.noise import controls_by_layer, not_above_noise
from probekit.plots.panels import legend, one_axes, panels
from probekit.plots.titles import band_title

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["INFORMATION", "LAYERED", "curve_rows", "kept", "layer_curve", "layer_panels", "of_metric"]

LAYERED = ("probe", "mi", "mdl")
"""The analyses of which there are curves by layer."""
INFORMATION = "mutual-information"
INPUTS = {
    "majority": "majority class",
    "mean": "mean of train",
    "bag-of-pieces": "bag of word pieces",
    "word-type": "majority by word type",
}


def layer_curve(rows: Any, *, metric: str | None = None, summary: Any = None, ax: Axes | None = None) -> Axes:
    """Draw a metric by layer: one curve a model, with its interval, over its controls.

    Rows that differ in checkpoint, representation, estimator … are curves of their own, named by what differs; a model
    with random weights is dashed and grey, and ``final_norm``, and other sites without a number, stand after the last
    layer. Curves that differ in the seed alone (of a run, of random weights, or of the analysis) are thin lines of one
    style and name, without intervals. Intervals of up to two models (and one with random weights) are bands, those of
    more are bars side by side. Controls are grey bands: where noise falls, summed up over the draws (where rows hold
    single draws only, the band is their range); of models with random weights only where there are no others. Inputs
    without a layer and constant predictions are horizontal lines. A marker is hollow where p_adjusted is above 0.05,
    if rows hold it and rest on shuffles enough for less: of probes it is that of :func:`probekit.compare` against
    shuffled labels. Without it, it is hollow where the layer's interval (its value, where it has none) reaches noise of
    the same model: a look, not a test. It is half filled where its interval reaches the control task. These are
    not drawn in metrics of spans, where the two cannot be compared: see "token-accuracy" and its selectivity. A layer
    whose value is undetermined is a cross on the bottom line, dotted over what is possible, beyond the top of
    the axes where that is far above all values.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one task, as :func:`probekit.probe`, :func:`probekit.mi` and :func:`probekit.mdl` make them.
    metric : str, optional
        The rows' first that is no difference, for None; "selectivity(accuracy)" has a line at zero.
    summary : DataFrame, Result or path, optional
        Of :func:`probekit.summary`, drawn in a strip under the curve: best layer, centre of gravity …
    ax : Axes, optional
        A new figure's for None. Nothing is shown or saved.

    Returns
    -------
    Axes
        Those drawn into.

    Raises
    ------
    UsageError
        Where the rows hold several tasks, no such metric, or two values for one point.

    Examples
    --------
    >>> probekit.plots.layer_curve("cola.parquet", metric="accuracy")  # doctest: +SKIP
    """
    rows, own = kept(plot_rows(rows)), ax is None
    ax = one_axes(rows, ax, 2.8 if summary is None else 3.5, ("layer_curve", "layer_panels"))
    rows = of_metric(rows, metric)
    styles = CurveStyles.of(gold_of(rows), alike=True)
    draw_layers(ax, curve_rows(rows, styles=styles), styles, summary=_summary(summary))
    legend(ax, below=own)
    return ax


def layer_panels(
    rows: Any,
    *,
    metric: str | None = None,
    summary: Any = None,
    columns: int = 4,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Draw one :func:`layer_curve` a task, side by side in the order of the rows, under one legend.

    Runs of the same kind look alike in all panels. Estimators of mutual information, which differ in more than
    precision, have panels of their own beside each other, on one scale: that of those which have a value at any layer.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As of :func:`layer_curve`, of any number of tasks.
    metric : str, optional
        Each task's first that is no difference, for None.
    summary : DataFrame, Result or path, optional
        Of any of the tasks.
    columns : int
        Panels side by side, at most.
    width : float, optional
        Of the figure in inches, as it is printed, such as ``WIDTHS["text"]``.
    look : Look, optional
        Names, the place of the legend, and what intervals cover.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    import pandas as pd

    rows = kept(of_analyses(plot_rows(rows), *LAYERED))
    if not rows.empty:
        rows = pd.concat([of_metric(part, metric) for _, part in rows.groupby("task", sort=False)])
    rows = rows.assign(panel=rows["estimator"].where(rows["metric"] == INFORMATION, ""))
    figure, drawn = panels(rows, columns, 2.35 if summary is None else 3.05, by="panel", width=width, look=look)
    styles, below = CurveStyles.of(gold_of(rows), panel=("task", "panel"), alike=True), _summary(summary)
    scales: dict[str, list[tuple[Axes, bool]]] = {}
    for ax, part in drawn:
        draw_layers(ax, curve_rows(part, styles=styles), styles, summary=below, look=look)
        scales.setdefault(part["task"].iloc[0], []).append((ax, bool(gold_of(part)["value"].notna().any())))
    for axes in (one for one in scales.values() if len(one) > 1):
        some = any(known for _, known in axes)  # what is possible, where nothing is known, is no scale for what is
        low, high = zip(*(ax.get_ylim() for ax, known in axes if known or not some), strict=True)
        for ax, _ in axes:
            ax.set_ylim(min(low), max(high))
    return figure


def _summary(rows: Any) -> pd.DataFrame | None:
    return None if rows is None else plot_rows(rows)


def curve_rows(rows: Any, metric: str | None = None, *, styles: CurveStyles | None = None) -> pd.DataFrame:
    """Work out what :func:`layer_curve` shows, one row a point, in the order in which it is drawn.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Of one task.
    metric : str, optional
        The rows' first that is no difference, for None.
    styles : CurveStyles, optional
        Of the whole figure; of these rows for None.

    Returns
    -------
    DataFrame
        The columns of rows, and ``role``: "curve", "control" (a band at each layer) or "line" (one value for all);
        ``series``, the number of the curve or band; ``label``, as in the legend; ``hollow``, why a value is not above
        noise, or ""; ``random``, of a model with random weights; ``one_of_seeds``, drawn thin and without its interval.

    Raises
    ------
    UsageError
        For a metric that there is not, and for two values of one point.
    """
    import pandas as pd

    rows = kept(plot_rows(rows))
    rows = of_metric(rows, metric)
    name = str(rows["metric"].iloc[0])
    if name == "mix-weight":
        raise UsageError("these are weights of layers, not what they are worth: see mix_panels, or probekit plot mix.")
    styles = styles or CurveStyles.of(gold_of(rows), alike=True)
    controls, gold = controls_by_layer(rows), sorted(curves(gold_of(rows)), key=lambda pair: styles.rank(pair[0]))
    same = [c for c in CURVE if c != "target"]
    theirs = {tuple(key.values()): part for key, part in curves(controls, same)}
    parts = []
    for i, (key, curve) in enumerate(gold):
        label = styles.called(key)
        if (twice := curve["layer_name"].duplicated()).any():
            layer = curve["layer_name"][twice].iloc[0]
            raise UsageError(f"{label} has two values for layer {layer}; were the same rows given twice?")
        its = theirs.get(tuple(key[c] for c in same), controls.iloc[:0])
        hollow = pd.Series("", index=curve.index)
        for why, some in not_above_noise(curve, its, name).items():
            hollow[some] = why
        thin = label in styles.seeds.values()
        parts.append(curve.assign(role="curve", series=i, label=label, hollow=hollow, one_of_seeds=thin))
    trained = any(not styles.is_random(key) for key, _ in gold)
    for i, (key, band) in enumerate(curves(controls)):
        if not (trained and bool(band["random"].all())):
            parts.append(band.assign(role="control", series=i, label=band_title(key["target"])))
    return pd.concat([*parts, _lines(rows)], ignore_index=True)


def _lines(rows: pd.DataFrame) -> pd.DataFrame:
    """Inputs without a layer, and constant predictions: each value once."""
    rows = rows[rows["layer_name"] == ""]
    names = rows["representation"].where(rows["representation"] != "none", rows["estimator"])
    rows = rows.assign(name=names, value=rows["value"].round(12)).dropna(subset="value")
    rows = rows.drop_duplicates(["name", "value"])
    order = {name: i for i, name in enumerate(names.unique())}
    rows = rows.sort_values("name", key=lambda own: own.map(order), kind="stable")
    label = rows["name"].map(lambda name: INPUTS.get(name, name.replace("-", " ")))
    return rows.assign(role="line", label=label)


def gold_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The values that curves go through."""
    return rows[(rows["layer_name"] != "") & (rows["target"] == "gold")]


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a training's rows, those of the weights that it ended with."""
    return rows[rows["kept"].fillna(value=True).astype(bool)] if "kept" in rows else rows


def of_metric(rows: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """The rows of one metric, the first that is no difference for None; raises UsageError where there is none."""
    task, there = rows["task"].iloc[0], rows.loc[rows["layer_name"] != "", "metric"].unique()
    if not len(there):
        raise UsageError(f"the rows of {task} are of no layers; there is no curve to draw.")
    if metric is None:
        metric = next((name for name in there if not metric_called(name).derived), there[0])
    if metric not in there:
        raise UsageError(f"{task} has no rows of {metric!r}; it has {', '.join(there)}.")
    if metric_called(metric).derived == "difference":
        raise UsageError("these are differences, not curves: see layer_differences, or probekit plot differences.")
    return rows[rows["metric"] == metric]
