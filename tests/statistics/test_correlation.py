"""Correlations of a few points and of matrices: SciPy's values, all permutations by hand, and simulation."""

from itertools import permutations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from probekit.errors import UsageError
from probekit.statistics.correlation import Adjust, caution, matrix_relation, relation

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
TABLE_6 = [0.21, 0.18, 0.14, 0.09, 0.09]  # TE GO TR FI SL: Jensen-Shannon divergences of the paper


def two(n, seed=0, r=0.5):
    x, e = np.random.default_rng(seed).normal(size=(2, n))
    return x, r * x + np.sqrt(1 - r * r) * e


def fields(found):
    return np.array([[f.value, f.low, f.high, f.p, f.n, f.exact, f.undefined] for f in found.values()], dtype=float)


@pytest.mark.parametrize("n", [3, 5, 20, 250])  # above 200 Kendall's is computed another way
@pytest.mark.parametrize("digits", [0, 9])  # 0: ties
def test_values_are_those_of_scipy(n, digits):
    x, y = (np.round(v, digits) for v in two(n, seed=n))
    found = relation(x, y, draws=19, resamples=0)
    assert list(found) == list(SCIPY)
    for name, of in SCIPY.items():
        assert found[name].value == pytest.approx(of(x, y).statistic, abs=1e-12)
        assert found[name].n == n
        assert np.isnan(found[name].low)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=4, max_size=5))
def test_p_is_the_share_of_all_permutations(points):
    """Small whole numbers: many permutations are exactly as extreme, which sums of floats do not show."""
    x, y = np.array(points, dtype=float).T / 10
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return
    for name, found in relation(x, y, resamples=0).items():
        other = stats.permutation_test(
            (x,), lambda v, of=SCIPY[name]: round(abs(of(v, y).statistic), 9), permutation_type="pairings",
            alternative="greater", n_resamples=np.inf,
        )  # fmt: skip
        assert found.exact
        assert found.p == pytest.approx(other.pvalue, abs=1e-12)


def test_rounding_errors_break_no_ties():
    moved = [0.0004, 0.0189, 0.0513, 0.1612, 0.6065, 0.7991, 0.9378]  # 1 - CKA of seven layers
    gains = [
        6 / 408,
        0.012254901960784381,
        0.012254901960784427,
        7 / 408,
        20 / 408,
        42 / 408,
        36 / 408,
    ]  # twice 5 / 408
    found = relation(moved, gains, resamples=0)["spearman"]
    assert found.value == pytest.approx(SCIPY["spearman"](moved, np.round(gains, 9)).statistic, abs=1e-12)
    assert (found.p, found.exact) == (128 / 5040, True)


def test_smallest_p():
    found = relation([1, 2, 3, 4, 6], [1, 2, 4, 8, 16], resamples=0)  # as they stand, turned round for ranks alone
    assert found["spearman"].p == found["kendall"].p == pytest.approx(2 / 120)
    assert found["pearson"].p == pytest.approx(1 / 120)


def test_random_permutations_count_the_one_that_was_measured():
    found = relation(*two(9, r=0.999), draws=99, resamples=0)
    assert {f.p for f in found.values()} == {1 / 100}
    assert not any(f.exact for f in found.values())
    x, y = two(7, seed=2)
    exact, drawn = (relation(x, y, draws=m, resamples=0)["pearson"] for m in (5040, 5039))
    assert exact.exact
    assert not drawn.exact
    assert drawn.p == pytest.approx(exact.p, abs=4 * np.sqrt(0.25 / 5039))  # four standard errors


def test_the_same_either_way_and_again():
    x, y = two(6)
    np.testing.assert_array_equal(fields(relation(x, y)), fields(relation(x, y)))
    np.testing.assert_allclose(fields(relation(x, y)), fields(relation(y, x)), atol=1e-12)
    x, y = two(12)
    assert relation(x, y, seed=1)["pearson"] == relation(x, y, seed=1)["pearson"]
    assert relation(x, y, seed=1)["pearson"].low != relation(x, y, seed=2)["pearson"].low


