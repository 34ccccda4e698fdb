"""Mutual information from pairwise distances, to reproduce earlier papers (Kolchinsky & Tracey 2017; Saxe et al. 2018).

Vectors with Gaussian noise of variance σ² on top are a mixture of n Gaussians, whose entropy has bounds in closed form:
-⟨ln ⟨exp(-d²/2σ²)⟩⟩ and a constant from above (Kullback-Leibler), the same with 4σ² from below (Bhattacharyya).
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.estimators.binning import classes_of, verdict
from probekit.information.grouping import grouped
from probekit.information.response import Response, entropy

ROWS = 1024  # whose distances to as many others are held at a time


class Bound(StrEnum):
    """Bounds on the entropy of a mixture."""

    UPPER = "upper"
    LOWER = "lower"


def kernel_density(
    x: np.ndarray,
    y: Response,
    *,
    bound: Bound | str = Bound.UPPER,
    noise: float = 1e-3,
    label_bins: int = 10,
    groups: np.ndarray | None = None,
    draws: int = 20,
    seed: int = 0,
) -> Information:
    """I(T; Y) = H(T) - H(T | Y) in bits, T being the vectors with Gaussian noise, by bounds on both entropies.

    If all vectors are further apart than the noise, each identifies its label, even a random one. The value is then
    H(Y), as always in hundreds of dimensions (Peters, Ruder & Smith 2019, footnote 6), and is reported as
    ``undetermined``. Time grows with n², memory does not.

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d).
    y : Response
        Classes, or numbers, which are cut into ``label_bins`` bins of equal mass.
    bound : Bound | str, default Bound.UPPER
        Upper or lower bounds on the entropies (Kolchinsky & Tracey 2017, section 4). The difference of two upper or two
        lower bounds is not a bound.
    noise : float, default 0.001
        Variance σ² of the noise in each column; 1e-3 is the value in the code published with Saxe et al. (2018).
    groups : np.ndarray, optional
        (n,), groups to shuffle as wholes; equal vectors always form a group.
    draws : int, default 20
        Shuffles of the labels for ``null``, ``null_mean`` and ``p``.

    Raises
    ------
    UsageError
        For noise that is not positive.
    NonFiniteError
        For NaN.
    """
    if bound not in list(Bound) or not 0 < noise < math.inf:
        raise UsageError(f"bound must be {' or '.join(Bound)} and noise positive, not {bound!r} and {noise}.")
    n, rng = len(y), np.random.default_rng(seed)
    codes = classes_of(y, label_bins)
    if (whole := grouped(groups, x, n)) is None:
        labels = np.stack([codes, *(rng.permutation(codes) for _ in range(draws))])
    else:
        labels = np.concatenate([codes[None], codes[whole.orders(draws, seed)]])
    bits = _bits(x, labels, noise * (4 if bound == Bound.LOWER else 1))
    raw, null = float(bits[0]), bits[1:]
    mean = float(null.mean()) if draws else math.nan
    h = entropy(np.bincount(codes))
    value, undetermined, warning = verdict(raw, mean, h, n, "the noise reaches from no vector to the next")
    if not draws:
        warning = "too high where vectors are further apart than the noise reaches; shuffle labels to see"
    return Information(
        value=value,
        raw=raw,
        entropy=h,
        n=n,
        estimator=f"kernel-{Bound(bound)}",
        null=null,
        null_mean=mean,
        p=p_value(raw, null),
        bins=0 if y.codes is not None else label_bins,
        undetermined=undetermined,
        warning=warning,
        view=f"{x.shape[1]} columns, noise of variance {noise:g}",
    )


def _bits(x: np.ndarray, labels: np.ndarray, variance: float) -> np.ndarray:
    """⟨ln ⟨k⟩ over the own class - ln ⟨k⟩ over all⟩ of each label set, k = exp(-d²/2 variance); labels (T, n)."""
    n, kinds = labels.shape[1], int(labels.max()) + 1
    with np.errstate(invalid="ignore"):
        centre = x.mean(0, dtype=np.float64)
    if not np.isfinite(centre).all():
        raise NonFiniteError(f"the vectors contain NaN or infinity, in column {int((~np.isfinite(centre)).argmax())}.")
    counts = np.stack([np.bincount(own, minlength=kinds) for own in labels])
    blocks = [slice(at, min(at + ROWS, n)) for at in range(0, n, ROWS)]
    nats = np.zeros(len(labels))
    for rows in blocks:
        a = x[rows] - centre
        total, own = np.zeros(len(a)), np.zeros((len(a), len(labels), kinds))
        for others in blocks:
            b = x[others] - centre
            square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
            if rows == others:
                np.fill_diagonal(square, 0)
            k = np.exp(np.maximum(square, 0) / (-2 * variance))
            total += k.sum(1)
            member = labels[:, others].T[..., None] == np.arange(kinds)
            own += (k @ member.reshape(len(b), -1)).reshape(own.shape)
        mine = np.take_along_axis(own, labels[:, rows].T[..., None], 2)[..., 0]  # (rows, T), 1 or more: oneself
        size = np.take_along_axis(counts, labels[:, rows], 1).T
        nats += (np.log(mine / size) - np.log(total / n)[:, None]).sum(0)
    return nats / n / math.log(2)
