"""RidgePath against scikit-learn, the normal equations, and models that are really fitted again without a row."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers.ridge import RidgePath, fit_ridge

ALPHAS = (1e-3, 1.0, 1e3)


def toy(n=200, d=12, targets=3, seed=0, kind=np.float32):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3
    return x.astype(kind), x @ rng.normal(size=(d, targets)) + rng.normal(size=(n, targets)) + 5


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n", "d"), [(200, 12), (30, 60), (20, 20)])
def test_normal_equations_and_scikit_learn(n, d, kind):
    x, y = toy(n, d, kind=kind)
    path = RidgePath(ALPHAS).fit(x, y)
    x = x.astype(np.float64)
    centred = x - x.mean(0)
    for a, alpha in enumerate(ALPHAS):
        closed = np.linalg.solve(centred.T @ centred + alpha * np.eye(d), centred.T @ (y - y.mean(0)))
        got = centred @ path.coef_[:, a, 0].T
        np.testing.assert_allclose(got, centred @ closed, atol=2e-4 * y.std())  # measured 1e-5 in float32 sums
        twin = Ridge(alpha=alpha, solver="svd").fit(x, y)
        here = x @ path.coef_[:, a, 0].T + path.intercept_[:, a, 0]
        np.testing.assert_allclose(here, twin.predict(x), atol=2e-4 * y.std())
        np.testing.assert_allclose(path.predict(x.astype(kind))[:, a].T, twin.predict(x), atol=1e-3 * y.std())
    assert path.coef_.shape == (3, 3, 1, d)
    assert (path.decrement_ < 1e-8).all()


def test_in_float64_the_solution_is_exact():
    x, y = toy(60, 40, kind=np.float64)
    path = RidgePath(ALPHAS).fit(x, y)
    for a, alpha in enumerate(ALPHAS):
        twin = Ridge(alpha=alpha, solver="svd").fit(x, y)
        np.testing.assert_allclose(path.coef_[:, a, 0], twin.coef_, atol=1e-9)  # measured 3e-11


@pytest.mark.parametrize(("n", "d"), [(40, 5), (30, 50)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_left_out_rows_are_predicted_as_if_fitted_again(n, d, kind):
    x, y = toy(n, d, targets=2, kind=kind)
    path = RidgePath((0.1, 10.0, 1e4)).fit(x, y)
    for a, alpha in enumerate(path.alphas):
        errors = []
        for i in range(n):
            rest = np.arange(n) != i
            again = Ridge(alpha=alpha, solver="svd").fit(x[rest].astype(np.float64), y[rest])
            errors.append((again.predict(x[i : i + 1].astype(np.float64))[0] - y[i]) ** 2)
        np.testing.assert_allclose(path.leave_one_out_[:, a], np.mean(errors, axis=0), rtol=1e-4)


def test_ridge_cv_chooses_the_same():
    x, y = toy(150, 60, targets=4, kind=np.float64)
    y += 30 * np.random.default_rng(0).normal(size=y.shape) * np.array([0, 1, 3, 10])
    alphas = np.logspace(-3, 6, 10)
    path = RidgePath(alphas).fit(x, y)
    twin = RidgeCV(alphas, store_cv_results=True, alpha_per_target=True).fit(x, y)
    np.testing.assert_array_equal(path.alpha_, twin.alpha_)
    assert len(set(path.alpha_)) > 1
    np.testing.assert_allclose(path.leave_one_out_, twin.cv_results_.mean(0), rtol=1e-6)


def test_standardised_features_are_those_of_a_pipeline():
    x, y = toy()
    x *= np.logspace(-3, 3, x.shape[1]).astype(np.float32)
    path = RidgePath((1.0, 100.0), standardise=True).fit(x, y)
    for a, alpha in enumerate((1.0, 100.0)):
        twin = make_pipeline(StandardScaler(), Ridge(alpha=alpha)).fit(x.astype(np.float64), y)
        np.testing.assert_allclose(path.predict(x)[:, a].T, twin.predict(x.astype(np.float64)), atol=2e-4 * y.std())


def test_directions_that_no_row_has():
    """Duplicates share a weight; constants, and noise of rounding, get none."""
    x, y = toy()
    alone = RidgePath((1.0, 100.0), standardise=True).fit(x, y)
    noise = 1000 + 1e-3 * x[:, :1]
    more = np.hstack([x, np.full((len(x), 1), 7.0), noise]).astype(np.float32)
    path = RidgePath((1.0, 100.0), standardise=True).fit(more, y)
    assert (path.coef_[..., x.shape[1] :] == 0).all()
    np.testing.assert_allclose(path.coef_[..., : x.shape[1]], alone.coef_, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(path.leave_one_out_, alone.leave_one_out_, rtol=1e-5)
    twice = RidgePath(2.0).fit(np.hstack([x, x]), y)
    np.testing.assert_allclose(twice.coef_[..., : x.shape[1]], twice.coef_[..., x.shape[1] :], atol=1e-5)
    np.testing.assert_allclose(
        twice.predict(np.hstack([x, x])), RidgePath(1.0).fit(x, y).predict(x), atol=1e-4 * y.std()
    )


def test_features_far_from_zero():
    """Means ten thousand times the deviation, unstandardised: measured 4e-6 of y's deviation."""
    x, y = toy()
    far = (x + np.float32(1e4) * x.std(0)).astype(np.float32)
    path = RidgePath(1.0).fit(far, y)
    twin = Ridge(alpha=1.0, solver="svd").fit(far.astype(np.float64) - far.mean(0, dtype=np.float64), y)
    want = twin.predict(far.astype(np.float64) - far.mean(0, dtype=np.float64))
    np.testing.assert_allclose(path.predict(far)[:, 0].T, want, atol=1e-4 * y.std())
    here = far.astype(np.float64) @ path.coef_[:, 0, 0].T + path.intercept_[:, 0, 0]
    np.testing.assert_allclose(here, want, atol=1e-4 * y.std())