def test_what_leaves_correlations_as_they_are():
    x, y = two(10)
    plain, moved, bent = (relation(v, y, draws=199) for v in (x, 1e6 + 3 * x, np.exp(x)))
    np.testing.assert_allclose(fields(moved), fields(plain), atol=1e-8)  # of 1e6, 1e-10 are lost to rounding
    np.testing.assert_array_equal(fields(bent)[1:], fields(plain)[1:])  # ranks
    assert bent["pearson"].value != plain["pearson"].value
    turned = fields(relation(-x, y, draws=199))
    np.testing.assert_allclose(turned[:, 0], -fields(plain)[:, 0], atol=1e-12)
    np.testing.assert_allclose(turned[:, 1:3], -fields(plain)[:, [2, 1]], atol=1e-9)


def test_intervals_are_those_of_scipy():
    """BCa of SciPy, which draws other resamples."""
    x, y = two(20, seed=3)
    found = relation(x, y, draws=19, resamples=20_000)["pearson"]
    other = stats.bootstrap(
        (x, y), lambda a, b, axis: stats.pearsonr(a, b, axis=axis).statistic, paired=True, vectorized=True,
        n_resamples=4000, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=0.03)  # 4,000 resamples


def test_resamples_that_are_undefined_are_counted():
    found = relation(*two(3), draws=19, resamples=9000)["pearson"]
    assert found.undefined / 9000 == pytest.approx(3 / 27, abs=0.015)  # all three points the same
    apart = relation(range(5), [0, 0, 0, 0, 1], resamples=2000)
    assert apart["kendall"].undefined == pytest.approx(2000 * (0.8**5 + 0.2**5), abs=90)


def test_ranks_in_order_have_no_interval():
    found = relation(TABLE_6, np.square(TABLE_6))
    assert found["spearman"].value == 1
    assert np.isnan([found["spearman"].low, found["kendall"].high]).all()
    assert found["pearson"].low < found["pearson"].high


def test_what_is_constant_is_undefined():
    for found in relation([1, 2, 3, 4], [0.1] * 4).values():
        assert np.isnan([found.value, found.low, found.high, found.p]).all()


def test_nonsense_is_refused():
    for x, y in (
        ([1, 2], [1, 2]),
        ([1, 2, 3], [1, 2]),
        (np.ones((3, 3, 3)), np.ones((3, 3, 3))),
        (np.ones((3, 0)), np.ones((3, 0))),
    ):
        with pytest.raises(UsageError, match="the same 3 or more points"):
            relation(x, y)
    for bad in (np.nan, np.inf):
        with pytest.raises(UsageError, match="finite"):
            relation([1, 2, bad], [1, 2, 3])
    for more in ({"draws": 3}, {"resamples": -1}, {"level": 1}):
        with pytest.raises(UsageError, match="at least 19 permutations"):
            relation([1, 2, 3], [1, 3, 2], **more)
    x = np.random.default_rng(0).random((4, 4))
    with pytest.raises(UsageError, match=r"3 or more domains, got \(4, 4\) and \(4, 3\)"):
        matrix_relation(x, x[:, :3])
    with pytest.raises(UsageError, match="4 or more domains"):
        matrix_relation(x[:3, :3], x[:3, :3], adjust="effects")
    with pytest.raises(UsageError, match="adjust is 'both'; expected one of none, in-domain, effects"):
        matrix_relation(x, x, adjust="both")
    np.fill_diagonal(x, np.nan)
    assert np.isfinite(matrix_relation(x, x.T)["pearson"].value)  # as divergences come
    with pytest.raises(UsageError, match="in-domain, on that of y"):
        matrix_relation(x, x, adjust="in-domain")


def world(d, rng, slope=0.0, far=0.0):
    """Domains are places; y falls with their distance, and domains differ in how hard and how useful they are.

    far : how much further some domains are from all others, which are also harder and less useful for it
    """
    place, own = rng.normal(size=(d, 5)), far * rng.normal(size=d)
    x = np.linalg.norm(place[:, None] - place, axis=2) + own[:, None] + own
    hard, useless = own + 0.5 * rng.normal(size=d), 0.5 * own + 0.3 * rng.normal(size=d)
    y = -slope * x - hard - useless[:, None] + 0.5 * rng.normal(size=(d, d))
    y[np.diag_indices(d)] = 0.1 * rng.normal(size=d) - hard
    return x, y


def least_squares(v):
    """Off-diagonal entries less row and column effects, as a regression on dummies."""
    d = len(v)
    i, j = np.nonzero(~np.eye(d, dtype=bool))
    design = np.hstack([np.eye(d)[i], np.eye(d)[j]])
    out = np.zeros((d, d))
    out[i, j] = np.round(v[i, j] - design @ np.linalg.lstsq(design, v[i, j], rcond=None)[0], 9)
    return out


