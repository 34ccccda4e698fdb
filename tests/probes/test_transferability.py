"""Transferability scores: recorded values of the published code, slow twins, and theorems."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.covariance import LedoitWolf

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.transferability import Vectors, h_score, logme, transrate

SHARED = Path(__file__).parents[2] / "../shared/goldens/transferability"
recorded = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded scores are not at {SHARED}")
CASES = [
    *("T1_separable_n200_d16_k3", "T2_random_labels_n200_d16_k4", "T3_n60_d100_k4", "T4_imbalanced_n300_d8_k2"),
    *("T5_collinear_n120_d12_k3", "T6_relu_n500_d32_k10", "T7_scaled100_n150_d10_k3", "T8_regression_n180_d9"),
]


def case(name):
    with np.load(SHARED / "transferability.npz") as file:
        x, y = file[f"{name}/X"], file[f"{name}/y"]
    return x, y, json.loads((SHARED / "transferability_values.json").read_text())[name]


@recorded
@pytest.mark.parametrize("name", CASES)
def test_published_code(name):
    """Published LogME stops early, so its values are at most those of the maximum, and near them."""
    x, y, scores = case(name)
    found = logme(x, y)
    near = {"T7_scaled100_n150_d10_k3": 0.05}.get(name, 1e-3)
    for variant, value in scores.items():
        if variant.startswith("logme/") or variant == "logme_icml/thuml":
            assert value - 1e-9 <= found <= value + near, variant
    if "regression" in name:
        return
    tolerance = 1e-6 if "collinear" in name else 1e-8
    assert h_score(x, y) == pytest.approx(scores["h_score_shrunk/tllib"], abs=1e-8)
    assert h_score(x, y, shrunk=False) == pytest.approx(scores["h_score/tllib"], abs=tolerance)
    for eps in ("0.0001", "0.01", "1"):
        expected = scores[f"transrate_eps{eps}/tllib"]
        assert transrate(x, y, float(eps), equal=True) == pytest.approx(expected, abs=1e-9)


def labelled(rng, n, d, classes, shift=0.0):
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, d)) + shift * rng.normal(size=(classes, d))[y], y


@pytest.mark.parametrize(("n", "d"), [(30, 4), (12, 20), (15, 15)])
def test_logme_is_the_largest_evidence(n, d):
    """The definition: the density of the labels under N(0, XXᵀ/α + I/β), maximised over α and β."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d)) + 0.5, rng.normal(size=n)
    y += x[:, 0]

    def negative(logs):
        covariance = x @ x.T * np.exp(logs[0]) + np.eye(n) * np.exp(logs[1])
        return -stats.multivariate_normal.logpdf(y, cov=covariance, allow_singular=True) / n

    bounds = [(-12, 8)] * 2
    found = [optimize.minimize(negative, start, bounds=bounds) for start in ([0, 0], [-4, 0], [2, -2], [-8, 1])]
    assert logme(x, y) == pytest.approx(-min(one.fun for one in found), abs=1e-6)


def test_logme_of_classes_and_targets():
    """The mean of regressions on 0 and 1."""
    x, y = labelled(np.random.default_rng(0), 60, 5, 3, 1)
    assert logme(x, y) == pytest.approx(logme(x, np.eye(3)[y]), abs=1e-9)
    assert logme(x, np.eye(3)[y]) == pytest.approx(np.mean([logme(x, (y == k).astype(float)) for k in range(3)]))
    assert logme(x, 10.0 * np.eye(3)[y]) == pytest.approx(logme(x, y) - np.log(10))  # a density


def test_exactly_linear_targets():
    x = np.random.default_rng(0).normal(size=(40, 5))
    assert logme(x, x @ np.arange(5.0)) == np.inf
    assert np.isfinite(logme(x, np.random.default_rng(1).normal(size=40)))
    assert np.isfinite(logme(np.random.default_rng(0).normal(size=(40, 60)), x[:, 0]))


