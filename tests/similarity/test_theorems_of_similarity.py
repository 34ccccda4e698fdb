"""What must hold of any data: invariances, and what chance gives."""

from __future__ import annotations

from functools import partial

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from probekit import similarity
from probekit.errors import NonFiniteError, UsageError
from probekit.similarity.features import read
from probekit.similarity.inner import _effective, _own_influences
from probekit.similarity.kernel_measures import LINEAR
from probekit.similarity.layer_pairs import layer_pairs
from probekit.similarity.matrices import linear
from probekit.similarity.options import Similarity, SimilarityOptions
from probekit.similarity.products import products, workers

EVERY = {
    "cka": similarity.cka,
    "cka-biased": lambda x, y: similarity.cka(x, y, debiased=False),
    "cka-rbf": similarity.cka_rbf,
    "cca": similarity.cca,
    "cca-r2": lambda x, y: similarity.cca(x, y, squared=True),
    "eigenspace-overlap": similarity.eigenspace_overlap,
    "svcca": similarity.svcca,
    "pwcca": similarity.pwcca,
    "procrustes": similarity.procrustes,
    "rsa-pearson": similarity.rsa,
    "rsa-spearman": lambda x, y: similarity.rsa(x, y, compare="spearman"),
    "rsa-cosine": lambda x, y: similarity.rsa(x, y, compare="cosine"),
    "mutual-knn": lambda x, y: similarity.mutual_knn(x, y, 5),
    "knn-jaccard": lambda x, y: similarity.knn_jaccard(x, y, 5),
    "knn-rank": lambda x, y: similarity.knn_rank(x, y, 5),
    "linear-predictivity": similarity.linear_predictivity,
}


def pair(rng, n=60, d=8, e=5, shared=3):
    signal = rng.standard_normal((n, shared))
    return tuple(
        signal @ rng.standard_normal((shared, width)) + rng.standard_normal((n, width)) * rng.gamma(2, size=width)
        for width in (d, e)
    )


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


@pytest.mark.parametrize("measure", EVERY)
@given(seed=st.integers(0, 999))
@settings(max_examples=5, deadline=None)
def test_rotation_scale_and_shift_change_nothing(measure, seed):
    rng = np.random.default_rng(seed)
    x, y = pair(rng)
    turn = np.eye(8) if measure == "pwcca" else rotation(rng, 8)  # its weights are sums over columns
    turned = 7.5 * x @ turn + rng.standard_normal(8) * 100
    f = EVERY[measure]
    assert f(turned, y) == pytest.approx(f(x, y), abs=1e-9)  # a shift by 100 costs four digits of 16
    assert f(y, turned) == pytest.approx(f(y, x), abs=1e-9)


@pytest.mark.parametrize("measure", ["cca", "cca-r2", "eigenspace-overlap"])
def test_invertible_maps_do_not_change_canonical_correlations(measure):
    rng = np.random.default_rng(3)
    x, y = pair(rng)
    mapped = x @ (rng.standard_normal((8, 8)) + 3 * np.eye(8))
    assert EVERY[measure](mapped, y) == pytest.approx(EVERY[measure](x, y), abs=1e-9)
    assert abs(EVERY["cka"](mapped, y) - EVERY["cka"](x, y)) > 0.01  # of CKA it is not true


@pytest.mark.parametrize("measure", EVERY)
def test_equal_layers(measure):
    x, _ = pair(np.random.default_rng(0))
    # ridge regression shrinks even what it could copy
    assert EVERY[measure](x, x) == pytest.approx(1, abs=2e-3 if measure == "linear-predictivity" else 1e-9)


@pytest.mark.parametrize(("n", "d", "runs"), [(200, 40, 40), pytest.param(60, 200, 200, marks=pytest.mark.slow)])
def test_debiased_cka_of_independent_layers_is_0_in_the_mean(n, d, runs):
    rng = np.random.default_rng(0)
    found = [[similarity.cka(*rng.standard_normal((2, n, d)), debiased=b) for b in (True, False)] for _ in range(runs)]
    mean, biased = np.mean(found, axis=0)
    error = np.std(found, axis=0)[0] / np.sqrt(runs)
    assert error < 0.002
    assert abs(mean) <= 0.005
    assert biased > 0.1


