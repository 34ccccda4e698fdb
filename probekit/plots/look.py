"""The look of any figure: colours and markers, display names, names of metrics and controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from probekit.analysis import analyses
from probekit.display import shown_label
from probekit.errors import UsageError, did_you_mean
from probekit.metrics import metric as metric_called

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette without its yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
"""Not as many as colours, so that no pair of both comes back before the 64th curve."""
GREYS = ("#7F7F7F", "#B0B0B0", "#4D4D4D")
INK, FAINT = "#222222", "#DDDDDD"


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
    """

    names: Mapping[str, str] = field(default_factory=dict)
    legend: Legend = "below"
    level: float | None = 0.95
    _met: set[str] = field(default_factory=set)

    def shown(self, name: str) -> str:
        """The display name of a name, or of each of several names separated by commas."""
        self._met.add(name)
        if name in self.names:
            return self.names[name]
        parts = {part: shown_label(part) for part in name.split(", ")}
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
    "uniform": "uniform code",
    "prior": "prior code (class frequencies)",
}


def metric_title(name: str) -> str:
    """The label of a metric's axis, with its unit: "Mutual information (bits)"; differences have two lines."""
    metric = metric_called(name)
    title = metric.title
    if metric.unit and metric.unit not in title.casefold():
        first, newline, second = title.partition("\n")
        unit = metric.unit
        title = f"{title} ({unit})" if metric.derived == "difference" else f"{first} ({unit}){newline}{second}"
    return f"{title}\n(lower is better)" if metric.better == "lower" else title


def first_line(name: str) -> str:
    """The title of a metric on one line, without the direction and the reference of a difference."""
    return metric_title(name).splitlines()[0]


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
