"""Whether a ranking of units is that of the data or of the draw: the same ranking of disjoint halves of train.

A half has half of the examples, so the overlap is that of rankings from half of the data, and errs to the low side.
Groups of examples stay whole. The two halves of a split share nothing but what vectors have in common whatever the
labels; what that gives, halves with shuffled labels show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probekit.errors import UsageError
from probekit.statistics.folds import folds

Half = np.ndarray


def halves(
    y: np.ndarray, *, groups: np.ndarray | None, splits: int, seed: int, stratify: bool = True
) -> Iterator[tuple[Half, Half]]:
    """Random splits of the rows in two halves, bool (n,) each; splits in which a half lacks a class are left out.

    A row (group) that alone holds a class is in both.

    Parameters
    ----------
    y : np.ndarray
        (n,), classes; or numbers with ``stratify=False``.
    groups : np.ndarray, optional
        (n,), rows that stay together.
    """
    every = np.unique(y) if stratify else np.array([])
    for i in range(splits):
        try:
            fold = folds(y, 2, groups=groups, seed=seed + i, stratify=stratify)
        except UsageError:  # too few groups or examples
            return
        pair = fold != 1, fold != 0
        if all(len(np.unique(y[half])) == len(every) for half in pair) or not stratify:
            yield pair
