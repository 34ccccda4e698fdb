"""k-sparse probes find the dimensions that were planted, and say which they are."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.solvers import screening
from probekit.probes.solvers.ksparse import KSparse, path, rank


def planted(n=1500, d=60, k=4, classes=2, seed=0, explained=0.5):
    """Correlated features, float32 (n, d); labels that depend on k of them; which. (Factors explain ``explained``.)"""
    rng = np.random.default_rng(seed)
    load = rng.normal(size=(10, d)) * np.sqrt(explained / 10)
    x = rng.normal(size=(n, 10)) @ load + rng.normal(size=(n, d)) * np.sqrt(1 - explained)
    x = (x - x.mean(0)) / x.std(0)
    dims = rng.choice(d, k, replace=False)
    w = rng.choice([-1, 1], size=(classes, k)) * rng.uniform(1, 2, size=(classes, k))
    if classes == 2:
        w[0] = 0
    y = (x[:, dims] @ w.T + rng.gumbel(size=(n, classes))).argmax(1)
    return x.astype(np.float32), y, set(dims.tolist())


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_planted_dimensions_are_found(classes, seed):
    x, y, dims = planted(classes=classes, seed=seed)
    probe = KSparse((1, 4, 16)).fit(x, y)
    assert set(probe.dimensions_[0, :4].tolist()) == dims
    assert probe.path_.converged.all()


def test_a_correlated_bystander_is_left_out():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 10))
    x[:, 5] = 0.9 * x[:, 0] + 0.9 * x[:, 1] + 0.3 * x[:, 5]  # tells more alone than either, nothing beside both
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + rng.logistic(size=3000) > 0).astype(int)
    difference = abs(x[y == 1].mean(0) - x[y == 0].mean(0))
    assert difference.argmax() == 5
    assert set(path(x, y[None], 2, (2,)).dimensions[0].tolist()) == {0, 1}


@pytest.mark.parametrize("classes", [2, 4])
def test_on_its_dimensions_it_is_logistic_regression(classes):
    x, y, _ = planted(classes=classes)
    fit = path(x, y[None], classes, (3, 8))
    dims = fit.dimensions[0, :3]
    twin = LogisticRegression(max_iter=1000, tol=1e-6).fit(x[:, dims].astype(float), y)
    np.testing.assert_allclose(np.exp(fit.log_proba(x))[0, 0], twin.predict_proba(x[:, dims]), atol=1e-3)


def test_more_dimensions_tell_more_and_shuffled_labels_nothing():
    x, y, _ = planted(n=2000)
    both = np.stack([y, np.random.default_rng(1).permutation(y)], 1)
    probe = KSparse((1, 2, 4)).fit(x[:1000], both[:1000])
    accuracy = (probe.predict(x[1000:]) == both[1000:].T[:, None]).mean(-1)
    assert (np.diff(accuracy[0]) > 0).all()
    assert abs(accuracy[1] - 0.5).max() < 0.06  # standard error .016
    assert probe.predict_proba(x).sum(-1) == pytest.approx(1, abs=1e-5)


def test_targets_together_are_targets_alone():
    x, y, _ = planted(classes=3)
    rng = np.random.default_rng(2)
    codes = np.array([y, rng.permutation(y), np.where(rng.random(len(y)) < 0.2, -1, y)])
    together = path(x, codes, 3, (2, 5))
    for t, code in enumerate(codes):
        alone = path(x[code >= 0], code[code >= 0][None], 3, (2, 5))
        assert together.dimensions[t].tolist() == alone.dimensions[0].tolist()
        np.testing.assert_allclose(together.log_proba(x)[t], alone.log_proba(x)[0], atol=1e-3)


def test_ranking_is_backward_elimination_when_one_is_struck_at_a_time():
    x, y, _ = planted(n=200, d=6, k=2)
    gram, cross, penalty = x.T @ x / 200, ((y - y.mean()) @ x / 200)[None], 0.1 * 6 / 200

    def explained(dims):
        part = np.ix_(dims, dims)
        return cross[0, dims] @ np.linalg.solve(gram[part] + penalty * np.eye(len(dims)), cross[0, dims])

    left, out = list(range(6)), []
    while len(left) > 1:
        worst = max(left, key=lambda j: explained([i for i in left if i != j]))
        left.remove(worst)
        out.append(worst)
    assert rank(gram, cross, 200).tolist() == [*left, *out[::-1]]


def test_more_dimensions_than_examples_and_constant_ones_last():
    x, y, _ = planted(n=50, d=80)
    x[:, [3, 40]] = 0
    fit = path(x, y[None], 2, (1, 80))
    assert set(fit.dimensions[0, -2:].tolist()) == {3, 40}
    assert sorted(fit.dimensions[0].tolist()) == list(range(80))
    assert np.isfinite(fit.log_proba(x)).all()


def test_a_class_never_seen_is_rare_not_impossible():
    x, y, _ = planted(classes=3)
    out = np.exp(path(x, np.where(y == 1, 0, y)[None], 3, (2,)).log_proba(x))
    np.testing.assert_allclose(out[..., 1], 0.5 / (len(y) + 0.5), rtol=1e-5)
    np.testing.assert_allclose(out.sum(-1), 1, atol=1e-5)


def test_a_memory_map_will_do(tmp_path):
    x, y, _ = planted(n=300)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    one, two = (path(z, y[None], 2, (3,)).log_proba(z) for z in (mapped, x))
    np.testing.assert_array_equal(one, two)


def test_what_cannot_be_is_said():
    x, y, _ = planted(n=100)
    with pytest.raises(UsageError, match="fewer than two classes"):
        KSparse((1,)).fit(x, 0 * y)
    with pytest.raises(UsageError, match="between 1 and 60"):
        path(x, y[None], 2, (61,))
    with pytest.raises(UsageError, match="weights must be finite"):
        path(x, y[None], 2, (1,), weights=-np.ones(100))
    x[99, 0] = np.nan
    with pytest.raises(NonFiniteError, match="between rows 0 and 99"):
        KSparse((1,)).fit(x, y)


def test_the_dimensions_of_a_screen_are_those_whose_class_means_differ_most(monkeypatch):
    monkeypatch.setattr(screening, "KEPT", 5)
    x, y, _ = planted(n=300, d=40, classes=3)
    x = x * np.linspace(0.1, 10, 40, dtype=np.float32) + 100
    x[:, 7] = 3  # constant
    rows, weights = np.arange(0, 300, 2), np.random.default_rng(0).uniform(1, 2, 150).astype(np.float32)
    both = np.stack([y, np.random.default_rng(1).permutation(y)])[:, rows]
    found = screening.screen(x, rows, both, 3, weights)
    z = x[rows].astype(float)
    np.testing.assert_allclose(found.mean, z.mean(0), rtol=1e-6)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found.scale, np.where(z.std(0) > 0, 1 / z.std(0), 0), rtol=1e-3)
    for codes, kept in zip(both, found.kept, strict=True):
        own = [weights[codes == c].sum() for c in range(3)]
        means = np.array([np.average(z[codes == c], axis=0, weights=weights[codes == c]) for c in range(3)])
        between = (np.array(own)[:, None] * (means - np.average(means, axis=0, weights=own)) ** 2).sum(0)
        share = np.divide(between, z.var(0), out=np.zeros(40), where=z.var(0) > 0)
        assert set(kept.tolist()) == set(np.argsort(-share)[:5].tolist())
    fit = screening.path(x, rows, both, 3, (1, 2), found, weights)
    alone = ((x[rows] - found.mean) * found.scale)[:, found.kept[1]]
    twin = path(alone, both[1:], 3, (1, 2), weights=weights)
    assert fit.dimensions[1].tolist() == found.kept[1][twin.dimensions[0]].tolist()
    np.testing.assert_allclose(fit.coef[1], twin.coef[0], atol=1e-5)
    x[4, 2] = np.nan
    with pytest.raises(NonFiniteError):
        screening.screen(x, rows, both, 3)