def test_chance_of_common_neighbours():
    rng = np.random.default_rng(0)
    n, k = 100, 10
    x, y = rng.standard_normal((2, n, 6))
    options = SimilarityOptions(measures=("mutual-knn",), neighbours=k, resamples=0)
    found = layer_pairs([lambda: x], [lambda: y], options=options)["mutual-knn"]
    error = found.null_sd[0, 0] / np.sqrt(found.draws)
    assert error < 1e-3
    assert found.null_mean[0, 0] == pytest.approx(k / (n - 1), abs=4 * error)


def test_chance_of_ranks():
    """The number of common neighbours is hypergeometric, their ranks are any, and k is the most."""
    n, k = 100, 10
    x, y = np.random.default_rng(0).standard_normal((2, n, 6))
    options = SimilarityOptions(measures=("knn-rank",), neighbours=k, resamples=0)
    found = layer_pairs([lambda: x], [lambda: y], options=options)["knn-rank"]
    r = np.arange(1, k + 1)
    weight = np.mean(2 / ((1 + abs(r[:, None] - r)) * (r[:, None] + r)))
    expected = stats.hypergeom(n - 1, k, k).pmf(r) @ (r * weight / np.cumsum(1 / r))
    error = found.null_sd[0, 0] / np.sqrt(found.draws)
    assert error < 1e-3
    assert found.null_mean[0, 0] == pytest.approx(expected, abs=4 * error)


def test_chance_of_overlapping_spaces():
    """|UᵀV|² is rs / (n - 1) in the mean, over the larger of the ranks r and s; it is cca-r2 of equal ranks."""
    x, y = pair(np.random.default_rng(0))
    options = SimilarityOptions(measures=("eigenspace-overlap",), resamples=100)
    found = layer_pairs([lambda: x], [lambda: y], options=options)["eigenspace-overlap"]
    assert found.null_mean[0, 0] == pytest.approx(5 / 59, abs=4 * found.null_sd[0, 0] / np.sqrt(found.draws))
    assert found.ci_low[0, 0] < found.value[0, 0] < found.ci_high[0, 0]
    assert similarity.eigenspace_overlap(x, x[:, :5]) == pytest.approx(5 / 8)  # a part of the space
    assert similarity.eigenspace_overlap(x[:, :5], y) == pytest.approx(similarity.cca(x[:, :5], y, squared=True))


@given(seed=st.integers(0, 999), n=st.integers(5, 30), d=st.integers(2, 40))
@settings(max_examples=20, deadline=None)
def test_values_by_their_definitions(seed, n, d):
    rng = np.random.default_rng(seed)
    x, y = pair(rng, n, d, 3)
    assert similarity.cka(x, y) == pytest.approx(naive.debiased_cka(x, y), abs=1e-10)
    assert similarity.mutual_knn(x, y, 4) == pytest.approx(naive.common_neighbours(x, y, 4)[0], abs=1e-12)
    assert similarity.knn_jaccard(x, y, 4) == pytest.approx(naive.common_neighbours(x, y, 4)[1], abs=1e-12)
    assert similarity.knn_rank(x, y, 4) == pytest.approx(naive.ranks_of_neighbours(x, y, 4), abs=1e-12)
    assert similarity.eigenspace_overlap(x, y) == pytest.approx(naive.eigenspace_overlap(x, y), abs=1e-9)
    assert similarity.linear_predictivity(x, y) == pytest.approx(naive.predictivity(x, y), abs=1e-6)


def test_batches_are_a_ratio_of_means():
    rng = np.random.default_rng(0)
    x, y = pair(rng, 400)
    assert similarity.minibatch_cka([(x, y)]) == pytest.approx(similarity.cka(x, y), abs=1e-12)
    x = rng.standard_normal((2000, 6))
    y = x + rng.standard_normal((2000, 6))
    batches = [(x[i : i + 4], y[i : i + 4]) for i in range(0, 2000, 4)]
    ratio = similarity.minibatch_cka(batches)
    mean_of_ratios = np.mean([similarity.cka(*batch) for batch in batches])
    assert abs(ratio - similarity.cka(x, y)) < 0.04 < abs(mean_of_ratios - similarity.cka(x, y))
    with pytest.raises(UsageError, match="a batch has 3 and 3 examples"):
        similarity.minibatch_cka([(x[:3], y[:3])])


def test_an_outlying_column_in_float32_and_float16():
    rng = np.random.default_rng(0)
    x, y = pair(rng, 300)
    x[:, 2] += 30_000
    right = similarity.cka(x, y)
    assert similarity.cka(x.astype(np.float32), y.astype(np.float32)) == pytest.approx(right, abs=1e-3)  # 30,000 ± .002
    x[:, 2] -= 30_000
    assert similarity.cka(x.astype(np.float16), y.astype(np.float16)) == pytest.approx(similarity.cka(x, y), abs=1e-3)


