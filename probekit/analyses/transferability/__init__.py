"""Transferability scores: how well linear functions of each layer explain the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.analyses.options import VectorOptions, in_order
from probekit.analysis import Analysis, Corrected, Reads
from probekit.constraint import MOST_DRAWS, Checked, Ge, Most, OrZero, Positive, Seed
from probekit.public import public
from probekit.recipe import option
from probekit.runtime import Progress, no_progress
from probekit.view import Cells, View

if TYPE_CHECKING:
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.rows import Result

MEASURES = ("logme", "h-score", "transrate")


@dataclass(frozen=True, slots=True)
class TransferabilityOptions(Checked):
    """Which transferability scores are measured, and their chance level."""

    measures: tuple[str, ...] = option(
        MEASURES,
        "Scores, separated by commas: logme, h-score, transrate (takes longest: a determinant for each class and "
        "permutation).",
    )
    draws: Annotated[int, OrZero(19, "none (p <= .05 needs 19)"), Most(MOST_DRAWS)] = option(
        100, "Permutations of the labels, for the chance level and p; 0 for none. p is at least 1 / (1 + draws)."
    )
    eps: Positive = option(1e-4, "Squared error with which transrate codes the vectors.")
    max_examples: Annotated[int, Ge(4)] | None = option(
        10_000, "Number of examples to draw if there are more (none: use all)."
    )
    seed: Seed = option(0, "Seed of the permutations and of the draw.")

    def together(self) -> None:
        object.__setattr__(self, "measures", in_order(self.measures, MEASURES, "score"))


@public(vectors=VectorOptions, options=TransferabilityOptions)
def transferability(
    *caches: str | Path | ActivationCache,
    vectors: VectorOptions,
    options: TransferabilityOptions,
    progress: Progress = no_progress,
) -> Result:
    """Score how well linear functions of each layer explain the labels, without training a classifier.

    LogME is the evidence of a Bayesian linear model of the labels, in nats per example, and the only score for numbers.
    H-score compares the variance between classes with that of all vectors. TransRate is the number of nats that a code
    of the vectors saves if the classes are known. Each is shown with its mean over permuted labels; p is corrected over
    the layers of a cache.

    Parameters
    ----------
    *caches : path or ActivationCache
        One or more caches; each is scored separately.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : TransferabilityOptions
        ``measures``, ``draws``, ``eps``, ``max_examples``, ``seed``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each cache and layer with target "gold":

        - "logme", the largest evidence of a Bayesian linear model of the labels, nats per example; also for numbers;
        - "h-score", the variance between classes relative to the shrunk covariance, from 0 to the number of classes
          minus 1;
        - "transrate", the nats that a code of the vectors saves if the classes are known.

        ``p`` is one-sided: the proportion of permutations of the labels, including the actual order, with at least
        this score. ``p_adjusted`` is corrected over the layers of all caches with these labels (largest standardised
        score). ``null_mean``, ``null_sd``, ``null_low`` and ``null_high`` are the mean, standard deviation and 2.5 %
        and 97.5 % quantiles of the permutations, and ``draws`` is their number; rows with target "shuffled" repeat them
        for figures. Groups of examples are permuted as a whole. ``calibrated`` (of "h-score") is 0 at that mean and 1
        at the largest possible score. ``left_out`` counts unlabelled examples, and ``note`` says what is undefined.

    Raises
    ------
    UsageError
        For labels of one class, no more examples than classes, and fewer than 4 examples.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    References
    ----------
    See :mod:`probekit.probes.transferability`.

    Examples
    --------
    >>> result = probekit.transferability("cola.train.h5", "cola.train-random.h5")  # doctest: +SKIP
    >>> result.plot(metric="logme")  # doctest: +SKIP

    On the command line::

        probekit transferability cola.train.h5 --out scores.parquet
        probekit transferability cola.train.h5 sst2.train.h5 --measures logme,h-score --draws 1000
        probekit plot layers scores.parquet --metric logme
    """
    from probekit.analyses.transferability.measure import measure

    return measure(caches, vectors, options, progress)


def _cells(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[Cells]:
    from probekit.metrics import METRICS

    for metric in dict.fromkeys(rows["metric"]):
        yield Cells(METRICS[metric].title, metric, best=True)
        yield Cells("by chance", metric, "null_mean", dim=True)
        yield Cells("calibrated", metric, "calibrated")
        yield Cells("p adjusted", metric, "p_adjusted", "p")


def _notes(rows: pd.DataFrame, options: Mapping[str, Any]) -> Iterator[str]:
    from probekit.metrics import METRICS

    gold = rows[rows["target"] == "gold"]
    for metric, note in dict.fromkeys(zip(gold["metric"], gold["note"], strict=True)):
        if note:
            yield f"{METRICS[metric].title}: {note}"
    if left_out := gold["left_out"].iloc[0]:
        yield f"unlabelled, left out: {left_out:,}"


VIEW = View(_cells, notes=_notes)
ANALYSIS = Analysis(
    name="transferability",
    help="Score each layer by its labels, without a classifier.",
    title="Transferability scores",
    reads=Reads.CACHES,
    corrected=Corrected.CURVE,
    judge="probekit.analyses.transferability.sentences:sentences",
    view="probekit.analyses.transferability:VIEW",
    layered=True,
    place=40,
)
