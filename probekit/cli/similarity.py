"""``probekit similarity``, ``probekit movement`` and ``probekit geometry``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from probekit.analyses.options import GeometryOptions, MovementOptions, VectorOptions
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table, tables_as
from probekit.display import shown, shown_label
from probekit.grid import Column, Format, Grid
from probekit.similarity.options import SimilarityOptions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["geometry", "movement", "similarity"]

SHORT = {
    "relative-distance": "distance",
    "cosine-distance": "cosine distance",
    "aligned-distance": "after rotation",
    "rank": "rank",
    "participation-ratio": "participation ratio",
    "intrinsic-dimension": "TwoNN dimension",
    "mean-cosine": "mean cosine",
    "mean-cosine-without-top": "without top",
}
"""Metrics as columns of tables."""
MODELS = ["model", "checkpoint", "step", "model_b", "checkpoint_b", "step_b"]
SIDE = ("ci_low", "null_mean", "calibrated", "p_adjusted")
"""The columns of rows for the columns of a table after the value."""
NAMED = ("model", "checkpoint", "step", "representation")
FEW, LEVEL = 3, 0.05
"""Up to this many pairs of models have a table each; the level of p."""
TEXT = 100
"""Characters of a text in the terminal."""


def similarity(
    *caches: str,
    against: Literal["first", "all"] = "first",
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[SimilarityOptions, Parameter(name="*")] = SimilarityOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Measure how alike layers are, with the value that chance gives, p and intervals.

    One cache: its layers with each other. Two: all pairs of layers of two models on the same examples; the reference,
    such as the pretrained model, comes first. More: each with the first, such as the checkpoints of a run with step 0.
    Caches may hold the examples in another order and lack some. Models may have other widths and depths.

    Each line of the table is a layer of the first model; the columns show the same layer of the second model, and the
    layer of the second model that is most similar to it. Linear CKA is debiased: unrelated layers have 0 in the mean,
    whatever their width. Other measures have other chance levels; the table shows them next to the value. The
    calibrated value is 0 at the chance level and 1 for equal layers.

    Examples:

        probekit similarity pretrained.dev.h5 tuned.dev.h5 --out similarity.parquet

        probekit similarity pretrained.dev.h5 --measures cka,mutual-knn

        probekit similarity 'RUN/step-*.dev.h5' --out steps.parquet

        probekit similarity a.h5 b.h5 c.h5 d.h5 --against all --out models.parquet

        probekit plot similarity similarity.parquet

    Parameters
    ----------
    caches
        One or more caches of the same split of one task.
    against
        Compare each cache with the first, or all pairs of caches.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.similarity(
            *caches, against=against, vectors=vectors, options=options, out=out, progress=progress
        )
    with tables_as(format_):
        pairs = [part for _, part in result.rows.groupby([*MODELS, "metric"], sort=False, dropna=False)]
        if len(pairs) > FEW * len(options.measures):
            for _, of_measure in result.rows.groupby("metric", sort=False):
                _same_layers(of_measure)
        for part in pairs if len(pairs) <= FEW * len(options.measures) else ():
            _pairs(part, options, len(result.rows) // len(options.measures))
        saved(result)


def _same_layers(rows: pd.DataFrame) -> None:
    """A line for each pair of models, a column for each layer that both have; a star where it may be chance."""
    from probekit.metrics import metric
    from probekit.rows import called, layer_labels

    names = layer_labels(rows)
    same = rows[(names == layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"]))).to_numpy()]
    layers = list(dict.fromkeys(layer_labels(same)))
    head, lines = rows.iloc[0], []
    for _, part in same.groupby(MODELS, sort=False, dropna=False):
        one = part.iloc[0]
        models = [shown_label(called({c: one[c + end] for c in NAMED})) for end in ("", "_b")]
        values = dict(zip(layer_labels(part), zip(part["value"], part["p_adjusted"], strict=True), strict=True))
        cells = [values.get(name, (float("nan"), float("nan"))) for name in layers]
        lines.append([*models, *(f"{v:z.3f}{'*' * (p > LEVEL)}" if isfinite(v) else "" for v, p in cells)])
    columns = [Column("model", "left", key=True, label=True), Column("and", "left", key=True), *map(Column, layers)]
    title = metric(str(head["metric"])).title
    show_table(Grid(columns, lines, f"{head['task']} {head['split']}, {title} of the same layers, n = {head['n']:,}"))
    if any(cell.endswith("*") for line in lines for cell in line[2:]):
        say(f"* not shown to be more alike than chance (p adjusted over {_layer_pairs(len(rows))} > {LEVEL:g})")


def _pairs(rows: pd.DataFrame, options: SimilarityOptions, pairs: int) -> None:
    """A line for each layer of the first model: its own layer in the second, and the most similar one."""
    from probekit.metrics import metric
    from probekit.rows import called, layer_labels

    head, measure = rows.iloc[0], metric(str(rows["metric"].iloc[0]))
    other = {column.removesuffix("_b"): head[column] for column in rows.columns if column.endswith("_b")}
    alone = called(other) == called(head)
    rows = rows.assign(a=layer_labels(rows), b=layer_labels(rows.assign(layer=rows["layer_b"], site=rows["site_b"])))
    interval = _interval(options.level)
    side = ["value", interval, "by chance", "calibrated", "p adjusted"]
    names = ["layer", *([] if alone else ["same layer", *side[1:]]), "most similar", *side]
    columns = [Column(name, key=not i) for i, name in enumerate(names)]
    lines = []
    for layer, part in rows.groupby("a", sort=False):
        same, others = part[part["b"] == layer], part[part["b"] != layer] if alone else part
        sign = 1 if measure.alike else -1
        best = others.loc[[(sign * others["value"]).idxmax()]] if others["value"].notna().any() else others.iloc[:0]
        cells = [str(layer)] if alone else [str(layer), *_cells(same)]
        lines.append([*cells, str(best["b"].iloc[0]) if len(best) else "", *_cells(best)])
    missing = {name for name, column in zip(side[1:], SIDE, strict=True) if rows[column].isna().all()}
    shown_columns = [i for i, name in enumerate(names) if name not in missing]
    grid = [[line[i] for i in shown_columns] for line in lines]
    a, b = shown_label(called(head)), shown_label(called(other))
    both = f"layers of {a} with the others" if alone else f"layers of {a} with those of {b}"
    title = f"{head['task']} {head['split']}, {measure.title}: {both}, n = {head['n']:,}"
    show_table(Grid([columns[i] for i in shown_columns], grid, title))
    if rows["p_adjusted"].notna().any():
        more = (
            " (in complete cycles of shifts, which keep p exact)"
            if head["draws"] > (options.permutations or 1000)
            else ""
        )
        say(f"p adjusted: corrected over {_layer_pairs(pairs)}; {head['draws']:,} permutations{more}.")


def _layer_pairs(count: int) -> str:
    return "the one pair of layers" if count == 1 else f"the {count:,} pairs of layers"


def _cells(row: pd.DataFrame) -> list[str]:
    """Value, interval, chance, calibrated value and corrected p of one pair; empty if there is none."""
    if row.empty or not isfinite(row["value"].iloc[0]):
        return [""] * 5
    one = row.iloc[0]
    interval = f"{one['ci_low']:z.3f} – {one['ci_high']:z.3f}" if isfinite(one["ci_low"]) else ""
    chance = [f"{one[c]:z.3f}" if isfinite(one[c]) else "" for c in ("null_mean", "calibrated")]
    p = f"{one['p_adjusted']:.4f}" if isfinite(one["p_adjusted"]) else ""
    return [f"{one['value']:z.3f}", interval, *chance, p]


def movement(
    *caches: str,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[MovementOptions, Parameter(name="*")] = MovementOptions(),
    examples: Path | None = None,
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Measure how far the vectors of each layer move from a reference, and which examples move most.

    The first cache is the reference, such as the pretrained model; each other one is compared with it, example by
    example. A relative distance of 0.5 is half the length of the reference's vector. "After rotation" leaves out what
    one shift and one rotation of all examples explain, which a linear probe that is fitted anew does not notice. The
    table also gives the distance to the vectors of other examples, the distance of an unrelated vector.

    Examples:

        probekit movement pretrained.dev.h5 tuned.dev.h5 --out movement.parquet

        probekit movement 'RUN/step-*.dev.h5' --measures relative-distance --out steps.parquet

        probekit movement pretrained.dev.h5 tuned.dev.h5 --examples distances.parquet

        probekit plot movement movement.parquet

    Parameters
    ----------
    caches
        The reference, then one or more caches of the same split with vectors of the same width.
    examples
        Also write the distances of all examples (.parquet).
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.movement(
            *caches, vectors=vectors, options=options, examples=examples, out=out, progress=progress
        )
    if examples is not None:
        say(examples)
    rows = result.rows
    with tables_as(format_):
        whole = rows[(rows["label"] == "") & (rows["example"] == "")]
        for _, part in whole.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
            other = {f"{SHORT[m]}, other examples": part[part["metric"] == m]["others"] for m in options.measures[:1]}
            reference = f" from {shown_label(part['against'].iloc[0])}"
            _by_layer(part, options.measures, options.level, reference, other)
        _moved_most(rows)
        saved(result)


def geometry(
    *caches: str,
    vectors: Annotated[VectorOptions, Parameter(name="*")] = VectorOptions(),
    options: Annotated[GeometryOptions, Parameter(name="*")] = GeometryOptions(),
    format_: Format = Format.TEXT,
    out: Path | None = None,
) -> None:
    """Measure how many dimensions the vectors of each layer fill, and whether they point in similar directions.

    The participation ratio counts the dimensions among which the variance is spread, and TwoNN the dimension of the
    surface near which the vectors lie, which may be curved and much smaller. The mean cosine of two random examples is
    0 if no direction is preferred, and near 1 if all vectors lie in a narrow cone.

    Examples:

        probekit geometry pretrained.dev.h5 tuned.dev.h5 --out geometry.parquet

        probekit geometry pretrained.dev.h5 --layers 0,6,-1 --remove 3

        probekit plot geometry geometry.parquet

    Parameters
    ----------
    caches
        One or more caches; each is measured separately.
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.geometry(*caches, vectors=vectors, options=options, out=out, progress=progress)
    with tables_as(format_):
        by = ["task", "split", "model", "checkpoint", "step"]
        for _, part in result.rows.groupby(by, sort=False, dropna=False):
            _by_layer(part, tuple(dict.fromkeys(part["metric"])), options.level)
        saved(result)


