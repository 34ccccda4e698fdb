"""Figures by kind: the function behind ``probekit plot``."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from probekit.constraint import WRITTEN
from probekit.display import shown
from probekit.errors import ProbekitError, UsageError, did_you_mean, naming
from probekit.files import MARK, FileKind, is_sealed, write
from probekit.plots.curves import plot_rows, printable
from probekit.plots.files import FORMATS, check_files, save
from probekit.plots.legends import wrapped
from probekit.plots.look import INK, Look
from probekit.plots.options import KINDS, Kind, PlotOptions, figure_of, inches
from probekit.public import public
from probekit.rows import Result, read_card
from probekit.rows.selection import select

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)
LEFT_OUT = "Left out"
"""How a sentence of a caption begins that is also logged, because it says what a figure lacks."""
CAPTION_FILE = FileKind("a caption as probekit wrote it", is_sealed)


@public(options=PlotOptions)
def plot(
    kind: Kind,
    /,
    *rows: Any,
    out: Annotated[tuple[str | Path, ...] | str | Path | None, WRITTEN] = None,
    options: PlotOptions,
) -> Figure:
    """Draw rows as a figure of panels.

    Parameters
    ----------
    kind : str
        One of ours (layers, confusion, differences, trajectory, mix, learning, expected, score-correlations, domains,
        relation, transfer, dendrogram, gains, adaptation, scoreboard, shift, similarity, movement, geometry), or one of
        another package.
    *rows : DataFrame, Result or path
        Rows of analyses that the kind does not draw are ignored. "confusion" draws the predictions beside rows.
    out : path or tuple of path, optional
        The figure to write (.pdf, .svg, .eps or .png); may be repeated. By default a .pdf and a .png in figures/. A
        suggested caption is written next to it, as FIGURE.caption.txt.
    options : PlotOptions
        ``metric``, ``columns``, ``width`` …; they may be given one by one.

    Returns
    -------
    Figure
        Not shown; saved if ``out`` is given. What is higher than a page is then saved as several files (``layers.pdf``,
        ``layers-2.pdf`` …), and the first page is returned.

    Raises
    ------
    UsageError
        For an unknown kind, for an option that it does not take, and for rows that contain nothing to draw.

    Examples
    --------
    >>> probekit.plot("layers", "cola.parquet", "sst2.parquet", out="layers.pdf", width="page")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise UsageError(f"unknown figure {kind!r}; {did_you_mean(kind, KINDS)}")
    if not rows:
        raise UsageError("plot needs rows to draw; none were given.")
    chosen = figure_of(kind)
    for f in dataclasses.fields(options):
        if f.name not in chosen.options and getattr(options, f.name) != f.default:
            taken = ", ".join(chosen.options)
            raise UsageError(f"figures of kind {kind} have no option {f.name}; their options are {taken}.")
    files = [out] if isinstance(out, str | Path) else list(out or ())
    check_files(files)
    table = select(chosen.reads(rows[0] if len(rows) == 1 else list(rows)), options.models, options.variants)
    table, look = (
        printable(table),
        Look(dict(name.split("=", 1) for name in options.names), options.legend, coverage(rows)),
    )
    given = {name: getattr(options, name) for name in chosen.options if name in signature(chosen.draw).parameters}
    given |= {"width": inches(options.width), "look": replace(look, page=1 if files else 0)}
    if options.columns is None:
        given.pop("columns", None)
    draw = partial(chosen.draw, table, **given)
    with naming(rows[0] if len(rows) == 1 else None):
        figures = [cast("Figure", draw())]
        figures += [cast("Figure", draw(look=replace(look, page=page))) for page in range(2, look.pages + 1)]
    look.check()
    for figure in figures if options.title else ():
        _add_title(figure, str(options.title))
    words = list(figure_of(kind).caption(plot_rows(table), options, look))
    for sentence in words:
        if sentence.startswith(LEFT_OUT):
            log.warning("%s", sentence)
    if files:
        _write(figures, " ".join([chosen.head, *words]), files, options.dpi)
    return figures[0]


def _write(figures: Sequence[Figure], words: str, files: Sequence[str | Path], dpi: int) -> None:
    """Write all pages, once no path is another's file, with their captions; remove further pages of a longer figure."""
    pages = [[paged(path, page) for path in files] for page in range(1, len(figures) + 1)]
    check_files(path for page in pages for path in page)
    for number, (figure, page) in enumerate(zip(figures, pages, strict=True), 1):
        save(figure, page, dpi=dpi)
        _write_captions(words, page, number, len(pages))
    if len(pages) > 1:
        log.warning("%d pages: %s", len(pages), ", ".join(str(path) for page in pages for path in page))
    for path in map(Path, files):
        _remove_from(path, len(pages) + 1)


def _remove_from(path: Path, page: int) -> None:
    """Remove further pages that an earlier call wrote: what is unchanged, and has a caption that says so."""
    while (old := paged(path, page)).is_file() and is_sealed(old):
        about = caption_path(old)
        if not (about.is_file() and is_sealed(about) and f"Page {page} of " in about.read_text(encoding="utf-8")):
            return
        old.unlink()
        if not any(old.with_suffix(suffix).exists() for suffix in FORMATS):
            about.unlink()
        page += 1


def _write_captions(words: str, files: Sequence[str | Path], page: int, pages: int) -> None:
    """Write the caption next to each figure of a page; of several pages it says which."""
    for path in {Path(path).with_suffix(""): Path(path) for path in files}.values():
        _write_caption(path, f"{words} Page {page} of {pages}." if pages > 1 else words)


def paged(path: str | Path, page: int) -> Path:
    """The file of a page of a figure: ``layers.pdf``, ``layers-2.pdf`` …"""
    path = Path(path)
    return path if page == 1 else path.with_stem(f"{path.stem}-{page}")


def _add_title(figure: Figure, given: str) -> None:
    lines = [wrapped(line, 0.96 * figure.get_figwidth(), 11, "bold") for line in shown(given).splitlines()]
    title = "\n".join(lines)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold", color=INK, parse_math=False)
    figure.set_figheight(figure.get_figheight() + 0.28 + 0.19 * title.count("\n"))


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


def details(kind: str, rows: pd.DataFrame, options: PlotOptions, look: Look) -> str:
    """The caption after its first sentence: data and n, estimator, meaning of intervals, bands and markers.

    Parameters
    ----------
    kind : str
        Kind of the figure.
    rows : DataFrame
        Rows of the figure.
    options : PlotOptions
        Options of the figure.
    look : Look
        Names, and coverage of the intervals.
    """
    return " ".join(figure_of(kind).caption(plot_rows(rows), options, look))


def caption_path(figure: Path) -> Path:
    """The file of a figure's caption: ``FIGURE.caption.txt``."""
    return figure.with_suffix(".caption.txt")


def _write_caption(figure: Path, words: str) -> None:
    """Write a caption next to a figure; an existing caption that somebody has edited stays."""
    path = caption_path(figure)
    if not path.exists() or (path.is_file() and not path.is_symlink() and is_sealed(path)):
        write(path, f"{words}\n\n# {MARK}\n", CAPTION_FILE)
