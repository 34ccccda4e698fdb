"""Maps of all layers of several models by one method, aligned, with their faithfulness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError, did_you_mean
from probekit.projection.alignment import rotation
from probekit.projection.discriminant import fit_discriminant
from probekit.projection.neighbourhoods import Faithfulness, faithfulness
from probekit.projection.plane import Plane, principal_plane
from probekit.runtime import Progress, blas_thread, no_progress

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


METHODS = ("pca", "tsne", "umap", "lda")
Vectors = Callable[[], Any]
Train = tuple[Sequence[Vectors], np.ndarray]
"""The layers of a model on its training examples, and their labels."""

NEIGHBOURS_ONLY = (
    "Distances between clusters, sizes of clusters and empty space mean nothing here; only who is near whom does. "
)
NOTES = {
    "pca": "Exact principal components of the shown points. Each layer is rotated or reflected in its plane towards "
    "its neighbour, never stretched.",
    "tsne": f"{NEIGHBOURS_ONLY}t-SNE of 50 principal components, started from the map of the neighbouring layer.",
    "umap": f"{NEIGHBOURS_ONLY}UMAP of 50 principal components, started from the map of the neighbouring layer.",
    "lda": "{axes}, fitted on {n:,} training examples and shown on others: on the examples that they were fitted on, "
    "classes would look better separated than they are. The unit of an axis is the standard deviation within the "
    "classes.",
}
AXES = {
    1: "The horizontal axis separates the labels, the vertical one is the first principal component of what the "
    "horizontal one does not predict within the classes",
    2: "Axes that separate the labels",
}


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """All layers of one model as points in the plane.

    Attributes
    ----------
    method : str
        One of :data:`METHODS`.
    xy : np.ndarray
        float32 (layers, n, 2), centred.
    explained : np.ndarray or None
        (layers, 2): for "pca" the share of the variance of each component, for "lda" of the variance between classes.
        The axes that are drawn are turned in the plane of these; only the sum, what the plane holds, is true of both.
    scale : np.ndarray
        (layers,), the root mean square distance of the points from the centre: divide by it to give all layers the
        same size.
    trustworthiness, continuity : np.ndarray
        (layers,), see :func:`probekit.projection.faithfulness`.
    compared : int
        Number of points on which these were computed.
    note : str
        How to read the map.
    """

    method: str
    xy: np.ndarray
    explained: np.ndarray | None
    scale: np.ndarray
    trustworthiness: np.ndarray
    continuity: np.ndarray
    compared: int
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class _LayerMap:
    xy: np.ndarray
    plane: Plane | None
    directions: int  # axes that may be turned into each other
    faithfulness: Faithfulness


def project(
    sides: Sequence[Sequence[Vectors]],
    method: str = "pca",
    *,
    train: Sequence[Train] | None = None,
    neighbours: int = 10,
    compared: int = 1000,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[Map]:
    """Project all layers of one or more models to the plane.

    Layers are turned towards the layer before, other models towards the first model at the same layer, by rotation or
    reflection only. The same input and seed give the same bytes.

    Parameters
    ----------
    sides : sequence of sequences of callables
        By model and layer: functions that return (n, d) arrays with the same n points. All models have equally many
        layers; widths may differ.
    method : str
        "pca", "tsne", "umap", or "lda": directions that separate the labels, fitted on ``train``.
    train : sequence of Train
        For "lda": for each model the layers of other examples, and their labels.
    neighbours : int
        Size of the neighbourhoods for trustworthiness and continuity.
    compared : int
        Number of points, drawn with the seed, on which these are computed.
    seed : int
        Seed.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    list of Map
        One for each model.

    Raises
    ------
    UsageError
        For an unknown method, fewer than 4 points, models with different points, or "lda" without ``train``.
    NonFiniteError
        If a vector contains NaN or infinity; the message names the layer.
    """
    if method not in METHODS:
        raise UsageError(f"projection is {method!r}; {did_you_mean(method, METHODS)}")
    if method == "lda" and not train:
        raise UsageError(
            "directions that separate the labels need training examples: fitted on the examples that it shows, the "
            "map would separate the labels even if the vectors did not. Give train."
        )
    sides_layers: list[list[_LayerMap]] = []
    with blas_thread():
        for s, side in enumerate(sides):
            layers: list[_LayerMap] = []
            sides_layers.append(layers)
            for at, vectors in enumerate(side):
                neighbour = sides_layers[0][at] if s else layers[-1] if at else None
                before = None if neighbour is None else neighbour.xy
                x = vectors()
                _check_points(x, before)
                try:
                    xy, plane, directions = _layer(x, method, before, seed, train[s] if train else None, at)
                except NonFiniteError as error:
                    raise NonFiniteError(f"layer {at} of model {s + 1}: {error}") from None
                xy = _towards(xy, before, keep_axes=directions < 2)
                faithful = faithfulness(x, xy, neighbours=neighbours, points=compared, seed=seed)
                layers.append(_LayerMap(xy, plane, directions, faithful))
                progress(f"map {method}", s * len(side) + at + 1, sum(map(len, sides)))
    note = _note(method, train, sides_layers[-1][-1].directions)
    return [_map(method, layers, note) for layers in sides_layers]


def _note(method: str, train: Sequence[Train] | None, directions: int) -> str:
    if method != "lda" or not train:
        return NOTES[method]
    labels = train[0][1]
    labelled = ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0
    return NOTES[method].format(n=int(labelled.sum()), axes=AXES[directions])


def _check_points(x: Any, before: np.ndarray | None) -> None:
    if x.shape[0] < 4:
        raise UsageError(f"a map needs 4 points; there are {x.shape[0]}.")
    if before is not None and len(before) != x.shape[0]:
        raise UsageError(f"the models have different points: {len(before)} and {x.shape[0]}.")


def _layer(
    x: Any, method: str, before: np.ndarray | None, seed: int, train: Train | None, at: int
) -> tuple[np.ndarray, Plane | None, int]:
    """The map of a layer before it is aligned, its plane, and how many of its axes may be turned into each other."""
    if method == "lda" and train:
        fitted = fit_discriminant(train[0][at](), train[1])
        plane = fitted.plane
        if plane.axes.shape[0] != x.shape[1]:
            raise UsageError(
                f"the training vectors have the width {plane.axes.shape[0]}, those to show {x.shape[1]}; "
                "give the caches of one model."
            )
        return plane.points(x), plane, fitted.directions
    if method == "pca":
        plane = principal_plane(x)
        return plane.points(x), plane, 2
    return embed(x, method, before, seed), None, 2


def _towards(xy: np.ndarray, before: np.ndarray | None, *, keep_axes: bool) -> np.ndarray:
    """A map, centred and turned towards another."""
    centred = xy - xy.mean(0)
    return centred if before is None else centred @ rotation(centred, before, keep_axes=keep_axes)


def _map(method: str, layers: Sequence[_LayerMap], note: str) -> Map:
    xy = np.array([layer.xy for layer in layers])
    planes = [layer.plane.explained for layer in layers if layer.plane is not None]
    return Map(
        method,
        xy.astype(np.float32),
        np.array(planes) if planes else None,
        np.sqrt((xy**2).sum(2).mean(1)),
        np.array([layer.faithfulness.trustworthiness for layer in layers]),
        np.array([layer.faithfulness.continuity for layer in layers]),
        layers[0].faithfulness.n,
        note,
    )
