"""How a figure looks, whatever it shows: what names are shown as, where the legend stands, what intervals cover."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from probekit.display import shown_label
from probekit.errors import UsageError, did_you_mean
from probekit.tasks.load import shown_task

__all__ = ["Legend", "Look"]

Legend = Literal["below", "right", "none"]


@dataclass(frozen=True, slots=True)
class Look:
    """Names, place of the legend, and coverage of intervals of a figure.

    Attributes
    ----------
    names : mapping
        By name as rows hold it (of a task, a model, a run …), what is shown. It may be a whole entry of a legend, too.
    legend : "below", "right" or "none"
        Where the legend stands.
    level : float, optional
        Coverage of the intervals; None where rows of several are drawn.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    legend: Legend = "below"
    level: float | None = 0.95
    _met: set[str] = field(default_factory=set)

    def shown(self, name: str) -> str:
        """What is shown for a name, or for each of the names that commas part."""
        self._met.add(name)
        if name in self.names:
            return self.names[name]
        parts = {part: shown_label(part) for part in name.split(", ")}
        self._met.update(parts, parts.values())
        return ", ".join(self.names.get(part) or self.names.get(known, known) for part, known in parts.items())

    def task(self, name: str) -> str:
        """What is shown for a task: the name that it was given here, or that its authors gave it."""
        known = shown_task(name)
        self._met.update((name, known))
        return self.names.get(name) or self.names.get(known, known)

    def check(self) -> None:
        """Raise UsageError for a name that nothing in the figure has."""
        for name in self.names:
            if name not in self._met:
                met = sorted(self._met - {""})
                raise UsageError(f"nothing in this figure is called {name!r}; {did_you_mean(name, met)}")

    @property
    def interval(self) -> str:
        """What an interval is called: "95 % interval"."""
        return "interval" if self.level is None else f"{100 * self.level:g} % interval"

    @property
    def middle(self) -> str:
        """What a band of noise holds: "middle 95 %"."""
        return "middle" if self.level is None else f"middle {100 * self.level:g} %"
