"""Rows from the predictions of probes: metrics with intervals, summaries of controls, selectivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import derive, metric
from probekit.probes.protocol.by_label import by_label_rows
from probekit.rows import make_rows
from probekit.statistics.bootstrap import METRICS, Bounds, band, bounds, estimates, intervals
from probekit.statistics.calibration import MEASURES
from probekit.statistics.comparisons import above_noise
from probekit.statistics.contrasts import curves
from probekit.statistics.controls import DERIVED, selectivity_interval
from probekit.statistics.over_labels import PENALTIES, penalties_of, rows_by_label
from probekit.statistics.predictions import Predictions
from probekit.statistics.scored import SORTED

if TYPE_CHECKING:
    import pandas as pd

TESTED = ("p", "p_adjusted", "null_mean", "null_edge")
KEYS = ["site", "layer", "representation", "estimator"]


def probe_rows(
    found: Predictions,
    *,
    seen: np.ndarray | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    by_label: bool | None = False,
) -> pd.DataFrame:
    """A row for each fit and metric; for each kind of control a summary row, and the difference from it.

    For classes, "v-information" is an additional metric in bits: H_V(Y) - H_V(Y|X), where V is the family of probes
    (Xu et al. 2020). Balanced probes have none, because their probabilities do not follow the class frequencies.

    Rows of "shuffled" and "control-task" without ``draw`` summarise the draws: value is their mean, and the interval
    is the central ``level`` of single draws on resampled examples. Metrics "above-shuffled(…)" and "selectivity(…)" are
    gold minus the mean of shuffled labels and control tasks (Hewitt & Liang 2019, section 2), without a test.
    Selectivity is defined by the accuracy on words: span metrics have none, because a control task has other spans than
    gold, and "token-accuracy" is measured in addition.

    ``p`` and ``p_adjusted`` (over the layers) are for the null hypothesis that a layer is no better than permuted
    labels: the test of :func:`probekit.compare` against "permuted", ``tails`` "better". ``null_mean`` is what permuted
    labels reach on average with the same predictions, and ``null_edge`` the value beyond which ``p_adjusted`` is at
    most 1 - ``level``; the metric "above-permuted(…)" is the value minus ``null_mean``, with its interval. Where
    several labels can hold at once, the label sets of a sentence move together; log loss has none there.

    Additional columns: the intervals from ``joint_low`` to ``joint_high`` cover all layers of the curve simultaneously
    with probability ``level``; ``why`` gives the reason for a missing interval, ``warning`` the classes that macro-F1
    leaves out, and where few examples carry most of the squared error of rmse.

    Parameters
    ----------
    seen : np.ndarray, optional
        Bool (n,), examples that train contains too: ``value_unseen`` is the metric on the others, and missing where
        this is not known.
    by_label : bool, optional
        Whether to add :func:`probekit.probes.protocol.by_label.by_label_rows`; None: where a text has several labels.
    """
    import pandas as pd

    metrics = found.metrics
    if (found.fits["target"] == "control-task").any() and any(metric(n).spans for n in metrics):
        metrics = tuple(dict.fromkeys((*metrics, "token-accuracy")))
    names = [(n, {**found.sample(), "metric": n, "score": metric(n).function}) for n in metrics]
    if found.log_loss is not None and found.prior_loss is not None:
        gain = (found.prior_loss - found.log_loss) / np.log(2)
        names.append(("v-information", {**found.sample(), "metric": "log-loss", "log_loss": gain, "score": None}))
    measured = [c for c in found.fits.columns if c.startswith(tuple(MEASURES))]
    left_out = [*measured, *found.fits.columns.intersection([PENALTIES])]
    unfitted = _unfitted(found)
    parts = []
    for name, sample in names:
        interval = bounds(**sample, resamples=resamples, level=level, seed=seed)
        table = found.fits.drop(columns=left_out).assign(metric=name, value=interval.value, why=interval.why)
        lacking = _lacking(found, name) or np.where(found.is_gold, interval.warning, "")
        table["warning"] = [
            "; ".join(filter(None, two)) for two in zip(np.broadcast_to(lacking, len(found)), unfitted, strict=True)
        ]
        table[["ci_low", "ci_high"]] = interval.ci
        table[["joint_low", "joint_high"]] = _joint(table, interval, level)
        table["value_unseen"] = interval.value if seen is not None else np.nan
        if seen is not None and seen.any():
            table["value_unseen"] = np.nan if seen.all() else estimates(**_some(sample, ~seen))
        table, above = _beside_noise(found, table, resamples, level, seed)
        parts += [table, *above, *_controls(table, interval.resampled, level)]
    for name in (one for one in measured if one not in metrics):
        parts.append(
            found.fits.drop(columns=left_out).assign(metric=name, value=found.fits[name]).dropna(subset="value")
        )
    if by_label or (by_label is None and found.of_label is not None):
        parts.append(
            by_label_rows(found, resamples=resamples, level=level, seed=seed).drop(columns=left_out, errors="ignore")
        )
    rows = make_rows(pd.concat(parts, ignore_index=True))
    rows = rows.drop(columns=[name for name in ("why", "warning") if not rows[name].fillna("").any()])
    layers = [tuple(key) for key in found.fits[["site", "layer"]].astype(object).fillna("").to_numpy()]
    first = {key: at for at, key in enumerate(dict.fromkeys(layers))}
    order = [first[tuple(key)] for key in rows[["site", "layer"]].astype(object).fillna("").to_numpy()]
    return rows.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)


def _lacking(found: Predictions, name: str) -> str:
    """The classes without an evaluated example, of which means over classes say nothing; "" if there are none.

    Where one of four classes is missing, the interval covers the macro-F1 of all classes in about half of simulated
    experiments (docs/calibration.md); where none is, in 95 % or more.
    """
    several = SORTED if len(found.label_names) > 2 or found.of_label is not None else ()
    if name not in ("macro-f1", "balanced-accuracy", *several) or not found.label_names or not found.is_gold.any():
        return ""
    gold = np.atleast_2d(found.gold)[int(np.flatnonzero(found.is_gold)[0]) if found.gold.ndim > 1 else 0]
    if found.of_label is None:
        occurs, what = {word: (gold == code).any() for code, word in enumerate(found.label_names)}, "classes"
    else:
        occurs = {word: (gold[rows] == 1).any() for word, rows in rows_by_label(found.of_label).items()}
        what = "labels"
    missing = [word for word, any_of_it in occurs.items() if not any_of_it]
    if not missing:
        return ""
    return (
        f"no evaluated example is of {len(missing)} of the {len(occurs)} {what} ({_some_of(missing)}): {name} and its "
        "interval are not about these"
    )


def _unfitted(found: Predictions) -> list[str]:
    """For each fit of gold labels, the labels that train could not fit; "" if there are none."""
    labels = [] if found.of_label is None else list(rows_by_label(found.of_label))
    out = [""] * len(found)
    for i in np.flatnonzero(found.is_gold) if labels else ():
        penalties = penalties_of(found.fits.iloc[[int(i)]], len(labels))[0]
        if lost := [labels[k] for k in np.flatnonzero(np.isnan(penalties))]:
            out[i] = (
                f"train, or one of its folds, has too few examples of {len(lost)} of the {len(labels)} labels "
                f"({_some_of(lost)}) to fit them: they are predicted by their frequency, or mean"
            )
    return out


def _some_of(names: list[str]) -> str:
    return f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"


def _beside_noise(
    found: Predictions, rows: pd.DataFrame, draws: int, level: float, seed: int
) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """The rows of one metric with what permuted labels reach and p, and rows of the distance from permuted labels."""
    rows, name = rows.assign(**dict.fromkeys(TESTED, np.nan)), str(rows["metric"].iloc[0])
    above: list[pd.DataFrame] = []
    if not draws or name not in METRICS or (name == "log-loss" and found.probabilities is None):
        return rows, above
    for curve in curves(found):
        noise = above_noise(found, curve.tolist(), name, draws=draws, seed=seed, level=level)
        its = noise.above
        rows.loc[curve, list(TESTED)] = np.stack([its.p, its.p_adjusted, noise.mean, noise.edge], axis=1)
        derived = rows.loc[curve].assign(metric=derive("above-permuted", name), value=its.value, value_unseen=np.nan)
        derived[["ci_low", "ci_high"]], derived[["joint_low", "joint_high"]] = its.ci, its.joint
        above.append(derived.assign(null_mean=np.nan, null_edge=np.nan))
    return rows, above


def _joint(rows: pd.DataFrame, its: Bounds, level: float) -> np.ndarray:
    """Simultaneous intervals of all layers of a curve on gold labels, (F, 2); NaN for other rows."""
    out = np.full(its.ci.shape, np.nan)
    layers = rows[(rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] != "")]
    for _, curve in layers.groupby(["representation", "estimator"], sort=False, dropna=False):
        at = curve.index.to_numpy()
        if its.resampled.size:
            limits = metric(str(curve["metric"].iloc[0])).range
            out[at] = np.clip(band(its.value[at], its.ci[at], its.resampled[at], level=level), *limits)
    return out


def _some(sample: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    take = {name: sample[name] for name in ("gold", "predicted", "log_loss", "groups", "sentences", "of_label")}
    scores = sample["scores"] and sample["scores"].rows(rows)
    return {**sample, **{name: None if v is None else v[..., rows] for name, v in take.items()}, "scores": scores}


def _controls(rows: pd.DataFrame, again: np.ndarray, level: float) -> list[pd.DataFrame]:
    """For the rows of one metric, the summary of each control's draws, and the difference of gold from it."""
    import pandas as pd

    number = rows.groupby(KEYS, sort=False, dropna=False).ngroup().to_numpy()
    target, drawn = rows["target"].to_numpy(), rows["draw"].notna().to_numpy()
    name = str(rows["metric"].iloc[0])
    summaries: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    order: list[bool] = []  # which are differences, each of which stands below its control
    for group in range(number.max(initial=-1) + 1):
        gold = np.flatnonzero((number == group) & (target == "gold"))
        for control, word in DERIVED.items():
            at = np.flatnonzero((number == group) & (target == control) & drawn)
            if not len(at):
                continue
            summaries.append(_summed_up(rows, at, again[at], level))
            order.append(False)
            if len(gold) == 1 and not (control == "control-task" and metric(name).spans):
                differences.append(_above(rows, gold, again, at, level) | {"metric": derive(word, name)})
                order.append(True)
    of_fits = {"penalty": np.nan, "penalty_at_edge": False, "held_out": np.nan, "digest": ""}
    undefined = dict.fromkeys((*TESTED, "joint_low", "joint_high"), np.nan)
    kept = {name: value for name, value in of_fits.items() if name in rows}
    if not order:
        return []
    both = pd.concat([*_like(rows, summaries, draw=None, why="", **kept), *_like(rows, differences, **undefined)])
    return [both.iloc[np.argsort(np.argsort(order, kind="stable"))]]


