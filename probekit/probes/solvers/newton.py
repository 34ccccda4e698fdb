"""Many logistic regressions on the same features at once: all label sets and penalties share each pass over X.

Each problem minimises Σᵢ wᵢ loss(yᵢ, xᵢ) + ½ λ |w|², the intercept free: scikit-learn's objective with λ = 1/C.
The problems share the eigenvectors V of the features' Gram matrix. In that basis the Hessian at w = 0 is diagonal,
μγⱼ + λ with γⱼ the eigenvalues and μ the mean of p(1 - p), which makes L-BFGS (Liu & Nocedal 1989) nearly Newton's
method and independent of the features' scale and correlation. A pass over X multiplies it with the weights of all
problems that have not converged (a matrix product, not a product with a vector). Binary problems that remain slow
(easy labels: p(1 - p) differs much between rows) get a separate Hessian, from rows drawn in proportion to p(1 - p).

A problem has converged when its Newton decrement gᵀH⁻¹g, twice the remaining decrease of the objective, is at most the
tolerance (Boyd & Vandenberghe 2004, section 9.5.1): a measure independent of scale, C and n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from probekit.probes.solvers.basis import Basis
from probekit.probes.solvers.design import Design, product

MEMORY = {"binary": 12, "multinomial": 30}  # pairs that L-BFGS remembers
WIDE = 32  # weight vectors that fill a matrix product
BUDGET = 1 << 28  # bytes for them, which bounds how many weight vectors are iterated together
SLOW = (12, 20, 32, 50, 80, 120)  # iterations after which slow binary problems get separate Hessians
OWN = 12  # most separate Hessians at a time
RARE = 1e-9  # p(1 - p) of a class without rows: its intercept would decrease for ever, and is kept
Watch = Callable[[np.ndarray, torch.Tensor, torch.Tensor], np.ndarray]
Pair = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # of L-BFGS: s, y, 1/sᵀy
STALLED = 300  # iterations without a smaller decrement than before, after which only rounding is left
SAMPLE = 16  # rows drawn for such a Hessian, times the features


@dataclass(frozen=True, slots=True)
class Problems:
    """Problem p: the labels codes[target[p]] with λ = penalty[p].

    Attributes
    ----------
    codes : torch.Tensor
        Int (targets, m) below ``classes``, of the design's rows; two classes have one weight vector, for class 1.
    target, penalty : np.ndarray
        (problems,).
    weights : torch.Tensor, optional
        Float (targets, m) of the rows, for None all 1.
    """

    codes: torch.Tensor
    classes: int
    target: np.ndarray
    penalty: np.ndarray
    weights: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.target)

    @property
    def k(self) -> int:
        """Weight vectors of a problem."""
        return 1 if self.classes == 2 else self.classes


@dataclass(frozen=True, slots=True)
class Solution:
    """Attributes
    ----------
    weights : torch.Tensor
        float64 (problems, 1 or classes, d), on x - centre; intercepts (problems, 1 or classes).
    decrement : np.ndarray
        Newton decrement reached, (problems,).
    iterations : np.ndarray
        (problems,).
    """

    weights: torch.Tensor
    intercepts: torch.Tensor
    decrement: np.ndarray
    iterations: np.ndarray


def solve(
    design: Design,
    basis: Basis,
    problems: Problems,
    *,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
    tol: float = 1e-4,
    max_iter: int = 5000,
    watch: Watch | None = None,
    proven: bool = False,
) -> Solution:
    """Solve all problems.

    Parameters
    ----------
    basis : Basis
        Of the design's rows.
    start : tuple[torch.Tensor, torch.Tensor], optional
        Weights (problems, 1 or classes, d) and intercepts to start from. By default problems of more than two classes
        start from an extrapolation of the solutions at stronger penalties, if they are enough to fill a matrix product.
    watch : Callable, optional
        Receives solved targets (b,), with their weights and intercepts, and returns which targets (b,) need no weaker
        penalty: these get the weights of the last penalty solved.
    proven : bool, default False
        Count the penalty as the only curvature of the weights, which bounds the decrement for rows of any size.
    """
    target, penalty, k = problems.target, problems.penalty, problems.k
    turn = (basis.vectors * basis.scale[:, None]).T.to(design.dtype)
    data = _Data(design.held(), basis, problems.codes, problems.classes, problems.weights, turn)
    best = torch.zeros((len(target), k, basis.rank + 1), dtype=torch.float64, device=design.device)
    decrement, iterations = np.full(len(target), np.nan), np.zeros(len(target), dtype=int)
    path: dict[int, list[tuple[float, torch.Tensor]]] = {}  # of each target: penalties and solutions so far
    memory = MEMORY["binary" if k == 1 else "multinomial"]
    size = max(1, BUDGET // (16 * memory * k * (basis.rank + 1)))
    order = np.argsort(target, kind="stable")
    if k > 1 and k * (targets := len(np.unique(target))) >= WIDE:
        size = min(size, targets)  # one penalty after another, each target from where the last one led
        order = np.argsort(-penalty, kind="stable")
    ended: set[int] = set()
    for at in range(0, len(order), size):
        batch = order[at : at + size]
        over = np.isin(target[batch], list(ended))
        for p in batch[over]:
            best[p], decrement[p] = path[target[p]][-1][1], 0.0
        batch = batch[~over]
        if not len(batch):
            continue
        first = None
        if start is not None:
            first = basis.inside(start[0][batch], start[1][batch])
        elif k > 1 and all(t in path for t in target[batch]):
            first = torch.stack([_ahead(path[t], p) for t, p in zip(target[batch], penalty[batch], strict=True)])
        found = _minimise(data, target[batch], penalty[batch], first, tol, max_iter, memory, proven)
        best[batch], decrement[batch], iterations[batch] = found
        if k > 1:
            for t, p, a in zip(target[batch], penalty[batch], found[0], strict=True):
                path[t] = [*path.get(t, [])[-1:], (p, a)]
            if watch is not None and len(np.unique(target[batch])) == len(batch):
                ended |= set(target[batch][watch(target[batch], *basis.outside(found[0]))].tolist())
    return Solution(*basis.outside(best), decrement, iterations)


def _ahead(path: list[tuple[float, torch.Tensor]], penalty: float) -> torch.Tensor:
    """A guess of the next solution: weights grow with the logarithm of C (Rosset et al. 2004)."""
    (before, a), (last, b) = path[0], path[-1]
    return b if before <= last or penalty >= last else b + (b - a) * (np.log(last / penalty) / np.log(before / last))


@dataclass(frozen=True, slots=True)
class _Data:
    design: Design
    basis: Basis
    codes: torch.Tensor
    classes: int
    weights: torch.Tensor | None
    turn: torch.Tensor  # (r, d): of a slope by weights, in the design's precision, makes one by coordinates

    def gradient(
        self, a: torch.Tensor, target: torch.Tensor, penalty: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradient at coordinates a (p, k, r + 1), of the same shape; and the mean of w p(1 - p), (p, k)."""
        p, k, _ = a.shape
        w, b = self.basis.outside(a)
        w, b = w.reshape(p * k, -1).to(self.design.dtype), b.reshape(-1, 1).to(self.design.dtype)
        slope, steep, spread = torch.zeros_like(w), torch.zeros_like(b), torch.zeros_like(b)
        for at, block in self.design.blocks():
            z = product(w, block)
            z += b
            y = self.codes[:, at]
            if k == 1:
                z.sigmoid_()
                wrong = z - y.to(z.dtype)[target]
            else:
                z = torch.softmax(z.view(p, k, -1), 1)
                one = z.new_full((p, 1, len(block)), -1.0)
                wrong = z.scatter_add(1, y.long()[target][:, None], one).view(p * k, -1)
                z = z.view(p * k, -1)
            if self.weights is None:
                spread += (z.sum(1) - torch.linalg.vecdot(z, z))[:, None]
            else:
                row_weights = self.weights[:, at][target].repeat_interleave(k, 0)
                wrong *= row_weights
                spread += (row_weights * (z - z * z)).sum(1, keepdim=True)
            slope += product(wrong, block.T)
            steep += wrong.sum(1, keepdim=True)
        g = torch.cat([product(slope, self.turn), steep], 1).double().view(p, k, -1)
        g[..., :-1] += penalty[:, None, None] * a[..., :-1]
        return g, spread.view(p, k).double() / self.basis.rows

    def hessian(self, a: torch.Tensor, target: int, penalty: float, mean: float, seed: int) -> torch.Tensor:
        """Cholesky factor of one binary problem's Hessian, (r + 1, r + 1), from about SAMPLE·d rows.

        A row is drawn with probability proportional to its p(1 - p), and weighted by the inverse probability.
        """
        generator = torch.Generator(self.design.device).manual_seed(seed)
        w, b = self.basis.outside(a[None])
        w, b = w[0].to(self.design.dtype), b[0].to(self.design.dtype)
        d = self.design.width
        rate = SAMPLE * d / max(mean * self.basis.rows, 1e-300)
        h = torch.zeros((d + 1, d + 1), dtype=self.design.dtype, device=self.design.device)
        for at, block in self.design.blocks():
            p = torch.sigmoid(product(w, block)[0] + b)
            spread = p * (1 - p)
            if self.weights is not None:
                spread = spread * self.weights[target, at]
            chance = (rate * spread).clamp_max(1)
            drawn = torch.rand(len(p), generator=generator, device=p.device, dtype=p.dtype) < chance
            root = (spread[drawn] / chance[drawn]).sqrt()[:, None]
            rows = torch.cat([block[drawn] * root, root], 1)
            if rows.device.type == "cpu":
                h += torch.from_numpy(rows.numpy().T @ rows.numpy())
            else:
                h += rows.T @ rows
        v = torch.zeros((d + 1, self.basis.rank + 1), dtype=torch.float64, device=h.device)
        v[:-1, :-1], v[-1, -1] = self.basis.scale[:, None] * self.basis.vectors, 1
        v = v.to(h.dtype)
        inside = (v.T @ h @ v).double()
        # a little curvature for directions that the sample misses; even a tenth of the mean would slow no problem
        inside.diagonal().add_(1e-3 * mean * self.basis.curvature)
        inside.diagonal()[:-1].add_(penalty)
        return torch.linalg.cholesky(inside)


