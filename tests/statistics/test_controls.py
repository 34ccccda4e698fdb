"""Controls keep what they promise to keep, and nothing else; selectivity on rows whose answer is known."""

import numpy as np
import pandas as pd
import pytest

from probekit.errors import UsageError
from probekit.statistics.controls import control_task, selectivity_interval, shuffled, shuffled_splits


def labels(n=4000, seed=0):
    y = np.random.default_rng(seed).choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    y[::10] = -1
    return y


@pytest.mark.parametrize("y", [labels(), np.where(labels() < 0, np.nan, labels() / 3)])
def test_shuffled_labels_are_the_same_labels_elsewhere(y):
    out = shuffled(y, 5, 0)
    assert out.dtype == y.dtype
    for one in out:
        np.testing.assert_array_equal(np.sort(one), np.sort(y))
        np.testing.assert_array_equal(np.isnan(one) | (one == -1), np.isnan(y) | (y == -1))
    known = ~(np.isnan(y) | (y == -1))
    same = (out[:, known] == y[known]).mean(1)
    np.testing.assert_allclose(same, 0.3, atol=0.04)  # .4² + .3² + .2² + .1²; standard error .008
    np.testing.assert_array_equal(out, shuffled(y, 9, 0)[:5])
    assert (out[0] != out[1]).any()
    assert (out[0] != shuffled(y, 1, 1)[0])[known].any()


