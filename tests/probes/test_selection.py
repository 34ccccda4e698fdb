"""Choosing a setting on folds: what is held out, what counts, and what is chosen when settings are as good."""

import numpy as np
import pytest
from builders import signal_and_noise

from probekit.errors import UsageError
from probekit.probes.protocol import selection
from probekit.probes.protocol.selection import Estimator, Problem, edge_of, grid, select
from probekit.probes.solvers.logistic import CS, fit_logistic
from probekit.probes.solvers.ridge import ALPHAS
from probekit.statistics.folds import folds


def toy(n=240, d=6, classes=3, seed=0):
    return signal_and_noise(n, d, classes, signal=1.5, seed=seed)[:2]


def problem(x, y, fold=None, **more):
    y = np.atleast_2d(y)
    how = {"classes": 3, "estimator": Estimator.LOGISTIC, "settings": CS} | more
    return Problem(x, np.arange(len(x)), y, fold=folds(y[0], 5) if fold is None else fold, **how)


def test_each_target_gets_the_setting_of_its_own_folds():
    """Beside each other as alone; the score is the mean loss over all held-out rows."""
    x, y = toy()
    Y = np.stack([y, np.random.default_rng(0).permutation(y)])
    fold = folds(y, 5)
    both = select(problem(x, Y, fold), None)
    assert both.setting[0] > both.setting[1]  # noise wants the strongest penalty
    for t in range(2):
        alone = select(problem(x, Y[t], fold), None)
        assert alone.setting[0] == both.setting[t]
        assert alone.held_out[0] == pytest.approx(both.held_out[t], abs=1e-5)
        total = np.zeros(len(CS))
        for f in range(5):
            rows, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            total += fit_logistic(x[rows], Y[t, rows][None], 3, CS).outcome(x, held, Y[t, held][None])[0][0].sum(1)
        assert both.held_out[t] == pytest.approx(total.min() / len(y), abs=1e-5)
        assert both.setting[t] == CS[int(total.argmin())]


