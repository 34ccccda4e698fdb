"""Rows of earlier versions, in today's columns. The one place that reads anything out of names and column sets.

Before version 0.2 rows had no ``analysis``: which one they came from is told from their metrics and own columns; a draw
was a suffix of ``target`` ("shuffled-3"), regime and head stood in ``estimator`` ("fine-tune linear"), the variant of a
run in its name ("mrpc.joint.fine-tune.0"), and the seed of random weights in ``checkpoint`` ("random-0").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.files import slug

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["is_old", "upgrade", "upgrade_fits"]

ALONE = ", without effects of single domains"
REGIMES = ("fine-tune", "feature-extraction")
HOW = rf"^(?P<regime>{'|'.join(REGIMES)}) (?P<head>[^-\s,]\S*?)(?:, (?P<variant>.+))?$"
"""An estimator that was a regime and a head, and in studies of domains a variant."""
RUN = re.compile(rf"(?P<name>.+)\.(?P<regime>{'|'.join(REGIMES)})\.(?P<seed>\d+)")
"""How studies name runs."""
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
    if (rows["head"] != "").any():
        rows["headline"] = _headline(rows)
    compared = rows["analysis"] == "compare"
    if compared.any():
        rows.loc[compared, "metric"] = "difference(" + rows.loc[compared, "of_metric"].astype(str) + ")"
        rows["against"] = rows["against"].astype("string").str.replace(r"\brandom-\S+", "random weights", regex=True)
    terms = rows["metric"] == "js-contribution"  # p and q were the term's shares of the two domains
    if terms.any() and "q" in rows:
        rows["share_a"], rows["share_b"] = rows["p"].where(terms), rows.pop("q").where(terms)
        rows["p"] = rows["p"].mask(terms)
    if "of_metric" in rows:  # what was taken away of transfers stood behind the metric
        of_metric = rows["of_metric"].astype("string").fillna("")
        lost, alone = of_metric.str.startswith("lost("), of_metric.str.endswith(ALONE)
        if lost.any():
            rows["adjust"] = alone.map({True: "effects", False: "in-domain"}).where(lost)
            rows["of_metric"] = rows["of_metric"].astype("string").str.removesuffix(ALONE)
    return rows


def upgrade_fits(rows: pd.DataFrame) -> pd.DataFrame:
    """What says which fit is which, in columns of its own: draw, regime, head, variant, seed of random weights."""
    rows = rows.copy()
    told = rows["target"].astype("string").fillna("")
    draws = told.str.extract(r"^(?P<target>.+?)-(?P<draw>\d+)$")
    rows["target"] = draws["target"].fillna(told)
    rows["draw"] = draws["draw"].astype("Int64")
    how = rows["estimator"].astype("string").str.extract(HOW)
    rows[["regime", "head", "variant"]] = how.fillna("")
    rows.loc[rows["head"] != "", "estimator"] = ""
    learned = rows["head"] != ""
    if "analysis" in rows:  # in studies of domains it names a domain
        learned &= rows["analysis"] != "transfer"
    own = rows["task"].where(learned)
    rows["trained_on"] = (rows["trained_on"].fillna(own) if "trained_on" in rows else own).fillna("")
    runs = [_run(row) for row in rows.to_dict("records")]
    for column in ("regime", "variant", "trained_on", "run_seed"):
        rows[column] = [row[column] for row in runs]
    rows["run_seed"] = rows["run_seed"].astype("Int64")
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
    found[training & has("trained_on") & ~has("seeds")] = "evaluate"  # means over seeds are of tables
    found[rest & has("prefer")], found[has("corpus")] = "guidelines", "transfer"
    found[rows["representation"] == "transfer"] = "transfer"
    found[has("domain") & (has("x") | has("trained_on"))] = "transfer"
    return found


def _run(row: Mapping[Any, Any]) -> dict[str, Any]:
    """What the name of a run says: "joint" and 0 of "mrpc.joint.fine-tune.0" and "mrpc.MODEL.joint.fine-tune.0"."""
    known = {"regime": row["regime"], "variant": row["variant"], "trained_on": row["trained_on"], "run_seed": None}
    told = RUN.fullmatch(str(row["checkpoint"]))
    if told is None or known["regime"] not in ("", told["regime"]):
        return known
    learned = str(known["trained_on"] or row["task"])
    task, model = slug(Path(learned).name.removesuffix(".toml")), slug(str(row["model"]))
    name, of_task = told["name"], f"{told['name']}.".startswith(f"{task}.")
    rest = name.removeprefix(task) if of_task else f".{name.partition('.')[2]}"
    variant = f"{rest}.".removeprefix(f".{model}.").strip(".")
    return {
        "regime": told["regime"],
        "variant": variant,
        "trained_on": learned if of_task or known["trained_on"] else name.partition(".")[0],
        "run_seed": int(told["seed"]),
    }


def _headline(rows: pd.DataFrame) -> pd.Series:
    """The one number of each run: of its kept weights the main metric, whose rows came first, on its last split."""
    import pandas as pd

    kept = rows["kept"].fillna(value=False).astype(bool) if "kept" in rows else pd.Series(data=False, index=rows.index)
    found = rows[kept & (rows["head"] != "") & ~rows["metric"].astype("string").str.contains("loss|squared-error|mix-")]
    key = ["model", "task", "trained_on", "checkpoint"]
    found = found[found["metric"] == found.groupby(key, sort=False)["metric"].transform("first")]
    last = found[found["split"] == found.groupby(key, sort=False)["split"].transform("last")]
    own = [*key, *({"seed"} & set(rows)), "value"]
    last = last.drop_duplicates(own, keep="last")  # dev may have been the test split, too
    return pd.Series(rows.index.isin(last.index), index=rows.index)
