"""Options of a view."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.recipe import check_least, option
from probekit.sites import layer_list

__all__ = ["ExploreOptions"]


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """Which points a view shows, and how."""

    projection: tuple[str, ...] = option(
        ("pca",),
        "Projections to offer, separated by commas: pca (exact), tsne, umap, lda (directions that separate the labels, "
        "fitted on train).",
    )
    layers: tuple[int | str, ...] | None = option(
        None, "Layers to show, separated by commas: 0,4-6,final_norm; -1 is the last (default: all)."
    )
    unit: str | None = option(
        None, "What a point is: examples, words or tokens (default: words if the task labels words, else examples)."
    )
    pooling: str | None = option(None, "Pooling of the sentence vectors (default: the first in the cache).")
    clusters: str | None = option(None, "Cluster the vectors of each layer: kmeans or hdbscan.")
    max_points: int | None = option(20_000, "Points to show at most; a sample is drawn if there are more.")
    seed: int = option(0, "Seed of the sample and of the projections.")

    def __post_init__(self) -> None:
        check_least(self, max_points=4, seed=0)
        if isinstance(self.projection, str):
            object.__setattr__(self, "projection", tuple(self.projection.split(",")))
        if self.layers is not None:
            object.__setattr__(self, "layers", layer_list(self.layers))
