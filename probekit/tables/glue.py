"""The GLUE score of encoders, and correlations between tasks: Tables 1 and 2 of Bowman et al. (2018)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.grid import Column, Grid
from probekit.tables.cells import REGIMES, cell, interval, legend
from probekit.tables.papers import citation, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["correlation_table", "glue_table"]

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
    return [
        Grid([Column("r", align="left", key=True), *(Column(_task(t)) for t in tasks[:-1])], lines),
        text,
    ]


def _task(name: str) -> str:
    return NAMES.get(name, "GLUE")


def _pairs(paper: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    for one, other, value in zip(paper["model"], paper["task"], paper["value"], strict=True):
        yield one, other.replace("average", "glue"), value
