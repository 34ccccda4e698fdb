"""Formatting of numbers and layer names in sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit import display
from probekit.rows.families import ALPHA
from probekit.rows.schema import layer_labels

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALPHA", "adjusted", "at_least", "at_most", "layer_of", "layers", "listed", "number", "p_value", "short"]


def short(task: Any) -> str:
    """The name of a task without the folder of its file and without the prefix of built-in tasks."""
    name = str(task).removeprefix("grammar:")
    return PurePath(name).stem if name.endswith(".toml") else name


def number(value: float) -> str:
    """Three decimals, without the 0 before them."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3f}")


def p_value(value: float) -> str:
    """A p-value as in tables, without the 0 before the point, and with two digits from .1 on."""
    return "1" if value >= 0.995 else display.p_value(value, 3 if value < 0.1 else 2).replace("0.", ".", 1)


def adjusted(p: str, tests: int, of: str = "layers") -> str:
    """A corrected p-value with the number of tests that it is corrected for: "p adjusted over 14 layers ≤ .036"."""
    equal = p if p[0] in "<≤≥" else f"= {p}"
    return f"p adjusted over {tests} {of} {equal}" if tests > 1 else f"p {equal}"


def at_least(values: Sequence[float] | np.ndarray) -> str:
    """The smallest of some p-values: ".12" for one, "≥ .12" for several, rounded down."""
    least = float(np.nanmin(values))
    if len(values) == 1 or least < 0.001 or least >= 0.995:
        return p_value(least)
    digits = 3 if least < 0.1 else 2
    return f"≥ {math.floor(least * 10**digits + 1e-9) / 10**digits:.{digits}f}".replace("0.", ".", 1)


def at_most(values: np.ndarray) -> str:
    """The largest of some p-values: ".012" for one, "≤ .012" for several, "< .001"."""
    text = p_value(float(max(values)))
    return text if len(values) == 1 or text.startswith("<") else f"≤ {text}"


def layer_of(row: pd.Series) -> str:
    """The layer of a row."""
    return str(layer_labels(row.to_frame().T).iloc[0])


def layers(names: Sequence[str]) -> str:
    """ "layer 3", "layers 2–5 and 7", "layers 11 and final_norm"."""
    return f"{'layer' if len(names) == 1 else 'layers'} {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """List names, with three or more consecutive numbers as a range: "2–5, 7 and final_norm"."""
    runs: list[list[str]] = []
    for name in names:
        follows = runs and name.isdecimal() and runs[-1][-1].isdecimal() and int(name) == int(runs[-1][-1]) + 1
        runs[-1].append(name) if follows else runs.append([name])
    items = [item for run in runs for item in ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else run)]
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
