"""Selections of rows: of some models, of some variants of their runs, and of the layers that form a curve."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from probekit.analysis import Corrected, analyses
from probekit.display import shown_model
from probekit.errors import UsageError, did_you_mean
from probekit.rows.schema import FINAL, RESIDUAL

if TYPE_CHECKING:
    import pandas as pd

CURVE = (
    *("trained_on", "model", "checkpoint", "step", "regime", "head", "variant", "position", "representation"),
    *("estimator", "seed", "random_weights"),
)
"""The columns in which curves of one task, split and metric differ."""
OUTPUT = "output"
"""The site of a BiLSTM's output."""


def of_all_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of all labels together, without those of each label alone, "by-label(…)"."""
    return rows[~rows["metric"].str.startswith("by-label(").astype(bool)]


MODELS = "Use only the rows of this model, by its name in the rows or as it is displayed; may be repeated."
VARIANTS = "Use only runs of this variant (probekit train --variant), or '' for runs without one; may be repeated."
"""Help of the options."""


def select(rows: pd.DataFrame, models: Collection[str] = (), variants: Collection[str] = ()) -> pd.DataFrame:
    """The rows of some models and variants. Rows without a model, such as divergences between domains, stay.

    Runs on the weights that a pretraining kept ("mini@step-400") get the name of that pretraining, if the rows have it.

    Parameters
    ----------
    rows : DataFrame
        Rows of a study.
    models : collection of str
        Names as in the rows, or as tables show them; all models if empty.
    variants : collection of str
        Variants of training runs, "" for runs without one; all if empty. The rows of a pretraining have no variant
        and stay.

    Raises
    ------
    UsageError
        If no row has one of the names.
    """
    rows = _of_pretraining(rows)
    if models:
        names = rows["model"].fillna("").astype(str)
        shown = names.map(shown_model)
        _check("model", models, {*names, *shown} - {""})
        rows = rows[names.isin(models) | shown.isin(models) | (names == "")]
    if variants:
        of_run = ~rows["regime"].isin(("", "pretrain"))
        names = rows["variant"].fillna("").astype(str)
        _check("variant", variants, set(names[of_run]))
        rows = rows[names.isin(variants) | ~of_run]
    return rows


def _of_pretraining(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the name of a pretraining instead of that of its kept step."""
    kept = (
        rows[(rows["regime"] == "pretrain") & rows["headline"].fillna(value=False).astype(bool)]
        if "headline" in rows
        else rows[:0]
    )
    names = {f"{m}@step-{step}": m for m, step in zip(kept["model"], kept["step"], strict=True)}
    return rows.assign(model=rows["model"].replace(names)) if rows["model"].isin(names).any() else rows


def _check(column: str, requested: Collection[str], known: Collection[str]) -> None:
    for name in requested:
        if name not in known:
            raise UsageError(f"the rows have no {column} {name!r}; {did_you_mean(name, sorted(map(repr, known)))}")


def together() -> tuple[str, ...]:
    """Analyses whose p-values are corrected for all layers of all curves of a task where several are shown."""
    return tuple(one.name for one in analyses().values() if one.corrected is Corrected.CURVES)


def layer_stream(rows: pd.DataFrame) -> pd.Series:
    """The site of the layers that form a curve: ``final_norm`` and a BiLSTM's ``output`` end that of the layers."""
    return rows["site"].replace({FINAL: RESIDUAL, OUTPUT: RESIDUAL})


def curve_keys(rows: pd.DataFrame) -> list[pd.Series]:
    """What rows of one curve share, to group rows of one task, split and metric by."""
    return [*(rows[c].astype("string").fillna("") for c in CURVE if c in rows), layer_stream(rows)]


def over_curves(rows: pd.DataFrame) -> np.ndarray:
    """``p_adjusted`` of each row, corrected for the number of curves of its task, split and metric (Bonferroni), (R,).

    In rows of :func:`together`, on gold labels and of layers; of others as it is. NaN without p.
    """
    p = rows["p_adjusted"].to_numpy(dtype=float, copy=True) if "p_adjusted" in rows else np.full(len(rows), np.nan)
    if not np.isfinite(p).any():
        return p
    of_layer = (rows["target"] == "gold") & rows["draw"].isna() & (rows["site"] != "")
    at = np.flatnonzero((of_layer & rows["analysis"].isin(together())).to_numpy(dtype=bool))
    gold = rows.iloc[at].reset_index(drop=True)
    number = gold.groupby(curve_keys(gold), sort=False).ngroup()
    families = [gold[c].astype("string").fillna("") for c in ("analysis", "task", "split", "metric")]
    p[at] = np.minimum(1, p[at] * number.groupby(families).transform("nunique").to_numpy(dtype=float))
    return p
