"""Published numbers, to compare with ours."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["citation", "published"]

PAPERS = {"peters-2019": "Peters, Ruder & Smith (2019)", "bowman-2018": "Bowman et al. (2018)"}


def published(name: str) -> pd.DataFrame:
    """The numbers of a table in a paper, in the paper's units.

    Parameters
    ----------
    name : str
        Paper and table, such as "peters-2019/6".

    Returns
    -------
    DataFrame
        Columns model, variant, split, task, metric, row, value and note; ``row`` is a regime, "difference" or
        "js-divergence", or for Bowman et al. (2018) a part of the table; their ``model`` is what an encoder is
        pretrained on.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    paper, _, number = name.partition("/")
    tables = {known: _tables(known) for known in PAPERS}
    found = tables.get(paper)
    if found is None or not (found["table"] == number).any():
        known = [f"{key}/{table}" for key, numbers in tables.items() for table in dict.fromkeys(numbers["table"])]
        raise UsageError(f"there are no published numbers {name!r}; there are {', '.join(known)}.")
    return found[found["table"] == number].drop(columns="table")


def _tables(paper: str) -> pd.DataFrame:
    """All numbers of a paper."""
    import pandas as pd

    file = files("probekit.tables") / "published" / f"{paper}.csv"
    types = dict.fromkeys(("table", "model", "variant", "row", "note"), str)
    found = pd.read_csv(StringIO(file.read_text("utf-8")), comment="#", dtype=types)
    return found.fillna(dict.fromkeys(types, ""))


def citation(name: str | None, tasks: Collection[str]) -> str:
    """The source of published numbers, with notes on those for ``tasks``; "" without published numbers."""
    if name is None:
        return ""
    paper, _, number = name.partition("/")
    found = published(name)
    beside = found[found["task"].isin(tasks)] if found["task"].isin(tasks).any() else found
    noted = beside[beside["note"] != ""].drop_duplicates(["task", "note"])
    of = "".join(f" {task}: {note}." for task, note in zip(noted["task"], noted["note"], strict=True))
    table = f"{PAPERS[paper]}, Table {number} ({' and '.join(dict.fromkeys(beside['split']))})"
    return f" Published: {table}; models, data and settings may differ from ours.{of}"
