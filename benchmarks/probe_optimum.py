"""How far answers are from the optimum of logistic regression, found by Newton's method in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from probe_work import Found, Job, features, label_sets

EXACT = 1e-9  # the Newton decrement of an optimum: logits within 1e-6


def agreement(job: Job) -> Found:
    """How far answers (files of models, by name) are from the float64 optimum of each target and C.

    Nats by which the objective Σ loss + |w|²/2C is above its minimum, over all rows; root mean square of the logits'
    difference, and of the logits; share of rows whose prediction differs; accuracy on the rows fitted. Of gold for all
    the C named, of a shuffling for those of at most 1.
    """
    x = features(job, "float64")
    x = np.concatenate([x, np.ones((len(x), 1))], 1)
    answers = {name: dict(np.load(path)) for name, path in job.more["answers"].items()}
    models = {name: np.concatenate([a["w"], a["b"][..., None]], -1) for name, a in answers.items()}
    place = {name: {float(C): c for c, C in enumerate(a["Cs"])} for name, a in answers.items()}
    gram, out = x.T @ x, []
    [ours, *_] = [name for name in models if name.startswith("ours")]
    codes = label_sets(job, len(models[ours]))
    for t, y in enumerate(codes):
        for C in (C for C in job.more["Cs"] if t == 0 or C <= 1):
            mine = {name: m[t, place[name][C]] for name, m in models.items() if t < len(m) and C in place[name]}
            right = optimum(x, gram, y, C, mine[ours])
            z0, best_f = x @ right.w.T, right.objective
            for name, w in mine.items():
                z = x @ w.T
                off = z - z0
                if z.shape[1] > 1:  # what all classes have in common says nothing
                    off -= off.mean(1, keepdims=True)
                said = [(v[:, 0] > 0) if v.shape[1] == 1 else v.argmax(1) for v in (z, z0)]
                out.append({
                    "answer": name, "classes": int(y.max()) + 1, "target": t, "C": C, "decrement": right.decrement,
                    "nats": objective(z, y, w, C) - best_f,
                    "rms": float(np.sqrt((off**2).mean())), "size": float(np.sqrt((z0**2).mean())),
                    "differ": float((said[0] != said[1]).mean()), "accuracy": float((said[0] == y).mean()),
                })  # fmt: skip
    return {"answers": out}


def objective(z: np.ndarray, y: np.ndarray, w: np.ndarray, C: float) -> float:
    from scipy.special import logsumexp

    right = z[:, 0] * (2 * y - 1) if z.shape[1] == 1 else z[np.arange(len(y)), y] - logsumexp(z, 1)
    loss = np.logaddexp(0, -right) if z.shape[1] == 1 else -right
    return float(loss.sum() + (w[:, :-1] ** 2).sum() / (2 * C))


@dataclass(frozen=True)
class Optimum:
    w: np.ndarray
    objective: float
    decrement: float


def optimum(x: np.ndarray, gram: np.ndarray, y: np.ndarray, C: float, w: np.ndarray) -> Optimum:
    """Newton's method in float64, begun at ``w`` (1 or classes, d + 1), its equations solved by conjugate gradients.

    It ends where gᵀM⁻¹g is nothing, M being the Hessian with one curvature a class instead of one a row.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.special import expit, softmax

    k, ridge = len(w), np.full(x.shape[1], 1 / C)
    ridge[-1] = 0
    hot = y[:, None] if k == 1 else np.eye(k)[y]
    z = x @ w.T
    now, decrement = objective(z, y, w, C), np.inf
    for _ in range(30):
        p = expit(z) if k == 1 else softmax(z, 1)
        factors = [cho_factor(m * gram + np.diag(ridge + 1e-9)) for m in (p * (1 - p)).mean(0) + 1e-12]
        g = (p - hot).T @ x + ridge * w

        def curved(v: np.ndarray, p: np.ndarray = p) -> np.ndarray:
            q = p * (x @ v.T)
            q -= p * (q if k == 1 else q.sum(1, keepdims=True))
            return q.T @ x + ridge * v

        def solved(v: np.ndarray, factors: Any = factors) -> np.ndarray:
            return np.stack([cho_solve(f, row) for f, row in zip(factors, v, strict=True)])

        decrement = float((g * solved(g)).sum())
        if decrement <= EXACT:
            break
        step = conjugate_gradients(curved, solved, g)
        for _ in range(20):
            new_z = x @ (w - step).T
            if (new := objective(new_z, y, w - step, C)) <= now + 1e-9 * abs(now):
                break
            step /= 2
        w, z, now = w - step, new_z, new
    return Optimum(w, now, decrement)


def conjugate_gradients(curved: Callable, solved: Callable, g: np.ndarray) -> np.ndarray:
    """Of H s = g, until the residual has a thousandth of what it had, measured by the preconditioner."""
    s, r = np.zeros_like(g), g.copy()
    q = solved(r)
    along, size = q.copy(), (r * q).sum()
    first = size
    for _ in range(500):
        h = curved(along)
        length = size / (along * h).sum()
        s, r = s + length * along, r - length * h
        q = solved(r)
        size, before = (r * q).sum(), size
        if size <= 1e-6 * first:
            break
        along = q + size / before * along
    return s
