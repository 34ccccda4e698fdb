"""The default estimator where the information is known, and where there is something to trip over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.stats import binom
from threadpoolctl import threadpool_limits

from probekit import mutual_information
from probekit.errors import UsageError
from probekit.information.grouping import Groups, equal_keys
from probekit.information.hashing.calibrated import FOLDS, _folds
from probekit.information.response import response

APART = 2.0435393957  # deviations between two classes' means, for half a bit


def estimate(x, y, **options):
    return mutual_information(x, y, **{"draws": 99, **options})


def bits_of_two_gaussians(distance):
    """I(X; Y) of two equally frequent unit Gaussians, by Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    return 1 - weights @ np.logaddexp2(0, -(distance**2 / 2 + distance * points) / np.log(2)) / weights.sum()


def gaussians(seed, n=2000, d=10, distance=APART):
    """Two classes, their means apart along the first column, and all columns turned."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.standard_normal((n, d))
    x[:, 0] += distance * y
    return x @ turn(d), y


def turn(d):
    return np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]


@pytest.fixture(scope="module")
def sample():
    """600 examples of 12 columns and three classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    x = rng.standard_normal((600, 12)).astype(np.float32)
    x[:, :2] += 1.5 * np.stack([y == 1, y == 2], 1)
    return x, y


def same(one, other):
    fields = ("value", "raw", "null_mean", "p", "ci_low", "ci_high", "buckets", "view")
    return [getattr(one, f) for f in fields] == [getattr(other, f) for f in fields] and (one.null == other.null).all()


# Known information. Tolerances are three standard deviations over 40 seeds, beside the mean over them.


@pytest.mark.parametrize("seed", range(3))
def test_half_a_bit(seed):
    assert bits_of_two_gaussians(APART) == pytest.approx(0.5, abs=1e-9)
    found = estimate(*gaussians(seed), seed=seed)
    assert found.value == pytest.approx(0.494, abs=0.06)  # spread .020
    assert found.p == 0.01
    assert found.ci_low < 0.5 < found.ci_high
    assert found.null_mean < 0.05
    assert (found.undetermined, found.warning) == ("", "")


@pytest.mark.parametrize("distance", [0.5, 1.0, 4.0])
def test_more_and_less(distance):
    truth = bits_of_two_gaussians(distance)
    found = estimate(*gaussians(7, distance=distance))
    assert 0.75 * truth - 0.01 < found.value < truth + 0.03
    assert found.p == 0.01


@pytest.mark.parametrize(
    ("d", "deviation", "mean", "within", "view"),
    [(10, 0.01, 0.486, 0.066, "quadratic"), (40, 0.2, 0.404, 0.078, "linear")],  # spread .022 and .026
)
def test_signal_of_low_variance(d, deviation, mean, within, view):
    """A fraction of the deviation of other directions: the first principal components do not show it."""
    x, y = gaussians(1, d=d)
    x = x @ turn(d).T * np.array([deviation, *[1] * (d - 1)]) @ turn(d)
    found = estimate(x, y)
    assert found.value == pytest.approx(mean, abs=within)
    assert found.p == 0.01
    assert view in found.view
    assert mutual_information(x, y, "knn", draws=0).value < 0.05  # the control: four principal components


def test_exclusive_or():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 10))
    y = x[:, 0] * x[:, 1] > 0  # 1 bit
    found = estimate(x, y)
    assert found.value == pytest.approx(0.581, abs=0.066)  # spread .022
    assert found.p == 0.01
    assert "quadratic" in found.view
    assert mutual_information(x, y, "logistic", draws=0).value < 0.01  # the control: no direction shows it


