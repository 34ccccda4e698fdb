"""Ensembles: the average of the predictions of several runs, and what it gains over a single run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.analysis import Analysis, Reads
from probekit.constraint import Checked, Seed
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.statistics.options import Resamples
from probekit.view import EACH, Cells, Options, View

if TYPE_CHECKING:
    import pandas as pd

    from probekit.adaptation.runs.run import Run
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class EnsembleOptions(Checked):
    """On which split the predictions of runs are averaged, and the intervals."""

    split: str | None = option(None, "Split to average on (default: the last on which all runs were evaluated).")
    resamples: Resamples = option(1000, "Bootstrap resamples of the examples.")
    seed: Seed = option(0, "Seed of the resampling.")


@public(options=EnsembleOptions)
def ensemble(*runs: str | Path | Run, options: EnsembleOptions) -> Result:
    """Average the predictions of several runs: probabilities of classes, or predicted numbers.

    It reads the predictions that the runs have stored, so no model is run. The ensemble is compared with the mean of
    its runs on the same examples; the interval covers the choice of examples, not that of the runs.

    Parameters
    ----------
    *runs : path or Run
        Two or more finished runs on one task, of any models; a folder of several seeds counts as its runs.
    options : EnsembleOptions
        ``split``, ``resamples``, ``seed``; each may be given as a keyword.

    Returns
    -------
    Result
        For each metric of the task a row of the ensemble, one for each run, and ``difference(METRIC)``: the ensemble
        minus the mean of the runs, with paired 95 % intervals over examples (not over runs). ``members`` is the number
        of runs. The predictions are those of the ensemble. Runs of several tasks give these for each task that all have
        learned.

    Raises
    ------
    UsageError
        For fewer than two runs, runs on different examples, and runs without probabilities (a CRF).
    ModelError, DataError
        If a run is not finished, or its predictions are missing.

    Examples
    --------
    >>> probekit.ensemble("runs/rte").rows  # of probekit.train("rte", …, "runs/rte", seeds=5)  # doctest: +SKIP

    On the command line::

        probekit ensemble runs/rte-a runs/rte-b runs/rte-c
        probekit train --task rte --model MODEL --seeds 5 --out runs/rte
        probekit ensemble runs/rte --out ensemble.parquet
    """
    from probekit.analyses.ensemble.measure import measure

    return measure(runs, options)


DIFFERENCE = "ensemble minus mean of runs"


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for the ensemble, for each run, and for the difference of the ensemble from their mean."""
    kinds = {"ensemble": "ensemble of " + rows["members"].astype(str) + " runs", "member": rows["checkpoint"]}
    line = rows["estimator"].map(dict.fromkeys(kinds, "")).fillna(DIFFERENCE)
    for kind, names in kinds.items():
        line = line.mask(rows["estimator"] == kind, names)
    return rows.assign(line=line, metric=rows["metric"].str.replace(r"^difference\((.*)\)$", r"\1", regex=True))


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    for metric in rows["metric"].unique():
        yield Cells(metric, metric, form=lambda row: f"{row['value']:{'+' * (row['line'] == DIFFERENCE)}.4f}")
        yield Cells("95 % interval", metric, "interval", ".4f", dim=True, align="center")


VIEW = View(_cells, each=EACH[:2], keys=(Column("", align="left", key=True),), lined=_lined)
ANALYSIS = Analysis(
    name="ensemble",
    help="Average the predictions of several runs.",
    title="Ensembles",
    reads=Reads.RUNS,
    view="probekit.analyses.ensemble:VIEW",
    place=97,
)
