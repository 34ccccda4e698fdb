"""Maps against closed forms, scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from probekit.errors import NonFiniteError, UsageError
from probekit.projection import clusters, faithfulness, fit_discriminant, principal_plane, project, rotation
from probekit.runtime import blas_thread


def cloud(n=200, d=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(5, 0.1, d) + rng.normal(size=d) * 10


@pytest.mark.parametrize("shape", [(200, 30), (20, 300)])
def test_principal_components_of_a_known_plane(shape):
    """x = mean + s1 u v1' + s2 w v2' has its principal axes at v1, v2 and shares s1² : s2²."""
    n, d = shape
    rng = np.random.default_rng(1)
    scores = linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, 2))]), mode="economic")[0][:, 1:]
    axes = linalg.qr(rng.normal(size=(d, 2)), mode="economic")[0]
    x = 1e3 + (scores * [30.0, 10.0]) @ axes.T
    plane = principal_plane(x)
    np.testing.assert_allclose(plane.explained, [0.9, 0.1], atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(plane.axes * axes, axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(np.abs(plane.points(x)), np.abs(scores * [30, 10]), atol=1e-9)


@pytest.mark.parametrize("shape", [(200, 30), (20, 300)])
def test_principal_components_of_sklearn(shape):
    x = cloud(*shape).astype(np.float32)
    plane, pca = principal_plane(x), PCA(2, svd_solver="full").fit(x.astype(np.float64))
    np.testing.assert_allclose(plane.explained, pca.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_allclose(np.abs(plane.axes.T), np.abs(pca.components_), atol=1e-9)


def test_signs_do_not_depend_on_the_order_of_the_rows():
    x = cloud()
    np.testing.assert_allclose(principal_plane(x).axes, principal_plane(x[::-1]).axes, atol=1e-10)
    assert (principal_plane(x).axes.max(0) > -principal_plane(x).axes.min(0)).all()


def test_equal_vectors_and_single_directions_have_no_plane():
    constant = principal_plane(np.full((10, 5), 1e6 + 0.1, dtype=np.float32))
    assert np.isnan(constant.explained).all()
    assert not constant.axes.any()
    line = principal_plane(np.outer(np.arange(10.0), [3.0, 4.0, 0.0]))
    np.testing.assert_allclose(line.explained, [1, 0], atol=1e-12)
    np.testing.assert_allclose(line.axes[:, 0], [0.6, 0.8, 0], atol=1e-12)
    assert not line.axes[:, 1].any()
    assert principal_plane(np.arange(8.0)[:, None]).axes.shape == (1, 2)


def test_non_finite_vectors_are_refused_by_layer():
    x = cloud()
    x[3, 2] = np.nan
    with pytest.raises(NonFiniteError, match="layer 1 of model 1: a vector contains NaN"):
        project([[cloud, lambda: x]])


@pytest.mark.parametrize("reflect", [False, True])
def test_rotation_is_found_again(reflect):
    xy = cloud(50, 2)
    angle = 0.7
    r = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1, -1 if reflect else 1])
    np.testing.assert_allclose(rotation(xy, 3 * xy @ r + 5), r, atol=1e-10)
    np.testing.assert_array_equal(rotation(xy, np.zeros_like(xy)), np.eye(2))


def test_rotated_copies_of_a_model_have_the_same_map():
    """Rotations of the feature space change no map; nothing is scaled."""
    rng = np.random.default_rng(0)
    x = cloud(100, 12)
    turn = [linalg.qr(rng.normal(size=(12, 12)))[0] for _ in range(3)]
    layers = [x @ t for t in turn]
    first, second = project([[lambda x=x: x for x in layers], [lambda x=x: 2 * x + 1 for x in layers[::-1]]])
    for layer in (1, 2):
        np.testing.assert_allclose(first.xy[layer], first.xy[0], atol=1e-4)
    np.testing.assert_allclose(second.xy, 2 * first.xy, atol=1e-4)
    np.testing.assert_allclose(second.scale, 2 * first.scale)
    np.testing.assert_allclose(first.xy.mean(1), 0, atol=1e-5)


def test_neighbouring_layers_move_as_little_as_a_rotation_allows():
    layers = [cloud(80, 6, seed) for seed in range(4)]
    found = project([[lambda x=x: x for x in layers]])[0]
    for before, after in zip(found.xy[:-1], found.xy[1:], strict=True):
        for angle in np.linspace(0, 2 * np.pi, 60):
            r = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            for turned in (after @ r, after @ r @ np.diag([1, -1])):
                assert np.square(after - before).sum() <= np.square(turned - before).sum() + 1e-2


def test_same_bytes_for_any_number_of_threads():
    layers = [cloud(300, 40, seed).astype(np.float32) for seed in range(3)]
    one = project([[lambda x=x: x for x in layers]])[0]
    with blas_thread():
        two = project([[lambda x=x: x for x in layers]])[0]
    assert one.xy.tobytes() == two.xy.tobytes()


@pytest.mark.parametrize("k", [1, 5, 12])
def test_trustworthiness_is_sklearns(k):
    x = cloud(90, 8)
    xy = principal_plane(x).points(x)
    found = faithfulness(x, xy, neighbours=k)
    assert found.trustworthiness == pytest.approx(trustworthiness(x, xy, n_neighbors=k), abs=1e-12)
    assert found.continuity == pytest.approx(trustworthiness(xy, x, n_neighbors=k), abs=1e-12)


def test_faithfulness_does_not_depend_on_blocks(monkeypatch):
    x = cloud(90, 8)
    whole = faithfulness(x, x[:, :2])
    monkeypatch.setattr("probekit.projection.neighbourhoods.BLOCK", 500)
    assert faithfulness(x, x[:, :2]) == whole


def test_faithfulness_of_a_random_map_and_of_a_sample():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 5))
    random = faithfulness(x, rng.normal(size=(1500, 2)), points=1000)
    assert random.n == 1000
    assert random.trustworthiness == pytest.approx(0.5, abs=0.02)
    assert np.isnan(faithfulness(np.ones((9, 3)), x[:9, :2]).trustworthiness)
    assert np.isnan(faithfulness(x[:2], x[:2, :2]).continuity)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_discriminant_is_the_generalised_eigenvector_and_the_normal_density(classes):
    rng = np.random.default_rng(classes)
    y = rng.integers(classes, size=120)
    x = rng.normal(size=(120, 20)) * np.linspace(1, 3, 20) + 2 * np.eye(20)[y]
    found = fit_discriminant(x, y)
    means = np.array([x[y == c].mean(0) for c in range(classes)])
    residual = x - means[y]
    covariance = residual.T @ residual / len(x)
    shrunk = (1 - found.shrinkage) * covariance + found.shrinkage * np.trace(covariance) / 20 * np.eye(20)
    between = sum((y == c).mean() * np.outer(means[c] - x.mean(0), means[c] - x.mean(0)) for c in range(classes))
    values, vectors = linalg.eigh(between, shrunk)
    for i in range(min(2, classes - 1)):
        expected = vectors[:, -1 - i] / np.linalg.norm(vectors[:, -1 - i])
        axis = found.plane.axes[:, i]
        assert abs(axis @ expected) == pytest.approx(np.linalg.norm(axis))
        assert axis @ shrunk @ axis == pytest.approx(1)
    assert found.plane.explained[0] == pytest.approx(values[-1] / values.sum())
    inverse = np.linalg.inv(shrunk)
    density = np.array([-0.5 * np.einsum("ij,jk,ik->i", x - m, inverse, x - m) for m in means]).T
    density += np.log(np.bincount(y) / len(y))
    logits = found.logits(x)
    np.testing.assert_allclose(logits - logits[:, :1], density - density[:, :1], atol=1e-8)
    if classes == 2:  # features correlate and differ in scale, yet the second axis says nothing of the classes
        assert abs(found.plane.axes[:, 0] @ shrunk @ found.plane.axes[:, 1]) < 1e-10
        points = found.plane.points(x)
        gap = np.abs(points[y == 1].mean(0) - points[y == 0].mean(0))
        assert gap[0] > 1
        assert gap[1] < 1e-10


def test_the_second_axis_is_the_widest_of_what_the_first_does_not_predict():
    """Against the residuals of a regression on the scores of the first axis; the classes differ in a shared factor."""
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=4000)
    factor = rng.normal(size=(4000, 1))
    x = (
        rng.normal(size=(4000, 8)) * np.linspace(1, 2, 8)
        + 3 * factor * np.linspace(1, 0, 8)
        + y[:, None] * np.eye(8)[0]
    )
    found = fit_discriminant(x, y)
    points = found.plane.points(x)
    within = points - np.array([points[y == c].mean(0) for c in (0, 1)])[y]
    assert found.shrinkage < 0.01
    assert abs(np.corrcoef(within.T)[0, 1]) < 0.01
    assert abs(points[y == 1, 1].mean() - points[y == 0, 1].mean()) < 1e-10
    centred = x - np.array([x[y == c].mean(0) for c in (0, 1)])[y]
    residual = centred - np.outer(within[:, 0], centred.T @ within[:, 0] / (within[:, 0] @ within[:, 0]))
    widest = linalg.svd(residual, full_matrices=False)[2][0]
    assert abs(np.corrcoef(residual @ widest, within[:, 1])[0, 1]) > 0.9999


def test_shrinkage_is_that_of_ledoit_and_wolf():
    from sklearn.covariance import ledoit_wolf_shrinkage

    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    x = rng.normal(size=(60, 100)) + y[:, None]
    residual = x - np.array([x[y == c].mean(0) for c in (0, 1)])[y]
    found = fit_discriminant(x, y)
    assert found.shrinkage == pytest.approx(ledoit_wolf_shrinkage(residual, assume_centered=True), rel=1e-9)


def test_regression_direction_and_unlabelled_examples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5000, 6))
    y = x @ [0, 3.0, 0, 4.0, 0, 0] + 7
    y[::10] = np.nan
    found = fit_discriminant(x, y)
    np.testing.assert_allclose(
        found.plane.axes[:, 0], [0, 0.6, 0, 0.8, 0, 0], atol=0.04
    )  # 3 standard errors, 3 / sqrt(4500)
    assert np.corrcoef(found.logits(x)[1::10, 0], y[1::10])[0, 1] > 0.999
    known = ~np.isnan(y)
    assert abs(np.corrcoef(found.plane.points(x[known])[:, 1], y[known])[0, 1]) < 1e-10
    assert found.n == 4500
    with pytest.raises(UsageError, match="two classes with two examples"):
        fit_discriminant(x, np.full(5000, -1))
    with pytest.raises(UsageError, match="different numbers"):
        fit_discriminant(x, np.ones(5000))


def test_the_axis_that_separates_labels_stays_horizontal():
    """With two classes it is not mixed with the other axis; only signs are chosen to fit the neighbour."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    layers = [
        rng.normal(size=(300, 10)) + 3 * sign * y[:, None] * np.eye(10)[k] for k, sign in ((0, 1), (1, -1), (2, 1))
    ]
    vectors = [lambda x=x: x for x in layers]
    found = project([vectors], "lda", train=[(vectors, y)])[0]
    for xy in found.xy:
        gap = xy[y == 1].mean(0) - xy[y == 0].mean(0)
        assert abs(gap[0]) > 2
        assert abs(gap[1]) < 0.5
        assert gap[0] * (found.xy[0][y == 1].mean(0) - found.xy[0][y == 0].mean(0))[0] > 0
    assert "The horizontal axis separates the labels" in found.note


