"""What holds of mutual information whatever the data, asked of the default estimator through the front door."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from probekit.information.estimators import mutual_information
from probekit.information.hashing.null import expected_information
from probekit.information.response import entropy

QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROUNDING = 1e-9


def estimate(x, y, **options):
    return mutual_information(x, y, **{"draws": 19, **options})


def plug_in(x, y):
    return entropy(np.bincount(x)) + entropy(np.bincount(y)) - entropy(contingency_matrix(x, y).ravel())


@pytest.fixture(scope="module")
def sample():
    """500 examples of 12 columns of several scales, two of which tell three classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    x = rng.standard_normal((500, 12))
    x[:, :2] += 1.5 * np.stack([y == 1, y == 2], 1)
    return x * np.logspace(-2, 2, 12), y


@pytest.mark.parametrize("classes", [2, 5, 12])
@pytest.mark.parametrize("spelled", [np.asarray, lambda y: y.astype(str), lambda y: y > 0])
def test_what_a_symbol_knows_of_itself_is_its_entropy(classes, spelled):
    y = spelled(np.random.default_rng(classes).integers(0, classes, 400))
    h = entropy(np.unique(y, return_counts=True)[1])
    found = estimate(y, y)
    assert (found.value, found.entropy, found.share) == pytest.approx((h, h, 1.0), abs=1e-12)
    assert found.p == 1 / 20
    assert estimate(y, np.random.default_rng(99).permutation(y)).value < 0.05 * h + 0.03  # the control


@pytest.mark.parametrize("classes", [2, 5])
def test_vectors_that_are_the_label_tell_nearly_all_of_it(classes):
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, 600)
    found = estimate(np.eye(classes)[y] + 1e-3 * rng.standard_normal((600, classes)), y)
    assert 0.95 * found.entropy < found.value <= found.entropy


@pytest.mark.parametrize("noise", [0.1, 0.6, 1.0])
def test_information_of_two_symbols_is_symmetric(noise):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 6, 500)
    y = np.where(rng.random(500) < noise, rng.integers(0, 4, 500), x % 4)
    one, other = estimate(x, y), estimate(y, x)
    assert one.value == pytest.approx(other.value, abs=1e-12)
    assert one.raw == pytest.approx(plug_in(x, y), abs=1e-12)
    assert one.null_mean == pytest.approx(other.null_mean, abs=1e-12)


def test_the_order_of_examples_does_not_matter(sample):
    x, y = sample
    order = np.random.default_rng(1).permutation(len(y))
    assert estimate(x[order], y[order]).value == pytest.approx(estimate(x, y).value, abs=ROUNDING)


def test_the_order_of_columns_does_not_matter(sample):
    x, y = sample
    order = np.random.default_rng(2).permutation(x.shape[1])
    assert estimate(x[:, order], y).value == pytest.approx(estimate(x, y).value, abs=ROUNDING)


def test_units_and_origin_of_columns_do_not_matter(sample):
    x, y = sample
    rng = np.random.default_rng(3)
    other = x * 2.0 ** rng.integers(-8, 8, x.shape[1])  # ten orders of magnitude apart a column counts as constant
    assert estimate(other, y).value == pytest.approx(estimate(x, y).value, abs=ROUNDING)
    assert estimate(x + 100 * rng.standard_normal(x.shape[1]), y).value == pytest.approx(estimate(x, y).value, abs=0.02)
    bent = x.copy()
    bent[:, 0] = np.random.default_rng(4).permutation(x[:, 0])  # the control: this is not the same information
    assert estimate(bent, y).value < estimate(x, y).value - 0.1


def test_names_of_classes_do_not_matter(sample):
    x, y = sample
    value = estimate(x, y).value
    names = np.array(["z", "a", "m"])[y]
    assert estimate(x, names.tolist()).value == pytest.approx(value, abs=0.1)  # a fresh split, as classes are reordered
    assert estimate(x, np.array(["a", "m", "z"])[y]).value == value
    assert estimate(x, np.eye(3)[y]).value == value
    assert estimate(x, y.astype(np.float32)).value == value


def test_constant_columns_do_not_matter(sample):
    x, y = sample
    padded = np.hstack([np.full((len(x), 1), 7.25), x, np.zeros((len(x), 2))])
    assert estimate(padded, y).value == pytest.approx(estimate(x, y).value, abs=1e-6)


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(sample):
    x, y = sample
    one, two, other = estimate(x, y), estimate(x, y), estimate(x, y, seed=1)
    assert (one.value, one.p, one.ci_low, one.ci_high) == (two.value, two.p, two.ci_low, two.ci_high)
    assert np.array_equal(one.null, two.null)
    assert one.value != other.value
    assert one.value == pytest.approx(other.value, abs=0.15)


def test_the_global_generator_is_left_alone(sample):
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    estimate(*sample)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def labelled(draw, n):
    """Labels as users have them: integers, strings, one-hot, bool; even, or with one class of a single example."""
    classes = draw(st.sampled_from([2, 3, 7]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["integers", "strings", "one-hot", "bool", "rare", "numbers", "rounded numbers"]))
    if kind == "rare":
        y = np.zeros(n, dtype=int)
        y[rng.integers(n)] = 1
        return y
    if kind in ("numbers", "rounded numbers"):
        numbers = rng.standard_normal(n)
        return numbers if kind == "numbers" else np.round(numbers) + 0.5
    y = rng.integers(0, 2 if kind == "bool" else classes, n)
    y[:2] = 0, 1
    return {"strings": y.astype(str), "one-hot": np.eye(y.max() + 1)[y], "bool": y == 1}.get(kind, y)


