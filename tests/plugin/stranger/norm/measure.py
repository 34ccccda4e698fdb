"""The lengths of the vectors of each layer of caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.matching import check_finite, opened
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import columns_of, layer_vectors, read_of
from probekit.errors import UsageError
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.clusters import interval
from stranger.norm import NormOptions


def measure(
    caches: Sequence[str | Path | ActivationCache], vectors: VectorOptions, options: NormOptions, progress: Progress
) -> Result:
    """The rows of :func:`stranger.norm.norm`."""
    with ExitStack() as stack:
        found = opened(caches, stack)
        rows = [row for cache in found for row in _of_cache(cache, vectors, options, progress)]
        return Result(make_rows(rows), reads=tuple(map(read_of, found)))


def _of_cache(
    cache: ActivationCache, vectors: VectorOptions, options: NormOptions, progress: Progress
) -> Iterator[dict[str, Any]]:
    if cache.spec["pairs"] == "separate":
        raise UsageError(f"{cache.path} holds pairs that are read apart; norm is for texts.")
    chosen = layer_vectors(cache, vectors)
    head = {"analysis": "norm", "estimator": "", "target": "gold"}
    head |= {**columns_of(cache, chosen.representation), **chosen.group_columns}
    for done, (name, read) in enumerate(chosen.layers.items()):
        progress("layers", done, len(chosen.layers))
        x = np.asarray(read())
        check_finite(x, cache, name, chosen.labels)
        length = np.linalg.norm(x.astype(np.float64), axis=1)
        value = float(length.mean())
        low, high = interval(value, length, chosen.labels.groups, level=options.level, within=(0.0, np.inf))
        yield head | {
            "layer_name": name, "metric": "mean-norm", "n": len(x), "value": value,
            "ci_low": low, "ci_high": high,
        }  # fmt: skip
    progress("layers", len(chosen.layers), len(chosen.layers))