def test_numbers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 5))
    y = 0.8 * x[:, 0] + 0.6 * rng.standard_normal(1000)
    found = estimate(x @ turn(5), y)
    assert -0.5 * np.log2(1 - 0.8**2) == pytest.approx(0.737, abs=1e-3)
    assert found.value == pytest.approx(0.658, abs=0.102)  # spread .034
    assert found.p == 0.01
    assert found.bins == 15  # 14, of which a shifted grid cuts one in two
    assert found.entropy == pytest.approx(np.log2(14), abs=0.1)
    assert found.warning.endswith("numbers are cut into bins: high values come out low; ridge does not cut")
    assert estimate(x @ turn(5), np.exp(3 * y)).value == pytest.approx(found.value, abs=0.03)  # only ranks count
    assert estimate(x, rng.permutation(y)).value < 0.05  # the control


def test_several_columns_of_numbers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 5))
    y = 0.8 * x[:, :2] + 0.6 * rng.standard_normal((1000, 2))  # 1.474 bits
    found = estimate(x @ turn(5), y)
    assert found.value == pytest.approx(1.168, abs=0.1)  # mean of 20 samples, spread .033
    assert found.p == 0.01
    assert "the value comes out low" in found.warning
    assert estimate(x, rng.permutation(y)).p > 0.05  # the control


def test_one_column_is_cut_as_it_is():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    x = rng.standard_normal(1000) + APART * y
    found = estimate(x, y)
    assert found.view == "as it is"
    assert found.value == pytest.approx(0.5, abs=0.06)
    assert same(found, estimate(x[:, None], y))


@pytest.mark.parametrize(("n", "d", "distance"), [(150, 400, 4), (60, 2000, 10)])
def test_fewer_examples_than_columns(n, d, distance):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = rng.standard_normal((n, d)).astype(np.float32)
    x += distance / np.sqrt(d) * y[:, None]
    found = estimate(x, y)
    assert found.value > 0.5  # over 30 seeds, 150: .605 to .869
    assert found.p == 0.01
    assert estimate(x, rng.permutation(y)).p > 0.05  # the control


# How vectors are stored and computed with.


@pytest.mark.slow
def test_memory_maps_are_as_good_as_arrays(sample, tmp_path):
    x, y = sample
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert same(estimate(mapped, y), estimate(x, y))


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        pytest.param(lambda x: np.hstack([x, x])[:, : x.shape[1]], marks=pytest.mark.slow),
        pytest.param(lambda x: x[:], marks=pytest.mark.slow),
    ],
)
def test_layout_in_memory_does_not_matter(layout, sample):
    x, y = sample
    assert estimate(layout(x), y).value == pytest.approx(estimate(x, y).value, abs=1e-3)


@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 0.01), (np.float16, 0.05)])
def test_precision_hardly_matters(dtype, within, sample):
    x, y = sample
    assert estimate(x.astype(dtype), y).value == pytest.approx(estimate(x, y).value, abs=within)


def test_threads_do_not_matter(sample):
    x, y = sample
    with threadpool_limits(1):
        alone = estimate(x, y)
    with threadpool_limits(2), ThreadPoolExecutor(2) as pool:
        assert all(same(alone, one) for one in pool.map(lambda _: estimate(x, y), range(3)))


def test_the_seed_is_all_that_is_drawn_from(sample):
    x, y = sample
    one = estimate(x, y, seed=3)
    np.random.default_rng().random()
    assert same(one, estimate(x, y, seed=3))
    other = estimate(x, y, seed=4)
    assert other.value != one.value
    assert (other.null != one.null).any()
    assert other.value == pytest.approx(one.value, abs=0.15)


def test_vectors_and_labels_are_not_changed(sample):
    x, y = sample
    before = x.copy(), y.copy()
    estimate(x, y)
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


# What vectors may hold.


@pytest.mark.parametrize("value", [0.0, 7.25, -1e6])
def test_constant_columns_tell_nothing(value, sample):
    x, y = sample
    constant = np.full((len(x), 3), value, dtype=x.dtype)
    assert same(estimate(np.hstack([constant, x, constant]), y), estimate(x, y))


