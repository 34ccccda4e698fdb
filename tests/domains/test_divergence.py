"""Divergences of term distributions: their definitions, their properties, and what is no distribution."""

import os
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

import probekit
from probekit.domains import _kernels as kernels
from probekit.domains.divergence import COLUMNS, TILE, contributions, divergences, js_divergence, of_js
from probekit.domains.options import Measure
from probekit.errors import UsageError


def random_distributions(domains, terms, seed=0, sparse=0.5):
    """Rows of very unlike probabilities, a part of them 0."""
    rng = np.random.default_rng(seed)
    p = rng.gamma(0.3, size=(domains, terms)) * (rng.random((domains, terms)) > sparse)
    p[:, 0] += 1e-3  # at least one has mass
    return p / p.sum(1, keepdims=True)


@st.composite
def triples(draw):
    """Three distributions over the same terms; zeros and probabilities of all sizes."""
    weights = draw(
        arrays(np.float64, (3, draw(st.integers(1, 12))), elements=st.sampled_from([0, 1e-9, 1e-3, 0.5, 1, 7]))
    )
    weights[weights.sum(1) == 0] = 1
    return weights / weights.sum(1, keepdims=True)


def test_js_divergence_is_scipys():
    p = random_distributions(6, 3000)
    matrix = divergences(p)["js-divergence"]
    for i in range(6):
        for j in range(6):
            truth = jensenshannon(p[i], p[j], 2) ** 2 if i != j else 0
            assert js_divergence(p[i], p[j]) == pytest.approx(truth, abs=1e-12)
            assert matrix[i, j] == pytest.approx(truth, abs=1e-12)
    assert probekit.js_divergence is js_divergence


@pytest.mark.parametrize("terms", [1, 7, kernels.TERMS, kernels.TERMS + 1, COLUMNS + 3])
def test_every_measure_is_its_definition(terms):
    p, q = random_distributions(3, terms), random_distributions(2, terms, seed=1)
    within, between = divergences(p, Measure), divergences(p, Measure, others=q)
    assert list(within) == list(Measure)
    for measure in Measure:
        for i in range(3):
            for j in range(2):
                truth = naive.divergence(measure, p[i], q[j])
                assert between[measure][i, j] == pytest.approx(truth, abs=2e-12), (
                    measure
                )  # Rényi's is 100 times a logarithm
            for j in range(3):
                truth = naive.divergence(measure, p[i], p[j])
                exact = 1e-7 if measure == "js-distance" and i == j else 2e-12  # the root of the twin's rounding
                assert within[measure][i, j] == pytest.approx(truth, abs=exact), measure


def test_kl_is_scipys_of_smoothed_distributions_and_directed():
    p = random_distributions(2, 500)
    mixed = 0.9 * p + 0.1 / 500
    found = divergences(p, "kl", smoothing=0.1)["kl"]
    assert found[0, 1] == pytest.approx(entropy(mixed[0], mixed[1]), abs=1e-12)
    assert found[1, 0] == pytest.approx(entropy(mixed[1], mixed[0]), abs=1e-12)
    assert found[0, 1] != pytest.approx(found[1, 0], rel=1e-3)


def test_renyi_goes_to_kl_as_alpha_goes_to_1():
    p = random_distributions(2, 200, sparse=0)
    near = divergences(p, "renyi", alpha=1 - 1e-6)["renyi"]
    assert near[0, 1] == pytest.approx(entropy(p[0], p[1]), rel=1e-4)


@settings(deadline=None, max_examples=60)
@given(triples())
def test_the_root_is_a_metric(three):
    distance = divergences(three, "js-distance")["js-distance"]
    np.testing.assert_array_equal(distance, distance.T)
    assert (np.diag(distance) == 0).all()
    assert ((distance >= 0) & (distance <= 1)).all()
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        assert distance[i, j] <= distance[i, k] + distance[k, j] + 1e-9
    for i, j in ((0, 1), (1, 2)):
        assert distance[i, j] ** 2 == pytest.approx(js_divergence(three[i], three[j]), abs=1e-12)
        assert js_divergence(three[i], three[j]) == js_divergence(three[j], three[i])


def test_equal_is_zero_and_disjoint_is_one_bit():
    p = random_distributions(1, 1000)
    twice = divergences(np.vstack([p, p]), ("js-divergence", "js-distance"))
    assert (twice["js-divergence"] == 0).all()
    assert (twice["js-distance"] == 0).all()
    assert js_divergence(p[0], p[0]) == 0
    apart = np.zeros((2, 2000))
    apart[0, :1000] = apart[1, 1000:] = p
    found = divergences(apart, Measure)
    assert js_divergence(*apart) == pytest.approx(1, abs=1e-15)
    expected = {
        "js-divergence": 1,
        "js-divergence-nats": np.log(2),
        "js-distance": 1,
        "js-similarity": 1 - np.log(2),
        "renyi": np.inf,
        "bhattacharyya": np.inf,
        "cosine": 1,
        "variational": 2,
        "vocabulary-overlap": 0,
    }
    for measure, value in expected.items():
        assert found[measure][0, 1] == pytest.approx(value, abs=1e-12), measure


def test_small_divergences_keep_their_digits():
    """Of p(1 ± d) the divergence is Σ p d² / 2 ln 2 to first order; a difference of sums has nothing left of it."""
    p, d = np.full(1000, 1e-3), 1e-8 * np.where(np.arange(1000) % 2, 1, -1)
    truth = 1e-16 / (2 * np.log(2))
    assert js_divergence(p * (1 + d), p * (1 - d)) == pytest.approx(truth, rel=1e-6)
    found = divergences(np.stack([p * (1 + d), p * (1 - d)]))["js-divergence"][0, 1]
    assert found == pytest.approx(truth, rel=1e-6)


