"""The GLUE score of encoders from their runs, averaged as in Bowman et al. (2018, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.data.validation import VALIDATION
from probekit.adaptation.options import Regime
from probekit.analyses.regimes import by_seeds
from probekit.calls import checked
from probekit.errors import UsageError
from probekit.rows import as_rows, make_rows

if TYPE_CHECKING:
    import pandas as pd

GLUE: dict[str, tuple[str, ...]] = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}
"""The nine tasks and their metrics."""
MEASURED = {task: metrics for task, metrics in GLUE.items() if task != "wnli"}
WNLI = 40 / 71
"""The accuracy of the most frequent class on WNLI's dev split, which is counted for every encoder."""
DEV = (("dev",), ("dev-matched", "dev-mismatched"), (VALIDATION,))
"""The first of these of which an encoder has a split counts, as the mean of its splits: MNLI has two dev splits."""
SPLITS = tuple(split for together in DEV for split in together)
ENCODER = ("model", "variant", "regime")
NUMBERS = ("value", "ci_low", "ci_high")
SCORE, PARTIAL = "glue-score", "glue-partial"


@checked
def glue_score(*rows: Any) -> pd.DataFrame:
    """GLUE score of each encoder on dev: the mean of nine tasks.

    Of two metrics of a task the mean counts, as of MNLI's two dev splits if there are both. WNLI counts as the most
    frequent class (.563), whatever the encoder reaches, because its dev split is adversarial to its training split.

    Parameters
    ----------
    *rows : DataFrame, Result or path
        Rows of :func:`probekit.train` or :func:`probekit.evaluate`, on dev or on a held-out part of train, which counts
        only for an encoder without results on dev; others are left out. Runs that differ only in their seed are
        averaged.

    Returns
    -------
    DataFrame
        For each encoder (a model in a regime, and the variant of its runs) a row for each task, then one with the task
        "glue". ``metric`` of the last is "glue-score"; if an encoder lacks a task, it is "glue-partial" for all, the
        mean of the tasks that all encoders have, without WNLI. Column ``tasks`` counts the averaged tasks.

        Intervals are 95 % intervals over the examples of dev, not over seeds. That of a task with two metrics is the
        mean of both intervals, which is too wide unless the metrics vary together. That of the mean adds the squared
        distances of the tasks from value to end, because their examples are independent (Zou & Donner 2008); WNLI is a
        constant.

    Raises
    ------
    UsageError
        If there are no runs on GLUE tasks, or an encoder has two heads for a task.
    """
    import pandas as pd

    runs = _runs(as_rows(list(rows)))
    tables = {key: _tasks(part) for key, part in runs.groupby(list(ENCODER), sort=False)}
    measured = [set(table) for table in tables.values()]
    complete = all(found == MEASURED.keys() for found in measured)
    counted = list(GLUE) if complete else [t for t in MEASURED if all(t in found for found in measured)]
    records = []
    for table in tables.values():
        first = next(iter(table.values()))
        table["wnli"] = first | {
            "task": "wnli", "trained_on": "wnli", "split": "dev", "value": WNLI, "ci_low": np.nan, "ci_high": np.nan,
            "n": 71, "head": "", "estimator": "majority",
        }  # fmt: skip
        lines = [table[task] | {"metric": SCORE, "tasks": 1} for task in GLUE if task in table]
        records += lines
        if counted:
            records.append(_mean([table[task] for task in counted], SCORE if complete else PARTIAL))
    return make_rows(pd.DataFrame(records).assign(analysis="glue"))


def _runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The metrics of the kept weights of each run on its own dev split, one row each."""
    import pandas as pd

    if "kept" not in rows:
        raise UsageError("the rows contain no training runs; give those of probekit train or probekit evaluate.")
    right = rows["analysis"].isin(["train", "evaluate"]) & rows["kept"].fillna(value=False).astype(bool)
    right &= rows["regime"].isin(list(Regime)) & (rows["trained_on"] == rows["task"]) & (rows["estimator"] == "")
    right &= rows["split"].isin(SPLITS)
    known = pd.Series([m in MEASURED.get(t, ()) for t, m in zip(rows["task"], rows["metric"], strict=True)], rows.index)
    found = rows[right & known].drop_duplicates(
        [*ENCODER, "task", "split", "metric", "head", "checkpoint", "seed", "step"]
    )
    if found.empty:
        raise UsageError(f"the rows contain no runs on GLUE tasks with a dev split; expected {', '.join(MEASURED)}.")
    for (model, variant, regime, task), part in found.groupby([*ENCODER, "task"], sort=False):
        if len(heads := sorted(set(part["head"]))) > 1:
            raise UsageError(
                f"{model}{f', {variant}' if variant else ''}, {regime}, has several heads for {task}: "
                f"{', '.join(heads)}. Give the runs of one, or train each with its own --variant."
            )
    return found


def _tasks(runs: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The number of each task of an encoder, with its interval."""
    found: dict[str, dict[str, Any]] = {}
    for task, metrics in MEASURED.items():
        complete = {}
        for split, part in runs[runs["task"] == task].groupby("split", sort=False):
            values = {row["metric"]: row for row in by_seeds(part)}
            if set(values) == set(metrics):
                pair = [values[name] for name in metrics]
                complete[split] = pair[0] | {k: float(np.mean([one[k] for one in pair])) for k in NUMBERS}
        splits = next(([complete[s] for s in dev if s in complete] for dev in DEV if complete.keys() & {*dev}), [])
        if splits:
            found[task] = splits[0] if len(splits) == 1 else _mean(splits, SCORE) | {"task": task, "trained_on": task}
    return found


def _mean(parts: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The mean of numbers on independent examples; those of the constant class have no interval and add nothing."""
    value = float(np.mean([one["value"] for one in parts]))
    ends = {}
    for key, sign in (("ci_low", -1), ("ci_high", 1)):
        away = [one[key] - one["value"] for one in parts if one["estimator"] == ""]
        ends[key] = value + sign * float(np.sqrt(np.sum(np.square(away)))) / len(parts)
    return parts[0] | ends | {
        "task": "glue", "trained_on": "", "split": "dev", "head": "", "estimator": "", "metric": metric, "value": value,
        "tasks": len(parts), "n": sum(int(one["n"]) for one in parts),
        "seeds": min(int(one["seeds"]) for one in parts), "sd": np.nan,
    }  # fmt: skip
