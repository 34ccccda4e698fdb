"""Tasks by model: the chosen layer's metric, means between control and ceiling, ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from probekit.display import p_equals, shown_label
from probekit.grid import Column, Grid
from probekit.metrics import metric as metric_called
from probekit.rows import layer_labels
from probekit.rows.schema import called
from probekit.view import Options, bracketed

if TYPE_CHECKING:
    import pandas as pd


def tables(rows: pd.DataFrame, options: Options) -> Iterator[tuple[Grid, list[str]]]:
    """A line for each task and a column for each model; then means of groups and ranks, and what they are worth."""
    named = rows.assign(name=[shown_label(called({**row, "representation": ""})) for row in rows.to_dict("records")])
    models = list(dict.fromkeys(named.loc[named["name"] != "", "name"]))
    scores = named[named["metric"].str.startswith("normalised(") & named["chosen"].fillna(value=False).astype(bool)]
    scores = scores.assign(at=layer_labels(scores))
    lines = []
    for (group, line), part in scores.groupby(["group", "line"], sort=False):
        at = {row["name"]: row for row in part.to_dict("records")}
        first = part.iloc[0]
        cells = [_score(at[model]) if model in at else "" for model in models]
        metric = metric_called(str(first["metric"])).of
        again = "" if any(row["counted"] for row in at.values()) else " ‡"
        lines.append([str(group), f"{line}{again}", metric, f"{first['control']:.3f}", *cells])
    keys = [Column("group", align="left", label=True), Column("task", align="left", key=True)]
    keys += [Column("metric", align="left"), Column("control")]
    yield Grid([*keys, *map(Column, models)], lines), [_legend(scores)]
    notes = [
        f"Published leaderboard, {row['task'] or 'mean'}: Spearman's ρ {bracketed(row, '+.2f')}, {p_equals(row['p'])}, "
        f"{row['n']} models.\n"
        for row in named[named["metric"] == "rank-correlation"].to_dict("records")
    ]
    yield _summaries(named, models), notes


def board_table(rows: pd.DataFrame, beside: str | None) -> list[Grid | str]:
    """The tables, and the lines below each; no published numbers belong to them."""
    parts: list[Grid | str] = []
    for grid, notes in tables(rows, {}):
        parts += [grid, *notes]
    return parts


def _score(row: Mapping[Any, Any]) -> str:
    """The metric with its interval, its layer, and the normalised score."""
    raw = bracketed(row, ".3f", ("raw", "raw_low", "raw_high"))
    layer = f", layer {row['at']}" if row["at"] else ""
    dagger = "†" if row["chosen_by"] == "dev" else ""
    none = "" if row["above"] else " ∘"
    return f"{raw}{layer}{dagger} ({100 * row['value']:z.0f}){none}"


def _summaries(named: pd.DataFrame, models: list[str]) -> Grid:
    """Means by group and over all tasks, and ranks."""
    whole = named[named["line"].fillna("") == ""]

    def of(metric: str, group: str = "") -> dict[str, Mapping[Any, Any]]:
        part = whole[(whole["metric"] == metric) & (whole["group"] == group)]
        return {row["name"]: row for row in part.to_dict("records")}

    lines = []
    for group in dict.fromkeys([*filter(None, whole["group"]), ""]):
        mean, above = of("mean-normalised", group), of("above-control", group)
        counts = {m: f"{above[m]['value']:.0f} of {above[m]['tasks']:.0f}" for m in above}
        cells = [f"{bracketed(mean[m], 'z.0f', scale=100)}; {counts[m]}" if m in mean else "" for m in models]
        lines.append([f"mean of {group}" if group else "mean of all tasks", *cells])
    for metric, title in (("rank", "rank by mean"), ("mean-rank", "mean of ranks")):
        if at := of(metric):
            lines.append([title, *(bracketed(at[model], ".2g") if model in at else "" for model in models)])
    return Grid([Column("", align="left", key=True), *map(Column, models)], lines)


def _legend(scores: pd.DataFrame) -> str:
    on_dev = " †: the best layer on dev, which is too good by the luck of the choice."
    not_above = " ∘: not shown to be above the control."
    twice = " ‡: a further line of a task, which does not count below."
    notes = twice * bool((~scores.groupby("line")["counted"].any()).any())
    notes += on_dev * bool((scores["chosen_by"] == "dev").any()) + not_above * bool(
        (~scores["above"].astype(bool)).any()
    )
    return (
        "The metric on the evaluated split with its interval, at the layer with the lowest loss on held-out parts of "
        "train; in brackets 100 (value - control) / (ceiling - control), where the control is the mean of shuffled "
        "labels or the most frequent class (trees: the linear chain or shuffled trees; minimal pairs: a guess) and the "
        f"ceiling the best possible value. Column control: that of the first model.{notes} Below: means of the numbers "
        "in brackets, and the number of tasks above their control, not corrected for the number of tasks; ranks, 1 is "
        "best, with simultaneous intervals.\n"
    )
