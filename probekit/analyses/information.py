"""Mutual information between each layer of caches and their labels: the analysis behind ``probekit mi``."""

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
"""What says of which curve rows are."""


@public(vectors=VectorOptions, options=InformationOptions)
def mi(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: InformationOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure in bits what each layer of caches tells about the labels at least, beside where noise falls.

    It takes caches, and gives a curve over their layers. Of one array of vectors and its labels
    :func:`probekit.mutual_information` gives a single estimate; it is what is called here for each layer. Values are
    lower bounds: what an estimator does not see is not counted. Examples of one group (words of one sentence, equal
    vectors, groups of the cache) are folded, shuffled and counted as a whole.

    Parameters
    ----------
    *caches : path or ActivationCache
        Of several models, with random weights, of several splits or tasks. Each gives a curve for each estimator, and
        is corrected for its own layers alone. A task that labels words is measured word by word; vectors [u; v] of
        pairs that were encoded separately become ``[u; v; |u - v|; u * v]``.
    vectors : VectorOptions
        ``pooling`` and ``layers``; they may be given one by one.
    options : InformationOptions
        ``estimator``, ``shuffles``, ``controls``, ``seed`` and ``threads``; they may be given one by one.
    progress : callable
        Told how far the work is.

    Returns
    -------
    Result
        A row for each layer and estimator, target "gold", in bits, and one with target "shuffled" that says where
        noise falls; see :func:`probekit.information.curves.layer_information`. The own column ``random_weights`` holds
        the seed of a model that was never trained.

    Raises
    ------
    UsageError
        Before anything is measured, for an unknown estimator, layer or pooling, for an estimator that is not for the
        labels of each cache, and for two caches whose curves could not be told apart.
    NonFiniteError
        Naming a layer with NaN.

    See Also
    --------
    probekit.mutual_information : One estimate, of arrays.

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
        raise UsageError("no cache was given; name one or more, such as cola.train.h5.")
    with ExitStack() as stack:
        opened = [c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches]
        chosen = [_checked(cache, vectors, options) for cache in opened]
        told = [columns_of(cache, own.representation) for cache, own in zip(opened, chosen, strict=True)]
        _told_apart(opened, told)
        rows = [
            _measured(cache, own, columns, options, progress)
            for cache, own, columns in zip(opened, chosen, told, strict=True)
        ]
        reads = tuple(read_of(cache) for cache in opened)
    return Result(pd.concat(rows, ignore_index=True), reads=reads)


def _checked(cache: ActivationCache, vectors: VectorOptions, options: InformationOptions) -> LayerVectors:
    """The vectors to be measured, which the estimators can measure."""
    with _naming(cache):
        own = layer_vectors(cache, vectors)
        check_estimators(options.estimator, own.labels.y, discrete=cache.spec["kind"] != "regression")
    return own


def _measured(
    cache: ActivationCache, own: LayerVectors, told: dict[str, Any], options: InformationOptions, progress: Progress
) -> pd.DataFrame:
    return layer_information(
        own.layers,
        own.labels.y,
        about=told | own.told | {"analysis": "mi"},
        groups=own.labels.groups,
        discrete=cache.spec["kind"] != "regression",
        options=options,
        progress=progress,
    )


@contextmanager
def _naming(cache: ActivationCache) -> Iterator[None]:
    """Say which of several caches does not go."""
    try:
        yield
    except UsageError as error:
        named = str(error).startswith(str(cache.path))
        raise UsageError(str(error) if named else f"{cache.path}: {error}") from None


def _told_apart(caches: Sequence[ActivationCache], told: Sequence[dict[str, Any]]) -> None:
    """Raise UsageError for two caches whose rows could not be told apart."""
    seen: dict[tuple[Any, ...], Path] = {}
    for cache, own in zip(caches, told, strict=True):
        curve = tuple(own[key] for key in CURVE)
        if curve in seen:
            raise UsageError(
                f"{seen[curve]} and {cache.path} would be one curve, {own['task']}, {own['split']}, {called(own)}: "
                "give one of them, or measure them in runs of their own."
            )
        seen[curve] = cache.path
