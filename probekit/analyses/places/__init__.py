"""Latitude and longitude from the vectors of the names of places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import Checked, Draws, Ge, MinLen, Positive, Seed, Share
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, by_layer, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class PlaceOptions(Checked):
    """How the regressions on coordinates are fitted and evaluated."""

    penalties: Annotated[tuple[Positive, ...], MinLen(1)] | None = option(
        None, "Penalties of ridge regression (alphas) to choose from, separated by commas (default: a grid)."
    )
    folds: Annotated[int, Ge(2)] = option(
        5, "Folds of train that choose the penalty by cross-validation; groups stay whole."
    )
    controls: Draws = option(3, "Number of control regressions, fitted to places exchanged at random in train.")
    resamples: ResamplesOrNone = option(1000, "Bootstrap resamples of the evaluated places for intervals; 0 for none.")
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the folds, controls and resamples.")


@public(vectors=VectorOptions, options=PlaceOptions)
def places(
    train: str | Path | ActivationCache,
    test: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    task: str,
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: PlaceOptions,
    progress: Progress = no_progress,
) -> Result:
    """Predict where places are from the vectors of their names; errors in kilometres.

    A ridge regression on each layer predicts latitude and longitude (Gurnee & Tegmark 2023); its penalties are chosen
    by cross-validation on train. Compare its error with that of the middle of train (centroid), of places exchanged at
    random in train (shuffled), and of layer 0, which knows only the pieces of a name.

    Parameters
    ----------
    train : path or ActivationCache
        The cache to fit on; its task is TASK:latitude+TASK:longitude.
    test : path or ActivationCache
        The cache to evaluate on.
    *more : path or ActivationCache
        Further pairs of caches, such as those of random weights.
    task : str
        world-places or us-places.
    data_dir : path, optional
        Folder with the files of places.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : PlaceOptions
        ``controls``, ``folds``, ``seed`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer: "great-circle-error" and "great-circle-error-median", the mean and median distance of the
        predicted from the true place in km, and "r2" by ``coordinate``, with intervals over the evaluated places for
        these probes. Rows of the target "shuffled" are probes of places exchanged in train; the estimator "centroid"
        predicts the middle of train for every place. Rows of "difference(great-circle-error)" are a layer minus what
        ``against`` says, over the same places: "centroid", the first layer ("layer 0"), and the same layer of the first
        pair of caches; with intervals, and p corrected by Holm (``p_adjusted``) over the layers and comparisons of a
        model. There are no predictions.

    Raises
    ------
    UsageError
        If the task has no latitude and longitude, or for an odd number of caches.
    CacheMismatch
        If the caches do not match each other or the task.

    References
    ----------
    Gurnee & Tegmark 2023, Language Models Represent Space and Time.

    Examples
    --------
    >>> result = probekit.places("world.train.h5", "world.test.h5", task="world-places")  # doctest: +SKIP

    On the command line::

        probekit cache-activations --model gpt2 --task us-places:latitude+us-places:longitude --split train --out a.h5
        probekit places train.h5 test.h5 --task us-places --data-dir D --out places.parquet
        probekit places train.h5 test.h5 random.train.h5 random.test.h5 --task us-places --data-dir D
    """
    from probekit.analyses.places.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, test, *more), "TEST.h5"), task, data_dir, vectors, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for the middle of train, and for each layer."""
    rows = by_layer(rows)
    return rows.assign(line=rows["line"].replace("", "centroid"))


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    error, less = "great-circle-error", "difference(great-circle-error)"
    yield Cells("mean error, km", error, form=",.0f")
    yield Cells(interval(options), error, "interval", ",.0f", dim=True)
    yield Cells("shuffled", error, form=",.0f", target="shuffled", over="mean", dim=True)
    yield Cells("median, km", "great-circle-error-median", form=",.0f")
    yield Cells("R² latitude", "r2", where={"coordinate": "latitude"})
    yield Cells("R² longitude", "r2", where={"coordinate": "longitude"})
    yield Cells("minus the middle, km", less, form=",.0f", where={"against": "centroid"})
    yield Cells("p adjusted", less, "p_adjusted", "p", where={"against": "centroid"})


VIEW = View(_cells, title=lambda rows, options: f": {rows['n'].iloc[0]:,} places evaluated", lined=_lined)
ANALYSIS = Analysis(
    name="places",
    help="Predict where places are; errors in kilometres.",
    title="Places",
    reads=Reads.PAIRS,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.places.sentences:sentences",
    view="probekit.analyses.places:VIEW",
    place=80,
)
