"""Controls: labels without information about the representation, on which a probe shows its own capacity.

Tasks that label words have control tasks (Hewitt & Liang 2019): every word type gets a random label. Sentences rarely
occur twice, so tasks that label sentences have no types to assign labels to; their control is shuffled labels. A probe
that does well on a control memorises; the difference between gold and control is selectivity. Selectivity uses the
accuracy of words: gold and control have different spans, some easier to find than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError

DERIVED = {"control-task": "selectivity", "shuffled": "above-shuffled"}
"""The name of gold minus the mean of a control."""
Seed = int | Sequence[int]


FEWEST = 8
"""Minimum number of groups that exchange labels with each other, if there are enough of about the same size."""


def shuffled(
    y: np.ndarray, k: int, seed: Seed, *, groups: np.ndarray | None = None, ordered: bool = False
) -> np.ndarray:
    """``k`` permutations of the labels, (k, n) of the dtype of ``y``. Unlabelled rows stay unlabelled.

    The first permutations of a seed do not depend on ``k``.

    Parameters
    ----------
    y : np.ndarray
        Int (n,), -1 if unlabelled, or float (n,), NaN if unlabelled.
    groups : np.ndarray, optional
        (n,), rows that belong together (copies, the words of a sentence, a document), or None to permute all rows. The
        labels of a group move as a whole to another group, so that noise is clustered like the data (Winkler et al.
        2015, whole-block exchange): between groups of the same size if there are at least 8, otherwise between groups
        of similar size, where the smaller one's labels are repeated and the larger one's truncated.
    ordered : bool, default False
        Keep the (cyclic) order of the labels within a group, from a random position on: for words, whose neighbours are
        dependent. Otherwise labels are also permuted within the group.

    Raises
    ------
    UsageError
        If all labelled rows are in one group.
    """
    known = _known(y)
    values, out = y[known], np.tile(y, (k, 1))
    blocks = None if groups is None or not len(values) else _Blocks.of(np.asarray(groups)[known])
    for i, rng in enumerate(_generators(seed, k)):
        if blocks is None:
            out[i, known] = values[np.argsort(rng.random(len(values)), kind="stable")]
        else:
            out[i, known] = values[blocks.moved(rng, ordered)]
    return out


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Rows by group, and the groups that exchange labels.

    order : rows sorted by group; start, size : position of each group in it; bins : disjoint sets of groups that
        exchange labels
    """

    order: np.ndarray
    start: np.ndarray
    size: np.ndarray
    bins: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, groups: np.ndarray) -> _Blocks:
        code = np.unique(groups, return_inverse=True)[1].reshape(-1)
        size = np.bincount(code)
        if len(size) < 2:
            raise UsageError(
                "all rows are in one group, so labels cannot be exchanged; at least two groups are needed. If the "
                "rows are independent in spite of similar texts, choose other groups (--groups none)."
            )
        by_size = np.argsort(size, kind="stable")
        cuts, begin = [0], 0
        for stop in [*(np.flatnonzero(np.diff(size[by_size])) + 1).tolist(), len(size)]:
            if stop - begin >= FEWEST:
                cuts.append(stop)
                begin = stop
        if len(size) - begin in (1, 2) and len(cuts) > 1:  # too few to exchange: joined with those next in size
            cuts[-1] = len(size)
        bins = np.split(by_size, [cut for cut in cuts[1:] if cut < len(size)])
        return cls(np.argsort(code, kind="stable"), np.cumsum(size) - size, size, tuple(bins))

    def moved(self, rng: np.random.Generator, ordered: bool) -> np.ndarray:
        """For each row, the row whose label it gets, int64 (n,)."""
        source, n = np.empty(len(self.size), dtype=np.int64), len(self.order)
        for groups in self.bins:
            source[groups] = rng.permutation(groups)
        group = np.repeat(np.arange(len(self.size)), self.size)
        place = np.arange(n) - self.start[group]
        if ordered:
            rows, place = self.order, place + rng.integers(self.size)[source][group]
        else:
            rows = self.order[np.lexsort((rng.random(n), group))]
        theirs = source[group]
        out = np.empty(n, dtype=np.int64)
        out[self.order] = rows[self.start[theirs] + place % self.size[theirs]]
        return out