def _like(rows: pd.DataFrame, told: list[dict[str, Any]], **same: Any) -> list[pd.DataFrame]:
    """Rows as those in the places ``like``, but for what is told of each, and what is the same of all."""
    import pandas as pd

    if not told:
        return []
    own = pd.DataFrame(told)
    return [rows.iloc[own.pop("like")].assign(**{str(name): own[name].to_numpy() for name in own}, **same)]


def _above(rows: pd.DataFrame, gold: np.ndarray, again: np.ndarray, at: np.ndarray, level: float) -> dict[str, Any]:
    """What a row of gold has of its own as the difference from a control, whose draws are ``at`` these places."""
    noise = again[at]
    ends = selectivity_interval(again[gold], noise[:, None], level=level) if noise.size else None
    return {
        "like": gold[0],
        "value": rows["value"].iloc[gold[0]] - rows["value"].iloc[at].mean(),
        "value_unseen": rows["value_unseen"].iloc[gold[0]] - rows["value_unseen"].iloc[at].mean(),
        "controls": len(at),
        "ci_low": np.nan if ends is None else ends[0][0],
        "ci_high": np.nan if ends is None else ends[1][0],
    }


def _summed_up(rows: pd.DataFrame, at: np.ndarray, noise: np.ndarray, level: float) -> dict[str, Any]:
    """What the row of all draws of a control has of its own: their mean, and the range of single draws."""
    low, high = intervals(noise.reshape(1, -1), level=level)[0] if noise.size else (np.nan, np.nan)
    return {
        "like": at[0],
        "value": rows["value"].iloc[at].mean(),
        "value_unseen": rows["value_unseen"].iloc[at].mean(),
        "controls": len(at),
        "converged": bool(rows["converged"].iloc[at].all()),
        "ci_low": low,
        "ci_high": high,
        **({"decrement": rows["decrement"].iloc[at].max()} if "decrement" in rows else {}),
    }
