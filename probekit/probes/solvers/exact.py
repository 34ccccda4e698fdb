"""Logistic regression for features or rows whose scales differ so much that one basis does not suit all problems.

Newton's method in float64, damped by Armijo's rule (Boyd & Vandenberghe 2004, section 9.5.2), solves each problem.
Every feature is divided by its root mean square and penalised in its own units. The equations are solved by conjugate
gradients, preconditioned with the Cholesky factors of the Hessian of each class; for two classes that is the Hessian
itself.

A small decrement proves nothing here: a row of norm 10⁸ fixes its direction until a logit has moved by a few, and then
no longer does. A problem has therefore converged when its duality gap |g|²/2λ, which bounds the remaining decrease of
the objective (Fenchel's dual at the probabilities; Hsieh et al. 2008, section 2), is negligible beside the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from probekit.probes.solvers.design import Design
from probekit.probes.solvers.newton import RARE, Problems, Solution

STEPS = 200  # most Newton steps; from 0 to a logit of 30 it takes about as many
INNER = 200  # most Hessian products per step
FORCING = 1e-4  # relative residual of the gradient that a step may leave
RELATIVE = 1e-6  # of the objective: a smaller gap is negligible
DOUBTFUL = 1e-7  # of the objective: a larger decrement, being approximate, is checked
BALANCED = 1e-9  # of the rows: allowed deviation of the probabilities' sum from that of the labels


def solve_exactly(design: Design, penalised: np.ndarray, problems: Problems, *, tol: float = 1e-6) -> Solution:
    """Solve all problems, from stronger penalties to weaker ones.

    Parameters
    ----------
    design : Design
        float64, not scaled.
    penalised : np.ndarray
        The scale of each feature under the penalty, (d,): 1 for unscaled features, 0 for a feature to leave out.

    Returns
    -------
    Solution
        The duality gap replaces the decrement; it is above ``tol`` for problems that did not converge.
    """
    each = _each(design, penalised, problems)
    out = torch.zeros((len(problems), problems.k, design.width + 1), dtype=torch.float64, device=design.device)
    gap, iterations = np.full(len(problems), np.inf), np.zeros(len(problems), dtype=int)
    last: dict[int, torch.Tensor] = {}
    for p in np.argsort(-problems.penalty, kind="stable").tolist():
        t = int(problems.target[p])
        out[p], gap[p], iterations[p] = _newton(each(p), last.get(t), tol)
        last[t] = out[p]
    return Solution(out[..., :-1] * each(0).sizes, out[..., -1].contiguous(), gap, iterations)


def polished(
    found: Solution, design: Design, penalised: np.ndarray, problems: Problems, *, tol: float = 1e-6
) -> Solution:
    """Continue the problems whose decrement is above a millionth of the objective, so that nearly all rows fit."""
    seen = torch.as_tensor(np.where(penalised > 0, penalised, np.inf), device=design.device)
    ridge = 0.5 * problems.penalty * (found.weights / seen).square().sum((1, 2)).cpu().numpy()
    doubtful = np.flatnonzero((found.decrement > DOUBTFUL * ridge) & (found.decrement <= tol))
    if not len(doubtful):
        return found
    each = _each(design, penalised, problems)
    w, b, gap, iterations = found.weights.clone(), found.intercepts.clone(), found.decrement.copy(), found.iterations
    for p in doubtful.tolist():
        problem = each(p)
        live = problem.sizes > 0
        u = torch.cat([torch.where(live, w[p] / torch.where(live, problem.sizes, 1.0), 0.0), b[p, :, None]], 1)
        if gap[p] > DOUBTFUL * problem.value(u):
            u, gap[p], _ = _newton(problem, u, tol)
            w[p], b[p] = u[:, :-1] * problem.sizes, u[:, -1]
    return Solution(w, b, gap, iterations)


def _each(design: Design, penalised: np.ndarray, problems: Problems) -> Callable[[int], _Problem]:
    """A function that returns each problem by its index."""
    sizes, units = sizes_of(design, penalised)

    def problem(p: int) -> _Problem:
        t, ridge = int(problems.target[p]), torch.cat([float(problems.penalty[p]) * units**2, units.new_zeros(1)])
        weights = None if problems.weights is None else problems.weights[t].double()
        return _Problem(design, sizes, ridge, problems.codes[t].long(), problems.k, weights)

    return problem


def sizes_of(design: Design, penalised: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The factors that give each feature a root mean square of 1 about the centre, (d,), 0 for constant features and
    those left out; and the scale of a weight on such a feature under the penalty.
    """
    total = torch.zeros(design.width, dtype=torch.float64, device=design.device)
    for _, block in design.blocks():
        total += block.double().square().sum(0)
    power, seen = total / max(len(design), 1), torch.as_tensor(penalised, device=design.device)
    live = (power > 0) & (seen > 0)
    sizes = torch.where(live, torch.where(live, power, 1.0).rsqrt(), 0.0)
    return sizes, sizes / torch.where(live, seen, 1.0)


