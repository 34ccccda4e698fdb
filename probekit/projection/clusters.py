"""Clusters of vectors, as a colour for maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from probekit.errors import UsageError, did_you_mean
from probekit.projection.plane import principal_plane

CLUSTERINGS = ("kmeans", "hdbscan")
COMPONENTS = 50
"""Principal components that are clustered."""


def clusters(x: Any, method: str = "kmeans", *, count: int = 6, seed: int = 0) -> np.ndarray:
    """The cluster of each vector, int16 (n,), numbered by size from the largest; -1 outside any cluster.

    The first 50 principal components are clustered. k-means cuts any cloud into ``count`` parts, whether or not it has
    clusters; HDBSCAN finds dense regions of at least n / 50 (and 5) points, and leaves the rest out.

    Parameters
    ----------
    x : array
        (n, d).
    method : str
        "kmeans" or "hdbscan".
    count : int
        Number of clusters of k-means.
    seed : int
        Seed of k-means.
    """
    if method not in CLUSTERINGS:
        raise UsageError(f"clusters is {method!r}; {did_you_mean(method, CLUSTERINGS)}")
    if not 2 <= count <= x.shape[0]:
        raise UsageError(f"{count} clusters of {x.shape[0]} points; expected from 2 to the number of points.")
    plane = principal_plane(x, min(COMPONENTS, *x.shape))
    if np.isnan(plane.explained).any():
        return np.zeros(x.shape[0], dtype=np.int16)
    points = plane.points(x)
    if method == "kmeans":
        from sklearn.cluster import KMeans

        found = KMeans(min(count, len(np.unique(points, axis=0))), n_init=2, random_state=seed).fit(points).labels_
    else:
        from sklearn.cluster import HDBSCAN

        found = HDBSCAN(min_cluster_size=max(5, len(points) // 50), copy=True).fit(points).labels_
    names, inverse, sizes = np.unique(found, return_inverse=True, return_counts=True)
    order = sorted(range(len(names)), key=lambda c: (names[c] < 0, -sizes[c], int(np.argmax(inverse == c))))
    number = np.empty(len(names), dtype=np.int16)
    number[order] = np.arange(len(names))
    number[names < 0] = -1
    return number[inverse]
