"""Maps of layers for papers: the points of a scene, coloured by a label, a prediction or a number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError, did_you_mean
from probekit.plots.legends import add_legend, narrower, wrapped
from probekit.plots.look import COLOURS, GREYS, INK, MARKERS, Look
from probekit.plots.panels import bare, fitting, grid, width_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR_BY = ("label", "prediction", "error", "confidence", "movement", "length", "domain", "cluster", "none")
NUMBERS = ("confidence", "movement", "length")
PANEL, HEIGHT = 2.9, 2.9
"""Natural size of a panel in inches."""
MANY = 2000
"""With more points they are a bitmap in vector formats, which would be large and slow."""
MOST = len(COLOURS)
"""Number of categories with a colour; the rest are grey."""


def map_points(
    source: Any, layer: int | str | None = None, *, side: int = 0, colour: str = "label", method: str = "pca"
) -> pd.DataFrame:
    """The points that :func:`layer_map` draws: id, x, y and value.

    Parameters
    ----------
    source : Scene, DataFrame or path
        A scene, or a table with x, y and a column for the colour, as :meth:`Scene.to_parquet` writes it.
    layer : int or str, optional
        Name or number of the layer; not for a table, which has one.
    side : int
        Position of the model in the scene.
    colour : str
        One of :data:`COLOUR_BY`; for a table the name of a column.
    method : str
        The map: "pca", "tsne", "umap" or "lda".

    Returns
    -------
    DataFrame
        ``value`` holds names of categories (text) or numbers; None or NaN where there is none.

    Raises
    ------
    UsageError
        If the scene does not have the layer, the map or the values.
    """
    import pandas as pd

    if isinstance(source, str | Path):
        source = pd.read_parquet(source)
    if isinstance(source, pd.DataFrame):
        if missing := [name for name in ("x", "y", colour) if name not in source and name != "none"]:
            raise UsageError(f"the table has no column {missing[0]!r}; it has {', '.join(map(str, source.columns))}.")
        points = source[["x", "y"]].assign(id=source.get("id", pd.Series(range(len(source)))).astype(str))
        return points.assign(value=None if colour == "none" else source[colour])
    if colour not in COLOUR_BY:
        raise UsageError(f"colour is {colour!r}; {did_you_mean(colour, COLOUR_BY)}")
    if layer is None:
        raise UsageError(f"name the layer; the scene has {', '.join(source.layers)}.")
    at, shown = source.position(layer), _side(source, side)
    if method not in shown.maps:
        raise UsageError(f"the scene has no {method} map; it has {', '.join(shown.maps)}. Give it as projection.")
    xy = shown.maps[method].xy[at]
    return pd.DataFrame({"id": source.ids, "x": xy[:, 0], "y": xy[:, 1], "value": _values(source, side, at, colour)})


def _side(scene: Any, side: int) -> Any:
    if not 0 <= side < len(scene.sides):
        raise UsageError(f"there is no side {side}; the scene has {len(scene.sides)}, numbered from 0.")
    return scene.sides[side]


def _values(scene: Any, side: int, at: int, colour: str) -> Any:
    """The values that colour the points."""
    shown = scene.sides[side]
    if (
        colour in ("prediction", "error", "confidence")
        and getattr(shown, colour.replace("error", "prediction")) is None
    ):
        raise UsageError(f"there are no predictions for {shown.name}; give the rows of probekit probe.")
    if colour == "movement" and scene.movement is None:
        raise UsageError("movement needs two models with vectors of the same width.")
    if colour == "cluster" and shown.clusters is None:
        raise UsageError("the scene has no clusters; make it with clusters='kmeans'.")
    if colour == "domain" and scene.domains is None:
        raise UsageError("the examples have no domains.")
    numbers = scene.labels.dtype.kind == "f"
    match colour:
        case "label" | "prediction":
            values = scene.labels if colour == "label" else shown.prediction[at]
            return values if numbers else _names(scene, values)
        case "error":
            if numbers:
                return np.abs(shown.prediction[at] - scene.labels)
            known = (scene.labels >= 0) & (shown.prediction[at] >= 0)
            right = np.where(shown.prediction[at] == scene.labels, "right", "wrong").astype(object)
            right[~known] = None
            return right
        case "confidence":
            return shown.confidence[at]
        case "movement":
            return scene.movement[max(side - 1, 0), at]
        case "length":
            return scene.lengths
        case "domain":
            return scene.domains.astype(object)
        case "cluster":
            return np.array([None if c < 0 else f"cluster {c + 1}" for c in shown.clusters[at].tolist()], dtype=object)
        case _:
            return np.full(len(scene.ids), None, dtype=object)


def _names(scene: Any, codes: np.ndarray) -> np.ndarray:
    return np.array([None if c < 0 else scene.label_names[c] for c in codes.tolist()], dtype=object)


def layer_map(
    source: Any,
    layer: int | str | None = None,
    *,
    side: int = 0,
    colour: str = "label",
    method: str = "pca",
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the points of a layer, coloured by a label, a prediction or a number.

    Categories differ in colour and marker; wrong predictions are crosses. The scale is the same on both axes, and the
    line below says what the map keeps: its share of the variance, trustworthiness and continuity.

    Parameters
    ----------
    source, layer, side, colour, method
        As for :func:`map_points`.
    limits : tuple of float, optional
        Ends of the colour scale of a number; by default those of the values.
    ax : Axes, optional
        Axes to draw into; by default those of a new figure. Nothing is shown or saved.

    Returns
    -------
    Axes
        The Axes with the map.
    """
    own = ax is None
    if ax is None:
        ax = grid(1, 1, HEIGHT, PANEL + 0.4, PANEL)[1][0, 0]
    points = map_points(source, layer, side=side, colour=colour, method=method)
    drawn = _draw(ax, points, limits, colour, _order(points["value"]))
    title, below = _words(source, layer, side, method)
    room = width_of(ax) - (0.5 if drawn is not None else 0.1)
    title = wrapped(title, room, 9, "bold")
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK, parse_math=False)
    ax.set_xlabel(wrapped(below, room, 7), fontsize=7, color="#555555", loc="left", parse_math=False)
    if own and drawn is not None:
        _bar(ax, drawn, colour)
    elif own:
        handles, names = ax.get_legend_handles_labels()
        add_legend(ax.figure, dict(zip(names, handles, strict=True)), Look())
    return ax


