"""The look of any figure: display names, position of the legend, coverage of intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from probekit.display import shown_label
from probekit.errors import UsageError, did_you_mean
from probekit.tasks.load import shown_task

__all__ = ["Legend", "Look", "Over"]

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
