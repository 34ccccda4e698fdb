"""Logistic regression for many label sets and penalties on the same features, solved together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax

from probekit.errors import NonFiniteError
from probekit.probes.solvers.basis import Basis
from probekit.probes.solvers.design import Design, middle, moments, narrowed, precision, product, resident
from probekit.probes.solvers.exact import polished, solve_exactly
from probekit.probes.solvers.newton import Problems, Solution, solve
from probekit.runtime import torch_threads
from probekit.statistics.moments import Moments

CS = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0)
"""Default penalties C (inverse strength) to try, for standardised features.

The grid is finer where the best C usually lies; with thousands of rows, C = 1 is almost no penalty.
"""
PATIENCE = 100  # iterations after which problems with rows that dominate directions are solved one by one


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """Models of ``targets`` label sets × ``Cs``.

    Attributes
    ----------
    weights : np.ndarray
        float64 (targets, Cs, 1 or classes, d), on x - centre; intercepts (targets, Cs, 1 or classes).
    decrement : np.ndarray
        Newton decrement (targets, Cs).
    """

    weights: np.ndarray
    intercepts: np.ndarray
    centre: np.ndarray
    decrement: np.ndarray
    iterations: np.ndarray
    tol: float

    @property
    def converged(self) -> np.ndarray:
        """Whether each problem's decrement is within the tolerance, bool (targets, Cs)."""
        return self.decrement <= self.tol

    def logits(self, x: Any, rows: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> np.ndarray:
        """x·w + b of rows of ``x``, (targets, Cs, 1 or classes, m); one logit, that of class 1, for two classes."""
        t, c, k, d = self.weights.shape
        w = torch.as_tensor(self.weights.reshape(-1, d)).to(dtype)
        out = Design(x, rows, self.centre, dtype=dtype)(w).numpy().reshape(t, c, k, -1)
        out += self.intercepts[..., None]
        return out

    def log_proba(self, x: Any, rows: np.ndarray | None = None, dtype: torch.dtype = torch.float32) -> np.ndarray:
        """Natural logarithms of class probabilities, (targets, Cs, m, classes)."""
        z = self.logits(x, rows, dtype)
        if z.shape[2] == 1:
            return np.stack([-np.logaddexp(0, z[:, :, 0]), -np.logaddexp(0, -z[:, :, 0])], -1)
        return log_softmax(np.moveaxis(z, 2, 3), -1)

    def outcome(self, x: Any, rows: np.ndarray | None, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate the models on rows of ``x`` with the labels codes (targets, m), without storing probabilities.

        Returns the log loss of each row, float32 nats (targets, Cs, m), and the predicted class, (targets, Cs, m).
        Raises NonFiniteError if a feature is NaN or infinite.
        """
        t, c, k, d = self.weights.shape
        w = torch.as_tensor(self.weights.reshape(-1, d), dtype=torch.float32)
        b = torch.as_tensor(self.intercepts.reshape(-1, 1), dtype=torch.float32)
        design = Design(x, rows, self.centre)
        loss = np.empty((t, c, len(design)), dtype=np.float32)
        predicted = np.empty(loss.shape, dtype=np.int32)
        for at, block in design.blocks():
            z = (product(w, block) + b).view(t, c, k, -1)
            if not z.sum().isfinite():
                raise NonFiniteError("the features hold NaN or infinity.")
            y = torch.as_tensor(codes[:, at].astype(np.int64))[:, None].expand(t, c, -1)
            if k == 1:
                z = z[:, :, 0]
                right = torch.where(y == 1, z, -z)
                loss[:, :, at], predicted[:, :, at] = torch.nn.functional.softplus(-right), z > 0
            else:
                gold = torch.gather(z, 2, y[:, :, None])[:, :, 0]
                loss[:, :, at], predicted[:, :, at] = torch.logsumexp(z, 2) - gold, z.argmax(2)
        return loss, predicted

    def choose(self, penalties: np.ndarray) -> LogisticFit:
        """For each target the model with one penalty, given by index, as a fit with a single C."""
        at = (np.arange(len(self.weights)), np.asarray(penalties))
        pick = [v[at][:, None] for v in (self.weights, self.intercepts, self.decrement, self.iterations)]
        return LogisticFit(pick[0], pick[1], self.centre, pick[2], pick[3], self.tol)


def fit_logistic(
    x: Any,
    codes: np.ndarray,
    classes: int,
    Cs: Sequence[float] | np.ndarray,
    *,
    rows: np.ndarray | None = None,
    sums: Moments | None = None,
    standardise: bool = True,
    weights: np.ndarray | None = None,
    start: LogisticFit | None = None,
    tol: float | None = None,
    max_iter: int = 5000,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    watch: Turned | None = None,
) -> LogisticFit:
    """Multinomial (two classes: binary) logistic regression of every label set at every penalty.

    Parameters
    ----------
    x : Any
        (n, d) array or memory map.
    codes : np.ndarray
        Int (targets, m) below ``classes``.
    Cs : Sequence[float] | np.ndarray
        (Cs,), or (targets, Cs) if targets differ.
    rows : np.ndarray, optional
        Int (m,), indices of the rows (default: all).
    sums : Moments, optional
        Moments of those rows (default: computed).
    standardise : bool, default True
        Apply the penalty to standardised features.
    weights : np.ndarray, optional
        Float (targets, m), weights of the rows (default: 1).
    start : LogisticFit, optional
        Models of the same targets and Cs to start from.
    tol : float, optional
        Newton decrement; by default 2e-9·m, at most 1e-4, which keeps logits within about 1e-4 (root mean square) of
        the optimum if p(1 - p) is not small, and within 1e-3 if labels are easy or rare; in float64 1e-6.
    dtype : torch.dtype, optional
        See ``precision``.
    watch : Turned, optional
        Ends the path of a target when its held-out loss increases: its weaker penalties get the last solved model. Has
        no effect if all problems are solved at once (two classes; few rows).
    """
    count = x.shape[0] if rows is None else len(rows)
    dtype = dtype or precision(count, x.shape[1])
    close = tol is None
    if tol is None:
        tol = 1e-6 if dtype == torch.float64 else min(1e-4, 2e-9 * count)
    if count < x.shape[1]:
        reduced, sums, mean, back, shift = narrowed(x, rows, standardise=standardise)
        fit = fit_logistic(
            reduced, codes, classes, Cs, sums=sums, standardise=False, weights=weights, tol=None if close else tol,
            max_iter=max_iter, dtype=dtype, device=device,
        )  # fmt: skip
        wide = fit.weights @ back.T
        return replace(fit, weights=wide, intercepts=fit.intercepts + wide @ shift, centre=mean)
    x = resident(x, device)
    problems, shape = _problems(codes, classes, Cs, weights, dtype, device)
    with torch_threads(1):
        if sums is None:
            [sums] = moments(x, [rows], dtype=dtype, device=device)
        centre = middle(x, sums.mean)
        design = Design(x, rows, centre, sums.inverse_deviation if standardise else None, dtype, device)
        basis = Basis.of(design, sums)
        if basis.sound(design, float(problems.penalty.min())):
            first = None if start is None else _moved(start, centre, (*shape, problems.k, x.shape[1]), device)
            seen = None if watch is None else partial(watch, centre)
            found = solve(design, basis, problems, start=first, tol=tol, max_iter=max_iter, watch=seen)
            if close and dtype == torch.float64:
                found = polished(found, replace(design, scale=None), design.factors, problems, tol=tol)
        else:
            design, found = _with_care(design, standardise, problems, tol, max_iter, close)
    return LogisticFit(
        found.weights.cpu().numpy().reshape(*shape, problems.k, -1),
        found.intercepts.cpu().numpy().reshape(*shape, problems.k),
        design.centre,
        found.decrement.reshape(shape),
        found.iterations.reshape(shape),
        tol,
    )


def _problems(
    codes: np.ndarray,
    classes: int,
    Cs: Sequence[float] | np.ndarray,
    weights: np.ndarray | None,
    dtype: torch.dtype,
    device: str,
) -> tuple[Problems, tuple[int, int]]:
    """All label sets at all penalties, and the numbers of both."""
    strength = np.broadcast_to(np.asarray(Cs, dtype=np.float64), (len(codes), np.shape(Cs)[-1]))
    if classes > 2:  # the softmax weights ±w/2 of two classes have half the penalty of the w of a binary regression
        strength = strength / np.array([[2 if len(np.unique(y)) == 2 else 1] for y in codes])
    problems = Problems(
        torch.tensor(codes.astype(np.int8 if classes < 128 else np.int32), device=device),
        classes,
        np.repeat(np.arange(len(codes)), strength.shape[1]),
        1 / strength.ravel(),
        None if weights is None else torch.tensor(weights, dtype=dtype, device=device),
    )
    return problems, strength.shape


def _moved(
    start: LogisticFit, centre: np.ndarray, shape: tuple[int, ...], device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and intercepts of a fit about another centre, for problems of ``shape`` (targets, Cs, k, d)."""
    shift = np.einsum("tckd,d->tck", start.weights, centre - start.centre)
    wide = np.broadcast_to(start.weights, shape).reshape(-1, *shape[2:])
    bias = np.broadcast_to(start.intercepts + shift, shape[:3]).reshape(-1, shape[2])
    return tuple(torch.tensor(v, dtype=torch.float64, device=device) for v in (wide, bias))  # type: ignore[return-value]


class Turned:
    """Held-out rows of x that decide when a path, from strong to weak penalties, has passed its minimum loss.

    The path of a target with ``may`` (targets,) ends when its last two losses are above its minimum, the last by more,
    each by a hundredth and by three standard errors of the difference. This is safe for shuffled labels, because weaker
    penalties only fit the noise more closely.
    """

    def __init__(self, x: Any, rows: np.ndarray, codes: np.ndarray, may: np.ndarray) -> None:
        self.x, self.rows, self.codes, self.may = x, rows, codes, may
        self._least: dict[int, np.ndarray] = {}
        self._last: dict[int, tuple[bool, float]] = {}

    def __call__(
        self, centre: np.ndarray, targets: np.ndarray, weights: torch.Tensor, intercepts: torch.Tensor
    ) -> np.ndarray:
        """Which paths (b,) end, given the models (b, classes, d) and (b, classes) at the next penalty."""
        out = np.zeros(len(targets), dtype=bool)
        at = np.flatnonzero(self.may[targets])
        if not len(at):
            return out
        w, b = (v[at].cpu().numpy()[:, None] for v in (weights, intercepts))
        none = np.zeros((len(at), 1))
        loss, _ = LogisticFit(w, b, centre, none, none, 0.0).outcome(self.x, self.rows, self.codes[targets[at]])
        for i, t, [losses] in zip(at, targets[at].tolist(), loss, strict=True):
            least, mean = self._least.get(t), float(losses.mean(dtype=np.float64))
            if least is None or mean <= float(least.mean(dtype=np.float64)):
                self._least[t], self._last[t] = losses, (False, mean)
                continue
            gap = (losses - least).astype(np.float64)
            worse = gap.mean() > max(0.01 * float(least.mean()), 3 * gap.std() / np.sqrt(len(gap)))
            before, last = self._last[t]
            out[i] = worse and before and mean > last
            self._last[t] = bool(worse), mean
        return out


def _with_care(
    rough: Design, standardise: bool, problems: Problems, tol: float, max_iter: int, close: bool
) -> tuple[Design, Solution]:
    """Solve with sums in float64, and, where these do not suffice either, with Newton's method for each problem.

    If single rows dominate directions, as where few vectors are distinct, all problems together mostly need only some
    more iterations, to a decrement that is proven for any rows.
    """
    x, rows, device = rough.x, rough.rows, rough.device
    [sums] = moments(x, [rows], dtype=torch.float64, device=device)
    plain = Design(x, rows, middle(x, sums.mean), None, torch.float64, device)
    design = replace(plain, scale=sums.inverse_deviation if standardise else None)
    if problems.weights is not None:
        problems = replace(problems, weights=problems.weights.double())
    basis = Basis.of(design, sums)
    if basis.sound(design, float(problems.penalty.min())):
        return design, solve(design, basis, problems, tol=tol, max_iter=max_iter)
    if not basis.complete(design, float(problems.penalty.min())):
        return design, solve_exactly(plain, design.factors, problems, tol=tol)
    found = solve(design, basis, problems, tol=tol, max_iter=min(max_iter, PATIENCE), proven=True)
    if close:
        found = polished(found, plain, design.factors, problems, tol=tol)
    left = np.flatnonzero(~(found.decrement <= tol))
    if len(left):
        rest = replace(problems, target=problems.target[left], penalty=problems.penalty[left])
        exact = solve_exactly(plain, design.factors, rest, tol=tol)
        found.weights[left], found.intercepts[left] = exact.weights, exact.intercepts
        found.decrement[left], found.iterations[left] = exact.decrement, exact.iterations
    return design, found


def balanced(codes: np.ndarray, classes: int, weights: np.ndarray | None) -> np.ndarray:
    """Weights (targets, n) that give every class of a target the same total: n / (classes · count)."""
    out = np.ones(codes.shape) if weights is None else weights.copy()
    for y, w in zip(codes, out, strict=True):
        count = np.bincount(y, w, classes)
        w *= (count.sum() / (np.count_nonzero(count) * np.maximum(count, 1e-300)))[y]
    return out