def map_panels(
    scene: Any,
    layers: int | str | Sequence[int | str],
    *,
    sides: Sequence[int] | None = None,
    colour: str = "label",
    method: str = "pca",
    width: float | None = None,
    legend: Any = "below",
) -> Figure:
    """Maps side by side: a line of panels for each layer, a panel for each model; each panel has its own scale.

    In a narrow figure the models are below each other.

    Parameters
    ----------
    scene : Scene
        The scene.
    layers : int, str or sequence
        Names or numbers of layers.
    sides : sequence of int, optional
        Positions of the models; by default the first and the last.
    colour, method
        As for :func:`map_points`.
    width : float, optional
        Width of the figure in inches.
    legend : "below", "right" or "none"
        Position of the legend.

    Returns
    -------
    Figure
        Save it with :func:`probekit.plots.files`.
    """
    chosen = [layers] if isinstance(layers, int | str) else list(layers)
    sides = sorted({0, len(scene.sides) - 1}) if sides is None else list(sides)
    if not chosen or not sides:
        raise UsageError("name at least one layer and one side.")
    look = Look(legend=legend)
    cells = [(layer, side) for layer in chosen for side in sides]
    values = [map_points(scene, layer, side=side, colour=colour, method=method)["value"] for layer, side in cells]
    numeric = values[0].dtype.kind in "fiu"
    limits = None
    if numeric:
        every = np.concatenate([v.to_numpy(dtype=float) for v in values])
        limits = (float(np.nanmin(every)), float(np.nanmax(every))) if not np.isnan(every).all() else None
    width = narrower(width, look)
    columns = fitting(len(sides), width, PANEL)
    height = HEIGHT if width is None else min(HEIGHT, width / columns + 0.35)
    figure, axes = grid(len(cells), columns, height, width, PANEL)
    named: dict[str, Any] = {}
    for ax, (layer, side) in zip(axes.ravel(), cells, strict=False):
        layer_map(scene, layer, side=side, colour=colour, method=method, limits=limits, ax=ax)
        handles, names = ax.get_legend_handles_labels()
        named |= dict(zip(names, handles, strict=True))
    if numeric:
        _bar([ax for ax in axes.ravel() if ax.figure is not None], axes[0, 0].collections[-1], colour)
    else:
        add_legend(figure, named, look)
    return figure


