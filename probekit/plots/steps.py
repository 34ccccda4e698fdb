"""A metric by layer and training step, as a heat map: how layers change during fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.analysis import analyses
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.metrics import within
from probekit.plots.caption import compared_with, first_upper, listed, measured
from probekit.plots.curves import CURVE, INFORMATION, CurveStyles, curves, of_analyses, plot_rows
from probekit.plots.layer_axes import SMALL
from probekit.plots.layers import LAYERED, as_curves, in_metric, of_metric
from probekit.plots.legends import inches
from probekit.plots.look import INK, Look, control_title, metric_title, reference_title
from probekit.plots.matrix import colour_bar, colours_of
from probekit.plots.noise import NOT_ABOVE, controls_by_layer, not_above_noise
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import dress, legend, one_axes, panels, width_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RUN = tuple(c for c in CURVE if c not in ("step", "target"))
FINAL, MIX = "final_norm", "mix-weight"
HATCHES = ("///", 3 * "\\", "...")
POINT: dict[str, Any] = {"linestyle": "none", "color": INK, "zorder": 3.9}


def trajectory(rows: Any, *, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw a metric by layer and training step as a heat map.

    Steps are columns of equal width, whatever their spacing; layers are rows, with the embeddings at the bottom and
    ``final_norm`` on top. Step 0 is the pretrained model; if the run saved no step 0, rows of the same model without
    checkpoint and step are used. Light colours are good: the scale is reversed for metrics that are better when
    smaller. The colour scale is at least as wide as an interval or the noise band, so that noise does not fill it; for
    mix weights, equal weights are in its middle. The scale of a similarity ends at 1. A dot marks the best layer of a
    step, for metrics that have one. Cells that are not above noise are hatched, by the rule of :func:`layer_curve`,
    with the controls of each step. Undetermined cells are white with a cross; cells without rows are white.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of probes, mutual information, similarity or movement for the checkpoints of one run on one task.
    metric : str, optional
        By default the first in the rows that is not a difference.
    ax : Axes, optional
        Axes to draw into, part of which becomes a colour bar; by default those of a new figure with a legend. Nothing
        is shown or saved.

    Returns
    -------
    Axes
        The Axes with the plot.

    Raises
    ------
    UsageError
        If the rows have no steps, several tasks or runs, lack the metric, or have two values for one cell.
    """
    rows, new_figure = as_curves(plot_rows(rows)), ax is None
    ax = one_axes(rows, ax, 2.8, ("trajectory", "trajectory_panels"))
    found = _runs(of_metric(rows, metric))
    if (many := found["panel"].unique()).size > 1:
        raise UsageError(f"trajectory draws one run, but the rows are of {'; '.join(many)}; use trajectory_panels.")
    _draw(ax, found, _limits(found))
    if new_figure:
        legend(ax, below=True)
    return ax


