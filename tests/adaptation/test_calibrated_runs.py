"""A run's probabilities: the temperature minimises the loss on dev, and rows hold the numbers of the definitions."""

import numpy as np
import pytest
from lessons import SHORT, count, praise
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.rows import calibration_rows, dev_temperature
from probekit.adaptation.runs.run import open_run
from probekit.adaptation.train import train
from probekit.errors import UsageError


@pytest.fixture(scope="module")
def run(tiny_bert, tmp_path_factory):
    return train(praise(), tiny_bert, tmp_path_factory.mktemp("r") / "run", **SHORT)


def test_the_temperature_minimises_the_loss_on_dev(run, tmp_path):
    degrees = dev_temperature(run.path, run.card, "test")
    table = open_run(run.path).predictions[0]
    logits, gold = np.log(table.probabilities[0].astype(float)), table.gold
    best = minimize_scalar(
        lambda t: -log_softmax(logits / t, axis=1)[np.arange(len(gold)), gold].mean(), bounds=(0.01, 100),
        method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert degrees == pytest.approx(best.x, rel=1e-3)
    found = evaluate(run.path, task=[praise()], split="test", calibrate=True, device="cpu").rows
    values = found[found["estimator"] == ""].set_index("metric")
    shares = evaluate(run.path, task=[praise()], split="test", device="cpu").predictions[0]
    test, answers = np.log(shares.probabilities[0].astype(float)), shares.gold
    scaled = -log_softmax(test / degrees, axis=1)[np.arange(len(answers)), answers].mean()
    assert values.loc["log-loss, scaled", "value"] == pytest.approx(scaled, rel=1e-5)
    assert values.loc["log-loss, scaled", "temperature"] == pytest.approx(degrees)
    assert values.loc["brier", "value"] == pytest.approx(
        ((np.exp(test) - np.eye(2)[answers]) ** 2).sum(1).mean(), rel=1e-5
    )
    assert {"calibration-error-15", "calibration-error-15, scaled"} <= set(values.index)


def test_what_cannot_be_calibrated(run, tiny_bert, tmp_path):
    with pytest.raises(UsageError, match="evaluate on another split"):
        dev_temperature(run.path, run.card, "dev")
    numbers = train(count(), tiny_bert, tmp_path / "numbers", **SHORT | {"epochs": 1})
    with pytest.raises(UsageError, match="stores no probabilities"):
        evaluate(numbers.path, task=[count()], split="test", calibrate=True, device="cpu")
    with pytest.raises(UsageError, match="own classes"):
        next(calibration_rows(type("E", (), {"probabilities": None})(), 1.0, {}))
