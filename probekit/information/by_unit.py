"""The information of each unit alone about the labels: binned, less what shuffled labels give."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from probekit.information.hashing.null import expected_information
from probekit.threads import go_on


def unit_information(x: np.ndarray, codes: np.ndarray, *, bins: int = 10) -> np.ndarray:
    """The mutual information of each column with the labels in bits, float64 (d,); about 0 on average under noise.

    A column is cut into bins of equal mass; equal values share a bin. The plug-in estimate is too high, and its exact
    mean under shuffled labels is subtracted (Vinh, Epps & Bailey 2010, section 4), as :func:`probekit.mi` does.

    Parameters
    ----------
    x : np.ndarray
        Float (n, d).
    codes : np.ndarray
        Int (n,), the class of each row.
    bins : int
        The number of bins.

    Examples
    --------
    >>> y = np.arange(400) % 2
    >>> unit_information(np.stack([y, np.arange(400) // 2], 1).astype(float), y).round(2).tolist()
    [1.0, -0.02]
    """
    n, d = x.shape
    codes = np.unique(codes, return_inverse=True)[1]
    count = np.bincount(codes)
    edges = np.unique(np.arange(1, bins) * n // bins)
    found, known = np.empty(d), dict[bytes, float]()
    for j in range(d):
        go_on()
        column = x[:, j]
        bucket = np.searchsorted(np.unique(np.partition(column, edges)[edges]), column, side="right")
        joint = np.bincount(bucket * len(count) + codes, minlength=(int(bucket.max()) + 1) * len(count))
        own = joint.reshape(-1, len(count)).sum(1)
        raw = (xlogy(joint, joint).sum() - xlogy(own, own).sum() - xlogy(count, count).sum()) / n + np.log(n)
        if (key := own.tobytes()) not in known:
            known[key] = expected_information(own[own > 0], count)
        found[j] = raw / np.log(2) - known[key]
    return found
