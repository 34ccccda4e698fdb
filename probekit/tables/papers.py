"""Published numbers to stand beside ours."""

from __future__ import annotations

from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["citation", "published"]

PAPERS = {"peters-2019": "Peters, Ruder & Smith (2019)"}


def published(name: str) -> pd.DataFrame:
    """The numbers of a table of a paper, in its units.

    Parameters
    ----------
    name : str
        Paper and table, such as "peters-2019/6".

    Returns
    -------
    DataFrame
        Columns model, task, row and value.

    Raises
    ------
    UsageError
        For one that there is not.
    """
    import pandas as pd

    paper, _, number = name.partition("/")
    file = files("probekit.tables") / "published" / f"{paper}.csv"
    found = (
        pd.read_csv(StringIO(file.read_text("utf-8")), comment="#", dtype={"table": str})
        if paper in PAPERS
        else pd.DataFrame({"table": []})
    )
    if not (found["table"] == number).any():
        raise UsageError(f"there are no published numbers {name!r}; there are peters-2019/2 and peters-2019/6.")
    return found[found["table"] == number].drop(columns="table")


def citation(name: str | None) -> str:
    """Where published numbers are from, in a sentence; "" of none."""
    if name is None:
        return ""
    paper, _, number = name.partition("/")
    return f" Published: {PAPERS[paper]}, Table {number}, other models, data and corpora."
