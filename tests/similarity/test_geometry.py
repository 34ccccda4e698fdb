"""Dimension and anisotropy: closed forms, slow twins, and measured biases."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.similarity.geometry import all_but_the_top, intrinsic_dimension, mean_cosine, participation_ratio, rank


def spectrum(rng, n, eigenvalues, shift=0.0):
    return rng.normal(size=(n, len(eigenvalues))) * np.sqrt(eigenvalues) + shift


def test_rank():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 20)) + 5
    assert rank(x).value == 3
    assert rank(x.astype(np.float32)).value == 3  # rounding to float32 does not count as rank
    assert rank(rng.normal(size=(10, 20))).value == 9  # the mean takes one
    assert rank(np.ones((10, 4))).value == 0


def test_rank_in_half_precision():
    rng = np.random.default_rng(0)
    full = rng.normal(size=(500, 100))
    low = rng.normal(size=(500, 7)) @ rng.normal(size=(7, 100))
    low[:, 3] += 300  # an outlying column
    assert rank(full.astype(np.float16)).value == 100
    assert rank(low.astype(np.float16)).value == 7
    bfloat16 = (low.astype(np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)
    assert rank(bfloat16).value == 100
    assert rank(bfloat16, precision=2**-7).value == 7


@pytest.mark.parametrize(("n", "tolerance"), [(60, 0.05), pytest.param(400, 0.02, marks=pytest.mark.slow)])
def test_participation_ratio_of_known_spectra(n, tolerance):
    """Means of 300 samples; standard error below 1 %. The plug-in value is 30 % too small at n = 60."""
    eigenvalues = 1 / np.arange(1, 41)
    true = eigenvalues.sum() ** 2 / (eigenvalues**2).sum()
    rng = np.random.default_rng(1)
    samples = [spectrum(rng, n, eigenvalues, 2.0) for _ in range(300)]
    assert np.mean([participation_ratio(x).value for x in samples]) == pytest.approx(true, rel=tolerance)
    plug_in = [np.linalg.eigvalsh(np.cov(x.T)) for x in samples]
    assert np.mean([e.sum() ** 2 / (e**2).sum() for e in plug_in]) < true


def test_participation_ratio_of_more_dimensions_than_vectors():
    rng = np.random.default_rng(2)
    found = [participation_ratio(rng.normal(size=(100, 300))).value for _ in range(100)]
    assert np.mean(found) == pytest.approx(300, rel=0.02)  # the plug-in value is at most 99


def test_participation_ratio_is_between_1_and_d():
    rng = np.random.default_rng(5)
    for d in (2, 5):
        for n in (6, 12):
            for _ in range(50):
                one = participation_ratio(rng.normal(size=(n, d)) * (1, *[0.1] * (d - 1)))
                if np.isfinite(one.low):
                    assert min(1, one.value) <= one.low <= one.value <= one.high <= max(d, one.value)
    row = 1 + rng.random(20)
    rounded = np.tile(row, (50, 1)) * (1 + 2**-8 * rng.integers(-1, 2, (50, 20)))
    assert participation_ratio(rounded).value > 1
    assert participation_ratio(rounded, precision=2**-7).note == "all vectors are equal"


def test_squared_products_in_either_space_and_unbiased_square():
    """The trace of the squared covariance over all quadruples of different vectors (the definition)."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(7, 3)) + 1
    found = []
    for i, j, k, m in np.ndindex(7, 7, 7, 7):
        if len({i, j, k, m}) == 4:
            found.append(((x[i] - x[j]) @ (x[k] - x[m])) * ((x[i] - x[j]) @ (x[k] - x[m])) / 4)
    # E[((xi - xj)(xk - xm))^2] = 4 tr(S^2), for independent vectors
    from probekit.similarity.features import without_mean
    from probekit.similarity.geometry import _between_groups, _squared_products

    centred = without_mean(x)
    wide = np.concatenate([centred, np.zeros((7, 10))], axis=1)  # n < d: through the Gram matrix
    assert _squared_products(wide) == pytest.approx(_squared_products(centred))
    assert _between_groups(centred, (centred**2).sum(1), np.arange(7))[1][0] == pytest.approx(np.mean(found))