@pytest.mark.parametrize(("n", "d"), [(80, 6), (20, 30)])
def test_invariances(n, d):
    rng = np.random.default_rng(1)
    x, y = labelled(rng, n, d, 3, 1)
    turned = x @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    for score in (logme, h_score, transrate):
        assert score(turned, y) == pytest.approx(score(x, y), abs=1e-9), score
    assert logme(7 * x, y) == pytest.approx(logme(x, y), abs=1e-9)
    assert h_score(7 * x + 3, y) == pytest.approx(h_score(x, y), abs=1e-9)
    assert transrate(7 * x + 3, y, 49e-4) == pytest.approx(transrate(x, y, 1e-4), abs=1e-9)
    assert logme(x + 3, y) != pytest.approx(logme(x, y), abs=1e-3)  # not centred, as published


@pytest.mark.parametrize(("n", "d"), [(90, 5), (30, 40)])
def test_slow_twins(n, d):
    """scikit-learn's shrinkage, covariances and determinants as written in the papers."""
    x, y = labelled(np.random.default_rng(2), n, d, 3, 1)
    centred = x - x.mean(0)
    means = np.stack([centred[y == k].mean(0) for k in range(3)])[y]
    shrunk = LedoitWolf(assume_centered=True).fit(centred)
    expected = np.trace(np.linalg.inv(shrunk.covariance_) @ np.cov(means.T)) * (1 - shrunk.shrinkage_)
    assert h_score(x, y) == pytest.approx(expected, rel=1e-9)

    def rate(part):
        return np.linalg.slogdet(np.eye(d) + part.T @ part / (len(part) * 1e-2))[1] / 2

    by_class = sum((y == k).mean() * rate(centred[y == k]) for k in range(3))
    assert transrate(x, y, 1e-2) == pytest.approx(rate(centred) - by_class, rel=1e-9)


def test_scores_of_known_classes():
    rng = np.random.default_rng(3)
    y = np.arange(400) % 4
    x = 100 * rng.normal(size=(4, 9))[y] + 1e-3 * rng.normal(size=(400, 9))
    assert h_score(x, y, shrunk=False) == pytest.approx(3, abs=1e-6)  # separable classes: K - 1
    assert h_score(rng.normal(size=(400, 9)), y) < 0.05
    side = np.where(np.arange(400) % 2, 1.0, -1.0)[:, None] * np.ones(9)
    noise = np.repeat(rng.normal(size=(200, 9)), 2, axis=0)  # the same in both classes
    assert transrate(noise + 5 * side, np.arange(400) % 2) < 0.1  # two classes ± δ have equal moments about their mean


@pytest.mark.parametrize("classes", [0, 3])
def test_many_sets_of_labels_are_single_ones(classes, monkeypatch):
    monkeypatch.setattr("probekit.probes.transferability.ROWS", 7)
    monkeypatch.setattr("probekit.probes.transferability.BLOCK", 50)
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=(5, 40))
    if classes:
        y = np.stack([rng.permutation(np.arange(40) % classes) for _ in range(5)])
    found = Vectors(x).scores(y, classes, ("logme", "h-score", "transrate") if classes else ("logme",), eps=1e-4)
    for name, score in {"logme": logme, "h-score": h_score, "transrate": transrate}.items():
        if name in found:
            np.testing.assert_allclose(found[name], [score(x, one) for one in y], rtol=1e-9)


def test_rounding_of_huge_vectors():
    x, y = labelled(np.random.default_rng(5), 60, 6, 2)
    x[:, 1:] = x[:, :1]
    assert np.isfinite([score(1e9 * x, y) for score in (logme, h_score, transrate)]).all()


def test_mistakes():
    x, y = labelled(np.random.default_rng(6), 20, 3, 2)
    for score in (logme, h_score, transrate):
        with pytest.raises(UsageError, match="all 20 labels are equal"):
            score(x, y * 0)
        with pytest.raises(UsageError, match="20 examples have 20 classes"):
            score(x, np.arange(20))
        with pytest.raises(UsageError, match=r"must have the shape \(20"):
            score(x, y[:5])
        with pytest.raises(NonFiniteError, match="NaN or infinity"):
            score(np.where(np.arange(3) == 1, np.nan, x), y)
    with pytest.raises(UsageError, match="eps is 0"):
        transrate(x, y, 0)
    assert np.isnan(h_score(np.ones((20, 3)), y))
