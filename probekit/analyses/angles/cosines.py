"""Cosines of pairs of probes, and whether they are larger than those of permuted labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probekit.probes.angles import Refits, cosine
from probekit.similarity.chance import judged as against_null


@dataclass(frozen=True, slots=True)
class Judged:
    """Cosines of pairs of probes beside those of halves of train and of permuted labels, all (pairs,).

    Attributes
    ----------
    value : np.ndarray
        Between the kept directions.
    within, across : np.ndarray
        Between halves of train: the mean of each probe with itself; the mean of the one probe of one half with the
        other probe of the other.
    high : np.ndarray
        The absolute cosine across halves below which a share ``level`` of permuted labels lies.
    p, p_adjusted : np.ndarray
        Of the cosine across halves, two-sided; corrected over pairs by the largest standardised value of each draw.
    """

    value: np.ndarray
    within: np.ndarray
    across: np.ndarray
    high: np.ndarray
    p: np.ndarray
    p_adjusted: np.ndarray


def judged(
    kept: Sequence[np.ndarray], fits: Sequence[Refits], pairs: Sequence[tuple[int, int]], level: float, *, scaled: bool
) -> Judged:
    """Cosines of pairs of probes, and whether they are larger across halves than with permuted labels.

    Labels are permuted in three ways: of the first probe, the second as it is; the reverse; of both together. The
    largest p counts. So p holds if the labels of either probe are exchangeable given the vectors and the other labels,
    and if those of both are together, as where two probes have the same labels.

    Parameters
    ----------
    kept : sequence of np.ndarray
        (d,), the directions.
    fits : sequence of Refits
        Of the same probes; of the same examples with the same halves and permutations.
    scaled : bool
        Whether each dimension is in its standard deviations.
    """
    units = [fit.spread if scaled else 1.0 for fit in fits]
    lines = [np.asarray(line, dtype=np.float64) * unit for line, unit in zip(kept, units, strict=True)]
    gold = [(fit.halves * unit)[:, None] for fit, unit in zip(fits, units, strict=True)]
    drawn = [fit.permuted * unit for fit, unit in zip(fits, units, strict=True)]

    def across(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return cosine(a, b[::-1]).mean(0)

    found = np.array([across(gold[i], gold[j])[0] for i, j in pairs])
    nulls = [
        np.array([across(a[i], b[j]) for i, j in pairs]) for a, b in ((gold, drawn), (drawn, gold), (drawn, drawn))
    ]
    nulls = [np.nan_to_num(np.abs(null), nan=1.0) for null in nulls]  # of a label alone there is no direction
    chances = [against_null(np.column_stack([np.abs(found), null]).T[:, :, None]) for null in nulls]
    own = np.array([cosine(*one[:, 0]) for one in gold])
    return Judged(
        np.array([cosine(lines[i], lines[j]) for i, j in pairs]),
        np.array([(own[i] + own[j]) / 2 for i, j in pairs]),
        found,
        np.max([np.quantile(null, level, axis=1) for null in nulls], axis=0),
        *(np.max([getattr(one, name)[:, 0] for one in chances], axis=0) for name in ("p", "p_adjusted")),
    )
