"""Paired differences between layers, models and controls, and summaries of layer curves.

The analyses of ``probekit compare`` and ``probekit summary``: they turn the predictions of probes for each example
into rows and fit nothing again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from probekit.errors import UsageError, naming
from probekit.files import digest_of_content
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, read
from probekit.statistics.comparisons import compare_tables
from probekit.statistics.curves import curve_summary
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.statistics.predictions import Predictions

__all__ = ["compare", "summary"]

log = logging.getLogger(__name__)

OF_ONE_LABEL = {
    "structural": (
        "edge of a gold tree whether it was found",
        'Probes of shuffled trees are the rows of the target "shuffled" (probekit plot layers draws them).',
    ),
    "pairs": (
        "pair whether the good sentence is preferred",
        "A guess is right on half of the pairs: the intervals of the rows say whether a layer is above it.",
    ),
}
"""Analyses whose predictions are right (1) or wrong (0): what they say, and where their control is."""
Evaluated = str | Path | Result | Predictions
"""Predictions for each example: a result, its file, the file of the predictions, or the table itself."""


@public(options=CompareOptions)
def compare(first: Evaluated, second: Evaluated | None = None, /, *, options: CompareOptions) -> Result:
    """Paired differences on the same examples, with intervals and p-values corrected over the layers.

    Parameters
    ----------
    first : Result, Predictions or path
        A result of :func:`probekit.probe` or of a training: ``ROWS.parquet`` or ``ROWS.examples.parquet``.
    second : Result, Predictions or path, optional
        The result of another model on the same examples.
    options : CompareOptions
        ``against``, ``metric``, ``correction``, ``family``, ``tails``, ``resamples``, ``level``, ``seed``; each may be
        given as a keyword. Each layer is compared with ``against``: "layer-0" (any "layer-NAME"), "best", "permuted",
        "control-task", "random" or "bag-of-pieces"; by default with the same layer of ``second``, or else with
        layer 0.

    Returns
    -------
    Result
        Rows with the metric "difference(NAME)"; ``null`` (the null hypothesis of p), ``p``, ``p_adjusted``, the
        interval of each difference, and the interval that holds for all differences at once (``joint_low``,
        ``joint_high``). See :func:`probekit.statistics.comparisons.compare_predictions` for the tests.

    Raises
    ------
    UsageError
        If there is nothing to compare with, if there are no predictions, if the examples of the two differ, or for
        "shuffled" if the predictions have no labels (those of ``structural`` and ``pairs``).

    References
    ----------
    Westfall & Young 1993, Resampling-Based Multiple Testing, algorithm 2.8; Holm 1979; Hemerik & Goeman 2018, Exact
    testing with random permutations.

    Examples
    --------
    >>> from probekit.statistics.predictions import Predictions
    >>> import numpy as np, pandas as pd
    >>> gold = np.arange(200) % 2
    >>> right = np.arange(200)[None] % 10 < [[5], [9]]  # layer 0 is right on half, layer 1 on nine in ten
    >>> fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": [0, 1], "target": "gold"})
    >>> table = Predictions(fits, np.arange(200).astype(str), gold, np.where(right, gold, 1 - gold), ("accuracy",))
    >>> probekit.compare(table).rows[["layer", "metric", "value", "against"]].values.tolist()
    [[1, 'difference(accuracy)', 0.4, 'layer 0']]
    """
    tables, reads = _predictions(first)
    if options.against == "permuted":
        _check_labels(tables)
    if second is None:
        pairs: list[tuple[Predictions, Predictions | None]] = [(one, None) for one in tables]
    else:
        others, more = _predictions(second)
        reads, pairs = [*reads, *more], _paired(tables, others)
    with naming(first if second is None else None):
        rows = compare_tables(pairs, options)
    if warnings := list(dict.fromkeys(filter(None, (_other_training(one, other) for one, other in pairs if other)))):
        log.warning("%s", "; ".join(warnings))
        rows = rows.assign(warning="; ".join(warnings))
    return Result(rows, reads=tuple(reads))


@public(options=SummaryOptions)
def summary(first: Evaluated, /, *more: Evaluated, options: SummaryOptions) -> Result:
    """Summarise layer curves, with intervals: best layer, centre of gravity, expected layer, first good layer.

    Parameters
    ----------
    first, *more : Result, Predictions or path
        From :func:`probekit.probe`: ``ROWS.parquet`` or ``ROWS.examples.parquet``.
    options : SummaryOptions
        ``metric``, ``resamples``, ``level``, ``seed``; each may be given as a keyword.

    Returns
    -------
    Result
        Four rows per curve, in layers; the additional column ``of_metric`` is the metric of the curve.

    Raises
    ------
    UsageError
        If there is no layer curve.

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
        raise UsageError("these tables contain no layer curve; give the predictions of probekit probe.")
    return Result(whole, reads=tuple(read for _, reads in found for read in reads))