def _order(values: pd.Series) -> list[str]:
    """Categories: right before wrong, otherwise by name."""
    if values.dtype.kind in "fiu":
        return []
    return sorted({str(v) for v in values if v is not None and v == v})


def _draw(ax: Axes, points: pd.DataFrame, limits: tuple[float, float] | None, colour: str, names: Sequence[str]) -> Any:
    """Draw the points; returns the artist with the colour scale of numbers, None for categories."""
    n = len(points)
    shuffled = points.iloc[np.random.default_rng(0).permutation(n)]  # so that no category covers another
    size = float(np.clip(6000 / n, 3, 22))
    style: dict[str, Any] = {"linewidths": 0, "alpha": 0.75 if n < MANY else 0.55, "rasterized": n > MANY}
    x, y, value = shuffled["x"].to_numpy(), shuffled["y"].to_numpy(), shuffled["value"]
    drawn = None
    if value.dtype.kind in "fiu":
        numbers = value.to_numpy(dtype=float)
        known = ~np.isnan(numbers)
        ax.scatter(x[~known], y[~known], s=size, color=GREYS[1], **style)
        low, high = limits or (None, None)
        drawn = ax.scatter(x[known], y[known], s=size, c=numbers[known], cmap="viridis", vmin=low, vmax=high, **style)
    else:
        texts = np.array([None if v is None or v != v else str(v) for v in value], dtype=object)
        _categories(ax, x, y, texts, colour, names, size, style)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])
    bare(ax, ("left", "bottom", "right", "top"))
    return drawn


def _categories(
    ax: Axes,
    x: np.ndarray,
    y: np.ndarray,
    texts: np.ndarray,
    colour: str,
    names: Sequence[str],
    size: float,
    style: Any,
) -> None:
    """Draw categories in alternating slices, so that none covers another, and one legend entry each."""
    looks: dict[Any, dict[str, Any]] = {None: {"color": GREYS[1], "marker": "."}}
    for i, name in enumerate(names):
        named = {"color": COLOURS[i], "marker": MARKERS[i]} if i < MOST else {"color": GREYS[0], "marker": "."}
        looks[name] = named
    if colour == "error":
        looks |= {"right": {"color": GREYS[1], "marker": "o"}}
        looks |= {"wrong": {"color": COLOURS[1], "marker": "x", "linewidths": 0.9, "alpha": 1.0}}
    for part in np.array_split(np.arange(len(x)), 8):
        for name, look in looks.items():
            at = part[texts[part] == name] if name is not None else part[[t is None for t in texts[part]]]
            if len(at):
                ax.scatter(x[at], y[at], s=size, **(style | look))
    for i, name in enumerate(names):
        label = name if i < MOST or colour == "error" else "other"
        full = {k: v for k, v in looks[name].items() if k != "alpha"}
        ax.scatter([], [], s=22, label=label, zorder=9, **({"linewidths": 0} | full))
    if any(t is None for t in texts) and names:
        ax.scatter([], [], s=22, label="none", zorder=8, linewidths=0, **looks[None])


def _words(source: Any, layer: Any, side: int, method: str) -> tuple[str, str]:
    """The title of a panel, and the line below it."""
    if not hasattr(source, "sides"):
        return "", ""
    at, shown = source.position(layer), source.sides[side]
    found = shown.maps[method]
    kept = f"trustworthiness {found.trustworthiness[at]:.2f}; continuity {found.continuity[at]:.2f}"
    match method:
        case "pca":
            share = np.nansum(found.explained[at])
            first = f"PCA: {100 * share:.0f} % of the variance; {kept}"
        case "lda":
            one = found.note.startswith("The horizontal axis")
            axes = "The horizontal axis separates" if one else "The axes separate"
            first = f"{axes} the labels (fitted on train); {kept}"
        case _:
            names = {"tsne": "t-SNE", "umap": "UMAP"}
            first = f"{names.get(method, method)}; {kept}; distances between clusters mean nothing here"
    return f"{shown.name}: layer {shown.layers[at]}", first


def _bar(ax: Any, drawn: Any, colour: str) -> None:
    """The colour scale of numbers."""
    figure = drawn.figure
    bar = figure.colorbar(drawn, ax=ax, fraction=0.046, pad=0.02)
    bar.solids.set_alpha(1)
    bar.outline.set_visible(False)
    bar.set_label(colour, fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=7, colors=INK, length=2)
