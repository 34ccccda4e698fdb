"""Ranks of models over tasks: against counting by hand, and how often intervals hold the true ranks."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics.rankings import ranks, tied


def measured(rng, true, n=300, draws=1000):
    """Accuracies of models that share the difficulty of each task's examples, and exchanged differences of pairs."""
    hard = rng.normal(size=(len(true), 1, n))
    own = rng.normal(size=(*true.shape, n))
    return exchanged(rng, np.sqrt(0.6) * hard + np.sqrt(0.4) * own < stats.norm.ppf(true)[:, :, None], draws)


def exchanged(rng, right, draws=1000):
    """Values of right answers (tasks, models, n), and the differences if the signs of examples are drawn."""
    pairs = np.array(list(combinations(range(right.shape[1]), 2)))
    apart = right[:, pairs[:, 0]].astype(float) - right[:, pairs[:, 1]]
    return right.mean(2), apart @ rng.choice([-1.0, 1.0], size=(right.shape[2], draws)) / right.shape[2]


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
    found = ranks(np.tile([[0.8, 0.8, 0.8]], (4, 1)), np.random.default_rng(0).normal(0, 0.01, size=(4, 3, 300)))
    np.testing.assert_array_equal(found.rank, 2)
    np.testing.assert_array_equal(found.low, 1)
    np.testing.assert_array_equal(found.high, 3)
    assert found.groups == ((0, 1, 2),)


@pytest.mark.parametrize(("discordant", "shown"), [(4, False), (5, False), (6, True), (20, True)])
def test_few_examples_that_tell_models_apart(discordant, shown):
    """The exact two-sided p of k to 0 is 2 ** (1 - k): .125, .0625, .031."""
    right = np.ones((1, 2, 400), dtype=bool)
    right[0, 1, :discordant] = False
    found = ranks(*exchanged(np.random.default_rng(0), right, draws=5000))
    assert found.better[0].tolist() == [[False, shown], [False, False]]
    assert found.better_overall[0, 1] == shown
    assert found.high[0].tolist() == ([1, 2] if shown else [2, 2])


def test_groups_overlap_like_bars():
    better = np.zeros((4, 4), dtype=bool)
    better[0, 2] = better[0, 3] = better[1, 3] = True
    assert tied(np.array([4.0, 3, 2, 1]), better) == ((0, 1), (1, 2), (2, 3))
    assert tied(np.array([1.0, 2, 3, 4]), np.zeros((4, 4), dtype=bool)) == ((3, 2, 1, 0),)


def test_a_missing_score_leaves_the_task_out_of_the_means():
    value, null = measured(np.random.default_rng(0), np.array([[0.9, 0.7, 0.5], [0.9, 0.5, 0.7]]), n=2000)
    value[1, 2] = np.nan
    found = ranks(value, null)
    np.testing.assert_array_equal(found.rank, [[1, 2, 3], [1, 2, np.nan]])
    np.testing.assert_array_equal(found.high, [[1, 2, 3], [1, 2, np.nan]])
    np.testing.assert_allclose(found.mean, value[0])


def test_what_cannot_be_ranked():
    with pytest.raises(UsageError, match="two or more models"):
        ranks(np.zeros((2, 1)), np.zeros((2, 0, 100)))
    with pytest.raises(UsageError, match="pairs of models"):
        ranks(np.zeros((2, 3)), np.zeros((2, 2, 100)))


@pytest.mark.parametrize("spread", [0.02, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.0, 0.1))])
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
        hard, own = rng.normal(size=(12, 1, 300)), rng.normal(size=(12, 2, 300))
        right = np.sqrt(0.6) * hard + np.sqrt(0.4) * own < stats.norm.ppf(true)[:, :, None]
        again = right @ (rng.multinomial(300, np.full(300, 1 / 300), size=400) / 300).T
        low, high = np.quantile(stats.rankdata(-again, axis=1).mean(0), [0.025, 0.975], axis=1)
        hits.append((low <= [1, 2]).all() & (high >= [1, 2]).all())
        found = ranks(*exchanged(rng, right))
        ours.append((found.mean_low <= [1, 2]).all() & (found.mean_high >= [1, 2]).all())
    assert np.mean(hits) < 0.5
    assert np.mean(ours) > 0.9


@pytest.mark.parametrize(
    ("alike", "document"),
    [pytest.param(0.5, 1, marks=pytest.mark.slow), pytest.param(0.99, 1, marks=pytest.mark.slow), (0.9, 5)],
)
def test_equal_models_are_rarely_told_apart(alike, document):
    """Three models, 300 examples or 60 documents of 5: at most 5 %, and two standard errors of 200 runs."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        of = np.repeat(rng.normal(size=(4, 300 // document)), document, axis=1)
        noise = (np.sqrt(0.5) * of + np.sqrt(0.5) * rng.normal(size=(4, 300))) if document > 1 else of
        right = np.sqrt(alike) * noise[:1] + np.sqrt(1 - alike) * noise[1:] < 0.7
        pairs = np.array([[0, 1], [0, 2], [1, 2]])
        apart = (right[pairs[:, 0]].astype(float) - right[pairs[:, 1]]).reshape(3, -1, document).sum(2)
        null = apart @ rng.choice([-1.0, 1.0], size=(apart.shape[1], 500)) / 300
        found.append(ranks(right.mean(1)[None], null[None]).better.any())
    assert np.mean(found) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert np.mean(found) > 0  # so that the test can fail
