"""The sections of a page: which analyses each holds."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from probekit.plots.curves import plot_rows
from probekit.rows import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LAYERED", "Section", "by_section"]


class Section(StrEnum):
    """What a section is called, in the order of a page."""

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


LAYERED = (Section.PROBES, Section.INFORMATION, Section.CODES)
"""Of which there is a curve by layer."""
SECTION = {
    "train": Section.TRAINING,
    "search": Section.TRAINING,
    "evaluate": Section.TRAINING,
    "probe": Section.PROBES,
    "mi": Section.INFORMATION,
    "mdl": Section.CODES,
    "compare": Section.DIFFERENCES,
    "summary": Section.SUMMARIES,
    "domains": Section.DOMAINS,
    "transfer": Section.RELATION,
    "guidelines": Section.GUIDELINES,
}
"""Where the rows of each analysis stand."""
SHOWN = ("layer_name", "run", "run_kind", "method", "random")


def by_section(rows: pd.DataFrame) -> dict[Section, pd.DataFrame]:
    """The rows of each section that there are any of, without own columns that it does not use.

    Parameters
    ----------
    rows : pd.DataFrame
        Of any analyses; they get the columns of :func:`probekit.plots.curves.plot_rows`.
    """
    import pandas as pd

    rows = plot_rows(rows)
    section = rows["analysis"].map(SECTION).fillna(Section.OTHER)
    needed = pd.Index([*COLUMNS, *SHOWN])
    found = {}
    for one in Section:
        if len(part := rows[section == one]):
            own = [c for c in part.columns if c not in set(needed) and part[c].notna().any()]
            found[one] = part[[*needed, *own]]
    return found
