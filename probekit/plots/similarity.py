"""Similarity of layers as heat maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import metrics_of, sizes_of, widest
from probekit.plots.curves import check_metric, of_analyses, of_one, plot_rows
from probekit.plots.heat import add_bars
from probekit.plots.legends import wrapped
from probekit.plots.look import INK, Look, metric_title
from probekit.plots.matrix import (
    axes_or_new,
    colour_bar,
    draw_cells,
    hatch_cells,
    set_line_height,
    thinned,
    write_cells,
)
from probekit.plots.options import FigureKind
from probekit.plots.panels import dress, panels, width_of
from probekit.rows import called, layer_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from probekit.plots.options import PlotOptions

WRITTEN = 13  # layers, up to which the cells show numbers
HIGH, LOW = 2.2, 1.1  # inches of a map
FEW = 4  # panels that are large
NOT_SHOWN = "not shown to be more alike than chance"
PAIR = ("model", "checkpoint", "step", "representation", "model_b", "checkpoint_b", "step_b", "representation_b")


def similarity_matrix(rows: Any, *, metric: str | None = None, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """Draw the similarity of all pairs of layers of two models as a heat map.

    Layers of the first model are on the vertical axis, those of the second on the horizontal one. The colour scale is
    fixed to 0 to 1, so that figures can be compared; negative values have the colour of 0. Pairs with p_adjusted above
    ``level`` are hatched: they are not shown to be more alike than chance.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.similarity` for one pair of caches.
    metric : str, optional
        By default the first in the rows.
    level : float
        Threshold for the p-value.
    ax : Axes, optional
        Axes to draw into, part of which becomes a colour bar; by default those of a new figure. Nothing is shown or
        saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If the rows have several pairs of models, or lack the measure.
    """
    rows = of_similarity(plot_rows(rows), metric)
    if (many := rows["panel"].unique()).size > 1:
        raise UsageError(
            f"similarity_matrix draws one pair of models, but the rows have {many.size}; use similarity_panels, or "
            "probekit plot similarity."
        )
    ax = axes_or_new(ax, 3.6, 3.2)
    colour_bar(_draw_matrix(ax, rows, level, Look()), metric_title(str(rows["metric"].iloc[0])))
    return ax


def similarity_panels(
    rows: Any,
    *,
    metric: str | None = None,
    level: float = 0.05,
    columns: int = 3,
    width: float | None = None,
    look: Look | None = None,
) -> Figure:
    """Plot the similarity of all pairs of layers as heat maps, one panel per pair of models and measure.

    The layers of the first model are on the vertical axis. The colour scale is fixed to 0 to 1. Hatched cells are not
    shown to be more alike than chance (p > 0.05, corrected over all pairs of layers). probekit plot layers draws the
    same layers of both models as a curve, and probekit plot trajectory the checkpoints of a run. Panels are in the
    order of the rows; with several pairs and measures, pairs are rows of the figure and measures its columns.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit similarity wrote (.parquet, .csv).
    metric : str, optional
        By default all measures.
    level, columns, width, look
        As in :func:`similarity_matrix` and :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Examples
    --------
    On the command line::

        probekit plot similarity similarity.parquet --out similarity.pdf
        probekit plot layers similarity.parquet --metric cka
        probekit plot trajectory steps.parquet --metric cka
    """
    found = of_similarity(of_analyses(plot_rows(rows), "similarity"), metric, every=metric is None)
    if 1 < (measures := found["metric"].nunique()) <= columns and found["pair"].nunique() > 1:  # a column for each
        order = {name: i for i, name in enumerate(found["pair"].unique())}
        found, columns = found.sort_values("pair", key=lambda pair: pair.map(order), kind="stable"), measures
    look, many = look or Look(), found["panel"].nunique() > FEW  # smaller panels, on fewer pages
    high = found["layer_name"].nunique() * _line(found, many=many)
    natural = 2.2 if many else 2.7
    figure, drawn = panels(found, columns, high + 0.7, by="panel", width=width, natural=natural, look=look)
    images = [(str(part["metric"].iloc[0]), _draw_matrix(ax, part, level, look, high)) for ax, part in drawn]
    across = len({image.axes.get_subplotspec().colspan.start for _, image in images})  # type: ignore[union-attr]
    room = figure.get_figwidth() / across - 0.45
    add_bars(figure, images, room, high)
    set_line_height(figure, images[0][1].axes, high)
    return figure


def _line(rows: pd.DataFrame, *, many: bool) -> float:
    """The height of a layer in inches."""
    layers = rows["layer_name"].nunique()
    return min(max(0.165 if many else 0.25, LOW / layers), HIGH / layers)


def similarity_caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`similarity_panels` after its first sentence."""
    rows = rows[rows["analysis"] == "similarity"]
    rows = rows[rows["metric"] == options.metric] if options.metric else rows
    models = [tuple(map(look.shown, pair)) for pair in _axis_models(rows)]
    if len(models) > 1:
        yield "Axes: the layers of the two models that their labels name."
    elif models[0][0] == models[0][1]:
        yield f"Both axes: layers of {models[0][0]}."
    else:
        yield f"Vertical axis: layers of {models[0][0]}; horizontal axis: layers of {models[0][1]}."
    yield f"Measure: {metrics_of(rows)}."
    yield from sizes_of(rows)
    yield from widest(rows, look)
    if "p_adjusted" in rows and (rows["p_adjusted"] > options.level).any():
        threshold = f"p > {options.level:g}, corrected over all pairs"
        yield f"Hatched cells: not shown to be more alike than chance ({threshold})."


def similarity_values(rows: Any, metric: str | None = None) -> dict[str, pd.DataFrame]:
    """Return the values that :func:`similarity_matrix` draws, layers by layers, by the name of the pair.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.similarity`.
    metric : str, optional
        By default the first in the rows.

    Returns
    -------
    dict of DataFrame
        Layers of the first model in rows, those of the second in columns.
    """
    found = of_similarity(plot_rows(rows), metric)
    return {str(name): _matrix(part, "value") for name, part in found.groupby("panel", sort=False)}


def of_similarity(rows: pd.DataFrame, metric: str | None, *, every: bool = False) -> pd.DataFrame:
    """Rows of similarity of one measure (or of all), with a column "panel" that names the pair of models."""
    rows = of_one(rows, "similarity", "there are no rows of probekit similarity to draw.")
    metric = metric or str(rows["metric"].iloc[0])
    check_metric(metric, rows["metric"].unique())
    rows = (rows if every else rows[rows["metric"] == metric]).assign(**{c: None for c in PAIR if c not in rows})
    found = {
        (str(task), *map(str, pair)): _both_names(dict(zip(PAIR, pair, strict=True)), run)
        for task, part in rows.groupby("task", sort=False)
        for run in (_only_tuned(part),)
        for pair in part[list(PAIR)].drop_duplicates().to_numpy().tolist()
    }
    names = [found[tuple(map(str, pair))] for pair in rows[["task", *PAIR]].to_numpy().tolist()]
    panel = [f"{model}: {a} and {b}" if model else f"{a} and {b}" if b else a for model, a, b in names]
    several = rows["metric"].nunique() > 1
    titles = [
        f"{name}, {metric_called(m).title}" if several else name for name, m in zip(panel, rows["metric"], strict=True)
    ]
    layer_b = layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"]))
    shared, of_a, of_b = ([name[i] for name in names] for i in range(3))
    return rows.assign(panel=titles, pair=panel, layer_b_name=layer_b, name_shared=shared, name_a=of_a, name_b=of_b)


def _axis_models(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """The full names of the models on the vertical and the horizontal axis, for each pair of models."""
    found = of_similarity(rows, None, every=True)[["name_shared", "name_a", "name_b"]].drop_duplicates()
    return [
        (f"{shared} ({a})", f"{shared} ({b})") if shared else (a, b or a)
        for shared, a, b in found.itertuples(index=False)
    ]


def _only_tuned(rows: pd.DataFrame) -> str:
    """The run of all fine-tuned models of the rows; "" if there is none or several, which need their names."""
    ends = [end for end in ("", "_b") if f"regime{end}" in rows]
    runs = {run for end in ends for run in rows.loc[rows[f"regime{end}"] == "fine-tune", f"checkpoint{end}"]}
    return str(runs.pop()) if len(runs) == 1 else ""


def _both_names(pair: dict[str, Any], tuned: str = "") -> tuple[str, str, str]:
    """What both models share, and the names of either: ("MiniLM", "pretrained", "step 40"); one for a model alone."""
    import pandas as pd

    a, b = ({c: None if pd.isna(v := pair[c + end]) else v for c in PAIR[:4]} for end in ("", "_b"))
    if a == b:
        return "", shown_label(called(a)), ""
    own = ["representation"] if a["representation"] == b["representation"] else []
    if a["model"] == b["model"]:
        own += ["model"] if b["checkpoint"] or b["step"] is not None else []
        if a["checkpoint"] == b["checkpoint"] and b["step"] is not None:
            own.append("checkpoint")
    if tuned:
        a, b = (one | {"checkpoint": _tuned(one)} if one["checkpoint"] == tuned else one for one in (a, b))
    first, second = (state_name({**one, **dict.fromkeys(own, "")}) for one in (a, b))
    return shown_label(str(a["model"])) if "model" in own else "", first, second


def state_name(model: dict[str, Any]) -> str:
    """The name of a model: "step 40", "random weights", "pretrained" if nothing distinguishes it."""
    return shown_label(called(model)) or "pretrained"


def _tuned(model: dict[str, Any]) -> str:
    return "before training" if model["step"] is not None and int(model["step"]) == 0 else "fine-tuned"


def _matrix(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A column of one pair of models, layers by layers."""
    import pandas as pd

    a, b = list(dict.fromkeys(rows["layer_name"])), list(dict.fromkeys(rows["layer_b_name"]))
    if rows.duplicated(["layer_name", "layer_b_name"]).any():
        raise UsageError(
            f"{rows['panel'].iloc[0]} has two values for a pair of layers; were the same rows given twice?"
        )
    cells = pd.DataFrame(np.nan, a, b)
    for i, j, value in zip(rows["layer_name"], rows["layer_b_name"], rows[column], strict=True):
        cells.loc[i, j] = value
    return cells