def test_columns_that_only_underflow_moves_tell_nothing(sample):
    x, y = sample
    faint = np.where(y == 1, 1e-33, 0).astype(x.dtype)[:, None]
    assert same(estimate(np.hstack([x, faint]), y), estimate(x, y))
    assert estimate(np.hstack([x, 1e33 * faint]), y).value > estimate(x, y).value + 0.1  # the control


def test_vectors_that_are_all_alike_tell_nothing():
    found = estimate(np.ones((60, 4)), np.arange(60) % 2)
    assert (found.value, found.raw, found.ci_low, found.shown_high, found.p) == (0, 0, 0, 0, 1)
    assert found.ci_high == 1  # what is not seen may be there


@pytest.mark.slow
def test_copies_of_a_vector_tell_nothing_of_labels_that_are_drawn_for_each():
    rng = np.random.default_rng(0)
    found = [estimate(np.repeat(rng.standard_normal((150, 60)), 4, 0), rng.integers(0, 2, 600)) for _ in range(5)]
    assert max(one.value for one in found) < 0.03
    assert sum(one.p <= 0.05 for one in found) <= binom.ppf(0.999, 5, 0.05)


def test_copies_of_a_vector_are_in_one_fold():
    rng = np.random.default_rng(0)
    key = np.repeat(rng.standard_normal(200), 3)[rng.permutation(600)]
    keys, y = np.stack([key, key]), response(rng.integers(0, 2, 600))
    parts = _folds(keys, equal_keys(keys), y, Groups.of(key), rng)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    assert len(parts) == FOLDS
    kinds = [set(key[part]) for part in parts]
    assert sum(map(len, kinds)) == len(set.union(*kinds)) == 200
    parts = _folds(keys.round(), equal_keys(keys.round()), y, None, rng)  # the control: six values are in all folds
    assert min(map(len, parts)) == 100


def copies(rng, n=200, d=30):
    """Every row twice, and labels that have nothing to do with them."""
    return np.repeat(rng.standard_normal((n, d)), 2, 0), np.repeat(rng.integers(0, 2, n), 2)


def test_copies_with_their_labels_are_counted_once():
    found = [estimate(*copies(np.random.default_rng(seed)), seed=seed) for seed in range(10)]
    assert {one.groups for one in found} == {200}
    assert max(one.value for one in found) < 0.1
    assert max(one.ci_low for one in found) == 0
    assert sum(one.p <= 0.05 for one in found) <= binom.ppf(0.999, 10, 0.05)
    x, y = copies(np.random.default_rng(0))
    x[:, 0] += 2 * y
    assert estimate(x, y).p == 0.01  # the control: copies of what tells


def sentences(rng, count=60, d=40):
    """Words of sentences of 5 to 24 words, alike within a sentence, and a label for each sentence."""
    own = np.repeat(np.arange(count), rng.integers(5, 25, count))
    x = rng.standard_normal((count, d))[own] + rng.standard_normal((len(own), d))
    return x, rng.integers(0, 2, count)[own], own


@pytest.mark.parametrize("signal", [0, 3])
def test_words_of_groups_of_unequal_sizes(signal):
    found = []
    for seed in range(8):
        x, y, own = sentences(np.random.default_rng(seed), 150 if signal else 60)
        x[:, 0] += signal * y
        found.append(estimate(x, y, groups=own, seed=seed))
    positive = sum(one.p <= 0.05 for one in found)
    assert positive >= 7 if signal else positive <= binom.ppf(0.999, 8, 0.05)
    assert all(one.ci_low == 0 for one in found) or signal


