"""The noise level at each layer, and the values that are not above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probekit.metrics import metric as metric_called
from probekit.plots.curves import CURVE
from probekit.rows.families import ALPHA

if TYPE_CHECKING:
    import pandas as pd

HOLLOW, NOT_ABOVE = "not above noise (interval)", "not above noise (corrected p > 0.05)"
REACHES_CONTROL = "interval reaches control task"


def controls_by_layer(rows: pd.DataFrame, *, shuffled: bool = False) -> pd.DataFrame:
    """The controls by layer: their summary rows; without these, mean and range of the draws (``of_draws``).

    Rows that are tested against permuted labels have these as their noise, and not probes of shuffled labels, which
    answer another question (unless ``shuffled``: beside them). Control tasks are left out of span metrics, because
    their spans differ from the gold spans in difficulty.
    """
    import pandas as pd

    by = ["analysis", "task", *CURVE, "random", "layer", "layer_name"]
    used = (*by, "metric", "draw", "value", "ci_low", "ci_high", "null_mean", "null_edge")
    rows = rows.loc[rows["layer_name"] != "", [c for c in used if c in rows]]
    rows = pd.concat([_permuted(rows), rows[rows["target"] != "gold"]])
    of_spans = [name for name in rows["metric"].unique() if metric_called(name).spans]
    rows = rows[~(rows["metric"].isin(of_spans) & (rows["target"] == "control-task"))]
    if (permuted := rows["target"] == "permuted").any() and not shuffled:
        tested = pd.MultiIndex.from_frame(rows[[c for c in by if c != "target"]])
        rows = rows[~(tested.isin(tested[permuted.to_numpy()]) & (rows["target"] == "shuffled").to_numpy())]
    values = rows[rows["draw"].notna()].groupby(by, sort=False, dropna=False)["value"]
    ranges = values.agg(value="mean", ci_low="min", ci_high="max").reset_index()
    summed = rows.loc[rows["draw"].isna(), ranges.columns]
    both = pd.concat([summed.assign(of_draws=False), ranges.assign(of_draws=True)], ignore_index=True)
    return both.drop_duplicates(by)


def _permuted(rows: pd.DataFrame) -> pd.DataFrame:
    """What permuted labels reach at each layer, as rows: from their mean to the edge that the test draws."""
    if "null_edge" not in rows:
        return rows.iloc[:0]
    tested = rows[(rows["target"] == "gold") & rows["null_edge"].notna() & (rows["analysis"] == "probe")]
    ends = tested[["null_mean", "null_edge"]]
    return tested.assign(target="permuted", value=ends["null_mean"], ci_low=ends.min(axis=1), ci_high=ends.max(axis=1))


def one_sided(band: pd.DataFrame) -> bool:
    """Whether a band goes only from the mean for permuted labels to the edge of the test."""
    mean = band["value"].to_numpy()
    return bool(
        (band["target"] == "permuted").all()
        and np.logical_or(*(mean == band[["ci_low", "ci_high"]].T.to_numpy())).all()
    )


def not_above_noise(curve: pd.DataFrame, controls: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Which rows are not above noise, bool (rows,), by the first criterion that applies.

    The criterion is p if the rows have it (``p_shown``, corrected as in sentences; for probes that of
    :func:`probekit.compare` against permuted labels), otherwise a visual comparison of the interval with the noise. p
    is ignored if there are too few shuffles to reach the level. A value that control tasks reach may be memorised; this
    criterion is also visual.
    """
    tested: np.ndarray = np.zeros(len(curve), dtype=bool)
    of_task = controls["target"] == "control-task"
    above, reaches = tested, _reaches(curve, controls[~of_task], metric)
    if "p_shown" in curve:
        p = curve["p_shown"].astype("float64").to_numpy()
        shuffles = curve["shuffles"].astype("float64").to_numpy() if "shuffles" in curve else np.inf
        least = np.isfinite(p).sum() / (1 + shuffles)
        tested = np.isfinite(p) & ~(least > ALPHA)
        above = tested & (p > ALPHA) & curve["value"].notna().to_numpy(dtype=bool)
    memorised = _reaches(curve, controls[of_task], metric)
    visual = reaches & ~tested
    return {NOT_ABOVE: above, HOLLOW: visual, REACHES_CONTROL: memorised & ~above & ~visual}


def _reaches(curve: pd.DataFrame, controls: pd.DataFrame, metric: str) -> np.ndarray:
    """Whether each row's interval reaches the noise or is worse than it; bool (rows,), false without noise."""
    definition = metric_called(metric)
    sign = definition.sign or 1
    worst = curve["ci_high" if sign < 0 else "ci_low"].fillna(curve["value"]).where(curve["value"].notna()) * sign
    if definition.derived:
        return (worst <= 0).to_numpy(dtype=bool)
    best = (
        (controls["ci_low" if sign < 0 else "ci_high"].fillna(controls["value"]) * sign)
        .groupby(controls["layer_name"])
        .max()
    )
    return (worst <= curve["layer_name"].map(best).astype("float64")).to_numpy(dtype=bool)