@pytest.mark.parametrize("adjust", Adjust)
def test_matrices_against_all_orders_by_hand(adjust):
    x, y = world(4 if adjust is Adjust.NONE else 5, np.random.default_rng(0), 0.3, 0.5)
    left = {
        Adjust.NONE: (x, y),
        Adjust.IN_DOMAIN: (x, y - np.diag(y)),
        Adjust.EFFECTS: (least_squares(x), least_squares(y)),
    }[adjust]
    off = ~np.eye(len(x), dtype=bool)
    for name, found in matrix_relation(x, y, adjust=adjust, resamples=0).items():
        assert found.exact
        assert found.n == off.sum()
        assert found.value == pytest.approx(SCIPY[name](left[0][off], left[1][off]).statistic, abs=1e-7)
        assert found.p == naive.mantel(*left, lambda a, b, of=SCIPY[name]: of(a, b).statistic)


def test_names_of_domains_do_not_matter():
    x, y = world(5, np.random.default_rng(1), 0.3)
    order = [3, 1, 4, 0, 2]
    for adjust in Adjust:
        a = fields(matrix_relation(x, y, adjust=adjust, resamples=0))
        b = fields(matrix_relation(x[order][:, order], y[order][:, order], adjust=adjust, resamples=0))
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_what_adjusting_takes_away():
    rng = np.random.default_rng(2)
    x, y = world(6, rng, 0.3)
    hard, useless = rng.normal(size=(2, 6))
    more = {"draws": 99, "resamples": 200}
    easier, other = (matrix_relation(x, v, adjust="in-domain", **more) for v in (y, y + hard))
    np.testing.assert_allclose(fields(easier), fields(other), atol=1e-9)
    plain, other = (
        matrix_relation(*v, adjust="effects", **more)
        for v in ((x, y), (x + hard + hard[:, None], y + useless[:, None]))
    )
    np.testing.assert_allclose(fields(plain), fields(other), atol=1e-6)
    of_effects = hard + hard[:, None]  # nothing is left but rounding
    assert np.isnan(matrix_relation(of_effects, y, adjust="effects", **more)["spearman"].value)


@pytest.mark.slow
def test_twenty_points_that_are_five():
    """The points taken for independent, p is far too small: row and column effects on both sides."""
    rng = np.random.default_rng(3)
    naively, honestly = [], []
    off = ~np.eye(5, dtype=bool)
    for _ in range(300):
        a, b = rng.normal(size=(2, 5))
        x, y = a + a[:, None] + 0.1 * rng.normal(size=(5, 5)), b + 0.1 * rng.normal(size=(5, 5))
        naively.append(stats.pearsonr(x[off], y[off]).pvalue <= 0.05)
        honestly.append(matrix_relation(x, y, resamples=0)["pearson"].p <= 0.05)
    assert np.mean(naively) > 0.1
    assert np.mean(honestly) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


@pytest.mark.slow
def test_nothing_is_found_in_noise():
    """At most 5 % (plus three standard errors) of p-values are below 0.05: five points, and nine by random orders."""
    for n, times, m in ((5, 400, 120), (9, 200, 199)):
        found = [relation(*two(n, seed=s, r=0), draws=m, resamples=0, seed=s) for s in range(times)]
        for name in SCIPY:
            assert np.mean([f[name].p <= 0.05 for f in found]) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / times)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 6, 10, 20])
@pytest.mark.parametrize("r", [0.0, 0.5, 0.9])
def test_intervals_of_points_cover(n, r):
    """As often as the docstring says, less two points: 600 simulations have a standard error of about one."""
    truth = {"pearson": r, "spearman": 6 / np.pi * np.arcsin(r / 2), "kendall": 2 / np.pi * np.arcsin(r)}
    least = {"pearson": 0.88, "spearman": 0.92, "kendall": 0.93}
    made = [relation(*two(n, seed=[s, n], r=r), draws=19, resamples=1000, seed=s) for s in range(600)]
    for name, true in truth.items():
        known = [f[name] for f in made if not np.isnan(f[name].low)]
        assert np.mean([f.low <= true <= f.high for f in known]) >= least[name]
        assert len(known) >= 0.7 * 600


