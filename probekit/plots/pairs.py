"""Rows of minimal pairs as curves by layer: those of all pairs, or of the groups of one level; rows by label."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

CHANCE = 0.5
GROUPS = ("field", "phenomenon", "paradigm")
"""Levels whose groups are named without their level."""


def pairs_by(rows: pd.DataFrame, level: str | None) -> pd.DataFrame:
    """The rows of minimal pairs at one level, or of each label, each as a task of its own; other rows as they are.

    Parameters
    ----------
    rows : DataFrame
        Rows of :func:`probekit.pairs`, and possibly of other analyses.
    level : str or None
        "field", "phenomenon", "paradigm", or a column given as ``by``; "label" for labels, classes or entity types;
        None leaves the rows as they are.

    Raises
    ------
    UsageError
        If no rows have the level.
    """
    import pandas as pd

    if level is None:
        return rows
    if level == "label" and "label" in rows and (own := rows["metric"].str.startswith("by-label(")).any():
        some = rows[own]
        share = some["support"].astype("Int64").astype(str)
        return some.assign(task=some["task"] + ": " + some["label"].astype(str) + " (" + share + ")")
    levels = [name for name in rows.get("level", pd.Series(dtype=object)).dropna().unique() if name]
    if level not in levels:
        raise UsageError(
            f"the rows have no groups by {level!r}; {did_you_mean(level, levels)}" if levels else
            f"the rows have no groups by {level!r}: only those of probekit pairs have groups, those of probekit probe "
            "--by-label labels."
        )  # fmt: skip
    some = rows[rows["level"] == level]
    names = some["of"].astype(str) if level in GROUPS else level + " " + some["of"].astype(str)
    return some.assign(task=some["task"] + ":" + names, level="all")


def as_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of all pairs; those of a model's own head, and chance, are horizontal lines."""
    import pandas as pd

    rows = rows[rows["level"].eq("all").fillna(value=False).astype(bool)]
    if (rows["representation"] == "chance").any():  # already done for a larger table
        return rows
    if (rows["layer_name"] == "").all():
        raise UsageError("rows of pairs without layers have no curves; use probekit pairs --by-layer, or a cache.")
    head = rows["representation"] == "lm-head"
    names = rows["model"].str.rsplit("/", n=1).str[-1] + "'s own head"
    if rows.loc[head, "estimator"].nunique() > 1:
        names += ", " + rows["estimator"]
    rows = rows.assign(representation=rows["representation"].where(~head, names))
    first = rows.drop_duplicates("task")
    chance = first.assign(
        layer=None, layer_name="", site="", target="gold", representation="chance", estimator="", method="",
        value=CHANCE, ci_low=float("nan"), ci_high=float("nan"),
    )  # fmt: skip
    return pd.concat([rows, chance.astype(rows.dtypes.to_dict())], ignore_index=True)
