"""Kernel-density bounds against the definition, blocks or not, and their saturation."""

import naive
import numpy as np
import pytest

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimators import kernel_density as module
from probekit.information.estimators.kernel_density import kernel_density
from probekit.information.response import response


@pytest.mark.parametrize("rows", [16, 1024])
@pytest.mark.parametrize(("bound", "factor"), [("upper", 1), ("lower", 4)])
def test_the_definition_in_blocks_or_at_once(rows, bound, factor, monkeypatch):
    monkeypatch.setattr(module, "ROWS", rows)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = (rng.normal(size=(90, 2)) + y[:, None] + 100).astype(np.float32)
    found = kernel_density(x, response(y), bound=bound, noise=0.05, draws=0)
    assert found.raw == pytest.approx(naive.kernel_information(x.astype(float), y, 0.05 * factor), abs=1e-9)
    assert found.value <= found.entropy


def test_shuffled_labels_are_measured_alike():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = 2.0 * y[:, None] + rng.normal(size=(120, 1))
    found = kernel_density(x, response(y), noise=0.1, draws=30)
    order = np.random.default_rng(0).permutation(y)
    assert found.null[0] == pytest.approx(naive.kernel_information(x, order, 0.1), abs=1e-9)
    assert found.p == pytest.approx(1 / 31)
    assert found.value > 0.3


@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_hundreds_of_columns_know_random_labels(bound):
    rng = np.random.default_rng(0)
    found = kernel_density(rng.normal(size=(60, 300)), response(np.arange(60) % 2), bound=bound, draws=5)
    assert found.raw == pytest.approx(1, abs=1e-9)
    assert found.null == pytest.approx(1, abs=1e-9)
    assert np.isnan(found.value)
    assert "the noise reaches" in found.undetermined


def test_numbers_and_bad_input():
    x = np.linspace(-1, 1, 100)[:, None]
    found = kernel_density(x, response(x[:, 0] ** 3), label_bins=4, noise=4e-3)
    assert found.bins == 4
    assert 1.5 < found.value <= 2
    y = response(np.arange(100) % 2)
    with pytest.raises(UsageError, match="positive"):
        kernel_density(x, y, noise=0)
    with pytest.raises(UsageError, match="upper or lower"):
        kernel_density(x, y, bound="middle")
    x[7] = np.nan
    with pytest.raises(NonFiniteError):
        kernel_density(x, y)
