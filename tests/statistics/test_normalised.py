"""Scores between control and ceiling: by hand, and how often intervals hold the truth."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.statistics.normalised import Measured, _error, mean_score, normalised, normalised_rows
from probekit.statistics.predictions import Predictions


def measured(*value, spread=0.0, seed=0):
    value = np.array(value, dtype=float)
    return Measured(value, value[..., None] + spread * np.random.default_rng(seed).normal(size=(*value.shape, 400)))


def predictions(rng, gold, said, controls, majority=0):
    """Two layers with gold labels and k draws of shuffled ones; each control (k, n) has labels of its own."""
    k, n = controls[0].shape
    fits = [{"layer": None, "representation": "none", "estimator": "majority", "target": "gold", "draw": None}]
    fits += [{"layer": i, "estimator": "logistic", "target": "gold", "draw": None} for i in range(2)]
    fits += [{"layer": i, "estimator": "logistic", "target": "shuffled", "draw": j} for i in range(2) for j in range(k)]
    labels = np.concatenate([np.tile(gold, (3, 1)), np.tile(controls[0], (2, 1))])
    every = np.concatenate([np.full((1, n), majority), said, np.tile(controls[1], (2, 1))])
    table = pd.DataFrame([{"task": "t", "split": "dev", "model": "m", **fit} for fit in fits])
    return Predictions(table, np.arange(n).astype(str), labels, every, ("accuracy", "macro-f1"))


def noisy(rng, labels, right):
    return np.where(rng.random(labels.shape) < right, labels, rng.integers(4, size=labels.shape))


def toy(rng, n=400, k=3):
    gold, shuffled = rng.integers(4, size=n), rng.integers(4, size=(k, n))
    said = np.stack([noisy(rng, gold, 0.0), noisy(rng, gold, 0.6)])
    return predictions(rng, gold, said, (shuffled, noisy(rng, shuffled, 0.2)))


def test_by_hand():
    one = normalised(measured(0.8, 0.4), measured([0.5, 0.3], [0.7, 0.3]), measured(0.4))
    np.testing.assert_allclose(one.control, [0.6, 0.4])
    np.testing.assert_allclose(one.value, [0.5, 0.0])
    assert one.by.tolist() == ["control", "majority"]
    np.testing.assert_allclose(normalised(measured(0.8), measured([0.5]), ceiling=0.9).value, 0.75)
    np.testing.assert_allclose(normalised(measured(0.1), majority=measured(0.4)).value, -0.5)


def test_shared_noise_cancels():
    """Gold and majority move together: the ratio is known better than either."""
    noise = 0.05 * np.random.default_rng(0).normal(size=400)
    gold, majority = (Measured(np.array([v]), 1 - (1 - v) * np.exp(noise)[None]) for v in (0.8, 0.6))
    low, high = normalised(gold, majority=majority).ci[0]
    np.testing.assert_allclose([low, high], 0.5, atol=1e-9)
    apart = normalised(gold, majority=Measured(majority.value, majority.resampled[:, ::-1]))
    assert np.diff(apart.ci[0]) > 0.1


def test_a_control_at_the_ceiling_has_no_score():
    one = normalised(measured(0.99, 0.99), majority=measured(1.0, 0.995, spread=0.01))
    assert np.isnan(one.value).tolist() == [True, False]
    assert np.isnan(one.ci).all()
    assert one.why.tolist() == ["the control is at the ceiling", "the control may be at the ceiling"]


def test_few_draws_and_few_units_widen():
    gold, control = measured(0.8, spread=0.01), measured([0.4], [0.5], [0.45], spread=0.01, seed=1)
    many = Measured(np.tile(control.value, (4, 1)), np.tile(control.resampled, (4, 1, 1)))
    width = [np.diff(normalised(gold, c).ci[0])[0] for c in (many, control)]
    assert width[1] > 1.5 * width[0]
    assert np.diff(normalised(gold, many, units=6).ci[0])[0] > 1.2 * width[0]
    assert "at least 5" in normalised(gold, many, units=4).why[0]


@pytest.mark.parametrize(("undefined", "known"), [(20, True), (60, False), (300, False)])
def test_a_mean_with_a_score_that_many_resamples_leave_undefined_has_no_interval(undefined, known):
    """Of 1,000 resamples; set to the mean, they would make the interval narrower than it is."""
    value, again = np.array([0.6, 0.4]), 0.5 + np.random.default_rng(0).normal(size=(2, 1000)) * 0.1
    whole = mean_score(value, again, [100, 100])
    again[0, :undefined] = np.nan
    mean, low, high = mean_score(value, again, [100, 100])
    assert mean == 0.5
    assert np.isfinite([low, high]).all() == known
    if known:
        np.testing.assert_allclose([low, high], whole[1:], atol=0.01)


def test_what_cannot_be_normalised():
    with pytest.raises(UsageError, match="needs a control"):
        normalised(measured(0.8))
    with pytest.raises(UsageError, match=r"expected \(k, 1, 400\)"):
        normalised(measured(0.8), measured(0.5))


def test_rows_of_predictions():
    e = toy(np.random.default_rng(0), n=2000)
    rows = normalised_rows(e).set_index("layer")
    accuracy = (e.gold == e.predicted).mean(1)
    control = max(np.bincount(e.gold[0]).max() / 2000, accuracy[3:6].mean())
    np.testing.assert_allclose(rows["value"], (accuracy[1:3] - control) / (1 - control))
    np.testing.assert_allclose(rows["control"], control)
    assert rows["metric"].tolist() == ["normalised(accuracy)"] * 2
    assert rows["against"].tolist() == ["shuffled"] * 2
    assert ((rows["ci_low"] < rows["value"]) & (rows["value"] < rows["ci_high"])).all()
    about = metric("normalised(log-loss)")
    assert (about.better, about.unit, about.range[1]) == ("higher", "", 1.0)
    pd.testing.assert_frame_equal(rows, normalised_rows(e).set_index("layer"))


def test_errors_are_normalised_upside_down():
    rng, n = np.random.default_rng(0), 300
    y = rng.normal(size=n)
    fits = [{"layer": None, "representation": "none", "estimator": "mean"}, {"layer": 1}]
    table = pd.DataFrame([{"task": "t", "split": "dev", "model": "m", "target": "gold", **fit} for fit in fits])
    said = np.stack([np.full(n, y.mean()), y + 0.5 * rng.normal(size=n)])
    row = normalised_rows(Predictions(table, np.arange(n).astype(str), y, said, ("rmse",))).iloc[0]
    assert 0.4 < row["ci_low"] < row["value"] < row["ci_high"] < 0.6  # 1 - .5 / 1
    assert row["against"] == "majority"


@pytest.mark.slow
@pytest.mark.parametrize(("k", "draw_spread"), [(3, 0.05), (3, 0.0), (10, 0.05)])
def test_coverage(k, draw_spread):
    """95 % ± three standard errors of 300 runs, from below; the truth is that of the shares of right answers."""
    rng, hits, n = np.random.default_rng(1), [], 300
    control, value = 0.2 + 0.8 / 4, 0.6 + 0.4 / 4
    for run in range(300):
        gold, shuffled = rng.integers(4, size=n), rng.integers(4, size=(k, n))
        luck = 0.2 + draw_spread * rng.normal(size=(k, 1))
        right = noisy(rng, gold, 0.6) == gold, noisy(rng, shuffled, luck) == shuffled
        again = rng.multinomial(n, np.full(n, 1 / n), size=300) / n
        one, noise = (Measured(r.mean(-1), r @ again.T) for r in (right[0][None], right[1][:, None]))
        low, high = normalised(one, noise, units=n, seed=run).ci[0]
        hits.append(low <= (value - control) / (1 - control) <= high)
    assert np.mean(hits) > 0.912


def test_the_error_of_a_mean_over_draws_is_students():
    draws = _error(np.array([[0.2, 0.5], [0.4, 0.5]]), 1001, 0)  # the standard error of .2 and .4 is .1
    expected = 0.1 * stats.t.ppf((np.arange(1001) + 0.5) / 1001, 1)
    np.testing.assert_allclose(np.sort(draws[0]), expected, atol=1e-12)
    assert not draws[1].any()


def test_few_units_widen_a_mean_by_what_replicates_lack():
    again = np.random.default_rng(0).normal(size=(1, 4000))
    (_, low, _), (_, wide, _) = (mean_score(np.zeros(1), again, [units]) for units in (10**6, 5))
    factor = stats.t.ppf(0.975, 4) / stats.norm.ppf(0.975) * np.sqrt(5 / 4)
    np.testing.assert_allclose(wide / low, factor, rtol=1e-4)
