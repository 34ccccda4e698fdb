"""Options of the signals that are added to the labels of a training. Importing this module is cheap."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["SignalOptions"]


@dataclass(frozen=True, kw_only=True)
class SignalOptions:
    """What a training learns from beside the labels of its task."""

    teacher: str | None = option(
        None,
        "Distillation: a run of probekit train on the same labels, whose outputs are learned too.",
        metavar="RUN",
    )
    temperature: float = option(2.0, "Distillation: temperature of both softmaxes.")
    distillation: float = option(
        0.5, "Distillation: weight of the teacher's outputs; the labels have the rest.", metavar="SHARE"
    )
    match_hidden: float = option(
        0.0, "Distillation: weight of the distance between the hidden states of both models.", metavar="WEIGHT"
    )

    def __post_init__(self) -> None:
        _within(self, "temperature", self.temperature > 0, "above 0")
        _within(self, "distillation", 0 <= self.distillation <= 1, "from 0 to 1")
        _within(self, "match_hidden", 0 <= self.match_hidden < inf, "0 or more")
        _belong(self, "teacher", "temperature", "distillation", "match_hidden")

    def has_signals(self) -> bool:
        """Whether anything is learned beside the labels."""
        return self.teacher is not None


def _within(options: SignalOptions, name: str, valid: bool, allowed: str) -> None:
    if not valid:
        raise UsageError(f"{name} is {getattr(options, name)}; it must be {allowed}.")


def _belong(options: SignalOptions, needed: str, *names: str) -> None:
    """Raise UsageError for the first option that has no effect, because the one that it needs is not given."""
    defaults: dict[str, Any] = {f.name: f.default for f in fields(SignalOptions)}
    if getattr(options, needed) not in (None, 0, ""):
        return
    for name in names:
        if (value := getattr(options, name)) != defaults[name]:
            raise UsageError(f"{name} is {value}, which has an effect only with {needed}; give both or neither.")
