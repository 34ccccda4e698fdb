"""Figures by kind: what stands behind ``probekit plot``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import ProbekitError, UsageError, did_you_mean
from probekit.plots.caption import details, write_caption
from probekit.plots.differences import difference_panels
from probekit.plots.domains import domain_panels
from probekit.plots.layers import layer_panels
from probekit.plots.look import Look
from probekit.plots.mix import mix_panels
from probekit.plots.options import COMMON, KINDS, Kind, PlotOptions, inches
from probekit.plots.palette import INK
from probekit.plots.relation import relation_panels, relation_rows
from probekit.plots.save import check_files, save
from probekit.plots.trajectory import trajectory_panels
from probekit.plots.transfer import transfer_panels, transfer_rows
from probekit.public import public
from probekit.rows import Result, as_rows, read_card

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["coverage", "plot"]

HEADS = {
    "layers": "What each layer knows.",
    "differences": "Paired differences by layer on the same examples.",
    "trajectory": "What each layer knows at each step of training.",
    "mix": "Weight of each layer in the scalar mix that training ended with.",
    "domains": "How far domains are from each other.",
    "relation": "Metrics against the distance of domains, with their correlations.",
    "transfer": "What training on one domain is worth on each other; framed where it is the same.",
}
"""How the suggested caption of each kind begins."""
DOMAINS = ("domains", "relation", "transfer")
NAMED = ("task", "model", "domain", "domain_a", "domain_b", "mostly", "corpus", "trained_on")
"""The kinds of figure whose names stand in cells, at axes and at points, and the columns that hold them."""


@public(options=PlotOptions)
def plot(
    kind: Kind, /, *rows: Any, out: tuple[str | Path, ...] | str | Path | None = None, options: PlotOptions
) -> Figure:
    """Draw rows as a figure of panels.

    Parameters
    ----------
    kind : str
        "layers", "differences", "trajectory", "mix", "domains", "relation" or "transfer".
    *rows : DataFrame, Result or path
        Those of other analyses than the kind draws are left out.
    out : path or tuple of path, optional
        Files to write, by suffix .pdf, .svg, .eps or .png. Beside them stands a suggested caption,
        ``FIGURE.caption.txt``, made from the rows; one that you have changed stays as it is.
    options : PlotOptions
        ``metric``, ``columns``, ``width`` …; they may be given one by one.

    Returns
    -------
    Figure
        Not shown; saved where ``out`` says.

    Raises
    ------
    UsageError
        For an unknown kind, for an option that it does not take, and where the rows hold nothing of it.

    Examples
    --------
    >>> probekit.plot("layers", "cola.parquet", "sst2.parquet", out="layers.pdf", width="text")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise UsageError(f"there is no figure {kind!r}; {did_you_mean(kind, KINDS)}")
    if not rows:
        raise UsageError("no rows were given to draw.")
    for f in dataclasses.fields(options):
        if f.name not in (*KINDS[kind], *COMMON) and getattr(options, f.name) != f.default:
            raise UsageError(f"a figure of {kind} takes no {f.name}; it takes {', '.join((*KINDS[kind], *COMMON))}.")
    files = [out] if isinstance(out, str | Path) else list(out or ())
    check_files(files)
    told = as_rows(rows[0] if len(rows) == 1 else list(rows))
    names = dict(name.split("=", 1) for name in options.names)
    look = Look(names, options.legend, coverage(rows))
    if kind in DOMAINS:
        told = _renamed(told, look)
    figure = FIGURES[kind](told, options, look)
    look.check()
    if options.title:
        figure.suptitle(options.title, x=0.02, ha="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
        figure.set_figheight(figure.get_figheight() + 0.28)
    save(figure, files, dpi=options.dpi)
    if files:
        words = f"{HEADS[kind]} {details(kind, told, options, look)}"
        for path in {Path(path).with_suffix(""): Path(path) for path in files}.values():
            write_caption(path, words)
    return figure


def coverage(given: Sequence[Any]) -> float | None:
    """What intervals of rows cover, as their evidence cards say: of those without any, as of the defaults; None where
    they differ."""
    recipes: list[Mapping[str, Any]] = []
    for one in given:
        if isinstance(one, Result) and one.recipe is not None:
            recipes.append({**one.recipe.defaults, **one.recipe.arguments})
        elif isinstance(one, str | Path):
            with suppress(ProbekitError, OSError, ValueError, AttributeError):
                own = read_card(Path(one)).get("recipe") or {}
                recipes.append({**own.get("defaults", {}), **own.get("arguments", {})})
    levels = {float(recipe["level"]) for recipe in recipes if isinstance(recipe.get("level"), int | float)}
    return levels.pop() if len(levels) == 1 else None if levels else Look().level


def _renamed(rows: pd.DataFrame, look: Look) -> pd.DataFrame:
    """Rows of domains with the names that are shown, which stand at axes, points and cells."""
    named = [c for c in NAMED if c in rows]
    return rows.assign(**{c: rows[c].map(look.task if c == "task" else look.shown, na_action="ignore") for c in named})


def _layers(rows: Any, o: PlotOptions, look: Look) -> Figure:
    below = as_rows(list(o.summary)) if o.summary else None
    return layer_panels(rows, metric=o.metric, summary=below, **_panels(o, 4, look))


def _relation(rows: Any, o: PlotOptions, look: Look) -> Figure:
    return relation_panels(*relation_rows(rows, transfer=o.transfer), **_panels(o, 3, look))


def _panels(o: PlotOptions, columns: int, look: Look) -> dict[str, Any]:
    return {"columns": o.columns or columns, "width": inches(o.width), "look": look}


FIGURES: dict[str, Callable[[Any, PlotOptions, Look], Figure]] = {
    "layers": _layers,
    "differences": lambda rows, o, look: difference_panels(rows, level=o.level, **_panels(o, 4, look)),
    "trajectory": lambda rows, o, look: trajectory_panels(rows, metric=o.metric, **_panels(o, 3, look)),
    "mix": lambda rows, o, look: mix_panels(rows, **_panels(o, 4, look)),
    "domains": lambda rows, o, look: domain_panels(rows, metric=o.metric, top=o.top, width=inches(o.width), look=look),
    "relation": _relation,
    "transfer": lambda rows, o, look: transfer_panels(transfer_rows(rows), **_panels(o, 3, look)),
}