def test_supervised_maps_do_not_flatter():
    """Directions fitted on noise separate the examples that they were fitted on, and no others."""
    rng = np.random.default_rng(0)
    x, dev, y = rng.normal(size=(60, 200)), rng.normal(size=(600, 200)), rng.integers(2, size=60)
    y_dev = rng.integers(2, size=600)

    def separation(shown, labels):
        axis = project([[lambda: shown]], "lda", train=[([lambda: x], y)])[0].xy[0, :, 0]
        return abs(axis[labels == 1].mean() - axis[labels == 0].mean()) / axis.std()

    assert separation(x, y) > 1.5
    assert separation(dev, y_dev) < 0.25  # 3 standard errors, 2 / sqrt(600)
    with pytest.raises(UsageError, match="Give train"):
        project([[lambda: dev]], "lda")
    with pytest.raises(UsageError, match="the training vectors have the width 200, those to show 5"):
        project([[lambda: dev[:, :5]]], "lda", train=[([lambda: x], y)])


@pytest.mark.parametrize("method", ["tsne", pytest.param("umap", marks=pytest.mark.slow)])  # UMAP compiles for 25 s
def test_neighbour_maps_keep_clusters_are_alike_and_repeat(method):
    pytest.importorskip({"tsne": "openTSNE", "umap": "umap"}[method], reason="needs the extra 'explore'")
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = (rng.normal(size=(120, 20)) + 12 * np.eye(20)[y]).astype(np.float32)
    sides = [[lambda: x, lambda: x + 0.1, lambda: np.ones((120, 4))]]
    one, two = (project(sides, method, seed=3)[0] for _ in range(2))
    assert one.xy.tobytes() == two.xy.tobytes()
    assert "mean nothing here" in one.note
    assert one.explained is None
    near = np.argsort(((one.xy[1][:, None] - one.xy[1][None]) ** 2).sum(2), axis=1)[:, 1:11]
    assert (y[near] == y[:, None]).mean() > 0.95
    centres = np.array([[layer[y == c].mean(0) for c in range(3)] for layer in one.xy[:2]])
    assert np.abs(centres[1] - centres[0]).max() < 0.5 * np.abs(centres[0]).max()
    assert not one.xy[2].any()