def _predictions(given: Evaluated) -> tuple[tuple[Predictions, ...], list[Read]]:
    """The tables of predictions, and the files they were read from."""
    if isinstance(given, Predictions):
        return (given,), []
    result = given if isinstance(given, Result) else read(given)
    if not result.predictions:
        raise UsageError(
            f"{'the result' if result.path is None else result.path} has no predictions for single examples; give the "
            "result of probekit.probe, or the examples of a training (RUN/dev.examples.parquet)."
        )
    if any("shift" in set(table.fits.get("analysis", ())) for table in result.predictions):
        raise UsageError(
            f"{'the result' if result.path is None else result.path} is of probes of several data sets. Their "
            'differences are in its rows, "difference(auroc)" and so on, with p that includes the choice of training '
            "examples; here it would be left out, and the curves would not say what they were trained on."
        )
    if result.file() is None:
        return result.predictions, list(result.reads)
    files = [f for f in result.prediction_files() if f.is_file()]
    return result.predictions, [Read(str(f), "predictions", digest_of_content(f)) for f in files]


def _check_labels(tables: Iterable[Predictions]) -> None:
    """UsageError for predictions that are all of one gold label, which shuffling does not change."""
    for table in tables:
        if (analysis := next(iter(set(table.fits.get("analysis", ())) & set(OF_ONE_LABEL)), None)) is not None:
            what, control = OF_ONE_LABEL[analysis]
            raise UsageError(
                f"the predictions of probekit {analysis} say of each {what}, so that all gold labels are the same, and "
                f"shuffling them changes nothing. {control} Compare with layer-0, best, random or another file."
            )


def _other_training(one: Predictions, other: Predictions) -> str:
    """That the probes of two tables were trained on different data, or ""."""
    sizes = [sorted(set(table.fits.get("n_train", pd.Series()).dropna())) for table in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        numbers = " and ".join(" or ".join(f"{int(n):,}" for n in counts) for counts in sizes)
        return f"the fits differ in training data, too: {numbers} examples"
    tasks = [sorted(set(table.fits.get("trained_on", pd.Series()).dropna()) - {""}) for table in (one, other)]
    if all(tasks) and tasks[0] != tasks[1]:
        return f"the fits differ in training data, too: {', '.join(tasks[0])} and {', '.join(tasks[1])}"
    return ""


def _paired(
    tables: tuple[Predictions, ...], others: tuple[Predictions, ...]
) -> list[tuple[Predictions, Predictions | None]]:
    """Pair each table with the one for the same task and split."""
    if len(tables) == len(others) == 1:
        return [(tables[0], others[0])]
    known = {(other.task, other.split): other for other in others}
    pairs = [(one, known[one.task, one.split]) for one in tables if (one.task, one.split) in known]
    if not pairs:
        theirs = ", ".join(f"{task} {split}" for task, split in known)
        raise UsageError(f"the two have no task and split in common; the second has {theirs}.")
    return list(pairs)
