"""Learning curves: results on tasks against the number of training examples, of the task or of pretraining."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.plots.caption import by_task, listed, metrics_of
from probekit.plots.curves import RANDOM, last_parts, plot_rows
from probekit.plots.heat import heat_panels, heat_words
from probekit.plots.layer_axes import LINES
from probekit.plots.layers import INPUTS
from probekit.plots.legends import CURVES, band_key, bar_key, inches, wrapped
from probekit.plots.look import COLOURS, GREYS, INK, MARKERS, MOST, Look, Over, metric_title
from probekit.plots.options import FigureKind, PlotOptions
from probekit.plots.panels import dress, panels, width_of
from probekit.plots.relation import arms
from probekit.rows import fit_labels
from probekit.rows.selection import select
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REGIMES = ("fine-tune", "feature-extraction")
POINT = ["task", "label", "examples"]
MEAN = "GLUE"
"""The task of the mean over tasks."""
SCORE = "probekit.analyses.glue"
"""The module of ``glue_score``. This package only draws: the function is looked up when used."""


def learning_rows(rows: Any, *, over: Over = "target") -> pd.DataFrame:
    """Return the points that :func:`learning_panels` draws.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of :func:`probekit.train`, and for ``over="pretraining"`` those of :func:`probekit.pretrain_encoder`.
    over : {"target", "pretraining"}
        The examples to count: those of the task, or those of the encoder's pretraining, the sum over its objectives.

    Returns
    -------
    DataFrame
        For each task, curve and number of training examples the row of the run, with its main metric, or the means over
        seeds; ``seeds`` counts them, ``sd`` is their standard deviation, and ``runs`` are the values of each. A curve
        (``label``) is a model over
        "target", and the objectives of pretraining over "pretraining" (in a regime and with a head, if there are
        several). Over "pretraining", encoders without rows of pretraining have their name as label and no ``examples``,
        tasks that some encoders lack are left out, and the task "GLUE" is the mean of the others (see
        :func:`probekit.glue_score`).

    Raises
    ------
    UsageError
        If the rows contain no runs with their number of training examples, a point has two values for one seed, or an
        encoder has two pretrainings.
    """
    import pandas as pd

    rows = select(plot_rows(rows))
    runs = _runs(rows)
    if over == "pretraining":
        runs = _of_pretraining(rows, _of_shared_tasks(runs))
    if (twice := runs.duplicated([*POINT, "seed"])).any():
        label, n = runs.loc[twice, ["label", "examples"]].iloc[0]
        count = "without pretraining" if pd.isna(n) else f"for {int(n):,} training examples"
        raise UsageError(
            f"{label} has two values {count} and one seed; give the rows of one variant (--variants) or encoder "
            "(--models), and each only once."
        )
    return pd.DataFrame(
        part.iloc[0].to_dict()
        | {c: part[c].mean() for c in ("value", "ci_low", "ci_high")}
        | {"seeds": len(part), "sd": part["value"].std(ddof=1), "runs": tuple(part["value"])}
        for _, part in runs.groupby(POINT, sort=False, dropna=False)
    )


def _runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The main metric of each run on a task; the label is the model, with regime and head if a task has several."""
    runs = rows[(rows["analysis"] == "train") & rows["regime"].isin(REGIMES)]
    if {"headline", "examples"} <= set(runs):
        runs = runs[runs["headline"].fillna(value=False).astype(bool) & runs["examples"].notna()]
    else:
        runs = runs[:0]
    if runs.empty:
        others = ", not those of pretraining alone" if (rows["regime"] == "pretrain").any() else ""
        raise UsageError(
            "the rows contain no training runs with their number of training examples (column examples); give rows of "
            f"probekit train on these models{others}."
        )
    setting = runs["model"].astype(str).str[:0]
    for column in ("regime", "head"):
        if runs.groupby("task")[column].nunique().max() > 1:
            setting = setting + ", " + runs[column].astype(str)
    label = last_parts(runs["model"]) + setting + runs["random"].map({True: f", {RANDOM}", False: ""})
    return runs.assign(label=label, setting=setting)


def constants(rows: Any, points: pd.DataFrame) -> pd.DataFrame:
    """The values of constant predictions in the metric of each task's points: columns task, label and value."""
    rows = plot_rows(rows)
    rows = rows[(rows["analysis"] == "train") & rows["estimator"].isin(list(INPUTS))]
    rows = rows.merge(points[["task", "metric"]].drop_duplicates(), on=["task", "metric"])
    values = rows.assign(label=rows["estimator"].map(INPUTS)).groupby(["task", "label"], sort=False)["value"].median()
    return values.dropna().reset_index()


