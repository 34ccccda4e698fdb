"""Probes of one model on another: curves by layer, or a heat map of layers by layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import listed, measured, widest
from probekit.plots.crossed import Crossed, crossed_maps
from probekit.plots.curves import CurveStyles, check_metric, of_one
from probekit.plots.layer_axes import draw_layers
from probekit.plots.layers import curve_rows
from probekit.plots.look import Look, one_line
from probekit.plots.options import FigureKind
from probekit.plots.panels import panels, same_scale

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from probekit.plots.options import Matrix, PlotOptions

ANGLE = "direction-angle"
CAPTIONS = {
    "native": "Native: the probes of the model that is read.",
    "as is": "As is: the vectors are unchanged.",
    "rescaled": "Rescaled: each dimension with the mean and standard deviation that it has in the probe's own model.",
    "mapped": "Mapped: after the orthogonal map, with one scale, between the vectors of train; no map sees a label.",
}


def direction_panels(
    rows: Any,
    *,
    metric: str | None = None,
    matrix: Matrix | None = None,
    columns: int = 2,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Plot probes of one model on another by layer: native, as is, rescaled and mapped, one panel per way.

    With ``matrix``, a heat map instead: the layer of the probe by the layer that it reads, after one of the maps.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit directions wrote (.parquet, .csv).
    metric : str, optional
        By default that of the probes; direction-angle for the angles between directions.
    matrix : {"as-is", "rescaled", "mapped"}, optional
        What was done to the vectors before.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Examples
    --------
    On the command line::

        probekit plot directions directions.parquet --out directions.pdf
        probekit plot directions directions.parquet --matrix mapped --width page
        probekit plot directions directions.parquet --metric direction-angle
    """
    rows, look = _drawn(rows, metric, matrix, look or Look()), look or Look()
    if matrix is not None:
        return _maps(rows, columns, width, look)
    styles = CurveStyles.of(rows, panel=("task", "panel"), labelled_by=("method",))
    figure, drawn = panels(rows, columns, 2.35, by="panel", width=width, natural=3.2, look=look)
    scales: dict[str, list[Axes]] = {}
    for ax, part in drawn:
        draw_layers(ax, curve_rows(part, styles=styles), styles, look=look, how=str(part["panel"].iloc[0]))
        scales.setdefault(str(part["task"].iloc[0]), []).append(ax)
    for axes in scales.values():
        same_scale(axes)
    return figure


def _drawn(given: Any, metric: str | None, matrix: Matrix | None, look: Look) -> pd.DataFrame:
    """The rows that are drawn, with a column "panel": whose probes read whose vectors."""
    rows = of_one(given, "directions", "there are no rows of probekit directions to draw.")
    name = metric or next(one for one in rows["metric"] if not metric_called(one).derived)
    check_metric(name, [one for one in rows["metric"].unique() if not metric_called(one).derived])
    rows = rows[(rows["metric"] == name) & (rows["target"] == "gold") & (rows["way"] != "both")]
    same = rows["layer_name"] == rows["fitted_layer"]
    if matrix is None:
        rows = rows[same]
    elif same.all():
        raise UsageError("these rows have probes on their own layer only; make them again without --no-other-layers.")
    else:
        rows = rows[rows["after"] == matrix.replace("-", " ")]
        if rows.empty:
            raise UsageError(f"no layer has values after {matrix}; the column note of the rows says why.")
    reference = [
        "pretrained" if str(one).split(",")[0] == model else look.shown(shown_label(str(one)))
        for one, model in zip(rows["against_model"], rows["model"], strict=True)
    ]
    several = rows["model"].nunique() > 1
    other = [
        ", ".join(filter(None, (look.shown(str(model)) if several or not run else "", look.shown(str(run)))))
        for run, model in zip(rows["run"], rows["model"], strict=True)
    ]
    panel = [
        f"{a} probes on {b}" if way == "forward" else f"{b} probes on {a}"
        for a, b, way in zip(reference, other, rows["way"], strict=True)
    ]
    return rows.assign(panel=panel, method=rows["after"], run="", run_kind="", random=False)


def _maps(rows: pd.DataFrame, columns: int, width: float | None, look: Look) -> Figure:
    maps, several = list[Crossed](), rows["task"].nunique() > 1
    names = list(dict.fromkeys(rows["layer_name"]))
    order = sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0))
    for (task, panel), part in rows.groupby(["task", "panel"], sort=False):
        table = part.pivot_table("value", "fitted_layer", "layer_name", dropna=False).reindex(
            index=order, columns=order
        )
        shown = ["norm" if name == "final_norm" else name for name in order]
        title = f"{look.task(str(task))}: {panel}" if several else str(panel)
        maps.append(Crossed(title, table.set_axis(shown).set_axis(shown, axis=1), []))
    metric, after = str(rows["metric"].iloc[0]), str(rows["after"].iloc[0])
    ends = float(rows["value"].min()), float(rows["value"].max())
    title = f"{one_line(metric)}, {after}"
    return crossed_maps(maps, metric, title, "", limits=ends, columns=columns, width=width, look=look, shared="layer")


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`direction_panels` after its first sentence."""
    rows = _drawn(rows, options.metric, options.matrix, look)
    yield from measured(rows, look)
    if options.matrix:
        yield "Lines: the layer that a probe was fitted on; columns: the layer of the other model that it reads."
        yield CAPTIONS[str(rows["after"].iloc[0])]
        yield from widest(rows, look)
        return
    kinds = [after for after in CAPTIONS if after in set(rows["after"])]
    yield from (CAPTIONS[after] for after in kinds)
    if rows["metric"].eq(ANGLE).all():
        low = rows["null_low"].min()
        within = rows["within_halves"]
        yield (
            f"Angles between the direction of a transferred probe and the native one; native probes of two halves of "
            f"train are {within.min():.0f} to {within.max():.0f} degrees apart, 95 % of random directions more than "
            f"{low:.0f}."
        )
    elif rows["ci_low"].notna().any():
        yield f"Bars: {look.interval}s, each for a single layer."
    noted = [str(note) for note in rows["note"].dropna().unique() if note]
    if noted:
        yield f"{listed(note[:1].upper() + note[1:] for note in noted)}."


def both_ways(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of both ways together as a curve for each of what was done before; rows of one way stay."""
    both = rows[(rows["way"] == "both") & (rows["target"] == "gold")]
    return both.assign(method=both["after"]) if len(both) else rows


FIGURE = FigureKind(
    head="Probes of one model on the layers of another.",
    draw=direction_panels,
    caption=caption,
    metric="Metric to plot: that of the probes (the default), or direction-angle.",
)
