"""A metric by layer, one curve a model: a panel of Figure 1 of Peters, Ruder & Smith (2019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["layer_curve", "layer_panels"]

# Okabe & Ito's palette without its yellow, told apart with every kind of colour vision; markers for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"
TITLE: dict[str, Any] = {"fontsize": 10, "fontweight": "bold", "color": INK}
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8, "labelcolor": INK}
TITLES = {
    "f1": "F1",
    "macro-f1": "Macro F1",
    "span-f1": "Span F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "Root mean squared error",
}
BASELINES = {"majority": "majority class", "mean": "mean of train"}
CURVE = ("model", "checkpoint", "step", "representation", "estimator", "target", "split", "seed")


def layer_curve(rows: pd.DataFrame, *, metric: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw ``metric`` by layer into ``ax``: one curve a model, with its interval; returns the Axes.

    rows : of one task, as :func:`probekit.probe` makes them. Rows that differ in checkpoint, representation, target …
        are curves of their own, named by what differs. Models with random weights and targets that are controls are
        dashed and grey; the constant prediction is a dotted line; ``final_norm`` stands after the last layer.
    metric : the rows' first for None. ax : a new figure's for None. Nothing is shown or saved.
    Raises UsageError where the rows hold several tasks, no such metric, or two values for one point.
    """
    rows = make_rows(rows)
    if len(tasks := rows["task"].unique()) != 1:
        raise UsageError(
            f"layer_curve draws one task, these are rows of {', '.join(tasks) or 'none'}; see layer_panels."
        )
    part, looks, own = _of_metric(rows, metric), _Looks.of(rows), ax is None
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.2, 3.2), layout="constrained")[1]
    _draw(ax, part, looks, ticks=13)
    handles, labels = ax.get_legend_handles_labels()
    if own:
        ax.get_figure(root=True).legend(handles, labels, **LEGEND, ncols=2)  # type: ignore[union-attr]
    elif len(labels) > 1:
        ax.legend(frameon=False, fontsize=8, labelcolor=INK)
    return ax


