"""All estimators behind one call: each sees a signal, keeps to what is possible, and finds nothing in noise."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import probekit
from probekit import mutual_information
from probekit.errors import NonFiniteError, UsageError
from probekit.information import InformationEstimator

N = 120  # examples
PUBLISHED = [e for e in InformationEstimator if e.startswith("edge-")]
SATURATED = [InformationEstimator.BINNING, InformationEstimator.KERNEL_UPPER, InformationEstimator.KERNEL_LOWER]
FOR_NUMBERS = [
    e
    for e in InformationEstimator
    if e not in (InformationEstimator.PLUG_IN, InformationEstimator.LOGISTIC, InformationEstimator.MLP)
]
FOR_CLASSES = [e for e in InformationEstimator if e not in (InformationEstimator.PLUG_IN, InformationEstimator.RIDGE)]


@pytest.fixture(scope="module")
def sample():
    """Vectors (120, 4), two classes three deviations apart, a number that is their first column and noise."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % 2)
    x = rng.standard_normal((N, 4))
    x[:, 0] += 3 * y
    return x, y, 0.9 * x[:, 0] + 0.3 * rng.standard_normal(N)


def estimate(x, y, estimator, **options):
    quick = (
        {"draws": 3, "folds": 2, "weight_decays": (10.0,)} if estimator == InformationEstimator.MLP else {"draws": 19}
    )
    return mutual_information(x, y, estimator, **quick, **options)


def possible(found):
    top = min(found.entropy, np.log2(found.n)) + 1e-12
    if found.undetermined:
        return np.isnan(found.value)
    inside = np.isnan(found.ci_low) or 0 <= found.ci_low <= found.value <= found.ci_high <= top
    return 0 <= found.value <= top and inside


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(e, marks=[pytest.mark.slow] if e == InformationEstimator.MLP else []) for e in FOR_CLASSES],
)
def test_classes(estimator, sample):
    x, y, _ = sample
    found = estimate(x, y, estimator)
    assert (found.estimator, found.n, found.bins) == (estimator, N, 0)
    assert found.entropy == 1.0
    assert possible(found)
    other = estimate(x, np.random.default_rng(1).permutation(y), estimator)  # the control
    assert possible(other)
    if estimator in SATURATED:
        for one in (found, other):
            assert "shuffled labels give 1.00 of 1.00 bits" in one.undetermined
    elif estimator in PUBLISHED:
        assert found.value > other.value
        assert np.isnan(found.p)
    else:  # the truth is 0.760 bits, by quadrature
        assert 0.15 < found.value < 0.95  # a perceptron learns little from half of 120
        assert found.p == 1 / (1 + len(found.null))
        assert other.value < 0.1
        assert other.p > 0.05


@pytest.mark.parametrize("estimator", FOR_NUMBERS)
def test_numbers(estimator, sample):
    x, _, y = sample
    found = estimate(x, y, estimator)
    assert possible(found)
    other = estimate(x, np.random.default_rng(1).permutation(y), estimator)  # the control
    assert possible(other)
    if estimator in SATURATED:
        for one in (found, other):
            assert one.bins == 10
            assert "shuffled labels give" in one.undetermined
    elif estimator in PUBLISHED:
        assert found.value > other.value
    else:  # the truth is 2.387 bits, by quadrature
        assert 0.7 < found.value < 2.4
        assert found.p == 0.05
        assert other.value < 0.1
        assert other.p > 0.05


@pytest.mark.parametrize("estimator", [e for e in FOR_CLASSES if e != InformationEstimator.MLP])
def test_names_are_as_good_as_members(estimator, sample):
    x, y, _ = sample
    one, two = (mutual_information(x, y, name, draws=0) for name in (estimator, str(estimator)))
    assert one.raw == two.raw
    assert len(one.null) == 0
    assert np.isnan(one.p)


@pytest.mark.parametrize("labels", [1, 2])
def test_published_numbers_are_those_of_edge(labels, sample):
    x, y = sample[0], sample[labels]
    for estimator, settings in {
        "edge-4.3.1": {},
        "edge-4.3.1-first-pass": {"normalize_epsilon": False},
        "edge-4.2.0": {"version": "4.2.0"},
        "edge-4.4.1": {"version": "4.4.1"},
    }.items():
        assert mutual_information(x, y, estimator).raw == probekit.edge(x, y, **settings)
    given = {"gamma": (1, 0.001), "epsilon": (0.5, 0.5), "L_ensemble": 3}
    assert mutual_information(x, y, "edge-4.3.1", **given).raw == probekit.edge(x, y, **given)
    assert probekit.edge(x, y) != probekit.edge(x, y, **given)  # the control


def test_published_numbers_of_classes_are_those_of_their_codes(sample):
    x, y, _ = sample
    names = np.array(["no", "yes"])[y]
    assert mutual_information(x, names, "edge-4.3.1").raw == probekit.edge(x, y)
    assert mutual_information(x, 5 * y, "edge-4.3.1").raw == probekit.edge(x, y)
    assert mutual_information(x, 5 * y, "edge-4.3.1", discrete=False).raw == probekit.edge(x, 5 * y)


