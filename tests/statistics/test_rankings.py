"""Ranks of models over tasks: against counting by hand, and how often intervals hold the true ranks."""

import numpy as np
import pytest
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics.rankings import ranks, tied


def measured(rng, true, n=300, resamples=400):
    """Accuracies of models that share the difficulty of each task's examples: values, and paired resamples."""
    hard = rng.normal(size=(len(true), 1, n))
    own = rng.normal(size=(*true.shape, n))
    right = np.sqrt(0.6) * hard + np.sqrt(0.4) * own < stats.norm.ppf(true)[:, :, None]
    weights = rng.multinomial(n, np.full(n, 1 / n), size=resamples) / n
    return right.mean(2), right @ weights.T


def held(rng, true, **more):
    """Whether the intervals hold the true ranks on each task, overall, and each mean rank; and the ranks."""
    found = ranks(*measured(rng, true), **more)
    rank = stats.rankdata(-true.round(9), axis=1)
    overall = stats.rankdata(-true.mean(0).round(9))
    mean = rank.mean(0)
    inside = (found.low <= rank).all(1) & (rank <= found.high).all(1)
    over = (found.overall_low <= overall).all() & (overall <= found.overall_high).all()
    return inside, over, (found.mean_low <= mean + 1e-9) & (mean - 1e-9 <= found.mean_high), found


def test_clear_differences_give_the_order():
    true = np.array([[0.9, 0.7, 0.5], [0.9, 0.5, 0.7], [0.9, 0.7, 0.5]])
    found = ranks(*measured(np.random.default_rng(0), true, n=2000))
    np.testing.assert_array_equal(found.rank, [[1, 2, 3], [1, 3, 2], [1, 2, 3]])
    np.testing.assert_array_equal(found.low, found.rank)
    np.testing.assert_array_equal(found.high, found.rank)
    np.testing.assert_allclose(found.mean_rank, [1, 7 / 3, 8 / 3])
    np.testing.assert_allclose(found.mean_low, found.mean_rank)
    np.testing.assert_allclose(found.mean_high, found.mean_rank)
    assert found.groups == ((0,), (1,), (2,))


def test_equal_models_share_a_group():
    value = np.tile([[0.8, 0.8, 0.8]], (4, 1))
    again = np.tile(np.random.default_rng(0).normal(0.8, 0.01, size=(4, 1, 300)), (1, 3, 1))
    found = ranks(value, again)
    np.testing.assert_array_equal(found.rank, 2)
    np.testing.assert_array_equal(found.low, 1)
    np.testing.assert_array_equal(found.high, 3)
    assert found.groups == ((0, 1, 2),)


def test_groups_overlap_like_bars():
    better = np.zeros((4, 4), dtype=bool)
    better[0, 2] = better[0, 3] = better[1, 3] = True
    assert tied(np.array([4.0, 3, 2, 1]), better) == ((0, 1), (1, 2), (2, 3))
    assert tied(np.array([1.0, 2, 3, 4]), np.zeros((4, 4), dtype=bool)) == ((3, 2, 1, 0),)


def test_a_missing_score_leaves_the_task_out_of_the_means():
    value, again = measured(np.random.default_rng(0), np.array([[0.9, 0.7, 0.5], [0.9, 0.5, 0.7]]), n=2000)
    value[1, 2], again[1, 2] = np.nan, np.nan
    found = ranks(value, again)
    np.testing.assert_array_equal(found.rank, [[1, 2, 3], [1, 2, np.nan]])
    np.testing.assert_array_equal(found.high, [[1, 2, 3], [1, 2, np.nan]])
    np.testing.assert_allclose(found.mean, value[0])


def test_few_units_widen():
    value, again = measured(np.random.default_rng(3), np.array([[0.8, 0.7]]), n=200)
    assert ranks(value, again).better[0, 0, 1]
    assert not ranks(value, again, units=[5]).better.any()


def test_what_cannot_be_ranked():
    with pytest.raises(UsageError, match="two or more models"):
        ranks(np.zeros((2, 1)), np.zeros((2, 1, 100)))
    with pytest.raises(UsageError, match="3 numbers of units for 2 tasks"):
        ranks(np.zeros((2, 2)), np.zeros((2, 2, 100)), units=[1, 2, 3])


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.1])
def test_intervals_hold_the_true_ranks(spread):
    """12 tasks of 4 models; 95 % ± three standard errors of 480 tasks, and of 40 suites."""
    rng = np.random.default_rng(0)
    runs = [held(rng, 0.8 + spread * rng.uniform(-1, 1, size=(12, 4))) for _ in range(40)]
    assert np.mean([inside for inside, *_ in runs]) > 0.92
    assert np.mean([over for _, over, *_ in runs]) > 0.84
    assert np.mean([mean for _, _, mean, _ in runs]) > 0.92


def test_percentiles_of_resampled_ranks_do_not():
    """The control that must fail: models that are better by one standard error on each of 12 tasks."""
    rng, hits, ours = np.random.default_rng(0), [], []
    true = np.tile([[0.82, 0.8]], (12, 1))
    for _ in range(40):
        value, again = measured(rng, true)
        drawn = stats.rankdata(-again, axis=1).mean(0)
        low, high = np.quantile(drawn, [0.025, 0.975], axis=1)
        hits.append((low <= [1, 2]).all() & (high >= [1, 2]).all())
        found = ranks(value, again)
        ours.append((found.mean_low <= [1, 2]).all() & (found.mean_high >= [1, 2]).all())
    assert np.mean(hits) < 0.5
    assert np.mean(ours) > 0.9
