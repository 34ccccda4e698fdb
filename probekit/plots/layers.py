"""A metric by layer, one curve a model, over its controls: Figures 1 and 2 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.panels import Scale, dress, legend, one_axes, panels
from probekit.plots.strip import draw_summary
from probekit.plots.style import CURVE, INK, Looks, curves, is_random, lower_is_better, metric_title
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "INFORMATION",
    "SMALL",
    "controls_by_layer",
    "kept",
    "layer_curve",
    "layer_panels",
    "not_above_noise",
    "of_metric",
]

CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "shuffled": ("shuffled labels", {"facecolor": "0.88", "linewidth": 0}),
    "control-task": ("control task", {"facecolor": "none", "edgecolor": "#8C8C8C", "hatch": "/////", "linewidth": 0}),
}
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "majority": ("majority class", {"linestyle": (0, (1, 2)), "linewidth": 1.0}),
    "mean": ("mean of train", {"linestyle": (0, (1, 2)), "linewidth": 1.0}),
    "bag-of-pieces": ("bag of word pieces", {"linestyle": (0, (7, 2, 1.5, 2)), "linewidth": 1.0}),
    "length": ("length", {"linestyle": (0, (1, 4)), "linewidth": 2.2}),
    "word-type": ("majority by word type", {"linestyle": (0, (3, 1.5)), "linewidth": 1.0}),
}
INTERVAL = ("value", "ci_low", "ci_high")
SAME = tuple(c for c in CURVE if c != "target")
HOLLOW, NOT_ABOVE = "interval reaches noise", "not above noise (p > 0.05)"
LEVEL = 0.05
UNDETERMINED = "undetermined, and what is possible"
INFORMATION = "mutual-information"
SMALL = 0.01  # bits


def layer_curve(
    rows: pd.DataFrame, *, metric: str | None = None, summary: pd.DataFrame | None = None, ax: Axes | None = None
) -> Axes:
    """Draw ``metric`` by layer into ``ax``: one curve a model, with its interval; returns the Axes.

    rows : of one task, as :func:`probekit.probe` makes them. Rows that differ in checkpoint, representation, estimator
        … are curves of their own, named by what differs; a model with random weights is dashed and grey, and
        ``final_norm``, and other layers that have no number, stand after the last one. Curves that differ in the seed
        alone (of a run, of random weights, or of the analysis) are thin lines of one look and name, without intervals.
        Intervals of up to two models (and one with random weights) are bands, those of more are bars side by side.
        Controls are grey bands: where noise falls, summed up over the draws (where rows hold single draws only, the
        band is their range); of models with random weights only where there are no others. Inputs without a layer and
        constant predictions are horizontal lines. A marker is hollow where p_adjusted is above 0.05, if rows hold it
        and rest on shuffles enough for less; otherwise where the layer's interval (its value, where it has none)
        reaches noise of the same model: a look, not a test, which is what :func:`probekit.compare` is
        for. A layer whose value is undetermined is an open diamond on the bottom line, dotted over what is possible,
        beyond the top of the axes where that is far above all values.
    metric : the rows' first that is no difference, for None; "selectivity(accuracy)" has a line at zero
    summary : rows of ``curve_summary``, drawn in a strip under the curve: best layer, centre of gravity …
    ax : a new figure's for None. Nothing is shown or saved.
    Raises UsageError where the rows hold several tasks, no such metric, or two values for one point.
    """
    rows, own = kept(make_rows(rows)), ax is None
    ax = one_axes(rows, ax, 2.8 if summary is None else 3.5, ("layer_curve", "layer_panels"))
    part = of_metric(rows, metric)
    _draw(ax, part, Looks.of(_gold(rows), alike=True), summary=summary)
    legend(ax, below=own)
    return ax


def layer_panels(
    rows: pd.DataFrame,
    *,
    metric: str | None = None,
    summary: pd.DataFrame | None = None,
    columns: int = 4,
    width: float | None = None,
) -> Figure:
    """One :func:`layer_curve` a task, side by side in the order of the rows, under one legend; returns the Figure.

    metric : each task's first for None; summary : of any of the tasks
    columns : of panels, at most; width : in inches, as it is printed, such as ``WIDTHS["text"]``
    Runs of the same kind, named "cola.fine-tune.0" and "sst2.fine-tune.0", look alike in all panels.
    Estimators of mutual information, which differ in more than precision, have panels of their own beside each other,
    on one scale: that of those which have a value at any layer.
    """
    import pandas as pd

    rows = kept(make_rows(rows))
    if not rows.empty:
        rows = pd.concat([of_metric(part, metric) for _, part in rows.groupby("task", sort=False)])
    rows = rows.assign(panel=rows["estimator"].where(rows["metric"] == INFORMATION, ""))
    figure, drawn = panels(rows, columns, 2.2 if summary is None else 2.9, by="panel", width=width)
    looks = Looks.of(_gold(rows), panel=("task", "panel"), alike=True)
    scales: dict[str, list[tuple[Axes, bool]]] = {}
    for ax, part in drawn:
        _draw(ax, part, looks, summary=summary)
        scales.setdefault(part["task"].iloc[0], []).append((ax, bool(_gold(part)["value"].notna().any())))
    for axes in (one for one in scales.values() if len(one) > 1):
        some = any(known for _, known in axes)  # what is possible, where nothing is known, is no scale for what is
        low, high = zip(*(ax.get_ylim() for ax, known in axes if known or not some), strict=True)
        for ax, _ in axes:
            ax.set_ylim(min(low), max(high))
    return figure


def kept(rows: pd.DataFrame) -> pd.DataFrame:
    """Of a training's rows, those of the weights that it ended with."""
    return rows[rows["kept"].fillna(value=True).astype(bool)] if "kept" in rows else rows