def layer_panels(rows: pd.DataFrame, *, metric: str | None = None, columns: int = 4) -> Figure:
    """One :func:`layer_curve` a task, side by side in the order of the rows, under one legend; returns the Figure.

    metric : each task's first for None
    """
    from matplotlib.figure import Figure

    rows = make_rows(rows)
    tasks = list(rows["task"].unique())
    if not tasks:
        raise UsageError("there are no rows to draw.")
    across = min(columns, len(tasks))
    down = -(-len(tasks) // across)
    figure = Figure(figsize=(max(2.35 * across, 3.6), 2.2 * down + 0.45), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.06, wspace=0.04)  # type: ignore[union-attr,call-arg]
    looks = _Looks.of(rows)
    named: dict[str, Artist] = {}
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for i, ax in enumerate(axes):
        if i >= len(tasks):
            ax.remove()
            continue
        _draw(ax, _of_metric(rows[rows["task"] == tasks[i]], metric), looks, ticks=7)
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
        if i + across < len(tasks):
            ax.set_xlabel("")
    figure.legend(list(named.values()), list(named), **LEGEND, ncols=min(len(named), 2 * across))
    return figure


@dataclass(frozen=True, slots=True)
class _Looks:
    """What the curves of a figure are called and how they look, the same in every panel.

    tell : the columns that tell curves of one task apart; label → look; baseline : what the dotted line is called
    """

    tell: tuple[str, ...]
    look: Mapping[str, Mapping[str, Any]]
    baseline: str

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Looks:
        measured = rows[rows["layer_name"] != ""]
        tell = ("model", *(c for c in CURVE[1:] if (measured.groupby("task")[c].nunique(dropna=False) > 1).any()))
        colours, greys = cycle(zip(COLOURS, MARKERS, strict=True)), cycle(GREYS)
        look: dict[str, Mapping[str, Any]] = {}
        for key, _ in _curves(rows):
            label = _label(key, tell)
            if label in look:
                continue
            if _is_control(key):
                own = {"color": next(greys), "linestyle": (0, (4, 2)), "marker": ".", "linewidth": 1.1}
            else:
                own = dict(zip(("color", "marker"), next(colours), strict=True), linestyle="-", linewidth=1.6)
            look[label] = {"markersize": 4.0, "markeredgecolor": "white", "markeredgewidth": 0.5, **own}
        constant = rows.loc[rows["layer_name"] == "", "estimator"].unique()
        return cls(tell, look, " or ".join(BASELINES.get(name, name) for name in constant))


def _of_metric(rows: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    task, there = rows["task"].iloc[0], rows["metric"].unique()
    metric = there[0] if metric is None else metric
    if metric not in there:
        raise UsageError(f"{task} has no rows of {metric!r}; it has {', '.join(there)}.")
    return rows[rows["metric"] == metric]


def _curves(rows: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    measured = rows[rows["layer_name"] != ""]
    for values, curve in measured.groupby(list(CURVE), sort=False, dropna=False):
        yield dict(zip(CURVE, ("" if str(v) in ("<NA>", "nan") else str(v) for v in values), strict=True)), curve


def _is_control(key: Mapping[str, str]) -> bool:
    return key["checkpoint"].startswith("random") or key["target"] != "gold"


def _label(key: Mapping[str, str], tell: Iterable[str]) -> str:
    words = {c: key[c] for c in tell if key[c]}
    words["model"] = words["model"].rsplit("/", 1)[-1]
    if words.get("checkpoint", "").startswith("random"):
        seed = words["checkpoint"].removeprefix("random-")
        words["checkpoint"] = "random weights" + (f" {seed}" if seed not in ("random", "0") else "")
    return ", ".join(f"{c} {word}" if c in ("step", "seed") else word for c, word in words.items())


def _draw(ax: Axes, rows: pd.DataFrame, looks: _Looks, *, ticks: int) -> None:
    deepest = int(rows["layer"].max()) if rows["layer"].notna().any() else 0
    norm_at = deepest + max(1, -(-deepest // 5))
    for key, curve in sorted(_curves(rows), key=lambda pair: _is_control(pair[0])):
        label = _label(key, looks.tell)
        if (twice := curve["layer_name"].duplicated()).any():
            layer = curve["layer_name"][twice].iloc[0]
            raise UsageError(f"{label} has two values for layer {layer}; were the same rows given twice?")
        _draw_curve(ax, curve, label, looks.look[label], norm_at)
    for value in rows.loc[rows["layer_name"] == "", "value"].dropna().unique():
        ax.axhline(value, color=INK, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1, label=looks.baseline)
    _dress(ax, rows, deepest, norm_at, ticks)


def _draw_curve(ax: Axes, curve: pd.DataFrame, label: str, look: Mapping[str, Any], norm_at: int) -> None:
    zorder = 3 if look["linestyle"] == "-" else 2
    through = curve[curve["layer"].notna()].sort_values("layer")
    x, y, low, high = (through[c].to_numpy(dtype=float) for c in ("layer", "value", "ci_low", "ci_high"))
    ax.plot(x, y, label=label, zorder=zorder, **look)
    if np.isfinite(low).any():
        ax.fill_between(x, low, high, color=look["color"], alpha=0.13, linewidth=0, zorder=zorder - 1)
    for _, row in curve[curve["layer"].isna()].iterrows():  # final_norm is no block: it stands apart, hollow
        hollow = {"markerfacecolor": "white", "markeredgecolor": look["color"], "markeredgewidth": 1.1}
        if np.isfinite(row["ci_low"]):
            ax.vlines(
                norm_at, row["ci_low"], row["ci_high"], color=look["color"], alpha=0.4, linewidth=1.6, zorder=zorder
            )
        ax.plot([norm_at], [row["value"]], zorder=zorder + 1, **{**look, **hollow})


def _dress(ax: Axes, rows: pd.DataFrame, deepest: int, norm_at: int, most: int) -> None:
    """Axes as they are printed: ticks at layers, faint horizontal lines, no box."""
    step = next(s for s in (1, 2, 3, 4, 6, 8, 12, 16, 24, deepest) if deepest / s < most)
    ticks = {i: str(i) for i in range(0, deepest + 1, step)}
    if (rows["layer_name"] == "final_norm").any():
        ticks[norm_at] = "norm"
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xlim(-0.4, max(ticks) + 0.4 if norm_at in ticks else deepest + 0.4)
    metric = str(rows["metric"].iloc[0])
    ax.set_xlabel("layer", fontsize=9, color=INK)
    ax.set_ylabel(TITLES.get(metric, metric.replace("-", " ").capitalize()), fontsize=9, color=INK)
    ax.set_title(str(rows["task"].iloc[0]).removeprefix("grammar:"), loc="left", pad=14, **TITLE)
    said = f"{', '.join(rows['split'].unique())}, n = {rows['n'].max():,}"
    ax.text(0, 1.025, said, transform=ax.transAxes, fontsize=7, color="#666666", va="bottom")
    ax.tick_params(labelsize=8, colors=INK, length=2.5, width=0.7)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#888888")
        spine.set_linewidth(0.7)
    ax.margins(y=0.08)
