"""The best of several trials of a search, in expectation (Dodge et al. 2019, *Show Your Work*)."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln


def expected_best(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expectation and standard deviation of the largest of 1 … N values drawn with replacement.

    This is the expected validation performance of Dodge et al. (2019, section 3.1, equations 4 to 8): the chance that
    the i-th smallest of N values is the largest of n draws is (i / N)^n - ((i - 1) / N)^n. As an estimate for new,
    independent trials it is too low, the more so the closer n is to N; :func:`expected_best_unbiased` is not.

    Parameters
    ----------
    values : np.ndarray
        Float (N,), finite; negate them for a metric that is better if lower.

    Returns
    -------
    tuple of np.ndarray
        Both float64 (N,), for n = 1 … N.

    Examples
    --------
    >>> expected_best(np.array([0.0, 1.0]))
    (array([0.5 , 0.75]), array([0.5       , 0.4330127]))
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    at_most = np.arange(len(ordered) + 1)[:, None] / len(ordered)
    chance = np.diff(at_most ** np.arange(1, len(ordered) + 1), axis=0)  # (N values, N numbers of draws)
    mean = ordered @ chance
    away = (ordered[:, None] - mean) ** 2
    return mean, np.sqrt((away * chance).sum(axis=0))


def expected_best_unbiased(values: np.ndarray) -> np.ndarray:
    """Expectation of the largest of 1 … N values drawn without replacement, which has no bias (Tang et al. 2020).

    The i-th smallest is the largest of n draws in C(i - 1, n - 1) of C(N, n) cases.

    Parameters
    ----------
    values : np.ndarray
        Float (N,), finite.

    Returns
    -------
    np.ndarray
        float64 (N,), for n = 1 … N; the last is the largest value.

    Examples
    --------
    >>> expected_best_unbiased(np.array([0.0, 1.0])).tolist()
    [0.5, 1.0]
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    i, n = np.arange(1, count + 1)[:, None], np.arange(1, count + 1)
    chosen = _log_choose(np.maximum(i - 1, n - 1), n - 1) - _log_choose(np.full_like(n, count), n)
    found: np.ndarray = ordered @ np.where(i >= n, np.exp(chosen), 0.0)
    return found


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    found: np.ndarray = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return found