def of_metric(rows: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """The rows of one metric, the first that is no difference for None; raises UsageError where there is none."""
    task, there = rows["task"].iloc[0], rows.loc[rows["layer_name"] != "", "metric"].unique()
    if not len(there):
        raise UsageError(f"the rows of {task} are of no layers; there is no curve to draw.")
    if metric is None:
        metric = next((name for name in there if not name.endswith(")")), there[0])
    if metric.startswith("difference("):
        raise UsageError("these are differences, not curves: see layer_differences, or probekit plot differences.")
    if metric not in there:
        raise UsageError(f"{task} has no rows of {metric!r}; it has {', '.join(there)}.")
    return rows[rows["metric"] == metric]


def _gold(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["layer_name"] != "") & (rows["target"] == "gold")]


def controls_by_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """The controls by layer: their summaries, and mean and range of the draws that no row sums up."""
    import pandas as pd

    rows = rows[(rows["layer_name"] != "") & (rows["target"] != "gold")]
    kind = rows["target"].str.replace(r"-\d+$", "", regex=True)
    drawn = (kind != rows["target"]) | rows["draw"].notna()
    draws = rows.assign(target=kind)[drawn]
    by = ["task", *CURVE, "layer", "layer_name"]
    values = draws.groupby(by, sort=False, dropna=False)["value"]
    ranges = values.agg(value="mean", ci_low="min", ci_high="max").reset_index()
    both = pd.concat([rows.loc[~drawn, ranges.columns], ranges], ignore_index=True)
    return both.drop_duplicates(by)


