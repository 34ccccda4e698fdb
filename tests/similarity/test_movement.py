"""How far vectors move: distances against closed forms, alignment that does not fit its own examples."""

import numpy as np
import pytest

from probekit.errors import UsageError
from probekit.similarity.movement import movement
from probekit.statistics.clusters import standard_error
from probekit.statistics.label_means import differences_of_means


def rotation(d, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def test_distances_are_those_of_each_row():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50, 7))
    found = movement(x, y, align=False)
    relative = [np.sqrt(((b - a) ** 2).sum() / (a**2).sum()) for a, b in zip(x, y, strict=True)]
    cosine = [1 - a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(x, y, strict=True)]
    assert found.distance[0] == pytest.approx(relative, rel=1e-12)
    assert found.distance[1] == pytest.approx(cosine, rel=1e-12)
    assert np.isnan(found.distance[2]).all()


def test_small_angles_keep_their_digits():
    x = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    y = x.astype(np.float64) * (1 + 1e-9)
    found = movement(x, y, align=False).distance
    assert found[0] == pytest.approx(1e-9, rel=1e-6)
    assert (found[1] < 1e-15).all()  # 1 - cos would give 1e-16 at best


@pytest.mark.parametrize("moved", ["same", "shift", "rotation", "both"])
def test_alignment_undoes_shifts_and_rotations_only(moved):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 10)) + 3
    y = x @ rotation(10) if moved in ("rotation", "both") else x
    y = y + 2 if moved in ("shift", "both") else y
    found = movement(x, y).distance.mean(1)
    assert found[2] < 0.005  # measured: at most .0021, the penalty towards the identity
    assert (found[0] > 0.5) == (moved != "same")


