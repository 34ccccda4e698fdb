"""Ridge regression against its definition."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from probekit.probes.ridge import ridge_path

ALPHAS = (1e-3, 1.0, 1e3)


@pytest.mark.parametrize(("n", "d"), [(50, 7), (7, 50), (20, 20)])
def test_normal_equations_and_scikit_learn(n, d):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)) + 3, rng.normal(size=n)
    weights, intercepts = ridge_path(x, y, ALPHAS)
    centred = x - x.mean(0)
    for alpha, w, b in zip(ALPHAS, weights.T, intercepts, strict=True):
        closed = np.linalg.solve(centred.T @ centred + alpha * np.eye(d), centred.T @ (y - y.mean()))
        np.testing.assert_allclose(w, closed, atol=1e-9)  # alpha 1e-3 on rank-deficient data: measured 2e-12
        twin = Ridge(alpha=alpha, solver="svd").fit(x, y)
        np.testing.assert_allclose(x @ w + b, twin.predict(x), atol=1e-9)


def test_a_huge_penalty_leaves_the_mean():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    weights, intercepts = ridge_path(x, y, (1e12,))
    np.testing.assert_allclose(x @ weights[:, 0] + intercepts[0], y.mean(), atol=1e-9)
