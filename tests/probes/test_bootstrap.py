"""The bootstrap against a loop over resamples, and against theory."""

import numpy as np
import pytest

from probekit.probes.bootstrap import TWINS, interval
from probekit.tasks.metrics import metric

NUMBERS = ("pearson", "spearman")


def draw(name, n=60):
    rng = np.random.default_rng(5)
    if name == "span-f1":
        tags = np.array(["O", "B-PER", "I-PER", "B-LOC"], dtype=object)
        sentences = [rng.integers(4, size=rng.integers(1, 6)) for _ in range(n)]
        gold, guess = np.empty(n, dtype=object), np.empty(n, dtype=object)
        gold[:] = [list(tags[s]) for s in sentences]
        guess[:] = [list(tags[np.where(rng.random(len(s)) < 0.8, s, 0)]) for s in sentences]
        return gold, guess
    if name in NUMBERS:
        gold = np.round(rng.normal(size=n) * 3)  # with ties
        return gold, gold + rng.normal(size=n)
    classes = 2 if name == "f1" else 4
    gold = rng.integers(classes, size=n)
    return gold, np.where(rng.random(n) < 0.7, gold, rng.integers(classes, size=n))


@pytest.mark.parametrize("name", TWINS)
def test_all_at_once_equals_one_by_one(name):
    gold, guess = draw(name)
    score = metric(name).function
    once = interval(gold, guess, score, name=name, resamples=200, seed=3)
    loop = interval(gold, guess, score, name="unknown", resamples=200, seed=3)
    np.testing.assert_allclose(once, loop, atol=1e-9)  # sums in another order
    assert once[0] < score(gold, guess) < once[1]


def test_a_metric_that_is_not_what_its_name_says_is_looped_over():
    gold, guess = draw("accuracy")
    low, high = interval(gold, guess, lambda t, p: 10 + np.mean(t == p), name="accuracy", resamples=50)
    assert 10 < low < high < 11


def test_width_follows_the_binomial():
    n, p = 2000, 0.8
    gold = np.ones(n, dtype=int)
    low, high = interval(gold, (np.arange(n) < p * n).astype(int), metric("accuracy").function, name="accuracy")
    half = 1.96 * np.sqrt(p * (1 - p) / n)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.002)  # 1,000 resamples: spread of a bound 0.0006


def test_words_of_a_sentence_are_drawn_together():
    """Ten copies of each example say no more than one: the interval of groups is that of the distinct examples."""
    gold, guess = draw("accuracy", 100)
    tenfold = [np.repeat(y, 10) for y in (gold, guess)]
    score = metric("accuracy").function
    alone = interval(gold, guess, score, name="accuracy", seed=1)
    grouped = interval(*tenfold, score, name="accuracy", seed=1, groups=np.repeat(np.arange(100), 10))
    assert grouped == pytest.approx(alone, abs=1e-12)
    ungrouped = interval(*tenfold, score, name="accuracy", seed=1)
    assert ungrouped[1] - ungrouped[0] < 0.5 * (alone[1] - alone[0])


def test_the_same_seed_draws_the_same_and_another_one_others():
    gold, guess = draw("pearson")
    a, b, c = (interval(gold, guess, metric("pearson").function, name="pearson", seed=s) for s in (0, 0, 1))
    assert a == b != c


def test_undefined_and_unwanted_intervals_are_nan():
    gold = np.zeros(20)
    assert np.isnan(interval(gold, gold + 1, lambda t, p: float("nan"))).all()
    assert np.isnan(interval(gold, gold, metric("accuracy").function, name="accuracy", resamples=0)).all()


def test_blocks_do_not_change_the_numbers(monkeypatch):
    gold, guess = draw("accuracy")
    score = metric("accuracy").function
    monkeypatch.setattr("probekit.probes.bootstrap.BLOCK", 60 * 7)
    low, high = interval(gold, guess, score, name="accuracy", resamples=100)
    monkeypatch.setattr("probekit.probes.bootstrap.BLOCK", 1 << 30)
    assert (low, high) == interval(gold, guess, score, name="accuracy", resamples=100)
