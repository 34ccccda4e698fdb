"""Mutual information between each layer of caches and the labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.features import read_of_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, open_caches, read_of
from probekit.errors import UsageError
from probekit.information.curves import check_estimators, layer_information
from probekit.information.options import InformationOptions
from probekit.rows import Result, called
from probekit.runtime import Progress, part_of
from probekit.tasks.task import check_one_label

CURVE = ("task", "split", "model", "checkpoint", "step", "representation")
"""The columns that identify a curve."""


def measure(
    caches: Sequence[str | Path | ActivationCache],
    vectors: VectorOptions,
    options: InformationOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.mi`."""
    if not caches:
        raise UsageError("no cache was given; give one or more, such as cola.train.h5.")
    with ExitStack() as stack:
        opened = open_caches(caches, stack)
        chosen = [_checked(cache, vectors, options) for cache in opened]
        columns = [columns_of(cache, layers.representation) for cache, layers in zip(opened, chosen, strict=True)]
        _check_distinct(opened, columns)
        rows = [
            _measured(cache, layers, about, options, part_of(progress, i, len(opened)))
            for i, (cache, layers, about) in enumerate(zip(opened, chosen, columns, strict=True))
        ]
        reads = (*map(read_of, opened), *read_of_dictionary(vectors))
    return Result(pd.concat(rows, ignore_index=True), reads=reads)


def _checked(cache: ActivationCache, vectors: VectorOptions, options: InformationOptions) -> LayerVectors:
    """The vectors to measure, after checking that the estimators fit their labels."""
    with _naming(cache):
        check_one_label(cache.spec["task"], cache.spec["kind"])
        chosen = layer_vectors(cache, vectors)
        check_estimators(options.estimator, chosen.labels.y, discrete=cache.spec["kind"] != "regression")
    return chosen


def _measured(
    cache: ActivationCache, chosen: LayerVectors, about: dict[str, Any], options: InformationOptions, progress: Progress
) -> pd.DataFrame:
    return layer_information(
        chosen.layers,
        chosen.labels.y,
        about=about | chosen.group_columns | {"analysis": "mi"},
        groups=chosen.labels.groups,
        discrete=cache.spec["kind"] != "regression",
        options=options,
        progress=progress,
    )


@contextmanager
def _naming(cache: ActivationCache) -> Iterator[None]:
    """Add the path of the cache to a UsageError."""
    try:
        yield
    except UsageError as error:
        named = str(error).startswith(str(cache.path))
        raise UsageError(str(error) if named else f"{cache.path}: {error}") from None


def _check_distinct(caches: Sequence[ActivationCache], columns: Sequence[dict[str, Any]]) -> None:
    """Raise UsageError for two caches whose rows would be indistinguishable."""
    seen: dict[tuple[Any, ...], Path] = {}
    for cache, about in zip(caches, columns, strict=True):
        curve = tuple(about[key] for key in CURVE)
        if curve in seen:
            raise UsageError(
                f"{seen[curve]} and {cache.path} would give the same curve, {about['task']}, {about['split']}, "
                f"{called(about)}: give only one of them, or measure them in separate runs."
            )
        seen[curve] = cache.path
