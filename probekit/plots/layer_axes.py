"""Layer curves on Axes: lines, bands, markers and crosses of curve_rows, and a strip of statistics below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.curves import CurveStyles, curves
from probekit.plots.files import hover, in_words
from probekit.plots.look import GREYS, INK, Look, metric_title, reference_title
from probekit.plots.noise import HOLLOW, NOT_ABOVE, REACHES_CONTROL, one_sided
from probekit.plots.panels import Scale, bare, dress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

STATISTICS = {
    "best-layer": "best layer",
    "first-good-layer": "first good layer",
    "centre-of-gravity": "centre of gravity",
    "expected-layer": "expected layer",
}
"""In the order from top to bottom."""
HEIGHT = 0.6
"""Height of the strip in inches."""


def draw_summary(ax: Axes, summary: pd.DataFrame, rows: pd.DataFrame, styles: CurveStyles) -> None:
    """Draw a strip under ``ax`` with its layer axis: one line per statistic, one marker with its interval per curve.

    Parameters
    ----------
    ax : Axes
        Axes of the curves.
    summary : DataFrame
        Rows of :func:`probekit.summary`, as :func:`probekit.plots.curves.plot_rows` returns them. Other curves are
        ignored, and undetermined statistics have no marker.
    rows : DataFrame
        Rows of the curves.
    styles : CurveStyles
        Styles of the figure.

    Raises
    ------
    UsageError
        For other rows, and if no row matches the curves.
    """
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    corner: Any = ax.transAxes
    inches: Any = ax.figure.dpi_scale_trans
    under = blended_transform_factory(corner, inches + ScaledTranslation(0, 0, corner))
    strip = ax.inset_axes((0, -HEIGHT - 0.06, 1, HEIGHT), transform=under, sharex=ax)
    for key, part in summary_rows(summary, rows):
        style = styles.style[styles.called(key)]
        y, x, low, high = (part[c].to_numpy(dtype=float) for c in ("line", "value", "ci_low", "ci_high"))
        strip.hlines(y, np.fmin(low, x), np.fmax(high, x), color=style["color"], linewidth=1.1)
        strip.plot(x, y, linestyle="none", marker=style["marker"], markersize=3.2, color=style["color"])
    place = ax.get_subplotspec()
    strip.set_yticks(range(len(STATISTICS)), STATISTICS.values() if place is None or place.is_first_col() else [""] * 4)
    strip.set_ylim(len(STATISTICS) - 0.5, -0.5)
    bare(strip, ("bottom",))
    strip.tick_params(axis="y", length=0, labelsize=7)
    ax.tick_params(axis="x", labelbottom=False)
    ax.xaxis.set_label_coords(0.5, -HEIGHT - 0.3, transform=under)


def summary_rows(summary: pd.DataFrame, rows: pd.DataFrame) -> list[tuple[dict[str, str], pd.DataFrame]]:
    """The statistics of each curve of ``rows``, with the place of each on the strip in a column ``line``."""
    if "of_metric" not in summary:
        raise UsageError("these rows are not a summary of curves; expected rows of probekit summary.")
    same = (summary["task"] == rows["task"].iloc[0]) & (summary["of_metric"] == rows["metric"].iloc[0])
    summary = summary[same & summary["metric"].isin(list(STATISTICS))]
    there = [key for key, _ in curves(rows)]
    found = [(key, part.dropna(subset="value")) for key, part in curves(summary) if key in there]
    if not found:
        raise UsageError(f"the summary has no rows of {rows['metric'].iloc[0]} on {rows['task'].iloc[0]}.")
    order = list(STATISTICS).index
    beside = [0.6 * ((i + 0.5) / len(found) - 0.5) for i in range(len(found))]
    return [
        (key, part.assign(line=part["metric"].map(order).astype(float) + shift))
        for (key, part), shift in zip(found, beside, strict=True)
    ]


BAND: dict[str, Any] = {"facecolor": "0.92", "linewidth": 0}
EDGE: dict[str, Any] = {"color": "0.62", "linewidth": 0.7, "zorder": 2.9}
"""The edge of a noise band, drawn over the intervals, so that the band itself can be light."""
OWNED: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (2.5, 1.2))}
"""The edge of the noise band of one of several curves, in the colour of the curve."""
TINT = 0.2
"""Opacity of a band of intervals."""
BANDS: dict[str, dict[str, Any]] = {
    "control-task": {"facecolor": "none", "edgecolor": "#8C8C8C", "hatch": "/////", "linewidth": 0}
}
BESIDE: dict[str, Any] = {"facecolor": "none", "edgecolor": "#B0B0B0", "hatch": "....", "linewidth": 0}
"""Probes of shuffled labels beside permuted labels."""
LINE: dict[str, Any] = {"linestyle": (0, (3, 1.5)), "linewidth": 1.0}
LINES: dict[str, dict[str, Any]] = {
    "majority": {"linestyle": (0, (1, 2)), "linewidth": 1.0},
    "chance": {"linestyle": (0, (1, 2)), "linewidth": 1.0},
    "mean": {"linestyle": (0, (1, 2)), "linewidth": 1.0},
    "bag-of-pieces": {"linestyle": (0, (7, 2, 1.5, 2)), "linewidth": 1.0},
    "tf-idf-of-pieces": {"linestyle": (0, (3, 1.5, 1, 1.5)), "linewidth": 1.2, "color": GREYS[2]},
    "length": {"linestyle": (0, (8, 8)), "linewidth": 0.8, "color": GREYS[0]},
    "cosine": {"linestyle": (0, (5, 1.5)), "linewidth": 1.6},
}
CODES: dict[str, dict[str, Any]] = {
    "uniform": {"color": INK, "linestyle": (0, (1, 2)), "linewidth": 1.0},
    "prior": {"color": INK, "linestyle": (0, (5, 2)), "linewidth": 1.0},
}
"""Codes without vectors."""
INTERVAL = ("value", "ci_low", "ci_high")
UNDETERMINED = "undetermined (possible values)"
SMALL = 0.01  # bits
BANDS_OF, BARS_OF = "_bands", "_bars"
"""Labels of intervals; matplotlib leaves labels that begin with _ out of legends."""


def draw_layers(
    ax: Axes,
    points: pd.DataFrame,
    styles: CurveStyles,
    *,
    summary: pd.DataFrame | None = None,
    look: Look | None = None,
    how: str = "",
) -> None:
    """Draw a table of :func:`probekit.plots.layers.curve_rows` into ``ax``.

    Parameters
    ----------
    summary : pd.DataFrame, optional
        Summary statistics of the curves, drawn in a strip below.
    look : Look, optional
        Names, and coverage of the intervals.
    how : str
        What stands below the title, in place of the estimator or the reference.
    """
    look = look or Look()
    metric, scale = metric_called(str(points["metric"].dropna().iloc[0])), Scale.of(points, ax)
    gold = points[points["role"] == "curve"]
    named = list(dict.fromkeys(gold["label"]))
    trained = gold.loc[~gold["random"].astype(bool), "label"].nunique()
    crowded = trained > 2 or len(named) > 3  # too many overlapping bands to distinguish
    if hides_random(gold):
        gold = gold.assign(**{c: gold[c].mask(gold["random"].astype(bool)) for c in ("ci_low", "ci_high")})
    series = [curve for _, curve in gold.groupby("series", sort=False)]
    for curve in series:
        label = str(curve["label"].iloc[0])
        shift = crowded * min(0.12, 0.3 / len(named)) * (named.index(label) - (len(named) - 1) / 2)
        at, of = scale.at(curve) + shift, styles.style[label]
        marked = scale.shrinks and crowded
        _draw_curve(ax, curve, at, scale.sized(of), banded=not crowded, label=f"_{label}" if marked else label)
        if marked:
            _draw_landmarks(ax, curve, at, of, named.index(label) / len(named))
    _name_intervals(ax, look)
    controls = points[points["role"] == "control"]
    beside = bool((controls["target"] == "permuted").any())
    for _, band in controls.groupby("series", sort=False):
        owner = styles.style.get(str(band["owner"].iloc[0]), {}).get("color") if len(named) > 1 else None
        _draw_control(ax, band, scale, look, beside=beside, owner=owner)
    _draw_undetermined(ax, [(styles.style[curve["label"].iloc[0]], curve) for curve in series], scale)
    for _, row in points[points["role"] == "line"].iterrows():
        ax.axhline(row["value"], zorder=1.7, label=row["label"], **{"color": INK, **LINES.get(row["name"], LINE)})
    if metric.derived:
        ax.axhline(0, color=INK, linewidth=0.9, zorder=1)
    information, estimators = metric.name == "mutual-information", gold["estimator"].unique()
    if information:  # the axis starts at 0, and values close to 0 look small
        ax.update_datalim([(0, 0), (0, SMALL)])
    bound = information and "shown_high" in gold and gold["shown_high"].notna().any()
    title = metric_title(metric.name).replace(" (", ",\nlower bound (") if bound else metric_title(metric.name)
    one = look.shown(str(estimators[0])) if information and len(estimators) == 1 else ""
    dress(ax, points, ylabel=title, how=how or one or reference_title(gold, look), look=look)
    scale.set(ax)
    if (end := far_noise(points)) is not None:
        low, high = ax.get_ylim()
        ax.set_ylim((low, min(high, end)) if metric.sign < 0 else (max(low, end), high))
    if summary is not None:
        draw_summary(ax, summary, gold, styles)


def far_noise(points: pd.DataFrame) -> float | None:
    """Where the axis ends before permuted labels that are so much worse that they would squash the curves, or None."""
    sign = metric_called(str(points["metric"].dropna().iloc[0])).sign
    noise = (points["role"] == "control") & (points["target"] == "permuted")
    shown, far = (points.loc[some, [*INTERVAL]].to_numpy(dtype=float) * sign for some in (~noise, noise))
    if not sign or not np.isfinite(shown).any() or not np.isfinite(far).any():
        return None
    end = np.nanmin(shown) - 0.5 * (np.nanmax(shown) - np.nanmin(shown))
    return float(sign * end) if np.nanmin(far) < end else None


def hides_random(gold: pd.DataFrame) -> bool:
    """Whether a panel has no room for the intervals of random weights."""
    return bool(gold["random"].any()) and gold["label"].nunique() > 4


def _draw_curve(
    ax: Axes, curve: pd.DataFrame, at: np.ndarray, style: Mapping[str, Any], *, banded: bool, label: str
) -> None:
    """at : positions of the layers; banded : whether intervals are a band, or bars"""
    dashed, colour = style["linestyle"] != "-", style["color"]
    points, zorder = {**style, "linestyle": "none", "markeredgecolor": colour}, 4 if dashed else 5
    if curve["one_of_seeds"].any():  # intervals would hide the spread of the seeds
        curve = curve.assign(ci_low=np.nan, ci_high=np.nan)
    order = np.argsort(at)
    curve = curve.iloc[order]
    if "shown_high" in curve:  # ci_high is the largest possible value
        curve = curve.assign(ci_high=curve["shown_high"].astype("float64").fillna(curve["ci_high"]))
    x, y, low, high = (np.asarray(v, dtype=float) for v in (at[order], *(curve[c] for c in INTERVAL)))
    through = curve["layer"].notna().to_numpy(dtype=bool)  # final_norm is not a block: it is drawn apart
    words = np.array(in_words(curve), dtype=object)
    line = ax.plot(x[through], y[through], label=label, zorder=zorder, **{**style, "markeredgecolor": colour})
    hover(line, words[through])
    hover(ax.plot(x[~through], y[~through], zorder=zorder, **points), words[~through])
    known = np.isfinite(y)
    inside = through & known & np.isfinite(low) & (banded and not dashed)  # a grey band would look like noise
    alone = ~inside | ~(np.roll(inside, 1) & (x != x[0]) | np.roll(inside, -1) & (x != x[-1]))
    edged: dict[str, Any] = {"facecolor": (colour, TINT), "edgecolor": (colour, 0.6), "linewidth": 0.5}
    if inside.any():
        ax.fill_between(x, low, high, where=inside, zorder=zorder - 2.3, label=BANDS_OF, **edged)
    bars = known & alone & np.isfinite(low)
    if bars.any():
        thin = min(0.8, 0.2 * style["markersize"])
        ax.vlines(x[bars], low[bars], high[bars], color=colour, linewidth=thin, zorder=zorder - 1, label=BARS_OF)
    for why in (NOT_ABOVE, HOLLOW, REACHES_CONTROL):
        if (some := (curve["hollow"] == why).to_numpy(dtype=bool)).any():
            white: dict[str, Any] = {"markerfacecolor": "white"}
            if why == REACHES_CONTROL:  # half-filled: above noise, but possibly memorised
                white = {"fillstyle": "bottom", "markerfacecoloralt": "white"}
            if why == REACHES_CONTROL or "markerfacecolor" not in style:  # not all are hollow
                hover(ax.plot(x[some], y[some], zorder=zorder + 0.5, **{**points, **white}), words[some])
            label = why.replace("corrected ", "")
            ax.plot([], [], "o", color="#7F7F7F", markersize=4.5, zorder=1.65, label=label, **white)


def _draw_landmarks(ax: Axes, curve: pd.DataFrame, at: np.ndarray, style: Mapping[str, Any], start: float) -> None:
    """Markers of full size at a few layers of a curve, which tell curves apart where the others are small.

    start : where they begin, as a share of the distance from one to the next, so that those of curves alternate
    """
    curve, every = curve.assign(at=at).sort_values("at"), max(2, len(curve) // 4)
    hollow = curve["hollow"].isin([NOT_ABOVE, HOLLOW]).to_numpy(dtype=bool)
    ax.plot([], [], label=str(curve["label"].iloc[0]), zorder=5, **style)  # for the legend
    own = {**style, "linestyle": "none", "markeredgecolor": "white", "markeredgewidth": 0.5, "zorder": 5.8}
    ring = {"markerfacecolor": "white", "markeredgecolor": style["color"]}
    for some, face in ((~hollow, {}), (hollow, ring)):
        places = [i for i in range(int(start * every), len(curve), every) if some[i]]
        if places:
            ax.plot(curve["at"].iloc[places], curve["value"].iloc[places], **{**own, **face})


def _name_intervals(ax: Axes, look: Look) -> None:
    """One entry for all intervals, bands and bars."""
    from matplotlib.container import Container
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn = {str(c.get_label()): c for c in reversed(ax.collections) if c.get_label() in (BANDS_OF, BARS_OF)}
    marks: list[Any] = []
    if BANDS_OF in drawn:
        band: Any = drawn[BANDS_OF]
        marks.append(Patch(facecolor=band.get_facecolor()[0], edgecolor=band.get_edgecolor()[0], linewidth=0.5))
    if BARS_OF in drawn:
        colour: Any = drawn[BARS_OF].get_edgecolor()
        marks.append(Line2D([], [], color=colour[0], marker="|", markersize=8, linestyle="none"))
    if marks:
        marks[-1].set_zorder(3.5)
        ax.add_container(Container(marks, label=look.interval))


def _draw_undetermined(ax: Axes, gold: Sequence[tuple[Mapping[str, Any], pd.DataFrame]], scale: Scale) -> None:
    """Draw layers without a value but with an interval; possible values widen the axes only if no layer has a value.

    Their crosses are on the bottom line, which is not a value.
    """
    from matplotlib.collections import LineCollection

    widen = not any(curve["value"].notna().any() for _, curve in gold)
    for i, (style, curve) in enumerate(gold):
        curve = curve[curve["value"].isna() & curve["ci_low"].notna()]
        if curve.empty:
            continue
        x, low, high = scale.at(curve) + 0.1 * (i - (len(gold) - 1) / 2), curve["ci_low"], curve["ci_high"]
        ends = np.stack([np.stack([x, low], 1), np.stack([x, high], 1)], 1)
        dotted = LineCollection(list(ends), colors=style["color"], linestyles=":", linewidths=1.0, zorder=3)
        ax.add_collection(dotted, autolim=widen)
        cross: dict[str, Any] = {"marker": "x", "markersize": 4.5, "zorder": 6}
        bottom: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot(x, np.zeros(len(x)), color=style["color"], linestyle="none", **bottom, **cross)
        ax.plot([], [], color="#7F7F7F", linestyle=":", label=UNDETERMINED, **{**cross, "zorder": 2.9})
    if widen and gold:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        words: dict[str, Any] = {"fontsize": 8, "color": INK, "ha": "center", "va": "center", "zorder": 7, "bbox": box}
        ax.text(0.5, 0.5, "undetermined\nat every layer", transform=ax.transAxes, **words)


def _draw_control(ax: Axes, band: pd.DataFrame, scale: Scale, look: Look, *, beside: bool, owner: str | None) -> None:
    """beside : whether the noise is another control, which the band must not hide; owner : the colour of its curve"""
    from matplotlib.container import Container
    from matplotlib.patches import Patch

    kind = str(band["target"].iloc[0])
    style = BESIDE if kind == "shuffled" and beside else BANDS.get(kind, BAND)
    band = band.sort_values("layer")
    through = band[band["layer"].notna()]
    x, low, high = scale.at(through), through["ci_low"], through["ci_high"]
    words, marks, known = str(band["label"].iloc[0]), list[Any](), low.notna().any()
    if known:
        marks.append(ax.fill_between(x, low, high, zorder=1.5, **style))
        one = one_sided(band)
        edge = {**EDGE, **(OWNED if owner else {})}
        for end in (low, high):
            if not (owner and one and np.array_equal(end, through["value"], equal_nan=True)):  # the mean is no edge
                ax.plot(x, end, **edge | {"color": owner or EDGE["color"]})
        marks.append(Patch(facecolor="none", edgecolor=edge.pop("color"), **edge | {"zorder": 1.5}))
        ends = "mean to p = 0.05" if (band["analysis"] == "probe").all() else "mean to 97.5 %"
        outer = ends if one else look.middle
        words = f"{words}: {'range of draws' if band['of_draws'].iloc[0] else outer}"
    if (code := CODES.get(str(band["target"].iloc[0]))) or not known:
        marks += ax.plot(x, through["value"], zorder=1.6, **(code or {"color": "#8C8C8C", "linewidth": 0.8}))
    ax.add_container(Container(marks, label=words))
    for _, row in band[band["layer"].isna()].iterrows():
        wide = scale.place(row["layer_name"]) + min(0.45, 0.75 * scale.room) * np.array([-1, 1])
        ax.fill_between(wide, row["ci_low"], row["ci_high"], zorder=1.5, **style)
