"""Paired differences by layer: between layers, between models, against controls, with intervals for all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, measured
from probekit.plots.curves import CURVE, CurveStyles, curves, of_analyses, plot_rows
from probekit.plots.files import hover, in_words
from probekit.plots.heat import heat_panels, heat_words
from probekit.plots.legends import wrapped
from probekit.plots.look import INK, Look, control_title, metric_title
from probekit.plots.options import FigureKind, PlotOptions, inches
from probekit.plots.panels import PAGE, PANEL, Scale, dress, legend, one_axes, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY = (*CURVE, "against")
HOLLOW = "not shown to differ (corrected p > {:g})"
BESIDE = 0.05
"""Least width of a point with its bars in inches."""
HIGH, LOW = 2.4, 1.35
"""Height of a panel in inches, of all curves and of one."""
STACKED = 6
"""Most panels of one curve."""
BARS = ["ci_low", "ci_high", "joint_low", "joint_high"]


def layer_differences(rows: Any, *, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """Draw paired differences by layer, one series per curve, side by side.

    The thick bar is the interval for a single layer, the thin bar the interval for all layers at once (none with Holm's
    correction); a marker is hollow if the corrected p-value is above ``level``.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.compare` for one task and one metric.
    level : float
        Threshold for the corrected p-value.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        For rows of several tasks or metrics, or rows that are not comparisons.
    """
    rows, new_figure = _of_comparisons(rows), ax is None
    ax = one_axes(rows, ax, 2.8, ("layer_differences", "difference_panels"))
    styles = CurveStyles.of(rows, BY)
    points = difference_rows(rows, level=level, styles=styles)
    _draw(ax, points, styles.unfilled(points, points["hollow"]), level, None)
    legend(ax, below=new_figure)
    return ax


def difference_panels(
    rows: Any, *, level: float = 0.05, columns: int = 4, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot paired differences by layer, one panel per task.

    The thick interval is for one layer, the thin interval for all layers at once (simultaneous). Where the width has no
    room for the points of all curves, each curve has a panel; more than six such panels, and more than eight curves of
    a task, are lines of a heat map without intervals.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit compare wrote.
    level : float
        Threshold for the corrected p-value.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw one :func:`layer_differences` per task, side by side with one legend.

    Examples
    --------
    On the command line::

        probekit plot differences tuned-minus-pretrained.parquet --out differences.pdf
    """
    import pandas as pd

    rows = _of_comparisons(rows)
    styles = CurveStyles.of(rows, BY)
    points_of, form = partial(difference_rows, level=level, styles=styles), _form(rows, styles, width)
    if form == "map":
        other = " and ".join(control_title(str(name)) for name in rows["against"].unique())
        key: dict[str, Any] = {"by": None, "hollow": HOLLOW.format(level), "how": f"minus {other}"}
        return heat_panels(rows, styles.style, points_of, columns=columns, width=width, look=look, **key)
    points = pd.concat([points_of(part) for _, part in rows.groupby("task", sort=False)])
    styles, natural = styles.unfilled(points, points["hollow"]), max(PANEL, _room(rows) / 0.64)  # as narrow as fits
    if form == "stack":
        figure, drawn = panels(points, 1, LOW, by="label", width=width, look=look, side=0.9)
    else:
        figure, drawn = panels(points, columns, HIGH, width=width, natural=natural, look=look)
    for ax, part in drawn:
        _draw(ax, part, styles, level, look, _of_what(points, look or Look()) if form == "stack" else "")
        if form == "stack":  # all panels of a task have one scale
            ends = points.loc[points["task"] == part["task"].iloc[0], BARS]
            ax.update_datalim([(0, ends.min(axis=None)), (0, ends.max(axis=None))])
            ax.autoscale_view(scalex=False)
    return figure


def _room(rows: pd.DataFrame, curves_of: int = 0) -> float:
    """The least width of a panel in inches: that of the points of all curves of a layer, beside each other."""
    curves_of = curves_of or max(len(list(curves(part, BY))) for _, part in rows.groupby("task", sort=False))
    return 0.85 + (BESIDE * curves_of + 0.02) * rows["layer_name"].nunique()


def _form(rows: pd.DataFrame, styles: CurveStyles, width: float | None) -> Literal["panels", "stack", "map"]:
    """Whether tasks are panels, or for want of room each curve is one, or each task is a heat map."""
    if not styles.crowd and _room(rows) <= (width or PAGE):
        return "panels"
    lines = sum(len(list(curves(part, BY))) for _, part in rows.groupby("task", sort=False))
    return "stack" if lines <= STACKED and _room(rows, 1) <= (width or PAGE) else "map"


def difference_rows(rows: Any, *, level: float = 0.05, styles: CurveStyles | None = None) -> pd.DataFrame:
    """Return the values that :func:`layer_differences` draws, one row per marker, in drawing order.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one task.
    level : float
        Threshold for the corrected p-value.
    styles : CurveStyles, optional
        Styles of the whole figure; by default those of these rows.

    Returns
    -------
    DataFrame
        The columns of rows, and ``label``, as in the legend, and ``hollow``, whether p is above ``level``.
    """
    import pandas as pd

    rows = _of_comparisons(rows)
    if len(metrics := [metric_called(name).of for name in rows["metric"].unique()]) != 1:
        raise UsageError(f"differences in {' and '.join(metrics)} have no common axis; give the rows of one metric.")
    styles, parts = styles or CurveStyles.of(rows, BY), []
    for key, part in curves(rows, BY):
        label = styles.called(key)
        if part["layer_name"].duplicated().any():
            raise UsageError(f"{label} has two differences for one layer; were the same rows given twice?")
        parts.append(part.assign(label=label, hollow=part["p_adjusted"] > level))
    return pd.concat(parts)


def _of_comparisons(rows: Any) -> pd.DataFrame:
    """Comparisons, whose reference is named without the model where it is the same one (``itself``)."""
    import pandas as pd

    if isinstance(rows, pd.DataFrame) and "itself" in rows:  # already done for a larger table
        return rows
    rows = of_analyses(plot_rows(rows), "compare")
    required = {"against", "p_adjusted", "joint_low", "joint_high"}
    if lacking := sorted(required - set(rows.columns)):
        if "analysis" in rows and set(rows["analysis"]) == {"compare"}:
            raise UsageError(f"these rows of probekit compare lack {', '.join(lacking)}; run probekit compare again.")
        found = ", ".join(str(name) for name in rows["analysis"].unique()) if "analysis" in rows else "no analysis"
        raise UsageError(
            f"these rows were written by probekit {found}; plot differences needs rows of probekit compare. Run "
            "probekit compare first, or draw these rows with probekit plot layers."
        )
    rows = rows[rows["analysis"] == "compare"]
    pairs = list(zip(rows["model"], map(str, rows["against"]), strict=True))
    itself = [against.startswith(f"{model}, ") for model, against in pairs]
    return rows.assign(against=[against.removeprefix(f"{model}, ") for model, against in pairs], itself=itself)


def _draw(ax: Axes, rows: pd.DataFrame, styles: CurveStyles, level: float, look: Look | None, alone: str = "") -> None:
    """alone : for a panel of one curve, whose name is then above it, what is subtracted from what"""
    look = look or Look()
    scale = Scale.of(rows, ax)
    ax.axhline(0, color=INK, linewidth=0.9, zorder=1)
    found = [part for _, part in rows.groupby("label", sort=False)]
    for i, part in enumerate(found):
        label = str(part["label"].iloc[0])
        shift = min(0.24, 0.7 / len(found)) * (i - (len(found) - 1) / 2)
        style = scale.sized(styles.style[label])
        _draw_series(ax, part, scale.at(part) + shift, style, level, look, "_" * bool(alone) + label)
    title, _, better = metric_title(metric_called(rows["metric"].iloc[0]).of).partition("\n")
    if alone:
        dress(ax, rows, ylabel=wrapped(alone, LOW - 0.3, 9), how=title, look=look, side=0.9)
        ax.set_title(look.shown(str(rows["label"].iloc[0])), loc="right", fontsize=8, color=INK, parse_math=False)
    else:
        what = wrapped(_of_what(rows, look), 2.0, 9)
        dress(ax, rows, ylabel="\n".join(filter(None, (f"{title}:", what, better))), look=look)
    scale.set(ax)


def _of_what(rows: pd.DataFrame, look: Look) -> str:
    """What is subtracted from what: "fine-tuned − pretrained"."""
    against, labels = list(rows["against"].unique()), list(rows["label"].unique())
    if len(against) > 1:
        return "difference"
    second = look.shown(control_title(str(against[0]))).split(", ")
    parts = [look.shown(str(label).partition(", minus ")[0]).split(", ") for label in labels]
    shared = [word for word in parts[0] if all(word in part for part in parts)]
    model = {look.shown(str(name).rsplit("/", 1)[-1]) for name in rows["model"]} if rows["itself"].all() else set()
    own = [word for word in shared if word not in (*second, *model)] or [*model & set(shared)] or ["model"]
    own = ["each layer"] if second[0].startswith("layer ") else own
    reference = [word for word in second if word not in shared] or second
    return f"{', '.join(own)} − {', '.join(reference)}"


def _draw_series(
    ax: Axes, part: pd.DataFrame, x: np.ndarray, style: Mapping[str, Any], level: float, look: Look, label: str
) -> None:
    colour = style["color"]
    points = {**style, "linestyle": "none", "markeredgecolor": colour, "zorder": 4}
    bars: tuple[tuple[tuple[str, str], str, dict[str, Any]], ...] = (
        (("ci_low", "ci_high"), f"thick: {look.interval}, one layer", {"linewidth": 2.4, "alpha": 0.45, "zorder": 2}),
        (("joint_low", "joint_high"), "thin: all layers at once", {"linewidth": 0.8, "zorder": 3}),
    )
    for (low, high), words, bar in bars:
        if part[low].notna().any():
            ax.vlines(x, part[low], part[high], color=colour, **bar)
            ax.plot([], [], color="#7F7F7F", label=words, **{**bar, "zorder": 3.5})
    descriptions = in_words(part.assign(hollow=""))
    hover(ax.plot(x, part["value"], label=label, **points), descriptions)
    open_ = part["hollow"].to_numpy(dtype=bool)
    if open_.any():
        white = ax.plot(x[open_], part["value"][open_], **{**points, "markerfacecolor": "white", "zorder": 5})
        hover(white, [text for text, is_open in zip(descriptions, open_, strict=True) if is_open])
        ax.plot(
            [], [], "o", color="#7F7F7F", markerfacecolor="white", markersize=4.5, zorder=3, label=HOLLOW.format(level)
        )


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    raw, rows = rows[rows["analysis"] == "compare"], _of_comparisons(rows)
    yield from measured(rows.assign(metric=rows["metric"].map(lambda name: metric_called(name).of)), look)
    own = rows["model"].nunique() > 1 and rows["itself"].all()
    references = (rows if own else raw)["against"].unique()
    named = listed(look.shown(control_title(str(name))) for name in references)
    yield f"Paired differences from {named}{' of the same model' * bool(own)}."
    styles = CurveStyles.of(rows, BY)
    if crowd := _form(rows, styles, inches(options.width)) == "map":
        parts = [difference_rows(part, styles=styles) for _, part in rows.groupby("task", sort=False)]
        yield from heat_words(pd.concat(parts), differences=True, look=look)
    else:
        yield f"Thick bars: {look.interval}s for a single layer; thin bars: for all layers at once."
    if (rows["p_adjusted"] > options.level).any():
        marked = "Hatched cells" if crowd else "Hollow markers"
        yield f"{marked}: not shown to differ (p > {options.level:g}, corrected)."


FIGURE = FigureKind(head="Paired differences by layer on the same examples.", draw=difference_panels, caption=caption)
