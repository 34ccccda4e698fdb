"""Cells, lines and legends of tables in a paper's form, and published numbers beside ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from io import StringIO
from math import isfinite
from typing import TYPE_CHECKING, Any

from probekit.display import p_equals
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called

if TYPE_CHECKING:
    import pandas as pd

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


REGIMES = {"feature-extraction": "feature extraction", "fine-tune": "fine-tuning"}
LINES = {**REGIMES, "difference": "Δ fine-tuning", "js-divergence": "divergence from pretraining text"}


def by_label(found: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """The rows of feature extraction, of fine-tuning and of their difference, each with its heads."""
    order = [*REGIMES.values(), "Δ"]
    change = is_difference(found)
    variants = [f", {variant}" if variant else "" for variant in found["variant"]]
    labels = [
        f"Δ fine-tuning{variant}" if is_change else f"{REGIMES[regime]}, {head}{variant}"
        for is_change, regime, head, variant in zip(change, found["regime"], found["head"], variants, strict=True)
    ]
    for regime, name in REGIMES.items():
        runs = found[~change & (found["regime"] == regime)]
        if not runs.duplicated(["task", "metric"]).any():
            heads = dict.fromkeys(
                map("".join, zip(runs["head"], runs["variant"].map(lambda v: v and f", {v}"), strict=True))
            )
            labels = [f"{name}, {', '.join(heads)}" if label.startswith(name) else label for label in labels]
    groups = [(str(label), part) for label, part in found.assign(label=labels).groupby("label", sort=False)]
    return sorted(groups, key=lambda group: next(i for i, start in enumerate(order) if group[0].startswith(start)))


def is_difference(rows: pd.DataFrame) -> pd.Series:
    """Whether each row is a difference, bool."""
    return rows["metric"].map({name: metric_called(name).derived == "difference" for name in rows["metric"].unique()})


def cell(rows: pd.DataFrame) -> str:
    """A number with its interval, both times 100; "" where there is none."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    shape = "{:+.1f}" if metric_called(str(row["metric"])).derived == "difference" else "{:.1f}"
    return interval(100 * row["value"], 100 * row["ci_low"], 100 * row["ci_high"], shape)


def interval(value: float, low: float, high: float, shape: str) -> str:
    """A number, followed by its interval in brackets where it has one."""
    within = f" [{shape.format(low)}, {shape.format(high)}]" if isfinite(low) else ""
    return shape.format(value) + within


def correlation(row: Mapping[Any, Any]) -> str:
    """A coefficient, its interval and p."""
    return f"{interval(row['value'], row['ci_low'], row['ci_high'], '{:+.2f}')}, {p_equals(row['p'])}"


def legend(found: pd.DataFrame, beside: str | None) -> str:
    """The number of seeds, the meaning of the brackets, and the source of published numbers."""
    seeds = sorted(set(found["seeds"].astype(int)))
    runs = "one seed" if seeds == [1] else f"means over {' or '.join(map(str, seeds))} seeds"
    few = " (two seeds say little)" if seeds == [2] else ""
    of_change = (
        f"; of Δ, fine-tuning minus feature extraction, paired, and over seeds where there are several{few}"
        if is_difference(found).any()
        else ""
    )
    runs = f"{runs[0].upper()}{runs[1:]}; in brackets 95 % intervals: of a metric over examples, not over seeds"
    return f"{runs}{of_change}.{citation(beside, set(found['task']))}\n"
