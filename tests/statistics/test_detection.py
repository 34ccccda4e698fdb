"""Areas, thresholds and differences of scores, against scikit-learn, a jackknife and direct counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from probekit.statistics.detection import (
    area,
    area_influence,
    area_interval,
    difference,
    own_recall,
    rate_interval,
    smallest_rate,
    threshold,
)


@pytest.fixture
def scored() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = (rng.random(60) < 0.4).astype(int)
    return y, np.round(rng.normal(size=(3, 60)) + y, 1)  # with ties


def test_the_area_is_that_of_scikit_learn(scored: tuple[np.ndarray, np.ndarray]) -> None:
    y, scores = scored
    np.testing.assert_allclose(area(y, scores), [roc_auc_score(y, s) for s in scores], rtol=1e-12)
    assert np.isnan(area(np.ones(3, dtype=int), np.zeros((1, 3)))[0])


def test_the_influence_is_what_leaving_out_an_example_changes(scored: tuple[np.ndarray, np.ndarray]) -> None:
    y, scores = scored
    influence, whole = area_influence(y, scores), area(y, scores)
    for i in range(0, 60, 7):
        rest = np.arange(60) != i
        same = (y == y[i]).sum()
        change = (whole - area(y[rest], scores[:, rest])) * (same - 1)  # exact: the area is a mean over each class
        np.testing.assert_allclose(influence[:, i], change * 60 / same, atol=1e-9)


def test_groups_of_copies_widen_the_interval(scored: tuple[np.ndarray, np.ndarray]) -> None:
    y, scores = scored
    low, high, _ = area_interval(y, scores)
    twice = np.tile(y, 2), np.tile(scores, (1, 2))
    wide = area_interval(*twice, np.tile(np.arange(60), 2))
    np.testing.assert_allclose(wide[:2], (low, high), rtol=1e-9)
    assert (area_interval(*twice)[0] > low).all()


def test_the_interval_of_an_area_of_1_is_not_empty_and_few_examples_have_none() -> None:
    y = np.repeat([0, 1], [40, 10])
    low, high, why = area_interval(y, y[None].astype(float))
    assert 0.7 < low[0] < 0.95
    assert high[0] == pytest.approx(1)
    assert not why
    low, _, why = area_interval(y[:-1], y[None, :-1].astype(float))
    assert np.isnan(low).all()
    assert why == "9 positives; intervals need at least 10"
    groups = np.repeat(np.arange(25), 2)
    assert area_interval(y, y[None], groups)[2] == "5 groups with positives; intervals need at least 10"
    assert np.isnan(own_recall(y[:-1], y[None, :-1] * 1.0, 0.1)[1]).all()


def test_the_interval_of_few_positives_covers_the_area() -> None:
    rng, y = np.random.default_rng(3), np.repeat([0, 1], [190, 10])
    low, high, _ = area_interval(y, rng.normal(size=(1000, 200)))
    assert 0.93 < ((low <= 0.5) & (high >= 0.5)).mean() < 0.985  # ± .7 %; 91.5 % of the symmetric one of log-odds


@pytest.mark.parametrize(("m", "rate"), [(100, 0.01), (250, 0.01), (199, 0.01), (40, 0.1)])
def test_a_threshold_lets_the_rate_pass(m: int, rate: float) -> None:
    negative = np.random.default_rng(m).normal(size=(1, m))
    at = threshold(negative, rate)[0]
    assert (negative > at).sum() == int(rate * m)
    assert (negative >= at).sum() == int(rate * m) + 1


def test_rates_without_groups_are_those_of_clopper_and_pearson() -> None:
    scores = np.random.default_rng(0).normal(size=150)
    low, high = rate_interval(scores, 6)
    assert low == pytest.approx(stats.beta.ppf(0.025, 7, 144))
    assert high == pytest.approx(stats.beta.ppf(0.975, 7, 144))
    tied = np.r_[np.zeros(100), 1:4]  # 3 above, whatever is asked for
    low, high = rate_interval(tied, 10)
    exact = stats.binomtest(3, 103).proportion_ci(method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high))
    assert rate_interval(np.zeros(100), 5)[0] == 0


def test_rates_of_copies_are_those_of_one_of_each() -> None:
    scores, of = np.random.default_rng(1).normal(size=60), np.repeat(np.arange(60), 20)
    assert rate_interval(np.repeat(scores, 20), 60, of) == pytest.approx(rate_interval(scores, 3), rel=0.02)
    low, high = rate_interval(scores, 3, np.zeros(60, int))  # one group is one example
    assert low < 0.001
    assert high > 0.9


@pytest.mark.parametrize(("groups", "size", "rate"), [(60, 20, 0.01), (20, 20, 0.05)])
def test_rates_of_groups_of_near_copies_are_covered(groups: int, size: int, rate: float) -> None:
    rng, of = np.random.default_rng(2), np.repeat(np.arange(groups), size)
    held = []
    for _ in range(600):
        scores = 0.9**0.5 * rng.normal(size=groups)[of] + 0.1**0.5 * rng.normal(size=len(of))
        low, high = rate_interval(scores, above := round(rate * len(of)), of)
        held.append(low <= stats.norm.sf(np.sort(scores)[-1 - above]) <= high)
    assert np.mean(held) > 0.935  # ± .9 %; without groups at the threshold itself 90 and 92 %


def test_too_few_negatives_give_no_threshold() -> None:
    assert np.isnan(threshold(np.zeros((1, 99)), 0.01)[0])
    assert smallest_rate(43) == 1 / 43


def test_recall_at_the_own_threshold_is_a_count() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 300)
    scores = rng.normal(size=(2, 600)) + 2 * y
    value, low, high, at = own_recall(y, scores, 0.02, resamples=200)
    for f in range(2):
        ordered = np.sort(scores[f, :300])
        assert at[f] == ordered[-7]
        assert value[f] == (scores[f, 300:] > ordered[-7]).mean()
        assert low[f] < value[f] < high[f]
    assert np.isnan(own_recall(y[250:], scores[:, 250:], 0.01)[0]).all()


def test_a_difference_counts_both_samples() -> None:
    influence = np.random.default_rng(2).normal(size=200)
    alone = difference(0.1, influence, np.full(10, 0.1))
    assert alone.of_train == pytest.approx(0, abs=1e-12)
    assert alone.of_test == pytest.approx(influence.std(ddof=1) / np.sqrt(200))
    both = difference(0.1, influence, np.linspace(0.05, 0.15, 10))
    assert both.p > alone.p
    spread = np.linspace(0.05, 0.15, 10)
    assert both.of_train == pytest.approx(np.sqrt(0.9 * ((spread - spread.mean()) ** 2).sum()))
    assert np.isnan(difference(0.0, np.zeros(20), np.zeros(10)).p)
