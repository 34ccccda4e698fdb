"""The average of the predictions of several runs, and what it gains over a single run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.runs.run import Run
from probekit.adaptation.runs.seeds import members
from probekit.adaptation.training.multi_task import card_for, predictions_name
from probekit.analyses.ensemble import EnsembleOptions
from probekit.analyses.finished_runs import FinishedRun, common_split, predictions_on, read_run
from probekit.errors import UsageError
from probekit.metrics import derive
from probekit.recipe import Read
from probekit.rows import Result, make_fits, make_rows
from probekit.statistics.bootstrap import bounds, intervals, replicates
from probekit.statistics.predictions import Predictions, join

if TYPE_CHECKING:
    import pandas as pd

ENSEMBLE, MEMBER = "ensemble", "member"


def measure(runs: Sequence[str | Path | Run], options: EnsembleOptions) -> Result:
    """The rows and predictions of :func:`probekit.ensemble`."""
    found = [read_run(folder) for run in runs for folder in members(run)]
    if len(found) < 2:
        raise UsageError("an ensemble needs two or more runs, or a folder of several seeds.")
    split = common_split(found, options.split)
    records, means = list[dict[Any, Any]](), list[Predictions]()
    for of_task in _by_task(found, split):
        table = join(*(predictions_on(run, split) for run in of_task))
        means.append(averaged(table, of_task))
        records += [row | {"headline": row["headline"] and not records} for row in _rows(table, means[-1], options)]
    reads = [Read(str(run.path), "run", str(run.card["encoder"].get("weights_digest") or "")) for run in found]
    return Result(make_rows(records), tuple(means), reads=tuple(reads))


def _by_task(runs: Sequence[FinishedRun], split: str) -> Iterator[list[FinishedRun]]:
    """The runs with their cards for the task of the first run, and for each further task that all have predicted."""
    for task in (runs[0].card["task"], *(one["task"] for one in runs[0].card.get("also") or ())):
        found = [run._replace(card=card_for(run.card, task)) for run in runs]
        known = [run.card["task"] == task and (run.path / predictions_name(run.card, split)).is_file() for run in found]
        if all(known) or task == runs[0].card["task"]:
            yield found


def averaged(table: Predictions, runs: Sequence[FinishedRun]) -> Predictions:
    """The mean of the fits of a table: probabilities of classes or labels, or numbers."""
    about = _about(table.fits) | {"estimator": ENSEMBLE}
    more: dict[str, Any] = {}
    if TaskSpec.of_card(runs[0].card).numbers:
        predicted = table.predicted.astype(np.float64).mean(axis=0)
    elif table.probabilities is None:
        lacking = [str(run.path) for run in runs if run.card["head"]["head"].endswith("crf")] or [str(runs[0].path)]
        raise UsageError(f"{lacking[0]} stores no probabilities, which an ensemble averages; a CRF has none.")
    else:
        shares = table.probabilities.astype(np.float64).mean(axis=0)
        predicted = shares.argmax(axis=1)
        of_gold = np.maximum(shares[np.arange(len(shares)), _gold(table)], 1e-38)
        more = {"log_loss": -np.log(of_gold)[None].astype(np.float32), "probabilities": shares[None].astype(np.float32)}
    return Predictions(
        make_fits([about]), table.ids, _gold(table), predicted[None], table.metrics, table.groups,
        label_names=table.label_names, sentences=table.sentences, of_label=table.of_label, **more,
    )  # fmt: skip


def _gold(table: Predictions) -> np.ndarray:
    return table.gold if table.gold.ndim == 1 else table.gold[0]


def _about(fits: pd.DataFrame) -> dict[Any, Any]:
    """The columns of an ensemble: those in which its runs agree; others are empty."""
    first = fits.iloc[0].drop("source", errors="ignore").to_dict()
    same = {key: fits[key].nunique(dropna=False) == 1 for key in first}
    texts = ("model", "checkpoint", "regime", "head", "variant", "representation")
    blank = {key: "" if key in texts else None for key in first}
    found = {key: value if same[key] else blank[key] for key, value in first.items()}
    return found | {"model": found["model"] or "several models", "checkpoint": "", "seed": None, "step": None}


def _rows(table: Predictions, mean: Predictions, options: EnsembleOptions) -> list[dict[Any, Any]]:
    both = join(mean, table)
    names = [*table.metrics, *(["log-loss"] if both.log_loss is not None else [])]
    runs = [row.drop("source").to_dict() for _, row in both.fits.iterrows()]
    records: list[dict[Any, Any]] = []
    settings = {"resamples": options.resamples, "seed": options.seed}
    shared = {"analysis": ENSEMBLE, "layer": None, "n": table.examples, "members": len(table)}
    for name in names:
        given = both.sample() | {"metric": name} | settings
        limits = bounds(**given)
        for i, about in enumerate(runs):
            ends = {"ci_low": limits.ci[i, 0], "ci_high": limits.ci[i, 1]}
            kind = {"estimator": ENSEMBLE if i == 0 else MEMBER, "headline": i == 0 and name == names[0]}
            records.append({**about, **shared, **kind, **ends, "metric": name, "value": limits.value[i]})
        again = replicates(**given)
        away = (again[0] - again[1:].mean(axis=0))[None]
        ends_of = intervals(away, units=len(np.unique(table.groups)) if table.groups is not None else len(table.ids))
        value = limits.value[0] - limits.value[1:].mean()
        ends = {"ci_low": ends_of[0, 0], "ci_high": ends_of[0, 1], "headline": False}
        records.append(
            {**runs[0], **shared, **ends, "estimator": f"{ENSEMBLE} - {MEMBER}", "metric": derive("difference", name),
             "value": value}
        )  # fmt: skip
    return records
