"""What each way to adapt does to a model and its layers: results, probes, similarity and forgetting."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.plots.adapted import CONSTANT, PANELS, PRETRAINED, adaptation_rows
from probekit.plots.legends import add_legend, narrower
from probekit.plots.look import Look
from probekit.plots.palette import COLOURS, FAINT, GREYS, INK, MARKERS
from probekit.plots.panels import PANEL, Scale, bare, dress, even, fitting, grid, same_labels
from probekit.plots.relation import arms
from probekit.plots.titles import first_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["adaptation_panels"]

HEIGHT = 1.75
LEAST = 0.02
"""The smallest range of the vertical axis of a panel by layer."""
LINES = ("-", (0, (5, 1.2)), (0, (1.2, 1)), (0, (5, 1, 1.2, 1)))
"""As the numbers of colours, markers and lines have no common divisor, no two of 100 ways share them all."""


def adaptation_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Draw what each way to adapt does: a column for each training task, a colour and marker for each way.

    From above: the result of the kept weights against the number of trained weights (bars are intervals over examples,
    of several seeds their mean; the dotted line is the constant prediction); the probe of each layer on the task, next
    to the pretrained layers; the similarity of each layer to the pretrained one; and the change of the probes of other
    tasks. Lines are means over seeds, with bands from the smallest to the largest value; the band of the pretrained
    probe is its interval. Panels without rows are left out.

    Parameters
    ----------
    rows : DataFrame, Result or path
        As in :func:`adaptation_rows`.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.
    """
    look = look or Look()
    values, width = adaptation_rows(rows), narrower(width, look)
    tasks, kinds = list(values["task"].unique()), [kind for kind in PANELS if (values["panel"] == kind).any()]
    across = even(len(tasks), fitting(columns, width, PANEL))
    blocks = [tasks[i : i + across] for i in range(0, len(tasks), across)]
    figure, axes = grid(len(blocks) * len(kinds) * across, across, HEIGHT, width, PANEL)
    styles, named = _styles(values), dict[str, Any]()
    for i, block in enumerate(blocks):
        drawn = axes[i * len(kinds) : (i + 1) * len(kinds)]
        for column in range(across):
            part = values[values["task"] == block[column]] if column < len(block) else values[:0]
            there = [kind for kind in kinds if (part["panel"] == kind).any()]
            for kind, ax in zip(kinds, drawn[:, column], strict=True):
                if kind not in there:
                    ax.remove()
                    continue
                _draw(ax, part[part["panel"] == kind], styles, look, first=kind == there[0])
                if kind not in ("result", there[-1]):
                    ax.set_xlabel("")
                handles, labels = ax.get_legend_handles_labels()
                named |= {label: x for label, x in zip(labels, handles, strict=True) if label not in named}
    same_labels(list(axes.ravel()), across)
    add_legend(figure, {label: named[label] for label in (*styles, CONSTANT) if label in named}, look)
    return figure


def _styles(values: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The style of each way, and of the pretrained layers."""
    ways = [label for label in values["label"].unique() if label not in (PRETRAINED, CONSTANT)]
    looks = zip(ways, cycle(COLOURS), cycle(MARKERS), cycle(LINES), strict=False)
    styles: dict[str, dict[str, Any]] = {
        way: {"color": colour, "marker": marker, "linestyle": line, "markersize": 4, "markeredgewidth": 0.6,
              "linewidth": 1.3, "zorder": 4}
        for way, colour, marker, line in looks
    }  # fmt: skip
    grey = {"color": GREYS[0], "linewidth": 1.8, "zorder": 3, "marker": "", "markersize": 4, "markeredgewidth": 0.6}
    return styles | {PRETRAINED: grey}


def _draw(ax: Axes, part: pd.DataFrame, styles: dict[str, dict[str, Any]], look: Look, *, first: bool) -> None:
    """One panel: its points or lines, and its axes."""
    kind, name = part["panel"].iloc[0], first_line(str(part["metric"].iloc[0]).split(", ")[0])
    if kind == "result":
        _points(ax, part, styles)
    else:
        _lines(ax, part, styles)
    ylabel = {
        "result": name, "probe": f"{name}\n(probe)", "similarity": f"{name}\nto pretrained" , "forgetting":
        "Other tasks' probes\n(change)",
    }[kind]  # fmt: skip
    if first:
        dress(ax, part[part["label"] != CONSTANT], ylabel=ylabel, look=look)
    ax.set_ylabel(ylabel, fontsize=8, color=INK)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    bare(ax)
    ax.margins(y=0.08)


def _points(ax: Axes, part: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Results against the number of trained weights."""
    from matplotlib.ticker import LogLocator, NullLocator

    for _, point in part[part["label"] != CONSTANT].iterrows():
        x, label = point["trained_parameters"], point["label"]
        style = styles[label]
        ax.plot([x], [point["value"]], label=label, **style)
        bars = arms(point, "value", "ci_low", "ci_high")
        ax.errorbar(x, point["value"], yerr=bars, color=style["color"], elinewidth=0.8, zorder=3)
    for value in part.loc[part["label"] == CONSTANT, "value"]:
        ax.axhline(value, color=GREYS[2], linestyle=":", linewidth=1, zorder=1.6, label=CONSTANT)
    low, high = np.log10(part["trained_parameters"].agg(["min", "max"]).astype(float))
    ax.set_xscale("log")
    ax.set_xlim(10 ** (np.floor(low) - 0.2), 10 ** (np.ceil(high) + 0.2))
    ax.xaxis.set_major_locator(LogLocator(numticks=5))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("Trained weights", fontsize=9, color=INK)


def _lines(ax: Axes, part: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Values by layer, with bands over seeds."""
    scale, kind = Scale.of(part, ax), part["panel"].iloc[0]
    for _, curve in part.groupby(["label", "model"], sort=False):
        label = str(curve["label"].iloc[0])
        at, own = scale.at(curve), label == PRETRAINED
        order = np.argsort(at)
        x, y = at[order], curve["value"].to_numpy(dtype=float)[order]
        ends = ("ci_low", "ci_high") if own else ("low", "high")
        low, high = (curve[c].to_numpy(dtype=float)[order] for c in ends)
        if own or (curve["seeds"] > 1).any():
            ax.fill_between(x, low, high, color=styles[label]["color"], alpha=0.2 if own else 0.12, linewidth=0)
        ax.plot(x, y, label=label, **scale.sized(styles[label]))
    if kind == "forgetting":
        ax.axhline(0, color=GREYS[2], linewidth=0.8, zorder=1.6)
    bottom, top = ax.get_ylim()
    if top - bottom < LEAST:
        ax.set_ylim((bottom + top - LEAST) / 2, (bottom + top + LEAST) / 2)
    scale.set(ax)
