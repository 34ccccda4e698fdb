"""Mutual information between each layer of caches and the labels: the analysis of ``probekit mi``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import UsageError
from probekit.information.curves import check_estimators, layer_information
from probekit.information.options import InformationOptions
from probekit.public import public
from probekit.rows import Result, called
from probekit.runtime import Progress, no_progress

__all__ = ["mi"]

CURVE = ("task", "split", "model", "checkpoint", "step", "representation")
"""The columns that identify a curve."""


@public(vectors=VectorOptions, options=InformationOptions)
def mi(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: InformationOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the mutual information between each layer of caches and the labels, in bits, with its noise level.

    The result is a curve over the layers of each cache; for one array of vectors and its labels, call
    :func:`probekit.mutual_information`, which is applied here to each layer. Values are lower bounds: they do not
    include information that the estimator does not detect. Examples of one group (words of a sentence, equal vectors,
    groups of the cache) share a fold and are shuffled and counted as a whole.

    Parameters
    ----------
    *caches : path or ActivationCache
        Caches of one or several models (also with random weights), splits or tasks. Each gives a curve per estimator,
        whose p-values are corrected only for the layers of that curve. Tasks that label words are measured word by
        word; vectors [u; v] of separately encoded pairs become ``[u; v; |u - v|; u * v]``.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : InformationOptions
        ``estimator``, ``shuffles``, ``controls``, ``seed`` and ``threads``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer and estimator a row in bits with target "gold", and one with target "shuffled" for the noise
        level; see :func:`probekit.information.curves.layer_information`. The additional column ``random_weights``
        holds the seed of a randomly initialised model.

    Raises
    ------
    UsageError
        Before measuring, for an unknown estimator, layer or pooling, for an estimator that does not fit the labels of
        a cache, and for two caches with indistinguishable curves.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.mutual_information : One estimate, from arrays.

    References
    ----------
    Peters, Ruder & Smith (2019), "To Tune or Not to Tune?", Figure 2; Noshad, Zeng & Hero (2019), "Scalable Mutual
    Information Estimation Using Dependence Graphs", ICASSP.

    Examples
    --------
    >>> result = probekit.mi("cola.train.h5", "cola.train-random.h5", estimator=("edge", "knn"))  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP
    """
    if not caches:
        raise UsageError("no cache was given; give one or more, such as cola.train.h5.")
    with ExitStack() as stack:
        opened = [c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches]
        chosen = [_checked(cache, vectors, options) for cache in opened]
        columns = [columns_of(cache, layers.representation) for cache, layers in zip(opened, chosen, strict=True)]
        _check_distinct(opened, columns)
        rows = [
            _measured(cache, layers, about, options, progress)
            for cache, layers, about in zip(opened, chosen, columns, strict=True)
        ]
        reads = tuple(read_of(cache) for cache in opened)
    return Result(pd.concat(rows, ignore_index=True), reads=reads)


def _checked(cache: ActivationCache, vectors: VectorOptions, options: InformationOptions) -> LayerVectors:
    """The vectors to measure, after checking that the estimators fit their labels."""
    with _naming(cache):
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
