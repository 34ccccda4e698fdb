"""Paths over penalties that end where the held-out loss has turned: the choice is that of the whole grid."""

from __future__ import annotations

import numpy as np
import pytest

from probekit.probes.protocol.selection import Estimator, Problem, select
from probekit.probes.solvers.logistic import CS, Turned, fit_logistic

N, D, CLASSES, SETS = 700, 100, 5, 8


def case(strength: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, gold and shuffled labels (SETS, N), and the rows held out."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)).astype(np.float32)
    y = (strength * x @ rng.normal(size=(D, CLASSES)) + rng.gumbel(size=(N, CLASSES))).argmax(1)
    return x, np.stack([y, *(rng.permutation(y) for _ in range(SETS - 1))]), np.arange(N) % 5 == 0


def whole(y: np.ndarray, predicted: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
    """A criterion that is the mean log loss: with it, every penalty is fitted."""
    assert loss is not None
    return loss.mean(2, dtype=np.float64)


@pytest.mark.parametrize(
    ("strength", "folds"),
    [(0.2, 1), (2.0, 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((0.2, 3), (2.0, 1)))],
)
def test_the_choice_is_that_of_the_whole_grid(strength, folds):
    x, y, held = case(strength)
    fold = np.where(held, 0, -1) if folds == 1 else np.arange(N) % folds
    ended, full = (
        select(
            Problem(x, np.arange(N), y, CLASSES, fold, Estimator.LOGISTIC, CS, shuffled=np.arange(SETS) > 0), criterion
        )
        for criterion in (None, whole)
    )
    assert (ended.setting == full.setting).all()
    np.testing.assert_allclose(ended.held_out, full.held_out, rtol=1e-5)
    np.testing.assert_allclose(ended.fitted.weights, full.fitted.weights, atol=1e-5)
    assert ended.converged.all()


def test_a_signal_that_is_found_after_the_noise():
    """In directions of low variance: the loss of gold turns, and falls again at weak penalties."""
    rng, n, k = np.random.default_rng(1), 800, 6
    signal, noise = rng.normal(size=(2, 2 * n, k - 1))
    x = np.c_[noise + 0.05 * signal, noise - 0.05 * signal, rng.normal(size=(2 * n, 80 - 2 * (k - 1)))]
    x, y = x.astype(np.float32), np.c_[4 * signal, np.ones(2 * n)].argmax(1)
    sets = np.stack([y[:n], *(rng.permutation(y[:n]) for _ in range(5))])
    problem = Problem(x, np.arange(n), sets, k, np.arange(n) % 5, Estimator.LOGISTIC, CS, shuffled=np.arange(6) > 0)
    ended, full = (select(problem, criterion) for criterion in (None, whole))
    assert ended.setting.tolist() == full.setting.tolist()
    assert ended.setting[0] >= 1
    _, predicted = ended.fitted.outcome(x, np.arange(n, 2 * n), np.stack([y[n:]] * 6))
    assert (predicted[0, 0] == y[n:]).mean() > 0.4


def test_shufflings_end_early():
    x, y, held = case(2.0)
    rows, fitted = np.flatnonzero(held), np.flatnonzero(~held)
    watch, Cs = Turned(x, rows, y[:, rows], np.arange(SETS) > 0), np.logspace(-4, 3, 8)
    path = fit_logistic(x, y[:, fitted], CLASSES, Cs, rows=fitted, watch=watch)
    every = fit_logistic(x, y[:, fitted], CLASSES, Cs, rows=fitted)
    ended = path.iterations == 0
    assert ended[1:].any(1).all()
    assert not ended[0].any()
    for t, c in zip(*np.nonzero(ended), strict=True):
        assert (path.weights[t, c] == path.weights[t, c - 1]).all()  # the last one solved
    loss, _ = every.outcome(x, rows, y[:, rows])
    best = loss.mean(2).argmin(1)
    assert not ended[np.arange(SETS), best].any()
