"""Selections of rows: of some models, of some variants of their runs, and of the layers that form a curve."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from probekit.display import shown_model
from probekit.errors import UsageError, did_you_mean
from probekit.rows.schema import FINAL, RESIDUAL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MODELS", "VARIANTS", "layer_stream", "select"]

OUTPUT = "output"
"""The site of a BiLSTM's output."""

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


def layer_stream(rows: pd.DataFrame) -> pd.Series:
    """The site of the layers that form a curve: ``final_norm`` and a BiLSTM's ``output`` end that of the layers."""
    return rows["site"].replace({FINAL: RESIDUAL, OUTPUT: RESIDUAL})
