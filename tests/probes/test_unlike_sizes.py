"""Features and rows of very unlike sizes: models are the optimum's, or are said not to be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from probekit import LogisticPath, RidgePath
from probekit.probes.protocol.selection import Estimator, Problem, select
from probekit.probes.solvers import logistic

CS = (1e-2, 1.0, 100.0)
N, D = 160, 8


def features(kind: str, n: int = N, d: int = D, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Labels that plain features tell in part, and those features deformed."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d))
    y = (x @ rng.normal(size=(d, classes)) + 1.5 * rng.gumbel(size=(n, classes))).argmax(1)
    what, _, size = kind.partition(" ")
    dtype = np.float32
    if what in ("columns", "wide"):
        x = x * np.logspace(-float(size), float(size), d)
        dtype = np.float64 if what == "wide" else np.float32
    elif what == "row":
        x[3] *= 10 ** float(size)
    elif what == "rows":
        x[:9] *= 10 ** float(size)
    elif what == "tails":
        x = x / np.abs(rng.normal(size=(n, d))) ** float(size)
    elif what == "far":
        x = x + 10 ** float(size)
    elif what == "few":  # distinct vectors, three of them only once
        x = x[np.r_[:3, rng.integers(3, 6, n - 3)]]
    return x.astype(dtype), y


def objective(x: np.ndarray, y: np.ndarray, w: np.ndarray, b: np.ndarray, C: float) -> float:
    z = x.astype(np.float64) @ w.T + b
    if z.shape[1] == 1:
        z = np.concatenate([0 * z, z], 1)
    return float((logsumexp(z, 1) - z[np.arange(len(y)), y]).sum() + (w**2).sum() / (2 * C))


def optimum(x: np.ndarray, y: np.ndarray, C: float) -> float:
    """The least that Newton's method finds on all coordinates at once, with line searches, in units of their own."""
    n, d = x.shape
    k = 1 if y.max() == 1 else int(y.max()) + 1
    size = 1 / np.maximum(np.abs(x.astype(np.float64)).max(0), 1e-300)
    a, ridge = np.c_[x * size, np.ones(n)], np.tile(np.r_[size**2 / C, 0], (k, 1))
    hot = y[:, None] if k == 1 else np.eye(k)[y]
    u = np.zeros((k, d + 1))

    def value(u: np.ndarray) -> float:
        return objective(x, y, u[:, :-1] * size, u[:, -1], C)

    for _ in range(300):
        z = a @ u.T
        z = np.c_[np.zeros(n), z] if k == 1 else z
        p = np.exp(z - logsumexp(z, 1, keepdims=True))[:, -k:]
        g = ((p - hot).T @ a + ridge * u).ravel()
        share = np.einsum("ia,ab->iab", p, np.eye(k)) - np.einsum("ia,ib->iab", p, p)
        h = np.einsum("iab,ij,il->ajbl", share, a, a, optimize=True).reshape(len(g), -1) + np.diag(ridge.ravel())
        s = 1 / np.sqrt(np.maximum(np.diag(h), 1e-300))
        power, vectors = np.linalg.eigh(h * s * s[:, None])
        step = (s * (vectors @ ((vectors.T @ (s * g)) / np.maximum(power, 1e-14 * power[-1])))).reshape(u.shape)
        now, length = value(u), 1.0
        while value(u - length * step) > now and length > 1e-12:
            length /= 2
        if length <= 1e-12 or ((g**2 / np.where(ridge > 0, ridge, np.inf).ravel()).sum() < 1e-9 * now):
            break
        u = u - length * step
    return value(u)


KINDS = ("plain", "columns 3", "wide 3", "wide 5", "row 3", "row 6", "rows 4", "tails 2", "far 4")


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [*KINDS, "few"])
def test_logistic_regressions_are_the_optimum(kind, classes):
    """Within a millionth of the objective; what is not so is not said to have converged."""
    x, y = features(kind, classes=classes)
    path = LogisticPath(CS).fit(x, y)
    for c, C in enumerate(CS):
        best = optimum(x, y, C)
        assert path.converged_[0, c]
        assert objective(x, y, path.coef_[0, c], path.intercept_[0, c], C) <= best * (1 + 1e-6)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("tol", [None, 1e-2])
def test_few_distinct_vectors_are_solved_together(classes, tol, monkeypatch):
    """A vector that occurs once may have a direction to itself; problem by problem, this took 40 times as long."""
    x, y = features("few", classes=classes)
    monkeypatch.setattr(logistic, "solve_exactly", None)
    found = logistic.fit_logistic(x.astype(np.float64), np.stack([y, y[::-1]]), classes, CS, standardise=False, tol=tol)
    assert found.converged.all()
    b = found.intercepts - found.weights @ found.centre
    for t, labels in enumerate((y, y[::-1])):
        for c, C in enumerate(CS):
            over = objective(x, labels, found.weights[t, c], b[t, c], C) - optimum(x, labels, C)
            assert over <= found.tol / 2 + 1e-8


