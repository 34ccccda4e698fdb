"""An analysis as one value: what other rooms need to know of it, said once.

The function that measures, its command, its recipe, its section of a study, its sentences, its table, its figure and
its section of a report follow from the value. The table of entry points ``probekit.analyses`` lists all of them, ours
and those of installed packages: a name, and the module with ``ANALYSIS`` and the public function of this name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from probekit.plugins import added, load, named

__all__ = ["Analysis", "Corrected", "Figure", "Reads", "analyses", "figures", "load", "modules"]

GROUP = "probekit.analyses"


class Reads(StrEnum):
    """What the positional arguments of the function are."""

    CACHE = "cache"
    CACHES = "caches"
    PAIRS = "pairs"  # train, dev, train, dev …
    REFERENCE = "reference"  # the cache of a reference, then others
    MODELS = "models"  # the same; with against="all" each with all others
    RUNS = "runs"  # of trainings
    OTHER = ""


class Corrected(StrEnum):
    """Over what the p-values behind the sentences on one task and split are corrected together."""

    CURVES = "curves"  # the layers of all curves, by the sentences themselves
    TASK = "task"  # all rows of the task, by the analysis
    CURVE = "curve"  # each curve, or each reference that it is compared with, by the analysis
    NOT = ""  # it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A kind of figure with the name of its analysis: ``probekit plot NAME`` and ``probekit.plot("NAME", …)``.

    Attributes
    ----------
    head : str
        The first sentence of its suggested caption.
    draw : str
        "module:function": rows and options to a figure of panels; its docstring is the help of the command.
    caption : str
        "module:function": rows, options and look to the other sentences.
    options : tuple of str
        The options that it takes beside those of all kinds.
    metric : str
        The help of ``--metric``.
    columns : int
        The largest number of panels side by side, by default.
    """

    head: str
    draw: str
    caption: str
    options: tuple[str, ...] = ("metric", "columns")
    metric: str = ""
    columns: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What one analysis is to the rest of the house.

    Attributes
    ----------
    name : str
        In rows, in Python (``probekit.NAME``), on the command line and in study files.
    help : str
        One line for the list of commands.
    title : str
        Of its section in a report.
    reads : Reads
        Its positional arguments; all kinds of caches but pairs can stand in a study.
    corrected : Corrected
        Over what its p-values are corrected.
    judge : str
        "module:function": rows of one task and split, and predictions, to sentences; "" for none.
    view : str
        "module:VIEW", rows and options to tables, each with the lines below it; a :class:`probekit.view.View` for
        tables by layer.
    plot : str
        "module:function": rows to one Axes, for ``result.plot()``; "" for none.
    layered : bool
        Whether its rows are curves by layer, which ``probekit plot layers`` draws.
    place : int
        Where it stands in lists, the lowest number first.
    of_vectors : bool
        Whether its numbers are of vectors alone, so that a curve is named by the run, without regime and head.
    figure : Figure or None
        Its own kind of figure.
    """

    name: str
    help: str
    title: str
    reads: Reads = Reads.OTHER
    corrected: Corrected = Corrected.NOT
    judge: str = ""
    view: str = ""
    plot: str = ""
    layered: bool = False
    place: int = 1000
    of_vectors: bool = False
    figure: Figure | None = None


def modules() -> Mapping[str, str]:
    """The module of each analysis, by name. Nothing is imported, and nobody takes a name of ours."""
    return named(GROUP)


@cache
def analyses() -> Mapping[str, Analysis]:
    """All analyses, by name. One of another package that cannot be imported is left out with a warning."""
    return dict(sorted(added(GROUP, "ANALYSIS").items(), key=lambda item: (item[1].place, item[0])))


def figures() -> Mapping[str, Figure]:
    """The figures of analyses, by kind."""
    return {one.name: one.figure for one in analyses().values() if one.figure}
