"""Conclusions from the rows of an analysis, as far as the tests support them: one or a few sentences per task.

A sentence says that a layer beats permuted labels, holds information or saves bits only if its p-value is at most 0.05
after correction for all layers of all curves (models, checkpoints, seeds of random weights) of the task; comparisons
use their chosen correction, and other analyses that of their rows: transferability over all layers of all caches with
the same labels, shift over all differences of a metric. The best layer is reported together with all layers that are
not shown to be worse: the set contains the true best layer with a probability of 95 %. Values without a p-value are
called not tested, missing values undetermined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from probekit.analyses.verdict.dictionaries import said_of
from probekit.analyses.verdict.words import short
from probekit.analysis import analyses, load
from probekit.rows.families import OVER, over_families
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

    from probekit.recipe import Read, Recipe
    from probekit.rows import Result


def verdict(result: Result) -> tuple[str, ...]:
    """The sentences of a result; () for an analysis without any.

    Examples
    --------
    >>> result = probekit.probe("rte.train.h5", "rte.dev.h5")  # doctest: +SKIP
    >>> probekit.analyses.verdict.verdict(result)  # doctest: +SKIP
    ('rte: no layer beats permuted labels (best accuracy .567 at layer 1, majority .527, p adjusted ≥ .12).',)
    """
    found = sentences(result.rows, result.predictions)
    return (*found, *said_of(result.rows), *_quick(result.recipe), *(_doubts(result.reads) if found else ()))


def sentences(rows: pd.DataFrame, predictions: Sequence[Predictions] = ()) -> tuple[str, ...]:
    """The conclusions from rows, by analysis and task.

    Parameters
    ----------
    rows : DataFrame
        Rows of one or several analyses.
    predictions : sequence of Predictions
        The predictions for each example of rows of ``probe``, which compare the best layer with the others, and each
        layer with random weights and a bag of word pieces. Without them, these are not compared.

    Returns
    -------
    tuple of str
        Whole sentences.
    """
    found: list[str] = []
    if "p_adjusted" in rows and OVER.get() > 1:
        rows = rows.assign(p_adjusted=over_families(rows["p_adjusted"].to_numpy(dtype=float)))
    for analysis, of_analysis in rows.groupby("analysis", sort=False):
        if (judge := _judge(str(analysis))) is None:
            continue
        for (task, split), part in of_analysis.groupby(["task", "split"], sort=False):
            several = of_analysis.loc[of_analysis["task"] == task, "split"].nunique() > 1
            name = f"{short(task)} {split}" if several else short(task)
            tables = [one for one in predictions if (one.task, one.split) == (task, split)]
            found += [f"{name}: {text}." if name else f"{text}." for text in judge(part, tables)]
    return tuple(found)


def _judge(analysis: str) -> Callable[[Any, Sequence[Predictions]], Iterator[str]] | None:
    """The function that turns the rows of one task into sentences."""
    known = analyses().get(analysis)
    return load(known.judge) if known and known.judge else None


def _quick(recipe: Recipe | None) -> Iterator[str]:
    """Notes on quick looks, whose penalty one held-out part of train chose, and on probes without shuffled labels."""
    options = {**recipe.defaults, **recipe.arguments} if recipe and recipe.function in ("probe", "run") else {}
    quick = options.get("quick") or (options.get("controls") == 0 and options.get("held_out"))
    if quick:
        yield "Quick look: the penalty was chosen on one held-out part of train."
    if quick or options.get("controls") == 0:
        yield "No probe was trained on shuffled labels; p comes from permuting the labels of the evaluated examples."


def _doubts(reads: Sequence[Read]) -> Iterator[str]:
    """What is not known of the models that were read: whether an adapter is on the base that it was trained on."""
    specs = [read.about if read.kind == "model" else read.about.get("spec") or {} for read in reads]
    for model, doubt in dict.fromkeys((spec.get("model"), doubt) for spec in specs for doubt in spec.get("doubts", ())):
        yield f"{model}: {doubt}."
