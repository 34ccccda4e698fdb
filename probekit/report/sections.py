"""The sections of a page, and the analyses in each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from probekit.analysis import analyses
from probekit.plots.curves import plot_rows
from probekit.rows import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LAYERED", "Section", "by_section"]


class Section(StrEnum):
    """The titles of sections, in the order of the page."""

    TRAINING = "Training"
    PROBES = "Diagnostic classifiers"
    INFORMATION = "Mutual information"
    CODES = "Description length"
    TRANSFERABILITY = "Transferability scores"
    SIMILARITY = "Similarity of layers"
    MOVEMENT = "Movement from a reference"
    GEOMETRY = "Geometry of layers"
    DIFFERENCES = "Paired differences"
    SUMMARIES = "Curve summaries"
    DOMAINS = "Domains"
    RELATION = "Distance and adaptation"
    GUIDELINES = "Recommended regime"
    OTHER = "Other rows"


LAYERED = (Section.PROBES, Section.INFORMATION, Section.CODES, Section.TRANSFERABILITY)
"""Sections with curves by layer."""
SECTION = {
    "train": Section.TRAINING,
    "search": Section.TRAINING,
    "evaluate": Section.TRAINING,
    "transfer": Section.RELATION,
}
"""The section of each analysis."""
SHOWN = ("layer_name", "run", "run_kind", "method", "random")


def by_section(rows: pd.DataFrame) -> dict[Section, pd.DataFrame]:
    """The rows of each non-empty section, without additional columns that it does not use.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of any analyses; they get the columns of :func:`probekit.plots.curves.plot_rows`.
    """
    import pandas as pd

    rows = plot_rows(rows)
    titles = SECTION | {one.name: Section(one.title) for one in analyses().values() if one.title in [*Section]}
    section = rows["analysis"].map(titles).fillna(Section.OTHER)
    needed = pd.Index([*COLUMNS, *SHOWN])
    found = {}
    for title in Section:
        if (its := section == title).any():
            part = rows[its]
            additional = [c for c in part.columns if c not in set(needed) and part[c].notna().any()]
            found[title] = part[[*needed, *additional]]
    return found