def _draw_matrix(ax: Axes, rows: pd.DataFrame, level: float, look: Look, high: float = HIGH) -> AxesImage:
    """high : height of the map in inches"""
    cells, metric = _matrix(rows, "value"), metric_called(str(rows["metric"].iloc[0]))
    values, wide = cells.to_numpy(dtype=float), width_of(ax) - 0.75
    limits = (0.0, 1.0 if metric.alike else float(metric.range[1]))
    image = draw_cells(ax, values, metric.name, limits=limits, from_below=True)
    cell, line = wide / values.shape[1], high / values.shape[0]
    if max(values.shape) <= WRITTEN and line > 0.12:
        write_cells(image, values, cell=cell)
    hatch_cells(ax, np.argwhere(_matrix(rows, "p_adjusted").to_numpy(dtype=float) > level), NOT_SHOWN, cell)
    dress(ax, rows, ylabel="Layer", how=look.shown(str(rows["name_shared"].iloc[0])), look=look)
    for text in ax.texts:
        text.set_in_layout(False)
    ax.grid(visible=False)
    ax.margins(0)
    a, b = (look.shown(str(rows[c].iloc[0])) for c in ("name_a", "name_b"))
    size = 9 if wide > 1.5 else 8
    ax.set_xlabel(_layer_of(b, wide + 0.25, size) if b else "Layer", fontsize=size, color=INK, parse_math=False)
    ax.set_ylabel(_layer_of(a, high, size) if b else "Layer", fontsize=size, color=INK, parse_math=False)
    for names, ticks, room in ((list(cells.columns), ax.set_xticks, cell), (list(cells.index), ax.set_yticks, line)):
        shown = ["norm" if name == "final_norm" else name for name in names]
        kept = thinned(shown, room, upright=room is cell)
        ticks(kept, [shown[i] for i in kept])
    return image


