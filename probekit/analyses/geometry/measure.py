"""Dimension and anisotropy of the vectors of each layer of caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.features import without_dictionary
from probekit.analyses.matching import FEWEST, check_finite, drawn, opened
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, PairFeatures, columns_of, layer_vectors, precision_of, read_of
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.similarity.geometry import (
    Estimate,
    all_but_the_top,
    intrinsic_dimension,
    mean_cosine,
    participation_ratio,
    rank,
)

if TYPE_CHECKING:
    from probekit.analyses.geometry import GeometryOptions

log = logger(__name__)


def measure(
    caches: Sequence[str | Path | ActivationCache], vectors: VectorOptions, options: GeometryOptions, progress: Progress
) -> Result:
    """The rows of :func:`probekit.geometry`."""
    without_dictionary(vectors, "geometry")
    with ExitStack() as stack:
        found = opened(caches, stack)
        chosen = [layer_vectors(cache, vectors) for cache in found]
        total, records = sum(len(one.layers) for one in chosen), list[dict[str, Any]]()
        done = 0
        for cache, one in zip(found, chosen, strict=True):
            head = {"analysis": "geometry", **columns_of(cache, one.representation), **one.group_columns}
            head |= {"estimator": "", "target": "gold", "seed": options.seed}
            rows = _drawn(cache, one, options)
            for name in one.layers:
                progress("layers", done, total)
                records += [head | row for row in _of_layer(cache, name, one, rows, options)]
                done += 1
        progress("layers", done, total)
        return Result(make_rows(records), reads=tuple(map(read_of, found)))


def _drawn(cache: ActivationCache, chosen: LayerVectors, options: GeometryOptions) -> np.ndarray:
    """The rows that are measured, in order."""
    n = len(chosen.labels.y)
    what = "words" if chosen.words else "examples"
    if n < FEWEST:
        raise UsageError(f"{cache.path} has {n} {what}; the geometry of a layer needs {FEWEST} or more.")
    return drawn(np.arange(n), options.max_examples, options.seed, cache, what, "measured")


def _of_layer(
    cache: ActivationCache, name: str, chosen: LayerVectors, rows: np.ndarray, options: GeometryOptions
) -> Iterator[dict[str, Any]]:
    """The rows of one layer."""
    x = chosen.layers[name]()
    x = np.asarray((x.x if isinstance(x, PairFeatures) else x)[rows])
    labels = chosen.labels[rows]
    check_finite(x, cache, name, labels)
    how: dict[str, Any] = {"groups": labels.groups, "level": options.level}
    most = min(x.shape) - 1
    if (options.remove or 0) > most:
        raise UsageError(
            f"remove is {options.remove}; layer {name} of {cache.path} has {x.shape[0]:,} vectors of {x.shape[1]} "
            f"dimensions, which allow 0 to {most}."
        )
    removed = min(most, max(1, x.shape[1] // 100)) if options.remove is None else options.remove
    precision = precision_of(cache)
    found: dict[str, Estimate] = {
        "rank": rank(x, precision=precision),
        "participation-ratio": participation_ratio(x, precision=precision, **how),
        "intrinsic-dimension": intrinsic_dimension(x, discard=options.discard, seed=options.seed, **how),
        "mean-cosine": mean_cosine(x, **how),
        "mean-cosine-without-top": mean_cosine(all_but_the_top(x, removed), **how),
    }
    if np.isnan(found["participation-ratio"].value):
        log.warning("%s: layer %s: %s.", cache.path, name, found["participation-ratio"].note)
    for metric, one in found.items():
        yield {
            "layer_name": name, "metric": metric, "value": one.value, "ci_low": one.low, "ci_high": one.high,
            "n": one.n, "removed": removed if metric == "mean-cosine-without-top" else None, "note": one.note,
        }  # fmt: skip
