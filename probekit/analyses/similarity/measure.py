"""How alike the layers of caches are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.matching import Matched, Side, by_step, check_finite, matched, opened
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import precision_of
from probekit.display import shown_label
from probekit.errors import NonFiniteError
from probekit.notes import logger
from probekit.rows import Result, called, make_rows
from probekit.runtime import Progress, part_of
from probekit.similarity.layer_pairs import PairValues, layer_pairs
from probekit.similarity.options import SimilarityOptions
from probekit.sites import Site

log = logger(__name__)
OTHER = (
    *("model", "checkpoint", "step", "representation", "trained_on", "regime", "head", "variant"),
    *("random_weights", "run_seed"),
)
"""Columns of the second model, with the suffix _b."""
VALUES = (
    *("value", "ci_low", "ci_high", "p", "p_adjusted", "null_mean", "null_sd", "null_low", "null_high", "calibrated"),
)
LEVEL = 0.05


def measure(
    caches: Sequence[str | Path | ActivationCache],
    against: str,
    vectors: VectorOptions,
    options: SimilarityOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.similarity`."""
    with ExitStack() as stack:
        found = matched(by_step(opened(caches, stack)), vectors)
        pairs = list(_pairs(found.sides, against))
        tables = [_rows(a, b, found, options, part_of(progress, i, len(pairs))) for i, (a, b) in enumerate(pairs)]
        reads = tuple(side.read for side in found.sides)
    rows = pd.concat(tables, ignore_index=True)
    rows["p_adjusted"] = np.minimum(1, rows["p_adjusted"] * len(pairs))  # layers: largest value; caches: Bonferroni
    _check_draws(rows, len(pairs))
    return Result(make_rows(rows), reads=reads)


def _check_draws(rows: pd.DataFrame, pairs: int) -> None:
    """Warn of too few permutations for so many pairs of caches."""
    for metric, draws in rows.groupby("metric", sort=False)["draws"].max().dropna().items():
        if draws and pairs > LEVEL * (1 + draws):
            log.warning(
                "%s: %s permutations cannot show anything at p adjusted %s over %s pairs of caches; --draws %s "
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
                check_finite(read(), side.cache, name, found.labels)
        raise
    other = {f"{key}_b": b.columns.get(key) for key in OTHER}
    head = {"analysis": "similarity", **a.columns, **found.group_columns, "estimator": "", "target": "gold"} | other
    for note in dict.fromkeys(note for values in by_measure.values() for note in values.notes):
        measures = ", ".join(name for name, values in by_measure.items() if note in values.notes)
        log.warning("%s and %s, %s: %s", *(shown_label(called(side.columns)) for side in (a, b)), measures, note)
    return pair_rows(by_measure, list(a.layers), list(b.layers), {**head, "seed": options.seed})


def pair_rows(
    by_measure: Mapping[str, PairValues], a: Sequence[str], b: Sequence[str], about: Mapping[str, Any]
) -> pd.DataFrame:
    """A row for each measure and pair of layers, those of the first model in the outer order."""
    tables = [_of_measure(name, values, a, b) for name, values in by_measure.items()]
    rows = pd.concat(tables, ignore_index=True).assign(**about)
    for column in ("step_b", "layer_b", "random_weights_b", "run_seed_b", "draws"):
        rows[column] = pd.array(rows[column].tolist() if column in rows else [None] * len(rows), dtype="Int64")
    return rows


def _of_measure(name: str, values: PairValues, a: Sequence[str], b: Sequence[str]) -> pd.DataFrame:
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