def test_every_permutation_is_as_likely():
    out = shuffled(np.arange(3), 6000, 0)
    counts = np.unique(out, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    np.testing.assert_allclose(counts, 1000, atol=150)  # five standard errors


def test_splits_are_permuted_each_on_its_own():
    y = np.arange(50)
    train, dev = shuffled_splits(y, y, 3, 7)
    assert (train != dev).any(1).all()
    np.testing.assert_array_equal(train, shuffled_splits(y, y[:10], 3, 7)[0])


def test_groups_move_as_wholes():
    groups = np.repeat(np.arange(60), np.repeat([1, 2, 5], 20))
    y = 10 * groups + np.arange(len(groups)) - np.searchsorted(groups, groups)
    perm = np.random.default_rng(0).permutation(len(y))
    (moved,) = shuffled(y[perm], 1, 0, groups=groups[perm])
    moved = moved[np.argsort(perm)]
    assert sorted(moved) == sorted(y)  # groups of one size exchange: every label once
    assert all(len(set(moved[groups == g] // 10)) == 1 for g in range(60))
    assert sum(moved[groups == g][0] // 10 == g for g in range(60)) < 15
    assert any(np.diff(moved[groups == g]).min() < 0 for g in range(40, 60))  # and change places within
    (ordered,) = shuffled(y, 1, 0, groups=groups, ordered=True)
    steps = np.diff(ordered.reshape(-1)[-100:].reshape(20, 5)) % 10
    assert (np.sort(steps, 1)[:, :3] == 1).all()  # words keep their neighbours, from a place that is drawn
    assert len({int(s) % 10 for s in ordered[-100::5]}) > 1
    over = shuffled(y, 1, 0)[0]  # the control: over all rows the groups are torn
    assert sum(len(set(over[groups == g] // 10)) == 1 for g in range(20, 60)) < 5


def test_groups_of_rare_sizes_exchange_with_their_neighbours():
    size = np.array([1] * 30 + [3, 4, 4, 7, 9])
    groups = np.repeat(np.arange(35), size)
    y = groups.copy()
    y[0] = -1
    draws = shuffled(y, 200, 0, groups=groups)
    assert (draws[:, 0] == -1).all()
    for g in range(30, 35):
        own = draws[:, groups == g]
        assert (own == own[:, :1]).all()
        assert set(own[:, 0]) == {30, 31, 32, 33, 34}
    with pytest.raises(UsageError, match="one group"):
        shuffled(y[:3] * 0, 1, 0, groups=np.zeros(3))


def test_control_task_labels_types():
    rng = np.random.default_rng(0)
    train, dev = rng.integers(0, 3000, 20000), rng.integers(1000, 4000, 5000)
    y = rng.choice(3, 20000, p=[0.7, 0.2, 0.1])
    y[:50] = -1
    out, out_dev = control_task(train, dev, y, 4, 0)
    assert (out.shape, out_dev.shape) == ((4, 20000), (4, 5000))
    assert (out[:, :50] == -1).all()
    assert (out[:, 50:] >= 0).all()
    for a, b in zip(out, out_dev, strict=True):
        seen = {}
        for t, label in [*zip(train[50:], a[50:], strict=True), *zip(dev, b, strict=True)]:
            assert seen.setdefault(t, label) == label
        shares = np.bincount(list(seen.values())) / len(seen)
        np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.04)  # five standard errors of 4,000 types
    assert (out[0] != out[1]).any()
    np.testing.assert_array_equal(control_task(train, dev, y, 2, 0)[1], out_dev[:2])
    by_token = shuffled(y, 1, 0)[0]  # the control: shuffled labels differ within a type
    assert pd.Series(by_token[50:]).groupby(train[50:]).nunique().max() > 1


def test_control_tasks_of_spans_leave_outside_what_is_mostly_outside():
    """As many words are outside as in gold; types that are mostly names draw from the tags of names."""
    rng = np.random.default_rng(0)
    inside = np.arange(1000) < 200  # types; a fifth of the types, and of the words
    train, dev = rng.integers(0, 800, 20000) + 100, rng.integers(0, 1000, 5000)
    tag = rng.choice([1, 2], 20000, p=[0.75, 0.25])
    y = np.where(rng.random(20000) < np.where(inside[train], 0.9, 0.1), tag, 0)
    out, out_dev = control_task(train, dev, y, 5, 0, outside=0)
    seen = dev >= 100
    for a, b in zip(out, out_dev, strict=True):
        np.testing.assert_array_equal(a > 0, inside[train])
        np.testing.assert_array_equal(b[seen & (dev < 900)] > 0, inside[dev[seen & (dev < 900)]])
        of_type = dict(zip(train, a, strict=True)) | dict(zip(dev, b, strict=True))
        assert all(of_type[t] == label for t, label in [*zip(train, a, strict=True), *zip(dev, b, strict=True)])
        assert np.mean([of_type[t] > 0 for t in np.unique(dev[~seen])]) < 0.5  # the share of types, not of names
    drawn = np.array([one[np.unique(train, return_index=True)[1]][:100] for one in out])
    assert (drawn == 1).mean() == pytest.approx(0.75, abs=0.1)  # five standard errors of 500 draws
    np.testing.assert_array_equal(control_task(train, dev, y, 2, 0, outside=0)[1], out_dev[:2])
    (as_ever,), _ = control_task(train, dev, y, 1, 0)  # the control: random over all types
    assert len(set(as_ever[~inside[train]])) == 3
    one_tag = np.minimum(y, 1)  # nothing to draw but that tag
    np.testing.assert_array_equal(
        control_task(train, dev, one_tag, 1, 0, outside=0)[0], control_task(train, dev, one_tag, 1, 0)[0]
    )


def test_control_task_of_numbers_and_of_too_little():
    types = np.arange(100) % 10
    y = np.random.default_rng(0).normal(size=100)
    out, dev = control_task(types, types[:10], y, 1, 0)
    assert set(out[0]) <= set(y)
    np.testing.assert_array_equal(dev[0], out[0, :10])
    rare = np.where(np.arange(100) == 0, 1, 0)
    assert (np.ptp(control_task(types, types, rare, 20, 0)[0], axis=1) == 1).all()  # both labels, always
    with pytest.raises(UsageError, match="two word types"):
        control_task(np.zeros(100, int), types, y, 1, 0)


def test_interval_of_selectivity():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2, 4000))  # the same resamples move gold and controls alike
    gold = shared + np.array([[0.5], [0.0]])
    constant = np.stack([shared, shared])
    low, high = selectivity_interval(gold, constant)
    np.testing.assert_allclose([low, high], [[0.5, 0.0]] * 2, atol=1e-12)
    spread = constant + np.array([-1.0, 1.0])[:, None, None]  # the controls differ: their draw counts
    low, high = selectivity_interval(gold, spread)
    wide = np.sqrt(2)  # two of two draws have half of the variance, which is made up for
    np.testing.assert_allclose([low, high], [[0.5 - wide, -wide], [0.5 + wide, wide]], atol=1e-12)
    assert (selectivity_interval(gold, spread, level=0.3)[1] - [0.5, 0] < 0.1).all()
    gold[1, :3000] = np.nan
    assert np.isnan(selectivity_interval(gold, constant)[0]).tolist() == [False, True]
    with pytest.raises(UsageError, match="do not match"):
        selectivity_interval(gold[:1], constant)


def test_two_groups_of_rare_sizes_do_not_exchange_with_each_other_alone():
    groups = np.repeat(np.arange(32), [1] * 30 + [3, 4])
    draws = shuffled(groups, 200, 0, groups=groups)
    assert set(draws[:, groups == 31][:, 0]) == set(range(32))
