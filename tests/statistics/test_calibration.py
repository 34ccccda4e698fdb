"""Calibration against closed forms, a naive twin, and simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from probekit.errors import UsageError
from probekit.statistics.calibration import brier_score, calibration_error, temperature, tempered


def calibrated(n=20000, classes=4, seed=0):
    """Log-probabilities (1, n, K) and classes drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), n)
    return np.log(p)[None], (rng.random((n, 1)) > np.cumsum(p, 1)).sum(1).clip(0, classes - 1)


def test_calibration_error_of_two_levels():
    p = np.repeat([0.9, 0.6], 50)
    gold = np.zeros(100, dtype=int)
    gold[:20] = 1  # right in .6 of those that say .9, and in all of those that say .6
    log_p = np.log(np.stack([p, 1 - p], 1))[None]
    assert calibration_error(log_p, gold, bins=2) == pytest.approx([(0.3 + 0.4) / 2])
    assert calibration_error(log_p, gold, bins=1) == pytest.approx([0.05])
    order = np.random.default_rng(0).permutation(100)
    for bins in (3, 7, 100, 1000):
        several = calibration_error(log_p, gold, bins=bins), calibration_error(log_p[:, order], gold[order], bins=bins)
        assert several[0] == pytest.approx(several[1])  # ties are shared
    assert calibration_error(log_p, gold, bins=100) == pytest.approx([0.35])


def test_calibration_error_equals_a_naive_twin():
    log_p, gold = calibrated(1000)
    p = np.exp(log_p[0])
    order = np.argsort(p.max(1))
    parts = np.array_split(order, 20)
    gaps = [len(b) * abs(p.max(1)[b].mean() - (p.argmax(1) == gold)[b].mean()) for b in parts]
    assert calibration_error(log_p, gold, bins=20) == pytest.approx([sum(gaps) / 1000])


def test_calibration_error_tells_calibrated_from_overconfident():
    log_p, gold = calibrated()
    both = np.concatenate([log_p, tempered(log_p, np.array([0.5]))])
    fair, sure = calibration_error(both, gold)
    assert fair == pytest.approx(np.sqrt(15 / 20000) / 3, rel=0.5)  # .0091: what is left of chance
    assert sure > 0.1  # measured .16


def test_brier():
    log_p = np.log(np.array([[[0.8, 0.2], [0.5, 0.5]], [[1 - 1e-300, 1e-300], [1e-300, 1 - 1e-300]]]))
    assert brier_score(log_p, np.array([0, 1])) == pytest.approx([(0.08 + 0.5) / 2, 0])
    assert brier_score(log_p, np.array([1, 0])) == pytest.approx([(1.28 + 0.5) / 2, 2])
    log_p, gold = calibrated()
    expected = 1 - (np.exp(log_p[0]) ** 2).sum(1).mean()  # of a calibrated forecast; standard error .003
    assert brier_score(log_p, gold) == pytest.approx([expected], abs=0.012)


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_temperature_is_found(true):
    log_p, gold = calibrated()
    off = tempered(log_p, np.array([1 / true]))
    found = temperature(off, gold)
    assert found == pytest.approx([true], rel=0.06)  # standard error measured at 1 to 2 %
    loss = lambda t: -tempered(off, np.array([t]))[0, np.arange(len(gold)), gold].mean()  # noqa: E731
    best = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-8})
    assert found == pytest.approx([best.x], rel=1e-4)
    assert loss(found[0]) <= min(loss(1.0), best.fun) + 1e-12


def test_temperature_at_its_bounds():
    log_p = np.log(np.array([[0.9, 0.1], [0.2, 0.8]]))[None]
    assert temperature(log_p, np.array([0, 1])) == pytest.approx([0.01])  # all right: the colder the better
    assert temperature(log_p, np.array([1, 0])) == pytest.approx([100])  # all wrong
    impossible = np.log(np.array([[0.9, 0.1, 1e-320], [0.2, 0.8, 1e-320], [0.7, 0.3, 1e-320]]))[None]
    impossible[..., 2] = -np.inf
    halves = temperature(impossible, np.array([0, 1, 1]))  # a class of probability 0 changes nothing
    assert halves == pytest.approx(temperature(impossible[..., :2], np.array([0, 1, 1])))
    assert np.isfinite(temperature(impossible, np.array([0, 1, 2]))).all()


def test_fits_do_not_know_each_other():
    log_p, gold = calibrated(500)
    many = np.concatenate([tempered(log_p, np.array([t])) for t in (0.2, 1, 3)]).astype(np.float32)
    for measure in (calibration_error, brier_score, temperature):
        alone = [measure(many[i : i + 1], gold)[0] for i in range(3)]
        np.testing.assert_array_equal(measure(many, gold), alone)
        assert len(set(alone)) == 3


def test_wrong_shapes_are_named():
    with pytest.raises(UsageError, match=r"\(F, n, K\)"):
        brier_score(np.zeros((3, 2)), np.zeros(3, int))
    with pytest.raises(UsageError, match="from 0 to 2, but there are 2 classes"):
        temperature(np.zeros((1, 3, 2)), np.arange(3))
