"""The variational code: its divergence against the integral, noise, planted signals, and the online code."""

import numpy as np
import pytest
import torch
from builders import signal_and_noise
from scipy.integrate import quad

from probekit.errors import UsageError
from probekit.probes.codes.online import online_code
from probekit.probes.codes.variational import _divergence, variational_code


def toy(n=1000, d=20, classes=2, seed=0):
    x, gold, rng = signal_and_noise(n, d, classes, signal=2, seed=seed, noise="gumbel")
    return x * 7 + 3, np.column_stack([gold, rng.integers(classes, size=n)])


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_noise_and_signal(classes):
    x, Y = toy(classes=classes)
    code = variational_code(x, Y, classes=classes, steps=800)
    gold, noise = code.compression
    assert 0.98 < noise < 1  # measured 0.992 to 0.997 over seeds
    online = online_code(x, Y, classes=classes).compression[0]
    assert online < gold < 1.3 * online  # it need not begin with nothing: measured 1.80 against 1.56, 1.83 and 1.59
    assert classes <= code.kept[0] <= classes + 2
    assert code.kept[1] <= 3
    assert code.bits == pytest.approx(code.weight_bits + code.label_bits)
    assert code.uniform_bits == pytest.approx(1000 * np.log2(classes))


@pytest.mark.slow
def test_targets_do_not_disturb_each_other_and_seeds_repeat():
    x, Y = toy(n=400)
    both, again = (variational_code(x, Y, steps=300, seed=1) for _ in range(2))
    assert both.bits.tolist() == again.bits.tolist()
    alone = variational_code(x, Y[:, 0], steps=300, seed=1)
    assert alone.bits[0] == pytest.approx(both.bits[0], rel=0.02)  # other noise, the same optimum


@pytest.mark.parametrize("log_alpha", [-6.0, -3.0, -1.0, 0.0, 2.0, 6.0])
def test_the_divergence_of_a_scale_is_the_integral(log_alpha):
    """KL of N(m, α m²) from 1/|z|, up to the constant that makes it 0 for α → ∞: E ln|1 + √α ε| - ln(α)/2 - E ln|ε|."""
    root = np.exp(log_alpha / 2)
    density = lambda e: np.exp(-(e**2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    mean = quad(lambda e: np.log(abs(1 + root * e)) * density(e), -12, 12, points=[-1 / root], limit=500)[0]
    truth = mean - log_alpha / 2 + (np.euler_gamma + np.log(2)) / 2
    none = torch.zeros(1, 1)
    weights = torch.zeros(1, 1, 1)  # N(0, 1): no divergence of their own
    mine = _divergence([none, none + log_alpha, weights, weights, none, none])
    assert float(mine) == pytest.approx(truth, abs=0.02)  # Molchanov's fit: measured 0.012 at most


def test_features_that_are_constant_are_no_trouble():
    x, Y = toy(n=300)
    x[:, 5] = 7
    assert np.isfinite(variational_code(x, Y, steps=100).bits).all()


def test_bad_input():
    x, Y = toy(n=50)
    with pytest.raises(UsageError, match="whole numbers"):
        variational_code(x, Y.astype(float))
    with pytest.raises(UsageError, match="steps and batch must be positive"):
        variational_code(x, Y, steps=0)