def trajectory_panels(
    rows: Any, *, metric: str | None = None, columns: int = 3, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot a metric by layer and training step as a heat map, one panel per task and run.

    Step 0 is the pretrained model; if the run saved no step 0, rows of the pretrained model without a step are used. A
    dot marks the best layer of each step. Hatched cells are not above noise (permuted labels of probes, shuffled
    labels, permuted examples). Rows of similarity and movement show how far each layer is from the first cache.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows that probekit probe, mi, similarity or movement wrote for the checkpoints of runs (.parquet, .csv).
    metric : str, optional
        By default the first of each task.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw one :func:`trajectory` per task and run, side by side in the order of the rows.

    All maps of a metric share one colour scale, on which a dash marks the majority class of the task. Each estimator,
    pooling … of a run has its own map.

    Examples
    --------
    On the command line::

        probekit cache-activations --model RUN/step-* --task cola --split train
        probekit cache-activations --model RUN/step-* --task cola --split dev
        probekit probe 'data_cache/cola.train.*-RUN-step-*' 'data_cache/cola.dev.*-RUN-step-*' --out steps.parquet
        probekit plot trajectory steps.parquet --out trajectory.pdf
        probekit plot trajectory steps.parquet pretrained.parquet --metric log-loss
    """
    import pandas as pd

    rows = in_metric(of_analyses(plot_rows(rows), *LAYERED, "train"), metric)
    found = [_runs(part) for _, part in rows.groupby("task", sort=False)]
    rows = pd.concat(found) if found else rows
    figure, drawn = panels(rows, columns, 2.4, by="panel", width=width, natural=2.9, look=look)
    limits = {metric: _limits(part) for metric, part in rows.groupby("metric", sort=False)}
    for ax, part in drawn:
        _draw(ax, part, limits[part["metric"].iloc[0]], look)
    return figure


def trajectory_grids(rows: Any, metric: str | None = None) -> dict[str, Grid]:
    """Return the values that :func:`trajectory` draws, by the name of the run.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of one task.
    metric : str, optional
        By default the first in the rows that is not a difference.

    Returns
    -------
    dict of Grid
        Values by layer and step, and the cells that are not above noise.
    """
    return {
        str(name): Grid.of(part)
        for name, part in _runs(of_metric(as_curves(plot_rows(rows)), metric)).groupby("panel", sort=False)
    }


def _runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one task by layer that belong to runs, each with its pretrained model as step 0.

    The column "panel" names the run, "majority" is the value of the majority class, NaN if unknown.
    """
    import pandas as pd

    majority = rows.loc[(rows["layer_name"] == "") & (rows["estimator"] == "majority"), "value"].median()
    rows = rows[rows["layer_name"] != ""]
    trained = rows[rows["step"].notna() & (rows["target"] == "gold")]
    if trained.empty:
        raise UsageError(
            f"the rows of {rows['task'].iloc[0]} have no training steps. Cache the checkpoints of a run "
            "(probekit cache-activations --model RUN/step-*) and analyse those."
        )
    before_training = (rows["run"] == "") | rows["run"].str.startswith("untrained")
    plain = rows[rows["step"].isna() & before_training].assign(step=0, run="")
    pretrained = {tuple(key.values()): part for key, part in curves(plain, RUN)}
    how = ("method",) if rows["metric"].iloc[0] == INFORMATION else ()
    labelled_by = dict.fromkeys(("model", "run", *CurveStyles.of(trained, RUN).labelled_by, *how))
    found = []
    for key, run in curves(rows[rows["step"].notna()], RUN):
        before = pretrained.get(tuple((key | {"run": ""}).values()))
        if key["run"] and before is not None and not (run["step"] == 0).any():
            run = pd.concat([before.assign(run=key["run"]), run])
        found.append(run.assign(panel=CurveStyles(tuple(labelled_by), {}).label(key)))
    found = [run for run in found if (run["target"] == "gold").any()]
    return pd.concat(found).assign(majority=majority)


@dataclass(frozen=True, slots=True)
class Grid:
    """Values by layer and training step of one run.

    Attributes
    ----------
    layers, steps : list
        Names of layers from the bottom up, numbers of steps.
    value : ndarray, shape (layers, steps)
        The values; NaN if missing.
    noise : dict of ndarray
        The cells that are not above noise (bool), by the reason.
    undetermined : ndarray
        The cells with an interval but no value (bool).
    """

    layers: list[str]
    steps: list[int]
    value: np.ndarray
    noise: dict[str, np.ndarray]
    undetermined: np.ndarray

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Self:
        gold, controls = rows[rows["target"] == "gold"], controls_by_layer(rows)
        if (twice := gold.duplicated(["step", "layer_name"])).any():
            layer, step = gold.loc[twice, ["layer_name", "step"]].iloc[0]
            raise UsageError(
                f"{rows['panel'].iloc[0]} has two values for layer {layer} at step {step}; were the same rows given "
                "twice?"
            )
        layers = list(gold.sort_values("layer", na_position="last")["layer_name"].unique())
        steps = sorted(map(int, gold["step"].unique()))
        value = np.full((len(layers), len(steps)), np.nan)
        undetermined: np.ndarray = np.zeros(value.shape, dtype=bool)
        noise: dict[str, np.ndarray] = {}
        for j, step in enumerate(steps):
            curve = gold[gold["step"] == step]
            i = [layers.index(name) for name in curve["layer_name"]]
            value[i, j] = curve["value"]
            undetermined[i, j] = curve["value"].isna() & curve["ci_low"].notna()
            of_step = controls[controls["step"] == step]
            for why, cells in not_above_noise(curve, of_step, str(rows["metric"].iloc[0])).items():
                noise.setdefault(why, np.zeros(value.shape, dtype=bool))[i, j] = cells
        return cls(layers, steps, value, noise, undetermined)

    @property
    def edges(self) -> np.ndarray:
        """The edges of the layers on the axis, (layers + 1,); ``final_norm`` is high enough to be visible."""
        norm = self.layers[-1] == FINAL
        return np.cumsum([-0.5, *[1] * (len(self.layers) - norm), *[max(1, len(self.layers) / 8)] * norm])

    @property
    def at(self) -> np.ndarray:
        """The middle of each layer on the axis, (layers,)."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    def best(self, sign: int) -> tuple[list[int], list[int]]:
        """Step and layer of the best cell of each column, if any is above noise."""
        above = np.isfinite(self.value) & ~np.logical_or.reduce([*self.noise.values(), self.undetermined])
        scored = np.where(above, sign * self.value, -np.inf)
        at = [(j, int(scored[:, j].argmax())) for j in range(len(self.steps)) if above[:, j].any()]
        return [j for j, _ in at], [i for _, i in at]


def _limits(rows: pd.DataFrame) -> tuple[float, float]:
    """The ends of the colour scale: at least as far apart as an interval or the noise is wide.

    A majority class that is near the lowest value is on the scale.
    """
    gold, controls, metric = rows[rows["target"] == "gold"], controls_by_layer(rows), rows["metric"].iloc[0]
    value = gold["value"].dropna()
    if value.empty or metric == INFORMATION:
        return min((0.0, *value)), max((SMALL, *value, *controls["ci_high"].dropna()))
    if metric_called(metric).alike:
        return min((0.0, *value)), 1.0
    if metric == MIX:  # equal weights lie in the middle
        return 0.0, max(value.max(), 2 / gold["layer_name"].nunique())
    widths = [(part["ci_high"] - part["ci_low"]).median() for part in (gold, controls)]
    short = np.nanmax([*widths, 0.0]) - np.ptp(value)
    low, high = value.min() - max(short, 0) / 2, value.max() + max(short, 0) / 2
    wide, majority = high - low, rows["majority"].to_numpy(dtype=float)
    near = majority[(majority > low - 0.5 * wide) & (majority < high)] - 0.04 * wide  # seen apart from the end
    return min([low, *near]), high


def _draw(ax: Axes, rows: pd.DataFrame, limits: tuple[float, float], look: Look | None = None) -> None:
    import matplotlib as mpl

    look = look or Look()
    grid, metric = Grid.of(rows), str(rows["metric"].iloc[0])
    width = len(grid.steps)
    worse = metric_called(metric).better == "lower"
    colours = mpl.colormaps[colours_of(metric)].with_extremes(bad="white")
    edges = np.arange(width + 1) - 0.5, grid.edges
    mesh = ax.pcolormesh(*edges, np.ma.masked_invalid(grid.value), cmap=colours, vmin=limits[0], vmax=limits[1])
    mesh.set(edgecolor="face", linewidth=0.2)  # no seams in vector formats
    _hatch(ax, grid)
    best = "largest weight of the step" if metric == MIX else "best layer of the step"
    if metric == MIX or metric_called(metric).better:
        j, i = grid.best(-1 if worse else 1)
        style = POINT | {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.8, "clip_on": False}
        ax.plot(j, grid.at[i], "o", label=best, **style)
    if grid.undetermined.any():
        layers, steps = grid.undetermined.nonzero()
        ax.plot(steps, grid.at[layers], "x", markersize=3.5, markeredgewidth=0.9, label="undetermined", **POINT)
    run = look.shown(rows["panel"].iloc[0])
    compared = reference_title(rows, look)
    dress(ax, rows, ylabel="Layer", how=f"{run}, {compared}" if compared else run, look=look)
    for text in ax.texts:  # text may extend over the colour bar without narrowing the map
        text.set_in_layout(False)
    ax.grid(visible=False)
    ax.set_xlabel("Training step (not to scale)", fontsize=9, color=INK)
    ax.set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
    at, names, size = _ticks([f"{step:,}" for step in grid.steps], width_of(ax) - 1.2)
    ax.set_xticks(at, names)
    ax.tick_params(axis="x", labelsize=size)
    every = -(-len(grid.layers) // 13)
    numbers = [i for i, name in enumerate(grid.layers) if name != FINAL][::every]
    norm = [len(grid.layers) - 1] * (grid.layers[-1] == FINAL)
    ax.set_yticks(grid.at[numbers + norm], [grid.layers[i] for i in numbers] + ["norm"] * len(norm))
    bar, majority = colour_bar(mesh, metric_title(metric)), rows["majority"].iloc[0]
    if limits[0] <= majority <= limits[1]:
        for colour, line in (("white", 2.4), (INK, 1.1)):
            bar.ax.axhline(majority, color=colour, linewidth=line)
        ax.plot([], [], marker="_", label="majority class (on the colour scale)", markersize=9, **POINT)


def _hatch(ax: Axes, grid: Grid) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    for (why, cells), hatch in zip(grid.noise.items(), HATCHES, strict=True):
        if not cells.any():
            continue
        squares = [
            Rectangle((j - 0.5, grid.edges[i]), 1, grid.edges[i + 1] - grid.edges[i])
            for i, j in zip(*cells.nonzero(), strict=True)
        ]
        look: dict[str, Any] = {"edgecolor": ("white", 0.6), "hatch": hatch, "linewidth": 0}
        ax.add_collection(PatchCollection(squares, facecolor="none", zorder=2, **look))
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor="#555555", label=why, **look))  # for the legend


def _ticks(labels: Sequence[str], room: float) -> tuple[list[int], list[str], float]:
    """The first and the last label and evenly spaced ones between them that fit in ``room`` inches, with their size."""
    last = len(labels) - 1
    for every in range(1, last + 2):
        at = sorted({*range(last, -1, -every), 0})
        for size in (8, 7):
            wide = [inches(labels[i], size) + 0.04 for i in at]
            need = [(a + b) / 2 / (j - i) for a, b, i, j in zip(wide, wide[1:], at, at[1:], strict=False)]
            if not need or max(need[1:], default=0.0) <= room / len(labels):
                if need and need[0] > room / len(labels):  # the second is too near to the first
                    del at[1 if len(at) > 2 else 0]
                return at, [labels[i] for i in at], size
    return [], [], 7


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    """The caption of :func:`trajectory_panels` after its first sentence."""
    rows = in_metric(of_analyses(rows, *LAYERED, "train"), options.metric)
    yield from measured(rows[(rows["target"] == "gold") & (rows["layer_name"] != "")], look)
    grids = [grid for _, part in rows.groupby("task", sort=False) for grid in trajectory_grids(part).values()]
    reasons = {why for grid in grids for why, cells in grid.noise.items() if cells.any()}
    gold = rows[(rows["target"] == "gold") & (rows["layer_name"] != "")]
    names = gold["metric"].unique()
    better = all(metric_called(name).better for name in names)
    yield f"Light: {'better' if better else 'larger'}. Steps are evenly spaced, whatever their numbers."
    if better:
        above = " that is above noise" if reasons or gold["p_shown"].notna().any() else ""
        yield f"Dots: the best layer of each step{above}, not tested against the others."
    yield from compared_with(rows, look)
    yield from _majority(rows, look)
    wide = (gold["ci_high"] - gold["ci_low"]).groupby(gold["metric"], sort=False).median().dropna()
    if len(wide):
        widths = listed(f"{value:.2g} ({within(metric_called(name).title)})" for name, value in wide.items())
        yield f"{first_upper(look.interval)}s are not drawn; their median width is {widths}."
    if NOT_ABOVE in reasons:
        yield f"Hatched: not above noise ({_null(gold)}p > 0.05, corrected over layers and steps)."
    controls = rows.loc[rows["target"] != "gold", ["target", "analysis"]].itertuples(index=False)
    if reasons - {NOT_ABOVE}:
        yield f"Other hatching: the interval reaches {listed(control_title(*pair) for pair in controls)} (not a test)."


def _null(gold: pd.DataFrame) -> str:
    """What p is of: "permuted labels, "; "" if the analyses do not say."""
    nulls = {"probe": "permuted labels", "mi": "shuffled labels"}
    own = {name: [nulls.get(name), *known.controls.values()] for name, known in analyses().items()}
    found = listed(filter(None, (next(filter(None, own.get(name, [])), None) for name in gold["analysis"].unique())))
    return f"{found}, " if found else ""


def _majority(rows: pd.DataFrame, look: Look) -> Iterator[str]:
    values = rows[(rows["layer_name"] == "") & (rows["estimator"] == "majority")].groupby("task", sort=False)["value"]
    if known := [f"{value:.3f} ({look.task(str(task))})" for task, value in values.median().dropna().items()]:
        yield f"Majority class: {listed(known)}."


FIGURE = FigureKind(head="Results by layer and training step.", draw=trajectory_panels, caption=caption)
