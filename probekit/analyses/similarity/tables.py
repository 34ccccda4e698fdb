"""Tables of the similarity of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from probekit.display import p_value, shown_label
from probekit.grid import Column, Grid
from probekit.metrics import metric
from probekit.rows.families import ALPHA
from probekit.rows.schema import called, layer_labels
from probekit.view import interval

if TYPE_CHECKING:
    import pandas as pd

MODELS = ["model", "checkpoint", "step", "model_b", "checkpoint_b", "step_b"]
SIDE = ("ci_low", "null_mean", "calibrated", "p_adjusted")
"""The columns of rows for the columns of a table after the value."""
NAMED = ("model", "checkpoint", "step", "representation")
FEW = 3
"""Up to this many pairs of models have a table each."""


def tables(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[tuple[Grid, list[str]]]:
    """For a few pairs of models the same and the most similar layers of each; for many the same layers of all."""
    rows = rows.assign(**{c: float("nan") for c in (*MODELS, *SIDE) if c not in rows})  # a page leaves out empty ones
    measures = rows["metric"].nunique()
    pairs = [part for _, part in rows.groupby([*MODELS, "metric"], sort=False, dropna=False)]
    if len(pairs) > FEW * measures:
        yield from (_same_layers(part) for _, part in rows.groupby("metric", sort=False))
    else:
        yield from (_pair(part, options, len(rows) // measures) for part in pairs)


def _same_layers(rows: pd.DataFrame) -> tuple[Grid, list[str]]:
    """A line for each pair of models, a column for each layer that both have; a star where it may be chance."""
    names = layer_labels(rows)
    same = rows[(names == layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"]))).to_numpy()]
    layers = list(dict.fromkeys(layer_labels(same)))
    head, lines = rows.iloc[0], []
    for _, part in same.groupby(MODELS, sort=False, dropna=False):
        one = part.iloc[0]
        models = [shown_label(called({c: one[c + end] for c in NAMED})) for end in ("", "_b")]
        values = dict(zip(layer_labels(part), zip(part["value"], part["p_adjusted"], strict=True), strict=True))
        cells = [values.get(name, (float("nan"), float("nan"))) for name in layers]
        lines.append([*models, *(f"{v:z.3f}{'*' * (p > ALPHA)}" if isfinite(v) else "" for v, p in cells)])
    columns = [Column("model", "left", key=True, label=True), Column("and", "left", key=True), *map(Column, layers)]
    title = metric(str(head["metric"])).title
    starred = any(cell.endswith("*") for line in lines for cell in line[2:])
    note = f"* not shown to be more alike than chance (p adjusted over {_layer_pairs(len(rows))} > {ALPHA:g})"
    title = f"{head['task']} {head['split']}, {title} of the same layers, n = {head['n']:,}"
    return Grid(columns, lines, title), [note] * starred


def _pair(rows: pd.DataFrame, options: Mapping[str, Any], pairs: int) -> tuple[Grid, list[str]]:
    """A line for each layer of the first model: its own layer in the second, and the most similar one."""
    head, measure = rows.iloc[0], metric(str(rows["metric"].iloc[0]))
    other = {column.removesuffix("_b"): head[column] for column in rows.columns if column.endswith("_b")}
    alone = called(other) == called(head)
    rows = rows.assign(a=layer_labels(rows), b=layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"])))
    side = ["value", interval(options), "by chance", "calibrated", "p adjusted"]
    names = ["layer", *([] if alone else ["same layer", *side[1:]]), "most similar", *side]
    lines = []
    for layer, part in rows.groupby("a", sort=False):
        same, others = part[part["b"] == layer], part[part["b"] != layer] if alone else part
        sign = 1 if measure.alike else -1
        best = others.loc[[(sign * others["value"]).idxmax()]] if others["value"].notna().any() else others.iloc[:0]
        cells = [str(layer)] if alone else [str(layer), *_cells(same)]
        lines.append([*cells, str(best["b"].iloc[0]) if len(best) else "", *_cells(best)])
    missing = {name for name, column in zip(side[1:], SIDE, strict=True) if rows[column].isna().all()}
    kept = [i for i, name in enumerate(names) if name not in missing]
    a, b = shown_label(called(head)), shown_label(called(other))
    both = f"layers of {a} with the others" if alone else f"layers of {a} with those of {b}"
    title = f"{head['task']} {head['split']}, {measure.title}: {both}, n = {head['n']:,}"
    grid = Grid([Column(names[i], key=not i) for i in kept], [[line[i] for i in kept] for line in lines], title)
    if rows["p_adjusted"].isna().all():
        return grid, []
    exact = head["draws"] > (options["draws"] or 1000)
    more = " (in complete cycles of shifts, which keep p exact)" if exact else ""
    return grid, [f"p adjusted: corrected over {_layer_pairs(pairs)}; {head['draws']:,} permutations{more}."]


def _layer_pairs(count: int) -> str:
    return "the one pair of layers" if count == 1 else f"the {count:,} pairs of layers"


def _cells(row: pd.DataFrame) -> list[str]:
    """Value, interval, chance, calibrated value and corrected p of one pair; empty if there is none."""
    if row.empty or not isfinite(row["value"].iloc[0]):
        return [""] * 5
    one = row.iloc[0]
    limits = f"{one['ci_low']:z.3f} – {one['ci_high']:z.3f}" if isfinite(one["ci_low"]) else ""
    chance = [f"{one[c]:z.3f}" if isfinite(one[c]) else "" for c in ("null_mean", "calibrated")]
    return [f"{one['value']:z.3f}", limits, *chance, p_value(one["p_adjusted"])]