@pytest.mark.parametrize(
    ("method", "module", "package"), [("tsne", "openTSNE", "openTSNE"), ("umap", "umap", "umap-learn")]
)
def test_missing_libraries_name_the_extra(method, module, package, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"needs {package}: pip install 'probekit-lm\[explore\]'"):
        project([[cloud]], method)


def test_wrong_input_says_what_to_do():
    with pytest.raises(UsageError, match="did you mean pca"):
        project([[cloud]], "pac")
    with pytest.raises(UsageError, match="a map needs 4 points; there are 3"):
        project([[lambda: cloud(3)]])
    with pytest.raises(UsageError, match="different points: 200 and 100"):
        project([[cloud], [lambda: cloud(100)]])


@pytest.mark.parametrize("method", ["kmeans", "hdbscan"])
def test_clusters_are_found_and_numbered_by_size(method):
    rng = np.random.default_rng(0)
    y = np.repeat([2, 0, 1], [60, 150, 90])
    x = rng.normal(size=(300, 10)) + 20 * np.eye(10)[y]
    found = clusters(x, method, count=3)
    inside = found >= 0
    assert (found[inside] == y[inside]).all()
    assert inside.mean() > (0.999 if method == "kmeans" else 0.8)
    assert (clusters(np.ones((20, 3)), method) == 0).all()
    with pytest.raises(UsageError, match="did you mean kmeans"):
        clusters(x, "kmean")
    with pytest.raises(UsageError, match="301 clusters of 300 points"):
        clusters(x, method, count=301)
