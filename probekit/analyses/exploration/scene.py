"""A scene: the points that an explorer shows, for one or more models, and the questions that it can answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.agreement import GainedLost, gained_and_lost
from probekit.analyses.exploration.attention import Attention, attention
from probekit.analyses.exploration.export import to_parquet, to_projector
from probekit.analyses.exploration.neighbours import neighbours
from probekit.analyses.exploration.selection import compare_selection, examples, places, write_task
from probekit.analyses.exploration.strips import TokenStrip, token_strip
from probekit.analyses.exploration.units import UnitView, rank_units, unit_view
from probekit.display import facts_html
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

    def index(self, i: int | str) -> int:
        """The position of a point, given by its id (str) or position (int)."""
        if isinstance(i, str):
            return int(places(self, [i])[0])
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

    def neighbours(
        self, side: int, layer: int | str, i: int | str, k: int = 10, distance: str = "cosine"
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
        return neighbours(self, side, layer, i, k, distance)

    def gained_and_lost(self, layer: int | str, side: int = 1, against: int = 0) -> GainedLost:
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
        return gained_and_lost(self, layer, side, against)

    def token_strip(
        self, i: int | str, kind: str = "norm", *, unit: int | None = None, label: int | str | None = None
    ) -> TokenStrip:
        """A number for each layer and token of one example, on each side.

        Parameters
        ----------
        i : int or str
            Position or id of the point.
        kind : str
            "norm"; "distance" to the vector of the first side, relative to its norm; "unit", one unit; "logit", the log
            odds of a label that a probe fitted on train gives for each token.
        unit : int, optional
            For "unit".
        label : int or str, optional
            For "logit"; default: the second of two labels.

        Raises
        ------
        UsageError
            If a cache has no token vectors, or for "logit" no training cache was given.
        """
        return token_strip(self, i, kind, unit=unit, label=label)

    def attention(
        self,
        i: int | str,
        model: str | Path | None = None,
        *,
        side: int = 0,
        heads: Sequence[tuple[int, int]] | None = None,
    ) -> Attention:
        """The attention weights of a model for the text of one example, up to 128 tokens.

        Parameters
        ----------
        i : int or str
            Position or id of the point.
        model : path or str, optional
            Folder or hub id; default: the model of the side's cache.
        side : int
            Position of the side.
        heads : sequence of (block, head), optional
            Which heads, both numbered from 0; default: all.
        """
        return attention(self, i, model, side, heads)

    def unit(
        self, side: int, layer: int | str, unit: int | np.ndarray, *, k: int = 20, other: int | None = None
    ) -> UnitView:
        """What a unit, or a direction, responds to: tokens, labels, and units of another side.

        Parameters
        ----------
        side : int
            Position of the side.
        layer : int or str
            Name or number of the layer.
        unit : int or np.ndarray
            Number of the unit from 0, or a direction (d,).
        k : int
            Number of tokens, and of similar units.
        other : int, optional
            Position of the side in which similar units are searched for, in all its layers.
        """
        return unit_view(self, side, layer, unit, k, other)

    def rank_units(
        self, side: int, layer: int | str, *, by: str = "probe", label: int | str | None = None, k: int = 20
    ) -> pd.DataFrame:
        """The units of a layer that say most about a label.

        Parameters
        ----------
        side : int
            Position of the side.
        layer : int or str
            Name or number of the layer.
        by : str
            "probe": the weight of the standardised unit in a linear discriminant fitted on train; "correlation" with
            the label over the points.
        label : int or str, optional
            Default: the second of two labels; of more, the root of the sum of squares over all labels.
        k : int
            Number of units.

        Returns
        -------
        DataFrame
            unit and score, the largest magnitudes first.
        """
        return rank_units(self, side, layer, by, label, k)

    def examples(self, ids: Iterable[Any], layer: int | str | None = None) -> pd.DataFrame:
        """Points as a table: id, text, label, length, domain, group; with ``layer`` predictions and movement, too."""
        return examples(self, ids, layer)

    def compare_selection(
        self, ids: Iterable[Any], layer: int | str | None = None, *, level: float = 0.95
    ) -> pd.DataFrame:
        """Some points against all others: accuracy, confidence, movement, length, labels and domains.

        Parameters
        ----------
        ids : iterable
            Ids of the selected points.
        layer : int or str, optional
            Name or number of a layer; default: all layers.
        level : float
            Coverage of the intervals.

        Returns
        -------
        DataFrame
            quantity, layer, model, selection, rest, difference, ci_low, ci_high, n_selection, n_rest; ``attrs["note"]``
            says what the intervals do not cover.
        """
        return compare_selection(self, ids, layer, level=level)

    def write_task(self, ids: Iterable[Any], path: str | Path) -> Path:
        """Write points as a task of your own: ``path`` (.toml) and a .jsonl file next to it; of tokens their examples.

        Raises
        ------
        UsageError
            If there are no texts, or a file exists already.
        """
        return write_task(self, ids, path)

    def to_parquet(
        self, path: str | Path, *, side: int = 0, layer: int | str = -1, method: str = "pca", neighbours: int = 15
    ) -> Path:
        """Write one map as Parquet: x, y, text, label …, and ``neighbors`` in the format of Embedding Atlas.

        ``embedding-atlas FILE.parquet --text text --x x --y y --neighbors neighbors`` opens it.
        """
        return to_parquet(self, path, side=side, layer=layer, method=method, neighbours=neighbours)

    def to_projector(self, folder: str | Path, *, layers: Iterable[int | str] | None = None, side: int = 0) -> Path:
        """Write vectors and metadata as a folder of TensorBoard's projector (``tensorboard --logdir FOLDER``)."""
        return to_projector(self, folder, layers=layers, side=side)

    def __enter__(self) -> Scene:
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