class _Batch:
    """Problems that are iterated together, with their L-BFGS pairs and separate Hessians."""

    def __init__(
        self, data: _Data, target: np.ndarray, penalty: np.ndarray, start: torch.Tensor | None, memory: int
    ) -> None:
        self.data, self.memory, device = data, memory, data.design.device
        self.t = torch.as_tensor(target, device=device)
        self.lam = torch.as_tensor(penalty, dtype=torch.float64, device=device)
        if start is None:  # at w = 0 all penalties of a target have the same gradient
            which, back = np.unique(target, return_inverse=True)
            a = _priors(data, which, 1 if data.classes == 2 else data.classes, data.basis.rank + 1)
            g, mean = data.gradient(a, torch.as_tensor(which, device=device), self.lam.new_zeros(len(which)))
            self.a, self.g, self.mean = a[back].clone(), g[back].clone(), mean[back].clone()
        else:
            self.a = start
            self.g, self.mean = data.gradient(start, self.t, self.lam)
        self.number = torch.arange(len(target), device=device)
        self.scale = self.lam.new_ones(len(target))
        self.least, self.since = self.lam.new_full((len(target),), torch.inf), torch.zeros_like(self.number)
        self.history: list[Pair] = []
        self.own: dict[int, torch.Tensor] = {}  # Cholesky factors by number

    def precondition(self, v: torch.Tensor) -> torch.Tensor:
        curve = self.mean[..., None].clamp_min(RARE) * self.data.basis.curvature
        curve[..., :-1] += self.lam[:, None, None]
        out = v / curve.clamp_min(1e-300)
        for at, problem in enumerate(self.number.tolist() if self.own else ()):
            if problem in self.own:
                out[at, 0] = torch.cholesky_solve(v[at, 0, :, None], self.own[problem])[:, 0]
        if v.shape[1] > 1:  # a component shared by all classes affects only the penalty
            out[..., :-1] -= out[..., :-1].mean(1, keepdim=True)
        return out

    def direction(self) -> torch.Tensor:
        return -_two_loops(self.g, self.history, self.precondition, self.scale)

    def stalled(self, decrement: torch.Tensor) -> torch.Tensor:
        """Which problems have had no smaller decrement for a long time."""
        self.since = torch.where(decrement < self.least, 0, self.since + 1)
        self.least = torch.minimum(decrement, self.least)
        return self.since >= STALLED

    def keep(self, which: torch.Tensor) -> None:
        for name in ("number", "t", "lam", "a", "g", "mean", "scale", "least", "since"):
            setattr(self, name, getattr(self, name)[which])
        self.history = [(s[which], y[which], inverse[which]) for s, y, inverse in self.history]

    def own_hessians(self, decrement: torch.Tensor, seed: int) -> None:
        """Restart the slowest binary problems with separate Hessians."""
        worst = torch.argsort(decrement, descending=True)[:OWN].tolist()
        self.own = {
            int(self.number[i]): self.data.hessian(
                self.a[i], int(self.t[i]), float(self.lam[i]), float(self.mean[i, 0]), seed
            )
            for i in worst
        }
        self.history.clear()
        self.scale = torch.ones_like(self.scale)

    def step(self, direction: torch.Tensor, falls: torch.Tensor) -> None:
        self.a, self.g, self.mean, pair = _step(
            self.data, self.a, self.g, self.mean, direction, falls, self.t, self.lam
        )
        self.history = [*self.history[1 - self.memory :], pair]
        _, y, inverse = pair
        bend = _dot(y, self.precondition(y)) * inverse  # yᵀH⁻¹y / sᵀy: by how much the preconditioner is off
        self.scale = torch.where(bend > 0, 1 / bend.clamp_min(1e-300), 1.0)


