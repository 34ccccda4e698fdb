"""What rows say in a few lines: best layers, where information peaks, training by regime, near and far domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from probekit.files import slug
from probekit.plots.domains import ALIKE, SIZES, TERMS
from probekit.plots.kinds import Kind
from probekit.report.curves import best_layers
from probekit.report.tables import Table, table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["summaries", "trained"]

BEST = "Best layer of each curve. It was chosen on the examples that it is reported on, which flatters it a little."
CAPTIONS = {
    Kind.PROBES: BEST,
    Kind.INFORMATION: "Where mutual information with the labels peaks, in bits; share is of the labels' entropy.",
    Kind.CODES: "The layer from which the labels are told most shortly.",
}
SHOWN = (
    *("task", "curve", "split", "metric", "layer", "value", "ci_low", "ci_high", "noise_low", "noise_high"),
    *("control_task", "share", "p_adjusted", "verdict", "n"),
)
SHOWN_OF_RUNS = (
    *("task", "split", "metric", "estimator", "model", "checkpoint", "representation", "value", "ci_low", "ci_high"),
    "seed",
)
GUIDED = ("task", "model", "prefer", "confidence", "value", "ci_low", "ci_high", "p_adjusted", "why", "caveat")
NOT_OF_INTEREST = ("mix-weight", "mix-gamma", "log-loss", "mean-squared-error")


def summaries(kinds: Mapping[Kind, pd.DataFrame], layers: Mapping[Kind, pd.DataFrame]) -> Iterator[tuple[str, Table]]:
    """The heading and the table of each kind of rows that can be summed up."""
    import pandas as pd

    for kind, rows in kinds.items():
        if kind is Kind.TRAINING and len(found := trained(rows)):
            caption = "What training ended with, on what it was not trained on."
            if len(beside := regimes(found)):
                yield kind.value, table(beside, f"{caption} Intervals are over examples, not over seeds.")
            else:
                yield kind.value, table(found.drop(columns=["epoch", "step"], errors="ignore"), caption)
        elif kind in CAPTIONS and len(found := pd.DataFrame(best_layers(layers[kind]))):
            found = found[[c for c in SHOWN if c in found]]
            yield kind.value, table(found.rename(columns={"layer": "best layer"}), CAPTIONS[kind])
        elif kind is Kind.GUIDELINES:
            yield (
                kind.value,
                table(rows[[c for c in GUIDED if c in rows]], "Fine-tuning or feature extraction?", whole=True),
            )
        elif kind is Kind.DOMAINS and len(found := pairs(rows)):
            near = found.groupby("metric", sort=False).head(1)
            far = found.groupby("metric", sort=False).tail(1)
            ends = pd.concat([near.assign(pair="nearest"), far.assign(pair="farthest")]).drop_duplicates(
                ["metric", "domain_a", "domain_b"]
            )
            first = ["pair", "domain_a", "domain_b", "metric"]
            ends = ends[[*first, *(c for c in ends if c not in first)]]
            yield kind.value, table(ends, "The nearest and the farthest two domains.", whole=True)


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """The metrics of the weights that trainings ended with, on dev and test, one row a run and metric."""
    kept = rows[rows["kept"].fillna(value=False).astype(bool)]
    kept = kept[~kept["metric"].isin(NOT_OF_INTEREST) & (kept["split"] != "train") & (kept["layer_name"] == "")]
    kept = kept[~kept["metric"].str.endswith(")")]  # differences of two regimes, which tables hold
    if "trained_on" in kept:  # elsewhere there is a matrix of these
        kept = kept[kept["trained_on"].isna() | (kept["trained_on"] == kept["task"])].drop(columns="trained_on")
    if "seeds" in kept and kept["seeds"].isna().any():  # means over the runs that are here themselves
        kept = kept[kept["seeds"].isna()].drop(columns="seeds")
    kept = kept.assign(task=kept["task"].str.removeprefix("grammar:")).sort_values(
        ["task", "split", "metric"], kind="stable"
    )
    more = [c for c in ("sd", "seeds", "epoch", "step") if c in kept]
    return kept[[*SHOWN_OF_RUNS, "n", *more]].rename(columns={"estimator": "regime", "checkpoint": "run"})


def regimes(runs: pd.DataFrame) -> pd.DataFrame:
    """Feature extraction and fine-tuning beside each other, one row a task, metric, model, variant and seed; of
    :func:`trained`. No row where there is one regime only."""
    import pandas as pd

    names = {"feature-extraction": ("feature_extraction", "feature"), "fine-tune": ("fine_tuning", "fine")}
    regime = runs["regime"].str.partition(" ")[0]
    if set(names) - set(regime):
        return runs.iloc[:0]
    variant = []
    for run, one, task in zip(runs["run"], regime, runs["task"], strict=True):
        words = run.split(".")  # as studies name runs: task, variant, regime and seed
        left = [word for word in words if word not in (slug(task), one) and not word.isdecimal()]
        variant.append(".".join(left) if one in words else "")
    by = ["task", "split", "metric", "model", "variant", "seed", "again"]
    runs = runs.assign(variant=variant, regime=regime, head=runs["regime"].str.partition(" ")[2], again=0)
    runs["again"] = runs.groupby([*by[:-1], "regime"], dropna=False).cumcount()
    sides = []
    for name, (value, ends) in names.items():
        side = runs[runs["regime"] == name].set_index(by)[["head", "value", "ci_low", "ci_high"]]
        side.columns = pd.Index([f"head of {value}".replace("_", " "), value, f"{ends}_low", f"{ends}_high"])
        sides.append(side)
    both = pd.concat(sides, axis=1).reset_index().drop(columns="again")
    return both if (both["variant"] != "").any() else both.drop(columns="variant")


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The divergences of pairs of domains, the nearest first."""
    found = rows[(rows["target"] == "gold") & ~rows["metric"].isin((SIZES, TERMS))]
    sign = found["metric"].isin(ALIKE).map({True: -1, False: 1}).astype(float)
    found = found.assign(near=found["value"] * sign).sort_values(["metric", "near"], kind="stable")
    wanted = ["metric", "domain_a", "domain_b", "value", "ci_low", "ci_high", "raw", "null_mean", "null_high", "p", "n"]
    return found[[c for c in wanted if c in found]]
