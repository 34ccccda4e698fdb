"""What metrics and controls are called in figures."""

from __future__ import annotations

from probekit.metrics import metric as metric_called

__all__ = ["band_title", "control_title", "first_line", "metric_title"]

CONTROLS = {
    "shuffled": "shuffled labels",
    "control-task": "control task",
    "random": "random weights",
    "uniform": "all classes alike (uniform code)",
    "prior": "shares of classes (prior's code)",
}


def metric_title(name: str) -> str:
    """A metric in the words of an axis, with its unit: "Mutual information (bits)"; differences have two lines."""
    own = metric_called(name)
    title = own.title
    if own.unit and own.unit not in title.casefold():
        first, newline, rest = title.partition("\n")
        title = f"{title} ({own.unit})" if own.derived == "difference" else f"{first} ({own.unit}){newline}{rest}"
    return f"{title}\n(lower is better)" if own.better == "lower" else title


def first_line(name: str) -> str:
    """The title of a metric on one line, without the direction and what a difference is from."""
    return metric_title(name).splitlines()[0]


def control_title(name: str) -> str:
    """What a control, or anything that a difference is held against, is called: "shuffled" is "shuffled labels"."""
    return CONTROLS.get(name, name.rsplit("/", 1)[-1])


def band_title(name: str) -> str:
    """A control in the legend of the figure that shows what it reaches: says also what its labels are."""
    title = control_title(name).replace("-", " ")
    return f"{title} (random tags by word type)" if name == "control-task" else title
