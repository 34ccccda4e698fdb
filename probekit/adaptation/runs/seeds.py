"""``probekit train --seeds N``: the runs of several seeds in one folder.

OUT/
  seed-0/ …        a run for each seed, as from ``probekit train``
  rows.parquet     their metrics, with means, standard deviations, and the share of failed runs
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.constant import constants_of
from probekit.adaptation.runs.folder import ROWS, locked_run
from probekit.adaptation.runs.run import Run
from probekit.errors import ModelError, NonFiniteError, UsageError
from probekit.metrics import metric, task_metrics
from probekit.models.identity import CARD
from probekit.recipe import Recipe
from probekit.rows import check_out, make_rows, write_rows
from probekit.rows import read_card as read_rows_card
from probekit.rows.card import make_card
from probekit.rows.selection import of_all_labels
from probekit.runtime import Progress, processes

log = logging.getLogger(__name__)

FAILED = "failed-runs"
"""The metric of the share of failed runs."""


def over_seeds(rows: pd.DataFrame, metrics: Sequence[str], *, analysis: str, diverged: Sequence[int] = ()) -> Any:
    """The rows of several runs, with a row for the mean of each metric and one for the share of failed runs.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of the runs.
    metrics : sequence of str
        The metrics of the first task; further tasks have metrics of their own.
    analysis : str
        The analysis of the rows of means and shares.
    diverged : sequence of int, default ()
        Seeds of runs that ended with a loss that was not finite; they have no rows.

    Returns
    -------
    DataFrame
        The kept metrics of each run, also of each of several labels; their means, without a seed, with the additional
        columns ``sd`` (standard deviation over the runs, n - 1) and ``runs`` (their number); for each split
        ``failed-runs``; the constant predictions. The interval of a mean is the mean of the runs' intervals: it covers
        the sampling of examples, not the variation over seeds. That of ``failed-runs`` is exact (Clopper & Pearson
        1934), over runs.
    """
    alone = ~rows.index.isin(of_all_labels(rows).index)
    kept = rows[rows["kept"].eq(other=True) & (alone | rows["metric"].isin({*metrics, *task_metrics()}))]
    each = ["metric", "label"] if alone.any() else ["metric"]
    constant = constants_of(rows).drop_duplicates(["task", "split", "metric"])
    made: list[dict[str, Any]] = []
    for (task, _), of_split in kept.groupby(["task", "split"], sort=False):
        for i, (_, part) in enumerate(of_split.groupby(each, sort=False, dropna=False)):
            made.append(_mean(part, analysis))
            if i == 0:  # the main metric of the task
                same = constant[constant["task"] == task]
                made.append(_failures(part, same, len(diverged)) | {"analysis": analysis})
    parts = [part.astype(object) for part in (kept, pd.DataFrame(made), constant)]
    return make_rows(pd.concat(parts, ignore_index=True))


def _mean(part: pd.DataFrame, analysis: str) -> dict[str, Any]:
    numbers = {key: part[key].astype(float).mean(skipna=False) for key in ("value", "ci_low", "ci_high")}
    spread = {"sd": part["value"].astype(float).std(ddof=1), "runs": len(part)}
    return {**_shared(part), **numbers, **spread, "analysis": analysis, "headline": False}


def _failures(part: pd.DataFrame, constant: pd.DataFrame, diverged: int) -> dict[str, Any]:
    """The share of runs that failed, by their main metric on one split."""
    from scipy.stats import binomtest

    name = part["metric"].iloc[0]
    same = constant[(constant["split"] == part["split"].iloc[0]) & (constant["metric"] == name)]["value"]
    base = float(same.iloc[0]) if len(same) else np.nan
    failed, runs = diverged + sum(has_failed(name, float(v), base) for v in part["value"]), diverged + len(part)
    ends = binomtest(failed, runs).proportion_ci(method="exact")
    numbers = {"metric": FAILED, "value": failed / runs, "ci_low": ends.low, "ci_high": ends.high}
    return {**_shared(part), **numbers, "runs": runs, "headline": False}


def _shared(part: pd.DataFrame) -> dict[Any, Any]:
    return part.iloc[0].to_dict() | {"checkpoint": "", "seed": None, "step": None, "epoch": None}


def has_failed(name: str, value: float, constant: float) -> bool:
    """Whether a run failed: its main metric is not better than that of the constant prediction, or not a number.

    This is the definition of Mosbach, Andriushchenko & Klakow (2021, section 4), who compare the accuracy on dev with
    that of the majority class. Without a value of the constant prediction, only a metric that is not a number fails.

    Examples
    --------
    >>> has_failed("accuracy", 0.68, 0.68), has_failed("accuracy", 0.69, 0.68), has_failed("matthews", 0.0, 0.0)
    (True, False, True)
    """
    if not np.isfinite(value):
        return True
    sign = metric(name).sign
    return bool(np.isfinite(constant) and sign * value <= sign * constant)


def members(run: str | Path | Run) -> list[Path]:
    """The folders of a run: of several seeds those of each that the folder's record lists, otherwise its own.

    Raises
    ------
    ModelError
        If a folder of several seeds has no record, because its training is not finished.
    """
    folder = Path(run.path or "") if isinstance(run, Run) else Path(run)
    present = {card.parent.name for card in folder.glob(f"seed-*/{CARD}")}
    if (folder / CARD).is_file() or not present:
        return [folder]
    if not (folder / ROWS).is_file():
        raise ModelError(
            f"{folder} has no {ROWS}, which says which seeds it holds: its training is not finished. Run its command "
            "again, or give the runs in it."
        )
    recipe = Recipe.from_json(read_rows_card(folder / ROWS)["recipe"])
    how = {**recipe.defaults, **recipe.arguments}
    listed = [f"seed-{seed}" for seed in range(int(how["seed"]), int(how["seed"]) + int(how["seeds"]))]
    if others := sorted(present - {*listed}):
        log.warning("%s: %s is of an earlier request with other seeds, and is left out.", folder, ", ".join(others))
    return [folder / name for name in listed]


def described(rows: pd.DataFrame) -> Iterator[str]:
    """A sentence for each split: mean and standard deviation of the metrics, and the failed runs."""
    means = of_all_labels(rows[rows["seed"].isna() & rows["runs"].notna()])
    several = means["task"].nunique() > 1
    for (task, split), part in means.groupby(["task", "split"], sort=False):
        values = part[part["metric"] != FAILED]
        said = ", ".join(f"{r['metric']} {r['value']:.4f} (sd {r['sd']:.4f})" for r in values.to_dict("records"))
        (share,) = part[part["metric"] == FAILED].to_dict("records")
        runs = int(share["runs"])
        yield (
            f"{f'{task} ' if several else ''}{split}: {said} over {runs} seeds; "
            f"{round(share['value'] * runs)} of {runs} runs failed "
            f"(95 % interval of the rate [{share['ci_low']:.2f}, {share['ci_high']:.2f}])"
        )


def train_seeds(
    one: Callable[[int, Path], Run], out: Path, options: TrainOptions, recipe: Recipe, progress: Progress
) -> Run:
    """Train with each seed, and write the rows of all; a run whose loss diverges counts as failed.

    Parameters
    ----------
    one : callable
        Trains with a seed in a folder.

    Returns
    -------
    Run
        Its ``runs`` are those of the seeds; its metrics are means.

    Raises
    ------
    UsageError
        If the folder holds a single run.
    NonFiniteError
        If the loss of every run is not finite.
    """
    runs: list[Run] = []
    diverged: dict[int, str] = {}
    seeds = range(options.seed, options.seed + options.seeds)
    if (out / CARD).is_file():
        raise UsageError(f"{out} holds a single run; give another --out for the runs of {options.seeds} seeds.")
    with locked_run(out):
        check_out(out / ROWS)
        for done, seed in enumerate(seeds):
            progress("seeds", done, len(seeds))
            try:
                runs.append(one(seed, out / f"seed-{seed}"))
            except NonFiniteError as error:
                diverged[seed] = str(error)
        if not runs:
            raise NonFiniteError(f"no run of {len(seeds)} has a finite loss. {diverged[options.seed]}")
        card = dict(runs[0].card)
        rows = pd.concat([run.rows for run in runs], ignore_index=True)
        rows = over_seeds(rows, card["target"]["metrics"], analysis="seeds", diverged=tuple(diverged))
        seconds = {"train": sum(run.card["seconds"] for run in runs)}
        if not processes()[0]:
            write_rows(rows, out / ROWS, make_card(recipe, runs[0].reads, seconds) | {"threads": card["threads"]})
    card = (
        card | _entries(rows, card["task"], card["splits"], out) | {"seconds": seconds["train"], "command": str(recipe)}
    )
    card |= {"seeds": {"seed": ", ".join(map(str, seeds))}, "diverged": diverged}
    predictions = tuple(table for run in runs for table in run.predictions)
    return Run(rows, predictions, recipe, runs[0].reads, seconds, card, out, runs=tuple(runs))


def _entries(rows: pd.DataFrame, task: str, splits: Sequence[str], out: Path) -> dict[str, Any]:
    """Entries of the card that are not those of a single run: its name and the mean metrics of dev and test."""
    means = of_all_labels(rows[rows["seed"].isna() & rows["runs"].notna() & (rows["task"] == task)])
    means = means[means["metric"] != FAILED]
    found = {
        str(split): dict(zip(part["metric"], part["value"].astype(float), strict=True))
        for split, part in means.groupby("split", sort=False)
    }
    dev, *test = (found.get(name) for name in splits[1:])
    return {"run": out.resolve().name, "metrics": dev, "test": test[0] if test else None, "step": None}
