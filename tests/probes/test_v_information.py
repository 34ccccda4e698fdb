"""V-information against a closed form: of a Gaussian pair of classes a linear probe finds all that there is."""

import numpy as np
import pytest

from probekit.probes import Labels, ProbeOptions, Question, layer_rows


def test_a_gaussian_pair_of_classes():
    """y is 0 or 1, x ~ N(±1, 1): the logistic probe is the true posterior, and I_V is the mutual information."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(2, 20000))
    x = (2 * y - 1 + rng.normal(size=y.shape)).astype(np.float32)[..., None]
    grid = np.linspace(-8, 8, 4001)
    both = np.exp(-((grid - np.array([[-1], [1]])) ** 2) / 2) / np.sqrt(2 * np.pi)
    truth = (both * np.log2(both / both.mean(0))).sum() * (grid[1] - grid[0]) / 2  # 0.486 bits
    rows = layer_rows(
        {"0": x[0]}, Labels(y[0]), {"0": x[1]}, Labels(y[1]), Question("classification", ("accuracy",), ("a", "b")),
        options=ProbeOptions(folds=2, penalties=(1.0,), controls=1, resamples=200, threads=1),
    )  # fmt: skip
    own = rows[(rows["metric"] == "v-information") & (rows["layer"] == 0)].set_index("target")
    assert own.loc["gold", "value"] == pytest.approx(truth, abs=0.012)  # 3 standard errors
    assert own.loc["gold", "ci_low"] < truth < own.loc["gold", "ci_high"]
    noise = own.loc[["shuffled"], "value"]
    assert noise.to_numpy() == pytest.approx(0, abs=0.001)
