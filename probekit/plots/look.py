"""The look of any figure: colours and markers, display names, names of metrics and controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from probekit.analysis import analyses
from probekit.display import shown_label
from probekit.errors import UsageError, did_you_mean
from probekit.metrics import metric as metric_called

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
"""Okabe & Ito's palette with Tol's wine in place of its yellow, which white paper swallows."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""One more than colours, so that no pair of both comes back before the 72nd curve."""
MOST = len(COLOURS)
"""The largest number of curves in a panel; more are lines of a heat map."""
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"


def ink_on(colour: Any) -> str:
    """Black or white: letters with a contrast of 4.5 or more on a colour (WCAG 2.2), by its relative luminance."""
    from matplotlib.colors import to_rgb

    light = sum(w * c**2.2 for w, c in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True))
    return "black" if light > 0.18 else "white"


PAGE_HEIGHT = 8.2
"""Height in inches of the panels on a page, which leaves room for the legend and the caption."""
Legend = Literal["below", "right", "none"]
Over = Literal["target", "pretraining"]
"""The examples on the horizontal axis of learning curves."""


@dataclass(frozen=True, slots=True)
class Look:
    """Display names, position of the legend, and coverage of the intervals of a figure.

    Attributes
    ----------
    names : mapping
        Display names, by the name in the rows (of a task, a model, a run …) or by a whole legend entry.
    legend : "below", "right" or "none"
        Position of the legend.
    level : float, optional
        Coverage of the intervals; None if the rows have several.
    page : int
        Which page to draw of a figure that is too high for one; 0 draws all panels, however high.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    legend: Legend = "below"
    level: float | None = 0.95
    page: int = 0
    _met: set[str] = field(default_factory=set)
    _pages: set[int] = field(default_factory=set)

    def shown(self, name: str) -> str:
        """The display name of a name, or of each of several names separated by commas."""
        self._met.add(name)
        if name in self.names:
            return self.names[name]
        parts = dict(zip(name.split(", "), map(_of_fit, shown_label(name).split(", ")), strict=True))
        self._met.update(parts, parts.values())
        return ", ".join(self.names.get(part) or self.names.get(known, known) for part, known in parts.items())

    def task(self, name: str) -> str:
        """The display name of a task: the given one, or the one that its authors use."""
        from probekit.tasks.load import shown_task

        known = shown_task(name)
        self._met.update((name, known))
        return self.names.get(name) or self.names.get(known, known)

    def check(self) -> None:
        """Raise UsageError for a name that does not occur in the figure."""
        for name in self.names:
            if name not in self._met:
                met = sorted(self._met - {""})
                raise UsageError(f"this figure contains no name {name!r}; {did_you_mean(name, met)}")

    @property
    def pages(self) -> int:
        """The number of pages of the figure that was drawn."""
        return max(self._pages, default=1)

    def of_page(self, lines: int, height: float) -> tuple[range, float]:
        """The lines of panels on the page, and their height in inches; pages are evenly full.

        Parameters
        ----------
        lines : int
            The lines of panels of the whole figure.
        height : float
            Natural height of a line in inches; a page may squeeze it by a sixth.
        """
        if not self.page:
            return range(lines), height
        most = max(1, int(PAGE_HEIGHT / (0.83 * height)))
        each = -(-lines // -(-lines // most))
        pages = [range(i, min(i + each, lines)) for i in range(0, lines, each)]
        return self._page(pages), min(height, PAGE_HEIGHT / each)

    def of_heights(self, heights: Sequence[float]) -> range:
        """The lines of panels on the page, of lines with different heights in inches."""
        pages = [range(1)]
        for i in range(1, len(heights)):
            last = pages[-1]
            if self.page and sum(heights[last.start : i + 1]) > PAGE_HEIGHT + 0.4:
                pages.append(range(i, i + 1))
            else:
                pages[-1] = range(last.start, i + 1)
        return self._page(pages)

    def _page(self, pages: Sequence[range]) -> range:
        self._pages.add(len(pages))
        return pages[max(self.page, 1) - 1]

    @property
    def interval(self) -> str:
        """The name of an interval: "95 % interval"."""
        return "interval" if self.level is None else f"{100 * self.level:g} % interval"

    @property
    def middle(self) -> str:
        """The extent of a noise band: "middle 95 %"."""
        return "middle" if self.level is None else f"middle {100 * self.level:g} %"


CONTROLS = {
    "shuffled": "shuffled labels",
    "permuted": "permuted labels",
    "control-task": "control task",
    "random": "random weights",
    "bag-of-pieces": "bag of word pieces",
    "tf-idf-of-pieces": "tf-idf of word pieces",
    "uniform": "uniform code",
    "prior": "prior code (class frequencies)",
}


FITS = {"fine-tune": "fine-tuning", "feature-extraction": "feature extraction"}
METHODS = {
    "esim": "ESIM", "bcn": "BCN", "crf": "CRF", "mlp": "MLP",
    "edge": "EDGE", "edge-4.3.1": "EDGE 4.3.1", "edge-4.3.1-first-pass": "EDGE 4.3.1 (first pass)",
    "edge-4.2.0": "EDGE 4.2.0", "edge-4.4.1": "EDGE 4.4.1", "knn": "kNN", "knn-raw": "kNN (raw)",
    "kernel-upper": "kernel (upper)", "kernel-lower": "kernel (lower)",
}  # fmt: skip
"""The names of heads and of estimators of information."""


def _of_fit(name: str) -> str:
    """The name of a regime with its head: "feature-extraction esim" is "feature extraction, ESIM"; others stay."""
    regime, _, head = name.partition(" ")
    if regime not in FITS:
        return METHODS.get(name, name)
    return ", ".join(filter(None, (FITS[regime], METHODS.get(head, head))))


LOWER = "\n(lower is better)"


def metric_title(name: str) -> str:
    """The label of a metric's axis, with its unit: "Mutual information (bits)"; differences have two lines."""
    metric = metric_called(name)
    title = metric.title
    if metric.unit and metric.unit not in title.casefold():
        first, newline, second = title.partition("\n")
        unit = metric.unit
        title = f"{title} ({unit})" if metric.derived == "difference" else f"{first} ({unit}){newline}{second}"
    return f"{title}{LOWER}" if metric.better == "lower" else title