@pytest.mark.parametrize("factor", [1e3, 1e5])
def test_a_very_long_vector_among_many(factor):
    rng = np.random.default_rng(0)
    x, y = pair(rng, 2100)
    x[5] *= factor
    assert similarity.cka(x, x) == pytest.approx(1, abs=1e-6)
    with_null, without = (
        layer_pairs([lambda: x], [lambda: y], options=SimilarityOptions(draws=p, resamples=0))["cka"] for p in (19, 0)
    )
    assert with_null.value[0, 0] == pytest.approx(without.value[0, 0], abs=1e-6)


def test_nothing_left_but_rounding_is_said():
    x = np.random.default_rng(0).standard_normal((30, 3))
    x[5] *= 1e12
    found = layer_pairs([lambda: x], options=SimilarityOptions(draws=0, resamples=0))["cka"]
    assert np.isnan(found.value[0, 0])
    assert "nothing but rounding" in found.notes[0]


def test_a_long_vector_does_not_hide_the_ranks_of_distances():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1100, 6))
    y = x + 0.1 * rng.standard_normal((1100, 6))
    before = similarity.rsa(x, y, compare="spearman")
    x[7] *= 1e4
    assert similarity.rsa(x, y, compare="spearman") == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize("n", [200, 2100])
def test_gaussian_kernels_of_many_copies(n):
    x = np.random.default_rng(0).standard_normal((n, 5))
    x[n // 5 :] = x[0]
    assert similarity.cka_rbf(x, x) == pytest.approx(1, abs=1e-5)
    assert similarity.cka_rbf(x, 3 * x + 1) == pytest.approx(1, abs=1e-3)


def test_constant_but_for_rounding():
    rng = np.random.default_rng(0)
    row = rng.standard_normal(20).astype(np.float32)
    x = np.tile(row, (50, 1)) * (1 + np.float32(1e-7) * rng.integers(-1, 2, (50, 20)).astype(np.float32))
    found = layer_pairs([lambda: x], options=SimilarityOptions(draws=0))["cka"]
    assert np.isnan(found.value[0, 0])
    assert "same vector for all examples" in found.notes[0]
    x = np.tile(1 + abs(row), (50, 1)) * (1 + 2**-8 * rng.integers(-1, 2, (50, 20)))  # as a bfloat16 cache rounds
    for precision, constant in ((None, False), (2**-7, True)):
        options = SimilarityOptions(draws=0)
        found = layer_pairs([lambda: x], options=options, precision=(precision,))["cka"]
        assert np.isnan(found.value[0, 0]) == constant


@pytest.mark.slow
def test_intervals_stay_within_the_range_and_equal_layers_have_one():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((2, 6, 2))
        found = layer_pairs(
            [partial(np.asarray, x)], [partial(np.asarray, z) for z in (y, 2 * x)],
            options=SimilarityOptions(measures=tuple(Similarity), draws=19, neighbours=2),
        )  # fmt: skip
        for name, one in found.items():
            low, high = {"procrustes-angle": (0, np.pi / 2)}.get(name, (-1 if "cka" in name or "rsa" in name else 0, 1))
            low = -np.inf if "predictivity" in name else 0 if name in ("cka-biased", "rsa-cosine") else low
            ends = np.array([one.ci_low, one.ci_high])
            assert (np.isnan(ends) | ((low <= ends) & (ends <= high))).all(), name
            if name in ("cka", "cka-biased", "rsa-pearson", "cka-rbf", "mutual-knn", "procrustes"):
                assert ends[:, 0, 1] == pytest.approx([1, 1], abs=1e-6), name


@pytest.mark.parametrize(("permuted", "nearly_all"), [(240, True), (100, False)])
def test_calibrated_is_of_the_value_shown(monkeypatch, permuted, nearly_all):
    """Unless the permuted examples are few: chance depends on their number for some measures."""
    monkeypatch.setattr("probekit.similarity.comparison.LARGEST", permuted)
    x, y = pair(np.random.default_rng(0), 250)
    one = layer_pairs([lambda: x], [lambda: y], options=SimilarityOptions(resamples=0))["cka"]
    calibrated = (one.value - one.null_mean) / (1 - one.null_mean)
    assert (abs(one.calibrated - calibrated) < 1e-12) == nearly_all
    assert f"{'p is' if nearly_all else 'p and calibrated are'} from {permuted} of the 250 examples" in one.notes[-1]
    assert one.null_low < one.null_mean < one.null_high


@pytest.mark.slow
def test_examples_of_rare_clusters_are_permuted_too():
    """76 of 430 examples are in clusters of other sizes than the rest; 50 layers that know nothing of each other."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(380), np.repeat([1, 2, 5], [354, 18, 8]))
    options = SimilarityOptions(draws=299, resamples=0, threads=1)
    layers = [(z[groups] for z in rng.standard_normal((2, 380, 6))) for _ in range(50)]
    found = [
        layer_pairs(*([partial(np.asarray, z)] for z in (x, y)), groups=groups, options=options)["cka"]
        for x, y in layers
    ]
    assert not found[0].notes
    x = rng.standard_normal((len(groups), 6))
    x[354:] *= 3  # most of the similarity is that of rare groups, which stay during the first cycle
    equal = layer_pairs([lambda: x], [lambda: x], groups=groups, options=options)["cka"]
    assert abs(equal.null_mean[0, 0]) < 0.03  # measured .002 to .006; .044 to .051 with that cycle
    assert equal.p[0, 0] < 0.1
    z = [float((one.value - one.null_mean)[0, 0] / one.null_sd[0, 0]) for one in found]
    assert abs(np.mean(z)) < 0.35  # 2.5 standard errors
    assert np.std(z) == pytest.approx(1, abs=0.35)


def test_no_interval_of_distances_that_few_examples_decide():
    """Normals have an interval; examples with the tails of t with 3 degrees of freedom do not, though cka has."""
    rng = np.random.default_rng(0)
    sides = rng.standard_normal((2, 200, 20))
    tails = 1 / np.sqrt(rng.chisquare(3, (2, 200, 1)))
    options = SimilarityOptions(measures=("rsa-pearson", "cka"), draws=0)
    for scale, heavy in ((1, False), (tails, True)):
        x, y = sides * scale
        found = layer_pairs(*([partial(np.asarray, z)] for z in (x, y)), options=options)
        low, notes = found["rsa-pearson"].ci_low[0, 0], found["rsa-pearson"].notes
        assert np.isnan(low) == heavy == any("no interval where" in note for note in notes)
        assert np.isfinite(found["cka"].ci_low[0, 0])
    w = rng.random(30)
    assert _effective((2 * (w / w.sum() - 1 / 30))[:, None], None) == pytest.approx(w.sum() ** 2 / (w**2).sum() / 30)
    squared = ((x[:, None] - x) ** 2).sum(2)
    away = (squared - squared.sum() / (200 * 199)) ** 2
    np.fill_diagonal(away, 0)
    share = away.sum(1) / away.sum()
    got = _shares_of(x)
    assert got == pytest.approx(1 / (200 * (share**2).sum()))


def _shares_of(x):
    layers = read([lambda: x], np.arange(len(x)))
    m = linear(layers)
    with workers(1) as run:
        rows = products(m, m, None, run).aa
    total = LINEAR["rsa-pearson"].total(len(x), rows.sum(0), (m.vector**2).sum(1), m.vector.sum(1) ** 2)
    return _effective(_own_influences("rsa-pearson", layers, m, rows, total), None)[0]


def test_a_row_that_decides_a_direction_is_named():
    x, y = pair(np.random.default_rng(0), 200)
    x[3] *= 1e4
    options = SimilarityOptions(measures=("linear-predictivity",), draws=0, resamples=0)
    assert (
        "decides a direction by itself"
        in layer_pairs([lambda: x], [lambda: y], options=options)["linear-predictivity"].notes[0]
    )


def test_memory_maps_are_read_by_slices(tmp_path):
    rng = np.random.default_rng(0)
    x, y = pair(rng, 500)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")

    class Slices:
        shape = mapped.shape

        def __getitem__(self, rows):
            assert isinstance(rows, slice)
            return mapped[rows]

    options = SimilarityOptions(measures=("cka", "svcca"), max_examples=300, draws=19)
    one, other = (
        layer_pairs([source], [lambda: y], options=options) for source in (Slices, lambda: np.asarray(mapped))
    )
    for name in options.measures:
        assert one[name].n == 300
        np.testing.assert_array_equal(one[name].value, other[name].value)


def test_each_layer_is_read_once():
    x = np.random.default_rng(0).standard_normal((40, 3))
    read = []

    def source(name):
        return lambda: read.append(name) or x

    options = SimilarityOptions(measures=tuple(Similarity), draws=19, resamples=100)
    layer_pairs([source("a0"), source("a1")], [source("b0"), source("b1")], options=options)
    layer_pairs([source("c0"), source("c1")], options=options)
    assert read == ["a0", "b0", "a1", "b1", "c0", "c1"]


def test_feature_space_and_sample_space_agree():
    rng = np.random.default_rng(0)
    for n, d in ((3000, 20), (2500, 4)):  # float32 kernels against sums over features
        x, y = pair(rng, n, d)
        names = ("cka", "cka-biased", "rsa-pearson", "rsa-cosine")
        with_null, without = (
            layer_pairs(*([partial(np.asarray, z)] for z in (x, y)), options=SimilarityOptions(measures=names, draws=p))
            for p in (19, 0)
        )
        for name in names:
            np.testing.assert_allclose(with_null[name].value, without[name].value, atol=1e-6)
            np.testing.assert_allclose(with_null[name].ci_low, without[name].ci_low, atol=1e-5)


def test_a_constant_layer_has_no_similarity():
    rng = np.random.default_rng(0)
    x, y = pair(rng)
    options = SimilarityOptions(measures=tuple(Similarity), draws=19, resamples=100)
    found = layer_pairs([lambda: x, lambda: np.full((60, 3), 0.1, np.float32)], [lambda: y], options=options)
    for name, one in found.items():
        assert np.isfinite(one.value[0, 0]), name
        assert np.isfinite(one.p_adjusted[0, 0]), name
        for array in (one.value, one.ci_low, one.p, one.p_adjusted, one.calibrated):
            assert np.isnan(array[1, 0]), name
        assert any("same vector for all examples" in note for note in one.notes)


def test_faults_say_what_came():
    x = np.random.default_rng(0).standard_normal((30, 3))
    for a, b, words in [
        (x[:3], x[:3], "there are 3 examples; similarity needs at least 4"),
        (x, x[:29], "29 to 30 examples; compare vectors of the same examples"),
        (x[:, 0], x, "shape \\(30,\\)"),
    ]:
        with pytest.raises(UsageError, match=words):
            similarity.cka(a, b)
    broken = x.copy()
    broken[4, 1] = np.nan
    with pytest.raises(NonFiniteError, match="vectors of layer 0 contain NaN"):
        similarity.cka(broken, x)
    with pytest.raises(UsageError, match="unknown measure 'ckaa'; did you mean cka?"):
        SimilarityOptions(measures=("ckaa",))
    with pytest.raises(UsageError, match="draws is 5; it must be 19 or more, or 0 for none"):
        SimilarityOptions(draws=5)
    with pytest.raises(UsageError, match="groups of 29"):
        layer_pairs([lambda: x], groups=np.zeros(29))
    with pytest.raises(UsageError, match="there are 30 examples, so none has 30 neighbours"):
        layer_pairs([lambda: x], options=SimilarityOptions(measures=("mutual-knn",), neighbours=30))


def test_as_many_ranks_as_examples():
    x, y = np.random.default_rng(0).standard_normal((2, 20, 30))
    options = SimilarityOptions(measures=("cca", "cca-r2", "pwcca"), draws=19, resamples=100)
    for one in layer_pairs([lambda: x], [lambda: y], options=options).values():
        assert one.value[0, 0] == pytest.approx(1)
        assert np.isnan([one.p[0, 0], one.p_adjusted[0, 0], one.calibrated[0, 0], one.ci_low[0, 0]]).all()
        assert "1 by construction" in one.notes[0]


def test_ranks_that_overlap():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 20)), rng.standard_normal((30, 12))
    one = layer_pairs([lambda: x], [lambda: y], options=SimilarityOptions(measures=("cca",), draws=19))["cca"]
    assert "some canonical correlations are 1 by construction" in one.notes[0]
    assert np.isfinite(one.p[0, 0])


def test_same_bytes_with_any_number_of_threads():
    rng = np.random.default_rng(0)
    x = [pair(rng, 90)[0] for _ in range(3)]
    groups = np.repeat(np.arange(45), 2)
    for given_groups in (None, groups):
        found = [
            layer_pairs(
                [lambda z=z: z for z in x],
                groups=given_groups,
                options=SimilarityOptions(measures=tuple(Similarity), draws=30, resamples=100, threads=threads),
            )
            for threads in (1, 3)
        ]
        for name in Similarity:
            for one in ("value", "ci_low", "ci_high", "null_mean", "null_sd", "p", "p_adjusted"):
                assert getattr(found[0][name], one).tobytes() == getattr(found[1][name], one).tobytes(), (name, one)
