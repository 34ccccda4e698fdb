"""Rankings of units, probes on subsets of units, and halves: slow twins, and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from builders import signal_and_noise
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem
from probekit.probes.solvers.ksparse import KSparse
from probekit.probes.units.rankings import Ranking, Units, by_mass, chosen_c, mean_differences
from probekit.probes.units.stability import halves
from probekit.probes.units.subsets import Subsets, curves, sizes
from probekit.statistics.folds import folds
from probekit.statistics.overlap import rank_biased_overlap


def of(x, y, classes, **more):
    kind = Estimator.LOGISTIC if classes else Estimator.RIDGE
    fold = folds(y, 5, stratify=bool(classes))
    return Units(Problem(x, np.arange(len(y)), y[None], classes, fold, kind, (1.0,)), np.array([1.0]), **more)


def test_weights_are_those_of_standardised_units_for_each_number_of_classes():
    for classes in (2, 3):
        x, y, _ = signal_and_noise(300, 12, classes, signal=2.0)
        x *= np.arange(1, 13, dtype=np.float32)
        coef = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(StandardScaler().fit_transform(x), y).coef_
        expected = coef[0] if classes == 2 else np.linalg.norm(coef - coef.mean(0), axis=0)
        found = of(x, y, classes).ranked(Ranking.WEIGHT)
        # solvers stop at different digits: 2e-4 was measured
        np.testing.assert_allclose(found.score, expected, atol=2e-3)
        assert set(found.order[:classes]) == set(range(classes))
        assert (found.order == np.argsort(-np.abs(found.score), kind="stable")).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_differences_of_means_are_those_of_a_loop(classes):
    x, y, _ = signal_and_noise(120, 6, classes, signal=1.0)
    for j in range(6):
        gaps, scaled = [], []
        for c in range(classes):
            ours, others = x[y == c, j].astype(float), x[y != c, j].astype(float)
            gaps.append(ours.mean() - others.mean())
            within = sum(((part - part.mean()) ** 2).sum() for part in (ours, others)) / len(y)
            scaled.append(gaps[-1] / within**0.5)
        for found, expected in ((mean_differences(x, y, classes, scaled=False), gaps),
                                (mean_differences(x, y, classes), scaled)):  # fmt: skip
            value = expected[1] if classes == 2 else max(map(abs, expected))
            assert found[j] == pytest.approx(value, rel=1e-6)


def test_numbers_are_ranked_by_correlation_and_a_unit_that_is_still_has_no_score():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)).astype(np.float32)
    x[:, 4] = 3
    y = x[:, 2].astype(float) * -2 + rng.normal(size=200)
    found = mean_differences(x, y, 0)
    assert found[:4] == pytest.approx([np.corrcoef(x[:, j], y)[0, 1] for j in range(4)], abs=1e-6)
    assert found[4] == 0
    for by in (Ranking.WEIGHT, Ranking.K_SPARSE, Ranking.MEAN_DIFFERENCE):
        assert of(x[:, :4], y, 0).ranked(by).order[0] == 2


def test_k_sparse_is_the_order_of_the_probe():
    x, y, _ = signal_and_noise(200, 20, 3, signal=1.5)
    expected = KSparse((20,)).fit(x, y).dimensions_[0]
    found = of(x, y, 3).ranked(Ranking.K_SPARSE)
    assert found.order.tolist() == expected.tolist()
    assert found.score[found.order[0]] == 1


def neurons(weights, share):
    """The units that each class takes at a share of the mass of its weights, as in NeuroX's ``get_top_neurons``."""
    taken = set()
    for line in weights:
        order, mass = np.argsort(-line, kind="stable"), 0.0
        for unit in order:
            if mass >= share * line.sum():
                break
            taken.add(int(unit))
            mass += line[unit]
    return taken


def test_units_are_taken_by_the_mass_of_weights():
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=(3, 15)) ** 2
    order, before = [], set()
    for share in np.linspace(1e-6, 1 - 1e-6, 20001):
        new = neurons(weights, share) - before
        before |= new
        order.append(new)
    found = by_mass(weights, rng).order.tolist()
    at = 0
    for new in order:  # those that are taken at once may have any order
        assert set(found[at : at + len(new)]) == new
        at += len(new)
    assert at > 10


def test_units_without_a_weight_are_in_another_order_for_other_rows():
    x, y, _ = signal_and_noise(80, 200, 2, signal=0.0)
    units, half = of(x, y, 2, c=1e-4), np.arange(80) < 40
    orders = [units.ranked(Ranking.ELASTIC_NET, use).order for use in (half, ~half)]
    assert (units.ranked(Ranking.ELASTIC_NET, half).order == orders[0]).all()
    assert rank_biased_overlap(*orders) < 0.3


def test_an_elastic_net_finds_what_it_is_told():
    x, y, _ = signal_and_noise(300, 30, 2, signal=2.0)
    c = chosen_c(x, y, np.arange(300) % 5 == 0)
    assert set(of(x, y, 2, c=c).ranked(Ranking.ELASTIC_NET).order[:2]) == {0, 1}


def test_probes_on_subsets_are_discriminants_and_ridge_regressions():
    x, y, rng = signal_and_noise(400, 10, 3, signal=1.0)
    dev, subset = rng.normal(size=(500, 10)).astype(np.float32), np.array([1, 4, 7])
    every = Subsets.of(x, y, 3)
    z = (x[:, subset] - x[:, subset].mean(0)) / x[:, subset].std(0)
    shrinkage = 3 / 403
    within = sum((y == c).mean() * np.cov(z[y == c].T, bias=True) for c in range(3))
    model = LinearDiscriminantAnalysis(solver="lsqr").fit(z, y)
    covariance = (1 - shrinkage) * within + shrinkage * np.diag(within).mean() * np.eye(3)
    lines = np.linalg.solve(covariance, model.means_.T).T
    score = ((dev[:, subset] - x[:, subset].mean(0)) / x[:, subset].std(0)) @ lines.T
    score += np.log(model.priors_) - 0.5 * (model.means_ * lines).sum(1)
    found = every.predictions(every.standardised(dev), subset)
    assert (found == score.argmax(1)).mean() > 0.995  # float32
    t = x[:, 0].astype(float) + rng.normal(size=400)
    numbers = Subsets.of(x, t, 0)
    ridge = Ridge(alpha=400 * shrinkage).fit(z, t)
    expected = ridge.predict((dev[:, subset] - x[:, subset].mean(0)) / x[:, subset].std(0))
    np.testing.assert_allclose(numbers.predictions(numbers.standardised(dev), subset), expected, atol=1e-5)
    assert sizes(10) == [1, 2, 4, 8, 10]
    assert [len(part) for part in curves(every, every.standardised(dev), np.tile(np.arange(10), (2, 1)), [1, 10])] == [
        2,
        2,
    ]


def test_halves_share_nothing_and_keep_groups_and_classes():
    groups, y = np.repeat(np.arange(30), 3), np.repeat(np.arange(30) % 3, 3)
    found = [*halves(y, groups=groups, splits=5, seed=0)]
    assert len(found) == 5
    for a, b in found:
        assert not (a & b).any()
        assert (a | b).all()
        assert not set(groups[a]) & set(groups[b])
        assert set(y[a]) == set(y[b]) == {0, 1, 2}
    assert len({a.tobytes() for a, _ in found}) == 5
    alone = np.r_[np.zeros(20, int), 1]
    assert all((a & b).sum() == 1 for a, b in halves(alone, groups=None, splits=3, seed=0))
