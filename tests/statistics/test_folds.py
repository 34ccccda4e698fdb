"""Folds and shares: every row once, whole groups, each class in its proportion; and duplicates, exactly."""

import time

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.statistics.folds import duplicates, folds, held_out

labels = np.repeat([0, 1, 2], [600, 300, 100])


def test_folds_hold_their_share_of_each_class():
    fold = folds(labels, 5, seed=0)
    for c, share in enumerate([120, 60, 20]):
        assert np.bincount(fold[labels == c]).tolist() == [share] * 5
    np.testing.assert_array_equal(fold, folds(labels, 5, seed=0))
    assert (fold != folds(labels, 5, seed=1)).mean() > 0.5
    plain = folds(labels, 5, seed=0, stratify=False)  # the control: without strata the shares vary
    assert np.bincount(plain).tolist() == [200] * 5
    assert len({*np.bincount(plain[labels == 2]).tolist()}) > 1
    assert np.bincount(folds(np.linspace(0, 1, 1000), 5, stratify=False)).tolist() == [200] * 5


@pytest.mark.parametrize("count", [200, 8000])  # by class, and by size only
def test_groups_stay_together(count):
    rng = np.random.default_rng(0)
    groups, y = rng.integers(0, count, 20000), rng.choice(3, 20000, p=[0.6, 0.3, 0.1])
    fold = folds(y, 5, groups=groups, seed=0)
    assert len(np.unique(np.stack([groups, fold]), axis=1).T) == len(np.unique(groups))
    by_class = np.array([np.bincount(fold[y == c], minlength=5) for c in range(3)])
    np.testing.assert_allclose(by_class, by_class.mean(1, keepdims=True) * np.ones(5), rtol=0.15)
    np.testing.assert_array_equal(fold, folds(y, 5, groups=[f"g{g:05}" for g in groups], seed=0))
    assert (fold != folds(y, 5, groups=groups, seed=1)).mean() > 0.5
    apart = folds(y, 5, seed=0)  # the control: without groups they are torn
    assert len(np.unique(np.stack([groups, apart]), axis=1).T) > len(np.unique(groups))


def test_what_a_class_cannot_do_without_is_never_held_out():
    y = np.append(labels, [3, 4, 4])
    fold = folds(y, 5)
    assert np.flatnonzero(fold == -1).tolist() == [1000]
    assert fold[1001] != fold[1002]
    groups = np.arange(1003) // 2 * 2 % 300
    groups[1000:] = 7
    y[:1000:3] = 3
    fold = folds(y, 5, groups=groups)  # class 4 lives in group 7 only
    assert set(np.flatnonzero(fold == -1)) == {1000, 1001, 1002}
    for seed in range(20):
        assert not held_out(y, 0.3, groups=groups, seed=seed)[1000:].any()


def test_a_share():
    held = held_out(labels, 0.2, seed=0)
    assert [int(held[labels == c].sum()) for c in range(3)] == [120, 60, 20]
    assert (held != held_out(labels, 0.2, seed=1)).any()
    assert held_out(labels, 0.2, stratify=False).sum() == 200
    assert held_out(np.repeat([0, 1], [20, 1]), 0.99).tolist().count(False) == 2  # one row of each class is kept
    groups = np.arange(1000) % 40
    held = held_out(labels, 0.25, groups=groups)
    assert set(groups[held]).isdisjoint(groups[~held])
    assert len(set(groups[held])) == 10


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: folds(labels, 1), "2 or more"),
        (lambda: folds(labels[:3], 5, stratify=False), "5 rows that can be held out, but there are 3"),
        (lambda: folds(labels, 5, groups=labels, stratify=False), "5 groups that can be held out, but there are 3"),
        (
            lambda: folds(labels, 5, groups=labels),
            "each holds a class that no other group has. Are the groups the classes",
        ),
        (lambda: folds(np.arange(12) // 3, 5), "the largest has 3"),
        (lambda: folds(labels, 5, groups=labels[:5]), "for 1000 labels"),
        (lambda: held_out(labels, 1.0), "between 0 and 1"),
        (
            lambda: held_out(labels, 0.2, groups=labels),
            "cannot hold out 20% of the groups: each holds a class that no other",
        ),
        (lambda: held_out(labels[:4], 0.01), "cannot hold out 1% of the rows"),
    ],
)
def test_too_little_is_said(work, message):
    with pytest.raises(UsageError, match=message):
        work()


def test_duplicates():
    assert duplicates([b"a", b"b"], [b"b", b"c", b"ab", b"b"]).tolist() == [True, False, False, True]
    assert duplicates([], [b"a"]).tolist() == [False]
    many = [b"%d" % i for i in range(400_000)]
    started = time.perf_counter()
    assert duplicates(many, many).all()
    assert time.perf_counter() - started < 2  # measured .06
