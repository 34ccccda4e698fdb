"""Held-out rows: folds, a fraction, and the examples of dev that also occur in train."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable

import numpy as np

from probekit.errors import UsageError

MANY = 5000


def folds(
    y: np.ndarray, k: int, *, groups: np.ndarray | None = None, seed: int = 0, stratify: bool = True
) -> np.ndarray:
    """The fold, 0 … k-1, in which each row is held out, int64 (n,); -1 for rows that are always in the training part.

    The folds are scikit-learn's.

    Parameters
    ----------
    y : np.ndarray
        (n,), classes; or numbers with ``stratify=False``.
    groups : np.ndarray, optional
        (n,), units that are held out as a whole (sentence, document, template, word type), or None.
    stratify : bool, default True
        Distribute each class evenly over the folds. The only row of a class, or the only group with it, is never held
        out, because the class could not be learnt. More than 5,000 groups are distributed by size and most frequent
        class (scikit-learn's method takes a minute there).

    Raises
    ------
    UsageError
        If there are fewer than 2 folds, or too few rows, groups or examples.
    """
    y = np.asarray(y)
    rng = np.random.default_rng(seed)
    unit = None if groups is None else _numbered(groups, len(y), rng)
    free = np.flatnonzero(~_irreplaceable(y, unit)) if stratify else np.arange(len(y))
    name, units = ("row", len(free)) if unit is None else ("group", len(np.unique(unit[free])))
    if k < 2:
        raise UsageError(f"folds is {k}; expected 2 or more.")
    if units < k:
        every = len(y) if unit is None else len(np.unique(unit))
        if every > units == 0:
            raise UsageError(f"no {name} can be held out: {_each_alone(name)}")
        alone = f" ({every - units} more hold a class that no other {name} has)" if every > units else ""
        cure = "Use fewer folds." if units > 1 else f"Add {name}s."
        raise UsageError(f"{k} folds need {k} {name}s that can be held out, but there are {units}{alone}. {cure}")
    if stratify and (most := np.unique(y[free], return_counts=True)[1].max()) < k:
        raise UsageError(f"{k} folds need a class with at least {k} rows, but the largest has {most}. Use fewer folds.")
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    shuffle = {"n_splits": k, "shuffle": True, "random_state": int(rng.integers(2**31))}
    if unit is None:
        splitter = StratifiedKFold(**shuffle) if stratify else KFold(**shuffle)
    else:
        if stratify and units > MANY:
            return _dealt(y, unit, free, k, rng)
        splitter = StratifiedGroupKFold(**shuffle) if stratify else GroupKFold(k)
    fold = np.full(len(y), -1, dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes with fewer than k rows: some folds lack them
        parts = splitter.split(free, y[free] if stratify else None, None if unit is None else unit[free])
        for i, (_, held) in enumerate(parts):
            fold[free[held]] = i
    return fold


def _dealt(y: np.ndarray, unit: np.ndarray, free: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Folds for many groups: sorted by size and most frequent class, then assigned in turn."""
    code, of = (np.unique(values[free], return_inverse=True)[1] for values in (y, unit))
    pairs, count = np.unique(of * (int(code.max()) + 1) + code, return_counts=True)
    group, label = np.divmod(pairs, int(code.max()) + 1)
    size = np.bincount(of)
    most = label[
        np.lexsort((rng.random(len(pairs)), count, group))[np.searchsorted(group, np.arange(len(size)), "right") - 1]
    ]
    fold_of_group = np.empty(len(size), dtype=np.int64)
    fold_of_group[np.lexsort((rng.random(len(size)), most, -size))] = np.arange(len(size)) % k
    fold = np.full(len(y), -1, dtype=np.int64)
    fold[free] = fold_of_group[of]
    return fold


def held_out(
    y: np.ndarray, share: float, *, groups: np.ndarray | None = None, seed: int = 0, stratify: bool = True
) -> np.ndarray:
    """Which rows are held out, bool (n,): ``share`` of each class, of all rows, or of the groups if there are any.

    Arguments as in :func:`folds`; the only row or group of a class is never held out.

    Raises
    ------
    UsageError
        If the share is not between 0 and 1, or no row can be held out.
    """
    y = np.asarray(y)
    if not 0 < share < 1:
        raise UsageError(f"the share to hold out is {share}; expected a number between 0 and 1.")
    rng = np.random.default_rng(seed)
    unit = None if groups is None else _numbered(groups, len(y), rng)
    fixed = _irreplaceable(y, unit) if stratify else np.zeros(len(y), dtype=bool)
    if unit is not None:
        free, units = np.setdiff1d(unit, unit[fixed]), len(np.unique(unit))
        held = np.isin(unit, free[: min(max(1, round(share * units)), units - 1)])  # unit numbers are random
    else:
        stratum = np.unique(y, return_inverse=True)[1] if stratify else np.zeros(len(y), dtype=np.int64)
        order = np.lexsort((rng.random(len(y)), stratum))
        count = np.bincount(stratum)
        rank = np.empty(len(y), dtype=np.int64)
        rank[order] = np.arange(len(y)) - np.repeat(np.cumsum(count) - count, count)
        held = rank < np.minimum(np.rint(share * count), count - 1)[stratum]
    if not held.any():
        name = "row" if unit is None else "group"
        why = _each_alone(name) if fixed.all() else f"none of the {len(y)} rows can be held out."
        raise UsageError(f"cannot hold out {share:.0%} of the {name}s: {why}")
    return held


def _each_alone(name: str) -> str:
    """Why no row (group) can be held out if all are irreplaceable."""
    cure = " Are the groups the classes? Name another column as groups." if name == "group" else ""
    return f"each holds a class that no other {name} has.{cure}"


def _numbered(groups: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Groups as numbers in random order: splitters break ties by number."""
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise UsageError(f"groups have the shape {groups.shape}; expected ({n},) for {n} labels.")
    code = np.unique(groups, return_inverse=True)[1]
    return rng.permutation(int(code.max(initial=-1)) + 1)[code]


def _irreplaceable(y: np.ndarray, unit: np.ndarray | None) -> np.ndarray:
    """Rows with the only example of a class, or in the only group with it, bool (n,)."""
    code = np.unique(y, return_inverse=True)[1]
    if unit is None:
        return np.bincount(code)[code] == 1
    pairs = np.unique(np.stack([code, unit]), axis=1)
    alone = np.bincount(pairs[0])[pairs[0]] == 1
    return np.isin(unit, pairs[1, alone])


def duplicates(train_keys: Iterable[Hashable], dev_keys: Iterable[Hashable]) -> np.ndarray:
    """Which rows of dev occur unchanged in train, bool (n_dev,).

    Keys identify examples: :func:`~probekit.probes.protocol.pieces.keys` returns the pieces that the model read. For a
    task that labels words they are keys of sentences; apply the result to their words.
    """
    seen = set(train_keys)
    return np.fromiter((key in seen for key in dev_keys), dtype=bool)
