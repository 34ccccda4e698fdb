"""What the rows of an analysis show, in words: one to a few sentences for each task, and nothing beyond their tests.

A layer is said to beat shuffled labels, to hold information or to save bits only where its p-value is 0.05 at most
after correction for all layers of all curves (models, checkpoints, seeds of random weights) of the task; a comparison
goes by the correction that it was asked for. A layer is called best only together with every layer that is not shown to
be worse: the set holds the true best layer with a probability of 95 %. What has no p-value is called not tested; what
has no value, undetermined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from probekit.analyses.verdict.comparisons import compare, domains, guidelines, summary
from probekit.analyses.verdict.layers import mdl, mi, probe
from probekit.analyses.verdict.words import short
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

    from probekit.recipe import Recipe
    from probekit.rows import Result

__all__ = ["sentences", "verdict"]

JUDGES: dict[str, Callable[[Any, Sequence[Predictions]], Iterator[str]]] = {
    "probe": probe, "mi": mi, "mdl": mdl, "compare": compare, "summary": summary, "domains": domains,
    "guidelines": guidelines,
}  # fmt: skip
"""By analysis, what makes sentences of the rows of one task."""


def verdict(result: Result) -> tuple[str, ...]:
    """The sentences of a result; () for an analysis that has none.

    Examples
    --------
    >>> result = probekit.probe("rte.train.h5", "rte.dev.h5")  # doctest: +SKIP
    >>> probekit.analyses.verdict.verdict(result)  # doctest: +SKIP
    ('rte: no layer beats shuffled labels (best accuracy .567 at layer 1, majority .527, p adjusted ≥ .12).',)
    """
    return (*sentences(result.rows, result.predictions), *_quick(result.recipe))


def sentences(rows: pd.DataFrame, predictions: Sequence[Predictions] = ()) -> tuple[str, ...]:
    """What rows show, one analysis and task after another.

    Parameters
    ----------
    rows : DataFrame
        Of one or several analyses.
    predictions : sequence of Predictions
        The predictions for each example that rows of ``probe`` come from, by which the best layer is compared with the
        others. Without them it is compared by the intervals that hold all layers at once, which show less.

    Returns
    -------
    tuple of str
        Whole sentences.
    """
    found: list[str] = []
    for analysis, own in rows.groupby("analysis", sort=False):
        if (judge := JUDGES.get(str(analysis))) is None:
            continue
        for (task, split), part in own.groupby(["task", "split"], sort=False):
            several = own.loc[own["task"] == task, "split"].nunique() > 1
            name = f"{short(task)} {split}" if several else short(task)
            tables = [one for one in predictions if (one.task, one.split) == (task, split)]
            found += [f"{name}: {text}." if name else f"{text}." for text in judge(part, tables)]
    return tuple(found)


def _quick(recipe: Recipe | None) -> Iterator[str]:
    """That probes were fitted in a hurry: one penalty path on one part of train, and no shuffled labels."""
    told = {**recipe.defaults, **recipe.arguments} if recipe and recipe.function in ("probe", "run") else {}
    if told.get("quick") or (told.get("controls") == 0 and told.get("held_out")):
        yield (
            "A quick look: the penalty was chosen on one held-out part of train, and no probe was trained on shuffled "
            "labels; p is of permuted labels of what was evaluated."
        )