def test_groups_and_equal_vectors_are_joined():
    """Pairs of copies that lie in two groups make one of the two."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 5)), rng.integers(0, 2, 300)
    own = np.arange(300) // 3
    x[3] = x[0]
    assert estimate(x, y, groups=own.astype(str)).groups == 99
    with pytest.raises(UsageError, match=r"groups have the shape \(299,\); expected \(300,\)"):
        estimate(x, y, groups=own[1:])


@pytest.mark.parametrize("sizes", [[100] * 3, [1] * 40 + [260]])
def test_too_few_groups_say_nothing(sizes):
    own = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(0)
    found = estimate(rng.standard_normal((300, 5)), rng.integers(0, 2, 300), groups=own)
    assert np.isnan(found.value)
    assert "groups" in found.undetermined
    assert (found.ci_low, found.ci_high) == (0, found.entropy)


def test_combinations_of_few_values_are_no_copies():
    rng = np.random.default_rng(0)
    x = (rng.random((1000, 6)) < 0.5).astype(float)
    assert estimate(x, rng.integers(0, 2, 1000)).groups == 0
    assert estimate(np.repeat(rng.standard_normal((50, 6)), 20, 0), rng.integers(0, 2, 1000)).groups == 50


@pytest.mark.parametrize(("n", "d", "m"), [(203, 5, 1), (203, 1, 1), (150, 4, 2)])
def test_the_sign_of_numbers_does_not_count(n, d, m):
    rng = np.random.default_rng(n + d)
    x, y = rng.standard_normal((n, d)), np.exp(rng.standard_normal((n, m)))
    x[:, 0] += np.log(y[:, 0])
    found = estimate(x, y)
    assert same(found, estimate(x, -y))
    assert same(found, estimate(-x, -y))
    if m > 1:
        assert same(found, estimate(x, y * [1, -1]))
    assert found.value > 0.1
    assert not same(found, estimate(x, y, seed=5))


@pytest.mark.parametrize(
    ("n", "d", "classes"), [(300, 1, 2), (400, 10, 3), (100, 300, 2), pytest.param(400, 100, 5, marks=pytest.mark.slow)]
)
def test_neither_signs_nor_names_count(n, d, classes):
    """Equal to the bit for -x, and whatever classes are called."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((n, d)).astype(np.float32), rng.integers(0, classes, n)
    x[:, 0] += 1.5 * (y == 1)
    found = estimate(x, y)
    assert found.value > 0.01
    assert same(found, estimate(-x, y))
    assert same(found, estimate(x, classes - y))
    assert same(found, estimate(-x, np.array(list("qzbca"))[y]))


def test_signal_on_the_column_of_most_variance():
    """150 examples of 768 columns: rescaled, one column is one of 768."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    x = rng.standard_normal((150, 768)).astype(np.float32)
    x[:, 5] = 20 * (x[:, 5] + 3 * y)
    found = estimate(x, y)
    assert found.ci_low > 0.3
    assert found.p == 0.01
    assert "raw linear" in found.view
    assert found.ci_high == found.entropy > found.shown_high


@pytest.mark.parametrize(("copies", "warned"), [(2, False), (60, True)])
def test_repeated_vectors_are_told_of(copies, warned):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 5))
    x[-copies:] = x[:copies]
    warning = estimate(x, rng.integers(0, 2, 400)).warning
    assert ("400 examples in 340 groups" in warning) == warned


# What can not be told.


def test_too_few_examples_of_a_class():
    x = np.random.default_rng(0).standard_normal((60, 5))
    found = estimate(x, np.arange(60) % 20)
    assert np.isnan(found.value)
    assert found.undetermined == "20 classes of 60 examples: fewer than 4 a class"
    assert (found.ci_low, found.ci_high) == (0, pytest.approx(np.log2(20)))
    assert np.isfinite(found.raw)
    assert not estimate(x, np.arange(60) % 3).undetermined  # the control


def test_noise_that_reaches_half_of_what_there_is():
    rng = np.random.default_rng(0)
    rare = (np.arange(40) < 1).astype(int)
    found = estimate(rng.standard_normal((40, 3)), rng.permutation(rare))
    assert np.isnan(found.value)
    assert "shuffled labels reach" in found.undetermined
    assert found.ci_low == 0
    assert found.ci_high == found.entropy


def test_more_values_than_examples_can_tell_apart():
    found = estimate(np.arange(60), np.arange(60) % 2)  # each symbol once
    assert np.isnan(found.value)
    assert found.raw == pytest.approx(1, abs=1e-12)
    assert found.null_mean == pytest.approx(1, abs=1e-12)
    assert found.undetermined == "60 examples are too few for the buckets: noise alone gives 1.00 of 1.00 bits"
    assert estimate(np.arange(60) // 30, np.arange(60) // 30).value == 1  # the control


def test_independent_pairs():
    """Of 20 no more are significant than chance allows, values are near 0, and intervals hold them."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found.append(estimate(rng.standard_normal((300, 20)), rng.integers(0, 3, 300), seed=seed))
    assert sum(one.p <= 0.05 for one in found) <= binom.ppf(0.999, 20, 0.05)
    assert sum(one.ci_low > 0 for one in found) <= binom.ppf(0.999, 20, 0.05)
    assert np.mean([one.value for one in found]) < 0.02
    assert all(0 <= one.ci_low <= one.value <= one.ci_high <= one.entropy for one in found)
    assert np.mean([one.null.mean() for one in found]) == pytest.approx(0, abs=0.003)  # what is taken off is right


