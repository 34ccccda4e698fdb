"""A scene: the points that an explorer shows, for one or more models, and the questions that it can answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.projection import Map

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.sources import Sources

__all__ = ["Map", "Scene", "Side"]


@dataclass(frozen=True, eq=False)
class Side:
    """One model, or one checkpoint.

    Attributes
    ----------
    name : str
        Name in titles.
    layers : tuple of str
        Names of the shown layers, as many as the other sides have.
    step : int or None
        Training step of a checkpoint.
    maps : mapping
        By method ("pca", "tsne", "umap", "lda"): the :class:`probekit.projection.Map` of all layers.
    prediction : np.ndarray or None
        (layers, n), the predictions of each layer's probe: int classes, or floats for regression; -1 or NaN where
        there is none.
    confidence : np.ndarray or None
        float32 (layers, n), the probability of the predicted class.
    curve : DataFrame or None
        Rows of this model, with controls; None if no rows were given.
    clusters : np.ndarray or None
        int16 (layers, n), numbers of clusters of the vectors by size; -1 for points outside any cluster.
    """

    name: str
    layers: tuple[str, ...]
    step: int | None
    maps: Mapping[str, Map]
    prediction: np.ndarray | None = None
    confidence: np.ndarray | None = None
    curve: pd.DataFrame | None = None
    clusters: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """What an explorer shows: n points, examples or tokens, in the layers of one or more models.

    Attributes
    ----------
    title, task, split : str
        Names.
    ids : np.ndarray
        (n,) str; a token's id is "EXAMPLE:POSITION".
    texts : list of tuple of str, or None
        For each point its text, for pairs both; for tokens the token and the text around it. None if no texts are
        available.
    labels : np.ndarray
        (n,) int with -1 for unlabelled, or float with NaN.
    label_names : tuple of str
        Names of classes; () for numbers.
    domains : np.ndarray or None
        (n,) str.
    groups : np.ndarray or None
        (n,) int, the same for points that are not independent.
    lengths : np.ndarray
        (n,) int, number of tokens of the example.
    tokens_unit : bool
        Whether points are tokens or words.
    sides : tuple of Side
        The first is the reference; more than two are checkpoints in the order of their steps.
    movement : np.ndarray or None
        float32 (sides - 1, layers, n): the distance of a point's vector from its vector in the first side, divided by
        the norm of the latter; None if widths differ.
    notes : tuple of str
        How many examples the caches share, what was sampled, and what is missing.
    sources : Sources or None
        The open caches, from which questions are answered.
    """

    title: str
    task: str
    split: str
    ids: np.ndarray
    texts: list[tuple[str, ...]] | None
    labels: np.ndarray
    label_names: tuple[str, ...]
    domains: np.ndarray | None
    groups: np.ndarray | None
    lengths: np.ndarray
    tokens_unit: bool
    sides: tuple[Side, ...]
    movement: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    sources: Sources | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        points = "tokens" if self.tokens_unit else "examples"
        names = ", ".join(side.name for side in self.sides)
        return f"<Scene {self.title}: {len(self):,} {points}, {len(self.sides[0].layers)} layers of {names}>"

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers of the first side."""
        return self.sides[0].layers

    @property
    def open_sources(self) -> Any:
        """The open caches; raises UsageError for a scene without caches, such as one read from a file."""
        if self.sources is None:
            raise UsageError("this scene has no caches, so it cannot look at vectors; make it again with scene().")
        return self.sources

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the caches that the scene opened."""
        if self.sources is not None:
            self.sources.close()
