"""Paired differences between layers, models and controls, and layer curves in a few numbers.

The analyses behind ``probekit compare`` and ``probekit summary``: what probes said of each example goes in, rows come
out. Nothing is fitted again.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from probekit.errors import UsageError
from probekit.files import digest_of_content
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, read
from probekit.statistics.comparisons import compare_tables
from probekit.statistics.curves import curve_summary
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.statistics.predictions import Predictions

__all__ = ["compare", "summary"]

Evaluated = str | Path | Result | Predictions
"""What probes said of each example: a result, its file, the file of the examples, or the table itself."""


@public(options=CompareOptions)
def compare(first: Evaluated, second: Evaluated | None = None, /, *, options: CompareOptions) -> Result:
    """Paired differences on the same examples, with intervals and p-values corrected over the layers.

    Parameters
    ----------
    first : Result, Predictions or path
        Of :func:`probekit.probe`, or of a training: ``ROWS.parquet`` or ``ROWS.examples.parquet``.
    second : Result, Predictions or path, optional
        Another model, on the same examples.
    options : CompareOptions
        ``against``, ``metric``, ``correction``, ``family``, ``tails``, ``resamples``, ``level``, ``seed``; they may be
        given one by one. Each layer is held against ``against``: "layer-0" (any "layer-NAME"), "best",
        "shuffled", "control-task" or "random"; without it against the same layer of ``second``, or against layer 0.

    Returns
    -------
    Result
        Rows with the metric "difference(NAME)"; ``null`` (what p is the probability under), ``p``, ``p_adjusted``, and
        the interval of each difference alone and (``joint_low``, ``joint_high``) of all at once. See
        :func:`probekit.statistics.comparisons.compare_predictions` for the tests.

    Raises
    ------
    UsageError
        Where there is nothing to hold against, nothing was said of examples, or the two hold other examples.

    References
    ----------
    Westfall & Young 1993, Resampling-Based Multiple Testing, algorithm 2.8; Holm 1979; Hemerik & Goeman 2018, Exact
    testing with random permutations.

    Examples
    --------
    >>> from probekit.statistics.predictions import Predictions
    >>> import numpy as np, pandas as pd
    >>> gold = np.arange(200) % 2
    >>> right = np.arange(200)[None] % 10 < [[5], [9]]  # layer 0 is right of half, layer 1 of nine in ten
    >>> fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": [0, 1], "target": "gold"})
    >>> said = Predictions(fits, np.arange(200).astype(str), gold, np.where(right, gold, 1 - gold), ("accuracy",))
    >>> probekit.compare(said).rows[["layer", "metric", "value", "against"]].values.tolist()
    [[1, 'difference(accuracy)', 0.4, 'layer 0']]
    """
    tables, reads = _predictions(first)
    if second is None:
        pairs: list[tuple[Predictions, Predictions | None]] = [(one, None) for one in tables]
    else:
        others, more = _predictions(second)
        reads, pairs = [*reads, *more], _paired(tables, others)
    return Result(compare_tables(pairs, options), reads=tuple(reads))


@public(options=SummaryOptions)
def summary(first: Evaluated, /, *more: Evaluated, options: SummaryOptions) -> Result:
    """Layer curves in a few numbers, with intervals: best layer, centre of gravity, expected layer, first good layer.

    Parameters
    ----------
    first, *more : Result, Predictions or path
        Of :func:`probekit.probe`: ``ROWS.parquet`` or ``ROWS.examples.parquet``.
    options : SummaryOptions
        ``metric``, ``resamples``, ``level``, ``seed``; they may be given one by one.

    Returns
    -------
    Result
        Four rows a curve, in layers; the metric of the curve is the own column ``of_metric``.

    Raises
    ------
    UsageError
        Where there is no layer curve.

    References
    ----------
    Tenney, Das & Pavlick 2019, BERT Rediscovers the Classical NLP Pipeline, section 3.

    Examples
    --------
    >>> probekit.summary("cola.parquet", "sst2.parquet", metric="matthews")  # doctest: +SKIP
    """
    found = [_predictions(given) for given in (first, *more)]
    rows = [curve_summary(one, options) for tables, _ in found for one in tables]
    whole = pd.concat(rows, ignore_index=True)
    if whole.empty:
        raise UsageError("there is no layer curve in these tables.")
    return Result(whole, reads=tuple(read for _, reads in found for read in reads))


def _predictions(given: Evaluated) -> tuple[tuple[Predictions, ...], list[Read]]:
    """The tables of what was said of each example, and what they were read from."""
    if isinstance(given, Predictions):
        return (given,), []
    result = given if isinstance(given, Result) else read(given)
    if not result.predictions:
        raise UsageError(
            f"{'the result' if result.path is None else result.path} says nothing of single examples; what can be "
            "compared is that of probekit.probe, and the examples of a training (RUN/dev.examples.parquet)."
        )
    if result.file() is None:
        return result.predictions, list(result.reads)
    files = [f for f in result.prediction_files() if f.is_file()]
    return result.predictions, [Read(str(f), "predictions", digest_of_content(f)) for f in files]


def _paired(
    tables: tuple[Predictions, ...], others: tuple[Predictions, ...]
) -> list[tuple[Predictions, Predictions | None]]:
    """Each table with that of the same task and split."""
    if len(tables) == len(others) == 1:
        return [(tables[0], others[0])]
    known = {(other.task, other.split): other for other in others}
    pairs = [(one, known[one.task, one.split]) for one in tables if (one.task, one.split) in known]
    if not pairs:
        theirs = ", ".join(f"{task} {split}" for task, split in known)
        raise UsageError(f"the two are of no task and split in common; the second is of {theirs}.")
    return list(pairs)
