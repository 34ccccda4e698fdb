"""Which examples one side's probe gets right and the other's does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError
from probekit.statistics.mcnemar import mcnemar

if TYPE_CHECKING:
    from probekit.analyses.exploration.data import SceneData

__all__ = ["GainedLost", "gained_and_lost"]


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
            f"lost, {len(self.both_right):,} right and {len(self.both_wrong):,} wrong in both; p = {self.p:.2g}>"
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
