"""Difference of means against scikit-learn's discriminants, and its probabilities against what they claim."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers.mass_mean import MassMean, path


def data(n=400, d=8, classes=3, seed=0, gap=1.0):
    """Correlated Gaussians with their own means: float32 (n, d), codes (n,)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    mix = np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d) / 2
    return (rng.normal(size=(n, d)) @ mix + gap * rng.normal(size=(classes, d))[y] + 3).astype(np.float32), y


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_the_posterior_is_that_of_scikit_learn(classes, shrinkage):
    x, y = data(classes=classes, gap=0.3)
    fresh = data(classes=classes, seed=1, gap=0.3)[0]
    twin = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None).fit(x.astype(float), y)
    mine = path(x, y[None], classes, (shrinkage,), calibrate=False)
    np.testing.assert_allclose(np.exp(mine.log_proba(fresh))[0, 0], twin.predict_proba(fresh), atol=5e-5)  # float32
    assert mine.converged.all()


def test_at_full_shrinkage_the_nearest_mean_wins():
    x, y = data(n=402, classes=3)
    y = np.arange(402) % 3  # equal shares: the prior plays no part
    fresh = data(seed=2)[0]
    mine = MassMean((1.0,), calibrate=False).fit(x, y).predict(fresh)[0, 0]
    assert (mine == NearestCentroid().fit(x, y).predict(fresh)).all()


def test_the_direction_of_two_classes_is_the_difference_of_means():
    x, y = data(classes=2)
    coef = path(x, y[None], 2, (1.0,)).coef[0, 0]
    direction, difference = coef[1] - coef[0], x[y == 1].mean(0) - x[y == 0].mean(0)
    cosine = direction @ difference / np.linalg.norm(direction) / np.linalg.norm(difference)
    assert cosine == pytest.approx(1, abs=1e-6)


def test_targets_together_are_targets_alone():
    x, y = data(classes=3)
    rng = np.random.default_rng(3)
    codes = np.array([y, rng.permutation(y), np.where(rng.random(len(y)) < 0.2, -1, y)])
    together = path(x, codes, 3).log_proba(x)
    for t, code in enumerate(codes):
        alone = path(x[code >= 0], code[code >= 0][None], 3).log_proba(x)[0]
        np.testing.assert_allclose(together[t], alone, atol=1e-4)
    assert abs(np.exp(together).sum(-1) - 1).max() < 1e-5


def test_a_weight_of_two_is_the_example_twice():
    x, y = data(n=100)
    w = np.random.default_rng(4).integers(3, size=100)
    twice = np.repeat(np.arange(100), w)
    weighed = path(x, y[None], 3, weights=w).log_proba(x)
    np.testing.assert_allclose(weighed, path(x[twice], y[twice][None], 3).log_proba(x), atol=1e-4)


def test_calibration_is_logistic_regression_on_the_projection():
    x, y = data(n=3000, classes=2, gap=0.4)
    raw, mine = (path(x, y[None], 2, (1.0,), calibrate=c) for c in (False, True))
    line = (x @ (raw.coef[0, 0, 1] - raw.coef[0, 0, 0]))[:, None]
    twin = LogisticRegression(C=1e6).fit((line - line.mean()) / line.std(), y)
    p = twin.predict_proba((line - line.mean()) / line.std())
    np.testing.assert_allclose(np.exp(mine.log_proba(x))[0, 0], p, atol=5e-3)  # the prior of one example: measured 1e-3
    losses = [-m.log_proba(x)[0, 0][np.arange(len(y)), y].mean() for m in (raw, mine)]
    assert losses[1] < losses[0]  # a spherical Gaussian is too sure


def test_shuffled_labels_stay_at_chance_and_true_ones_do_not():
    x, y = data(n=2000, classes=2, d=20, gap=0.5)
    both = np.stack([y, np.random.default_rng(5).permutation(y)], 1)
    probe = MassMean().fit(x[:1000], both[:1000])
    accuracy = (probe.predict(x[1000:]) == both[1000:].T[:, None]).mean(-1)
    assert accuracy[0].min() > 0.8
    assert abs(accuracy[1] - 0.5).max() < 0.06  # standard error .016, 6 settings
    loss = -probe.predict_log_proba(x[1000:])[1, 0][np.arange(1000), both[1000:, 1]].mean()
    assert loss == pytest.approx(np.log(2), abs=0.02)


def test_more_dimensions_than_examples_and_constant_ones():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(40, 100)).astype(np.float32)
    x[:, 7] = 0
    y = (x[:, 0] > 0).astype(int)
    fit = path(x, y[None], 2, (1.0, 0.5, 0.0))
    assert np.isfinite(fit.log_proba(x)).all()
    assert fit.converged.tolist() == [[True, True, False]]


def test_a_class_never_seen_is_rare_not_impossible():
    x, y = data(classes=3)
    out = path(x, np.where(y == 2, 0, y)[None], 3).log_proba(x)
    np.testing.assert_allclose(np.exp(out[..., 2]), 0.5 / 400.5, rtol=1e-5)
    np.testing.assert_allclose(np.exp(out).sum(-1), 1, atol=1e-5)


def test_a_memory_map_will_do(tmp_path):
    x, y = data()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(path(mapped, y[None], 3).log_proba(mapped), path(x, y[None], 3).log_proba(x))


def test_what_cannot_be_is_said():
    x, y = data()
    with pytest.raises(UsageError, match="fewer than two classes"):
        MassMean().fit(x, np.zeros(len(x), dtype=int))
    with pytest.raises(UsageError, match=r"labels must have the shape .*, not \(1, 3\)"):
        path(x, y[None, :3], 3)
    with pytest.raises(UsageError, match="shrinkages must lie between"):
        path(x, y[None], 3, (2.0,))
    x[5, 2] = np.nan
    with pytest.raises(NonFiniteError, match="between rows 0 and 399"):
        MassMean().fit(x, y)
