"""From what probes said of each example to rows: metrics with intervals, controls summed up, selectivity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.rows import make_rows
from probekit.statistics._sums import Units
from probekit.statistics.bootstrap import estimates, intervals, replicates
from probekit.statistics.calibration import MEASURES
from probekit.statistics.controls import METRIC, selectivity_interval
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["probe_rows"]

KEYS = ("layer_name", "representation", "estimator")


def probe_rows(
    found: Predictions,
    metrics: Mapping[str, Any],
    *,
    seen: np.ndarray | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each fit and metric; for each kind of control one more, and the difference to it.

    metrics : name → function or object with ``function``, for names that the bootstrap does not know itself
    seen : bool (n,), examples that train holds too: ``value_unseen`` is the metric on the others
    Where classes are predicted "v-information" is a metric, too, in bits: H_V(Y) - H_V(Y|X), V being the probes of a
    fit's kind (Xu et al. 2020). Balanced probes have none: their probabilities are not of the classes as they come.
    Targets "shuffled" and "control-task" sum up the draws "shuffled-0" …: value is their mean, and the interval holds
    the middle ``level`` of single draws on resampled examples: where noise falls. Metrics "above-shuffled(…)" and
    "selectivity(…)" are gold minus the mean of shuffled labels and control tasks (Hewitt & Liang 2019, section 2).
    """
    import pandas as pd

    scores = {name: getattr(metrics.get(name), "function", metrics.get(name)) for name in found.metrics}
    names = [(name, {**found.sample(), "metric": name, "score": score}) for name, score in scores.items()]
    if found.log_loss is not None and found.prior_loss is not None:
        gain = (found.prior_loss - found.log_loss) / np.log(2)
        names.append(("v-information", {**found.sample(), "metric": "log-loss", "log_loss": gain, "score": None}))
    measured = [c for c in found.fits.columns if c.startswith(tuple(MEASURES))]
    parts = []
    for name, sample in names:
        value = estimates(**sample)
        again = replicates(**sample, resamples=resamples, seed=seed) if resamples else np.empty((len(found), 0))
        units = Units.of_groups(found.groups, len(found.ids)).count
        own = found.fits.drop(columns=measured).assign(metric=name, value=value)
        own[["ci_low", "ci_high"]] = intervals(again, level=level, units=units) if resamples else np.nan
        own["value_unseen"] = value
        if seen is not None and seen.any():
            own["value_unseen"] = np.nan if seen.all() else estimates(**_some(sample, ~seen))
        parts += [own, *_controls(own, again, level)]
    for name in measured:
        parts.append(
            found.fits.drop(columns=measured).assign(metric=name, value=found.fits[name]).dropna(subset="value")
        )
    rows = make_rows(pd.concat(parts, ignore_index=True))
    first = {name: at for at, name in enumerate(dict.fromkeys(found.fits["layer_name"]))}
    order = np.argsort([first[name] for name in rows["layer_name"]], kind="stable")
    return rows.iloc[order].reset_index(drop=True)


def _some(sample: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    take = {name: sample[name] for name in ("gold", "predicted", "log_loss", "groups")}
    return {**sample, **{name: None if v is None else v[..., rows] for name, v in take.items()}}


def _controls(rows: pd.DataFrame, again: np.ndarray, level: float) -> Iterator[pd.DataFrame]:
    """Of the rows of one metric: the draws of each control summed up, and how far gold lies above them."""
    kind = rows["target"].str.replace(r"-\d+$", "", regex=True)
    for control, difference in METRIC.items():
        for _, part in rows[kind == control].groupby(list(KEYS), sort=False):
            at = part.index.to_numpy()
            same = (rows[list(KEYS)] == part[list(KEYS)].iloc[0]).all(axis=1)
            gold = rows.index[same & (rows["target"] == "gold")]
            one = part.iloc[:1].assign(
                target=control,
                value=part["value"].mean(),
                value_unseen=part["value_unseen"].mean(),
                controls=len(part),
                converged=bool(part["converged"].all()),
                penalty=np.nan,
                penalty_at_edge=False,
                held_out=np.nan,
                decrement=part["decrement"].max(),
                digest="",
            )
            low, high = intervals(again[at].reshape(1, -1), level=level)[0] if again.shape[1] else (np.nan, np.nan)
            yield one.assign(ci_low=low, ci_high=high)
            if len(gold) == 1:
                own = rows.loc[gold]
                bounds = (
                    selectivity_interval(again[gold], again[at][:, None], level=level)
                    if again.shape[1]
                    else (np.nan, np.nan)
                )
                yield own.assign(
                    metric=f"{difference}({own['metric'].iloc[0]})",
                    value=own["value"] - part["value"].mean(),
                    value_unseen=own["value_unseen"] - part["value_unseen"].mean(),
                    controls=len(part),
                    ci_low=bounds[0],
                    ci_high=bounds[1],
                )
