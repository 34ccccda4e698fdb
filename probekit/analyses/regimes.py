"""What rows say of trained models: the metric of each run, means over seeds, and what fine-tuning adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.options import Regime
from probekit.files import slug
from probekit.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["by_seeds", "differences", "regime_of", "trained"]

LOSSES = ("log-loss", "mean-squared-error")
CELL = ("model", "task", "trained_on", "variant", "estimator", "metric")


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """The main metric of what each run kept, on test where it was tested and on dev otherwise; of evaluations, too.

    rows : any; those of no run are left out. Own columns: ``trained_on``, the task that was learned; ``variant``, what
        the run's name says beside task, regime and seed
    """
    of_runs = rows["estimator"].str.startswith(tuple(Regime)) & rows["metric"].isin(set(METRICS) - set(LOSSES))
    kept = rows.get("kept")
    found = rows[of_runs & (kept.fillna(value=False).astype(bool) if kept is not None else False)].copy()
    learned = found.get("trained_on")
    found["trained_on"] = found["task"] if learned is None else learned.fillna(found["task"])
    named = found[["checkpoint", "estimator", "trained_on", "model"]]
    found["variant"] = [_variant(row) for row in named.to_dict("records")]
    if found.empty:
        return found
    key = ["task", "trained_on", "checkpoint"]
    main = found.groupby(key, sort=False)["metric"].transform("first")
    found = found[found["metric"] == main]
    last = found.groupby(key, sort=False)["split"].transform("last")  # the rows of a run end with its test split
    return found[found["split"] == last]


def _variant(row: Mapping[Any, Any]) -> str:
    """ "joint" of the runs "mrpc.joint.fine-tune.0" and "mrpc.MODEL.joint.fine-tune.0"; "" where there is none."""
    before, regime, _ = str(row["checkpoint"]).partition(f".{regime_of(row['estimator'])}.")
    task, model = slug(Path(str(row["trained_on"])).name.removesuffix(".toml")), slug(str(row["model"]))
    known = f"{before}.".startswith(f"{task}.")
    told = before.removeprefix(task) if known else f".{before.partition('.')[2]}"
    return f"{told}.".removeprefix(f".{model}.").strip(".") if regime else ""


def regime_of(estimator: str) -> Regime:
    """The regime of "fine-tune linear"."""
    return Regime(str(estimator).partition(" ")[0])


def by_seeds(runs: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    """Of the rows of :func:`trained` one a model, task, variant, head and metric: means over seeds, and their ``sd``.

    The interval is the mean of the seeds' intervals: over examples, which all seeds share, not over seeds.
    """
    for _, part in runs.groupby(list(CELL), sort=False):
        row = part.iloc[0].to_dict()
        numbers = {key: float(part[key].mean()) for key in ("value", "ci_low", "ci_high")}
        sd = float(part["value"].std(ddof=1)) if len(part) > 1 else np.nan
        yield row | numbers | {"sd": sd, "seeds": len(part), "seed": None, "step": None, "checkpoint": row["variant"]}


def differences(rows: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict[Any, Any]]:
    """Fine-tuning minus feature extraction by task and variant, from means over seeds.

    rows : of ``probekit guidelines``, whose paired intervals are taken; without them there is none
    """
    import pandas as pd

    means = pd.DataFrame(list(by_seeds(runs)))
    if means.empty:
        return
    means["regime"] = [regime_of(name) for name in means["estimator"]]
    for (model, task, _, metric), part in means.groupby(["model", "task", "variant", "metric"], sort=False):
        sides = {regime: own for regime, own in part.groupby("regime") if len(own) == 1}
        if len(sides) < 2:
            continue
        tuned, frozen = (sides[regime].iloc[0] for regime in (Regime.FINE_TUNE, Regime.FEATURE_EXTRACTION))
        name, value = f"difference({metric})", float(tuned["value"] - frozen["value"])
        same = rows[(rows["metric"] == name) & (rows["task"] == task) & (rows["model"] == model)]
        same = same[np.isclose(same["value"], value, atol=1e-9)]
        low, high = (float(same[key].iloc[0]) if len(same) else np.nan for key in ("ci_low", "ci_high"))
        yield tuned.drop("regime").to_dict() | {
            "metric": name, "value": value, "ci_low": low, "ci_high": high, "sd": np.nan,
            "estimator": f"{Regime.FINE_TUNE} - {Regime.FEATURE_EXTRACTION}", "representation": "none",
            "seeds": min(int(tuned["seeds"]), int(frozen["seeds"])),
        }  # fmt: skip
