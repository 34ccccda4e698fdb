"""Maps between the vectors of two models, and the angles between directions: what they must be in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from probekit.probes.directions import (
    After,
    Side,
    angle,
    angles,
    by_chance,
    fit,
    halves,
    mapped,
    maps,
    rescaled,
    unchanged,
)
from probekit.probes.protocol.options import Estimator
from probekit.statistics.folds import folds

N, D = 120, 6


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Train and dev of one model, float64, and the labels of both."""
    rng, y = np.random.default_rng(0), np.arange(N) % 2
    x, x_dev = (rng.normal(size=(N, D)) + np.outer(2 * y - 1, [1.0, 0.5, *[0.0] * (D - 2)]) for _ in range(2))
    return x, x_dev, y


def side(x: np.ndarray, x_dev: np.ndarray, y: np.ndarray, classes: int = 2) -> Side:
    half = halves(y, None, 0, classes=classes > 0)
    fold = folds(y, 3, seed=0, stratify=classes > 0)
    estimator = Estimator.LOGISTIC if classes else Estimator.RIDGE
    return Side(x, x_dev, fit(x.astype(np.float32), y, classes, fold, half, estimator, (0.01, 0.1)))


def rotation(seed: int = 1) -> np.ndarray:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0])


def test_each_map_undoes_its_own_change_and_not_the_other(vectors: tuple[np.ndarray, ...]) -> None:
    x, x_dev, _ = vectors
    stretch = np.exp(np.random.default_rng(2).normal(size=D))
    changed = {After.RESCALED: lambda z: z * stretch + 3 * stretch, After.MAPPED: lambda z: 2.5 * (z @ rotation()) + 1}
    for own, change in changed.items():
        found = maps(change(x), x).of
        for after, one in found.items():
            near = np.abs(one(change(x_dev)) - x_dev).max()
            assert near < 1e-12 if after is own else near > 0.1, (own, after)
        assert np.array_equal(found[After.AS_IS](x_dev), x_dev)


def test_predictions_after_a_map_are_those_of_the_model_that_was_changed(vectors: tuple[np.ndarray, ...]) -> None:
    x, x_dev, y = vectors
    one = side(x, x_dev, y)
    turned = maps(x @ rotation(), x).of[After.MAPPED](x_dev @ rotation())
    assert np.array_equal(one.predicts(turned, 2), one.predicts(x_dev, 2))
    unrelated = maps(x @ rotation(), x, orders=[np.random.default_rng(3).permutation(N)]).unrelated
    right = [float((one.predicts(of(x_dev @ rotation()), 2) == y).mean()) for of in unrelated]
    assert (one.predicts(x_dev, 2) == y).mean() > 0.8 > max(right), "rows that do not belong together align nothing"
    numbers = side(x, x_dev, x[:, 0] + y, classes=0)
    assert np.allclose(numbers.predicts(turned, 0), numbers.predicts(x_dev, 0), atol=1e-6)


def test_a_direction_after_a_map_is_what_its_scores_depend_on(vectors: tuple[np.ndarray, ...]) -> None:
    x, x_dev, _ = vectors
    weight = np.random.default_rng(4).normal(size=(2, D))
    for of in maps(x @ rotation() * 3, x).of.values():
        scores = of(x_dev) @ weight.T
        straight = x_dev @ of.direction(weight).T
        assert np.allclose(scores - scores[0], straight - straight[0])


def test_few_examples_for_a_map_reduce_it_and_fewer_refuse_it() -> None:
    rng = np.random.default_rng(5)
    for n, dimensions in ((25, 10), (99, 39), (100, 40), (400, 40)):
        x = rng.normal(size=(n, 40))
        found = mapped(x, x)
        assert found is not None
        assert found.dimensions == dimensions
        assert np.linalg.matrix_rank(found.matrix) == dimensions
    assert np.allclose(mapped(x, x)(x), x), "with all dimensions, nothing is dropped"  # type: ignore[misc]
    assert mapped(x[:19], x[:19]) is None
    assert mapped(x, x, units=19) is None, "copies are one example"
    assert set(maps(x[:19], x[:19]).of) == {After.AS_IS, After.RESCALED}


def test_constant_dimensions_and_sides_stay_finite() -> None:
    x = np.random.default_rng(6).normal(size=(60, 4))
    flat = x.copy()
    flat[:, 1] = 7
    assert np.allclose(rescaled(flat, x)(flat)[:, 1], x[:, 1].mean())
    for one in maps(np.full_like(x, 3), x).of.values():
        assert np.isfinite(one(np.full_like(x, 3))).all()


def test_angles_are_those_of_the_plane() -> None:
    east = np.array([[1.0, 0.0]])
    assert angle(east, np.array([[1.0, 1.0]])) == pytest.approx(45)
    assert angle(east, 5 * east) == 0
    assert angle(east, -east) == pytest.approx(180)
    assert angle(east, np.array([[1.0, 1e-9]])) == pytest.approx(np.degrees(1e-9)), "1 - cos would be 0"
    assert np.isnan(angle(east, 0 * east))
    classes = np.random.default_rng(7).normal(size=(3, 5))
    assert angle(classes, classes + 4) == pytest.approx(0, abs=1e-6), "what all classes share says nothing"
    assert by_chance((1, 400), 0) == pytest.approx(90 - np.degrees(1.645 / 20), abs=0.5)


def test_angles_do_not_depend_on_the_scale_of_dimensions(vectors: tuple[np.ndarray, ...]) -> None:
    """A dimension that hardly varies has a large weight, and would be all of a direction in units of the vectors."""
    x, x_dev, y = vectors
    stretch = 10.0 ** np.array([0, 0, 3, -3, 1, 0])
    rng = np.random.default_rng(8)
    z, z_dev = (v + 0.3 * rng.normal(size=v.shape) for v in (x, x_dev))
    plain = [side(x, x_dev, y), side(z, z_dev, y)]
    large = [side(x * stretch, x_dev * stretch, y), side(z * stretch, z_dev * stretch, y)]
    expected, found = (angles(*pair, unchanged(D)) for pair in (plain, large))
    assert expected.whole > 1
    assert [found.whole, found.across, found.within] == pytest.approx(
        [expected.whole, expected.across, expected.within], rel=1e-2
    )


def test_halves_are_disjoint_and_differ_where_nothing_moved(vectors: tuple[np.ndarray, ...]) -> None:
    x, x_dev, y = vectors
    half = halves(y, np.arange(N) // 2, 0, classes=True)
    assert sorted(np.bincount(half)) == [N // 2, N // 2]
    assert (half[::2] == half[1::2]).all(), "groups stay whole"
    one, same = side(x, x_dev, y), unchanged(D)
    found = angles(one, one, same)
    assert found.whole == 0
    assert found.across == found.within > 1, "nothing moved, and halves differ all the same"
