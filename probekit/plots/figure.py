"""Figures by kind: the function behind ``probekit plot``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from probekit import analysis
from probekit.display import shown
from probekit.errors import ProbekitError, UsageError, did_you_mean, naming
from probekit.plots.adaptation import adaptation_panels
from probekit.plots.caption import details, write_caption
from probekit.plots.curves import printable
from probekit.plots.differences import difference_panels
from probekit.plots.domains import domain_panels
from probekit.plots.expected import expected_panels
from probekit.plots.gains import gain_panels
from probekit.plots.layers import layer_panels
from probekit.plots.learning import learning_panels
from probekit.plots.look import Look
from probekit.plots.mix import mix_panels
from probekit.plots.options import COMMON, KINDS, Kind, PlotOptions, inches
from probekit.plots.pairs import pairs_by
from probekit.plots.palette import INK
from probekit.plots.relation import relation_panels, relation_rows
from probekit.plots.save import check_files, save
from probekit.plots.scoreboard import board_panels
from probekit.plots.scores import score_panels
from probekit.plots.shift import shift_panels
from probekit.plots.similarity import similarity_trees
from probekit.plots.text import wrapped
from probekit.plots.trajectory import trajectory_panels
from probekit.plots.transfer import transfer_panels, transfer_rows
from probekit.public import public
from probekit.rows import Result, as_rows, read_card
from probekit.rows.selection import select

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["coverage", "plot"]

HEADS = {
    "layers": "Results by layer.",
    "differences": "Paired differences by layer on the same examples.",
    "trajectory": "Results by layer and training step.",
    "mix": "Weight of each layer in the final scalar mix.",
    "learning": "Results against the number of training examples.",
    "expected": "Expected dev metric of the best of n trials of a search.",
    "score-correlations": "Rank correlations of scores of encoders with their results on target tasks.",
    "domains": "Distances between domains.",
    "relation": "Metrics against the distance between domains, with their correlations.",
    "transfer": "Transfer between domains; frames mark evaluation on the training domain.",
    "dendrogram": "Models by the similarity of their layers (average linkage).",
    "gains": "Gain of each layer's probe against the layer's distance from the reference model.",
    "adaptation": "What each way to adapt does to a model and its layers.",
    "scoreboard": "Tasks by layer, each between its control (0) and its ceiling (1).",
    "shift": "Probes of one data set evaluated on others.",
    **{name: one.head for name, one in analysis.figures().items()},
}
"""The first sentence of the suggested caption, by kind."""
DOMAINS = ("domains", "relation", "transfer")
NAMED = ("task", "model", "domain", "domain_a", "domain_b", "mostly", "corpus", "trained_on")
"""The kinds of figure that show names in cells, on axes and at points, and the columns that contain them."""


@public(options=PlotOptions)
def plot(
    kind: Kind, /, *rows: Any, out: tuple[str | Path, ...] | str | Path | None = None, options: PlotOptions
) -> Figure:
    """Draw rows as a figure of panels.

    Parameters
    ----------
    kind : str
        "layers", "differences", "trajectory", "mix", "learning", "expected", "score-correlations", "domains",
        "relation", "transfer", "dendrogram", "gains", "adaptation", "scoreboard", "shift", or an analysis with a figure
        of its own, such as similarity.
    *rows : DataFrame, Result or path
        Rows of analyses that the kind does not draw are ignored.
    out : path or tuple of path, optional
        Files to write (.pdf, .svg, .eps or .png). A suggested caption is written next to them as
        ``FIGURE.caption.txt``; a caption that you have edited stays unchanged.
    options : PlotOptions
        ``metric``, ``columns``, ``width`` …; they may be given one by one.

    Returns
    -------
    Figure
        Not shown; saved if ``out`` is given.

    Raises
    ------
    UsageError
        For an unknown kind, for an option that it does not take, and for rows that contain nothing to draw.

    Examples
    --------
    >>> probekit.plot("layers", "cola.parquet", "sst2.parquet", out="layers.pdf", width="text")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise UsageError(f"unknown figure {kind!r}; {did_you_mean(kind, KINDS)}")
    if not rows:
        raise UsageError("plot needs rows to draw; none were given.")
    for f in dataclasses.fields(options):
        if f.name not in (*KINDS[kind], *COMMON) and getattr(options, f.name) != f.default:
            taken = ", ".join((*KINDS[kind], *COMMON))
            raise UsageError(f"figures of kind {kind} have no option {f.name}; their options are {taken}.")
    files = [out] if isinstance(out, str | Path) else list(out or ())
    check_files(files)
    table = select(as_rows(rows[0] if len(rows) == 1 else list(rows)), options.models, options.variants)
    table = printable(table)
    if kind == "layers":
        table = pairs_by(table, options.by)
    names = dict(name.split("=", 1) for name in options.names)
    look = Look(names, options.legend, coverage(rows))
    if kind in DOMAINS:
        table = _renamed(table, look)
    with naming(rows[0] if len(rows) == 1 else None):
        figure = FIGURES[kind](table, options, look)
    look.check()
    if options.title:
        lines = [wrapped(line, 0.96 * figure.get_figwidth(), 11, "bold") for line in shown(options.title).splitlines()]
        title = "\n".join(lines)
        figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
        figure.set_figheight(figure.get_figheight() + 0.28 + 0.19 * title.count("\n"))
    save(figure, files, dpi=options.dpi)
    if files:
        caption = f"{HEADS[kind]} {details(kind, table, options, look)}"
        for path in {Path(path).with_suffix(""): Path(path) for path in files}.values():
            write_caption(path, caption)
    return figure


