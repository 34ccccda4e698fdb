"""The GLUE score of encoders: Table 1 of Bowman et al. (2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.tables.cells import REGIMES, cell, legend
from probekit.tables.grid import Column, Grid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["glue_table"]

NAMES = {
    "cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "qqp": "QQP", "stsb": "STS-B", "mnli": "MNLI", "qnli": "QNLI",
    "rte": "RTE", "wnli": "WNLI",
}  # fmt: skip
"""The tasks in the order of the columns."""

RULE = """\
On dev. MRPC and QQP: mean of accuracy and F1; STS-B: mean of Pearson and Spearman; CoLA: Matthews correlation; other \
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
        Published numbers; there are none for this table.

    Returns
    -------
    list of Grid or str
        The table, and the rule of the mean.

    Raises
    ------
    UsageError
        If published numbers are requested.
    """
    if beside is not None:
        raise UsageError("the table glue has no published numbers; leave out --published.")
    here = set(found["task"])
    means = found[found["task"] == "glue"]
    partial = "glue-score" not in set(means["metric"])
    tasks = [task for task in NAMES if task in here and not (partial and task == "wnli")]
    columns = {task: NAMES[task] for task in tasks}
    if len(means):
        columns["glue"] = f"mean of {means['tasks'].iloc[0]:.0f} tasks" if partial else "GLUE score"
    lines, notes = [], []
    for (model, variant, regime), part in found.groupby(["model", "variant", "regime"], sort=False):
        name = ", ".join(filter(None, (shown_model(str(model)), str(variant))))
        lines.append([name, REGIMES[str(regime)], *(cell(part[part["task"] == task]) for task in columns)])
        if missing := [NAMES[task] for task in NAMES if task not in set(part["task"])]:
            notes.append(f"{name} has no run on {', '.join(missing)}, so there is no GLUE score.")
    if notes and len(means):
        notes.append("The mean is over the tasks that all encoders have, without WNLI.")
    keys = [Column("model", align="left", key=True), Column("× 100", align="left", key=True, label=True)]
    text = "".join(f"{note}\n" for note in notes)
    return [Grid([*keys, *map(Column, columns.values())], lines), legend(found, None) + RULE + text]
