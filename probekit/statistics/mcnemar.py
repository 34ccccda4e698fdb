"""McNemar's test, exactly, also for groups of dependent examples."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom


def mcnemar(right: np.ndarray, right_too: np.ndarray, groups: np.ndarray | None = None) -> float:
    """The two-sided p-value for two predictors that are right about the same examples equally often.

    Under the null, the two predictors may be exchanged for each example, or for each group of dependent examples as a
    whole. The distribution of the difference under all exchanges is computed exactly. Without groups it is the binomial
    test on the discordant examples (McNemar 1947).

    Parameters
    ----------
    right, right_too : np.ndarray
        bool (n,), whether each predictor is right.
    groups : np.ndarray, optional
        int (n,), the same for examples that are not independent.

    Returns
    -------
    float
        1 if no example is right for one predictor only.

    Examples
    --------
    >>> round(mcnemar(np.array([True] * 6 + [False]), np.array([False] * 6 + [True])), 6)
    0.125
    """
    difference = np.asarray(right).astype(np.int64) - np.asarray(right_too)
    if groups is not None:
        code = np.unique(groups, return_inverse=True)[1].reshape(-1)
        difference = np.bincount(code, weights=difference).astype(np.int64)
    sizes = np.abs(difference[difference != 0])
    total = int(sizes.sum())
    chance = np.zeros(2 * total + 1)  # of each sum from -total to total
    single = int((sizes == 1).sum())  # most groups: their sum is binomial
    chance[total - single : total + single + 1 : 2] = binom.pmf(np.arange(single + 1), single, 0.5)
    for size in sizes[sizes > 1].tolist():
        chance = 0.5 * (np.roll(chance, size) + np.roll(chance, -size))
    sums = np.abs(np.arange(-total, total + 1))
    return float(min(1.0, chance[sums >= abs(int(difference.sum()))].sum()))
