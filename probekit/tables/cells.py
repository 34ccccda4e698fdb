"""Cells, lines and legends of tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from probekit.metrics import metric as metric_called
from probekit.tables.papers import citation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LINES", "REGIMES", "by_label", "cell", "correlation", "interval", "is_difference", "legend", "markdown"]

REGIMES = {"feature-extraction": "feature extraction", "fine-tune": "fine-tuning"}
LINES = {**REGIMES, "difference": "Δ fine-tuning", "js-divergence": "divergence from pretraining text"}


def by_label(found: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """Feature extraction, fine-tuning, and the difference, each with its head, or with those that tasks have."""
    order = [*REGIMES.values(), "Δ"]
    change = is_difference(found)
    variants = [f", {variant}" if variant else "" for variant in found["variant"]]
    labels = [
        f"Δ fine-tuning{variant}" if of else f"{REGIMES[regime]}, {head}{variant}"
        for of, regime, head, variant in zip(change, found["regime"], found["head"], variants, strict=True)
    ]
    for regime, name in REGIMES.items():
        own = found[~change & (found["regime"] == regime)]
        if not own.duplicated(["task", "metric"]).any():
            heads = dict.fromkeys(
                map("".join, zip(own["head"], own["variant"].map(lambda v: v and f", {v}"), strict=True))
            )
            labels = [f"{name}, {', '.join(heads)}" if one.startswith(name) else one for one in labels]
    groups = [(str(label), own) for label, own in found.assign(label=labels).groupby("label", sort=False)]
    return sorted(groups, key=lambda one: next(i for i, start in enumerate(order) if one[0].startswith(start)))


def is_difference(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of differences, bool."""
    return rows["metric"].map({name: metric_called(name).derived == "difference" for name in rows["metric"].unique()})


def cell(rows: pd.DataFrame) -> str:
    """A number with its interval, in hundredths; "" where there is none."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    shape = "{:+.1f}" if metric_called(str(row["metric"])).derived == "difference" else "{:.1f}"
    return interval(100 * row["value"], 100 * row["ci_low"], 100 * row["ci_high"], shape)


def interval(value: float, low: float, high: float, shape: str) -> str:
    """A number, and in brackets its interval where there is one."""
    within = f" [{shape.format(low)}, {shape.format(high)}]" if isfinite(low) else ""
    return shape.format(value) + within


def correlation(row: Mapping[Any, Any]) -> str:
    """A coefficient, its interval and p."""
    return f"{interval(row['value'], row['ci_low'], row['ci_high'], '{:+.2f}')}, p = {row['p']:.3f}"


def legend(found: pd.DataFrame, beside: str | None) -> str:
    """What the numbers are means of, what is in brackets, and where published ones are from."""
    seeds = sorted(set(found["seeds"].astype(int)))
    runs = "one seed" if seeds == [1] else f"means over {' or '.join(map(str, seeds))} seeds"
    few = " (two tell little)" if seeds == [2] else ""
    of_change = (
        f"; of Δ, fine-tuning minus feature extraction, paired, and over seeds where there are several{few}"
        if is_difference(found).any()
        else ""
    )
    runs = f"{runs[0].upper()}{runs[1:]}; in brackets 95 % intervals: of a metric over examples, not over seeds"
    return f"{runs}{of_change}.{citation(beside, set(found['task']))}\n"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    return line(head) + line(["---"] * len(head)) + "".join(map(line, lines))
