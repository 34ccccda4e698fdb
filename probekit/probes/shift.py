"""Probes of one data set, evaluated on others: scores out of fold on train, on each test set, and without each block.

Train is cut into blocks of whole units (subjects, sentences …) by a digest of their names, so that a unit is in the
same block of every data set that has it. The blocks are the folds that choose the penalty, give the scores out of fold
that set thresholds, and are left out in turn for the jackknife.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, grid, refit, select


@dataclass(frozen=True, slots=True)
class Trained:
    """Probes of one data set: log-probabilities of classes, natural logarithms, float32.

    Attributes
    ----------
    tests : tuple of np.ndarray
        For each test set (T, n, classes): the probe of gold labels first, then those of shuffled ones.
    held_out : np.ndarray
        (m, classes), of the examples of train by probes that were fitted without their block.
    without : tuple of np.ndarray
        For each test set (K, n, classes): probes of gold labels fitted without each block, at the chosen penalty.
    penalty, converged : np.ndarray
        (T,), the chosen penalty, and whether the fits converged.
    """

    tests: tuple[np.ndarray, ...]
    held_out: np.ndarray
    without: tuple[np.ndarray, ...]
    penalty: np.ndarray
    converged: np.ndarray


def blocks_of(units: Sequence[str], count: int, seed: int = 0) -> np.ndarray:
    """The block, 0 … count - 1, of each row: whole units in the order of a digest of their names, in equal parts.

    Parameters
    ----------
    units : sequence of str
        The name of the unit of each row.
    count : int
        The number of blocks.

    Returns
    -------
    np.ndarray
        Int (n,). Two data sets with the same units have the same blocks; with some of them, nearly.

    Raises
    ------
    UsageError
        If there are fewer units than blocks.
    """
    names = sorted(
        set(units), key=lambda name: xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=seed)
    )
    if len(names) < count:
        raise UsageError(f"there are {len(names)} groups of examples in train; {count} blocks need as many. Use fewer.")
    block = {name: i * count // len(names) for i, name in enumerate(names)}
    return np.array([block[name] for name in units], dtype=np.int64)


def fit_blocks(
    x: Any,
    y: np.ndarray,
    classes: int,
    block: np.ndarray,
    tests: Sequence[Any],
    *,
    estimator: Estimator = Estimator.LOGISTIC,
    penalties: Sequence[float] | None = None,
    rows: np.ndarray | None = None,
) -> Trained:
    """Fit probes of gold and shuffled labels on one data set, and evaluate them on test sets.

    Parameters
    ----------
    x : Any
        (n, d), array or memory map.
    y : np.ndarray
        Int (T, m), gold labels first; the others are controls.
    block : np.ndarray
        Int (m,), see :func:`blocks_of`.
    tests : sequence
        Vectors (n, d) of each test set.
    rows : np.ndarray, optional
        Int (m,), the labelled rows of ``x`` (default: all).

    Raises
    ------
    UsageError
        If a class is missing in train, or only one block has it.
    NonFiniteError
        If vectors are not finite.
    """
    rows = np.arange(x.shape[0]) if rows is None else rows
    for name, count in _spread(y[0], classes, block).items():
        if count < 2:
            raise UsageError(f"class {name} of train is in {count} of its blocks; a probe needs it in two or more.")
    problem = Problem(x, rows, y, classes, block, estimator, grid(estimator, penalties, x.shape[1]))
    chosen = select(problem, None)
    gold = replace(problem, y=y[:1])
    held_out = np.empty((len(rows), classes), dtype=np.float32)
    found = tuple(_log_proba(chosen.fitted, test)[:, 0] for test in tests)
    without = tuple(np.empty((int(block.max()) + 1, *one.shape[1:]), dtype=np.float32) for one in found)
    for b in range(int(block.max()) + 1):
        fitted = refit(gold, block != b, chosen.setting[:1])
        held_out[block == b] = fitted.log_proba(x, rows[block == b])[0, 0]
        for into, test in zip(without, tests, strict=True):
            into[b] = _log_proba(fitted, test)[0, 0]
    return Trained(found, held_out, without, chosen.setting, chosen.converged)


def _log_proba(fitted: Any, x: Any) -> np.ndarray:
    found = np.asarray(fitted.log_proba(x, np.arange(x.shape[0])), dtype=np.float32)
    if not np.isfinite(found).all():
        raise NonFiniteError("the features of a test set contain NaN or infinity.")
    return found


def _spread(y: np.ndarray, classes: int, block: np.ndarray) -> Mapping[int, int]:
    """In how many blocks each class occurs."""
    return {c: len(np.unique(block[y == c])) for c in range(classes)}
