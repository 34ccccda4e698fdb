"""What the first units of rankings hold: the metric against the number of units, beside random and last units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.caption import by_task, listed, metrics_of
from probekit.plots.curves import last_parts, of_one
from probekit.plots.legends import CURVES, band_key
from probekit.plots.look import COLOURS, GREYS, INK, MARKERS, Look, metric_title
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import dress, panels, width_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND, LAST = "random units (line: mean; band: 95 %)", "last units"


def unit_values(rows: Any, layer: str | None = None) -> pd.DataFrame:
    """Return the values that :func:`unit_panels` draws: a row for each model, ranking, target and number of units.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.units`.
    layer : str, optional
        By default, for each model, that with the largest difference between first and random units of the first
        ranking; without random units the first layer.

    Returns
    -------
    DataFrame
        The rows of the metric at this layer, with columns ``name`` (of the model) and ``chosen`` (whether the layer was
        chosen by its difference).

    Raises
    ------
    UsageError
        For rows of other analyses, and an unknown layer.
    """
    rows = of_one(rows, "units", "the rows have no rankings of units; give those of probekit units.")
    known = list(rows["layer_name"].unique())
    if layer is not None and layer not in known:
        raise UsageError(f"the rows have no layer {layer!r}; they have {', '.join(known)}.")
    distinct = [c for c in ("run", "step", "representation") if rows[c].nunique() > 1]
    name = last_parts(rows["model"])
    for column in distinct:
        name = name + (", " + rows[column].astype("string")).where(rows[column].notna() & (rows[column] != ""), "")
    rows = rows.assign(name=name)
    main = str(rows["metric"].iloc[0])
    found = rows[(rows["metric"] == main) & rows["units"].notna()]
    gaps = rows[(rows["metric"] == f"difference({main})") & (rows["estimator"] == rows["estimator"].iloc[0])]
    best = dict.fromkeys(found["name"], known[0])
    best |= {name: str(part.loc[part["value"].abs().idxmax(), "layer_name"]) for name, part in gaps.groupby("name")}
    at = found["name"].map(best) if layer is None else layer
    chosen = layer is None and len(known) > 1 and len(gaps) > 0
    return found[found["layer_name"] == at].assign(chosen=chosen).reset_index(drop=True)


def unit_panels(
    rows: Any, *, layer: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot what the first units hold: the metric of probes on the first 1, 2, 4 … units of each ranking.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit units wrote (.parquet, .csv).
    layer : str, optional
        As in :func:`unit_values`.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw the metric of probes on the first units of each ranking against their number: a panel for each model.

    The grey band holds 95 % of probes on as many random units, the dashed line is of the last units of the first
    ranking. The horizontal axis is logarithmic.

    Examples
    --------
    On the command line::

        probekit plot units units.parquet --out units.pdf
        probekit plot units units.parquet --layer 6
    """
    values = unit_values(rows, layer)
    keys = band_key(BAND) if (values["target"] == "random").any() else {}
    figure, drawn = panels(values, columns, 2.4, "name", width=width, look=look, keys=keys)
    rankings = list(dict.fromkeys(values["estimator"]))
    styles = dict(zip(rankings, zip(COLOURS, MARKERS, strict=False), strict=False))
    several = values["name"].nunique() > 1 or values["chosen"].any()
    for ax, part in drawn:
        first = part[part["estimator"] == rankings[0]].sort_values("units")
        if len(random := first[first["target"] == "random"]):
            k = random["units"].to_numpy(dtype=float)
            low, high = (random[c].to_numpy(dtype=float) for c in ("ci_low", "ci_high"))
            ax.fill_between(k, low, high, color=GREYS[0], alpha=0.25, linewidth=0)
            ax.plot(k, random["value"], color=GREYS[0], linewidth=1)
        last = first[first["target"] == "bottom"]
        ax.plot(last["units"].astype(float), last["value"], color=INK, linestyle=(0, (4, 2)), linewidth=1, label=LAST)
        for ranking, (colour, marker) in styles.items():
            curve = part[(part["estimator"] == ranking) & (part["target"] == "gold")].sort_values("units")
            _draw(ax, curve, colour, marker, f"first units by {ranking}")
        name = (look or Look()).shown(str(part["name"].iloc[0]))
        how = f"layer {part['layer_name'].iloc[0]}"
        dress(ax, part, ylabel=metric_title(str(part["metric"].iloc[0])), how=f"{name}, {how}" if several else how,
              look=look)  # fmt: skip
        _sizes(ax, sorted({int(k) for k in part["units"]}))
    return figure


def _draw(ax: Axes, curve: pd.DataFrame, colour: str, marker: str, label: str) -> None:
    k = curve["units"].to_numpy(dtype=float)
    value, low, high = (curve[c].to_numpy(dtype=float) for c in ("value", "ci_low", "ci_high"))
    arms = np.where(np.isfinite(low), [value - low, high - value], 0).clip(min=0)
    ax.errorbar(k, value, yerr=arms, fmt="none", ecolor=colour, elinewidth=0.8)
    ax.plot(k, value, color=colour, marker=marker, markersize=4, label=label, zorder=CURVES)


def _sizes(ax: Axes, ks: list[int]) -> None:
    """The horizontal axis: some of the numbers of units, so that their names do not meet."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    step = -(-len(ks) // max(2, int(2.2 * width_of(ax))))
    shown = [*ks[:-1][::step], ks[-1]]
    if len(shown) > 2 and ks[-1] / shown[-2] < 2**step:
        del shown[-2]
    ax.set_xticks(shown, [f"{k:,}" for k in shown])
    ax.set_xlabel("Units", fontsize=9, color=INK)


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = unit_values(rows, options.layer)
    yield f"{metrics_of(values)}."
    yield from by_task(values, look)
    yield f"Probes on the first units by {listed(dict.fromkeys(values['estimator']))}, ranked on train alone."
    if values["ci_low"].notna().any():
        yield f"Bars: {look.interval}s over examples."
    if (values["target"] == "random").any():
        yield f"Grey: as many random units, {values['draws'].max():.0f} draws, their mean and 95 % of them."
    yield f"Dashed: the last units by {values['estimator'].iloc[0]}."
    if values["chosen"].any():
        yield "The layer with the largest difference between first and random units, on the evaluated examples."


FIGURE = FigureKind(
    head="What the first units of a layer hold, against their number.",
    draw=unit_panels,
    caption=caption,
    of_rows=("models", "variants"),
)