@pytest.mark.slow
@pytest.mark.parametrize("adjust", Adjust)
@pytest.mark.parametrize(("slope", "far"), [(0, 0), (0.5, 0), (0, 1), (0.5, 1)])
def test_matrices_by_simulation(adjust, slope, far):
    """Five domains: how often intervals cover what 60 domains show, and how often noise is taken for something."""
    large = [matrix_relation(*world(60, np.random.default_rng([9, s]), slope, far), adjust=adjust, draws=19,
                             resamples=0)["pearson"].value for s in range(15)]  # fmt: skip
    made = [
        matrix_relation(*world(5, np.random.default_rng([5, s]), slope, far), adjust=adjust, resamples=400, seed=s)
        for s in range(300)
    ]
    found = [m["pearson"] for m in made]
    covered = np.mean([f.low <= np.mean(large) <= f.high for f in found])
    positive = np.mean([f.p <= 0.05 for f in found])
    assert covered >= LEAST[adjust, far]
    if slope == 0 and (far == 0 or adjust is Adjust.EFFECTS):
        assert positive <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    elif slope == 0:
        assert positive > 0.1  # far domains are hard domains: related, though not through what two of them are


LEAST = {(adjust, far): 0.86 for adjust in Adjust for far in (0, 1)} | {(Adjust.NONE, 1): 0.78}


def test_five_points_carry_little():
    said = caution(5)
    assert "5 points carry little" in said
    for words in ("below 0.0083", "of ranks below 0.017", "|r| > 0.878 (Pearson)", ">= 1.000 (Spearman)", "above 0.94"):
        assert words in said
    assert "p < 0.05" not in caution(3)
    assert "Spearman" not in caution(4)  # 2 of 24 orders at best
    assert "carry little" not in caution(100)
    assert "no p-value is below 0.0083 (1 of 120 orders)" in caution(20, domains=5)
    assert "p-value" not in caution(999_000, domains=1000)
    assert "|r| > 0.062" in caution(1000)
    with pytest.raises(UsageError, match="there are 2 points"):
        caution(2)


@pytest.mark.parametrize("n", [5, 12])
def test_what_caution_says_comes_true(n):
    """By simulation with Student's t: a correlation as large as it says is found four times in five."""
    words = caution(n)
    least, found = (float(words.split(before)[1].split()[0]) for before in ("|r| > ", "correlations above "))
    t = least * np.sqrt((n - 2) / (1 - least**2))
    assert 2 * stats.t.sf(t, n - 2) == pytest.approx(0.05, abs=0.002)  # three digits of r
    x, y = (stats.zscore(z.reshape(-1, n), axis=1) for z in two(n * 4000, r=found))
    assert np.mean((x * y).mean(1) > least) == pytest.approx(0.8, abs=0.04)  # two digits of r


def test_several_columns_give_their_mean_and_move_together():
    draw = np.random.default_rng(3)
    x, y = draw.normal(size=(2, 5, 3))
    found = relation(x, y, resamples=200)
    each = [relation(x[:, k], y[:, k], resamples=0) for k in range(3)]
    for name, one in found.items():
        assert one.value == pytest.approx(np.mean([f[name].value for f in each]))
        assert one.low < one.value < one.high
    null = [
        np.mean([SCIPY["spearman"](x[:, k], y[list(order), k])[0] for k in range(3)])
        for order in permutations(range(5))
    ]
    assert found["spearman"].exact
    assert found["spearman"].p == pytest.approx(np.mean(np.abs(null) >= abs(found["spearman"].value) - 1e-9))
    one, same = relation(x[:, 0], y[:, 0], resamples=200), relation(x[:, :1], y[:, :1], resamples=200)
    assert one == same


@pytest.mark.slow
@pytest.mark.parametrize(("n", "r", "common"), [(8, 0.0, 0.9), (12, 0.0, 0.5), (12, 0.5, 0.5), (20, 0.5, 0.1)])
def test_intervals_of_means_cover(n, r, common):
    """Eight columns that share a factor: 90 to 94 % in 600 simulations, whose standard error is about one point."""
    truth, covered = 6 / np.pi * np.arcsin(r / 2), []
    for s in range(600):
        draw = np.random.default_rng([s, n])
        y, e = (common**0.5 * draw.normal(size=(n, 1)) + (1 - common) ** 0.5 * draw.normal(size=(n, 8)) for _ in "ye")
        found = relation(r * y + (1 - r * r) ** 0.5 * e, y, draws=19, resamples=500, seed=s)["spearman"]
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.87
