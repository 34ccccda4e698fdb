"""EDGE: kernels against their slow twins, settings against plain Python, what is known of its numbers, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import edge as plain_edge
from naive import edge_member, edge_weights

from probekit.errors import NonFiniteError, UsageError
from probekit.information.edge import EdgeSettings, edge, edge_details
from probekit.information.edge import _kernels as kernels
from probekit.information.edge import ensemble as module

compiled_or_not = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)


def kernel(name):
    """The kernel as compiled; as Python where numba is switched off, which ``make test`` does after all other tests."""
    run = getattr(kernels, name)
    return pytest.mark.parametrize("run", [run], ids=["compiled" if hasattr(run, "py_func") else "python"])


def pair(n=60, d=3, shift=1.5, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.standard_normal((n, d))
    x[:, 0] += shift * y
    return x, y


# ---------------------------------------------------------------- kernels


@kernel("add_moments")
@compiled_or_not
@given(seed=seeds, n=st.integers(1, 30), d=st.integers(1, 5), start=st.integers(0, 9))
def test_moments(run, seed, n, d, start):
    x = np.random.default_rng(seed).normal(100, 1, (start + n, d))
    total, square = np.ones(d), np.zeros(d)
    run(x, start, start + n, total, square)
    np.testing.assert_allclose(total, 1 + (x[start:] - x[0]).sum(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(square, ((x[start:] - x[0]) ** 2).sum(0), rtol=1e-12)


@kernel("project")
@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-13), (np.float32, 1e-5)])
@compiled_or_not
@given(seed=seeds, n=st.integers(1, 11), d=st.integers(1, 9), columns=st.integers(1, 8), start=st.integers(0, 3))
def test_project(run, dtype, tol, seed, n, d, columns, start):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((start + n + 1, d)).astype(dtype)
    weights = rng.standard_normal((columns, d)).astype(dtype)
    out = np.full((columns, len(x)), 7.0)
    run(x, weights, start, start + n, out)
    rows = slice(start, start + n)
    np.testing.assert_allclose(out[:, rows], weights.astype(float) @ x[rows].T.astype(float), atol=tol)
    assert (np.delete(out, np.arange(start, start + n), axis=1) == 7).all()


@kernel("neighbour_distance")
@compiled_or_not
@given(
    values=st.lists(st.integers(-9, 9).map(lambda v: v / 4), min_size=1, max_size=40),
    queries=st.lists(st.integers(0, 39), min_size=1, max_size=20),
    k=st.integers(1, 40),
)
def test_neighbour_distance(run, values, queries, k):
    values, k = np.sort(values), min(k, len(values))
    queries = np.sort(values[np.array(queries) % len(values)])
    slow = np.mean([np.sort(abs(values - q))[k - 1] for q in queries])
    assert run(values, queries, k) == pytest.approx(slow, abs=1e-12)


@kernel("distinct")
@pytest.mark.parametrize("span", [np.inf, 2.0**62, 41.0])
@compiled_or_not
@given(keys=st.lists(st.integers(0, 40), min_size=1, max_size=60), times=st.sampled_from([1, 2**45 + 1]))
def test_distinct(run, span, keys, times):
    if span == 41:
        times = 1
    numbers, seen = np.array(keys, dtype=np.int64) * times, np.empty(len(keys), dtype=np.int64)
    found = run(numbers, span, seen)
    order = list(dict.fromkeys(keys))
    assert found == len(order)
    assert seen[:found].tolist() == [k * times for k in order]
    assert numbers.tolist() == [order.index(k) for k in keys]


def test_a_table_that_grows():
    keys = np.random.default_rng(0).permutation(np.repeat(np.arange(30_000) * 2**40 + 5, 2))[:40_000]
    numbers, seen = keys.copy(), np.empty(len(keys), dtype=np.int64)
    if not hasattr(kernels.distinct, "py_func"):
        keys, numbers = keys[:9000], numbers[:9000]  # slow where numba is switched off
    found = kernels.distinct(numbers, np.inf, seen)
    assert found == len(np.unique(keys))
    np.testing.assert_array_equal(seen[numbers], keys)


@kernel("members")
@compiled_or_not
@given(
    seed=seeds, n=st.integers(20, 50), r=st.integers(1, 4), s=st.integers(1, 2),
    width=st.sampled_from([1e-13, 1e-4, 0.1, 0.7, 5.0, 1e120]), repeated=st.booleans(),
)  # fmt: skip
def test_members(run, seed, n, r, s, width, repeated):
    """Against dictionaries of tuples; widths of 1e-13 need more digits than fit in one number."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, r)), rng.integers(0, 3, (n, s)).astype(float)
    stretch, share = np.array([1, 1.3]), rng.random((2, r)) / 2
    rows = rng.integers(0, n, n).astype(np.int32) if repeated else np.empty(0, np.int32)
    side_a = (np.ascontiguousarray(a.T), a.min(0), a.max(0), rows, np.full(r, width), share)
    side_b = (np.ascontiguousarray(b.T), b.min(0), b.max(0), np.empty(0, np.int32), np.full(s, 1.5), np.zeros((2, s)))
    values, buckets = np.empty(2), np.empty((2, 3), dtype=np.int64)
    run(side_a, side_b, stretch, 3.0, values, buckets)
    for j in range(2):
        widths = [np.full(r, width) * stretch[j], np.full(s, 1.5) * stretch[j]]
        points = a[rows] if repeated else a
        slow, counts = edge_member(points, b, widths, [share[j] * widths[0], 0 * widths[1]], 3.0)
        assert tuple(buckets[j]) == counts
        assert values[j] == pytest.approx(slow, abs=1e-12)


