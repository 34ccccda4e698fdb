"""Probes of one model on the layers of another of the same examples: did a direction move?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from probekit.analyses.options import VectorOptions
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import Checked, Draws, Ge, MinLen, Positive, Seed, Share
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.statistics.options import ResamplesOrNone
from probekit.view import Cells, Options, View, interval

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result


@dataclass(frozen=True, slots=True)
class DirectionsOptions(Checked):
    """Which probes are fitted, and how they are compared."""

    metric: str | None = option(
        None,
        "A metric of predictions (default: the task's first); not one of scores, such as auroc: probes of two "
        "models have scores of their own scale. Nor an error, such as rmse: it has the units of the labels.",
    )
    estimator: Literal["logistic", "mass-mean"] = option(
        "logistic", "The probe of classes: logistic or mass-mean (difference of means). Of numbers it is ridge."
    )
    penalties: Annotated[tuple[Positive, ...], MinLen(1)] | None = option(
        None, "Penalties to choose from, separated by commas: C (inverse), shrinkage, or alpha of ridge regression."
    )
    folds: Annotated[int, Ge(2)] = option(
        5, "Cross-validation folds of train that choose the penalty; groups stay whole."
    )
    other_layers: bool = option(
        default=True, help="Also the probes of each layer on every other layer: the matrix, without intervals."
    )
    margin: Positive = option(
        0.05, "The loss, in units of the metric, below which a direction counts as kept: its whole interval must be."
    )
    draws: Draws = option(5, "Orthogonal maps between unrelated rows of train.")
    any_split: bool = option(False, "Accept splits with other names than train and dev.")
    resamples: ResamplesOrNone = option(
        1000, "Bootstrap resamples of dev for intervals, and draws under the null; 0 for neither."
    )
    level: Share = option(0.95, "Coverage of the intervals.")
    seed: Seed = option(0, "Seed of folds, halves, unrelated rows, resamples and draws.")


@public(vectors=VectorOptions, options=DirectionsOptions, faster="other_layers=False")
def directions(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: DirectionsOptions,
    progress: Progress = no_progress,
) -> Result:
    """Apply probes of one model to the layers of another of the same examples, and back.

    The first pair is the reference, such as the pretrained model; each other pair, such as the fine-tuned one, is
    compared with it. A probe of a layer of the one model reads the vectors of the other

    - "as is";
    - "rescaled": each dimension gets the mean and standard deviation that it has in train of the probe's own model;
    - "mapped": after the orthogonal map, with one scale, that brings train of the one closest to train of the other.

    No map sees a label. Beside them is the "native" probe of the model that is read. If a direction is kept, nothing is
    lost as is; if it is only rescaled, nothing after rescaling; if it moved as a rotation moves it, nothing after the
    map.

    Parameters
    ----------
    train, dev : path or ActivationCache
        The caches of the reference, to fit probes on and to evaluate them on.
    *more : path or ActivationCache
        Pairs, TRAIN DEV, of other models with vectors of the same width: fine-tuned, other seeds, checkpoints. Examples
        are matched by id.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : DirectionsOptions
        ``metric``, ``estimator``, ``margin``, ``other_layers`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each other model; ``against`` names the reference. The column ``way`` says whose probes are read:
        "forward" (of the reference on the model), "back", or "both" (all examples of both ways together); ``after``
        what was done to the vectors, ``fitted_layer`` the layer of the probe.

        - The metric, with intervals by examples; p and ``null_mean`` are those of permuted labels. Rows of the target
          "unrelated rows" are maps between rows that do not belong together.
        - "difference(METRIC)", ``after`` minus ``against``. Both ways, p is the probability of a loss at least as large
          if the vectors of the two models are exchanged at random, example by example (group by group);
          ``p_adjusted`` is corrected over layers (min-p).
        - "direction-angle", degrees between the direction of the transferred probe, in the space of the vectors that it
          reads (each dimension in its standard deviations), and the native one. ``within_halves`` is the mean angle of
          native probes of two halves of train, ``across_halves`` of one half transferred and the other native; 5 % of
          random directions are below ``null_low``.

    Raises
    ------
    UsageError
        For fewer than two pairs, other layers or widths than the reference has, several labels of an example, a metric
        that predictions do not determine, and as in :func:`probekit.probe`.
    CacheMismatch
        If the two caches of a pair do not match.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.movement : How far the vectors themselves move.
    probekit.shift : Probes of one data set on others.

    References
    ----------
    Schönemann 1966, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 31.

    Examples
    --------
    >>> result = probekit.directions("train.h5", "dev.h5", "train-tuned.h5", "dev-tuned.h5")  # doctest: +SKIP
    >>> result.verdict  # doctest: +SKIP

    On the command line::

        probekit directions train.h5 dev.h5 train-tuned.h5 dev-tuned.h5 --out directions.parquet
        probekit plot directions directions.parquet
        probekit plot directions directions.parquet --matrix as-is
    """
    from probekit.analyses.directions.measure import measure
    from probekit.analyses.train_dev import Pairs

    return measure(Pairs((train, dev, *more)), vectors, options, progress)


def _cells(rows: pd.DataFrame, options: Options) -> Iterator[Cells]:
    value = next(metric for metric in rows["metric"] if not metric.startswith("difference("))
    lost = f"difference({value})"
    yield Cells(f"native {value}", value, where={"after": "native"})
    for after in ("as is", "rescaled", "mapped"):
        of = {"after": "native", "against": after}
        yield Cells(f"lost {after}", lost, where=of)
        yield Cells(interval(options), lost, "interval", where=of, dim=True, align="center", optional=1)
        yield Cells("p adjusted", lost, "p_adjusted", "p", where=of)


def _title(rows: pd.DataFrame, options: Options) -> str:
    from probekit.display import shown_label

    return (
        f" and {shown_label(rows['against_model'].iloc[0])}, probes of each on the other: {rows['n'].max():,} examples"
    )


def _both_ways(rows: pd.DataFrame) -> pd.DataFrame:
    from probekit.view import by_layer

    return by_layer(rows[(rows["way"] == "both") & (rows["target"] == "gold")])


ANALYSIS = Analysis(
    name="directions",
    help="Apply probes of one model to another: did fine-tuning move a direction, or rescale it?",
    title="Probes across models",
    reads=Reads.REFERENCE_PAIRS,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.directions.sentences:sentences",
    view="probekit.analyses.directions:VIEW",
    layered=True,
    curves="probekit.plots.directions:both_ways",
    place=65,
)
VIEW = View(_cells, title=_title, lined=_both_ways)
