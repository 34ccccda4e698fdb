"""The nearest neighbours of a point, in the vectors of a layer and not on the map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.data import SceneData

__all__ = ["neighbours"]

DISTANCES = ("cosine", "euclidean")
BLOCK = 4096


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