@pytest.mark.skipif(not hasattr(kernels.members, "py_func"), reason="slow where numba is switched off")
@pytest.mark.parametrize(
    "spread", [pytest.param(3, id="looked up directly", marks=pytest.mark.slow), pytest.param(300, id="by their hash")]
)
def test_members_of_more_rows_than_a_chunk(spread):
    rng = np.random.default_rng(0)
    n, stretch = kernels.CHUNK + 77, np.linspace(1, 1.4, 11)
    a, b = spread * rng.standard_normal((n, 3)), rng.integers(0, 3, (n, 1)).astype(float)
    none, share = np.empty(0, np.int32), rng.random((11, 3)) / 2
    side_a = (np.ascontiguousarray(a.T), a.min(0), a.max(0), none, np.full(3, 4.0), share)
    side_b = (np.ascontiguousarray(b.T), b.min(0), b.max(0), none, np.full(1, 0.7), np.zeros((11, 1)))
    values, buckets = np.empty(11), np.empty((11, 3), dtype=np.int64)
    kernels.members(side_a, side_b, stretch, 10.0, values, buckets)
    for j, times in list(enumerate(stretch))[::5]:  # sorting takes a second for each
        digits = np.floor((a + share[j] * 4 * times) / (4 * times))
        _, of_a, in_a = np.unique(digits, axis=0, return_inverse=True, return_counts=True)
        _, of_b, in_b = np.unique(np.floor(b / (0.7 * times)), axis=0, return_inverse=True, return_counts=True)
        cells, both = np.unique(of_a.ravel() * len(in_b) + of_b.ravel(), return_counts=True)
        apart = in_a[cells // len(in_b)] * in_b[cells % len(in_b)].astype(float)
        assert tuple(buckets[j]) == (len(in_a), len(in_b), len(cells))
        assert values[j] == pytest.approx(
            both / n @ np.clip(np.log2(both * (n / apart)), 0.001, 10), abs=1e-11
        )  # 3e-12 of sums in another order


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("version", ["4.2.0", "4.3.1", "4.4.1"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gamma": (0.3, 0.001)},
        {"epsilon": (0.2, 0.3)},
        {"epsilon": (0, 0.3)},
        {"hashing": "floor", "U": 1.5},
        {"ensemble_estimation": "average", "L_ensemble": 7, "eps_range_factor": 0.5},
        {"ensemble_estimation": "optimal_weights", "L_ensemble": 24, "normalize_epsilon": False},
        {"epsilon_vector": "fixed", "L_ensemble": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("d", [2, 9])
def test_settings(version, given, d):
    x, y = pair(d=d)
    given = {"epsilon_vector": "range", "L_ensemble": 10, **given}
    found = edge_details(x, y, EdgeSettings(version=version, **given))
    slow = plain_edge(x, y, version, **given)
    assert len(found.passes) == len(slow)
    tol = 1e-5 if given.get("ensemble_estimation") == "optimal_weights" else 1e-10  # of a solver in the twin
    for p, (value, members, widths, buckets) in zip(found.passes, slow, strict=True):
        assert p.value == pytest.approx(value, abs=tol)
        np.testing.assert_allclose(p.members, members, atol=1e-12)
        np.testing.assert_array_equal(np.column_stack([p.buckets_x, p.buckets_y, p.buckets_xy]), buckets)
        np.testing.assert_allclose(p.width_x, widths[0], rtol=1e-12)
        np.testing.assert_allclose(p.width_y, widths[1], rtol=1e-12)
    assert edge(x, y, version, **given) == found.value


def test_a_version_has_its_own_ensemble():
    x, y = pair()
    assert edge(x, y, "4.2.0") == edge(x, y, "4.2.0", epsilon_vector="fixed", L_ensemble=5)
    assert edge(x, y, "4.2.0") != edge(x, y, "4.2.0", epsilon_vector="range", L_ensemble=10)


@pytest.mark.parametrize("d", [4, 60, 700])
@pytest.mark.parametrize("L", [10, 16, 17, 40])
def test_optimal_weights(d, L):
    stretch = np.linspace(1, 1.1, L)
    weights = module._optimal_weights(stretch, 450, d)
    assert weights.sum() == pytest.approx(1)
    assert (np.ptp(weights) == 0) == (L <= 16 or (450 ** (-0.5 / d) < 4 / L**0.5))
    a = [(stretch / 450) ** (i / (2 * d)) @ weights / 2 for i in range(1, L)]
    reached = max(2 * np.sqrt((weights**2).sum()), *a)
    slow = edge_weights(stretch, 450, d)
    a = [(stretch / 450) ** (i / (2 * d)) @ slow / 2 for i in range(1, L)]
    assert reached <= max(2 * np.sqrt((slow**2).sum()), *a) + 1e-9  # none of the constraints left out is broken


def test_the_first_pass_alone():
    x, y = pair(200)
    details = edge_details(x, y)
    assert edge(x, y, normalize_epsilon=False) == details.passes[0].value != details.value
    assert details.passes[0].value == np.median(details.passes[0].members)


def test_stochastic_hashing_draws_from_the_generator_given():
    x, y = pair(200)
    once, again, other = (edge(x, y, stochastic=True, rng=np.random.default_rng(s)) for s in (1, 1, 2))
    assert once == again != other
    assert edge(x, y, rng=np.random.default_rng(1)) == edge(x, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_threads_change_no_bit(monkeypatch, dtype):
    x, y = pair(700, 40)
    x = x.astype(dtype)
    one = edge_details(x, y, threads=1)
    monkeypatch.setattr(module, "SMALL", 0)
    for threads in (1, 2, 3, 16):
        many = edge_details(x, y, threads=threads)
        for p, q in zip(one.passes, many.passes, strict=True):
            assert p.members.tobytes() == q.members.tobytes()
            assert p.width_x.tobytes() == q.width_x.tobytes()
            assert p.value == q.value


def test_the_global_generator_is_left_alone():
    state = np.random.get_state
    before = str(state())
    edge(*pair())
    edge(*pair(), stochastic=True, rng=np.random.default_rng(0))
    assert str(state()) == before


# ---------------------------------------------------------------- what is known of the numbers


def test_independent_binary_labels_give_the_floor_exactly():
    """The second pass leaves one bucket; and it does so where there is something to find."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((400, 64)), rng.integers(0, 2, 400)
    details = edge_details(x, y)
    assert details.value == pytest.approx(0.001, abs=1e-15)
    assert details.passes[0].value > 0.05
    assert details.passes[1].buckets_x[-1] == 1
    x[:, 0] += 2 * y  # 0.486 bits
    assert edge(x, y) == pytest.approx(0.001, abs=1e-15)


def test_twenty_classes_do_not():
    rng = np.random.default_rng(0)
    assert edge(rng.standard_normal((400, 64)), rng.integers(0, 20, 400)) > 0.05


def test_negative_terms_are_dropped():
    """A binary channel: 1 - H(0.15) = 0.390 bits, and what is left of its terms when the negative ones are clipped."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 5000)
    y = np.where(rng.random(5000) < 0.15, 1 - x, x)
    table = np.histogram2d(x, y, 2)[0] / 5000
    terms = np.log2(table / np.outer(table.sum(1), table.sum(0)))
    assert (table * terms).sum() == pytest.approx(0.39, abs=0.03)
    assert edge(x, y) == pytest.approx((table * np.maximum(terms, 0.001)).sum(), abs=1e-12)
    assert edge(x, y) > 0.6


def test_it_depends_on_where_the_origin_is_on_columns_order_and_on_which_is_x():
    x, y = pair(400, 8, 3.0)
    value = edge(x, y)
    assert abs(edge(x + 5, y) - value) > 1e-3
    assert abs(edge(x[:, ::-1], y) - value) > 1e-3
    assert abs(edge(y, x) - value) > 1e-3
    assert edge(4 * x, y) == value  # the scale alone does not matter, for powers of two to the last bit


def test_rows_in_another_order_are_other_rows_for_the_widths_only():
    x, y = pair(400, 8, 3.0)
    order = np.random.default_rng(1).permutation(400)
    given = {"epsilon": (0.1, 0.001), "threads": 1}
    assert edge(x[order], y[order], **given) == pytest.approx(edge(x, y, **given), abs=1e-12)
    assert edge(x[order], y[order]) != edge(x, y)


def test_y_about_itself_is_its_entropy():
    y = np.random.default_rng(0).integers(0, 5, 300)
    p = np.bincount(y) / 300
    assert edge(y, y) == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-12)


def test_narrow_buckets_hold_one_row_each():
    """log2 n, up to U; tuples of twelve digits of 13 decimals, told apart exactly."""
    x, _ = pair(200, 40)
    given = {"gamma": (1e-12, 1e-12), "normalize_epsilon": False}
    assert edge(x, x, U=20, **given) == pytest.approx(np.log2(200))
    assert edge(x, x, U=5, **given) == pytest.approx(5)
    with pytest.raises(UsageError, match="larger gamma"):
        edge(x, x, gamma=(1e-16, 1))


# ---------------------------------------------------------------- input


def test_what_the_numbers_are_stored_as_does_not_matter():
    x, y = pair(100, 5)
    x = np.round(x, 2).astype(np.float16).astype(np.float64)
    value = edge(x, y)
    read_only = x.copy()
    read_only.flags.writeable = False
    for form in (np.asfortranarray(x), x.tolist(), read_only, x.astype(">f8"), np.repeat(x, 2, axis=0)[::2]):
        assert edge(form, y) == value
    assert edge(x.astype(np.float16), y) == edge(x.astype(np.float32), y) == pytest.approx(value, abs=1e-3)
    for form in (y.astype(bool), y.tolist(), y.astype(np.float32), y[:, None], y.astype(np.uint8)):
        assert edge(x, form) == value
    assert edge(x, np.where(y, 1.0, -0.0)) == value


def test_float32_is_near():
    x, y = pair(2000, 64, 3.0)
    near = edge_details(x.astype(np.float32), y)
    for p, q in zip(near.passes, edge_details(x, y).passes, strict=True):
        np.testing.assert_allclose(p.members, q.members, atol=1e-3)


def test_one_hot_labels_are_vectors():
    """Projected and cut like any, so not the number that their codes give; measured against plain Python."""
    x, y = pair(100, 5)
    assert edge(x, np.eye(2)[y]) == pytest.approx(plain_edge(x, np.eye(2)[y])[-1][0], abs=1e-10)


def test_one_class_and_columns_that_are_constant():
    x, y = pair(100, 5)
    assert edge(x, np.zeros(100)) == pytest.approx(0.001)
    x[:, 1:] = [0, 3, 1e6, -0.1]
    assert edge(x, y) == pytest.approx(plain_edge(x, y)[-1][0], abs=1e-10)
    assert edge(np.ones((100, 3)), y) == pytest.approx(0.001)


def test_rows_that_occur_twice():
    x, y = pair(50, 5)
    assert edge(np.tile(x, (4, 1)), np.tile(y, 4)) == pytest.approx(
        plain_edge(np.tile(x, (4, 1)), np.tile(y, 4))[-1][0], abs=1e-10
    )


X, Y = pair(40, 3)
HOLE, INFINITE = X.copy(), X.astype(np.float32)
HOLE[7, 2], INFINITE[3, 1] = np.nan, -np.inf
NUMBERS = np.where(Y, np.nan, 0.0)


@pytest.mark.parametrize(
    ("x", "y", "error", "says"),
    [
        (HOLE, Y, NonFiniteError, "row 7, column 2 is nan"),
        (INFINITE, Y, NonFiniteError, "row 3, column 1 is -inf"),
        (X, NUMBERS, NonFiniteError, "is nan"),
        (X[:, 0], np.where(Y, np.inf, 0.0), NonFiniteError, "is inf"),
        (X[:19], Y[:19], UsageError, "at least 20 examples; there are 19"),
        (X, Y[:-1], UsageError, "40 vectors do not go with 39 labels"),
        (X, np.array(["no", "yes"])[Y], UsageError, "these are strings.*return_inverse"),
        (X, ["no", "yes"] * 20, UsageError, "these are strings"),
        (X, [1, None] * 20, UsageError, "objects"),
        (X, [[1], [1, 2]] * 20, UsageError, "must be an array of numbers"),
        ([[1], [1, 2]] * 20, Y, UsageError, "must be an array of numbers"),
        (X[:, :, None], Y, UsageError, "not of shape"),
        (X[:, :0], Y, UsageError, "not of shape"),
        (X, 1.0, UsageError, "not of shape"),
        (X * 1j, Y, UsageError, "complex"),
    ],
)
@pytest.mark.parametrize("hashing", ["p-stable", "floor"])
def test_bad_input(x, y, error, says, hashing):
    with pytest.raises(error, match=says):
        edge(x, y, hashing=hashing)


def test_numbers_whose_squares_are_beyond_float64():
    with pytest.raises(UsageError, match="scale them down"):
        edge(X * 1e200, Y)
    assert edge(X * 1e100, Y) == pytest.approx(edge(X, Y), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"version": "4.1"}, "version is '4.1'; did you mean 4."),
        ({"version": "4.4.1", "hashing": "TSNE"}, "one of p-stable, floor"),
        ({"hashing": "lsh"}, "it must be one of p-stable, floor"),
        ({"ensemble_estimation": "mean"}, "ensemble_estimation is 'mean'; did you mean"),
        ({"epsilon_vector": "grid"}, "fixed, range|did you mean range"),
        ({"gamma": (1, 0)}, "above 0, because buckets need a width"),
        ({"gamma": 1}, "gamma is 1; it must be 2 values"),
        ({"epsilon": (-1, 1)}, "epsilon is .-1, 1.; .*0 or more"),
        ({"epsilon": (1, 0)}, "without epsilon\\[1\\]; give both"),
        ({"L_ensemble": 0}, "L_ensemble is 0; it must be 1 or more"),
        ({"eps_range_factor": -1}, "above -1"),
        ({"stochastic": True}, "give rng"),
        ({"threads": 0}, "threads is 0; it must be 1 or more"),
    ],
)
def test_bad_settings(given, says):
    with pytest.raises(UsageError, match=says):
        edge(X, Y, **given)