def _draw(ax: Axes, rows: pd.DataFrame, looks: Looks, *, summary: pd.DataFrame | None) -> None:
    metric, scale = str(rows["metric"].iloc[0]), Scale.of(rows, ax)
    if metric == "mix-weight":
        raise UsageError("these are weights of layers, not what they are worth: see mix_panels, or probekit plot mix.")
    controls, gold = controls_by_layer(rows), list(curves(_gold(rows)))
    theirs = {tuple(key.values()): part for key, part in curves(controls, SAME)}
    gold.sort(key=lambda pair: looks.rank(pair[0]))
    trained = dict.fromkeys(looks.known(key)[0] for key, _ in gold if not is_random(key))
    named = list(dict.fromkeys(looks.known(key)[0] for key, _ in gold))
    crowded = len(trained) > 2 or len(named) > 3  # bands over each other could not be told apart
    for key, curve in gold:
        label, look = looks.known(key)
        if (twice := curve["layer_name"].duplicated()).any():
            layer = curve["layer_name"][twice].iloc[0]
            raise UsageError(f"{label} has two values for layer {layer}; were the same rows given twice?")
        its = theirs.get(tuple(key[c] for c in SAME), controls.iloc[:0])
        shift = crowded * min(0.12, 0.5 / len(named)) * (named.index(label) - (len(named) - 1) / 2)
        hollow = not_above_noise(curve, its, metric)
        if label in looks.seeds.values():  # how far they lie apart is to be seen, and nothing over it
            curve = curve.assign(ci_low=np.nan, ci_high=np.nan)
        _draw_curve(ax, curve, scale.at(curve) + shift, label, scale.sized(look), hollow, banded=not crowded)
    for key, curve in curves(controls):
        if not (trained and is_random(key)):
            _draw_control(ax, curve, key["target"], scale)
    _draw_undetermined(ax, [(looks.known(key)[1], curve) for key, curve in gold], scale)
    _draw_lines(ax, rows[rows["layer_name"] == ""])
    if metric.endswith(")"):
        ax.axhline(0, color=INK, linewidth=0.9, zorder=1)
    information, how = metric == INFORMATION, rows["estimator"].unique()
    if information:  # from 0 on, and next to nothing is drawn as such
        ax.update_datalim([(0, 0), (0, SMALL)])
    dress(ax, rows, ylabel=metric_title(metric), how=how[0] if information and len(how) == 1 else "")
    scale.set(ax)
    if summary is not None:
        draw_summary(ax, make_rows(summary), rows, looks)


