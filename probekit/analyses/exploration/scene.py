"""A scene: the points that an explorer shows, for one or more models, and the questions that it can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.exploration.attention import attention
from probekit.analyses.exploration.data import SceneData, Side
from probekit.analyses.exploration.export import to_parquet, to_projector
from probekit.analyses.exploration.selection import compare_selection, examples, write_task
from probekit.analyses.exploration.strips import token_strip
from probekit.analyses.exploration.units import rank_units, unit_view
from probekit.display import p_equals
from probekit.errors import UsageError, did_you_mean
from probekit.projection import Map
from probekit.statistics.mcnemar import mcnemar

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GainedLost", "Map", "Scene", "Side", "gained_and_lost", "neighbours"]

DISTANCES = ("cosine", "euclidean")
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class GainedLost:
    """The examples by whether the probes of two sides are right about them, in one layer.

    Attributes
    ----------
    layer : str
        Name of the layer.
    first, second : str
        Names of the sides.
    both_right, lost, gained, both_wrong : np.ndarray
        Ids: "lost" are right on the first side only, "gained" on the second only.
    p : float
        Of a test that gains and losses are equally likely, exact; groups of dependent examples change sides together.
    n : int
        Number of labelled examples with both predictions.
    note : str
        What p says and what not.
    """

    layer: str
    first: str
    second: str
    both_right: np.ndarray
    lost: np.ndarray
    gained: np.ndarray
    both_wrong: np.ndarray
    p: float
    n: int
    note: str

    def __repr__(self) -> str:
        return (
            f"<layer {self.layer}, {self.second} against {self.first}: {len(self.gained):,} gained, {len(self.lost):,} "
            f"lost, {len(self.both_right):,} right and {len(self.both_wrong):,} wrong in both; {p_equals(self.p)}>"
        )


def gained_and_lost(scene: SceneData, layer: int | str, side: int = 1, against: int = 0) -> GainedLost:
    """Which examples the probe of a side gets right that another side's probe does not, and the reverse.

    Parameters
    ----------
    layer : int or str
        Name or number of the layer.
    side, against : int
        Positions of the sides.

    Returns
    -------
    GainedLost
        The McNemar table as ids, with an exact p.

    Raises
    ------
    UsageError
        If a side has no predictions, or labels are numbers.
    """
    at = scene.position(layer)
    for one in (against, side):
        if not 0 <= one < len(scene.sides):
            raise UsageError(f"there is no side {one}; the scene has {len(scene.sides)}.")
    first, second = scene.sides[against], scene.sides[side]
    if scene.labels.dtype.kind == "f":
        raise UsageError("the labels are numbers, so predictions are not right or wrong.")
    if first.prediction is None or second.prediction is None:
        missing = first.name if first.prediction is None else second.name
        raise UsageError(f"there are no predictions for {missing}; give the rows of probekit probe.")
    one, two = first.prediction[at], second.prediction[at]
    known = np.flatnonzero((scene.labels >= 0) & (one >= 0) & (two >= 0))
    right, right_too = (x[known] == scene.labels[known] for x in (one, two))
    groups = None if scene.groups is None else scene.groups[known]
    p = mcnemar(right, right_too, groups)
    both, lost, gained, neither = (
        scene.ids[known[cell]]
        for cell in (right & right_too, right & ~right_too, ~right & right_too, ~right & ~right_too)
    )
    count = len(known) if groups is None else len(np.unique(groups))
    dependent = f" {count:,} groups of dependent points change sides together." if count < len(known) else ""
    note = (
        "p tests these two fitted probes on examples like these, not training again, and only this layer: with several "
        f"layers, correct it (probekit compare does).{dependent}"
    )
    return GainedLost(scene.layers[at], first.name, second.name, both, lost, gained, neither, p, len(known), note)


def neighbours(
    scene: SceneData, side: int, layer: int | str, i: int | str, k: int = 10, distance: str = "cosine"
) -> pd.DataFrame:
    """The nearest neighbours of a point among the vectors of a layer, not on the map.

    Parameters
    ----------
    side : int
        Position of the side.
    layer : int or str
        Name or number of the layer.
    i : int or str
        Position or id of the point.
    k : int
        Number of neighbours.
    distance : str
        "cosine" or "euclidean".

    Returns
    -------
    DataFrame
        point (position), id and distance, nearest first.
    """
    import pandas as pd

    if distance not in DISTANCES:
        raise UsageError(f"distance is {distance!r}; {did_you_mean(distance, DISTANCES)}")
    at = scene.index(i)
    x = scene.open_sources.vectors(side, scene.position(layer))
    point = np.asarray(x[at : at + 1], dtype=np.float64)[0]
    found = np.empty(len(scene))
    with np.errstate(invalid="ignore", divide="ignore"):
        for start in range(0, len(found), BLOCK):
            part = np.asarray(x[start : start + BLOCK], dtype=np.float64)
            if distance == "cosine":
                norms = np.linalg.norm(part, axis=1) * np.linalg.norm(point)
                found[start : start + BLOCK] = 1 - part @ point / norms
            else:
                found[start : start + BLOCK] = np.linalg.norm(part - point, axis=1)
    found[at] = np.inf
    found = np.nan_to_num(found, nan=np.inf)
    order = np.argsort(found, kind="stable")[: min(k, len(scene) - 1)]
    order = order[np.isfinite(found[order])]
    return pd.DataFrame({"point": order, "id": scene.ids[order], "distance": found[order]})


class Scene(SceneData):
    """What an explorer shows, and the functions that answer questions about it."""

    neighbours = neighbours
    gained_and_lost = gained_and_lost
    token_strip = token_strip
    attention = attention
    unit = unit_view
    rank_units = rank_units
    examples = examples
    compare_selection = compare_selection
    write_task = write_task
    to_parquet = to_parquet
    to_projector = to_projector