@pytest.mark.parametrize("kind", ["plain", "wide 3", "columns 5", "row 6", "rows 4", "tails 2", "far 4"])
def test_fewer_rows_than_features(kind):
    x, y = features(kind, n=40, d=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = LogisticPath(CS).fit(x, y)
    for c, C in enumerate(CS):
        found = objective(x, y, path.coef_[0, c], path.intercept_[0, c], C)
        assert found <= optimum(x, y, C) * (1 + 1e-6)


def test_scikit_learns_answer_where_it_has_one():
    """Its solver by Cholesky's decomposition bears columns of these sizes, converged as far as it goes."""
    x, y = features("wide 3")
    for C in CS:
        twin = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(x, y)
        own = LogisticPath((C,)).fit(x, y)
        ours, theirs = (objective(x, y, *m, C) for m in ((own.coef_, own.intercept_),
                                                         (twin.coef_, twin.intercept_)))  # fmt: skip
        assert abs(ours - theirs) <= 1e-6 * theirs


def test_what_cannot_be_solved_is_said():
    """A row of 10³⁰ times the others' norm leaves no digits for them: a sentence, and no claim."""
    x, y = features("row 30")
    with pytest.warns(ConvergenceWarning, match="differ too much in scale"):
        path = LogisticPath(CS).fit(x.astype(np.float64), y)
    assert not path.converged_.all()


def exactly_left_out(x: np.ndarray, y: np.ndarray, alpha: float) -> float:
    """Each row left out indeed, by QR decompositions of features of like sizes, the largest rows first."""
    errors = []
    for i in range(len(y)):
        z, own = np.delete(x.astype(np.float64), i, 0), np.delete(y, i)
        mean = z.mean(0)
        tall = np.r_[z - mean, np.sqrt(alpha) * np.eye(z.shape[1])]
        size = 1 / np.linalg.norm(tall, axis=0)
        order = np.argsort(-np.abs(tall * size).max(1))
        q, r = np.linalg.qr((tall * size)[order])
        w = size * np.linalg.solve(r, q.T @ np.r_[own - own.mean(), np.zeros(z.shape[1])][order])
        errors.append(y[i] - own.mean() - (x[i] - mean) @ w)
    return float(np.square(errors).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_ridge_and_what_it_leaves_out(kind):
    x, _ = features(kind)
    y = np.random.default_rng(0).normal(size=N)
    path = RidgePath((1e-2, 1.0, 100.0)).fit(x, y)
    mean = x.mean(0, dtype=np.float64)
    z = x - mean
    for a, alpha in enumerate((1e-2, 1.0, 100.0)):
        left = y - z @ path.coef_[0, a, 0] - (path.intercept_[0, a, 0] + mean @ path.coef_[0, a, 0])
        slope = z.T @ left - alpha * path.coef_[0, a, 0]
        # what the objective can still fall by is at most |slope|²/alpha; at 1e-6 nothing but a row × 10⁶ is near
        assert slope @ slope / alpha <= 1e-6 * (y @ y)
        assert path.leave_one_out_[0, a] == pytest.approx(exactly_left_out(x, y, alpha), rel=1e-5)


@pytest.mark.parametrize("estimator", [Estimator.LOGISTIC, Estimator.RIDGE])
def test_a_fold_that_holds_the_only_large_row(estimator):
    """What is left of the sums without it has no digits, and is summed again: the models are as without the row."""
    x, y = features("row 7")
    codes = y if estimator is Estimator.LOGISTIC else x[:, 0].astype(np.float64) * (np.arange(N) != 3)
    fold = np.arange(N) % 4
    rows = np.arange(N)
    seen: list[np.ndarray] = []

    def losses(labels: np.ndarray, predicted: np.ndarray, loss: np.ndarray) -> np.ndarray:
        seen.append(loss)
        return loss.mean(2)

    for own in (x, np.where(np.arange(N)[:, None] == 3, 0, x)):
        problem = Problem(own, rows, codes[None], 2 * (estimator is Estimator.LOGISTIC), fold, estimator, (1.0,))
        problem = Problem(**{**{f: getattr(problem, f) for f in problem.__slots__}, "settings": (1.0, 2.0)})
        select(problem, losses)
    held = np.concatenate([rows[fold == f] for f in range(4)])
    same = np.isin(held, rows[fold == 3]) & (held != 3)
    np.testing.assert_allclose(seen[0][..., same], seen[1][..., same], rtol=1e-3, atol=1e-5)