@dataclass(frozen=True, slots=True)
class _Problem:
    """One label set at one penalty: ridge (d + 1,) for the coordinates, of which the last is the intercept."""

    design: Design
    sizes: torch.Tensor
    ridge: torch.Tensor
    y: torch.Tensor
    k: int
    weights: torch.Tensor | None

    def rows(self, u: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
        """For each block, the rows (b, d + 1), logits (b, k), labels, and weights (b, 1) or None."""
        for at, block in self.design.blocks():
            a = torch.cat([block * self.sizes, block.new_ones(len(block), 1)], 1)
            yield a, a @ u.T, self.y[at], None if self.weights is None else self.weights[at, None]

    def probabilities(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(z) if self.k == 1 else torch.softmax(z, 1)

    def value(self, u: torch.Tensor) -> float:
        total = 0.5 * float((self.ridge * u * u).sum())
        for _, z, y, w in self.rows(u):
            if self.k == 1:
                loss = torch.nn.functional.softplus(torch.where(y[:, None] == 1, -z, z))
            else:
                loss = torch.logsumexp(z, 1, keepdim=True) - z.gather(1, y[:, None])
            total += float((loss if w is None else loss * w).sum())
        return total

    def derivatives(self, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradient (k, d + 1), and the Hessian of each class (k, d + 1, d + 1)."""
        g, wide = self.ridge * u, len(self.ridge)
        h = torch.diag(self.ridge).repeat(self.k, 1, 1)
        for a, z, y, w in self.rows(u):
            p = self.probabilities(z)
            wrong, spread = p.clone(), p * (1 - p)
            if self.k == 1:
                wrong[:, 0] -= y
            else:
                wrong[torch.arange(len(y)), y] -= 1
            if w is not None:
                wrong, spread = wrong * w, spread * w
            g = g + wrong.T @ a
            for c in range(self.k):
                h[c] += (a * spread[:, c, None]).T @ a
        return g, h.view(self.k, wide, wide)

    def curved(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The Hessian's product with v (k, d + 1)."""
        out = self.ridge * v
        for a, z, _, w in self.rows(u):
            p, q = self.probabilities(z), a @ v.T
            q = p * (1 - p) * q if self.k == 1 else p * (q - (p * q).sum(1, keepdim=True))
            out = out + (q if w is None else q * w).T @ a
        return out


def _newton(problem: _Problem, start: torch.Tensor | None, tol: float) -> tuple[torch.Tensor, float, int]:
    """Coordinates, their duality gap (above ``tol`` unless converged), and the number of steps."""
    u = _begin(problem) if start is None else start.clone()
    now, unsolved = problem.value(u), float(np.nextafter(tol, np.inf))
    gap = np.inf
    for step in range(STEPS):
        g, h = problem.derivatives(u)
        gap = _gap(problem, g)
        if gap <= min(tol, RELATIVE * now):
            return u, gap, step
        direction = _direction(problem, u, g, h)
        decrement = float((g * direction).sum())
        if not (np.isfinite(now) and np.isfinite(decrement) and decrement > 0):
            break
        length, below = 1.0, now + 1e-13 * abs(now)  # rounding
        while length > 1e-10 and not problem.value(u - length * direction) <= below - 1e-4 * length * decrement:
            length /= 2
        if length <= 1e-10:
            break
        u = u - length * direction
        now = problem.value(u)
    return u, max(gap, unsolved) if np.isfinite(gap) else np.inf, step


def _gap(problem: _Problem, g: torch.Tensor) -> float:
    """An upper bound of the remaining decrease of the objective; infinite while the intercepts' slopes are not 0."""
    if float(g[:, -1].abs().max()) > BALANCED * len(problem.y):
        return np.inf
    live = problem.ridge[:-1] > 0
    return float((g[:, :-1].square() / problem.ridge[:-1])[:, live].sum()) / 2


def _begin(problem: _Problem) -> torch.Tensor:
    """Weights of 0, and the intercepts that give each class its frequency."""
    u = problem.ridge.new_zeros(problem.k, len(problem.ridge))
    share = torch.bincount(problem.y, problem.weights, max(problem.k, 2)).double().clamp_min(1e-3 * RARE).log()
    u[:, -1] = share[1] - share[0] if problem.k == 1 else share - share.mean()
    return u


def _direction(problem: _Problem, u: torch.Tensor, g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """H⁻¹g by conjugate gradients (Nocedal & Wright 2006, algorithm 7.1)."""
    solve = factored(h)

    def solved(v: torch.Tensor) -> torch.Tensor:
        out = solve(v[:, None])[:, 0]
        if problem.k > 1:  # an intercept shared by all classes has no effect
            out[:, -1] -= out[:, -1].mean()
        return out

    x, r = torch.zeros_like(g), g.clone()
    q = solved(r)
    along, left = q.clone(), float((r * q).sum())
    first = left
    for _ in range(INNER):
        if not left > FORCING * FORCING * first:
            break
        product = problem.curved(u, along)
        bend = float((along * product).sum())
        if not bend > 0:
            break
        x, r = x + left / bend * along, r - left / bend * product
        q = solved(r)
        left, before = float((r * q).sum()), left
        along = q + left / before * along
    return x if bool((x != 0).any()) else q


def factored(h: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """A solver for matrices (k, d, d) whose rows and columns differ in scale: (k, m, d), or (m, d)."""
    size = h.diagonal(dim1=1, dim2=2).clamp_min(1e-300).rsqrt()
    h = h * size[:, :, None] * size[:, None]
    jitter, eye = 1e-15 * h.shape[1], torch.eye(h.shape[1], dtype=h.dtype, device=h.device)
    factor, failed = torch.linalg.cholesky_ex(h + jitter * eye)
    while bool(failed.any()) and jitter < 1:
        jitter *= 100
        factor, failed = torch.linalg.cholesky_ex(h + jitter * eye)

    def solve(v: torch.Tensor) -> torch.Tensor:
        wide = v if v.ndim == 3 else v[None]
        out = size[:, None] * torch.cholesky_solve((size[:, None] * wide).mT, factor).mT
        return out if v.ndim == 3 else out[0]

    return solve
