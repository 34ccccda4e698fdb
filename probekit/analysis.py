"""An analysis as one value: what other rooms need to know of it, said once.

The function that measures, its command, its recipe, its section of a study, its sentences, its table, its figure and
its section of a report follow from the value. The table of entry points ``probekit.analyses`` lists all of them, ours
and those of installed packages: a name, and the module with ``ANALYSIS`` and the public function of this name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from probekit.plugins import added, load, named

__all__ = ["Analysis", "Corrected", "Reads", "analyses", "load", "modules"]

GROUP, FIGURES = "probekit.analyses", "probekit.figures"


class Reads(StrEnum):
    """What the positional arguments of the function are."""

    CACHE = "cache"
    CACHES = "caches"
    PAIRS = "pairs"  # train, dev, train, dev …
    REFERENCE = "reference"  # the cache of a reference, then others
    REFERENCE_PAIRS = "reference pairs"  # train, dev of a reference, then of others
    MODELS = "models"  # the same; with against="all" each with all others
    RUNS = "runs"  # of trainings
    RESULTS = "results"  # rows
    OTHER = ""


class Corrected(StrEnum):
    """Over what the p-values behind the sentences on one task and split are corrected together."""

    CURVES = "curves"  # the layers of all curves, by the sentences themselves
    TASK = "task"  # all rows of the task, by the analysis
    CURVE = "curve"  # each curve, or each reference that it is compared with, by the analysis
    NOT = ""  # it has none


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
        Its positional arguments; all kinds of caches but plain pairs can stand in a study.
    corrected : Corrected
        Over what its p-values are corrected.
    judge : str
        "module:function": rows of one task and split, and predictions, to sentences; "" for none.
    view : str
        "module:VIEW", rows and options to tables, each with the lines below it; a :class:`probekit.view.View` for
        tables by layer.
    figure : str
        The kind of figure that ``result.plot()`` draws, if it is neither that of its own name nor "layers".
    layered : bool
        Whether its rows are curves by layer, which ``probekit plot layers`` draws.
    curves : str
        "module:function", its rows to those that are drawn as curves by layer; "" if they are the same.
    controls : mapping
        What its controls are called in figures, where it is not labels that are shuffled or permuted.
    best : str
        The caption of its best layers in a report; "" for no such table.
    place : int
        Where it stands in lists, the lowest number first.
    of_vectors : bool
        Whether its numbers are of vectors alone, so that a curve is named by the run, without regime and head.
    in_suites : float
        Roughly the seconds that it takes on a task of a suite; 0 if it cannot stand in one.
    board : str
        "module:function", its rows and predictions of a task to lines of a scoreboard; "" for none.
    of_one_label : tuple of str
        If its predictions say whether it was right (1) or wrong (0): of what, and where its control is.
    """

    name: str
    help: str
    title: str
    reads: Reads = Reads.OTHER
    corrected: Corrected = Corrected.NOT
    judge: str = ""
    view: str = ""
    figure: str = ""
    layered: bool = False
    curves: str = ""
    controls: Mapping[str, str] = field(default_factory=dict)
    best: str = ""
    place: int = 1000
    of_vectors: bool = False
    in_suites: float = 0.0
    board: str = ""
    of_one_label: tuple[str, str] | None = None

    @property
    def kind(self) -> str:
        """The kind of figure of its rows; "" for none."""
        return self.figure or (self.name if self.name in named(FIGURES) else "layers" if self.layered else "")


def modules() -> Mapping[str, str]:
    """The module of each analysis, by name. Nothing is imported, and nobody takes a name of ours."""
    return named(GROUP)


@cache
def analyses() -> Mapping[str, Analysis]:
    """All analyses, by name. One of another package that cannot be imported is left out with a warning."""
    return dict(sorted(added(GROUP, Analysis, "ANALYSIS").items(), key=lambda item: (item[1].place, item[0])))