def _of_pretraining(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the objectives and examples of their encoder's pretraining, and the mean over GLUE tasks."""
    import pandas as pd

    runs = pd.concat([runs, _means(rows, runs)], ignore_index=True)
    known = _pretrainings(rows[rows["model"].isin(runs["model"])])
    if not (trained := runs["model"].isin(known)).any():
        raise UsageError(
            "the rows contain no pretraining of these encoders; also give those of probekit pretrain-encoder, whose "
            "models have the same names."
        )
    examples = runs["model"].map({model: n for model, (_, n) in known.items()}).astype("float64")
    labels = runs["model"].map({model: on for model, (on, _) in known.items()}) + runs["setting"]
    return runs.assign(examples=examples, label=labels.where(trained, runs["label"]))


def _of_shared_tasks(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs on the tasks that all encoders have; all runs if there are none."""
    shared = set.intersection(*(set(part["task"]) for _, part in runs.groupby("model")))
    return runs[runs["task"].isin(shared)] if shared else runs


def _pretrainings(rows: pd.DataFrame) -> dict[str, tuple[str, int]]:
    """The objectives of each encoder's pretraining in words, and their training examples."""
    kept = rows[(rows["regime"] == "pretrain") & rows["headline"].fillna(value=False).astype(bool)]
    if (uncounted := kept["examples"].isna()).any():
        raise UsageError(
            f"the rows do not count the training examples of {kept.loc[uncounted, 'model'].iloc[0]}; leave out "
            "language models of probekit pretrain."
        )
    one_run = [c for c in ("model", "seed", "trained_on", "sampling", "scaling") if c in kept]
    found: dict[str, tuple[str, int]] = {}
    for (model, *_), run in kept.drop_duplicates([*one_run, "task", "step"]).groupby(one_run, sort=False):
        objectives = " + ".join(sorted({shown_task(task) for task in run["task"]}))
        of_run = objectives, int(run["examples"].sum())
        if run["task"].duplicated().any() or found.setdefault(str(model), of_run) != of_run:
            raise UsageError(f"{model} has several pretrainings; give the rows of one, or each its own --run-name.")
    return found


def _means(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The mean of the GLUE tasks of each encoder and seed; nothing unless all have the same tasks, and one head."""
    glue = import_module(SCORE)
    if (runs["setting"] != "").any() or len(glue.MEASURED.keys() & set(runs["task"])) < 2:
        return runs[:0]
    of_runs = rows[(rows["analysis"] == "train") & rows["regime"].isin(REGIMES) & rows["task"].isin(runs["task"])]
    encoders = {str(key): key for key in zip(of_runs["model"], of_runs["seed"], strict=True)}
    keys = zip(of_runs["model"], of_runs["seed"], strict=True)
    scores = glue.glue_score(of_runs.assign(model=[str(key) for key in keys]))
    if scores.groupby(["model", "variant"])["task"].agg(frozenset).nunique() > 1:
        return runs[:0]
    scores = scores[scores["task"] == "glue"]
    models, seeds = zip(*(encoders[name] for name in scores["model"]), strict=True)
    return scores.assign(model=models, label=models, seed=list(seeds), setting="", task=MEAN, analysis="train")


def learning_panels(
    rows: Any, *, over: Over = "target", columns: int = 4, width: float | None = None, look: Look | None = None
) -> Figure:
    """Plot learning curves: results against the number of training examples, one panel per task, one curve per model.

    A point is the main metric of a run, or its mean over seeds. The horizontal axis is logarithmic.

    --over pretraining counts the examples of the encoder's pretraining instead, of all objectives together, and draws
    one curve per set of objectives, as in Figure 2 of Bowman et al. (2018). Encoders without rows of pretraining, such
    as an untrained one, are dashed lines. Tasks that some encoders lack are left out; one more panel shows the mean of
    the GLUE tasks. Bars and bands are one standard deviation over seeds.

    Parameters
    ----------
    rows : DataFrame, Result or path
        Rows of training runs (.parquet, .csv), for --over pretraining also those of probekit pretrain-encoder.
    over : {"target", "pretraining"}
        As in :func:`learning_rows`.
    columns, width, look
        As in :func:`layer_panels`.

    Returns
    -------
    Figure
        Not shown and not saved.

    Notes
    -----
    Draw learning curves: a panel for each task, a curve for each model or pretraining, over the number of examples.

    Points are means over seeds, dashes single runs; models with random weights are dashed and grey, constant
    predictions dotted. Over "target", bars are intervals over the evaluated examples, of several seeds their mean; they
    do not cover the variation over seeds or over drawn training examples. Over "pretraining" (Bowman et al.
    2018, Figure 2), bars are one standard deviation over seeds, and intervals over examples only if every point is a
    single run; encoders without pretraining are dashed lines, with a band instead of bars. The horizontal axis is
    logarithmic.

    Examples
    --------
    On the command line::

        probekit train --task sst2 --model MODEL --limit 300 --out sst2-300
        probekit train --task sst2 --model MODEL --limit 3000 --out sst2-3000
        probekit plot learning 'sst2-*/rows.parquet' --out learning.pdf
        probekit plot learning 'encoders/*/rows.parquet' 'targets/*/rows.parquet' --over pretraining
    """
    points, look = learning_rows(rows, over=over), look or Look()
    curves = points.loc[points["examples"].notna(), "label"].unique()
    if points.groupby("task")["label"].nunique().max() > MOST:
        over_name = "Pretraining examples" if over == "pretraining" else "Training examples"
        labels = points["label"].unique()
        return heat_panels(points, labels, _cells, columns=columns, width=width, look=look, by=None, xlabel=over_name)
    sd = over_seeds(points, over)
    key = "one standard deviation over seeds" if sd else look.interval
    banded = any(_bars(point, sd=sd) is not None for _, point in points[points["examples"].isna()].iterrows())
    barred = any(_bars(point, sd=sd) is not None for _, point in points[points["examples"].notna()].iterrows())
    keys = {**(band_key(f"band: {key}") if banded else {}), **(bar_key(f"bar: {key}") if barred else {})}
    if (points["seeds"] > 1).any():
        keys |= bar_key("dash: single run", "_")
    baselines = constants(rows, points)
    figure, drawn = panels(points, columns, 2.4, width=width, look=look, keys=keys)
    random = set(points.loc[points["random"].fillna(value=False).astype(bool), "label"])
    looks, greys = cycle(zip(COLOURS, MARKERS, strict=False)), cycle(GREYS)
    styles = {label: (next(greys), MARKERS[0], "--") if label in random else (*next(looks), "-") for label in curves}
    lines = dict(zip(points.loc[points["examples"].isna(), "label"].unique(), cycle(GREYS), strict=False))
    for ax, part in drawn:
        for _, line in baselines[baselines["task"] == part["task"].iloc[0]].iterrows():
            ax.axhline(line["value"], color=INK, label=line["label"], zorder=1.7, **LINES["majority"])
        for label, colour in lines.items():
            _draw_line(ax, part[part["label"] == label], colour, sd=sd)
        apart, shared = _apart(part["examples"].dropna(), len(styles))
        for i, (label, style) in enumerate(styles.items()):
            curve = part[part["label"] == label].sort_values("examples")
            at = curve["examples"] * np.exp(apart * (i - (len(styles) - 1) / 2) * curve["examples"].isin(shared))
            _draw_curve(ax, curve, at, style, sd=sd)
        _dress(ax, part, over, look)
    return figure


def _draw_line(ax: Axes, points: pd.DataFrame, colour: str, *, sd: bool) -> None:
    """An encoder without pretraining."""
    for _, point in points.iterrows():
        line: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.1, "zorder": 1.9, "label": point["label"]}
        ax.axhline(point["value"], color=colour, **line)
        if (bars := _bars(point, sd=sd)) is not None:
            low, high = point["value"] - bars[0, 0], point["value"] + bars[1, 0]
            ax.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)


def _draw_curve(ax: Axes, curve: pd.DataFrame, at: pd.Series, style: tuple[str, str, str], *, sd: bool) -> None:
    """at : the horizontal places of the points; style : colour, marker and line style"""
    if curve.empty:
        return
    colour, marker, line = style
    own: dict[str, Any] = {"color": colour, "zorder": CURVES, "label": curve["label"].iloc[0]}
    ax.plot(at, curve["value"], marker=marker, markersize=4, linestyle=line, **own)
    for x, (_, point) in zip(at, curve.iterrows(), strict=True):
        ax.errorbar(x, point["value"], yerr=_bars(point, sd=sd), color=colour, elinewidth=0.8)
        if point["seeds"] > 1:
            ax.plot([x] * point["seeds"], point["runs"], "_", color=colour, markersize=5, alpha=0.7)


def _apart(numbers: pd.Series, curves: int) -> tuple[float, set[float]]:
    """How far apart the points of one number of examples stand, in log units, and the numbers with several points."""
    shared, logs = set(numbers[numbers.duplicated()]), np.log(np.unique(numbers.to_numpy(dtype=float)))
    if len(logs) < 2:
        return 0.18, shared
    return float(min(0.03 * np.ptp(logs), 0.3 * np.diff(logs).min() / max(1, curves - 1))), shared


def _cells(points: pd.DataFrame) -> pd.DataFrame:
    """The points as cells by number of examples; "none" without any."""
    names = points["examples"].map(lambda n: "none" if n != n else f"{int(n):,}")
    return points.assign(layer=points["examples"].fillna(0), layer_name=names)


def over_seeds(points: pd.DataFrame, over: Over) -> bool:
    """Whether bars are standard deviations over seeds, instead of intervals over examples."""
    return over == "pretraining" and bool((points["seeds"] > 1).any())


def _bars(point: pd.Series, *, sd: bool) -> np.ndarray | None:
    """The lengths of an error bar (2, 1), None without one."""
    if not sd:
        return arms(point, "value", "ci_low", "ci_high")
    return np.full((2, 1), point["sd"]) if point["seeds"] > 1 else None


def _dress(ax: Axes, part: pd.DataFrame, over: Over, look: Look | None) -> None:
    from matplotlib.ticker import NullLocator

    dress(ax, part, ylabel=metric_title(str(part["metric"].iloc[0])), look=look)
    ax.set_xscale("log")
    name = "Pretraining examples" if over == "pretraining" else "Training examples"
    wide = width_of(ax) - 0.75
    ax.set_xlabel(wrapped(name, wide, 9), fontsize=9, color=INK)
    numbers = sorted({int(n) for n in part["examples"].dropna()})
    inch = np.log(numbers[-1] / numbers[0]) / (0.9 * wide) if numbers else 0.0
    at = numbers[-1:]
    for n in reversed(numbers[:-1]):
        if np.log(at[-1] / n) >= inch * (inches(f"{n:,}{at[-1]:,}", 8) / 2 + 0.08):
            at.append(n)
    at = sorted({*at[:-1], *numbers[:1], *numbers[-1:]}) if len(at) > 1 else at  # first and last are named
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(at, [f"{n:,}" for n in at])
    if len(numbers) == 1:
        ax.set_xlim(numbers[0] / 3, numbers[0] * 3)


def caption(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points = learning_rows(rows, over=options.over)
    yield f"{metrics_of(points[points['task'] != MEAN])}."
    yield from by_task(points, look)
    fits = fit_labels(points[points["task"] != MEAN].assign(variant=""))
    if not points["setting"].any():
        yield f"Runs: {listed(look.shown(name) for name in fits.unique())}."
    low, high = int(points["seeds"].min()), int(points["seeds"].max())
    seeds = f"Means over {low} seeds" if low == high else f"Means over {low} to {high} seeds"
    bars = f"Bars: {look.interval}s over examples"
    if options.over == "pretraining":
        yield from _pretraining(points, look)
    crowd = points.groupby("task")["label"].nunique().max() > MOST
    if crowd:
        yield f"{seeds}."
        yield from heat_words(_cells(points))
    elif over_seeds(points, options.over):
        yield f"{seeds}. Bars and bands: one standard deviation over seeds, where there are several."
    elif high > 1:
        yield f"{seeds}. {bars}, means over seeds; they do not cover the variation over seeds."
    else:
        yield f"{bars}; single runs."
    if not crowd and len(baselines := constants(rows, points)):
        yield f"Dotted lines: {listed(baselines['label'].unique())}."
    if not crowd and points[points["examples"].notna()].duplicated(["task", "examples"]).any():
        yield "Points of one number of examples stand side by side."


def _pretraining(points: pd.DataFrame, look: Look) -> Iterator[str]:
    """The curves, the encoders without pretraining, and the mean over tasks."""
    yield "Horizontal axis: training examples of the encoder's pretraining (all objectives), not of the task."
    without = points["examples"].isna()
    if without.any():
        names = listed(look.shown(label) for label in points.loc[without, "label"].unique())
        yield f"Dashed lines: encoders without rows of pretraining ({names})."
    if (points["task"] == MEAN).any():
        mean = points[points["task"] == MEAN].iloc[0]
        yield f"{look.task(MEAN)}: mean of {mean['tasks']:.0f} tasks, as in probekit table glue."
    yield "Tasks that some encoders lack are left out."


FIGURE = FigureKind(
    head="Results against the number of training examples.",
    draw=learning_panels,
    caption=caption,
    of_rows=("models", "variants"),
)
