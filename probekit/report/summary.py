"""Summaries of rows: best layers, peak of the information, training by regime, near and far domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from probekit.analysis import analyses
from probekit.metrics import metric as metric_called
from probekit.plots.domain_sizes import SIZES
from probekit.plots.domains import TERMS
from probekit.report.curves import best_layers, model_once
from probekit.report.sections import TITLES, TRAINING
from probekit.report.tables import Table, table
from probekit.tasks.load import shown_task

if TYPE_CHECKING:
    import pandas as pd

SHOWN = (
    *("task", "curve", "split", "metric", "layer", "value", "ci_low", "ci_high", "noise_low", "noise_high"),
    *("control_task", "share", "p_adjusted", "verdict", "n"),
)
SHOWN_OF_RUNS = (
    *("task", "split", "metric", "regime", "head", "variant", "model", "checkpoint", "representation", "value"),
    *("ci_low", "ci_high"),
    "seed",
)
GUIDED = ("task", "model", "prefer", "confidence", "value", "ci_low", "ci_high", "p_adjusted", "why", "caveat")
NOT_OF_INTEREST = ("mix-weight", "mix-gamma", "added-loss", "log-loss", "mean-squared-error")


def summaries(sections: Mapping[str, pd.DataFrame], layers: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, Table]]:
    """The heading and the table of each section that has a summary."""
    import pandas as pd

    best = {one.name: one.best for one in analyses().values() if one.best}
    for section, rows in sections.items():
        if section == TRAINING and len(found := trained_rows(rows)):
            caption = "Results of the final weights on held-out data."
            if len(beside := regimes(found)):
                yield TITLES[section], table(beside, f"{caption} Intervals are over examples, not over seeds.")
            else:
                yield TITLES[section], table(found.drop(columns=["epoch", "step"], errors="ignore"), caption)
        elif section in best and len(found := pd.DataFrame(best_layers(layers[section]))):
            found = model_once(found[[c for c in SHOWN if c in found]])
            yield TITLES[section], table(found.rename(columns={"layer": "best layer"}), best[section])
        elif section == "guidelines":
            rows = rows[rows["prefer"].notna()]  # of several settings, the row of the reference
            yield (
                TITLES[section],
                table(rows[[c for c in GUIDED if c in rows]], "Fine-tuning or feature extraction?", whole=True),
            )
        elif section == "domains" and len(found := pairs(rows)):
            near = found.groupby("metric", sort=False).head(1)
            far = found.groupby("metric", sort=False).tail(1)
            ends = pd.concat([near.assign(pair="nearest"), far.assign(pair="farthest")]).drop_duplicates(
                ["metric", "domain_a", "domain_b"]
            )
            first = ["pair", "domain_a", "domain_b", "metric"]
            ends = ends[[*first, *(c for c in ends if c not in first)]]
            yield TITLES[section], table(ends, "The nearest and the farthest pair of domains.", whole=True)


def trained_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The metrics of the final weights of training runs, on dev and test, one row per run and metric."""
    kept = rows[rows["kept"].fillna(value=False).astype(bool)]
    kept = kept[~kept["metric"].isin(NOT_OF_INTEREST) & (kept["split"] != "train") & (kept["site"] == "")]
    plain = kept["metric"].map(lambda name: not metric_called(name).derived).astype(bool)
    kept = kept[plain]  # differences between regimes are in tables
    kept = kept[kept["trained_on"].isin(("",)) | (kept["trained_on"] == kept["task"])]  # transfer has a matrix
    if "seeds" in kept and kept["seeds"].isna().any():  # leave out means over runs that are listed
        kept = kept[kept["seeds"].isna()].drop(columns="seeds")
    kept = kept.assign(task=kept["task"].map(shown_task)).sort_values(["task", "split", "metric"], kind="stable")
    more = [c for c in ("sd", "seeds", "epoch", "step") if c in kept]
    kept = kept[[*SHOWN_OF_RUNS, "n", *more]].rename(columns={"checkpoint": "run"})
    return kept if (kept["variant"] != "").any() else kept.drop(columns="variant")


def regimes(runs: pd.DataFrame) -> pd.DataFrame:
    """Feature extraction and fine-tuning side by side, one row per task, metric, model, variant and seed of
    :func:`trained_rows`; no rows if there is only one regime."""
    import pandas as pd

    names = {"feature-extraction": ("feature_extraction", "feature"), "fine-tune": ("fine_tuning", "fine")}
    if set(names) - set(runs["regime"]):
        return runs.iloc[:0]
    by = ["task", "split", "metric", "model", *["variant"] * ("variant" in runs), "seed", "again"]
    runs = runs.assign(again=0)
    runs["again"] = runs.groupby([*by[:-1], "regime"], dropna=False).cumcount()
    sides = []
    for name, (value, ends) in names.items():
        side = runs[runs["regime"] == name].set_index(by)[["head", "value", "ci_low", "ci_high"]]
        side.columns = pd.Index([f"head of {value}".replace("_", " "), value, f"{ends}_low", f"{ends}_high"])
        sides.append(side)
    return pd.concat(sides, axis=1).reset_index().drop(columns="again")


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The divergences of pairs of domains, the nearest first."""
    found = rows[(rows["target"] == "gold") & ~rows["metric"].isin((SIZES, TERMS))]
    sign = found["metric"].map(lambda name: -1.0 if metric_called(name).alike else 1.0)
    found = found.assign(near=found["value"] * sign).sort_values(["metric", "near"], kind="stable")
    names = ["metric", "domain_a", "domain_b", "value", "ci_low", "ci_high", "raw", "null_mean", "null_high", "p", "n"]
    return found[[c for c in names if c in found]]
