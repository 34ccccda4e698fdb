"""Encoders on GLUE (Bowman et al. 2018): tasks, correlations, mixtures, categories; scores that foretell them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from probekit.display import p_value, shown_model, shown_score
from probekit.grid import Column, Grid
from probekit.tables.cells import REGIMES, cell, citation, interval, legend, published

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05

NAMES = {
    "cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "qqp": "QQP", "stsb": "STS-B", "mnli": "MNLI", "qnli": "QNLI",
    "rte": "RTE", "wnli": "WNLI",
}  # fmt: skip
"""The tasks in the order of the columns."""

RULE = """\
MRPC and QQP: mean of accuracy and F1; STS-B: mean of Pearson and Spearman; CoLA: Matthews correlation; other \
tasks: accuracy (MNLI: mean of matched and mismatched where both are given). WNLI is counted as the most frequent \
class for every encoder. Intervals of the mean assume that the examples of different tasks are independent.
"""


def glue_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each encoder with its tasks and their mean.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.glue``.
    beside : str, optional
        Published numbers: "bowman-2018/1".

    Returns
    -------
    list of Grid or str
        The table, and the rule of the mean.
    """
    here = set(found["task"])
    means = found[found["task"] == "glue"]
    partial = "glue-score" not in set(means["metric"])
    tasks = [task for task in NAMES if task in here and not (partial and task == "wnli")]
    columns = {task: NAMES[task] for task in tasks}
    if len(means):
        columns["glue"] = f"mean of {means['tasks'].iloc[0]:.0f} tasks" if partial else "GLUE score"
    lines = []
    done: dict[str, set[str]] = {}
    for (model, variant, regime), part in found.groupby(["model", "variant", "regime"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        lines.append([name, REGIMES[str(regime)], *(cell(part[part["task"] == task]) for task in columns)])
        done[name] = done.get(name, set()) | set(part["task"])
    if beside is not None:
        lines += _published(published(beside), list(columns), set.intersection(*done.values()) if partial else None)
    notes = list(_missing(done, means)) if partial else []
    if "caution" in found:
        notes += list(found["caution"].dropna().unique())
    if len(noise := means[means["sd"].notna()]):
        of = (
            f"{shown_model(row['model'])} {100 * row['sd']:.1f} ({row['seeds']:.0f} seeds)"
            for _, row in noise.iterrows()
        )
        notes.append(f"Standard deviation of the mean over seeds: {', '.join(of)}.")
    if (held := found[found["split"] == "validation"]["task"]).size:
        notes.append(
            f"On a held-out part of the training examples: {', '.join(NAMES[t] for t in NAMES if t in set(held))}."
        )
    keys = [Column("model", align="left", key=True), Column("× 100", align="left", key=True, label=True)]
    text = "".join(f"{note}\n" for note in notes)
    return [Grid([*keys, *map(Column, columns.values())], lines), legend(found, beside) + RULE + text]


def _missing(done: Mapping[str, set[str]], means: pd.DataFrame) -> Iterator[str]:
    """Which tasks are missing for all encoders, which for some, and what the mean contains therefore."""
    everywhere = [task for task in NAMES if task != "wnli" and not any(task in tasks for tasks in done.values())]
    somewhere = [task for task in NAMES if any(task in tasks for tasks in done.values())]
    if everywhere:
        yield f"No encoder has a run on {_names(everywhere)}, so there is no GLUE score."
    lacking = {name: [t for t in somewhere if t not in tasks] for name, tasks in done.items()}
    for name, tasks in lacking.items():
        if tasks:
            yield f"{name} has no run on {_names(tasks)}{'' if everywhere else ', so there is no GLUE score'}."
    if len(means):
        yield "The mean is over the tasks that all encoders have, without WNLI."
    if shrinking := [name for name, tasks in lacking.items() if tasks and name != "Single-Task"]:
        yield f"Without {', '.join(shrinking)}, the mean has more tasks (--models chooses encoders)."


def _names(tasks: Iterable[str]) -> str:
    return ", ".join(NAMES[task] for task in tasks)


def _published(paper: pd.DataFrame, tasks: Sequence[str], counted: Collection[str] | None) -> Iterator[list[str]]:
    """Lines of published numbers on dev, of two metrics their mean, and WNLI as it is counted.

    counted : the tasks of a partial mean
    """
    for (section, model, variant), part in paper[paper["split"] == "dev"].groupby(
        ["row", "model", "variant"], sort=False
    ):
        values = dict(part.groupby("task")["value"].mean())
        values |= {"glue": values.get("average"), "wnli": 56.3}
        if counted is not None:
            same = [values[task] for task in NAMES if task in counted and task != "wnli"]
            values["glue"] = sum(same) / len(same) if same else None
        name = ", ".join(filter(None, (str(model), str(variant), "published")))
        yield [f"*{name}*", f"*{section}*", *(f"{values[t]:.1f}" if values.get(t) is not None else "" for t in tasks)]


def correlation_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """Pearson correlations between target tasks over encoders, with intervals.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.encoders.task_correlations``.
    beside : str, optional
        Published numbers: "bowman-2018/2".

    Returns
    -------
    list of Grid or str
        The lower triangle of the correlations, and what they can show.
    """
    at = {frozenset((row["task"], row["other_task"])): row for row in found.to_dict("records")}
    here = {*found["task"], *found["other_task"]}
    tasks = [task for task in (*NAMES, "glue") if task in here]
    paper = {} if beside is None else {frozenset((a, b)): v for a, b, v in _pairs(published(beside))}
    lines: list[list[str]] = []
    for i, one in enumerate(tasks[1:], 1):
        cells = []
        for other in tasks[:i]:
            row = at[frozenset((one, other))]
            cells.append(interval(row["value"], row["ci_low"], row["ci_high"], "{:+.2f}") + "†" * (row["p"] <= LEVEL))
        lines.append([_task(one), *cells, *[""] * (len(tasks) - 1 - i)])
        if theirs := [paper.get(frozenset((one, other))) for other in tasks[:i]]:
            shown = [f"*{value:+.2f}*" if value is not None else "" for value in theirs]
            lines += [[f"*{_task(one)}, published*", *shown, *[""] * (len(tasks) - 1 - i)]] if any(shown) else []
    tested = int(found["p"].notna().sum())
    few = f"{tested} p-values are not corrected: about {LEVEL * tested:.0f} are below {LEVEL:g} by chance. "
    text = (
        f"Pearson's r over {int(found['n'].iloc[0])} encoders (of several seeds the mean), in brackets 95 % intervals "
        f"from resampled encoders; †: permutation p of at most {LEVEL:g}. {few if tested else ''}The mean contains "
        f"each task, so it has no p-values. {found['caution'].iloc[0]}{citation(beside, set(tasks))}\n"
    )
    return [Grid([Column("r", align="left", key=True), *(Column(_task(t)) for t in tasks[:-1])], lines), text]


def _task(name: str) -> str:
    return NAMES.get(name, "GLUE")


def _pairs(paper: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    for one, other, value in zip(paper["model"], paper["task"], paper["value"], strict=True):
        yield one, other.replace("average", "glue"), value


def diagnostic_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each encoder with its results by category.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.encoders.diagnostic_scores``.
    beside : str, optional
        Published numbers: "bowman-2018/6".

    Returns
    -------
    list of Grid or str
        The table, and its legend.
    """
    tasks = sorted(dict.fromkeys(found["task"]), key=lambda task: (":" in task, task))
    categories = [task.partition(":")[2] for task in tasks]
    lines = []
    for (model, variant), part in found.groupby(["model", "variant"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        lines.append([name, *(cell(part[part["task"] == task]) for task in tasks)])
    if beside is not None:
        for (model, variant), part in published(beside).groupby(["model", "variant"], sort=False):
            values = dict(zip(part["task"], part["value"], strict=True))
            name = ", ".join(filter(None, (str(model), str(variant), "published")))
            lines.append([f"*{name}*", *(f"{values[c]:.1f}" if c in values else "" for c in categories)])
    names = [Column(category or "all") for category in categories]
    two = any(task.startswith("ax-b") for task in tasks)
    measure = (
        "Matthews correlation of two classes, entailment and not_entailment, which is not comparable with R3 of three."
        if two
        else "R3, the correlation of three classes (Gorodkin 2004)."
    )
    return [
        Grid([Column("model (× 100)", align="left", key=True), *names], lines),
        f"{measure} {legend(found, beside)}",
    ]


def mixture_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """The mean result of each mixture on its own dev splits, a line for each mixture and sampling.

    Several models with the same mixture, sampling and loss scaling have a line each, with their name.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.encoders.mixture_scores``.
    beside : str, optional
        Published numbers: "bowman-2018/4" or "bowman-2018/5".

    Returns
    -------
    list of Grid or str
        The table with a column for each loss scaling, and its legend.
    """
    scalings = list(dict.fromkeys(found["scaling"]))
    lines = []
    for (on, sampling), part in found.groupby(["task", "sampling"], sort=False):
        mixture = ", ".join(str(on).split("+"))
        several = part["scaling"].duplicated().any()
        for name, rows in part.groupby("model", sort=False) if several else [("", part)]:
            at = {row["scaling"]: row for row in rows.to_dict("records")}
            shown = f"{mixture} ({shown_model(str(name))})" if several else mixture
            lines.append([shown, str(sampling), *(_with_sd(at.get(scaling)) for scaling in scalings)])
    if beside is not None:
        paper = published(beside)
        paper[["sampling", "scaling"]] = [_settings(how) for how in paper["row"]]
        scalings += [scaling for scaling in dict.fromkeys(paper["scaling"]) if scaling not in scalings]
        for line in lines:
            line += [""] * (2 + len(scalings) - len(line))
        for (model, sampling), part in paper.groupby(["model", "sampling"], sort=False):
            values = dict(zip(part["scaling"], part["value"], strict=True))
            cells = [f"*{values[scaling]:.1f}*" if scaling in values else "" for scaling in scalings]
            lines.append([f"*{model}, published*", f"*{sampling}*", *cells])
    keys = [Column("mixture (× 100)", align="left", key=True), Column("sampling", align="left", key=True)]
    text = (
        "Mean of the main metrics of all tasks of a mixture on dev, at the kept validation. After ±, the standard "
        f"deviation over seeds.{citation(beside, ())}{' Published means are over nine tasks.' if beside else ''}\n"
    )
    return [Grid([*keys, *(Column(f"loss {scaling}") for scaling in scalings)], lines), text]


def _settings(row: str) -> list[str]:
    """Sampling and loss scaling of a published row, such as "sampling power 0.75, loss uniform"."""
    return [part.split(" ", 1)[1].replace(" ", "-") for part in row.split(", ")]


def _with_sd(row: Mapping[Any, Any] | None) -> str:
    if row is None:
        return ""
    return f"{100 * row['value']:.1f}" + (f" ± {100 * row['sd']:.1f}" if row["sd"] == row["sd"] else "")


def score_table(found: pd.DataFrame, beside: str | None = None) -> list[Grid | str]:
    """A line for each score: the mean of its correlations with the target tasks, and each of them.

    Parameters
    ----------
    found : pd.DataFrame
        Rows of ``analyses.score_correlations``.
    beside : str, optional
        Not used: no published numbers belong to this table.

    Returns
    -------
    list of Grid or str
        The table, and what it can show.
    """
    tasks = [task for task in NAMES if task in set(found["task"])]
    lines = []
    for (score, score_task), part in found.groupby(["score", "score_task"], sort=False):
        at = {row["task"]: row for row in part.to_dict("records")}
        cells = [
            f"{at[task]['value']:+.2f}" + "†" * (at[task]["p_adjusted"] <= LEVEL) if task in at else ""
            for task in tasks
        ]
        mean = at.get("glue")
        shown = ["", "", ""] if mean is None else [
            interval(mean["value"], mean["ci_low"], mean["ci_high"], "{:+.2f}"), p_value(mean["p_adjusted"]),
            f"{mean['tasks']:.0f}",
        ]  # fmt: skip
        lines.append([shown_score(str(score), str(score_task)), *shown, *cells])
    keys = [Column("score", align="left", key=True), *map(Column, ("mean over targets", "p adjusted", "targets"))]
    means = found[found["task"] == "glue"]
    caution = (means if len(means) else found).sort_values("n")["caution"].iloc[0]
    counts = " to ".join(map(str, sorted({int(found["n"].min()), int(found["n"].max())})))
    text = (
        "Spearman's rank correlation between the score of an encoder and its result on the target task, over "
        f"{counts} encoders (of several seeds the mean). Encoders that are pretrained on the labels of a target are "
        "left out for it, and so are targets on which all encoders have the same score. Mean: over the targets, for "
        f"{_listed(means['models'])}; in brackets its 95 % interval from resampled encoders, and p from permuted "
        f"encoders, corrected over the scores (Holm). †: p of at most {LEVEL:g}, corrected over all scores and "
        "targets. Probes and target models are evaluated on the same dev examples, which adds to their correlation. "
        f"The encoders of a study are related, so p-values describe these encoders. {caution}\n"
    )
    return [Grid([*keys, *(Column(NAMES[task]) for task in tasks)], lines), text]


def _listed(models: pd.Series) -> str:
    """The encoders of the means, if they are the same for all scores."""
    return str(models.iloc[0]) if models.nunique() == 1 else "encoders without these"