def not_above_noise(curve: pd.DataFrame, controls: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Which rows are not above noise, bool (rows,), by what says so: p, or a look at the interval where there is none.

    p says nothing where as few shuffles as there are can not show it, however far from noise a value is.
    """
    tested: np.ndarray = np.zeros(len(curve), dtype=bool)
    above, reaches = tested, _reaches(curve, controls, metric)
    if "p_adjusted" in curve:
        p = curve["p_adjusted"].astype("float64").to_numpy()
        shuffles = curve["shuffles"].astype("float64").to_numpy() if "shuffles" in curve else np.inf
        least = np.isfinite(p).sum() / (1 + shuffles)
        tested = np.isfinite(p) & ~(least > LEVEL)
        above = tested & (p > LEVEL) & curve["value"].notna().to_numpy(dtype=bool)
    return {NOT_ABOVE: above, HOLLOW: reaches & ~tested}


def _reaches(curve: pd.DataFrame, controls: pd.DataFrame, metric: str) -> np.ndarray:
    """Whether each row's interval reaches noise, or lies on its worse side; bool (rows,), false without noise."""
    sign = -1 if lower_is_better(metric) else 1
    worst = curve["ci_high" if sign < 0 else "ci_low"].fillna(curve["value"]).where(curve["value"].notna()) * sign
    if metric.endswith(")"):
        return (worst <= 0).to_numpy(dtype=bool)
    best = (controls["ci_low" if sign < 0 else "ci_high"] * sign).groupby(controls["layer_name"]).max()
    return (worst <= curve["layer_name"].map(best).astype("float64")).to_numpy(dtype=bool)


def _draw_curve(
    ax: Axes,
    curve: pd.DataFrame,
    at: np.ndarray,
    label: str,
    look: Mapping[str, Any],
    hollow: Mapping[str, np.ndarray],
    *,
    banded: bool,
) -> None:
    """at : where layers stand; hollow : by the reason why; banded : whether intervals are a band, or bars"""
    dashed, colour = look["linestyle"] != "-", look["color"]
    points, zorder = {**look, "linestyle": "none", "markeredgecolor": colour}, 4 if dashed else 5
    order = np.argsort(at)
    curve = curve.iloc[order]
    x, y, low, high = (np.asarray(v, dtype=float) for v in (at[order], *(curve[c] for c in INTERVAL)))
    through = curve["layer"].notna().to_numpy(dtype=bool)  # final_norm is no block: it stands apart
    ax.plot(x[through], y[through], label=label, zorder=zorder, **{**look, "markeredgecolor": colour})
    ax.plot(x[~through], y[~through], zorder=zorder, **points)
    known = np.isfinite(y)
    inside = through & known & np.isfinite(low) & (banded and not dashed)  # a grey band would look like noise
    alone = ~inside | ~(np.roll(inside, 1) & (x != x[0]) | np.roll(inside, -1) & (x != x[-1]))
    edged: dict[str, Any] = {
        "facecolor": (colour, 0.15),
        "edgecolor": (colour, 0.5),
        "linewidth": 0.4,
    }  # in grey, unlike a control
    ax.fill_between(x, low, high, where=inside, zorder=zorder - 2, **edged)
    bars = known & alone
    ax.vlines(x[bars], low[bars], high[bars], color=colour, linewidth=0.8, zorder=zorder - 1)
    for why, rows in hollow.items():
        if (some := rows[order]).any():
            ax.plot(x[some], y[some], zorder=zorder + 0.5, **{**points, "markerfacecolor": "white"})
            ax.plot([], [], "o", color="#7F7F7F", markerfacecolor="white", markersize=4.5, zorder=3, label=why)


def _draw_undetermined(ax: Axes, gold: Sequence[tuple[Mapping[str, Any], pd.DataFrame]], scale: Scale) -> None:
    """Layers without a value but with an interval; what is possible widens the axes only where there is no value.

    Their diamonds stand on the bottom line, which is no value.
    """
    from matplotlib.collections import LineCollection

    widen = not any(curve["value"].notna().any() for _, curve in gold)
    for i, (look, curve) in enumerate(gold):
        curve = curve[curve["value"].isna() & curve["ci_low"].notna()]
        if curve.empty:
            continue
        x, low, high = scale.at(curve) + 0.1 * (i - (len(gold) - 1) / 2), curve["ci_low"], curve["ci_high"]
        ends = np.stack([np.stack([x, low], 1), np.stack([x, high], 1)], 1)
        dotted = LineCollection(list(ends), colors=look["color"], linestyles=":", linewidths=1.0, zorder=3)
        ax.add_collection(dotted, autolim=widen)
        diamond: dict[str, Any] = {"marker": "D", "markersize": 4, "markerfacecolor": "white", "zorder": 6}
        bottom: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(x, np.zeros(len(x)), color=look["color"], linestyle="none", **bottom, **diamond)
        ax.plot([], [], color="#7F7F7F", linestyle=":", label=UNDETERMINED, **{**diamond, "zorder": 2.9})
    if widen and gold:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        words: dict[str, Any] = {"fontsize": 8, "color": INK, "ha": "center", "va": "center", "zorder": 7, "bbox": box}
        ax.text(0.5, 0.5, "undetermined\nat every layer", transform=ax.transAxes, **words)


def _draw_control(ax: Axes, curve: pd.DataFrame, kind: str, scale: Scale) -> None:
    from matplotlib.container import Container

    label, look = CONTROLS.get(kind, (kind.replace("-", " "), CONTROLS["shuffled"][1]))
    curve = curve.sort_values("layer")
    through = curve[curve["layer"].notna()]
    x, low, high = scale.at(through), through["ci_low"], through["ci_high"]
    band = ax.fill_between(x, low, high, zorder=1.5, **look)
    [middle] = ax.plot(x, through["value"], color="#8C8C8C", linewidth=0.8, zorder=1.6)
    ax.add_container(Container([band, middle], label=label))
    for _, row in curve[curve["layer"].isna()].iterrows():
        wide = scale.place(row["layer_name"]) + 0.75 * scale.room * np.array([-1, 1])
        ax.fill_between(wide, row["ci_low"], row["ci_high"], zorder=1.5, **look)


def _draw_lines(ax: Axes, rows: pd.DataFrame) -> None:
    inputs = rows["representation"].where(rows["representation"] != "none", rows["estimator"])
    for name, part in rows.groupby(inputs, sort=False):
        label, look = LINES.get(name, (name.replace("-", " "), LINES["word-type"][1]))
        for value in part["value"].dropna().round(12).unique():
            ax.axhline(value, color=INK, zorder=1.7, label=label, **look)
