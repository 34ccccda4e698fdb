"""A suggested caption for a figure, generated from its rows: data and n, estimator, meaning of intervals and bands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analysis import figures, load
from probekit.display import shown_label
from probekit.files import MARK, FileKind, is_sealed, write
from probekit.metrics import metric as metric_called
from probekit.plots.adapted import CONSTANT, PRETRAINED, adaptation_rows
from probekit.plots.curves import RANDOM, of_analyses, plot_rows
from probekit.plots.domains import SIZES, TERMS
from probekit.plots.expected import expected_values
from probekit.plots.gains import gain_rows
from probekit.plots.layers import INFORMATION, LAYERED, as_curves, curve_rows, kept, of_metric
from probekit.plots.learning import MEAN, learning_rows, over_seeds
from probekit.plots.legends import common
from probekit.plots.look import Look
from probekit.plots.mix import MIX
from probekit.plots.noise import HOLLOW, NOT_ABOVE, REACHES_CONTROL, one_sided
from probekit.plots.options import PlotOptions
from probekit.plots.relation import relation_rows
from probekit.plots.scoreboard import board_values
from probekit.plots.scores import score_rows
from probekit.plots.shift import shift_values
from probekit.plots.titles import control_title, first_line
from probekit.plots.trajectory import trajectory_grids
from probekit.plots.transfer import transfer_rows
from probekit.rows import layer_labels

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CAPTION_FILE",
    "caption_path",
    "curve_names",
    "details",
    "listed",
    "measured",
    "metrics_of",
    "sizes_of",
    "write_caption",
]

CAPTION_FILE = FileKind("a caption as probekit wrote it", is_sealed)
PERMUTED = (
    "Permuted labels: the band shows what the same predictions reach with permuted labels, from the mean to the value "
    "with p = 0.05, corrected over the layers of a curve."
)
WHY = {
    NOT_ABOVE: "Hollow markers: not above noise (p > 0.05, corrected over layers and curves).",
    HOLLOW: "Hollow markers: the interval reaches the noise (a visual criterion, not a test).",
    REACHES_CONTROL: "Half-filled markers: the interval reaches the control tasks.",
}


def caption_path(figure: Path) -> Path:
    """The file of a figure's caption: ``FIGURE.caption.txt``."""
    return figure.with_suffix(".caption.txt")


def write_caption(figure: Path, words: str) -> Path:
    """Write a caption next to a figure; an existing caption that somebody has edited stays."""
    path = caption_path(figure)
    if not path.exists() or (path.is_file() and not path.is_symlink() and is_sealed(path)):
        write(path, f"{words}\n\n# {MARK}\n", CAPTION_FILE)
    return path


def details(kind: str, rows: pd.DataFrame, options: PlotOptions, look: Look) -> str:
    """The caption after its first sentence: data and n, estimator, meaning of intervals, bands and markers.

    Parameters
    ----------
    kind : str
        Kind of the figure.
    rows : DataFrame
        Rows of the figure.
    options : PlotOptions
        Options of the figure.
    look : Look
        Names, and coverage of the intervals.
    """
    own = figures().get(kind)
    return " ".join((load(own.caption) if own else DETAILS[kind])(plot_rows(rows), options, look))