def shuffled_splits(
    y_train: np.ndarray,
    y_dev: np.ndarray,
    k: int,
    seed: int,
    *,
    groups: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    ordered: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """``k`` independent permutations of the labels of each split, (k, n_train) and (k, n_dev), from one seed.

    A probe of shuffled labels is evaluated on shuffled labels, just as a probe of a control task is on that task.
    ``groups`` (of train, of dev) and ``ordered`` as in :func:`shuffled`.
    """
    train = shuffled(y_train, k, (seed, 0), groups=groups[0], ordered=ordered)
    return train, shuffled(y_dev, k, (seed, 1), groups=groups[1], ordered=ordered)


def control_task(
    types_train: np.ndarray,
    types_dev: np.ndarray,
    y_train: np.ndarray,
    k: int,
    seed: int,
    *,
    outside: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """``k`` control tasks, (k, n_train) and (k, n_dev): a random label for each word type.

    (Hewitt & Liang 2019, section 2.) Not for tasks that label sentences: see :func:`shuffled`.

    Parameters
    ----------
    types_train, types_dev : np.ndarray
        Int (n,), the word types, with the same numbers in both (``inputs.word_types``).
    y_train : np.ndarray
        The task's labels, (n_train,). A type gets the label of a random row, so labels are as frequent among types as
        in train; for regression it gets that row's value. Unlabelled rows of train stay unlabelled. Types that occur
        only in dev also get labels, which no probe can know.
    outside : int, optional
        For tags of spans, the label of words outside spans. Types that are mostly inside spans in train draw from the
        tags of such words (without ``outside``); other types get ``outside``, and types that occur only in dev the
        label of a type in train. So control and gold have about the same number of words in spans, and a probe without
        information has the same accuracy on both. Ignored if there are fewer than two such types or tags.

    Raises
    ------
    UsageError
        If train has only one type or one label.
    """
    known = _known(y_train)
    pool = y_train[known]
    types, code = np.unique(np.concatenate([types_train, types_dev]), return_inverse=True)
    train, dev = code[: len(types_train)], code[len(types_train) :]
    if len(np.unique(train[known])) < 2 or len(np.unique(pool)) < 2:
        raise UsageError(
            "a control task needs at least two word types and two labels in train; use shuffled labels instead."
        )
    draw = _of_types(train[known], len(types), pool, outside)
    out_train, out_dev = np.tile(y_train, (k, 1)), np.empty((k, len(dev)), dtype=y_train.dtype)
    for i, rng in enumerate(_generators((seed, 2), k)):
        label = draw(rng)
        while (label[train[known]] == label[train[known][0]]).all():  # only one label
            label = draw(rng)
        out_train[i, known] = label[train[known]]
        out_dev[i] = label[dev]
    return out_train, out_dev


def _of_types(
    train: np.ndarray, count: int, y: np.ndarray, outside: int | None
) -> Callable[[np.random.Generator], np.ndarray]:
    """A function that draws a label for each of ``count`` types, from the labelled rows of train."""

    def any_label(rng: np.random.Generator) -> np.ndarray:
        return rng.choice(y, count)

    if outside is None:
        return any_label
    words, tags = np.bincount(train, minlength=count), y[y != outside]
    inside = 2 * np.bincount(train, y != outside, minlength=count) > words
    unseen = words == 0
    if inside.sum() < 2 or len(np.unique(tags)) < 2:
        return any_label

    def of_spans(rng: np.random.Generator) -> np.ndarray:
        label = np.where(inside, rng.choice(tags, count), outside)
        label[unseen] = rng.choice(label[~unseen], unseen.sum())
        return label

    return of_spans


def _known(y: np.ndarray) -> np.ndarray:
    return ~np.isnan(y) if y.dtype.kind == "f" else y >= 0


def _generators(seed: Seed, k: int) -> list[np.random.Generator]:
    return [np.random.default_rng([*np.atleast_1d(seed), i]) for i in range(k)]


def selectivity_interval(
    gold: np.ndarray, controls: np.ndarray, *, level: float = 0.95, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of gold minus the mean of the controls, from replicates: low and high, float64 (F,).

    The controls are resampled as well, k of k, because their labels are random, too; such draws have (k - 1)/k of the
    variance, which is corrected. Undefined replicates (NaN) are left out; (NaN, NaN) if fewer than half remain.

    Parameters
    ----------
    gold : np.ndarray
        (F, resamples), a metric of F fits in each resample of the examples.
    controls : np.ndarray
        (k, F, resamples), the metric of the k controls in the same resamples.
    """
    k, fits, resamples = controls.shape
    if gold.shape != (fits, resamples):
        raise UsageError(f"replicates of gold {gold.shape} do not match those of the controls {controls.shape}.")
    drawn = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=resamples) / k
    mean = controls.mean(0)
    again = np.einsum("rk,kfr->fr", drawn, controls)
    difference = gold - mean - (again - mean) * np.sqrt(k / max(k - 1, 1))
    bounds = np.full((fits, 2), np.nan)
    for bound, values in zip(bounds, difference, strict=True):
        if len(fine := values[np.isfinite(values)]) >= max(1, resamples / 2):
            bound[:] = np.quantile(fine, [(1 - level) / 2, (1 + level) / 2])
    return bounds[:, 0], bounds[:, 1]
