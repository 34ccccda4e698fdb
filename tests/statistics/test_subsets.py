"""A metric on a subset against the rest: textbook intervals, groups on both sides, and how often it errs."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression, Ridge

from probekit.statistics.multiplicity import holm
from probekit.statistics.subsets import against_rest
from probekit.statistics.two_samples import mean_difference


def outcomes(right, of, others_right, others):
    """Gold and predicted classes, and which of the examples are chosen."""
    right = np.repeat([1, 0, 1, 0], [right, of - right, others_right, others - others_right])
    return {"gold": np.ones(len(right), int), "predicted": right[None]}, np.arange(len(right)) < of


def test_accuracy_has_agresti_and_caffos_interval():
    sample, chosen = outcomes(12, 20, 130, 160)
    found, p = against_rest(chosen, "accuracy", resamples=100_000, **sample)
    a, b = 13 / 22, 131 / 162
    error = np.sqrt(a * (1 - a) / 22 + b * (1 - b) / 162)
    assert (found.first, found.second, found.value) == pytest.approx((0.6, 0.8125, -0.2125))
    ends = [a - b - 1.96 * error, a - b + 1.96 * error]
    assert [found.ci_low, found.ci_high] == pytest.approx(ends, abs=0.006)  # of the posterior: n + 3 instead of n + 2
    assert p == pytest.approx(2 * stats.norm.sf(abs(a - b) / error), rel=0.15)
    theirs = mean_difference(sample["predicted"][0].astype(float), chosen)
    assert [found.ci_low, found.ci_high] == pytest.approx([theirs.ci_low, theirs.ci_high], abs=0.006)


def test_log_losses_have_welchs_interval():
    rng = np.random.default_rng(0)
    losses, chosen = rng.gamma(2, size=120), np.arange(120) < 40
    sample = {"gold": np.zeros(120, int), "predicted": np.zeros((1, 120), int), "log_loss": losses[None]}
    found, p = against_rest(chosen, "log-loss", resamples=20_000, **sample)
    theirs = stats.ttest_ind(losses[chosen], losses[~chosen], equal_var=False)
    assert p == pytest.approx(theirs.pvalue, rel=0.1)
    ends = theirs.confidence_interval(0.95)
    assert [found.ci_low, found.ci_high] == pytest.approx([ends.low, ends.high], abs=0.02)


def test_groups_on_both_sides_share_their_weight():
    """Each group's examples are all right or all wrong: with one of each pair on each side nothing differs."""
    rng = np.random.default_rng(1)
    right, groups = np.repeat(rng.random(100) < 0.7, 2).astype(int), np.repeat(np.arange(100), 2)
    sample = {"gold": np.ones(200, int), "predicted": right[None]}
    even = np.arange(200) % 2 == 0
    apart, _ = against_rest(even, "accuracy", **sample)
    together, _ = against_rest(even, "accuracy", groups=groups, **sample)
    assert together.value == apart.value == 0
    assert together.ci_high - together.ci_low < (apart.ci_high - apart.ci_low) / 3
    whole = groups < 50  # no group on both sides: half as many independent outcomes
    alone, _ = against_rest(whole, "accuracy", **sample)
    grouped, _ = against_rest(whole, "accuracy", groups=groups, **sample)
    assert (grouped.ci_high - grouped.ci_low) / (alone.ci_high - alone.ci_low) == pytest.approx(np.sqrt(2), rel=0.1)


def test_the_order_of_examples_and_the_side_do_not_matter_much():
    sample, chosen = outcomes(12, 20, 130, 160)
    one, p = against_rest(chosen, "accuracy", **sample)
    other, q = against_rest(~chosen, "accuracy", **sample)
    assert other.value == -one.value
    assert (other.ci_low, q) == pytest.approx((-one.ci_high, p), abs=0.015)  # of intervals .43 wide


def test_without_an_interval():
    sample, chosen = outcomes(3, 4, 90, 100)
    found, p = against_rest(chosen, "accuracy", **sample)
    assert found.value == pytest.approx(-0.15)
    assert np.isnan([found.ci_low, found.ci_high, p]).all()  # four examples


def named(metric, repeats, worse=0.0):
    """The share of simulated test sets on which any of four slices, and a fifth, is found to be different.

    A linear model is trained on the words of 400 sentences, and evaluated on 300 others. Which of five other words a
    sentence has does not matter, but for the last one, with which a share ``worse`` of the labels is random.
    """
    found = np.zeros((repeats, 2), dtype=bool)
    for i in range(repeats):
        rng = np.random.default_rng([7, i])
        x = rng.normal(size=(700, 10))
        clean = x[:, 0] + 0.5 * x[:, 1] + rng.normal(0, 0.8, 700)
        words = rng.random((700, 5)) < (0.05, 0.1, 0.3, 0.5, 0.15)
        y = np.where(words[:, 4] & (rng.random(700) < worse), rng.permutation(clean), clean)
        if metric == "pearson":
            model = Ridge().fit(x[:400], y[:400])
        else:
            y = (y > 0.4).astype(int)
            model = LogisticRegression().fit(x[:400], y[:400])
        sample = {"gold": y[400:], "predicted": model.predict(x[400:])[None]}
        p = [against_rest(word, metric, resamples=500, seed=i, **sample)[1] for word in words[400:].T]
        small = holm(np.array(p)) <= 0.05
        found[i] = small[:4].any(), small[4]
    return found.mean(0)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["accuracy", "matthews", "f1", "pearson"])
def test_slices_of_equal_quality_are_rarely_called_different(metric):
    """Holm holds the rate of any false statement at 5 %; 400 repeats have a Monte Carlo error of 1.1 points."""
    repeats = 400
    false, last = named(metric, repeats)
    error = np.sqrt(0.05 * 0.95 / repeats)
    print(f"{metric}: any of four equal slices {false:.3f}, the fifth {last:.3f} (Monte Carlo error {error:.3f})")
    assert false <= 0.05 + 3 * error
    assert last <= 0.05 + 3 * error
    false, found = named(metric, repeats // 4, worse=0.9)
    print(f"{metric}, one worse slice: any of four equal slices {false:.3f}, the worse {found:.3f}")
    assert false <= 0.05 + 3 * 2 * error
    assert found > 0.5