def test_nothing_of_a_held_out_fold_is_fitted():
    """Rows are only ever fitted without the fold that they are scored in, and scaled by what is fitted."""
    x, y = toy()
    fold = folds(y, 4, groups=np.arange(240) // 3)
    seen = []
    original = selection._fit

    def spy(p, use, *rest):
        seen.append(use)
        return original(p, use, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_fit", spy)
        select(problem(x, y, fold), None)
    assert len(seen) == 5
    for f, use in enumerate(seen[:4]):
        np.testing.assert_array_equal(use, fold != f)
        groups = np.arange(240) // 3
        assert set(groups[use]).isdisjoint(groups[~use])
    assert seen[-1].all()


def test_one_share_may_be_held_out_instead():
    """Rows with fold -1 are never scored: changing their labels changes the fit, not which rows count."""
    x, y = toy()
    fold = np.where(np.arange(240) < 60, 0, -1)
    chosen = select(problem(x, y, fold, settings=(1e-3, 1.0)), None)
    rest = np.arange(60, 240)
    fit = fit_logistic(x[rest], y[rest][None], 3, (1e-3, 1.0))
    loss = fit.outcome(x, np.arange(60), y[None, :60])[0][0].mean(1)
    assert chosen.held_out[0] == pytest.approx(loss.min(), abs=1e-5)
    assert chosen.setting[0] == (1e-3, 1.0)[int(loss.argmin())]


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_a_class_that_the_fit_never_saw_say_nothing(classes):
    """Their loss would be boundless, and would choose the penalty that shrinks most."""
    x, y = toy(classes=2)
    if classes == 3:
        y[:4] = 2
    other = np.where(np.arange(240) < 4, 1, 0) if classes == 2 else y
    fold = np.where(np.arange(240) < 4, 0, np.arange(240) % 4 + 1)
    chosen = select(problem(x, np.stack([y, other]), fold, classes=classes), None)
    assert chosen.converged.all()
    assert np.isfinite(chosen.held_out).all()
    assert (chosen.held_out < 2).all()
    assert chosen.setting[0] > 1e-4


def test_of_equals_the_strongest():
    x = np.ones((60, 2), dtype=np.float32)
    y = np.arange(60) % 3
    for estimator in (Estimator.LOGISTIC, Estimator.MASS_MEAN):
        settings = grid(estimator, (0.5, 0.25), 2)
        chosen = select(problem(x, y, estimator=estimator, settings=settings), None)
        assert chosen.setting[0] == settings[0]
        assert not chosen.edge[0]
    how = {"classes": 0, "estimator": Estimator.RIDGE, "settings": grid(Estimator.RIDGE, None, 2)}
    assert select(problem(x, y.astype(float), **how), None).setting[0] == max(ALPHAS)


def test_one_setting_needs_no_folds():
    x, y = toy()
    chosen = select(problem(x, y, settings=(0.1,)), None)
    assert chosen.setting[0] == 0.1
    assert np.isnan(chosen.held_out[0])
    assert not chosen.edge[0]
    alone = fit_logistic(x, y[None], 3, (0.1,))
    np.testing.assert_allclose(chosen.fitted.weights, alone.weights, atol=1e-5)


def test_a_criterion_is_handed_all_held_out_rows():
    x, y = toy()
    fold = folds(y, 5)
    handed = []

    def least_accurate(gold, predicted, loss):
        handed.append((gold, predicted, loss))
        return (predicted == gold[:, None]).mean(2)

    chosen = select(problem(x, y, fold, settings=(1e-5, 1e-2, 1.0)), least_accurate)
    [(gold, predicted, loss)] = handed
    np.testing.assert_array_equal(gold[0], np.concatenate([y[fold == f] for f in range(5)]))
    assert predicted.shape == loss.shape == (1, 3, 240)
    assert chosen.setting[0] == 1e-5
    assert select(problem(x, y, fold, settings=(1e-5, 1e-2, 1.0)), None).setting[0] > 1e-5


def test_the_edge_is_one_only_if_it_is_clearly_better():
    x, y = toy()
    assert select(problem(x, y, settings=(1e-3, 1e-2)), None).edge[0]
    assert not select(problem(x, y, settings=(1e-7, 1e-6)), None).edge[0]  # surely better, but by nothing
    assert not select(problem(x, y, settings=(1e-4, 1e-2, 1.0, 100.0, 1e4)), None).edge[0]


def test_the_digest_tells_coefficients_apart():
    x, y = toy()
    a, b = (select(problem(x, y, settings=(c,)), None).digest for c in (0.1, 0.2))
    assert a != b
    assert select(problem(x, y, settings=(0.1,)), None).digest == a


def test_temperature_is_fitted_on_held_out_rows():
    """Twenty times as many dimensions as signal, and hardly any penalty: probabilities are too sure of themselves."""
    x, y = toy(d=60)
    sure = select(problem(x, y, settings=(1.0, 10.0), calibrate=True), None)
    assert sure.temperature[0] > 1.5
    modest = select(problem(x, y, settings=(1e-5, 1e-4), calibrate=True), None)
    assert modest.temperature[0] < 1
    assert select(problem(x, y), None).temperature[0] == 1


def test_grids_begin_with_what_binds_most():
    assert grid(Estimator.LOGISTIC, (1, 0.1, 10), 5) == (0.1, 1, 10)
    assert grid(Estimator.RIDGE, (1, 0.1, 10), 5) == (10, 1, 0.1)
    assert grid(Estimator.K_SPARSE, None, 5) == (1, 2, 4)
    assert grid(Estimator.LOGISTIC, None, 5) == CS
    with pytest.raises(UsageError, match="at most 5 dimensions"):
        grid(Estimator.K_SPARSE, (6.0,), 5)


def test_a_best_setting_at_the_edge_is_one_only_if_it_gains():
    score = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 1.0, 2.0], [1.0, 1.0005, 2.0], [0.0, 0.0, 0.0]])
    assert edge_of(score, score.argmin(1)).tolist() == [True, True, False, False, False]
    assert not edge_of(np.ones((2, 1)), np.zeros(2, dtype=int)).any()
