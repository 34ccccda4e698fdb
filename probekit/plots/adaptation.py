"""What each way to adapt does to a model and its layers: results, probes, similarity and forgetting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.caption import by_task, listed, metrics_of
from probekit.plots.curves import REGIMES, plot_rows
from probekit.plots.heat import cells_of, draw_heat
from probekit.plots.legends import add_legend, band_key, bar_key, legend_of, narrower
from probekit.plots.look import COLOURS, FAINT, GREYS, INK, MARKERS, MOST, PAGE_HEIGHT, Look, one_line
from probekit.plots.matrix import colour_bar, fit_names, line_height, set_line_height, side_of
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import PAGE, PANEL, Scale, bare, dress, even, fitting, grid, same_labels
from probekit.plots.relation import arms

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = ("result", "probe", "similarity", "forgetting")
"""The panels of a task, from above."""
PRETRAINED, CONSTANT = "pretrained", "constant prediction"
CONSTANTS = ("majority", "mean")
CELL = ["panel", "task", "label", "layer", "layer_name"]
TRAINED = ("fine-tune", "feature-extraction")
SECOND = ("model", "checkpoint", "regime", "trained_on", "variant", "random_weights", "run_seed")


def adaptation_rows(rows: Any) -> pd.DataFrame:
    """Return the values that :func:`adaptation_panels` draws.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of trainings, and of probes, similarity or movement on caches of the trained and the pretrained models.

    Returns
    -------
    DataFrame
        A row for each point, with its ``panel``, the training task in ``task``, the way to adapt in ``label`` (the
        variant of the runs, or the regime), ``metric``, and the ``value``, a mean over ``seeds`` seeds; ``low`` and
        ``high`` are the smallest and the largest value of a seed. The panels:

        - "result": the main metric of the kept weights by ``trained_parameters``; ``ci_low`` and ``ci_high`` are the
          means over seeds of the intervals over examples. The label "constant prediction" is that of the task.
        - "probe": the probe of each layer on the training task, also of the layers of the pretrained model (label
          "pretrained", with the interval of the probe).
        - "similarity": linear CKA of each layer and the same layer of the pretrained model on examples of the training
          task; without rows of CKA the relative distance.
        - "forgetting": probes of the tasks in ``others`` on the trained layers, minus those on the pretrained ones, as
          a mean over the tasks. These are the other tasks that all ways have, each with the main metric of its runs, or
          the first in its rows.

    Raises
    ------
    UsageError
        If the rows contain no results of training and no trained layers, or two values for a point and seed.
    """
    import pandas as pd

    rows = plot_rows(rows)
    results = _results(rows)
    main = dict(zip(results["task"], results["metric"], strict=True))
    probes = _probes(rows, main)
    parts = [results, *_constants(rows, results), _own(probes), _alike(rows), _forgotten(probes)]
    found = [_over_seeds(part) for part in parts if len(part)]
    if not any((part["label"] != CONSTANT).any() and (part["label"] != PRETRAINED).any() for part in found):
        raise UsageError(
            "the rows contain no runs and no layers of trained models; give rows of probekit train, and those of "
            "probekit probe and similarity on caches of the runs."
        )
    values = pd.concat(found, ignore_index=True)
    order = {name: i for i, name in enumerate(PANELS)}
    return values.sort_values("panel", key=lambda column: column.map(order), kind="stable", ignore_index=True)


def _results(rows: pd.DataFrame) -> pd.DataFrame:
    """The main metric of the kept weights of each run."""
    runs = rows[(rows["analysis"] == "train") & rows["regime"].isin(TRAINED)]
    if not {"headline", "trained_parameters"} <= set(runs):
        return runs[:0].assign(label="", panel="")
    runs = runs[runs["headline"].fillna(value=False).astype(bool) & runs["trained_parameters"].notna()]
    return _labelled(runs).assign(panel="result", one=runs["seed"])


def _constants(rows: pd.DataFrame, results: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The constant prediction on the examples of each task's results."""
    constant = rows[(rows["analysis"] == "train") & rows["estimator"].isin(CONSTANTS) & rows["value"].notna()]
    for task, part in results.groupby("task", sort=False):
        of = constant[(constant["task"] == task) & constant["metric"].isin(part["metric"].iloc[:1])]
        of = of[of["split"].isin(part["split"].iloc[:1])].iloc[:1]
        yield of.assign(panel="result", label=CONSTANT, one=0)