def test_a_huge_penalty_leaves_the_mean():
    x, y = toy()
    np.testing.assert_allclose(RidgePath(1e12).fit(x, y).predict(x)[:, 0].T, np.tile(y.mean(0), (len(x), 1)), atol=1e-5)


def test_a_constant_target():
    x, _ = toy()
    path = RidgePath(ALPHAS).fit(x, np.full(len(x), 4.0))
    np.testing.assert_allclose(path.predict(x), 4.0, atol=1e-9)
    np.testing.assert_allclose(path.leave_one_out_, 0, atol=1e-12)


def test_each_target_may_have_its_own_penalty():
    x, y = toy()
    fit = fit_ridge(x, y.T, np.array([[1.0], [10.0], [100.0]]))
    for t, alpha in enumerate((1.0, 10.0, 100.0)):
        np.testing.assert_allclose(fit.weights[t, 0], fit_ridge(x, y.T, [alpha]).weights[t, 0], atol=1e-9)
    both = fit_ridge(x, y.T, ALPHAS, leave_one_out=True)
    chosen = both.choose(np.array([2, 0, 1]))
    np.testing.assert_array_equal(chosen.weights[0, 0], both.weights[0, 2])
    assert chosen.leave_one_out.shape == (3, 1)


def test_bad_input():
    x, y = toy()
    for alphas in (0.0, -1.0, (1.0, np.inf), ()):
        with pytest.raises(UsageError, match="alphas must be positive"):
            RidgePath(alphas).fit(x, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        RidgePath().fit(x[1:], y)
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        RidgePath().fit(x, y)
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        fit_ridge(x, y.T, ALPHAS)


@parametrize_with_checks(
    [RidgePath(1.0)],
    expected_failed_checks=lambda estimator: {
        "check_supervised_y_2d": "values (n, 1) are one of several targets: predictions have an axis for them"
    },
)
def test_scikit_learns_manners(estimator, check):
    check(estimator)


def test_one_number_wants_one_model():
    x = np.random.default_rng(0).normal(size=(50, 3))
    assert RidgePath(1.0).fit(x, x[:, 0]).score(x, x[:, 0]) > 0.9
    with pytest.raises(UsageError, match="one alpha"):
        RidgePath((1.0, 2.0)).fit(x, x[:, 0]).score(x, x[:, 0])


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("shape", [(40, 3), (8, 20)])
def test_weighted_rows_are_those_of_scikit_learn(shape, standardise):
    """Also by brute force: leave-one-out errors, and a row of weight 2 that is there twice."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=shape) + 5, rng.uniform(0, 2, shape[0])
    y = rng.normal(size=shape[0])
    scale = x.std(0) if standardise else np.ones(shape[1])
    ours = RidgePath(2.0, standardise=standardise).fit(x, y, weights)
    theirs = Ridge(alpha=2.0).fit(x / scale, y, weights)
    np.testing.assert_allclose(ours.coef_ * scale, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x / scale), atol=1e-9)
    errors = []
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        one = Ridge(alpha=2.0).fit(x[rest] / scale, y[rest], weights[rest])
        errors.append((y[i] - one.predict(x[i : i + 1] / scale)[0]) ** 2)
    assert ours.leave_one_out_.item() == pytest.approx(np.average(errors, weights=weights), rel=1e-9)
    with pytest.raises(UsageError, match=r"sample_weight must have the shape \(n,\)"):
        RidgePath(2.0).fit(x, y, weights[:-1])
