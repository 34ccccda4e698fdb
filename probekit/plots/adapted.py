"""What adapting does to a model and its layers, as values: results, probes, similarity and forgetting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.curves import REGIMES, plot_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONSTANT", "PANELS", "PRETRAINED", "adaptation_rows"]

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
        Rows of :func:`probekit.train`, and of :func:`probekit.probe`, :func:`probekit.similarity` or
        :func:`probekit.movement` on caches of the trained and the pretrained models.

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

    alike, parts = rows[(rows["analysis"] == "similarity") & (rows["metric"] == "cka")], []
    if "layer_b" in alike:
        same = (alike["layer"].fillna(-1) == alike["layer_b"].fillna(-1)) & (alike["site"] == alike["site_b"])
        alike = alike[same.astype(bool)]
        swapped = {**{c: f"{c}_b" for c in SECOND}, **{f"{c}_b": c for c in SECOND}}
        for part in (alike, alike.rename(columns=swapped)):
            known = part.reindex(columns=[f"{c}_b" for c in SECOND])
            start = part["regime"].eq("") & part["checkpoint"].eq("") & known["regime_b"].isin(TRAINED)
            parts.append(part.assign(**{c: known[f"{c}_b"] for c in SECOND})[start])
    if not sum(map(len, parts)):
        moved = rows[(rows["analysis"] == "movement") & (rows["metric"] == "relative-distance")]
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


def _labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """The trained and the pretrained rows, with the way to adapt; a model's name where a way has several."""
    rows = rows[rows["regime"].isin(TRAINED) | (rows["regime"].eq("") & rows["checkpoint"].eq(""))]
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
