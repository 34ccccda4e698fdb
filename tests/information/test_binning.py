"""Binned units against tuples and counts, and the saturation that the default does not have."""

import naive
import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimators.binning import binning, verdict
from probekit.information.response import response


@pytest.mark.parametrize("span", [None, (-1.0, 1.0)])
@pytest.mark.parametrize("bins", [4, 300])
def test_patterns_as_tuples(span, bins):
    rng = np.random.default_rng(bins)
    x = np.round(rng.normal(size=(200, 3)), 1)
    x[:, 2] = 5
    y = rng.integers(0, 3, 200)
    low, high = ([span[0]] * 3, [span[1]] * 3) if span else (x.min(0), x.max(0))
    named = {}
    symbols = [named.setdefault(p, len(named)) for p in naive.bin_patterns(x, bins, low, high)]
    found = binning(x, response(y), bins=bins, span=span, draws=50)
    assert found.raw == pytest.approx(mutual_info_score(symbols, y) / np.log(2), abs=1e-12)
    assert found.buckets == len(named)
    assert found.null_mean == pytest.approx(found.null.mean(), abs=4 * found.null_sd / 50**0.5)


def test_one_unit_says_what_it_knows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    found = binning((y + 0.01 * rng.normal(size=2000))[:, None], response(y), draws=19)
    assert found.value == pytest.approx(response(y).entropy, abs=1e-9)
    assert found.p == 0.05
    assert found.null_mean < 0.01
    assert not found.undetermined


def test_many_units_know_random_labels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 100)).astype(np.float32)
    found = binning(x, response(rng.integers(0, 2, 200)), draws=5)
    assert found.raw == pytest.approx(found.entropy, abs=1e-9)
    assert found.null == pytest.approx(found.entropy, abs=1e-9)
    assert found.p == 1
    assert np.isnan(found.value)
    assert "shuffled labels give 1.00 of 1.00 bits" in found.undetermined


def test_what_is_too_high_is_called_so():
    rng = np.random.default_rng(0)
    found = binning(rng.normal(size=(300, 1)), response(rng.integers(0, 4, 300)))
    assert "too high by about" in found.warning
    assert found.value > 0.1


def test_numbers_are_cut_into_bins_of_equal_mass():
    x = np.linspace(-1, 1, 500)[:, None]
    found = binning(x, response(np.exp(5 * x[:, 0])), label_bins=5, bins=5)
    assert found.bins == 5
    assert found.value == pytest.approx(np.log2(5), abs=1e-9)


def test_bad_input():
    x, y = np.ones((40, 3)), response(np.arange(40) % 2)
    assert binning(x, y).value == 0
    for how in ({"bins": 1}, {"span": (1, -1)}, {"span": (0, np.nan)}, {"label_bins": 1}):
        with pytest.raises(UsageError, match="span"):
            binning(x, y, **how)
    for bad in (np.nan, np.inf):
        x[5, 1] = bad
        with pytest.raises(NonFiniteError, match="column 1"):
            binning(x, y)


def test_a_value_is_undetermined_if_shuffled_labels_give_more_than_half_of_what_there_is():
    assert np.isnan(verdict(0.9, 0.51, 1.0, 64, "few")[0])
    assert verdict(0.9, 0.49, 1.0, 64, "few")[:2] == (0.9, "")
    assert np.isnan(verdict(1.9, 0.6, 3.0, 2, "few")[0])  # two examples give one bit at most
