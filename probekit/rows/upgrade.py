"""Rows of earlier versions, in today's columns. The one place that reads anything out of names and column sets.

Before version 0.2 rows had no ``analysis``: which one they came from is told from their metrics and own columns; a draw
was a suffix of ``target`` ("shuffled-3"), regime and head stood in ``estimator`` ("fine-tune linear"), the variant of a
run in its name ("mrpc.joint.fine-tune.0"), and the seed of random weights in ``checkpoint`` ("random-0").
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.files import slug

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["is_old", "upgrade", "upgrade_fits"]

REGIMES = ("fine-tune", "feature-extraction")
CODES = ("codelength-bits", "bits-per-example", "compression", "portion-bits-per-example")


def is_old(rows: pd.DataFrame) -> bool:
    """Whether rows were written before there was a column ``analysis``."""
    return "analysis" not in rows.columns


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of before version 0.2 with the columns of today; what they hold is not changed."""
    rows = rows.assign(**{c: "" for c in ("checkpoint", "layer_name") if c not in rows})
    rows["analysis"] = _analysis(rows)
    rows = upgrade_fits(rows)
    codes = rows["analysis"] == "mdl"
    if "kept" in rows and codes.any():  # the name of a column of trained models, too
        rows["features_kept"] = rows["kept"].where(codes)
        rows["kept"] = rows["kept"].mask(codes)
    compared = rows["analysis"] == "compare"
    if compared.any():
        rows.loc[compared, "metric"] = "difference(" + rows.loc[compared, "of_metric"].astype(str) + ")"
    terms = rows["metric"] == "js-contribution"  # p and q were the term's shares of the two domains
    if terms.any() and "q" in rows:
        rows["share_a"], rows["share_b"] = rows["p"].where(terms), rows.pop("q").where(terms)
        rows["p"] = rows["p"].mask(terms)
    return rows


def upgrade_fits(rows: pd.DataFrame) -> pd.DataFrame:
    """What says which fit is which, in columns of its own: draw, regime, head, variant, seed of random weights."""
    rows = rows.copy()
    told = rows["target"].astype("string").fillna("")
    draws = told.str.extract(r"^(?P<target>.+?)-(?P<draw>\d+)$")
    rows["target"] = draws["target"].fillna(told)
    rows["draw"] = draws["draw"].astype("Int64")
    of_run = rows["estimator"].astype("string").str.extract(rf"^(?P<regime>{'|'.join(REGIMES)}) (?P<head>[^-]\S*)$")
    rows["regime"], rows["head"] = of_run["regime"].fillna(""), of_run["head"].fillna("")
    rows.loc[rows["head"] != "", "estimator"] = ""
    learned = rows["trained_on"] if "trained_on" in rows else rows["task"].where(rows["head"] != "")
    rows["trained_on"] = learned.fillna(rows["task"].where(rows["head"] != "")).fillna("")
    rows["variant"] = [_variant(row) if row["head"] else "" for row in rows.to_dict("records")]
    checkpoints = rows["checkpoint"].astype("string").fillna("")
    rows["random_weights"] = checkpoints.str.extract(r"^random-(\d+)$")[0].astype("Int64")
    return rows


def _analysis(rows: pd.DataFrame) -> pd.Series:
    """The function that made each row."""
    import pandas as pd

    def has(column: str) -> pd.Series:
        if column not in rows:
            return pd.Series(data=False, index=rows.index)
        return rows[column].notna() & (rows[column].astype("string").fillna("") != "")

    found = pd.Series("", index=rows.index, dtype="string")
    codes = rows["metric"].isin(CODES)
    training, compared, domains = has("kept") & ~codes, has("of_metric"), has("domain_a")
    rest = ~(training | compared | domains)
    layered = set(rows.loc[rest & has("layer_name"), "task"])
    found[rest & rows["task"].isin(layered)] = "probe"  # what has no layer stands beside the layers of its task
    found[rest & codes] = "mdl"
    found[rest & (rows["metric"] == "mutual-information")] = "mi"
    found[compared] = "summary"
    found[compared & (rows["metric"] == "difference") & has("against")] = "compare"
    found[domains], found[training] = "domains", "train"
    found[training & has("trained_on")] = "evaluate"
    found[rest & has("prefer")], found[has("corpus")] = "guidelines", "transfer"
    found[rows["representation"] == "transfer"] = "transfer"
    found[has("domain") & (has("x") | has("trained_on"))] = "transfer"
    return found


def _variant(row: Mapping[Any, Any]) -> str:
    """ "joint" of the runs "mrpc.joint.fine-tune.0" and "mrpc.MODEL.joint.fine-tune.0"; "" where there is none."""
    before, regime, _ = str(row["checkpoint"]).partition(f".{row['regime']}.")
    task, model = slug(Path(str(row["trained_on"])).name.removesuffix(".toml")), slug(str(row["model"]))
    known = f"{before}.".startswith(f"{task}.")
    told = before.removeprefix(task) if known else f".{before.partition('.')[2]}"
    return f"{told}.".removeprefix(f".{model}.").strip(".") if regime else ""
