"""Curve statistics: closed forms, undefined cases, and a planted layer that is found."""

import numpy as np
import pandas as pd
import pytest

from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.curves import (
    _less_biased,
    best_layer,
    centre_of_gravity,
    centre_within,
    curve_summary,
    expected_layer,
    expected_within,
    first_good_layer,
    first_good_within,
    not_worse,
)
from probekit.statistics.options import CompareOptions, SummaryOptions
from probekit.statistics.predictions import Predictions

LAYERS = np.arange(5)


def column(*values):
    return np.array(values, dtype=float)[:, None]


def test_closed_forms():
    curve = column(0.5, 0.6, 0.9, 0.9, 0.7)
    assert best_layer(LAYERS, curve) == 2  # the lowest of equals
    assert centre_of_gravity(LAYERS, curve) == pytest.approx((0.1 + 0.8 + 1.2 + 0.8) / 1.1)
    assert expected_layer(LAYERS, curve) == pytest.approx((1 * 0.1 + 2 * 0.3) / 0.4)
    assert expected_layer(LAYERS, column(0, 0, 0, 0.3, 0.3)) == pytest.approx(3)  # all of it is gained there


def test_rising_curves_give_the_formula_of_the_paper():
    curve = np.sort(np.random.default_rng(0).random((5, 20)), axis=0)
    steps = np.diff(curve, axis=0)
    np.testing.assert_allclose(expected_layer(LAYERS, curve), (LAYERS[1:] @ steps) / steps.sum(0))


def test_origin_and_unit_of_the_metric_do_not_matter():
    curve = np.random.default_rng(1).random((5, 10))
    for of in (centre_of_gravity, expected_layer, best_layer):
        np.testing.assert_allclose(of(LAYERS, 3 * curve - 7), of(LAYERS, curve))


@pytest.mark.parametrize("curve", [column(0.3, 0.3, 0.3, 0.3, 0.3), column(*[np.nan] * 5)])
def test_flat_or_absent_is_undetermined(curve):
    assert np.isnan(centre_of_gravity(LAYERS, curve))
    assert np.isnan(expected_layer(LAYERS, curve))


def test_falling_curves_have_no_expected_layer_and_one_layer_has_no_centre():
    assert np.isnan(expected_layer(LAYERS, column(0.9, 0.8, 0.7, 0.6, 0.5)))
    one = LAYERS[:1], column(0.8)
    assert best_layer(*one) == 0
    assert np.isnan(centre_of_gravity(*one))
    assert np.isnan(expected_layer(*one))


def test_layers_without_a_value_are_left_out():
    curve = column(0.5, np.nan, 0.9, np.nan, 0.7)
    kept = LAYERS[[0, 2, 4]], column(0.5, 0.9, 0.7)
    for of in (best_layer, centre_of_gravity, expected_layer):
        assert of(LAYERS, curve) == pytest.approx(of(*kept))
    assert np.isnan(best_layer(LAYERS, column(*[np.nan] * 5)))
    assert first_good_layer(LAYERS, curve) == 2


@pytest.mark.parametrize(
    ("number", "within"),
    [(expected_layer, expected_within), (centre_of_gravity, centre_within), (first_good_layer, first_good_within)],
)
def test_ends_are_those_of_the_curves_within_a_band(number, within):
    """Of 20,000 curves of corners and random heights within narrow and wide bands, none is outside, some are near."""
    rng, layers = np.random.default_rng(0), np.array([0, 1, 2, 4, 5])
    for half in (0.02, 0.1, 0.3):
        middle = rng.random(5)
        low, high = middle - half * rng.random(5), middle + half * rng.random(5)
        share = rng.random((5, 20_000))
        share[:, ::2] = rng.integers(2, size=(5, 10_000))
        found = number(layers, low[:, None] + share * (high - low)[:, None])
        first, last = (end[0] for end in within(layers, low[:, None], high[:, None]))
        if np.isnan(found).all():  # falling curves have no expected layer
            continue
        assert first - 1e-9 <= np.nanmin(found)
        assert np.nanmax(found) <= last + 1e-9
        if number is not centre_of_gravity:
            assert np.nanmin(found) - first < 0.15 + (last - first) / 4  # the band is not much wider than it must be


def test_a_flat_curve_leaves_every_layer_open():
    low, high = column(*[0.4] * 5), column(*[0.6] * 5)
    assert [float(end[0]) for end in expected_within(LAYERS, low, high)] == [1, 4]
    assert [float(end[0]) for end in centre_within(LAYERS, low, high)] == [0, 4]
    assert [float(end[0]) for end in first_good_within(LAYERS, low, high)] == [0, 4]


def test_layers_as_good_as_the_best_are_those_that_compare_does_not_find_worse():
    """The set, with and without groups, is that of compare --against best; few groups exclude nothing."""
    for groups in (None, np.repeat(np.arange(100), 4), np.repeat(np.arange(4), 100)):
        rng = np.random.default_rng(0)
        hard = rng.random(400)
        right = np.stack([hard < p for p in (0.5, 0.8, 0.81, 0.8, 0.5)])
        gold = rng.integers(2, size=400)
        fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": range(5), "target": "gold"})
        table = Predictions(
            fits, np.arange(400).astype(str), gold, np.where(right, gold, 1 - gold), ("accuracy",), groups=groups
        )
        among = not_worse(table, "accuracy")
        found = compare_predictions(table, None, CompareOptions(against="best")).set_index("layer")["p_adjusted"]
        assert set(np.flatnonzero(~among)) == set(found.index[found <= 0.05])
        few = groups is not None and groups.max() < 5
        assert among.tolist() == ([True] * 5 if few else [False, True, True, True, False])


