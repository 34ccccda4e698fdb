"""Controls: labels that hold nothing to be found, so that what a probe reaches on them is what it can make up.

Tasks that label words have control tasks (Hewitt & Liang 2019): every word type gets a random label of its own. A
sentence hardly ever occurs twice, so a task that labels sentences has no types to give labels to; its control is
shuffled labels. A probe that does well on a control learns by heart; the distance from gold to control is selectivity.
It is an accuracy of words: where spans are counted, gold and control have other spans, some easier to find than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from probekit.errors import UsageError

__all__ = ["DERIVED", "control_task", "selectivity_interval", "shuffled", "shuffled_splits"]

DERIVED = {"control-task": "selectivity", "shuffled": "above-shuffled"}
"""What gold minus the mean of a control is called."""
Seed = int | Sequence[int]


FEWEST = 8
"""Groups that exchange their labels with each other, at least, where there are so many of about one size."""


def shuffled(
    y: np.ndarray, k: int, seed: Seed, *, groups: np.ndarray | None = None, ordered: bool = False
) -> np.ndarray:
    """``k`` permutations of the labels, (k, n) of the dtype of ``y``. Unlabelled rows stay unlabelled.

    The first permutations of a seed do not depend on ``k``.

    Parameters
    ----------
    y : np.ndarray
        Int (n,), -1 where unlabelled, or float (n,), NaN where unlabelled.
    groups : np.ndarray, optional
        (n,), what belongs together (copies, the sentence of a word, a document), or None, where labels move over all
        rows. The labels of a group move as a whole to another one, so that noise is clustered as the data are
        (Winkler et al. 2015, whole-block exchange): between groups of one size where there are 8 of them, else
        between those nearest in size, where labels of the smaller one are repeated and of the larger one left out.
    ordered : bool, default False
        Keep the order of the labels within a group, from a place that is drawn, the last being followed by the first:
        for words, whose neighbours depend on each other. Otherwise they change places within the group as well.

    Raises
    ------
    UsageError
        Where all labelled rows are of one group.
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
    """Rows by group, and which groups exchange their labels.

    order : rows, group after group; start, size : of each group in it; bins : groups that exchange, each in one
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
            raise UsageError("all rows are of one group, so that its labels cannot move; two groups are wanted.")
        by_size = np.argsort(size, kind="stable")
        cuts, begin = [0], 0
        for stop in [*(np.flatnonzero(np.diff(size[by_size])) + 1).tolist(), len(size)]:
            if stop - begin >= FEWEST:
                cuts.append(stop)
                begin = stop
        if len(size) - begin in (1, 2) and len(cuts) > 1:  # too few to exchange: with those next in size
            cuts[-1] = len(size)
        bins = np.split(by_size, [cut for cut in cuts[1:] if cut < len(size)])
        return cls(np.argsort(code, kind="stable"), np.cumsum(size) - size, size, tuple(bins))

    def moved(self, rng: np.random.Generator, ordered: bool) -> np.ndarray:
        """The row whose label each row gets, int64 (n,)."""
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
    """``k`` permutations of the labels of each split, (k, n_train) and (k, n_dev), each of its own, from one seed.

    A probe of shuffled labels is evaluated on shuffled labels, as one of a control task is on that task. ``groups``
    (of train, of dev) and ``ordered`` as of :func:`shuffled`.
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
        Int (n,), the word types, numbered alike in both (``inputs.word_types``).
    y_train : np.ndarray
        The task's labels, (n_train,). A type's label is the label of a row drawn at random, so labels are as frequent
        among types as they are in train; for a regression it is such a row's value. Rows of train that are unlabelled
        stay so. Types that occur in dev only get labels as well, which no probe can know.
    outside : int, optional
        Of tags of spans, the label of a word in no span. Types most of whose words in train are in spans draw from the
        tags of such words, without ``outside``; the other types get ``outside``, and those of dev only the label of a
        type of train. So control and gold have about as many words in spans, and a probe that knows nothing is as
        accurate on either. Where fewer than two types or two tags could be drawn, it makes no difference.

    Raises
    ------
    UsageError
        Where train holds one type or one label only.
    """
    known = _known(y_train)
    pool = y_train[known]
    types, code = np.unique(np.concatenate([types_train, types_dev]), return_inverse=True)
    train, dev = code[: len(types_train)], code[len(types_train) :]
    if len(np.unique(train[known])) < 2 or len(np.unique(pool)) < 2:
        raise UsageError(
            "a control task wants two word types and two labels in train at least; shuffle labels instead."
        )
    draw = _of_types(train[known], len(types), pool, outside)
    out_train, out_dev = np.tile(y_train, (k, 1)), np.empty((k, len(dev)), dtype=y_train.dtype)
    for i, rng in enumerate(_generators((seed, 2), k)):
        label = draw(rng)
        while (label[train[known]] == label[train[known][0]]).all():  # nothing to tell apart
            label = draw(rng)
        out_train[i, known] = label[train[known]]
        out_dev[i] = label[dev]
    return out_train, out_dev


def _of_types(
    train: np.ndarray, count: int, y: np.ndarray, outside: int | None
) -> Callable[[np.random.Generator], np.ndarray]:
    """What draws a label for each of ``count`` types, from the types of labelled rows of train and their labels."""

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

    The controls are drawn again as well, k of k, for which labels they happened to get is chance, too; such draws have
    (k - 1)/k of the variance, which is made up for. Replicates where a metric is undefined (NaN) are left out;
    (NaN, NaN) where fewer than half remain.

    Parameters
    ----------
    gold : np.ndarray
        (F, resamples), a metric of F fits on each resample of the examples.
    controls : np.ndarray
        (k, F, resamples), of the k controls on the same resamples.
    """
    k, fits, resamples = controls.shape
    if gold.shape != (fits, resamples):
        raise UsageError(f"replicates of gold {gold.shape} do not go with those of the controls {controls.shape}.")
    drawn = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), size=resamples) / k
    mean = controls.mean(0)
    again = np.einsum("rk,kfr->fr", drawn, controls)
    difference = gold - mean - (again - mean) * np.sqrt(k / max(k - 1, 1))
    bounds = np.full((fits, 2), np.nan)
    for bound, values in zip(bounds, difference, strict=True):
        if len(fine := values[np.isfinite(values)]) >= max(1, resamples / 2):
            bound[:] = np.quantile(fine, [(1 - level) / 2, (1 + level) / 2])
    return bounds[:, 0], bounds[:, 1]
