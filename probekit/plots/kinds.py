"""What rows are of: which analysis they come from, told by their columns and metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from probekit.plots.layers import INFORMATION
from probekit.rows import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LAYERED", "Kind", "by_kind"]

CODES = ("codelength-bits", "bits-per-example", "compression", "portion-bits-per-example")


class Kind(StrEnum):
    """An analysis, in the order of a page."""

    TRAINING = "Training"
    PROBES = "Diagnostic classifiers"
    INFORMATION = "Mutual information"
    CODES = "Description length"
    DIFFERENCES = "Paired differences"
    SUMMARIES = "Layer curves in a few numbers"
    DOMAINS = "Domains"
    RELATION = "Distance and adaptation"
    GUIDELINES = "Which regime to prefer"
    OTHER = "Other rows"


LAYERED = (Kind.PROBES, Kind.INFORMATION, Kind.CODES)
"""Of which there is a curve by layer."""


def by_kind(rows: pd.DataFrame) -> dict[Kind, pd.DataFrame]:
    """The rows of each analysis that there are any of, without columns that it does not use."""
    import pandas as pd

    def has(column: str) -> pd.Series:
        if column not in rows:
            return rows["task"].isna()  # never
        return rows[column].notna() & (rows[column].astype("string").fillna("") != "")

    training, compared, domains = has("kept"), has("of_metric") | (rows["analysis"] == "compare"), has("domain_a")
    difference = rows["analysis"] == "compare"
    kind = pd.Series(Kind.OTHER.value, index=rows.index)
    rest = ~(training | compared | domains)
    codes, information = rest & rows["metric"].isin(CODES), rest & (rows["metric"] == INFORMATION)
    rest &= ~(codes | information)
    layered = set(rows.loc[rest & (rows["layer_name"] != ""), "task"])
    kind[rest & rows["task"].isin(layered)] = (
        Kind.PROBES.value
    )  # what has no layer stands beside the layers of its task
    kind[codes], kind[information] = Kind.CODES.value, Kind.INFORMATION.value
    kind[compared], kind[difference] = Kind.SUMMARIES.value, Kind.DIFFERENCES.value
    kind[domains], kind[training] = Kind.DOMAINS.value, Kind.TRAINING.value
    kind[rest & has("prefer")], kind[has("corpus")] = Kind.GUIDELINES.value, Kind.RELATION.value
    kind[rows["representation"] == "transfer"] = Kind.RELATION.value
    kind[has("domain") & (has("x") | has("trained_on"))] = Kind.RELATION.value
    found = {one: rows[kind == one.value].dropna(axis="columns", how="all") for one in Kind}
    needed = pd.Index([*COLUMNS, "layer_name"])
    return {
        one: part.reindex(columns=[*needed, *(c for c in part.columns if c not in set(needed))]).astype(
            dict(rows.dtypes[needed])
        )
        for one, part in found.items()
        if len(part)
    }
