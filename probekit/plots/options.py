"""The kinds of figure and their options: one declaration for Python and for ``probekit plot``."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

from probekit.constraint import Checked, Count, Ge, Le, Most
from probekit.errors import UsageError
from probekit.plots.look import Legend, Look, Over
from probekit.plugins import load, named
from probekit.recipe import option
from probekit.rows import as_rows
from probekit.rows.selection import MODELS, VARIANTS
from probekit.sites import LayerNames

WIDTHS = {"column": 3.3, "page": 7.1, "text": 6.30}
"""Widths in inches: a column and a page of a journal, and the text of a two-column paper (A4, as the ACL sets it)."""
KINDS = tuple(sorted(named("probekit.figures"), key=lambda kind: (kind != "layers", kind)))
"""The kinds of figure, ours and those of installed packages."""
Matrix = Literal["as-is", "rescaled", "mapped"]
"""What is done to vectors before probes of another model read them."""
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[KINDS]


@dataclass(frozen=True, slots=True)
class PlotOptions(Checked):
    """What a figure shows, and how wide it is."""

    metric: str | None = option(
        None, "Metric to plot, such as log-loss, selectivity(accuracy) or cka; by default the rows' first."
    )
    by: str | None = option(
        None,
        "One panel per label, class or entity type (label), from rows of probekit probe --by-label; for minimal pairs "
        "per field, phenomenon, paradigm, or value of a column that pairs --by was given; by default all pairs.",
        metavar="LEVEL",
    )
    summary: tuple[str, ...] = option(
        (), "Rows that probekit summary wrote, drawn under the curves; may be repeated.", metavar="ROWS"
    )
    shuffled: bool = option(
        False, "Also draw what probes trained on shuffled labels reach; p and markers are about permuted labels."
    )
    layer: str | None = option(
        None,
        "Layer to draw; by default, for each model, that with the highest mean diagonal of AUROC (shift), or where the "
        "first units differ most from random ones (units).",
    )
    layers: LayerNames | None = option(
        None,
        "Layers to draw, separated by commas: 0,4-6,final_norm; by default the first, the best on the evaluated "
        "examples and the last.",
    )
    matrix: Matrix | None = option(
        None, "Draw the layer of the probe by the layer that it reads, after this: as-is, rescaled or mapped."
    )
    level: Annotated[float, Ge(0), Le(1)] = option(
        0.05,
        "Markers are hollow, and cells hatched or without a frame, where the corrected p-value is above this level.",
    )
    top: Count = option(20, "Number of terms shown for each pair.")
    transfer: bool = option(False, "Plot the loss from training on another domain, one point per pair of domains.")
    over: Over = option(
        "target",
        "Horizontal axis: training examples of the task, or of the encoder's pretraining (Bowman et al. 2018).",
    )
    models: tuple[str, ...] = option((), MODELS, metavar="NAME")
    variants: tuple[str, ...] = option((), VARIANTS, metavar="NAME")
    columns: Count | None = option(None, "Largest number of panels side by side; by default 2 to 4.")
    width: str | float | None = option(
        None,
        "Printed width of the figure: a column (3.3 in) or a page (7.1 in) of a journal, the text of an ACL paper (6.3 "
        "in), or inches; by default as wide as its panels, at most a page. Letters stay at 6 to 10 points; panels that "
        "do not fit side by side go below each other, and what is higher than a page goes on to further files.",
        metavar="column|page|text|INCHES",
    )
    names: tuple[str, ...] = option(
        (),
        "Display name for a task, model, run, domain or legend entry; may be repeated. By default published tasks "
        "appear as their authors write them, and models without their owner.",
        metavar="RAW=SHOWN",
    )
    title: str | None = option(None, "Title above all panels.")
    legend: Legend = option("below", "Position of the legend.")
    dpi: Annotated[int, Ge(30), Most(10_000)] = option(300, "Resolution of bitmaps.")

    def together(self) -> None:
        inches(self.width)
        for name in self.names:
            if not all(name.partition("=")):
                raise UsageError(f"names must have the form RAW=SHOWN, such as cola=CoLA, not {name!r}.")
        raw_names = [name.partition("=")[0] for name in self.names]
        if twice := next((name for name in raw_names if raw_names.count(name) > 1), None):
            raise UsageError(f"names has {twice!r} twice; give each name once.")


def inches(width: str | float | None) -> float | None:
    """The width of a figure in inches; UsageError for an unknown width."""
    if width is None:
        return None
    try:
        found = WIDTHS.get(str(width)) or float(width)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 100:
        raise UsageError(f"width must be {', '.join(WIDTHS)} or a number of inches from 1 to 100, not {width!r}.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """A kind of figure: ``probekit plot KIND`` and ``probekit.plot(KIND, …)``.

    Attributes
    ----------
    head : str
        The first sentence of its suggested caption.
    draw : callable
        Rows and options to a figure of panels. It takes ``rows`` and, by their names, some of :class:`PlotOptions`, the
        width in inches, and ``look`` (:class:`probekit.plots.look.Look`). Its docstring is the help of the command.
    caption : callable
        Rows, options and look to the other sentences of the caption.
    metric : str
        The help of ``--metric``, if it is not that of :class:`PlotOptions`.
    of_rows : tuple of str
        Options by which rows are selected before they are drawn.
    reads : callable
        What was given (a DataFrame, a Result, a path, or a list of these) to the rows that it draws, such as counts
        from the predictions beside rows.
    """

    head: str
    draw: Callable[..., Any]
    caption: Callable[[Any, PlotOptions, Look], Iterator[str]]
    metric: str = ""
    of_rows: tuple[str, ...] = ()
    reads: Callable[[Any], Any] = as_rows

    @property
    def options(self) -> tuple[str, ...]:
        """The options that it takes; the last ones are those of all kinds."""
        taken = {*signature(self.draw).parameters, *self.of_rows, "names", "title", "legend", "dpi"}
        return tuple(f.name for f in dataclasses.fields(PlotOptions) if f.name in taken)


def figure_of(kind: str) -> FigureKind:
    """The kind of figure with this name."""
    found = load(place := named("probekit.figures")[kind])
    if not isinstance(found, FigureKind):
        raise UsageError(f"the figure {kind} of {place} is {type(found).__name__}, expected FigureKind.")
    return found