def test_terms_may_stand_in_any_order():
    p = random_distributions(4, 700)
    order = np.random.default_rng(5).permutation(700)
    for measure, matrix in divergences(p, Measure).items():
        np.testing.assert_allclose(divergences(p[:, order], measure)[measure], matrix, atol=2e-12)


def test_any_number_of_threads_gives_the_same_bits():
    p = random_distributions(2 * TILE + 5, 300)
    one, many = divergences(p, Measure, threads=1), divergences(p, Measure, threads=3)
    for measure in Measure:
        np.testing.assert_array_equal(one[measure], many[measure])
    i, j = TILE + 7, 3  # in different tiles
    assert one["js-divergence"][i, j] == pytest.approx(naive.js_bits(p[i], p[j]), abs=1e-12)
    assert one["variational"][i, j] == pytest.approx(np.abs(p[i] - p[j]).sum(), abs=1e-12)
    other = divergences(p[:40], others=p[40:])["js-divergence"]
    np.testing.assert_allclose(other, one["js-divergence"][:40, 40:], atol=1e-15)


@pytest.mark.parametrize("run", [kernels.log2, getattr(kernels.log2, "py_func", kernels.log2)])
def test_logarithm(run):
    x = np.concatenate([np.exp(np.random.default_rng(0).uniform(-600, 10, 300)), [1, 2, 0.5, 1 - 1e-16, 1e-300]])
    out = np.empty_like(x)
    run(x, np.empty((2, len(x))), out)
    np.testing.assert_allclose(out, np.log2(x), rtol=2e-16, atol=1.2e-14)
    run(np.zeros(3), np.empty((2, 3)), out[:3])
    assert np.isfinite(out[:3]).all()


@pytest.mark.parametrize("name", ["pair_sums", "distances", "negative_entropies"])
def test_kernels_without_compiling(name):
    run = getattr(kernels, name)
    p = random_distributions(3, kernels.TERMS + 9)
    shape = {"pair_sums": (1, 3, 3), "distances": (2, 3, 3), "negative_entropies": (3,)}[name]
    a, b = np.empty(shape), np.empty(shape)
    arguments = (p,) if name == "negative_entropies" else (p, p, True)
    run(*arguments, a)
    getattr(run, "py_func", run)(*arguments, b)
    np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
    assert a.any()


def test_contributions_sum_to_the_divergence_and_are_never_negative():
    p, q = random_distributions(2, 400)
    found = contributions(p, q)
    m = (p + q) / 2
    with np.errstate(all="ignore"):
        truth = np.nansum([x * np.log2(x / m) / 2 for x in (p, q)], axis=0)
    np.testing.assert_allclose(found, truth, atol=1e-15)
    assert found.sum() == pytest.approx(js_divergence(p, q), abs=1e-15)
    assert (found >= 0).all()


def test_of_js_is_what_divergences_says():
    p = random_distributions(2, 50)
    found = divergences(p, Measure)
    for measure in ("js-divergence", "js-divergence-nats", "js-distance", "js-similarity"):
        assert of_js(measure, found["js-divergence"])[0, 1] == found[measure][0, 1]
    assert of_js("cosine", found["js-divergence"]) is None


HALF = [0.5, 0.5]


@pytest.mark.parametrize(
    ("p", "q", "says"),
    [
        ([0.5, 0.4], HALF, "p: the probabilities sum to 0.9, not to 1"),
        (HALF, [1.5, -0.5], "q: a probability is negative"),
        ([np.nan, 1], HALF, "p: a probability is NaN or infinite"),
        ([np.inf, 1], HALF, "p: a probability is NaN or infinite"),
        ([0, 0], HALF, "p: all probabilities are 0"),
        ([0.2, 0.3, 0.5], HALF, "not .3,. and .2,. numbers"),
        ([], [], "must hold probabilities of terms"),
        ([HALF, HALF], [HALF, HALF], "must hold probabilities of terms"),
    ],
)
def test_what_is_no_distribution(p, q, says):
    with pytest.raises(UsageError, match=says):
        js_divergence(p, q)


def test_what_divergences_refuses():
    p = random_distributions(3, 5)
    with pytest.raises(UsageError, match="unknown measure 'hellinger'"):
        divergences(p, ["cosine", "hellinger"])
    with pytest.raises(UsageError, match="lie between 0 and 1"):
        divergences(p, alpha=1)
    with pytest.raises(UsageError, match="have 5 terms, but the others 4"):
        divergences(p, others=random_distributions(2, 4))
    p[1] *= 2
    with pytest.raises(UsageError, match=r"distributions, row 2: the probabilities sum to 2"):
        divergences(p)
    p[1] = 0
    with pytest.raises(UsageError, match=r"row 2: all probabilities are 0"):
        divergences(p)


@pytest.mark.slow  # half a minute, most of it compiling
def test_the_benchmark_runs(tmp_path):
    benchmark = Path(__file__).parents[2] / "benchmarks" / "divergence.py"
    done = subprocess.run(
        [sys.executable, benchmark, "--quick"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "log2 alone" in done.stdout


def test_zeros_of_either_sign():
    p, q = np.array([[0.5, 0.5, -0.0], [0.2, 0.3, 0.5]]), np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    for name, found in divergences(p, list(Measure)).items():
        np.testing.assert_array_equal(found, divergences(q, name)[name])
