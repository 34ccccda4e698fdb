"""What a scene shows: points in the layers of one or more models, and where each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probekit.display import facts_html
from probekit.errors import UsageError
from probekit.projection import Map

if TYPE_CHECKING:
    import pandas as pd

    from probekit.analyses.exploration.sources import Sources


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
class SceneData:
    """What a scene shows: n points, examples or tokens, in the layers of one or more models.

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

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"points": f"{len(self):,} {'tokens' if self.tokens_unit else 'examples'}"}
        for side in self.sides:
            maps = ", ".join(map(_kept, side.maps.values()))
            rows = "" if side.prediction is None else "; with predictions of probes"
            facts[side.name] = f"layers {side.layers[0]} to {side.layers[-1]}: {maps}{rows}"
        facts |= {f"note {i}": note for i, note in enumerate(self.notes, 1)}
        return facts_html(self.title, facts)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers of the first side."""
        return self.sides[0].layers

    @property
    def open_sources(self) -> Sources:
        """The open caches; raises UsageError for a scene without caches."""
        if self.sources is None:
            raise UsageError("this scene has no caches, so it cannot look at vectors; make it again with scene().")
        return self.sources

    def position(self, layer: int | str) -> int:
        """The position of a layer, given by its name or number in the first side; negative numbers count from the end.

        Raises
        ------
        UsageError
            If the scene does not show it.
        """
        if str(layer) in self.layers:
            return self.layers.index(str(layer))
        if isinstance(layer, int) and -len(self.layers) <= layer < 0:
            return len(self.layers) + layer
        raise UsageError(f"the scene has no layer {layer!r}; it has {', '.join(self.layers)}.")

    def places(self, ids: Iterable[Any]) -> np.ndarray:
        """The positions of points, in the order of ``ids``; raises UsageError for unknown ids."""
        known = {name: at for at, name in enumerate(self.ids.tolist())}
        wanted = [str(name) for name in ids]
        if unknown := [name for name in wanted if name not in known]:
            raise UsageError(
                f"{len(unknown):,} of {len(wanted):,} ids are not points of this scene, such as {unknown[0]!r}; its "
                f"first is {str(self.ids[0])!r}."
            )
        return np.array([known[name] for name in dict.fromkeys(wanted)], dtype=np.int64)

    def index(self, i: int | str) -> int:
        """The position of a point, given by its id (str) or position (int)."""
        if isinstance(i, str):
            return int(self.places([i])[0])
        if not 0 <= i < len(self):
            raise UsageError(f"there is no point {i}; the scene has {len(self):,}, numbered from 0.")
        return int(i)

    def text_of(self, i: int) -> tuple[str, ...] | None:
        """The text of a point's example, for pairs both; None if it has none."""
        if self.texts is None:
            return None
        return self.texts[i][1:] if self.tokens_unit else self.texts[i]

    def label_index(self, label: int | str | None) -> int:
        """The code of a label, given by name or code; 0 for numbers. Raises UsageError for an unknown one."""
        if self.labels.dtype.kind == "f":
            return 0
        if label in self.label_names:
            return self.label_names.index(str(label))
        if isinstance(label, int) and 0 <= label < len(self.label_names):
            return label
        raise UsageError(f"label is {label!r}; expected one of {', '.join(self.label_names)}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the caches that the scene opened."""
        if self.sources is not None:
            self.sources.close()


def _kept(shown: Map) -> str:
    """The method of a map, and the range of its trustworthiness over the layers."""
    if np.isnan(shown.trustworthiness).all():
        return shown.method
    low, high = np.nanmin(shown.trustworthiness), np.nanmax(shown.trustworthiness)
    return f"{shown.method} (trustworthiness {low:.2f} to {high:.2f})"
