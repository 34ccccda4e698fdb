"""Ross and Kraskov against the definitions, scikit-learn, closed forms, and a theorem about shuffled labels."""

from itertools import permutations

import naive
import numpy as np
import pytest
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimators import nearest_neighbour as module
from probekit.information.estimators.nearest_neighbour import nearest_neighbour, principal_components
from probekit.information.response import response


def standardised(x):
    return (x - x.mean(0)) / x.std(0)


def estimate(x, y, **how):
    return nearest_neighbour(np.asarray(x), response(y), **{"components": None, "draws": 0, **how})


@pytest.mark.parametrize("rare", [1, 2, 3, 12])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("short", [False, True])
def test_classes_as_the_definition_says(rare, k, short, monkeypatch):
    """Classes of 1 … 12 examples; lists of neighbours that hold all, and ones that end too early."""
    rng = np.random.default_rng(rare)
    if short:
        monkeypatch.setattr(module, "RARE", 4)
    x = rng.normal(size=(70, 3))
    y = np.repeat([0, 1, 2], [40, 30 - rare, rare])
    x[y == 1] += 1
    twin = naive.ross(standardised(x), y, k)
    found = estimate(x, y, neighbours=k)
    assert found.raw == pytest.approx(twin, abs=1e-12)
    assert ("single" in found.warning) == (rare == 1)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("short", [False, True])
def test_numbers_as_the_definition_says(m, short, monkeypatch):
    rng = np.random.default_rng(m)
    if short:
        monkeypatch.setattr(module, "RARE", 4)
    x = rng.normal(size=(80, 2))
    y = x[:, :m] + rng.normal(size=(80, m))
    twin = naive.kraskov(standardised(x), standardised(y), 3)
    assert estimate(x, y, neighbours=3).raw == pytest.approx(twin, abs=1e-12)


def test_many_columns_as_the_definition_says():
    """Above 16 dimensions all distances are computed at once."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 30)), np.arange(60) % 2
    x[:, 0] += 3 * y
    found = estimate(x, y)
    assert found.raw == pytest.approx(naive.ross(standardised(x), y, 5), abs=1e-12)
    assert "come out low" in found.warning


def test_one_column_as_scikit_learn_says():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    noisy = x[:, 0] + rng.normal(size=400)
    sklearn = mutual_info_classif(x, noisy > 0, n_neighbors=3, random_state=0)[0] / np.log(2)
    assert estimate(x, noisy > 0, neighbours=3).raw == pytest.approx(sklearn, abs=1e-9)
    sklearn = mutual_info_regression(x, noisy, n_neighbors=3, random_state=0)[0] / np.log(2)
    assert estimate(x, noisy, neighbours=3).raw == pytest.approx(sklearn, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2])
def test_the_mean_over_all_orders_of_the_labels_is_zero(k):
    """Exactly, whatever the points, for any sizes of classes: the claim behind ``null_mean``."""
    x = np.random.default_rng(k).normal(size=(7, 2)) ** 3
    orders = np.array(sorted(set(permutations([0, 0, 0, 0, 1, 1, 1]))))
    draws = np.tile(np.arange(7, dtype=np.int32), (1, 1))
    assert np.mean([module._ross(x, y, draws, k)[0] for y in orders]) == pytest.approx(0, abs=1e-12)


def test_shuffled_labels_give_nothing_and_their_null_says_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 50))
    found = estimate(x, np.arange(300) % 3, components=4, draws=200)
    assert found.p > 0.05
    assert found.null_mean == 0
    assert found.null.mean() == pytest.approx(0, abs=4 * found.null_sd / 200**0.5)
    assert found.ci_low == 0 <= found.value < 0.1


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_correlated_gaussians(rho):
    """Spread over 40 seeds at n = 500: 0.06 bits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    y = rho * x[:, 0] + np.sqrt(1 - rho**2) * rng.normal(size=500)
    found = estimate(x, y, draws=19)
    assert found.value == pytest.approx(-0.5 * np.log2(1 - rho**2), abs=0.15)
    assert found.ci_low < found.value < found.ci_high
    assert found.p == 0.05


def test_labels_that_are_known_have_their_entropy():
    x = np.repeat(np.eye(3), [50, 30, 20], axis=0)
    y = x.argmax(1)
    found = estimate(x + 0, y, components=4)
    assert found.value == pytest.approx(response(y).entropy, abs=0.06)
    assert found.value <= response(y).entropy


def test_equal_rows_with_mixed_labels_know_nothing():
    """Ties by the order of rows would give a bit to sorted labels. Spread: 0.05 bits."""
    for width in (2, 30):
        x = np.repeat(np.random.default_rng(0).normal(size=(4, width)), 100, axis=0)
        y = np.tile(np.repeat([0, 1], 50), 4)
        assert abs(estimate(x, y).raw) < 0.15
        assert estimate(x, y, components=4).value < 0.15


def test_neither_shift_nor_scale_nor_order_of_columns_matters():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 6)), np.arange(120) % 2
    x[:, 0] += 2 * y
    one = estimate(x, y, components=3)
    other = estimate((7 - 3 * x * np.arange(1, 7))[:, ::-1], y, components=3)
    assert one.raw == pytest.approx(other.raw, abs=1e-9)
    order = rng.permutation(120)
    assert estimate(x[order], y[order], components=3).raw == pytest.approx(one.raw, abs=1e-9)


def test_components_are_those_of_standardised_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 9)) * np.logspace(-2, 2, 9) + 100
    x[:, 4] = 3
    found = principal_components(x, 3)
    values, vectors = np.linalg.eigh(np.corrcoef(np.delete(x, 4, 1), rowvar=False))
    twin = standardised(np.delete(x, 4, 1)) @ vectors[:, :-4:-1] / np.sqrt(values[-1])
    assert np.abs(found) == pytest.approx(np.abs(twin), abs=1e-8)
    assert principal_components(np.ones((30, 2)), 4).tolist() == [[0.0]] * 30


def test_bad_input_and_what_cannot_be_told(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 400)), np.arange(40) % 2
    with pytest.raises(UsageError, match="1 or more"):
        estimate(x, y, neighbours=0)
    with pytest.raises(UsageError, match="occurs once"):
        estimate(x, np.arange(40))
    drowned = estimate(x, rng.normal(size=40), draws=20)
    assert "drown" in drowned.undetermined
    assert np.isnan(drowned.value)
    assert estimate(np.ones((40, 3)), y, draws=20, components=4).p > 0.05
    x[3, 2] = np.nan
    with pytest.raises(NonFiniteError):
        estimate(x, y)


@pytest.mark.slow
def test_false_positives_and_coverage():
    """1,000 runs at n = 60: at most 6 % of p ≤ 0.05; and of 300 intervals at n = 300, 2 dimensions, 90 % or more."""
    rng = np.random.default_rng(0)
    p = [estimate(rng.normal(size=(60, 8)), rng.permutation(60) % 3, components=4, draws=99).p for _ in range(1000)]
    assert np.mean(np.array(p) <= 0.05) <= 0.06 + 0.014  # two standard errors
    truth, inside = -0.5 * np.log2(1 - 0.6**2), []
    for _ in range(300):
        x = rng.normal(size=(300, 1))
        found = estimate(x, 0.6 * x[:, 0] + 0.8 * rng.normal(size=300))
        inside.append(found.ci_low <= truth <= found.ci_high)
    assert np.mean(inside) >= 0.9
