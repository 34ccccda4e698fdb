"""What rows say of trained models: the number of each run, means over seeds, and what fine-tuning adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.errors import UsageError
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["by_seeds", "differences", "regime_study", "run_numbers"]

SETTING = ("model", "task", "trained_on", "variant", "regime", "head", "metric")
"""What says which runs differ in nothing but their seed."""


def run_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """The number of each run: its main metric, on test where it was tested and on dev otherwise; of evaluations, too.

    Parameters
    ----------
    rows : pd.DataFrame
        any; those of no run are left out.
    """
    headline = rows.get("headline")
    return rows[:0] if headline is None else rows[headline.fillna(value=False).astype(bool) & (rows["regime"] != "")]


def regime_study(rows: pd.DataFrame) -> pd.DataFrame:
    """Feature extraction, fine-tuning and their difference by task, model and variant: means over seeds.

    Parameters
    ----------
    rows : DataFrame
        Of trainings, and of :func:`probekit.guidelines`, whose paired intervals are taken.

    Returns
    -------
    DataFrame
        Rows; own columns ``sd`` and ``seeds``.

    Raises
    ------
    UsageError
        Where there are no rows of training runs.
    """
    import pandas as pd

    runs = run_numbers(rows)
    if runs.empty:
        raise UsageError("there are no rows of training runs.")
    home = runs[runs["trained_on"] == runs["task"]]
    return make_rows(pd.DataFrame([*by_seeds(home), *differences(rows, home)]))


def by_seeds(runs: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    """Of the rows of :func:`run_numbers` one a model, task, variant, regime, head and metric: means over seeds, and
    their ``sd``.

    The interval is the mean of the seeds' intervals: over examples, which all seeds share, not over seeds.
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
        Of ``probekit guidelines``, whose paired intervals are taken; without them there is none.
    """
    import pandas as pd

    means = pd.DataFrame(list(by_seeds(runs)))
    if means.empty:
        return
    for (model, task, _, metric), part in means.groupby(["model", "task", "variant", "metric"], sort=False):
        sides = {regime: own for regime, own in part.groupby("regime") if len(own) == 1}
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