def test_more_examples_make_the_intervals_shorter_and_leave_the_plateau_open():
    """The first good and the expected layer of a plateau from layer 2 are within, of 400 and of 6,000 examples."""
    wide, narrow = (summary(plateau(n), resamples=300) for n in (400, 6000))
    for rows in (wide, narrow):
        for name, truth in (("expected-layer", 1.5), ("first-good-layer", 2), ("centre-of-gravity", 35.5 / 7.5)):
            assert rows.loc[name, "ci_low"] <= truth <= rows.loc[name, "ci_high"]
        assert "2" in rows.loc["best-layer", "layers"].split(",")
        best = rows.loc["best-layer"]
        assert best["best_low"] < 0.85 < best["best_high"]
    for name in ("expected-layer", "first-good-layer", "centre-of-gravity"):
        width = [rows.loc[name, "ci_high"] - rows.loc[name, "ci_low"] for rows in (wide, narrow)]
        assert width[1] < width[0]


def plateau(n):
    """Accuracy .7, .775 and .85 from layer 2 on to layer 8."""
    rng = np.random.default_rng(3)
    right = np.array([0.7, 0.775, *[0.85] * 7])
    correct = 0.7 * rng.random(n) + 0.3 * rng.random((9, n)) < _quantile(right)[:, None]
    gold = rng.integers(2, size=n)
    fits = pd.DataFrame({"task": "toy", "split": "dev", "model": "m", "layer": np.arange(9), "target": "gold"})
    return Predictions(fits, np.arange(n).astype(str), gold, np.where(correct, gold, 1 - gold), ("accuracy",))


def planted(n=600, layers=9, at=4, seed=0, best=0.85, extra=0):
    """Accuracy rises to ``best`` at layer ``at`` and falls again; predictions of neighbours share their errors."""
    rng = np.random.default_rng(seed)
    right = np.array([best - 0.06 * abs(layer - at) for layer in range(layers)])
    hard = rng.random(n)
    correct = 0.7 * hard + 0.3 * rng.random((layers, n)) < _quantile(right)[:, None]
    gold = rng.integers(2, size=n)
    frame = pd.DataFrame(
        [
            {"task": "toy", "split": "dev", "model": "m", "representation": "mean", "estimator": "logistic",
             "target": "gold", "layer": layer, "seed": 0}
            for layer in range(layers)
        ]
    )  # fmt: skip
    ids = np.array([str(i) for i in range(n)])
    return Predictions(frame, ids, gold, np.where(correct, gold, 1 - gold), ("accuracy",))


def _quantile(share):
    draws = np.random.default_rng(99).random((2, 100_000))
    return np.quantile(0.7 * draws[0] + 0.3 * draws[1], share)


def summary(e, **options):
    return curve_summary(e, SummaryOptions(**options)).set_index("metric")


def test_a_planted_layer_is_recovered():
    rows = summary(planted(n=3000))
    assert rows.loc["best-layer", "value"] == 4
    assert rows.loc["best-layer", "ci_low"] == rows.loc["best-layer", "ci_high"] == 4
    assert rows.loc["first-good-layer", "value"] == 4
    assert rows.loc["centre-of-gravity", "value"] == pytest.approx(4, abs=0.1)  # symmetric about it
    assert rows.loc["expected-layer", "value"] == pytest.approx(2.5, abs=0.15)  # equal steps at 1, 2, 3 and 4
    assert (rows["of_metric"] == "accuracy").all()
    assert rows["layer"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 4, 8])
def test_how_often_the_planted_layer_is_found(at):
    """Of 60 runs at n = 400 the interval of the best layer held the planted one in all, at each of the three places."""
    held = 0
    for seed in range(10):
        row = summary(planted(n=400, at=at, seed=seed), resamples=100).loc["best-layer"]
        held += row["ci_low"] <= at <= row["ci_high"]
    assert held >= 9


def test_errors_are_turned_round_and_final_norm_is_no_layer():
    e = planted()
    loss = np.where(e.predicted == e.gold, 0.1, 2.0).astype(np.float32)
    last = e.fits["layer"] == 8
    frame = e.fits.assign(site=e.fits["site"].mask(last, "final_norm"), layer=e.fits["layer"].mask(last))
    turned = Predictions(frame, e.ids, e.gold, e.predicted, ("accuracy",), None, loss)
    by_loss, by_accuracy = summary(turned, metric="log-loss"), summary(turned)
    others = ["best-layer", "centre-of-gravity", "first-good-layer"]  # resamples differ, and so does what is taken out
    np.testing.assert_allclose(by_loss.loc[others, "value"], by_accuracy.loc[others, "value"].astype(float), atol=1e-6)
    assert by_loss.loc["expected-layer", "value"] == pytest.approx(by_accuracy.loc["expected-layer", "value"], abs=0.05)
    assert by_loss.loc["best-layer", "value"] == 4


def test_only_the_last_layer_knows_anything():
    """Five times d / 5 d may be above 1 by rounding, and the interval would be upside down."""
    for right in range(132, 277):
        curve = np.append(np.full(6, 131 / 277), right / 277)[:, None]
        first, last = expected_within(np.arange(7), curve, curve)
        assert first[0] <= last[0]
        assert first[0] == pytest.approx(6)
        assert last[0] == pytest.approx(6)


def test_a_corrected_expected_layer_is_not_below_the_first_that_can_gain():
    layers, value = np.arange(4), np.array([0.0, 0.9, 0.95, 1.0])
    later = np.tile([[0.0], [0.2], [0.6], [1.0]], 50)  # resamples expect a later layer, so the bias points below 1
    assert _less_biased(layers, value, later) == 1