def _minimise(
    data: _Data,
    target: np.ndarray,
    penalty: np.ndarray,
    start: torch.Tensor | None,
    tol: float,
    max_iter: int,
    memory: int,
    proven: bool,
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """L-BFGS on a batch of problems: coordinates, decrements, iterations. Converged problems leave the batch."""
    batch = _Batch(data, target, penalty, start, memory)
    best, left = torch.empty_like(batch.a), np.full(len(target), np.inf)
    iterations = np.full(len(target), max_iter)
    for iteration in range(max_iter + 1):
        direction = batch.direction()
        falls = -_dot(batch.g, direction)
        decrement = torch.maximum(falls, _dot(batch.g, batch.precondition(batch.g)))
        if proven:
            decrement = torch.maximum(decrement, _dot(batch.g[..., :-1], batch.g[..., :-1]) / batch.lam)
        done = (decrement <= tol) | (iteration == max_iter) | ~decrement.isfinite() | batch.stalled(decrement)
        if done.any():
            at = batch.number[done].cpu().numpy()
            best[batch.number[done]], left[at], iterations[at] = batch.a[done], decrement[done].cpu().numpy(), iteration
            batch.keep(~done)
            direction, falls, decrement = (v[~done] for v in (direction, falls, decrement))
            if not len(batch.a):
                break
        slow = len(direction[0]) == 1 and iteration in SLOW and not proven
        if slow and data.basis.rows > SAMPLE * data.design.width:  # else steps are cheaper
            batch.own_hessians(decrement, iteration)
            direction = -batch.precondition(batch.g)
            falls = -_dot(batch.g, direction)
        batch.step(direction, falls)
    return best, left, iterations


def _priors(data: _Data, which: np.ndarray, k: int, size: int) -> torch.Tensor:
    """Weights of 0, and the intercepts that give each class its frequency."""
    a = torch.zeros((len(which), k, size), dtype=torch.float64, device=data.design.device)
    for at, target in enumerate(which):
        weights = None if data.weights is None else data.weights[target].double()
        share = torch.bincount(data.codes[target].long(), weights, data.classes).double().clamp_min(1e-3 * RARE).log()
        a[at, :, -1] = share[1] - share[0] if k == 1 else share - share.mean()
    return a


def _step(
    data: _Data,
    a: torch.Tensor,
    g: torch.Tensor,
    mean: torch.Tensor,
    direction: torch.Tensor,
    falls: torch.Tensor,
    t: torch.Tensor,
    lam: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Pair]:
    """Step along ``direction`` until the slope would rise steeply; returns the new point and (s, y, 1/sᵀy).

    Only slopes decide: the sum of float32 losses is too coarse near the minimum, and the objective is convex.
    """
    length = torch.ones_like(falls)
    new = a + direction
    new_g, new_mean = data.gradient(new, t, lam)
    for _ in range(30):
        slope = _dot(new_g, direction)
        over = (slope > 0.9 * falls) | ~slope.isfinite()
        if not over.any():
            break
        rate = torch.where(slope.isfinite(), falls / (falls + slope), 0.1)[over]  # the zero of a linear slope
        length[over] *= rate.clamp(0.05, 0.6)
        new[over] = a[over] + length[over, None, None] * direction[over]
        new_g[over], new_mean[over] = data.gradient(new[over], t[over], lam[over])
    s, y = new - a, new_g - g
    sy = _dot(s, y)
    sound = sy > 1e-12 * (_dot(s, s) * _dot(y, y)).sqrt()  # otherwise only rounding is left
    return new, new_g, new_mean, (s, y, torch.where(sound & (sy > 1e-300), 1 / sy.clamp_min(1e-300), 0.0))


def _two_loops(
    g: torch.Tensor, history: list[Pair], precondition: Callable[[torch.Tensor], torch.Tensor], scale: torch.Tensor
) -> torch.Tensor:
    """The L-BFGS product H⁻¹g (Nocedal & Wright 2006, algorithm 7.4), for each problem separately."""
    q, along = g.clone(), []
    for s, y, inverse in reversed(history):
        along.append(inverse * _dot(s, q))
        q -= along[-1][:, None, None] * y
    q = precondition(q) * scale[:, None, None]
    for (s, y, inverse), first in zip(history, reversed(along), strict=True):
        q += (first - inverse * _dot(y, q))[:, None, None] * s
    return q


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vecdot(a.flatten(1), b.flatten(1))