def test_few_shuffles_only_make_p_coarse(sample):
    x, y = sample
    many, few, none = (estimate(x, y, draws=draws) for draws in (199, 9, 0))
    assert many.value == few.value == none.value
    assert many.null_mean == none.null_mean
    assert (many.p, few.p) == (1 / 200, 1 / 10)
    assert np.isnan(none.p)
    assert none.ci_low < none.value < none.ci_high


def test_values_stay_below_the_truth_or_the_interval_says_so():
    """Labels through a noisy channel of 20 classes fill many cells: how biased they are is uncertain, and said."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 20, 1000)
    x = 10 * np.random.default_rng(1).standard_normal((20, 10))[z] + rng.standard_normal((1000, 10))
    y = np.where(rng.random(1000) < 0.3, rng.integers(0, 20, 1000), z)
    p = np.full((20, 20), 0.3 / 400) + 0.7 / 20 * np.eye(20)
    truth = (p * np.log2(400 * p)).sum()
    found = estimate(x, y)
    assert found.ci_low <= truth <= found.ci_high
    assert "bias is not well known" in found.warning
    assert "bias" not in estimate(x, z % 2).warning  # the control: two classes, few buckets


def test_collinear_and_constant_columns_of_labels():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(300)
    x = rng.standard_normal((300, 4)) + z[:, None]
    assert estimate(x, np.column_stack([z, 2 * z])).value > 0.5
    assert estimate(rng.standard_normal((300, 4)), np.column_stack([z, 0 * z])).value < 0.1


def test_one_huge_column_does_not_hide_the_others():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 5))
    y = (x[:, 0] > 0).astype(int)
    assert estimate(x * [1, 1, 1, 1, 1e12], y).value == pytest.approx(estimate(x, y).value, abs=1e-9)


def test_order_does_not_matter_where_rows_tie():
    rng = np.random.default_rng(0)
    x = (rng.random((600, 6)) < 0.5).astype(float)
    y = (x[:, 0] + x[:, 1] > 2 * rng.random(600)).astype(int)
    order = rng.permutation(600)
    found = estimate(x[order], y[order]).value
    assert found == pytest.approx(estimate(x, y).value, abs=0.01)  # 64 points may lie on the edge of a bucket


@pytest.mark.parametrize("option", [{"draws": -1}, {"grids": 0}, {"seed": -1}, {"draws": 1.5}])
def test_options_out_of_range(option):
    with pytest.raises(UsageError, match="it must be "):
        mutual_information(np.eye(30), np.arange(30) % 2, **option)


def test_masks_are_not_ignored():
    x = np.ma.masked_greater(np.random.default_rng(0).standard_normal((50, 2)), 1)
    with pytest.raises(UsageError, match="some vectors are masked"):
        estimate(x, np.arange(50) % 2)