def test_noise_is_not_aligned_away():
    """The rotation of 300 examples in 100 dimensions would fit a third of independent noise in its own examples."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 100))
    y = x + 0.5 * rng.normal(size=x.shape)
    plain, _, aligned = movement(x, y).distance.mean(1)
    assert plain == pytest.approx(0.5, abs=0.01)
    assert aligned == pytest.approx(plain, abs=0.01)
    other = rng.normal(size=x.shape)
    assert movement(x, other).distance[2].mean() > 1.35  # unrelated vectors stay √2 apart


def test_unrelated_vectors_are_as_far_as_other_examples():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 2000, 20)) + 1
    found = movement(x, y, align=False)
    # 20 partners for each of 2,000 rows: the standard error of the difference is below .005
    assert found.others[:2].mean(1) == pytest.approx(found.distance[:2].mean(1), abs=0.02)
    near = movement(x, x + 0.01, align=False)
    assert (near.distance[0] < near.others[0]).all()


def test_no_example_is_compared_with_one_of_its_group():
    x = np.repeat(np.random.default_rng(4).normal(size=(20, 6)), 2, axis=0)
    found = movement(x, x, groups=np.arange(40) // 2, align=False)
    assert (found.others[0] > 0.1).all()  # its copy would have distance 0
    assert not np.array_equal(found.others, movement(x, x, align=False).others)


def test_same_seed_same_bytes_and_blocks_do_not_matter(monkeypatch):
    x, y = np.random.default_rng(5).normal(size=(2, 60, 8))
    whole = movement(x, y, seed=3)
    assert whole.distance.tobytes() == movement(x, y, seed=3).distance.tobytes()
    monkeypatch.setattr("probekit.similarity.movement.BLOCK", 8 * 7)
    parts = movement(x, y, seed=3)
    assert parts.distance == pytest.approx(whole.distance, rel=1e-10)
    assert parts.others == pytest.approx(whole.others, rel=1e-10)


def test_zero_vectors_few_examples_and_other_shapes():
    x = np.random.default_rng(6).normal(size=(19, 4))
    y = x.copy()
    x[3] = 0
    found = movement(x, y)
    assert np.isnan(found.distance[:, 3]).all()
    assert np.isnan(found.distance[2]).all()  # 19 examples: no rotation is fitted
    assert np.isfinite(found.distance[:2, :3]).all()
    with pytest.raises(UsageError, match=r"vectors of shape \(19, 3\) cannot be subtracted from vectors of \(19, 4\)"):
        movement(x, y[:, :3])


def test_standard_errors_by_group():
    rng = np.random.default_rng(7)
    values = rng.normal(size=(3, 100))
    error, units = standard_error(values)
    assert units == 100
    assert error == pytest.approx(values.std(1, ddof=1) / 10)
    twice = standard_error(np.repeat(values, 2, axis=1), np.arange(200) // 2)
    assert twice[0] == pytest.approx(error)  # copies add nothing
    assert np.isnan(standard_error(values, np.arange(100) % 4)[0]).all()


def test_difference_of_means_is_welchs_for_many_examples():
    from scipy import stats

    rng = np.random.default_rng(8)
    values, mine = rng.normal(size=(2, 400)), rng.random(400) < 0.3
    values[:, mine] *= 3
    found = differences_of_means(values, mine.astype(int), [1], draws=2000)
    theirs = stats.ttest_ind(values[:, mine], values[:, ~mine], axis=1, equal_var=False)
    ends = theirs.confidence_interval()
    assert found.value[0] == pytest.approx(values[:, mine].mean(1) - values[:, ~mine].mean(1))
    assert found.p[0] == pytest.approx(theirs.pvalue, abs=0.05)  # 2,000 permutations
    assert (found.p[0] > theirs.pvalue - 1e-9).all()
    assert found.low[0] == pytest.approx(ends.low, abs=0.07)
    assert found.high[0] == pytest.approx(ends.high, abs=0.07)
    assert np.isnan(differences_of_means(values, np.arange(400) < 1, [1]).value).all()


@pytest.mark.parametrize("more", [0, np.array([9, 30])])
def test_difference_of_means_of_a_rare_label_is_an_exact_permutation_test_or_welchs(more):
    from itertools import combinations

    from scipy import stats

    values = np.exp(np.random.default_rng(9).normal(size=12))
    values[:2] += more
    found = differences_of_means(values[None], np.arange(12) < 2, [1], draws=20_000)

    def statistic(mine):
        one, other = values[mine], np.delete(values, mine)
        error = sum(((x - x.mean()) ** 2).sum() / len(x) ** 2 for x in (one, other))
        return (one.mean() - other.mean()) / np.sqrt(error)

    every = np.array([statistic(list(mine)) for mine in combinations(range(12), 2)])
    p = 2 * min((every >= every[0] - 1e-9).mean(), (every <= every[0] + 1e-9).mean())
    welchs = stats.ttest_ind(values[:2], values[2:], equal_var=False).pvalue
    assert (p < welchs) == np.any(more)
    assert found.p[0, 0] == pytest.approx(max(p, welchs), abs=0.02)  # 4 standard errors of 20,000 draws


@pytest.mark.parametrize("copies", [1, 3])
def test_difference_of_means_and_its_interval_agree_and_copies_add_nothing(copies):
    rng = np.random.default_rng(10)
    for shift in (0.0, 0.5, 1.0, 2.0):
        y = np.arange(30) % 6 == 0
        values = np.repeat(rng.normal(size=(2, 30)) + shift * y, copies, axis=1)
        groups = np.repeat(np.arange(30), copies) if copies > 1 else None
        found = differences_of_means(values, np.repeat(y, copies), [1], groups, draws=400, seed=int(10 * shift))
        outside = (found.low > 0) | (found.high < 0)
        assert (outside == (found.p <= 0.05)).all()
        assert ((found.low < found.value) & (found.value < found.high)).all()
        if groups is not None:
            alone = differences_of_means(values[:, ::copies], y, [1], draws=400, seed=int(10 * shift))
            assert found.p == pytest.approx(alone.p, abs=0.1)  # other permutations
            assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.3)
