"""The sections of a page: of each analysis its own, with the title of its value; some analyses share one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.analysis import Reads, analyses
from probekit.plots.curves import plot_rows
from probekit.rows import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

TRAINING, OTHER = "train", "other"
TITLES = {
    TRAINING: "Training",
    **{one.name: one.title for one in analyses().values()},
    "transfer": "Distance and adaptation",
    OTHER: "Other rows",
}
"""The titles of sections by analysis, in the order of the page."""
WITHIN = {"search": TRAINING, "evaluate": TRAINING}
"""Analyses that are in the section of another."""
SHOWN = ("layer_name", "run", "run_kind", "method", "random")


def is_by_layer(section: str) -> bool:
    """Whether a section has curves by layer of one model each, whose layers are compared with noise."""
    one = analyses().get(section)
    of_caches = one and one.layered and not one.of_vectors and one.reads in (Reads.CACHE, Reads.CACHES)
    return section == "probe" or bool(of_caches)


def by_section(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each non-empty section, without additional columns that it does not use.

    Parameters
    ----------
    rows : pd.DataFrame
        Rows of any analyses; they get the columns of :func:`probekit.plots.curves.plot_rows`.
    """
    import pandas as pd

    rows = plot_rows(rows)
    section = rows["analysis"].replace(WITHIN)
    section = section.where(section.isin(list(TITLES)), OTHER)
    needed = pd.Index([*COLUMNS, *SHOWN])
    found = {}
    for name in TITLES:
        if (its := section == name).any():
            part = rows[its]
            additional = [c for c in part.columns if c not in set(needed) and part[c].notna().any()]
            found[name] = part[[*needed, *additional]]
    return found
