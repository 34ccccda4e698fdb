"""Names of metrics and controls in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probekit.metrics import metric as metric_called
from probekit.plots.look import Look

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["band_title", "control_title", "first_line", "metric_title", "reference_title"]

CONTROLS = {
    "shuffled": "shuffled labels",
    "permuted": "permuted labels",
    "control-task": "control task",
    "random": "random weights",
    "bag-of-pieces": "bag of word pieces",
    "uniform": "uniform code",
    "prior": "prior code (class frequencies)",
}


OF_ANALYSIS = {
    ("structural", "shuffled"): "shuffled trees",
    ("pairs", "shuffled"): "exchanged pairs",
    ("similarity", "permuted"): "permuted examples",
}
"""By analysis and control, where labels are not what is shuffled."""


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
    if (analysis, name) in OF_ANALYSIS:
        return OF_ANALYSIS[analysis, name]
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