def one_line(name: str) -> str:
    """The title of a metric on one line, without the direction."""
    return metric_title(name).removesuffix(LOWER).replace("\n", " ")


def control_title(name: str, analysis: str = "") -> str:
    """The name of a control, or of another reference of a difference: "shuffled" is "shuffled labels".

    analysis : that of the rows, since structural probes have shuffled trees
    """
    if (own := analyses().get(analysis)) and name in own.controls:
        return own.controls[name]
    return CONTROLS.get(name, ", ".join(part.rsplit("/", 1)[-1] for part in name.split(", ")))


def band_title(name: str, analysis: str = "") -> str:
    """The name of a control in a legend, with a description of its labels; ``analysis`` as for the others."""
    title = control_title(name, analysis).replace("-", " ")
    return f"{title} (random tags by word type)" if name == "control-task" else title


def reference_title(rows: pd.DataFrame, look: Look) -> str:
    """What the model of some rows is compared with: "similarity to MiniLM", "distance from step 0"; "" for probes."""
    references = rows["reference"].dropna().unique().tolist() if "reference" in rows else []
    if len(references) != 1:
        return ""
    runs = {", ".join(filter(None, pair)) for pair in zip(rows["model"], rows["checkpoint"], strict=True)}
    same_run = f"{runs.pop()}, " if len(runs) == 1 else ""
    word = "similarity to" if metric_called(str(rows["metric"].iloc[0])).alike else "distance from"
    return f"{word} {look.shown(references[0].removeprefix(same_run))}"
