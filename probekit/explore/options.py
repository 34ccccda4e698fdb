"""Options of a view, and where its page may be written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from probekit.constraint import Checked, Ge, MinLen, Seed
from probekit.errors import UsageError
from probekit.files import FileKind, is_sealed
from probekit.recipe import option
from probekit.sites import Layers

PAGE = FileKind("a page as probekit wrote it", is_sealed)


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


def check_page(path: Path) -> None:
    """Raise UsageError if a page cannot be written there."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give a file name, such as {path / 'explore.html'}.")
    if path.suffix != ".html":
        raise UsageError(f"the explorer is saved as one HTML page; name it {path.with_suffix('.html')}.")
    PAGE.check(path)