def _probes(rows: pd.DataFrame, main: dict[str, str]) -> pd.DataFrame:
    """The probes of trained and pretrained layers, in one metric per task."""
    import pandas as pd

    probes = rows[(rows["analysis"] == "probe") & (rows["target"] == "gold") & (rows["layer_name"] != "")]
    probes = probes[~probes["random"] & ~probes["metric"].map(lambda name: bool(metric_called(name).derived))]
    parts = [
        part[
            part["metric"] == (name if (name := main.get(str(task))) in set(part["metric"]) else part["metric"].iloc[0])
        ]
        for task, part in probes.groupby("task", sort=False)
    ]
    return _with_seeds(_labelled(pd.concat(parts) if parts else probes))


def _own(probes: pd.DataFrame) -> pd.DataFrame:
    """The probes on the training task, and those of the pretrained layers on the same tasks."""
    own = probes[probes["trained_on"] == probes["task"]]
    return probes[(probes["label"] == PRETRAINED) & probes["task"].isin(own["task"]) | probes.index.isin(own.index)]


def _alike(rows: pd.DataFrame) -> pd.DataFrame:
    """The similarity of trained layers and the same pretrained ones on the training task, or their distance."""
    import pandas as pd

    alike, parts = rows[rows["metric"] == "cka"], []
    if "layer_b" in alike:
        same = (alike["layer"].fillna(-1) == alike["layer_b"].fillna(-1)) & (alike["site"] == alike["site_b"])
        alike = alike[same.astype(bool)]
        swapped = {**{c: f"{c}_b" for c in SECOND}, **{f"{c}_b": c for c in SECOND}}
        for part in (alike, alike.rename(columns=swapped)):
            known = part.reindex(columns=[f"{c}_b" for c in SECOND])
            start = _before(part) & known["regime_b"].isin(TRAINED)
            parts.append(part.assign(**{c: known[f"{c}_b"] for c in SECOND})[start])
    if not sum(map(len, parts)):
        moved = rows[rows["metric"] == "relative-distance"]
        if "against" in moved:
            whole = moved["example"].fillna("").eq("") & moved["label"].fillna("").eq("")
            base = moved["against"].astype(str) == moved["model"] + ", " + moved["representation"]
            parts = [moved[whole & base & moved["regime"].isin(TRAINED)]]
    found = pd.concat(parts) if parts else rows[:0]
    return _with_seeds(_labelled(found[found["task"] == found["trained_on"]])).assign(panel="similarity")


def _forgotten(probes: pd.DataFrame) -> pd.DataFrame:
    """The differences of probes of other tasks, trained minus pretrained, as means over the tasks."""
    import pandas as pd

    same = ["task", "model", "layer_name", "metric"]
    start = probes[probes["label"] == PRETRAINED].groupby(same)["value"].mean().rename("start")
    other = probes[(probes["label"] != PRETRAINED) & (probes["trained_on"] != probes["task"])].join(start, on=same)
    other, parts = other[other["start"].notna()], []
    for trained_on, part in other.groupby("trained_on", sort=False):
        tasks = sorted(set.intersection(*(set(of["task"]) for _, of in part.groupby("label"))))
        part = part[part["task"].isin(tasks)].assign(change=part["value"] - part["start"])
        _check(part, ["task", "trained_on", "label", "layer_name", "one"])
        for _, of in part.groupby(["label", "one", "layer_name"], sort=False):
            if len(of) == len(tasks):  # the layer has all tasks
                about = {"task": trained_on, "others": ", ".join(tasks), "metric": ", ".join(of["metric"].unique())}
                parts.append(of.head(1).assign(**about, value=of["change"].mean()))
    return (pd.concat(parts) if parts else other[:0]).assign(panel="forgetting", ci_low=np.nan, ci_high=np.nan)


