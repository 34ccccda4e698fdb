"""Mixtures: the weights of jiant 1 as it computed them, sampling frequencies, and stopping."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from probekit.adaptation.mixtures import Mixture, macro_average, since_best, weights
from probekit.errors import UsageError

FOLDER = Path(__file__).parents[2] / "../shared/goldens/regularisation"
JIANT = json.loads((FOLDER / "jiant_v1.json").read_text()) if FOLDER.exists() else {}
recorded = pytest.mark.skipif(not JIANT, reason=f"the recorded outputs are not at {FOLDER}")
NAMES = {
    "proportional_log_example": "log-proportional", "proportional_log_batch": "log-proportional",
    "inverse_log_example": "inverse-log", "inverse_log_batch": "inverse-log", "proportional_log": "log-proportional",
    "inverse_log": "inverse-log", "examples_proportional_mixingK=16384": "capped-16384",
}  # fmt: skip


def ours(method: str) -> str:
    if method.startswith("epoch_"):  # epochs until each objective was best alone, given by hand
        return method.removeprefix("epoch_").replace("_", ",")
    return NAMES.get(method, method.replace("_", "-"))


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("case", [c for c in JIANT.get("task_weights", []) if c["kind"] == "sampling"] or [None])
def test_sampling_of_jiant(case):
    sizes = case["batches"] if case["method"].endswith("_batch") else case["sizes"]
    if not all(case["weights"]):  # it overflowed, divided by 0, or never drew an objective
        with pytest.raises(UsageError, match="not positive numbers"):
            weights(ours(case["method"]), sizes)
        return
    np.testing.assert_allclose(weights(ours(case["method"]), sizes), case["weights"], rtol=1e-10)
    mixture = Mixture(tuple(sizes), sampling=ours(case["method"]))
    np.testing.assert_allclose(mixture.probabilities, case["probabilities"], rtol=1e-10, atol=1e-300)


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("case", [c for c in JIANT.get("task_weights", []) if c["kind"] != "sampling"] or [None])
def test_loss_scaling_of_jiant(case):
    mixture = Mixture(tuple(case["sizes"]), scaling=ours(case["method"].removeprefix("max_")))
    np.testing.assert_allclose(mixture.scales, case["weights"], rtol=1e-10)


@pytest.mark.shared
@recorded
@pytest.mark.parametrize("case", JIANT.get("early_stopping", []) or [None])
def test_stopping_of_jiant(case):
    since = [
        since_best(case["metric"][: i + 1], rising=not case["should_decrease"]) for i in range(len(case["metric"]))
    ]
    assert [x == 0 for x in since] == case["best_so_far"]
    assert [x > case["patience"] for x in since] == case["out_of_patience"]


def test_objectives_are_drawn_as_often_as_their_probability():
    mixture = Mixture((392_702, 8_551, 634), sampling="power-0.5")
    steps = 200_000
    share = np.bincount(mixture.draw(steps, seed=3), minlength=3) / steps
    p = mixture.probabilities
    assert (np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / steps)).all()


def test_more_steps_begin_with_the_same_objectives():
    mixture = Mixture((100, 10))
    assert (mixture.draw(1000, seed=1)[:300] == mixture.draw(300, seed=1)).all()
    assert (mixture.draw(1000, seed=1) != mixture.draw(1000, seed=2)).any()


@pytest.mark.parametrize("scaling", ["uniform", "power-0.75", "inverse"])
def test_the_largest_scale_is_one(scaling):
    assert Mixture((10, 500, 90), scaling=scaling).scales.max() == 1


def test_falling_metrics_enter_the_average_as_in_the_paper():
    assert macro_average([0.6, 0.9, 25.0], [True, True, False]) == pytest.approx((0.6 + 0.9 + 0.9) / 3)


@pytest.mark.parametrize(
    ("sizes", "sampling", "message"),
    [
        ((10, 0), "uniform", "examples of each objective; it has 10, 0"),
        ((), "uniform", "examples of each objective"),
        ((10, 5), "powr-0.5", "did you mean power-NUMBER"),
        ((10, 5), "power-zero", "weights are 'power-zero'"),
        ((10, 5), "power--1", "weights are 'power--1'"),
        ((10, 5), "1,2,3", "expected 2 positive numbers"),
        ((10, 5), "1,-2", "expected 2 positive numbers"),
        ((10, 1), "log-proportional", "not positive numbers for sizes 10, 1"),
    ],
)
def test_mixtures_that_cannot_be(sizes, sampling, message):
    with pytest.raises(UsageError, match=message):
        Mixture(sizes, sampling=sampling)