def _layers(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    rows = as_curves(kept(of_analyses(rows, *LAYERED)))
    parts = [
        curve_rows(of_metric(part, options.metric), shuffled=options.shuffled)
        for _, part in rows.groupby("task", sort=False)
    ]
    points = pd.concat(parts)
    curve, control, line = (points[points["role"] == role] for role in ("curve", "control", "line"))
    yield from measured(curve, look)
    yield curve_names(curve["label"].unique(), look)
    banded = curve[~curve["one_of_seeds"].astype(bool)]
    if banded["ci_low"].notna().any():
        yield f"Bands and bars: {look.interval}s, each for a single layer."
    if curve["one_of_seeds"].any():
        yield "Thin lines: single seeds, without intervals."
    yield from _reference(curve, look)
    for label, band in control.groupby("label", sort=False):
        extent = "range" if band["of_draws"].iloc[0] else look.middle
        if one_sided(band):
            extent = "part from the mean to the 97.5 % quantile"
            if (band["analysis"] == "probe").all():
                yield PERMUTED
                continue
        yield f"{_first(_plural(str(label)))}: the band shows the {extent} of their values{_draws(rows, band)}."
    for why in (w for w in WHY if (curve["hollow"] == w).any()):
        yield WHY[why]
    if "shown_high" in curve and (curve["value"].isna() & curve["ci_low"].notna()).any():
        yield "Crosses: undetermined; dotted lines: possible values."
    if len(line):
        yield f"Horizontal lines: {listed(line['label'].unique())}."


def curve_names(names: Iterable[str], look: Look) -> str:
    labels = [look.shown(label) for label in names]
    same = common(labels)
    return f"Curves: {'; '.join(label.removeprefix(f'{same}, ') for label in labels)}."


def _scores(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    found = score_rows(rows)
    counts = " to ".join(map(str, sorted({int(found["n"].min()), int(found["n"].max())})))
    yield f"Spearman's correlation over {counts} encoders; scores by their mean over targets."
    yield f"Framed cells: p of at most {options.level:g}, corrected over all scores and targets."
    yield (
        f"Bars: {look.interval}s of the mean over targets, from resampled encoders; hollow markers: p > "
        f"{options.level:g}, corrected over scores. Permutations and resamples keep the targets of an encoder together."
    )


def _reference(curve: pd.DataFrame, look: Look) -> Iterator[str]:
    """What rows of similarity and movement are compared with."""
    if "reference" in curve and curve["reference"].notna().any():
        references = listed(look.shown(shown_label(name)) for name in curve["reference"].dropna().unique())
        yield f"Each layer is compared with the same layer of {references}."


def _plural(label: str) -> str:
    return label.replace("control task", "control tasks")


def _draws(rows: pd.DataFrame, band: pd.DataFrame) -> str:
    """The number of draws of a control, if the rows contain it."""
    control = rows[rows["target"] == band["target"].iloc[0]]
    counts = control["draw"].dropna().nunique()
    for column in ("controls", "shuffles"):
        if column in control and control[column].notna().any():
            counts = max(counts, int(control[column].max()))
    return f" ({counts:,} draws)" if counts else ""


def measured(gold: pd.DataFrame, look: Look) -> Iterator[str]:
    """Metrics with their tasks, splits and n; models, estimators and representations."""
    parts = []
    for metric, of in gold.groupby("metric", sort=False):
        many = [
            f"{look.task(str(task))}, {listed(part['split'].unique())}, n = {part['n'].max():,}"
            for task, part in of.groupby("task", sort=False)
        ]
        parts.append(f"{first_line(str(metric))} ({'; '.join(many)})")
    yield f"{'; '.join(parts)}."
    yield from _sampled(gold, look)
    trained = gold.groupby("model", sort=False)["random"].agg(lambda random: not random.all())
    models = [
        look.shown(str(name).rsplit("/", 1)[-1]) + f", {RANDOM}" * (not some) for name, some in trained.items() if name
    ]
    estimated = gold[gold["estimator"] != ""]
    noun = "estimator" if (estimated["metric"] == INFORMATION).any() else "probes"
    noun = "scores" if (estimated["representation"] == "logit-lens").all() else noun
    methods = [f"{listed(estimated['estimator'].unique())} {noun}"] if len(estimated) else []
    pooled = [name for name in gold["representation"].unique() if name not in ("", "none")]
    methods += [f"{listed(pooled)} representations"] if pooled else []
    if models:
        plural = "Models" if len(models) > 1 else "Model"
        yield f"{plural}: {listed(models)}{'; ' if methods else ''}{', '.join(methods)}."


def _sampled(gold: pd.DataFrame, look: Look) -> Iterator[str]:
    """How many examples the probes were fitted on, and in how many groups the evaluated examples are resampled."""
    facts = []
    tasks = list(gold.groupby("task", sort=False))
    for column, words in (("n_train", "fitted on {} examples"), ("n_groups", "{} groups, resampled as wholes")):
        for task, part in tasks if column in gold else ():
            if part[column].notna().any():
                counts = [f"{int(n):,}" for n in sorted(part[column].dropna().unique())]
                fact = words.format(counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}")
                facts.append((fact, look.task(str(task))))
    for fact in dict.fromkeys(fact for fact, _ in facts):
        of = [task for other, task in facts if other == fact]
        yield f"{_first(fact)}." if len(of) == len(tasks) else f"{listed(of)}: {fact}."


def _differences(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = rows[rows["analysis"] == "compare"]
    yield from measured(rows.assign(metric=rows["metric"].map(lambda name: metric_called(name).of)), look)
    references = listed(look.shown(control_title(name)) for name in rows["against"].unique())
    yield f"Paired differences from {references}."
    yield f"Thick bars: {look.interval}s for a single layer; thin bars: for all layers at once."
    if (rows["p_adjusted"] > options.level).any():
        yield f"Hollow markers: not shown to differ (p > {options.level:g}, corrected)."


def _trajectory(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    import pandas as pd

    rows = as_curves(of_analyses(rows, *LAYERED, "train"))
    rows = pd.concat([of_metric(part, options.metric) for _, part in rows.groupby("task", sort=False)])
    yield from measured(rows[(rows["target"] == "gold") & (rows["layer_name"] != "")], look)
    if rows["metric"].map(lambda name: bool(metric_called(name).better)).all():
        yield "Dots: the best layer of each step that is above noise."
    yield from _reference(rows, look)
    grids = [grid for _, part in rows.groupby("task", sort=False) for grid in trajectory_grids(part).values()]
    if any(cells.any() for grid in grids for cells in grid.noise.values()):
        yield f"Hatched cells: not above noise ({listed(_controls(rows))})."


def _controls(rows: pd.DataFrame) -> list[str]:
    found = rows[rows["target"] != "gold"][["target", "analysis"]].drop_duplicates()
    return list(dict.fromkeys(control_title(*pair) for pair in found.itertuples(index=False)))


def _mix(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    rows = kept(rows)
    rows = rows[(rows["metric"] == MIX) & (rows["layer_name"] != "")]
    yield from measured(rows, look)
    seeds = int(rows.groupby(["task", "model", "method", "run_kind"])["seed"].nunique().max())
    if seeds > 1:
        yield f"Lines: means of {seeds} seeds; bands: from the smallest to the largest weight."
    yield "Dotted line: equal weights."


def _expected(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    values = expected_values(rows)
    yield f"{metrics_of(values)}."
    yield from _by_task(values, look)
    yield (
        "Expectation with replacement (Dodge et al. 2019); bands: one standard deviation of the best of n trials. The "
        "best trial is chosen on the same dev examples."
    )
    if drawn := sorted({*values["drawn"]} - {"random"}):
        yield f"Settings drawn by {listed(drawn)}, which are not independent as the estimate assumes."


def _learning(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points = learning_rows(rows, over=options.over)
    yield f"{metrics_of(points[points['task'] != MEAN])}."
    yield from _by_task(points, look)
    low, high = int(points["seeds"].min()), int(points["seeds"].max())
    seeds = f"Means over {low} seeds" if low == high else f"Means over {low} to {high} seeds"
    bars = f"Bars: {look.interval}s over examples"
    if options.over == "pretraining":
        yield from _pretraining(points, look)
    if over_seeds(points, options.over):
        yield f"{seeds}. Bars and bands: one standard deviation over seeds, where there are several."
    elif high > 1:
        yield f"{seeds}. {bars}, means over seeds; they do not cover the variation over seeds."
    else:
        yield f"{bars}; single runs."


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


def _domains(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    rows = of_analyses(rows, "domains")
    named = [m for m in rows["metric"].unique() if m not in (SIZES, TERMS)]
    pairs = rows[rows["metric"].isin([options.metric or (named or [""])[0]]) & (rows["target"] == "gold")]
    yield from sizes_of(pairs)
    if "p" in pairs and (pairs["p"] > 0.05).any():
        yield "Hatched cells: no larger than sampling noise (p > 0.05)."
    if (rows["metric"] == TERMS).any():
        yield f"Terms: the {options.top} that contribute most to the divergence of a pair."
    if (rows["metric"] == SIZES).any():
        yield "By size: solid lines are corrected for sampling noise, dashed lines are raw; bands show random subsets."


def _transfer(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    yield from sizes_of(transfer_rows(rows))
    yield f"Metric: {metrics_of(transfer_rows(rows))}."


def _relation(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points, correlations = relation_rows(rows, transfer=options.transfer)
    yield f"Metrics: {metrics_of(points)}. Points: {'pairs of domains' if options.transfer else 'domains'}."
    yield from sizes_of(points)
    if points["ci_low"].notna().any():
        yield f"Bars: {look.interval}s."
    if len(correlations):
        yield f"In brackets: {look.interval}s of the correlations; p from permutations."


def _dendrogram(rows: pd.DataFrame, options: PlotOptions, _look: Look) -> Iterator[str]:
    rows = rows[rows["analysis"] == "similarity"]
    rows = rows[rows["metric"] == (options.metric or rows["metric"].iloc[0])]
    same = (rows["layer"].fillna(-1) == rows["layer_b"].fillna(-1)) & (rows["site"] == rows["site_b"])
    names = listed(layer_labels(rows[same.astype(bool)]))
    yield f"Distance: 1 minus the mean {metrics_of(rows)} of the same layers ({names})."
    yield from sizes_of(rows)


def _gains(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    points = gain_rows(rows, metric=options.metric)
    yield f"Metrics: {metrics_of(points)}."
    yield f"Reference: {listed(look.shown(name) for name in points['against'].unique())}."
    yield from _by_task(points, look)
    if points["step"].nunique() > 1:
        yield "Lines join the checkpoints of a layer; the last one has the layer's name."
    yield f"Bars: {look.interval}s, each for a single layer."
    over = ", not over checkpoints" if points["step"].nunique() > 1 else ""
    yield f"Filled: the probe differs from the reference's (p ≤ .05, corrected over layers{over})."


def _adaptation(rows: pd.DataFrame, _options: PlotOptions, look: Look) -> Iterator[str]:
    values = adaptation_rows(rows)
    panels = {str(name): part for name, part in values.groupby("panel", sort=False)}
    yield "Columns: training tasks."
    if "result" in panels:
        runs = panels["result"][panels["result"]["label"] != CONSTANT]
        yield f"{metrics_of(runs)} of the kept weights by the number of trained weights."
        yield from _by_task(runs, look)
        means = ", means over seeds; they do not cover the variation over seeds" * bool((runs["seeds"] > 1).any())
        yield f"Bars: {look.interval}s over examples{means}."
        if (panels["result"]["label"] == CONSTANT).any():
            yield "Dotted lines: the constant prediction."
    if "probe" in panels:
        yield f"Probes of each layer on the training task ({metrics_of(panels['probe'])})."
        if (panels["probe"]["label"] == PRETRAINED).any():
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
    if (layers["seeds"] > 1).any():
        yield "Lines by layer: means over seeds; bands: from the smallest to the largest value of a seed."
    counts = sorted(set(values.loc[~values["label"].isin([CONSTANT, PRETRAINED]), "seeds"]))
    yield f"Seeds: {' to '.join(str(int(n)) for n in dict.fromkeys([counts[0], counts[-1]]))}."


def metrics_of(rows: pd.DataFrame) -> str:
    return listed(metric_called(str(m)).title.replace("\n", " ") for m in rows["metric"].unique())


def sizes_of(rows: pd.DataFrame) -> Iterator[str]:
    if rows["n"].notna().any():
        low, high = int(rows["n"].min()), int(rows["n"].max())
        yield f"n = {low:,}." if low == high else f"n from {low:,} to {high:,}."


def _by_task(rows: pd.DataFrame, look: Look) -> Iterator[str]:
    """The n of each task, or the common one."""
    if rows["n"].nunique() < 2:
        yield from sizes_of(rows)
        return
    sizes = (
        f"{size[:-1]} ({look.task(str(task))})"
        for task, of in rows.groupby("task", sort=False)
        for size in sizes_of(of)
    )
    yield f"{'; '.join(sizes)}."


def listed(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = list(dict.fromkeys(map(str, words))) or [""]
    return f"{', '.join(first)}{' and ' * bool(first)}{last}"


def _first(words: str) -> str:
    return words[:1].upper() + words[1:]


def _scoreboard(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = board_values(rows)
    against = listed(sorted(values["against"].unique()))
    yield f"0: the control ({against}, whichever is better); 1: the best possible value. Numbers are times 100."
    if (values["chosen_by"] == "held-out").any():
        yield "Frames: the layer with the lowest loss on held-out parts of train."
    if (values["chosen_by"] == "dev").any():
        yield "Dashed frames: the best layer on dev."
    if (~values["above"].astype(bool)).any():
        corrected = (
            ", corrected for the number of layers where dev chose," if (values["chosen_by"] == "dev").any() else ""
        )
        yield f"Hatched: the {look.interval}{corrected} reaches the control."


def _shift(rows: pd.DataFrame, options: PlotOptions, look: Look) -> Iterator[str]:
    values = shift_values(rows, options.metric, options.layer)
    sizes = [f"{look.task(str(task))}, {listed(of['split'].unique())}, n = {of['n'].max():,}" for task, of in
             values.groupby("task", sort=False)]  # fmt: skip
    yield f"{metrics_of(values)} ({'; '.join(sizes)}). Lines: data sets of training; columns: of evaluation."
    counts = values.drop_duplicates("trained_on")
    fitted = [f"{look.task(str(row['trained_on']))} {row['n_train']:,}" for row in counts.to_dict("records")]
    yield f"Examples of training: {', '.join(fitted)}."
    layers = {str(row["model"]): str(row["layer_name"]) for row in values.to_dict("records")}
    if values["chosen"].any():
        best = "; ".join(f"{look.shown(model)}: layer {layer}" for model, layer in layers.items())
        main = first_line("auroc" if (rows["metric"] == "auroc").any() else "accuracy")
        yield f"The layer with the highest mean {main} of the diagonal, on the evaluated examples ({best})."
    if "rate" in values and values["rate"].notna().any():
        yield f"At {100 * values['rate'].max():g} % false positives in train; on other data they may be more or fewer."
    if values["p_difference"].notna().any():
        yield (
            "Framed cells differ from the diagonal of their column "
            f"(p of at most {options.level:g}; paired, with the choice of training examples, corrected by Holm)."
        )
    if values["metric"].eq("auroc").all():
        yield "0.5 is chance; below it the probe is reversed."
    if values["value"].isna().any():
        yield "Empty cells: no value; the column why of the rows says the reason."


DETAILS: dict[str, Callable[[pd.DataFrame, PlotOptions, Look], Iterator[str]]] = {
    "layers": _layers,
    "differences": _differences,
    "trajectory": _trajectory,
    "mix": _mix,
    "learning": _learning,
    "expected": _expected,
    "score-correlations": _scores,
    "domains": _domains,
    "relation": _relation,
    "transfer": _transfer,
    "dendrogram": _dendrogram,
    "gains": _gains,
    "adaptation": _adaptation,
    "scoreboard": _scoreboard,
    "shift": _shift,
}
