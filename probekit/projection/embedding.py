"""t-SNE and UMAP of one layer, started from a given map."""

from __future__ import annotations

from typing import Any

import numpy as np

from probekit.errors import UsageError
from probekit.projection.plane import principal_plane

__all__ = ["embed"]

COMPONENTS = 50
"""Principal components that t-SNE and UMAP read."""
EXACT = 4000
"""Up to this many points t-SNE finds neighbours exactly."""


def embed(x: Any, method: str, before: np.ndarray | None, seed: int) -> np.ndarray:
    """A map of vectors by t-SNE or UMAP, float64 (n, 2); one point if all vectors are equal.

    Parameters
    ----------
    x : array
        (n, d).
    method : str
        "tsne" or "umap".
    before : np.ndarray, optional
        (n, 2), the map to start from, that of the neighbouring layer; by default the first two principal components.
    seed : int
        Seed.

    Raises
    ------
    UsageError
        If the library is not installed; the message names the extra.
    """
    plane = principal_plane(x, min(COMPONENTS, *x.shape))
    parts = plane.points(x)
    if np.isnan(plane.explained).any():
        return np.zeros((len(parts), 2))
    start = parts[:, :2] if before is None or not before.any() else before
    if start.shape[1] < 2:
        start = np.column_stack([start, np.zeros(len(start))])
    start = (start - start.mean(0)) / start.std(0).max()
    draw = _tsne if method == "tsne" else _umap
    found = draw(parts, start, seed).astype(np.float64)
    return found - found.mean(0)


def _tsne(x: np.ndarray, start: np.ndarray, seed: int) -> np.ndarray:
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise UsageError(_missing("t-SNE", "openTSNE")) from error
    perplexity = min(30.0, (len(x) - 1) / 3)
    neighbours = "exact" if len(x) <= EXACT else "annoy"
    fitted = TSNE(
        perplexity=perplexity, initialization=1e-4 * start, random_state=seed, n_jobs=1, neighbors=neighbours
    ).fit(x)
    return np.asarray(fitted)


def _umap(x: np.ndarray, start: np.ndarray, seed: int) -> np.ndarray:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numba, about its cache, and of tensorflow, which is optional
            from umap import UMAP
    except ImportError as error:
        raise UsageError(_missing("UMAP", "umap-learn")) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed means one thread, which is intended
        model = UMAP(n_neighbors=min(15, len(x) - 1), init=(10 * start).astype(np.float32), random_state=seed, n_jobs=1)
        return np.asarray(model.fit_transform(x.astype(np.float32)))


def _missing(method: str, package: str) -> str:
    return f"{method} needs {package}: pip install 'probekit-lm[explore]'. PCA (projection='pca') works without it."