def _layer_of(model: str, room: float, size: float) -> str:
    """The label of an axis: "Layer (pretrained)", "Layer of BERT-base (uncased)", on as many lines as it needs."""
    model = model.replace("step ", "step\u00a0")
    return wrapped(f"Layer of {model}" if "(" in model else f"Layer ({model})", room, size, commas=False)


SECOND = (
    *("model", "checkpoint", "step", "representation", "trained_on", "regime", "head", "variant"),
    *("random_weights", "run_seed"),
)


def same_layers(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first model's layers and the same ones of each other model, as curves of the latter."""
    import pandas as pd

    if "layer_b" not in rows:
        return rows.iloc[:0]
    if (rows["target"] != "gold").any():  # already done for a larger table
        return rows
    key = (
        rows[["task", "model", "checkpoint", "step", "representation"]]
        .astype("string")
        .fillna("")
        .agg("|".join, axis=1)
    )
    rows = rows[key == key.groupby(rows["task"]).transform("first")]
    same = (rows["layer"].fillna(-1) == rows["layer_b"].fillna(-1)) & (rows["site"] == rows["site_b"])
    rows = rows[same.astype(bool)]
    there = [c for c in SECOND if f"{c}_b" in rows]
    found = rows.drop(columns=[c for c in ("run", "run_kind", "method", "random", "layer_name") if c in rows])
    reference = [called({**row, "representation": ""}) for row in rows.to_dict("records")]
    found = found.assign(**{c: rows[f"{c}_b"] for c in there}, reference=reference)
    noise = found.assign(
        target="permuted",
        value=found["null_mean"],
        ci_low=float("nan"),
        ci_high=found["null_high"],
        p_adjusted=float("nan"),
    )
    known = noise["null_mean"].notna()
    bottom = noise["null_low" if "null_low" in noise else "null_mean"]
    noise = noise[known].assign(ci_low=bottom.where(noise["null_high"].notna()))
    low, high = noise[["ci_low", "ci_high"]].min(axis=1), noise[["ci_low", "ci_high"]].max(axis=1)
    return plot_rows(pd.concat([found, noise.assign(ci_low=low, ci_high=high)], ignore_index=True))


SIMILARITY = FigureKind(
    head="Similarity of layers.",
    draw=similarity_panels,
    caption=similarity_caption,
    metric="Measure to plot, such as cka; by default all in the rows.",
)
