"""From cache files to the rows of mutual information by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache
from probekit.analyses.pairs import about
from probekit.analyses.vectors import reading
from probekit.errors import UsageError
from probekit.information.curves import check_estimators, layer_information
from probekit.information.dispatch import Estimator
from probekit.rows import called
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mi"]

WORDS = "words of one sentence depend on each other, so p and the interval promise too much"


def mi(
    *caches: str | Path | ActivationCache,
    estimators: Estimator | str | Sequence[Estimator | str] = (Estimator.EDGE,),
    pooling: str | None = None,
    layers: Sequence[int | str] | None = None,
    shuffles: int | None = None,
    controls: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Mutual information between each layer and the labels, in bits, beside where noise falls; one row a number.

        rows = probekit.mi("cola.train.h5", "cola.train-random.h5", estimators=("edge", "edge-4.3.1"))
        probekit.plots.layer_panels(rows)

    caches : files or open caches; of several models, with random weights, of several splits or tasks. Each gives a
        curve for each estimator, and is corrected for its layers alone. No two may go by the same task, split, model,
        checkpoint, step and pooling, for their rows could not be told apart.
    estimators : names, see :class:`probekit.information.Estimator`. "edge" is the calibrated default, "edge-4.3.1"
        gives the numbers of the published scripts.
    pooling : one of the caches' poolings, the first for None. A token-labelled task is measured word by word; vectors
        [u; v] of separately encoded pairs become [u; v; |u - v|; u * v]. layers : some of the layers, all for None
    shuffles, controls, seed, threads : see :func:`probekit.information.curves.layer_information`, where the rows are
        described
    Raises UsageError, before anything is measured, for an unknown estimator, layer or pooling, for an estimator that is
        not for the labels of each cache, and for two caches of one curve; NonFiniteError naming a layer with NaN.
    """
    import pandas as pd

    if not caches:
        raise UsageError("no cache was given.")
    with ExitStack() as stack:
        opened = [c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches]
        asked = []
        for cache in opened:
            with _naming(cache):
                one, discrete = reading(cache, pooling, layers), cache.spec["kind"] != "regression"
                check_estimators(estimators, one.labels, discrete=discrete)
            asked.append((one, about(cache.spec, one.representation), discrete))
        _told_apart(opened, [words for _, words, _ in asked])
        found = [
            layer_information(
                one.layers,
                one.labels,
                about=words,
                estimators=estimators,
                discrete=discrete,
                shuffles=shuffles,
                controls=controls,
                warning=WORDS if one.words else "",
                seed=seed,
                threads=threads,
                progress=progress,
            )
            for one, words, discrete in asked
        ]
    return pd.concat(found, ignore_index=True)


@contextmanager
def _naming(cache: ActivationCache) -> Iterator[None]:
    """Say which of several caches does not go."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{cache.path}: {error}") from None


def _told_apart(caches: Sequence[ActivationCache], words: Sequence[dict[str, Any]]) -> None:
    """Raise UsageError for two caches whose rows could not be told apart."""
    seen: dict[tuple[Any, ...], Path] = {}
    for cache, own in zip(caches, words, strict=True):
        curve = tuple(own.values())
        if curve in seen:
            raise UsageError(
                f"{seen[curve]} and {cache.path} would be one curve, {own['task']}, {own['split']}, {called(own)}: "
                "give one of them, or measure them in runs of their own."
            )
        seen[curve] = cache.path