@pytest.mark.parametrize(
    ("estimator", "wide"),
    [
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in ("mlp", "logistic")),
        *((name, False) for name in ("edge", "knn", "ridge")),
        ("edge", True),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ("knn", "logistic", "ridge")),
    ],
)
def test_vectors_of_any_size(estimator, wide):
    """Denormals, and numbers whose squares are infinite: a power of two changes nothing, but for rounding."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((80, 100 if wide else 3)).astype(np.float32), np.arange(80) % 2
    x[:, 0] += 4 * y
    labels = y + 0.1 * rng.standard_normal(80) if estimator == "ridge" else y
    given = {"estimator": estimator, "draws": 2}
    given |= {"draws": 0, "folds": 2, "weight_decays": (10.0,)} if estimator == "mlp" else {}
    plain = mutual_information(x, labels, **given).raw
    for factor in (2.0**-80, 2.0**120):
        assert mutual_information(x * np.float32(factor), labels, **given).raw == plain
    assert mutual_information(x.astype(np.float64) * 2.0**900, labels, **given).raw == pytest.approx(plain, abs=1e-3)
    denormal = mutual_information(x * np.float32(1e-42), labels, **given)  # which have few digits
    assert 0 <= denormal.value <= 7
    if not wide:
        assert denormal.raw == pytest.approx(plain, abs=0.2)
    odd = np.hstack([x, np.full((80, 1), 3e38, np.float32), x[:, :1] * np.float32(1e-42)])
    assert 0 <= mutual_information(odd, labels, **given).value <= 7
    odd[3, 1] = np.inf
    with pytest.raises(NonFiniteError):
        mutual_information(odd, labels, **given)


def test_one_bucket_is_told_of():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((400, 50)), np.arange(400) % 2
    x[:, 0] += 2 * y  # 0.49 bits
    found = mutual_information(x, y, "edge-4.3.1")
    assert found.value == 0.001
    assert "one bucket" in found.warning
    assert mutual_information(x, y, draws=0).value > 0.3  # the control
    first = mutual_information(x, y, "edge-4.3.1-first-pass")
    assert first.buckets > 1
    assert first.warning == ""


SPELLINGS = [np.asarray, np.ndarray.tolist, lambda v: v.astype(np.uint8), lambda v: v.astype(str)]


@pytest.mark.parametrize("spelled", [*SPELLINGS, lambda v: v.astype("S")])
def test_symbols_go_to_the_plug_in_estimate(spelled):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 5, 400)
    y = np.where(rng.random(400) < 0.3, rng.integers(0, 3, 400), x % 3)
    plain = mutual_info_score(x, y) / np.log(2)
    for estimator in ("edge", "plug-in"):
        found = mutual_information(spelled(x), y, estimator, draws=19)
        assert (found.estimator, found.buckets) == ("plug-in", 5)
        assert found.raw == pytest.approx(plain, abs=1e-12)
        assert 0.5 * plain < found.value < plain
    assert mutual_information(spelled(x), rng.permutation(y), draws=19).p > 0.05  # the control


def test_booleans_are_symbols_and_floats_are_a_column(sample):
    _, y, number = sample
    above = mutual_information(y == 1, number, draws=19)
    assert above.estimator == "plug-in"
    column = mutual_information(number, y, draws=19)
    assert (column.estimator, column.view) == ("edge", "as it is")
    assert column.value == mutual_information(number[:, None], y, draws=19).value
    assert mutual_information(y.astype(float), y, draws=0).estimator == "edge"


def test_vectors_as_lists_are_vectors(sample):
    x, y, _ = sample
    assert mutual_information(x.tolist(), y.tolist(), draws=0).value == mutual_information(x, y, draws=0).value


REFUSED = {
    "an unknown name": ("edges", "vectors", 1, "unknown estimator 'edges'; did you mean edge?"),
    "no name": (None, "vectors", 1, "estimator is None; it must be a text."),
    "the plug-in of vectors": ("plug-in", "vectors", 1, "the plug-in estimate needs values (n,)"),
    "neighbours of symbols": ("knn", "symbols", 1, "x holds single values, which need plug-in, not knn."),
    "the scripts on symbols": ("edge-4.3.1", "symbols", 1, "x holds single values, which need plug-in"),
    "a probe of classes for numbers": ("logistic", "vectors", 2, "this bound needs classes"),
    "a perceptron for numbers": ("mlp", "vectors", 2, "this bound needs classes"),
    "ridge for classes": ("ridge", "vectors", 1, "ridge bounds need numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go(case, sample):
    estimator, kind, labels, message = REFUSED[case]
    x = sample[0] if kind == "vectors" else sample[1]
    with pytest.raises(UsageError, match=re.escape(message)):
        mutual_information(x, sample[labels], estimator)


@pytest.mark.parametrize("estimator", InformationEstimator)
def test_lengths_that_differ_are_told(estimator, sample):
    x, y, number = sample
    if estimator == InformationEstimator.PLUG_IN:
        x = y
    labels = number if estimator == InformationEstimator.RIDGE else y
    with pytest.raises(UsageError, match=r"120 (vectors|values) do not go with 119 labels"):
        mutual_information(x, labels[1:], estimator)
