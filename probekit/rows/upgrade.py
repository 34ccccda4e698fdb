"""Rows of earlier versions in current columns; the only module that parses names and column sets.

Before version 0.2 rows had no ``analysis``: it is inferred from their metrics and further columns. A draw was a suffix
of ``target`` ("shuffled-3"), regime and head were in ``estimator`` ("fine-tune linear"), the variant of a run in its
name ("mrpc.joint.fine-tune.0"), and the seed of random weights in ``checkpoint`` ("random-0").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.files import slug

if TYPE_CHECKING:
    import pandas as pd

ALONE = ", without effects of single domains"
REGIMES = ("fine-tune", "feature-extraction")
HOW = rf"^(?P<regime>{'|'.join(REGIMES)}) (?P<head>[^-\s,]\S*?)(?:, (?P<variant>.+))?$"
"""An estimator that consists of a regime and a head, and in studies of domains a variant."""
RUN = re.compile(rf"(?P<name>.+)\.(?P<regime>{'|'.join(REGIMES)})\.(?P<seed>\d+)")
"""The names of runs in studies."""
CODES = ("codelength-bits", "bits-per-example", "compression", "portion-bits-per-example")


def is_old(rows: pd.DataFrame) -> bool:
    """Whether rows were written before the column ``analysis`` existed."""
    return "analysis" not in rows.columns


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows from before version 0.2 with current columns; their values do not change."""
    rows = rows.assign(**{c: "" for c in ("checkpoint", "layer_name") if c not in rows})
    rows["analysis"] = _analysis(rows)
    rows = upgrade_fits(rows)
    codes = rows["analysis"] == "mdl"
    if "kept" in rows and codes.any():  # also the name of a column for trained models
        rows["features_kept"] = rows["kept"].where(codes)
        rows["kept"] = rows["kept"].mask(codes)
    if (rows["head"] != "").any():
        rows["headline"] = _headline(rows)
    compared = rows["analysis"] == "compare"
    if compared.any():
        rows.loc[compared, "metric"] = "difference(" + rows.loc[compared, "of_metric"].astype(str) + ")"
        rows["against"] = rows["against"].astype("string").str.replace(r"\brandom-\S+", "random weights", regex=True)
    terms = rows["metric"] == "js-contribution"  # p and q were the term's shares in the two domains
    if terms.any() and "q" in rows:
        rows["share_a"], rows["share_b"] = rows["p"].where(terms), rows.pop("q").where(terms)
        rows["p"] = rows["p"].mask(terms)
    if "of_metric" in rows:  # the adjustment of transfers was a suffix of the metric
        of_metric = rows["of_metric"].astype("string").fillna("")
        lost, alone = of_metric.str.startswith("lost("), of_metric.str.endswith(ALONE)
        if lost.any():
            rows["adjust"] = alone.map({True: "effects", False: "in-domain"}).where(lost)
            rows["of_metric"] = rows["of_metric"].astype("string").str.removesuffix(ALONE)
    return rows


def upgrade_fits(rows: pd.DataFrame) -> pd.DataFrame:
    """Separate columns for what identifies a fit: draw, regime, head, variant, seed of random weights."""
    rows = rows.copy()
    targets = rows["target"].astype("string").fillna("")
    draws = targets.str.extract(r"^(?P<target>.+?)-(?P<draw>\d+)$")
    rows["target"] = draws["target"].fillna(targets)
    rows["draw"] = draws["draw"].astype("Int64")
    parts = rows["estimator"].astype("string").str.extract(HOW)
    rows[["regime", "head", "variant"]] = parts.fillna("")
    rows.loc[rows["head"] != "", "estimator"] = ""
    learned = rows["head"] != ""
    if "analysis" in rows:  # there the task is a domain in studies of domains
        learned &= rows["analysis"] != "transfer"
    own_task = rows["task"].where(learned)
    rows["trained_on"] = (rows["trained_on"].fillna(own_task) if "trained_on" in rows else own_task).fillna("")
    runs = [_run(row) for row in rows.to_dict("records")]
    for column in ("regime", "variant", "trained_on", "run_seed"):
        rows[column] = [row[column] for row in runs]
    rows["run_seed"] = rows["run_seed"].astype("Int64")
    checkpoints = rows["checkpoint"].astype("string").fillna("")
    rows["random_weights"] = checkpoints.str.extract(r"^random-(\d+)$")[0].astype("Int64")
    return rows


def _analysis(rows: pd.DataFrame) -> pd.Series:
    """The function that computed each row."""
    import pandas as pd

    def has(column: str) -> pd.Series:
        if column not in rows:
            return pd.Series(data=False, index=rows.index)
        return rows[column].notna() & (rows[column].astype("string").fillna("") != "")

    found = pd.Series("", index=rows.index, dtype="string")
    codes = rows["metric"].isin(CODES)
    training, compared, domains = has("kept") & ~codes, has("of_metric"), has("domain_a")
    others = ~(training | compared | domains)
    layered = set(rows.loc[others & has("layer_name"), "task"])
    found[others & rows["task"].isin(layered)] = "probe"  # rows without a layer accompany the layers of their task
    found[others & codes] = "mdl"
    found[others & (rows["metric"] == "mutual-information")] = "mi"
    found[compared] = "summary"
    found[compared & (rows["metric"] == "difference") & has("against")] = "compare"
    found[domains], found[training] = "domains", "train"
    found[training & has("trained_on") & ~has("seeds")] = "evaluate"  # means over seeds come from tables
    found[others & has("prefer")], found[has("corpus")] = "guidelines", "transfer"
    found[rows["representation"] == "transfer"] = "transfer"
    found[has("domain") & (has("x") | has("trained_on"))] = "transfer"
    return found


def _run(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The parts of a run's name: "joint" and 0 of "mrpc.joint.fine-tune.0" and "mrpc.MODEL.joint.fine-tune.0"."""
    known = {"regime": row["regime"], "variant": row["variant"], "trained_on": row["trained_on"], "run_seed": None}
    match = RUN.fullmatch(str(row["checkpoint"]))
    if match is None or known["regime"] not in ("", match["regime"]):
        return known
    learned = str(known["trained_on"] or row["task"])
    task, model = slug(Path(learned).name.removesuffix(".toml")), slug(str(row["model"]))
    name, of_task = match["name"], f"{match['name']}.".startswith(f"{task}.")
    suffix = name.removeprefix(task) if of_task else f".{name.partition('.')[2]}"
    variant = f"{suffix}.".removeprefix(f".{model}.").strip(".")
    return {
        "regime": match["regime"],
        "variant": variant,
        "trained_on": learned if of_task or known["trained_on"] else name.partition(".")[0],
        "run_seed": int(match["seed"]),
    }


def _headline(rows: pd.DataFrame) -> pd.Series:
    """The main number of each run: the main metric (its rows came first) of its kept weights on its last split."""
    import pandas as pd

    kept = rows["kept"].fillna(value=False).astype(bool) if "kept" in rows else pd.Series(data=False, index=rows.index)
    found = rows[kept & (rows["head"] != "") & ~rows["metric"].astype("string").str.contains("loss|squared-error|mix-")]
    key = ["model", "task", "trained_on", "checkpoint"]
    found = found[found["metric"] == found.groupby(key, sort=False)["metric"].transform("first")]
    last = found[found["split"] == found.groupby(key, sort=False)["split"].transform("last")]
    columns = [*key, *({"seed"} & set(rows)), "value"]
    last = last.drop_duplicates(columns, keep="last")  # dev may also have been the test split
    return pd.Series(rows.index.isin(last.index), index=rows.index)
