"""How alike the layers of one or several models are: the analysis of ``probekit similarity``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.matching import Matched, Side, by_step, check_finite, matched, opened
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import precision_of
from probekit.display import shown_label
from probekit.errors import NonFiniteError, UsageError
from probekit.public import public
from probekit.rows import Result, called, make_rows
from probekit.runtime import Progress, no_progress
from probekit.similarity.layer_pairs import PairValues, layer_pairs
from probekit.similarity.options import SimilarityOptions
from probekit.sites import Site

__all__ = ["similarity"]

log = logging.getLogger(__name__)
OTHER = (
    *("model", "checkpoint", "step", "representation", "trained_on", "regime", "head", "variant"),
    *("random_weights", "run_seed"),
)
"""Columns of the second model, with the suffix _b."""
VALUES = (
    *("value", "ci_low", "ci_high", "p", "p_adjusted", "null_mean", "null_sd", "null_low", "null_high", "calibrated"),
)
Against = Literal["first", "all"]
LEVEL = 0.05


@public(vectors=VectorOptions, options=SimilarityOptions)
def similarity(
    *caches: str | Path | ActivationCache,
    against: Against = "first",
    vectors: VectorOptions,
    options: SimilarityOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure how alike layers are: all pairs of layers of one model, or of two models on the same examples.

    Each value comes with the value that chance gives (the examples of one side permuted), a p-value, and an interval
    over examples. Groups of examples are permuted and resampled as a whole.

    Parameters
    ----------
    *caches : path or ActivationCache
        One cache: its layers with each other. Two: each layer of the first with each of the second, which may have
        another width and depth. More: each with the first, such as all checkpoints with step 0. All hold the same split
        of one task; examples are matched by id.
    against : {"first", "all"}
        With "all", three or more caches are compared in all pairs, as a dendrogram of models needs.
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : SimilarityOptions
        ``measures``, ``permutations``, ``resamples`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each measure and pair of layers. ``model``, ``step``, ``layer`` … are those of the first cache of the
        pair, ``model_b``, ``step_b``, ``layer_b``, ``site_b`` … those of the second. ``p`` is one-sided: the
        proportion of permutations that are at least as alike. ``p_adjusted`` is corrected for all pairs of layers of
        all compared caches. ``null_mean``, ``null_low`` and ``null_high`` are the mean and the 2.5 % and 97.5 %
        quantiles of the permutations, ``draws`` their number. ``calibrated`` is 0 at that mean and 1 for equal layers.

    Raises
    ------
    UsageError
        For caches of different tasks or splits, for fewer than 4 shared examples, and for equal ids with different
        labels.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    See Also
    --------
    probekit.movement : How far each example moves.
    probekit.similarity.options.Similarity : The measures.

    Examples
    --------
    >>> result = probekit.similarity("pretrained.dev.h5", "tuned.dev.h5", measures=("cka", "svcca"))  # doctest: +SKIP
    >>> result.plot()  # doctest: +SKIP
    """
    if against not in get_args(Against):
        raise UsageError(f"against is {against!r}; it must be 'first' or 'all'.")
    with ExitStack() as stack:
        found = matched(by_step(opened(caches, stack)), vectors)
        pairs = list(_pairs(found.sides, against))
        tables = [_rows(a, b, found, options, progress) for a, b in pairs]
        reads = tuple(side.read for side in found.sides)
    rows = pd.concat(tables, ignore_index=True)
    for column in ("step_b", "layer_b", "random_weights_b", "run_seed_b", "draws"):
        rows[column] = pd.array(rows[column].tolist() if column in rows else [None] * len(rows), dtype="Int64")
    rows["p_adjusted"] = np.minimum(1, rows["p_adjusted"] * len(pairs))  # layers: largest value; caches: Bonferroni
    _check_draws(rows, len(pairs))
    return Result(make_rows(rows), reads=reads)


def _check_draws(rows: pd.DataFrame, pairs: int) -> None:
    """Warn of too few permutations for so many pairs of caches."""
    for metric, draws in rows.groupby("metric", sort=False)["draws"].max().dropna().items():
        if draws and pairs > LEVEL * (1 + draws):
            log.warning(
                "%s: %s permutations cannot show anything at p adjusted %s over %s pairs of caches; --permutations %s "
                "or more can.", metric, f"{draws:,}", f"{LEVEL:g}", pairs, f"{round(pairs / LEVEL) - 1:,}",
            )  # fmt: skip


def _pairs(sides: tuple[Side, ...], against: str) -> Iterator[tuple[Side, Side]]:
    """The pairs of caches that are compared; one cache with itself."""
    if len(sides) == 1:
        yield sides[0], sides[0]
    elif against == "all":
        yield from combinations(sides, 2)
    else:
        yield from ((sides[0], other) for other in sides[1:])


def _rows(a: Side, b: Side, found: Matched, options: SimilarityOptions, progress: Progress) -> pd.DataFrame:
    """The rows of one pair of caches."""
    theirs = None if b is a else list(b.layers.values())
    try:
        by_measure = layer_pairs(
            list(a.layers.values()), theirs, options=options, groups=found.labels.groups,
            precision=[precision_of(side.cache) for side in (a, b)], progress=progress,
        )  # fmt: skip
    except NonFiniteError:
        for side in (a, b):
            for name, read in side.layers.items():
                check_finite(read(), side, name, found.labels)
        raise
    other = {f"{key}_b": b.columns.get(key) for key in OTHER}
    head = {"analysis": "similarity", **a.columns, **found.group_columns, "estimator": "", "target": "gold"} | other
    for note in dict.fromkeys(note for values in by_measure.values() for note in values.notes):
        measures = ", ".join(name for name, values in by_measure.items() if note in values.notes)
        log.warning("%s and %s, %s: %s", *(shown_label(called(side.columns)) for side in (a, b)), measures, note)
    tables = [_of_measure(name, values, list(a.layers), list(b.layers)) for name, values in by_measure.items()]
    return pd.concat(tables, ignore_index=True).assign(**head, seed=options.seed)


def _of_measure(name: str, values: PairValues, a: list[str], b: list[str]) -> pd.DataFrame:
    """A row for each pair of layers, those of the first model in the outer order."""
    sites = [Site.parse(layer) for layer in b]
    return pd.DataFrame(
        {
            "metric": name,
            "layer_name": np.repeat(a, len(b)),
            "layer_b": [site.layer for site in sites] * len(a),
            "site_b": [site.name for site in sites] * len(a),
            **{column: getattr(values, column).ravel() for column in VALUES},
            "draws": values.draws,
            "n": values.n,
            "note": "; ".join(values.notes),
        }
    )
