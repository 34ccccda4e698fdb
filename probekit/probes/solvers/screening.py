"""k-sparse probes among so many dimensions that their covariance is too large: a first choice of some of them.

For each target, the dimensions whose class means differ most, in standard deviations of the dimension (the share of
its variance that lies between classes), are kept; :mod:`probekit.probes.solvers.ksparse` ranks these. Rows are read a
block at a time. Only rows that are fitted choose, so held-out rows never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError
from probekit.probes.solvers import ksparse
from probekit.probes.solvers._path import block_rows, blocks, weighted
from probekit.probes.solvers.design import NOT_FINITE

WIDE = 8192
"""Up to so many dimensions, all are ranked together."""
KEPT = 1024
"""Of more, so many are, for each target."""
HELD = 1 << 28
"""Bytes of the kept dimensions of several targets, which are read in one pass."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What is known of d dimensions of the fitted rows.

    Attributes
    ----------
    mean, scale : np.ndarray
        float32 (d,), scale is 1 / standard deviation, 0 of a constant dimension.
    kept : np.ndarray
        Int (T, KEPT), ascending: the dimensions that are ranked for each target.
    """

    mean: np.ndarray
    scale: np.ndarray
    kept: np.ndarray


def screen(x: Any, rows: np.ndarray, codes: np.ndarray, classes: int, weights: np.ndarray | None = None) -> Screen:
    """Choose the dimensions of each target, in one pass over some rows.

    Parameters
    ----------
    x : array
        Float (n, d), read by rows.
    rows : np.ndarray
        Int (m,), the rows that are fitted.
    codes : np.ndarray
        Int (T, m), 0 … classes - 1, -1 for unlabelled.
    weights : np.ndarray, optional
        Float (m,) or (T, m).

    Raises
    ------
    NonFiniteError
        If a row contains NaN or infinity.
    """
    targets, d = len(codes), x.shape[1]
    w = weighted(codes >= 0, len(rows), weights)
    first = np.asarray(x[rows[:1]], dtype=np.float64)[0]
    total, square = np.zeros(d), np.zeros(d)
    sums, counts = np.zeros((targets * classes, d)), np.zeros((targets, classes))
    for at, block in _blocks(x, rows):
        block = block - first.astype(np.float32)
        total += block.sum(0, dtype=np.float64)
        square += np.einsum("ij,ij->j", block, block, dtype=np.float64)
        member = (codes[:, None, at] == np.arange(classes)[:, None]) * w[:, None, at]
        sums += member.reshape(targets * classes, -1).astype(np.float32) @ block
        counts += member.sum(2, dtype=np.float64)
    if not np.isfinite(total).all():
        raise NonFiniteError(NOT_FINITE)
    mean = total / len(rows)
    sd = np.sqrt(np.maximum(square / len(rows) - mean**2, 0))
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean + first))
    kept = np.empty((targets, min(KEPT, d)), dtype=int)
    for t, (of_classes, count) in enumerate(zip(sums.reshape(targets, classes, d), counts, strict=True)):
        share = count / count.sum()
        means = of_classes / np.maximum(count, np.finfo(np.float32).tiny)[:, None]
        between = (share[:, None] * (means - share @ means) ** 2).sum(0) * scale**2
        kept[t] = np.sort(np.argsort(-between, kind="stable")[: kept.shape[1]])
    return Screen((mean + first).astype(np.float32), scale.astype(np.float32), kept)


def path(
    x: Any, rows: np.ndarray, codes: np.ndarray, classes: int, settings: Sequence[int], of: Screen,
    weights: np.ndarray | None = None,
) -> ksparse.KSparsePath:  # fmt: skip
    """k-sparse probes of each target among its kept dimensions; arguments as for :func:`screen`.

    ``of.kept`` has a row for each target.
    """
    found = list[ksparse.KSparsePath]()
    size = max(1, HELD // (4 * len(rows) * of.kept.shape[1]))
    for start in range(0, len(codes), size):
        kept = of.kept[start : start + size]
        held = [np.empty((len(rows), len(dims)), dtype=np.float32) for dims in kept]
        for at, block in _blocks(x, rows):
            for own, dims in zip(held, kept, strict=True):
                own[at] = (block[:, dims] - of.mean[dims]) * of.scale[dims]
        for t, (own, dims) in enumerate(zip(held, kept, strict=True), start):
            w = None if weights is None else weights if weights.ndim == 1 else weights[t : t + 1]
            fit = ksparse.path(own, codes[t : t + 1], classes, settings, weights=w)
            found.append(replace(fit, dimensions=dims[fit.dimensions]))
    names = ("dimensions", "coef", "intercept", "absent", "n", "converged")
    return ksparse.KSparsePath(
        found[0].settings, *(np.concatenate([getattr(one, name) for one in found]) for name in names)
    )


def _blocks(x: Any, rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    for at in blocks(len(rows), block_rows(x.shape[1])):
        yield at, np.asarray(x[rows[at]], dtype=np.float32)
