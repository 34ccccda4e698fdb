"""Pretrained encoders compared by their results on target tasks: Tables 1, 2, 4 and 5 of Bowman et al. (2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.analyses.glue import ENCODER, GLUE, SCORE, glue_score
from probekit.analyses.regimes import by_seeds
from probekit.analyses.verdict.words import listed
from probekit.errors import UsageError
from probekit.rows import make_rows
from probekit.statistics.correlation import caution, relation

if TYPE_CHECKING:
    import pandas as pd

SINGLE_TASK = "Single-Task"
"""The encoder that is pretrained, for each task, on this task."""
DIAGNOSTIC = ("glue-diagnostic", "ax-b")
LEAST = 5
"""Encoders without which no correlation is computed."""


def encoder_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """GLUE scores of encoders, with the variation over seeds and the line "Single-Task" (Bowman et al., Table 1).

    Parameters
    ----------
    rows : DataFrame
        Rows of :func:`probekit.train`, and of :func:`probekit.pretrain_encoder`, which say what an encoder was
        pretrained on.

    Returns
    -------
    DataFrame
        The rows of :func:`probekit.glue_score`. ``sd`` of a mean is its standard deviation over the seeds of the
        encoder, where it has several. The model "Single-Task" has, for each task, the run on the encoder that is
        pretrained on it; encoders with only this run have no line of their own. If several encoders are pretrained on
        a task, "Single-Task" has none, and the column ``caution`` names them.
    """
    import pandas as pd

    others, single, several = _single_task(rows)
    notes = {"caution": " ".join(several)} if several else {}
    if not len(single):
        return _with_sd(glue_score(others), others).assign(**notes)
    line = glue_score(single).assign(**notes)
    if not (others["regime"].isin(list(Regime))).any():
        return line
    found = _with_sd(glue_score(others), others)
    whole = (line["task"] != "glue") | line["metric"].isin(found["metric"]) & (line["metric"] == SCORE)
    return make_rows(pd.concat([line[whole], found], ignore_index=True))


def _with_sd(found: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Scores with the standard deviation of each mean over seeds."""
    means = (found["task"] == "glue") & (found["seeds"] > 1)
    counted = set.intersection(*(set(part["task"]) for _, part in found.groupby(list(ENCODER))))
    rows = rows[rows["task"].isin(counted)]
    for i, row in found[means].iterrows():
        of_encoder = np.logical_and.reduce([rows[key] == row[key] for key in ENCODER])
        scores = [glue_score(part) for _, part in rows[of_encoder].groupby("seed")]
        if len({tuple(one["task"]) for one in scores}) == 1:
            found.loc[i, "sd"] = np.std([one.loc[one["task"] == "glue", "value"].iloc[0] for one in scores], ddof=1)
    return found