def test_participation_ratio_counts_no_pair_within_a_group():
    """Means over pairs, triples and quadruples of different groups, one by one; copies of all vectors add nothing."""
    from probekit.similarity.geometry import _between_groups

    rng = np.random.default_rng(4)
    x, code = rng.normal(size=(9, 3)), np.array([0, 0, 0, 1, 1, 2, 3, 4, 4])
    x -= x.mean(0)
    apart = [[], [], []]
    for i, j, k, m in np.ndindex(9, 9, 9, 9):
        for at, (rows, value) in enumerate((
            ((i, j), (x[i] @ x[j]) ** 2), ((i, j, k), (x[i] @ x[j]) * (x[i] @ x[k])),
            ((i, j, k, m), (x[i] @ x[j]) * (x[k] @ x[m])),
        )):  # fmt: skip
            if len({*code[list(rows)]}) == len(rows):
                apart[at].append(value)  # as often each, so the mean is that of all such tuples
    one, two, three = (np.mean(values) for values in apart)
    total, square = _between_groups(x, (x**2).sum(1), code)
    assert square[0] == pytest.approx(one - 2 * two + three)
    cross = [x[i] @ x[j] for i, j in np.ndindex(9, 9) if code[i] != code[j]]
    assert total[0] == pytest.approx((x**2).sum(1).mean() - np.mean(cross))
    for group in range(5):  # left out
        there = code != group
        again = _between_groups(x[there], (x[there] ** 2).sum(1), np.unique(code[there], return_inverse=True)[1])
        assert (total[1 + group], square[1 + group]) == pytest.approx((again[0][0], again[1][0]), nan_ok=True)
    x = rng.normal(size=(60, 40))
    alone, each = participation_ratio(x), participation_ratio(x, groups=np.arange(60))
    copies = participation_ratio(np.repeat(x, 4, axis=0), groups=np.arange(240) // 4)
    for found in (each, copies):
        assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high), rel=0.02)
    assert participation_ratio(x[:9], groups=np.arange(9) % 3).note == "fewer than 4 groups"
    assert np.isnan(participation_ratio(x[:16], groups=np.arange(16) // 4).low)  # 4 groups: no interval


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_intrinsic_dimension_of_cubes_in_a_larger_space(dimension):
    """Measured means over 100 samples of 1,000: .998, 1.98, 4.65, and 8.5 and 15.1 for 10 and 20."""
    rng = np.random.default_rng(4)
    frame = np.linalg.qr(rng.normal(size=(30, 30)))[0][:dimension]
    found = [intrinsic_dimension(rng.uniform(size=(1000, dimension)) @ frame) for _ in range(10)]
    expected = {1: 0.998, 2: 1.98, 5: 4.65}[dimension]
    assert np.mean([one.value for one in found]) == pytest.approx(expected, rel=0.04)
    assert all(one.low < one.value < one.high for one in found)


def test_intrinsic_dimension_is_facco_s_up_to_the_fit():
    """The line through the origin of the empirical distribution (Facco et al. 2017, equation 5 and step 5)."""
    x = np.random.default_rng(5).normal(size=(800, 3))
    far = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)
    ratio = np.sort(np.log(far[:, 2] / far[:, 1]))[:720]
    line = -np.log(1 - np.arange(1, 721) / 800)
    assert intrinsic_dimension(x).value == pytest.approx((ratio @ line) / (ratio @ ratio), rel=0.05)
    every = intrinsic_dimension(x, discard=0).value
    assert every == pytest.approx(799 / np.log(far[:, 2] / far[:, 1]).sum(), rel=1e-6)


def test_intrinsic_dimension_leaves_copies_out_and_groups_are_no_neighbours():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(300, 2))
    found = intrinsic_dimension(np.concatenate([x, x[:50]]))
    assert found.value == pytest.approx(intrinsic_dimension(x).value)
    assert (found.n, found.note) == (300, "50 copies of other vectors left out")
    near = np.repeat(x, 2, axis=0) + 1e-7 * rng.normal(size=(600, 2))
    assert intrinsic_dimension(near).value < 1  # pairs of near copies look like points
    assert intrinsic_dimension(near, groups=np.arange(600) // 2).value == pytest.approx(2, rel=0.15)
    near = np.repeat(x, 4, axis=0) + 0.02 * rng.normal(size=(1200, 2))  # as far from each other as from the next group
    grouped, alone = intrinsic_dimension(near, groups=np.arange(1200) // 4), intrinsic_dimension(near[::4])
    assert grouped.value == pytest.approx(alone.value, rel=0.1)
    assert grouped.high - grouped.low > 0.6 * (alone.high - alone.low)  # 4 near copies are hardly more than 1


def test_many_equal_distances_are_named():
    lattice = np.unique(np.random.default_rng(0).integers(0, 6, (300, 4)), axis=0)
    found = intrinsic_dimension(np.concatenate([lattice, lattice[:3]]))
    assert found.value > 5
    assert found.note.startswith("3 copies of other vectors left out; ")
    assert found.note.endswith(
        "% of the vectors have two nearest neighbours equally far away, which raises the estimate"
    )
    assert intrinsic_dimension(np.random.default_rng(0).normal(size=(200, 3))).note == ""


def test_neighbours_far_from_the_origin_are_exact():
    """Squared distances from a Gram matrix lose all digits here."""
    x = np.random.default_rng(7).normal(size=(200, 3))
    assert intrinsic_dimension(1e-4 * x + 1e4).value == pytest.approx(intrinsic_dimension(x).value, rel=1e-2)


def test_mean_cosine_is_that_of_all_pairs():
    rng = np.random.default_rng(8)
    x, groups = rng.normal(size=(40, 5)) + 1, np.arange(40) // 4
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = unit @ unit.T
    pairs = ~np.eye(40, dtype=bool)
    assert mean_cosine(x).value == pytest.approx(cosines[pairs].mean())
    apart = groups[:, None] != groups
    assert mean_cosine(x, groups=groups).value == pytest.approx(cosines[apart].mean())


def test_mean_cosine_of_shifted_normals():
    """E[u'v] = |E u|², here by 200,000 draws: .5029 (standard error .0005)."""
    rng = np.random.default_rng(9)
    found = [mean_cosine(rng.normal(size=(100, 20)) + 1).value for _ in range(100)]
    assert np.mean(found) == pytest.approx(0.503, abs=0.006)
    centred = [mean_cosine(rng.normal(size=(100, 20))).value for _ in range(100)]
    assert np.mean(centred) == pytest.approx(0, abs=0.002)


def test_all_but_the_top():
    rng = np.random.default_rng(10)
    for shape in ((60, 8), (8, 60)):
        x = rng.normal(size=shape) + 3
        u, s, v = np.linalg.svd(x - x.mean(0), full_matrices=False)
        assert all_but_the_top(x, 2) == pytest.approx((u[:, 2:] * s[2:]) @ v[2:], abs=1e-9)
    assert all_but_the_top(x, 0) == pytest.approx(x - x.mean(0))
    with pytest.raises(UsageError, match=r"top is 8; 8 vectors of 60 dimensions allow 0 to 7"):
        all_but_the_top(x, 8)


def test_what_cannot_be_had_is_missing_with_a_reason():
    assert participation_ratio(np.ones((10, 3))).note == "all vectors are equal"
    assert np.isnan(intrinsic_dimension(np.ones((10, 3))).value)
    assert intrinsic_dimension(np.ones((10, 3))).note == "fewer than 4 different vectors with two neighbours"
    zero = mean_cosine(np.concatenate([np.zeros((2, 3)), np.eye(3), -np.eye(3)]))
    assert (zero.n, zero.note) == (6, "2 vectors of length 0 left out")
    with pytest.raises(UsageError, match="needs 4 or more of them, not 3"):
        participation_ratio(np.eye(3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["participation-ratio", "mean-cosine", "intrinsic-dimension"])
def test_intervals_hold_the_truth(kind):
    """95 % intervals, 400 samples of 300: at least 91 % (measured .93, .95, .95; Monte Carlo error .011)."""
    rng = np.random.default_rng(11)
    eigenvalues = 1 / np.arange(1, 31)
    truth = {"participation-ratio": eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), "intrinsic-dimension": 1.0}
    big = rng.normal(size=(200_000, 10)) + 1
    truth["mean-cosine"] = float(((big / np.linalg.norm(big, axis=1, keepdims=True)).mean(0) ** 2).sum())
    held = 0
    for _ in range(400):
        if kind == "participation-ratio":
            one = participation_ratio(spectrum(rng, 300, eigenvalues))
        elif kind == "mean-cosine":
            one = mean_cosine(rng.normal(size=(300, 10)) + 1)
        else:
            one = intrinsic_dimension(rng.uniform(size=(300, 1)))
        held += one.low <= truth[kind] <= one.high
    assert held / 400 >= 0.91
