"""Summaries of training runs from their rows: main metric, means over seeds, and the gain of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.adaptation.search.expected import EXPECTED
from probekit.errors import UsageError
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd

SETTING = ("model", "task", "trained_on", "variant", "regime", "head", "metric")
"""Runs that agree in these columns differ only in their seed."""


def run_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """The row with the main metric of each run or evaluation: on test if it was tested, otherwise on dev.

    Parameters
    ----------
    rows : pd.DataFrame
        Any rows; those that do not belong to a run on a task (also those of pretraining) are left out.
    """
    headline = rows.get("headline")
    if headline is None:
        return rows[:0]
    return rows[headline.fillna(value=False).astype(bool) & rows["regime"].isin(list(Regime))]


def regime_study(rows: pd.DataFrame) -> pd.DataFrame:
    """Feature extraction, fine-tuning and their difference by task, model and variant: means over seeds.

    Parameters
    ----------
    rows : DataFrame
        Rows of trainings, and of :func:`probekit.guidelines`, which supply the paired intervals.

    Returns
    -------
    DataFrame
        Rows, with the additional columns ``sd`` and ``seeds``.

    Raises
    ------
    UsageError
        If there are no rows of training runs, or none of a run on its own task.
    """
    import pandas as pd

    runs = run_numbers(rows)
    if runs.empty:
        raise UsageError("the rows contain no training runs; give those of probekit train or probekit evaluate.")
    home = runs[runs["trained_on"] == runs["task"]]
    if home.empty:
        first = runs.iloc[0]
        raise UsageError(
            f"no run is evaluated on the task that it was trained on (the first: trained on {first['trained_on']}, "
            f"evaluated on {first['task']}); if the task was renamed, give both columns one name."
        )
    return make_rows(pd.DataFrame([*by_seeds(home), *differences(rows, home)]))


def expected_performance(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of searches with the expected dev metric of the best of n trials; UsageError if there are none."""
    found = rows[rows["analysis"] == EXPECTED]
    if found.empty:
        raise UsageError("the rows contain no searches; give SEARCH/rows.parquet, which probekit search writes.")
    return found


def by_seeds(runs: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    """Means over seeds of the rows of :func:`run_numbers`, with their ``sd``: one row per setting.

    The interval is the mean of the intervals of the seeds: it covers the sampling of examples, which all seeds share,
    but not the variation over seeds.
    """
    for _, part in runs.groupby(list(SETTING), sort=False):
        row = part.iloc[0].to_dict()
        numbers = {key: float(part[key].mean()) for key in ("value", "ci_low", "ci_high")}
        sd = float(part["value"].std(ddof=1)) if len(part) > 1 else np.nan
        yield row | numbers | {"sd": sd, "seeds": len(part), "seed": None, "step": None, "checkpoint": ""}


def differences(rows: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    """Fine-tuning minus feature extraction by task and variant, from means over seeds.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of ``probekit guidelines``, which supply the paired intervals; without them there are no intervals.
    """
    import pandas as pd

    means = pd.DataFrame(list(by_seeds(runs)))
    if means.empty:
        return
    for (model, task, _, metric), part in means.groupby(["model", "task", "variant", "metric"], sort=False):
        sides = {regime: side for regime, side in part.groupby("regime") if len(side) == 1}
        if len(sides) < 2:
            continue
        tuned, frozen = (sides[str(regime)].iloc[0] for regime in (Regime.FINE_TUNE, Regime.FEATURE_EXTRACTION))
        name, value = f"difference({metric})", float(tuned["value"] - frozen["value"])
        same = rows[(rows["metric"] == name) & (rows["task"] == task) & (rows["model"] == model)]
        same = same[np.isclose(same["value"], value, atol=1e-9)]
        low, high = (float(same[key].iloc[0]) if len(same) else np.nan for key in ("ci_low", "ci_high"))
        yield tuned.to_dict() | {
            "metric": name, "value": value, "ci_low": low, "ci_high": high, "sd": np.nan, "regime": "", "head": "",
            "estimator": f"{Regime.FINE_TUNE} - {Regime.FEATURE_EXTRACTION}", "representation": "none",
            "seeds": min(int(tuned["seeds"]), int(frozen["seeds"])),
        }  # fmt: skip
