"""Paired differences from the predictions of probes for each example; nothing is fitted again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from probekit.analysis import analyses
from probekit.errors import UsageError, naming
from probekit.files import digest_of_content
from probekit.notes import logger
from probekit.recipe import Read
from probekit.rows import Result, read
from probekit.rows.model_names import results_apart
from probekit.statistics.comparisons import compare_tables
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions

log = logger(__name__)

Evaluated = str | Path | Result | Predictions
"""Predictions for each example: a result, its file, the file of the predictions, or the table itself."""


def measure(first: Evaluated, second: Evaluated | None, options: CompareOptions) -> Result:
    """The rows of :func:`probekit.compare`."""
    if second is not None and not isinstance(first, Predictions) and not isinstance(second, Predictions):
        first, second = results_apart([one if isinstance(one, Result) else read(one) for one in (first, second)])
    tables, reads = predictions_of(first)
    if options.against == "permuted":
        _check_labels(tables)
    if second is None:
        pairs: list[tuple[Predictions, Predictions | None]] = [(one, None) for one in tables]
    else:
        others, more = predictions_of(second)
        reads, pairs = [*reads, *more], _paired(tables, others)
    with naming(first if second is None else None):
        rows = compare_tables(pairs, options)
    if warnings := list(dict.fromkeys(filter(None, (_other_training(one, other) for one, other in pairs if other)))):
        log.warning("%s", "; ".join(warnings))
        rows = rows.assign(warning="; ".join(warnings))
    return Result(rows, reads=tuple(reads))


def predictions_of(given: Evaluated) -> tuple[tuple[Predictions, ...], list[Read]]:
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
        for analysis in table.fits.get("analysis", pd.Series(dtype=str)).unique():
            if analysis not in analyses() or (of := analyses()[analysis].of_one_label) is None:
                continue
            what, control = of
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
