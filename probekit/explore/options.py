"""Options of a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from probekit.constraint import (
    Checked,
    Ge,
    MinLen,
    Seed,
)
from probekit.recipe import option
from probekit.sites import Layers

__all__ = ["ExploreOptions"]


@dataclass(frozen=True, slots=True)
class ExploreOptions(Checked):
    """Which points a view shows, and how."""

    projection: Annotated[tuple[str, ...], MinLen(1)] = option(
        ("pca",),
        "Projections to offer, separated by commas: pca (exact), tsne, umap, lda (directions that separate the labels, "
        "fitted on train).",
    )
    layers: Layers | None = option(
        None, "Layers to show, separated by commas: 0,4-6,final_norm; -1 is the last (default: all)."
    )
    unit: str | None = option(
        None, "What a point is: examples, words or tokens (default: words if the task labels words, else examples)."
    )
    pooling: str | None = option(None, "Pooling of the sentence vectors (default: the first in the cache).")
    clusters: str | None = option(None, "Cluster the vectors of each layer: kmeans or hdbscan.")
    max_points: Annotated[int, Ge(4)] | None = option(
        20_000, "Points to show at most; a sample is drawn if there are more."
    )
    seed: Seed = option(0, "Seed of the sample and of the projections.")