def _before(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of a model that is no checkpoint, or of a pretraining."""
    return (rows["regime"].eq("") & rows["checkpoint"].eq("")) | rows["regime"].eq("pretrain")


def _labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """The trained and the pretrained rows, with the way to adapt; a model's name where a way has several."""
    rows = rows[rows["regime"].isin(TRAINED) | _before(rows)]
    trained = rows["regime"].isin(TRAINED)
    way = rows["variant"].where(rows["variant"] != "", rows["regime"].map(REGIMES)).where(trained, PRETRAINED)
    several = rows.groupby([rows["trained_on"], way])["model"].transform("nunique") > 1
    return rows.assign(label=way + (", " + rows["model"].astype(str)).where(several & trained, "")).assign(
        panel="probe"
    )


def _with_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the seed of the run in ``one``, that of the analysis for a pretrained model."""
    given = rows["run_seed"] if "run_seed" in rows else rows["seed"]
    return rows.assign(one=given.where(rows["label"] != PRETRAINED, rows["seed"]))


def _over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean over the seeds of each point."""
    import pandas as pd

    _check(rows, [*CELL, *(["model"] if (rows["label"] == PRETRAINED).any() else []), "one"])
    means = [c for c in ("value", "ci_low", "ci_high", "trained_parameters") if c in rows]
    ends = {"low": "min", "high": "max"}
    return pd.DataFrame(
        part.iloc[0].to_dict()
        | {c: part[c].mean() for c in means}
        | {name: part["value"].agg(how) for name, how in ends.items()}
        | {"seeds": len(part)}
        for _, part in rows.groupby([*CELL, "model"], sort=False, dropna=False)
    )


def _check(rows: pd.DataFrame, key: list[str]) -> None:
    """Raise UsageError for two values of one point."""
    if (twice := rows.duplicated(key)).any():
        row = rows[twice].iloc[0]
        layer = f", layer {row['layer_name']}" if row["layer_name"] else ""
        raise UsageError(
            f"{row['label']} has two values on {row['task']}{layer} with one seed; give each way its own name "
            "(probekit train --variant), and only the rows of the kept weights, with one kind of probe and pooling."
        )


HEIGHT, COUNTS = 1.75, 0.4
"""Height of a panel, and width of the numbers of trained weights beside it, in inches."""
LEAST = 0.02
"""The smallest range of the vertical axis of a panel by layer."""
LINES = ("-", (0, (5, 1.2)), (0, (1.2, 1)), (0, (5, 1, 1.2, 1)))
"""As the numbers of colours, markers and lines have no common divisor, no two of 100 ways share them all."""


def adaptation_panels(rows: Any, *, columns: int = 4, width: float | None = None, look: Look | None = None) -> Figure:
    """Plot what each way to adapt does to a model and its layers: a column per training task, a colour per way.

    From above: the metric of the kept weights against the number of trained weights; the probe of each layer on the
    task, next to the pretrained layers (grey); the similarity of each layer to the pretrained one (linear CKA, or the
    relative distance); and forgetting: probes of the other tasks, minus those of the pretrained layers. A way is the
    --variant of the runs. Panels without rows are left out. With more than eight ways, a way is a line: of points
    with its number of trained weights, and of heat maps by layer.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of probekit train; rows of probekit probe on caches of the pretrained model and the runs, and of probekit
        similarity PRETRAINED RUN or movement PRETRAINED RUN.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw what each way to adapt does: a column for each training task, a colour and marker for each way.

    From above: the result of the kept weights against the number of trained weights (bars are intervals over examples,
    of several seeds their mean; the dotted line is the constant prediction); the probe of each layer on the task, next
    to the pretrained layers; the similarity of each layer to the pretrained one; and the change of the probes of other
    tasks. Lines are means over seeds, with bands from the smallest to the largest value; the band of the pretrained
    probe is its interval. Panels without rows are left out.

    Examples
    --------
    On the command line::

        probekit plot adaptation 'runs/*/rows.parquet' --out adaptation.pdf
        probekit plot adaptation 'runs/*/rows.parquet' 'rows/*.parquet' --width page --out adaptation.pdf
    """
    look = look or Look()
    values, width = adaptation_rows(rows), narrower(width, look)
    tasks, kinds = list(values["task"].unique()), [kind for kind in PANELS if (values["panel"] == kind).any()]
    styles = _styles(values)
    ways = list(styles) if len(styles) > MOST else []
    whole = width or PAGE
    side = side_of(ways, whole - COUNTS) if ways else 0.0
    line = line_height(ways, side)
    natural = 0.41 * values["layer_name"].nunique() if ways else PANEL  # so that cells hold numbers
    across = even(len(tasks), fitting(columns, whole - side - COUNTS * bool(ways), natural))
    lines = [(tasks[i : i + across], kind) for i in range(0, len(tasks), across) for kind in kinds]
    natural = line * len(ways) + 0.6 if ways else HEIGHT
    each = len(kinds) if 0.8 * natural * len(kinds) <= PAGE_HEIGHT else 1  # a page breaks within a task only if it must
    page, high = look.of_page(len(lines) // each, natural * each)
    lines, high = lines[page.start * each : page.stop * each], high / each
    line *= (high - 0.6) / (natural - 0.6)
    figure, axes = grid(len(lines) * across, across, high, width, PANEL)
    room = (figure.get_figwidth() - side - 0.3) / across - COUNTS
    for i, (block, kind) in enumerate(lines):
        of_kind = values[values["panel"] == kind]
        for column, ax in enumerate(axes[i]):
            part = of_kind[of_kind["task"] == block[column]] if column < len(block) else of_kind[:0]
            if part.empty:
                ax.remove()
                continue
            if ways:
                there = [way for way in ways if (of_kind["label"] == way).any()]
                drawn: dict[str, Any] = {"result": _points_of_many, "forgetting": _changes_of_many}
                draw = drawn.get(kind, _cells_of_many)
                draw(ax, part, there, room, side, line, of_kind)
            else:
                _draw(ax, part, styles)
            above = [lines[j][0] for j in range(i) if (values["panel"] == lines[j][1]).any()]
            _dress(ax, part, look, first=block not in above, side=side if ways else 0.6, many=bool(ways))
            if ways and column:
                ax.tick_params(axis="y", labelleft=False)
            if kind != "result" and i + 1 < len(lines) and lines[i + 1][0] == block:
                ax.set_xlabel("")
    same_labels(list(axes.ravel()), across)
    left = [ax for ax in axes.ravel() if ax.figure is not None]
    named = {label: x for label, x in legend_of(left).items() if label in (*styles, CONSTANT)}
    keys = {label: named[label] for label in (*styles, CONSTANT) if label in named}
    if "result" in kinds:
        keys |= bar_key(f"bar: {look.interval}", "_" if ways else "|")
    if not ways and (values.loc[~values["panel"].isin(["result"]), "label"] == PRETRAINED).any():
        keys |= band_key(f"grey band: {look.interval}")
    if not ways and (values.loc[values["panel"] != "result", "seeds"] > 1).any():
        keys |= band_key("other bands: range of seeds", COLOURS[0])
    add_legend(figure, keys, look)
    if ways:
        for text in (text for ax in left for text in ax.texts if len(figure.axes) > axes.size):
            text.set_in_layout(False)  # the numbers of weights stand where the colour bars of other panels are
        set_line_height(figure, left[0], line * len(ways))
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


def _draw(ax: Axes, part: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """One panel of up to eight ways: points or lines."""
    if part["panel"].iloc[0] == "result":
        _points(ax, part, styles)
    else:
        _lines(ax, part, styles)


def _points_of_many(
    ax: Axes, part: pd.DataFrame, ways: list[str], _room: float, side: float, line: float, _alike: pd.DataFrame
) -> None:
    """A line for each way: its result, and at the right its number of trained weights."""
    there = part[part["label"] != CONSTANT].set_index("label").reindex(ways)
    for i, (_, point) in enumerate(there.iterrows()):
        bars = arms(point, "value", "ci_low", "ci_high")
        ax.errorbar(point["value"], i, xerr=bars, color=COLOURS[0], marker="o", markersize=4, elinewidth=0.8)
        if point["trained_parameters"] == point["trained_parameters"]:
            words: dict[str, Any] = {"fontsize": 7, "color": INK, "va": "center", "ha": "right"}
            ax.annotate(_count(point["trained_parameters"]), (1, i), (29, 0), ax.get_yaxis_transform(),
                        "offset points", **words)  # fmt: skip
    ax.annotate("weights", (1, 1), (29, 3), "axes fraction", "offset points", fontsize=7, color="#666666", ha="right")
    for value in part.loc[part["label"] == CONSTANT, "value"]:
        ax.axvline(value, color=GREYS[2], linestyle=":", linewidth=1, zorder=1.6, label=CONSTANT)
    names, size = fit_names(ways, side, line)
    ax.set_yticks(range(len(there)), names, fontsize=size, parse_math=False, linespacing=1.0)
    ax.set_ylim(len(there) - 0.5, -0.5)


def _cells_of_many(
    ax: Axes, part: pd.DataFrame, ways: list[str], room: float, side: float, line: float, alike: pd.DataFrame,
    centre: float | None = None,
) -> None:  # fmt: skip
    """A line for each way: cells by layer, whose colours have one scale for each metric.

    Parameters
    ----------
    room : float
        Width of the panel in inches.
    alike : DataFrame
        The values of all panels of the kind.
    """
    cells, metric = cells_of(part, ways)[0].reindex(ways), str(part["metric"].iloc[0])
    limits = tuple((alike if centre == 0 else alike[alike["metric"] == metric])["value"].agg(["min", "max"]))
    plain = cells, np.zeros(cells.shape, dtype=bool)
    size: dict[str, Any] = {"side": side, "line": line, "cell": room / cells.shape[1]}
    image = draw_heat(ax, plain, metric.split(", ")[0], Look(), limits=limits, centre=centre, **size)
    if not ax.texts:
        colour_bar(image, "", room=line * len(ways))
    ax.set_xlabel("Layer", fontsize=9, color=INK)


_changes_of_many = partial(_cells_of_many, centre=0.0)


def _count(weights: float) -> str:
    """A number of weights in words: "400", "110 k", "10.7 M"."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if weights >= size:
            return f"{weights / size:.3g} {unit}"
    return f"{weights:.0f}"


def _dress(ax: Axes, part: pd.DataFrame, look: Look, *, first: bool, side: float, many: bool) -> None:
    """The axes of a panel, with the task's name above the first."""
    kind, name = part["panel"].iloc[0], one_line(str(part["metric"].iloc[0]).split(", ")[0])
    ylabel = {
        "result": name, "probe": f"{name}\n(probe)", "similarity": f"{name}\nto pretrained" , "forgetting":
        "Other tasks' probes\n(change)",
    }[kind]  # fmt: skip
    size = ax.get_yticklabels()[0].get_fontsize() if many else 8.0
    if first:
        how = ylabel.replace("\n", " ") if many and kind != "result" else ""
        dress(ax, part[part["label"] != CONSTANT], ylabel=ylabel, how=how, look=look, side=side)
    bare(ax)
    if many:
        ax.set_ylabel("")
        ax.tick_params(axis="y", labelsize=size, length=0)
        ax.grid(visible=False)
        if kind == "result":
            ax.grid(axis="x", color=FAINT, linewidth=0.6)
            ax.set_xlabel(name, fontsize=8, color=INK)
        elif not first:
            ax.set_title(ylabel.replace("\n", " "), loc="left", fontsize=8, color=INK).set_in_layout(False)
        return
    ax.set_ylabel(ylabel, fontsize=8, color=INK)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
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


def caption(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    values = adaptation_rows(rows)
    panels = {str(name): part for name, part in values.groupby("panel", sort=False)}
    many = len(_styles(values)) > MOST
    yield "Columns: training tasks."
    if many:
        yield f"More than {MOST} ways are lines, by layer of a heat map; light is better, or larger."
    if "result" in panels:
        runs = panels["result"][panels["result"]["label"] != CONSTANT]
        by = "; at the right, the number of trained weights" if many else " by the number of trained weights"
        yield f"{metrics_of(runs)} of the kept weights{by}."
        yield from by_task(runs, look)
        means = ", means over seeds; they do not cover the variation over seeds" * bool((runs["seeds"] > 1).any())
        yield f"Bars: {look.interval}s over examples{means}."
        if (panels["result"]["label"] == CONSTANT).any():
            yield "Dotted lines: the constant prediction."
    if "probe" in panels:
        yield f"Probes of each layer on the training task ({metrics_of(panels['probe'])})."
        if not many and (panels["probe"]["label"] == PRETRAINED).any():
            yield f"Grey: the pretrained layers, with {look.interval}s of the probe over examples."
    if "similarity" in panels:
        yield f"{metrics_of(panels['similarity'])} of each layer and the same pretrained layer on the training task."
    if "forgetting" in panels:
        gone = panels["forgetting"]
        tasks = listed(
            f"{look.task(str(task))}: {listed(look.task(other) for other in str(of['others'].iloc[0]).split(', '))}"
            for task, of in gone.groupby("task", sort=False)
        )
        names = dict.fromkeys(name for names in gone["metric"] for name in str(names).split(", "))
        yield (
            f"Change of the probes of other tasks from the pretrained layers, means over tasks ({tasks}; "
            f"{listed(metric_called(name).title for name in names)})."
        )
    layers = values[~values["panel"].isin(["result"]) & (values["label"] != PRETRAINED)]
    if many and len(panels.get("forgetting", ())):
        yield "Blue: lower than pretrained; red: higher; one scale for all tasks."
    cells = values[values["panel"] != "result"].groupby(["panel", "task"])
    parts = [(part, panels[str(kind)]["label"].unique()) for (kind, _), part in cells]
    if many and any(cells_of(part, of)[0].reindex(of).isna().any(axis=None) for part, of in parts):
        yield f"White cells{' (of the change: grey)' * ('forgetting' in panels)}: no value."
    if (layers["seeds"] > 1).any() and many:
        yield "Cells: means over seeds."
    elif (layers["seeds"] > 1).any():
        yield "Lines by layer: means over seeds; bands: from the smallest to the largest value of a seed."
    counts = sorted(set(values.loc[~values["label"].isin([CONSTANT, PRETRAINED]), "seeds"]))
    yield f"Seeds: {' to '.join(str(int(n)) for n in dict.fromkeys([counts[0], counts[-1]]))}."


FIGURE = FigureKind(
    head="What each way to adapt does to a model and its layers.",
    draw=adaptation_panels,
    caption=caption,
    of_rows=("models",),
)