def coverage(given: Sequence[Any]) -> float | None:
    """The coverage of the intervals according to the evidence cards: the default without cards, None if they differ."""
    recipes: list[Mapping[str, Any]] = []
    for rows in given:
        if isinstance(rows, Result) and rows.recipe is not None:
            recipes.append({**rows.recipe.defaults, **rows.recipe.arguments})
        elif isinstance(rows, str | Path):
            with suppress(ProbekitError, OSError, ValueError, AttributeError):
                recipe = read_card(Path(rows)).get("recipe") or {}
                recipes.append({**recipe.get("defaults", {}), **recipe.get("arguments", {})})
    levels = {float(recipe["level"]) for recipe in recipes if isinstance(recipe.get("level"), int | float)}
    return levels.pop() if len(levels) == 1 else None if levels else Look().level


def _renamed(rows: pd.DataFrame, look: Look) -> pd.DataFrame:
    """Rows of domains with the display names for axes, points and cells."""
    named = [c for c in NAMED if c in rows]
    return rows.assign(**{c: rows[c].map(look.task if c == "task" else look.shown, na_action="ignore") for c in named})


def _layers(rows: Any, o: PlotOptions, look: Look) -> Figure:
    below = as_rows(list(o.summary)) if o.summary else None
    return layer_panels(rows, metric=o.metric, summary=below, shuffled=o.shuffled, **_panels(o, 4, look))


def _relation(rows: Any, o: PlotOptions, look: Look) -> Figure:
    return relation_panels(*relation_rows(rows, transfer=o.transfer), **_panels(o, 3, look))


def _of_analysis(kind: analysis.Figure, rows: Any, o: PlotOptions, look: Look) -> Figure:
    given = {name: getattr(o, name) for name in kind.options if name != "columns"}
    return cast("Figure", analysis.load(kind.draw)(rows, **given, **_panels(o, kind.columns, look)))


def _panels(o: PlotOptions, columns: int, look: Look) -> dict[str, Any]:
    return {"columns": o.columns or columns, "width": inches(o.width), "look": look}


FIGURES: dict[str, Callable[[Any, PlotOptions, Look], Figure]] = {
    "layers": _layers,
    "differences": lambda rows, o, look: difference_panels(rows, level=o.level, **_panels(o, 4, look)),
    "trajectory": lambda rows, o, look: trajectory_panels(rows, metric=o.metric, **_panels(o, 3, look)),
    "mix": lambda rows, o, look: mix_panels(rows, **_panels(o, 4, look)),
    "learning": lambda rows, o, look: learning_panels(rows, over=o.over, **_panels(o, 4, look)),
    "expected": lambda rows, o, look: expected_panels(rows, **_panels(o, 4, look)),
    "score-correlations": lambda rows, o, look: score_panels(rows, level=o.level, width=inches(o.width), look=look),
    "domains": lambda rows, o, look: domain_panels(rows, metric=o.metric, top=o.top, width=inches(o.width), look=look),
    "relation": _relation,
    "transfer": lambda rows, o, look: transfer_panels(transfer_rows(rows), **_panels(o, 3, look)),
    "dendrogram": lambda rows, o, look: similarity_trees(rows, metric=o.metric, width=inches(o.width), look=look),
    "gains": lambda rows, o, look: gain_panels(rows, metric=o.metric, **_panels(o, 2, look)),
    "adaptation": lambda rows, o, look: adaptation_panels(rows, **_panels(o, 4, look)),
    "scoreboard": lambda rows, o, look: board_panels(rows, **_panels(o, 3, look)),
    "shift": lambda rows, o, look: shift_panels(
        rows, metric=o.metric, layer=o.layer, level=o.level, **_panels(o, 2, look)
    ),
    **{name: partial(_of_analysis, one) for name, one in analysis.figures().items()},
}
