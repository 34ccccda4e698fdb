"""Names of metrics and controls in figures."""

from __future__ import annotations

from probekit.metrics import metric as metric_called

__all__ = ["band_title", "control_title", "first_line", "metric_title"]

CONTROLS = {
    "shuffled": "shuffled labels",
    "permuted": "permuted examples",
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


def control_title(name: str) -> str:
    """The name of a control, or of another reference of a difference: "shuffled" is "shuffled labels"."""
    return CONTROLS.get(name, ", ".join(part.rsplit("/", 1)[-1] for part in name.split(", ")))


def band_title(name: str) -> str:
    """The name of a control in a legend, with a description of its labels."""
    title = control_title(name).replace("-", " ")
    return f"{title} (random tags by word type)" if name == "control-task" else title