def _interval(level: float) -> str:
    return f"{100 * level:g} % interval"


def _by_layer(
    rows: pd.DataFrame, metrics: Sequence[str], level: float, more: str = "", other: dict[str, Any] | None = None
) -> None:
    """A line for each layer of one model, with a column and an interval for each metric."""
    from probekit.rows import called, layer_labels

    head, other = rows.iloc[0], other or {}
    columns = [Column("layer", key=True)]
    for name in metrics:
        columns.append(Column(SHORT[name]))
        columns += [Column(_interval(level))] if name != "rank" else []
    columns += [Column(name) for name in other]
    by_metric = {name: rows[rows["metric"] == name] for name in metrics}
    labels = layer_labels(by_metric[metrics[0]]).tolist()
    lines = []
    for i, layer in enumerate(labels):
        cells = [layer]
        for name in metrics:
            row = by_metric[name].iloc[i]
            cells.append(_number(row["value"], name))
            if name != "rank":
                ends = [_number(row[end], name) for end in ("ci_low", "ci_high")]
                cells.append(" – ".join(ends) if all(ends) else "")
        lines.append([*cells, *(_number(column.iloc[i], "") for column in other.values())])
    model = shown_label(called(head))
    show_table(Grid(columns, lines, f"{head['task']} {head['split']}, {model}{more}: n = {rows['n'].max():,}"))


def _shortened(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT - 2]} …"


def _number(value: float, metric: str) -> str:
    if not isfinite(value):
        return ""
    if metric == "rank":
        return f"{value:.0f}"
    return f"{value:.1f}" if metric in ("participation-ratio", "intrinsic-dimension") else f"{value:z.3f}"


def _moved_most(rows: pd.DataFrame) -> None:
    """The examples that moved most in the last layer of each model."""
    from probekit.rows import called, layer_labels, layer_order

    moved = rows[rows["example"] != ""]
    for _, part in moved.groupby(["model", "checkpoint", "step"], sort=False, dropna=False):
        last = part[layer_order(part) == layer_order(part).max()]
        title = f"moved most in layer {layer_labels(last).iloc[0]}, {shown_label(called(last.iloc[0]))}"
        columns = [Column("example", align="left", key=True), Column(SHORT[str(last["metric"].iloc[0])])]
        columns += [Column("label", align="left"), Column("text", align="left", wrap=True)]
        lines = [
            [row["example"], f"{row['value']:.3f}", row["label"], _shortened(shown(str(row["text"])))]
            for row in last.to_dict("records")
        ]
        show_table(Grid(columns, lines, title))
