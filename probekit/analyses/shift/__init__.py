"""Probes of one data set evaluated on others with the same labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import Checked, Draws, Ge, MinLen, Seed, Share
from probekit.grid import Column
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, by_layer, interval, lines_of

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result

ShiftEstimator = Literal["logistic", "mass-mean", "mlp", "k-sparse"]
"""The probes that give the probability of a class for one vector of an example."""


@dataclass(frozen=True, slots=True)
class ShiftOptions(Checked):
    """How probes of one data set are fitted and evaluated on others."""

    estimators: Annotated[tuple[ShiftEstimator, ...], MinLen(1)] = option(
        ("logistic", "mass-mean"), "Probes, separated by commas."
    )
    rate: Share = option(0.01, "Rate of false positives at which recall is measured, with two classes.")
    blocks: Annotated[int, Ge(2)] = option(
        10,
        "Parts into which train is cut, with groups kept whole. They are the folds that choose the penalty and the "
        "threshold of recall; each is also left out once, to measure how much the training examples matter.",
    )
    controls: Draws = option(10, "Number of control probes, fitted to shuffled labels.")
    resamples: ResamplesOrNone = option(
        1000, "Bootstrap resamples of the evaluated examples for intervals; 0 for none."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of the blocks, controls and resamples.")


@public(vectors=VectorOptions, options=ShiftOptions)
def shift(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    tasks: tuple[str, ...] | str = (),
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: ShiftOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit probes on each of several data sets with the same labels, and evaluate each of them on all.

    The result is a matrix for each layer: the rows say on which data set a probe was fitted, the columns on which it is
    evaluated. The diagonal is a probe on held-out examples of its own data set; cells of one column have the same test
    examples, so their differences to the diagonal are paired. With two classes each cell has AUROC, accuracy, and
    recall at a threshold that 1 % of the negatives of train exceed, with the share of negatives of test that exceed it.
    In simulations, 95 % intervals of recall contained the truth in 86 to 98 % of the runs; the others in 90 to 98 %.

    Parameters
    ----------
    train : path or ActivationCache
        The cache of the first data set to fit on. Each data set has the name of its task.
    dev : path or ActivationCache
        The cache of the first data set to evaluate on.
    *more : path or ActivationCache
        Further pairs, TRAIN DEV: other data sets, and the same ones with other weights, such as random ones, which give
        a matrix of their own.
    tasks : tuple of str, optional
        Of caches of the sentences of several tasks (``task="A+B"``): the tasks that are data sets, separated by commas
        (default: one cache is one data set).
    data_dir : path, optional
        The folder of the files of these tasks, as for :func:`probekit.load_task`.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : ShiftOptions
        ``estimators``, ``rate``, ``blocks``, ``controls`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer, probe and cell (``trained_on``, ``task``): "accuracy", and with two classes "auroc",
        "recall-at-rate" and "false-positive-rate" at the threshold that the scores out of fold on train give, and
        "recall-at-rate-on-test" at the test set's own threshold. Their intervals are over the evaluated groups, for
        these probes. Rows of "difference(METRIC)" are a cell minus the diagonal of its column, with intervals and p
        that include the choice of training examples, corrected by Holm (``p_adjusted``) over all cells, layers, probes
        and models of a metric. Areas and recalls need 10 examples (groups) of each class for an interval or p; ``why``
        says so. Rows of the target "shuffled" are probes of shuffled labels. The predictions are those of each probe
        for each evaluated example.

    Raises
    ------
    UsageError
        For data sets with different labels or one name, fewer groups than blocks, a class that is missing in train, and
        unknown layers.
    CacheMismatch
        If a cache occurs twice, or the caches of a data set or a model do not match.

    References
    ----------
    Marks & Tegmark 2023, The Geometry of Truth, section 4 (train × test); DeLong, DeLong & Clarke-Pearson 1988 (areas);
    Obuchowski 1997 (groups).

    Examples
    --------
    >>> result = probekit.shift("cities.train.h5", "cities.dev.h5", "neg.train.h5", "neg.dev.h5")  # doctest: +SKIP

    On the command line::

        probekit shift cities.train.h5 cities.dev.h5 neg_cities.train.h5 neg_cities.dev.h5 --out shift.parquet
        probekit shift en.train.h5 en.dev.h5 de.train.h5 de.dev.h5 --estimators mass-mean --rate .05
        probekit plot shift shift.parquet --out shift.pdf
    """
    from probekit.analyses.shift.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, dev, *more)), tasks, data_dir, vectors, options, progress)


def _lined(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each layer and cell."""
    rows = by_layer(rows)
    return rows.assign(line=lines_of(rows["line"], rows["trained_on"], rows["task"]))


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    two = "auroc" in set(rows["metric"])
    main, per = "auroc" if two else "accuracy", f"{100 * options['rate']:g} %"
    yield Cells(main, main)
    yield Cells(interval(options), main, "interval", dim=True, align="center")
    yield Cells("shuffled", main, target="shuffled", over="range", dim=True)
    yield Cells("minus diagonal", f"difference({main})")
    yield Cells("p adjusted", f"difference({main})", "p_adjusted", "p")
    if two:
        yield Cells(f"recall at {per}", "recall-at-rate")
        yield Cells("false positives", "false-positive-rate")
        yield Cells("recall, own threshold", "recall-at-rate-on-test")


VIEW = View(
    _cells,
    title=lambda rows, options: f", {rows['estimator'].iloc[0]}",
    each=("model", "checkpoint", "step", "estimator"),
    keys=(
        Column("layer", key=True),
        Column("trained on", align="left", key=True),
        Column("evaluated on", align="left", key=True),
    ),
    lined=_lined,
)
ANALYSIS = Analysis(
    name="shift",
    help="Evaluate probes of one data set on others with the same labels.",
    title="Shift between data sets",
    reads=Reads.PAIRS,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.shift.sentences:sentences",
    view="probekit.analyses.shift:VIEW",
    layered=True,
    curves="probekit.plots.shift:by_training_set",
    place=70,
    in_suites=120.0,
)