def _single_task(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """The rows of other encoders, as those of "Single-Task" the runs on the task of their own pretraining, and notes.

    A task on which several encoders are pretrained is left out, which a note says.
    """
    pretrained = rows[rows["regime"] == PRETRAIN]
    on = {str(model): set(part["trained_on"]) for model, part in pretrained.groupby("model")}
    runs = rows["regime"].isin(list(Regime))
    pairs = zip(rows["model"], rows["trained_on"], strict=True)
    home = runs & np.array([task in GLUE and on.get(model) == {task} for model, task in pairs], dtype=bool)
    notes = []
    for task, part in rows[home].groupby("trained_on", sort=False):
        if len(names := sorted(set(part["model"]))) > 1:
            home &= rows["trained_on"] != task
            notes.append(f"{SINGLE_TASK} has no run on {task}, because {listed(names)} are pretrained on it only.")
    tasks = rows[runs].groupby("model")["trained_on"].nunique()
    only = home & (rows["model"].map(tasks) == 1).fillna(value=False)
    first = rows["model"].map(rows[home].groupby("model")["seed"].min())  # one run for each task
    single = rows[home & (rows["seed"] == first).fillna(value=False)]
    return rows[~only], single.assign(model=SINGLE_TASK), notes


def task_correlations(rows: pd.DataFrame, *, draws: int = 10_000, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Pearson correlations between target tasks over encoders (Bowman et al., Table 2).

    Parameters
    ----------
    rows : DataFrame
        Rows as for :func:`encoder_scores`, or the rows that it returns. An encoder with several seeds is one point,
        their mean. "Single-Task" is not an encoder, and WNLI is a constant; both are left out, as are encoders that
        lack a task, which ``caution`` names.
    draws, resamples, seed : int
        See :func:`probekit.statistics.correlation.relation`.

    Returns
    -------
    DataFrame
        For each pair of ``task`` and ``other_task`` a row: ``value``, its interval from resampled encoders, ``p`` from
        permuted encoders, and ``n``, the number of encoders. ``caution`` states what so few points can show. The mean
        of the tasks ("glue") contains each of them, so correlations with it have no p-value.

    Raises
    ------
    UsageError
        If fewer than five encoders have runs on the same two tasks or more.
    """
    scores = rows if (rows["analysis"] == "glue").all() else encoder_scores(rows)
    scores = scores[(scores["model"] != SINGLE_TASK) & (scores["task"] != "wnli")]
    values = scores.pivot_table("value", list(ENCODER), "task", sort=False)
    tasks = [task for task in GLUE if task in values]
    values, left_out = _complete(values[tasks])
    if len(values) < LEAST or len(tasks) < 2:
        raise UsageError(
            f"there are {len(values)} encoders with runs on the same {len(tasks)} tasks; correlations between tasks "
            f"need {LEAST} encoders or more.{left_out}"
        )
    values["glue"] = values.mean(axis=1)  # WNLI is a constant, which does not change a correlation
    tasks.append("glue")
    about = {
        "analysis": "task-correlations", "split": "dev", "model": "", "layer": None, "representation": "none",
        "estimator": "", "target": "gold", "metric": "pearson", "n": len(values),
        "caution": caution(len(values)) + left_out,
    }  # fmt: skip
    records: list[dict[str, Any]] = []
    for one, other in combinations(tasks, 2):
        found = relation(values[one].to_numpy(), values[other].to_numpy(), draws=draws, resamples=resamples, seed=seed)[
            "pearson"
        ]
        p = np.nan if other == "glue" else found.p
        records.append(
            about | {"task": one, "other_task": other, "value": found.value, "ci_low": found.low, "ci_high": found.high,
                     "p": p, "exact": found.exact}
        )  # fmt: skip
    return make_rows(records)


def _complete(values: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The encoders with a value for each task, and a sentence about the others and their tasks ("" without any)."""
    lacking: dict[str, list[str]] = {}
    partial = values[values.isna().any(axis=1)]
    for (model, variant, _), missing in zip(partial.index.tolist(), partial.isna().to_numpy(), strict=True):
        name = ", ".join(filter(None, (model, variant)))
        lacking.setdefault(listed([str(task) for task in values.columns[missing]]), []).append(name)
    parts = "; ".join(f"{listed(names)} ({tasks})" for tasks, names in lacking.items())
    return values.dropna(), f" Encoders left out, and the tasks that they lack: {parts}." if parts else ""


def diagnostic_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Results on a diagnostic set by category, for each encoder (Bowman et al., Table 6): means over seeds.

    Parameters
    ----------
    rows : DataFrame
        Rows of :func:`probekit.evaluate` with ``by_domain`` on ``ax-b`` or ``glue-diagnostic``.

    Returns
    -------
    DataFrame
        For each encoder a row for the whole set and for each of its categories (``task`` "ax-b:logic"), with the
        interval over examples, ``sd`` over seeds, and ``seeds``.

    Raises
    ------
    UsageError
        If there are no evaluations on a diagnostic set.
    """
    of_set = rows["task"].str.partition(":")[0].isin(DIAGNOSTIC) & (rows["analysis"] == "evaluate")
    headline = rows["headline"].fillna(value=False).astype(bool) if "headline" in rows else of_set & False
    found = list(by_seeds(rows[of_set & headline & (rows["estimator"] == "")]))
    if not found:
        raise UsageError(
            "the rows contain no results on a diagnostic set; give those of probekit evaluate RUN --task ax-b "
            "--by-domain."
        )
    return make_rows([row | {"analysis": "diagnostic"} for row in found])


def mixture_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean result of mixtures of tasks on their own dev splits, by sampling and loss scaling (Tables 4 and 5).

    Parameters
    ----------
    rows : DataFrame
        Rows of :func:`probekit.pretrain_encoder` on two or more tasks.

    Returns
    -------
    DataFrame
        For each mixture (``trained_on``, in the order of the first run), ``sampling``, ``scaling`` and ``model`` a row:
        the mean of the main metrics of its objectives at the kept validation, the mean over seeds, with ``sd`` and
        ``seeds``.

    Raises
    ------
    UsageError
        If there are no pretrainings on several tasks whose metrics rise, or if two runs differ in nothing that the rows
        state, such as two runs of a model with the same seed and different numbers of steps.
    """
    if not {"sampling", "scaling", "headline"} <= set(rows):
        raise UsageError(_no_mixtures(rows))
    kept = rows[(rows["regime"] == PRETRAIN) & rows["headline"].fillna(value=False).astype(bool)].drop_duplicates()
    runs = [run for _, run in kept.groupby(["model", "trained_on", "sampling", "scaling", "seed"], sort=False)]
    mixtures = [run for run in runs if run["task"].nunique() > 1]
    if not mixtures:
        raise UsageError(_no_mixtures(rows))
    rising = [run for run in mixtures if "perplexity" not in set(run["metric"])]
    if not rising:
        raise UsageError(
            "each mixture in the rows has an objective whose metric is a perplexity, which falls. The mean is over "
            "metrics that rise, such as accuracy; give runs on labelled tasks."
        )
    return make_rows(list(_mixtures(rising)))


def _no_mixtures(rows: pd.DataFrame) -> str:
    """The error for rows without mixtures: what they contain instead, and what to run."""
    single = rows.loc[rows["regime"] == PRETRAIN, "trained_on"].unique()
    runs = rows.loc[rows["regime"].isin(list(Regime)), "task"].unique()
    other = rows.loc[(rows["regime"] == "") & ~rows["analysis"].isin(["train", "evaluate"]), "analysis"].unique()
    parts = [
        f"{what} ({listed([str(name) for name in names])})"
        for what, names in (("pretraining on one objective", single), ("runs on tasks", runs), ("other rows", other))
        if len(names)
    ]
    found = f"they contain {listed(parts)}" if parts else "they are empty"
    return (
        f"the rows contain no mixtures of objectives in pretraining; {found}. A mixture is trained by probekit "
        "pretrain-encoder --on TASK,TASK (with --sampling and --scaling); give the rows.parquet of its folder."
    )


def _mixtures(runs: Iterable[pd.DataFrame]) -> Iterator[dict[Any, Any]]:
    """A row for each mixture, sampling, scaling and model, from the kept validations of its runs, one for each seed."""
    cells: dict[tuple[Any, ...], list[pd.DataFrame]] = {}
    names: dict[tuple[str, ...], str] = {}
    for run in runs:
        first = run.iloc[0]
        objectives = tuple(sorted(first["trained_on"].split("+")))
        names.setdefault(objectives, first["trained_on"])
        cells.setdefault((objectives, first["sampling"], first["scaling"], first["model"]), []).append(run)
    for (objectives, *_, model), parts in cells.items():
        first = parts[0].iloc[0]
        if any(part["task"].duplicated().any() for part in parts) or len({p["seed"].iloc[0] for p in parts}) < len(
            parts
        ):
            raise UsageError(
                f"several runs of {model} on {first['trained_on']} have the same sampling, loss scaling and seed; give "
                "the rows of one, or pretrain each with its own --run-name."
            )
        values = np.array([part["value"].mean() for part in parts])
        yield first.to_dict() | {
            "analysis": "mixtures", "task": names[objectives], "trained_on": names[objectives],
            "metric": "mean-of-metrics", "value": float(values.mean()), "ci_low": np.nan, "ci_high": np.nan,
            "sd": float(values.std(ddof=1)) if len(values) > 1 else np.nan, "seeds": len(parts), "seed": None,
            "step": None, "n": int(parts[0]["n"].sum()), "tasks": len(parts[0]),
        }  # fmt: skip
