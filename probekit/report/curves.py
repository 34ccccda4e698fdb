"""Layer curves as numbers: each layer's value with the noise level, and the best layer of each curve."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.display import shown_label
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.plots.curves import CURVE, CurveStyles, curves, plot_rows
from probekit.plots.layers import of_metric
from probekit.plots.legends import common
from probekit.plots.noise import controls_by_layer, not_above_noise
from probekit.rows.tidy import JOINT
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd

MOST_CURVES = 300
"""Curves included, at most; nobody reads a page with more."""
SAME = tuple(c for c in CURVE if c != "target")
OWN = ("penalty", "share", "raw", "p", "p_adjusted", "undetermined", "penalty_at_edge", "n", "why")


def main_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task's main metric, the first that is not a difference. Tasks without layers, and tasks after
    the first :data:`MOST_CURVES`, are left out."""
    import pandas as pd

    rows, parts = plot_rows(rows), []
    for _, part in rows[rows["task"].isin(rows["task"].unique()[:MOST_CURVES])].groupby("task", sort=False):
        try:
            parts.append(of_metric(part, None))
        except UsageError:
            continue
    return pd.concat(parts) if parts else rows.iloc[:0]


def by_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per curve and layer of the main metric; empty if the rows have no layers.

    Columns: task, curve (its label in figures), random (whether weights are random), split, metric, layer, value,
    ci_low, ci_high, noise_mean, noise_low, noise_high (permuted labels, else shuffled ones), control_task, verdict
    ("above noise", the reason why not, "undetermined", "no value", "no control"), and those of :data:`OWN` that the
    rows have.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of one section.
    """
    import pandas as pd

    main = main_rows(rows)
    gold = main[(main["layer_name"] != "") & (main["target"] == "gold")]
    if gold.empty:
        return pd.DataFrame()
    gold = gold[gold.groupby(["task", *CURVE], sort=False, dropna=False).ngroup() < MOST_CURVES]
    styles, parts = CurveStyles.of(gold), list[pd.DataFrame]()
    for task, of_task in gold.groupby("task", sort=False):
        controls = controls_by_layer(main[main["task"] == task])
        theirs = {tuple(key.values()): part for key, part in curves(controls, SAME)}
        for key, curve in curves(of_task.sort_values("step", na_position="first", kind="stable")):
            of_curve = theirs.get(tuple(key[c] for c in SAME), controls.iloc[:0])
            parts.append(_of_curve(curve, of_curve, styles.label(key), random=styles.is_random(key)))
    return pd.concat(parts, ignore_index=True)


def _of_curve(curve: pd.DataFrame, controls: pd.DataFrame, label: str, *, random: bool) -> pd.DataFrame:
    curve = curve.sort_values("layer", na_position="last", kind="stable")
    controls = controls.drop_duplicates(["target", "layer_name"])
    tested = controls["target"] == ("permuted" if (controls["target"] == "permuted").any() else "shuffled")
    noise = controls[tested].set_index("layer_name").reindex(curve["layer_name"])
    task = controls[controls["target"] == "control-task"].set_index("layer_name")["value"].reindex(curve["layer_name"])
    verdict = np.full(len(curve), "above noise", dtype=object)
    reaching = not_above_noise(curve, controls, str(curve["metric"].iloc[0]))
    if controls.empty and not ("p_adjusted" in curve and curve["p_adjusted"].notna().any()):
        verdict[:] = "no control"
    for why, cells in reaching.items():
        verdict[cells] = why
    verdict[curve["value"].isna()] = "no value"
    verdict[curve["value"].isna() & curve["ci_low"].notna()] = "undetermined"
    if "p_adjusted" in curve:  # that of the markers and sentences, corrected over curves, too
        curve = curve.assign(p_adjusted=curve["p_shown"])
    additional: dict[str, Any] = {c: curve[c] for c in (*OWN, *JOINT) if c in curve}
    shown = curve.assign(
        task=curve["task"].map(shown_task),
        curve=shown_label(label),
        random=random,
        layer=curve["layer_name"],
        verdict=verdict,
    )
    shown = shown.assign(
        noise_mean=noise["value"].to_numpy(),
        noise_low=noise["ci_low"].fillna(noise["value"]).to_numpy(),
        noise_high=noise["ci_high"].fillna(noise["value"]).to_numpy(),
        control_task=task.to_numpy(),
    )
    names = ["task", "curve", "random", "split", "metric", "layer", "value", "ci_low", "ci_high"]
    return shown[[*names, "noise_mean", "noise_low", "noise_high", "control_task", "verdict", *additional]]


def model_once(layers: pd.DataFrame) -> pd.DataFrame:
    """Curve labels without the model if all curves share it; the model moves to its own column."""
    same = common(list(dict.fromkeys(layers["curve"])))
    if not same:
        return layers
    return layers.assign(curve=layers["curve"].str.removeprefix(f"{same}, "), model=same)


def best_layers(layers: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The best layer of each curve of :func:`by_layer`, with its noise and its joint interval, because it was
    selected; with its single interval if the rows have no joint one."""
    if layers.empty:
        return
    for _, curve in layers.groupby(["task", "curve", "metric", "split"], sort=False):
        known = curve[curve["value"].notna()]
        if known.empty:
            [best] = (
                curve.head(1).assign(layer="", verdict=f"{curve['verdict'].iloc[0]} at any layer").to_dict("records")
            )
        else:
            worse = metric_called(str(curve["metric"].iloc[0])).better == "lower"
            [best] = known.sort_values("value", ascending=worse, kind="stable").head(1).to_dict("records")
        low, high = (best.pop(name, float("nan")) for name in JOINT)
        if isfinite(low) and isfinite(high):
            best |= {"ci_low": low, "ci_high": high}
        yield {str(name): value for name, value in best.items()}