@st.composite
def odd_inputs(draw):
    """Few examples, and vectors with constant and repeated columns, repeated rows, outliers, tiny scales, float16."""
    n, d = draw(st.integers(20, 60)), draw(st.sampled_from([1, 2, 5, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    y = labelled(draw, n)
    x = rng.standard_normal((n, d))
    if draw(st.booleans()):  # the label is among the columns
        x[:, 0] = np.unique(y.argmax(1) if y.ndim == 2 else y, return_inverse=True)[1]
    for trouble in draw(st.sets(st.sampled_from(["constant", "repeated", "rows", "outlier", "tiny", "whole"]))):
        match trouble:
            case "constant":
                x[:, -1] = 3.0
            case "repeated":
                x[:, -1] = x[:, 0]
            case "rows":
                x[n // 3 :] = x[: n - n // 3]
            case "outlier":
                x[rng.integers(n)] = 1e6
            case "tiny":
                x *= 1e-6
            case "whole":
                x = np.round(x)
    with np.errstate(over="ignore"):
        dtype = draw(st.sampled_from([np.float16, np.float32, np.float64, int]))
        if dtype is np.float16:
            x = np.clip(x, -6e4, 6e4)
    return x.astype(dtype), y


@QUICK
@given(odd_inputs())
def test_information_is_between_nothing_and_all_there_is(xy):
    x, y = xy
    found = estimate(x, y)
    assert found.n == len(x)
    bound = min(found.entropy, np.log2(found.n)) + 1e-12
    assert 0 < found.p <= 1
    if found.undetermined:
        assert np.isnan(found.value)
        assert (found.ci_low, found.ci_high) == (0, pytest.approx(bound))
    else:
        assert 0 <= found.ci_low <= found.value <= found.ci_high <= bound


@QUICK
@given(arrays(np.int64, st.integers(20, 60), elements=st.integers(0, 5)), st.integers(0, 99))
def test_information_of_symbols_is_between_nothing_and_all_there_is(x, seed):
    y = np.random.default_rng(seed).integers(0, 3, len(x))
    y[:2] = 0, 1
    found = estimate(x, y)
    assert np.isnan(found.value) or 0 <= found.ci_low <= found.value <= found.ci_high <= found.entropy + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 0])
def test_p_of_independent_pairs_is_not_small_too_often(classes):
    """P(p ≤ t) ≤ t for each t: of 120 pairs no share goes beyond t by more than 3.3 deviations."""
    p = []
    for seed in range(120):
        rng = np.random.default_rng([classes, seed])
        y = rng.integers(0, classes, 60) if classes else rng.standard_normal(60)
        p.append(estimate(rng.standard_normal((60, 3)), y, seed=seed, draws=99).p)
    for t in (0.05, 0.1, 0.25, 0.5):
        assert np.mean(np.array(p) <= t) < t + 3.3 * np.sqrt(t * (1 - t) / len(p))
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    assert estimate(rng.standard_normal((60, 3)) + 2 * y[:, None], y, draws=99).p <= 0.02  # the control


@pytest.mark.slow
def test_coarser_vectors_know_no_more():
    """x to coarse x to coarser x: an estimate may rise by chance, seldom and little."""
    rises = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 300)
        x = rng.standard_normal((300, 4)) + y[:, None]
        chain = [x, np.round(x), np.sign(x), np.sign(x[:, :2])]
        values = [estimate(step, y, seed=seed).value for step in chain]
        rises += [b - a for a, b in pairwise(values)]
    assert max(rises) < 0.15
    assert np.mean(np.array(rises) > 0.03) < 0.3
    assert np.mean(rises) < 0


@pytest.mark.parametrize(("a", "b"), [((3, 2), (2, 2, 1)), ((1, 1, 3), (4, 1)), ((5,), (2, 3)), ((1,) * 5, (2, 3))])
def test_expected_information_is_the_mean_over_all_orders(a, b):
    x, y = np.repeat(np.arange(len(a)), a), np.repeat(np.arange(len(b)), b)
    mean = np.mean([plug_in(x, y[list(order)]) for order in permutations(range(5))])
    assert expected_information(np.array(a), np.array(b)) == pytest.approx(mean, abs=1e-12)


@QUICK
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9), st.integers(2, 6), st.integers(0, 99))
def test_expected_information_is_scikit_learns(a, classes, seed):
    x = np.repeat(np.arange(len(a)), a)
    y = np.unique(np.random.default_rng(seed).integers(0, classes, len(x)), return_inverse=True)[1]
    theirs = expected_mutual_information(contingency_matrix(x, y, sparse=True), len(x)) / np.log(2)
    assert expected_information(np.bincount(x), np.bincount(y)) == pytest.approx(theirs, abs=1e-9)
    assert expected_information(np.bincount(y), np.bincount(x)) == pytest.approx(theirs, abs=1e-9)
