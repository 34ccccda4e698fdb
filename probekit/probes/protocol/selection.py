"""Choice of a probe's setting: fit every label set × setting on folds of train, then the best one on all of train.

Nothing here uses the evaluated data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol

import numpy as np
import torch
import xxhash

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.sizes import check_memory
from probekit.probes.solvers import attention, ksparse, mass_mean, mlp, monitor, screening
from probekit.probes.solvers._path import ROWS, Path, block_rows
from probekit.probes.solvers.design import moments, precision
from probekit.probes.solvers.logistic import CS, LogisticFit, Turned, balanced, fit_logistic
from probekit.probes.solvers.ridge import ALPHAS, RidgeFit, fit_ridge
from probekit.probes.solvers.scores import Score
from probekit.statistics.calibration import temperature
from probekit.statistics.moments import Moments

__all__ = [
    "Board", "Chosen", "Estimator", "Fitted", "Outcome", "Paths", "Problem", "Ridge", "digest_of", "edge_of", "grid",
    "refit", "select",
]  # fmt: skip

ROUGH = 2e-8  # tolerance per row, at most 1e-3 nats, of fits on folds, which only serve to choose
Outcome = tuple[np.ndarray | None, np.ndarray]
"""Log losses (targets, settings, m) in nats, None for numbers; and predictions of the same shape."""
Criterion = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]
"""Labels (T, m), predictions (T, S, m), log losses (T, S, m) → the criterion to minimise, (T, S)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Features and label sets of the rows to fit.

    Attributes
    ----------
    x : Any
        (n, d) array, memory map …
    rows : np.ndarray
        Int (m,), the labelled rows.
    y : np.ndarray
        Their codes or numbers (targets, m).
    classes : int
        Number of classes; 0 for numbers.
    fold : np.ndarray
        Int (m,), -1 for rows that are never held out.
    groups : np.ndarray, optional
        (m,), groups of rows, for probes that hold rows out themselves.
    apart : np.ndarray, optional
        Int (m, 2), two folds that are not fitted on each row (that of its word type and that of its sentence); the row
        is held out if they are the same. None if each row is fitted on in all folds but one.
    shuffled : np.ndarray, optional
        Bool (targets,), label sets without signal: their paths may end when the loss increases. The paths of the others
        never end early, because a signal in directions of low variance appears last and may matter most.
    scores : str
        How a monitor's scores of pieces become one.
    """

    x: Any
    rows: np.ndarray
    y: np.ndarray
    classes: int
    fold: np.ndarray
    estimator: Estimator
    settings: tuple[float, ...]
    balanced: bool = False
    max_iter: int = 5000
    calibrate: bool = False
    groups: np.ndarray | None = None
    seed: int = 0
    apart: np.ndarray | None = None
    shuffled: np.ndarray | None = None
    scores: str = "rolling:10"

    def without(self, f: int) -> np.ndarray:
        """The rows that are not fitted on for fold ``f``, bool (m,)."""
        return self.fold == f if self.apart is None else (self.apart == f).any(1)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A probe of each target, fitted on all rows with its best setting.

    Attributes
    ----------
    setting, held_out, decrement : np.ndarray
        (targets,): the best setting, its criterion on held-out rows, and the Newton decrement of its fit.
    converged : np.ndarray
        Whether all fits involved converged.
    edge : np.ndarray
        Whether the setting is the first or last and clearly better than its neighbour (by at least a thousandth; for
        log losses also by more than a standard error).
    digest : tuple[str, ...]
        Digests of the coefficients, hexadecimal.
    temperature : np.ndarray
        (targets,), fitted on the last fold (Guo et al. 2017, section 4.2); 1 without ``calibrate``.
    """

    fitted: Fitted
    setting: np.ndarray
    held_out: np.ndarray
    edge: np.ndarray
    converged: np.ndarray
    decrement: np.ndarray
    digest: tuple[str, ...]
    temperature: np.ndarray


class Fitted(Protocol):
    """Probes of targets × settings."""

    @property
    def converged(self) -> np.ndarray: ...
    @property
    def decrement(self) -> np.ndarray: ...

    def outcome(self, x: Any, rows: np.ndarray | None, y: np.ndarray) -> Outcome: ...
    def log_proba(self, x: Any, rows: np.ndarray | None) -> np.ndarray: ...


def select(problem: Problem, criterion: Criterion | None, tick: Callable[[], Any] = lambda: None) -> Chosen:
    """Choose each target's setting by its mean loss on the folds, and fit all rows with it.

    Ties go to the first setting, the strongest penalty; a setting that merely copies the model before it, because the
    path of shuffled labels has ended, is therefore not chosen. Rows of a class that the fitted folds lack are not
    informative and do not count.

    Parameters
    ----------
    criterion : Criterion | None
        Criterion on the held-out rows of all folds together (default: the mean log loss; squared error for numbers).
    tick : callable
        Called after the fits of each fold, and after the last fit.
    """
    p, folds = problem, range(int(problem.fold.max()) + 1)
    check_memory(p.x, len(p.rows), p.estimator, len(folds))
    dtype = precision(len(p.rows), p.x.shape[1])
    linear = p.estimator in (Estimator.LOGISTIC, Estimator.RIDGE)
    settings = np.asarray(p.settings, dtype=float)
    sums, total = _moments(p, folds, dtype) if linear and len(p.rows) >= p.x.shape[1] else ([], None)
    shape = (len(p.y), len(settings))
    board, converged, fitted = Board(shape), np.ones(shape, dtype=bool), None
    outcomes: list[tuple[np.ndarray, Outcome]] = []
    rough = None if dtype == torch.float64 else min(1e-3, ROUGH * len(p.rows))
    tried = len(settings) > 1 or (p.calibrate and p.classes > 0)
    for f in folds if tried else ():
        held, out = p.fold == f, p.without(f)
        fitted_sums = None if total is None else total.without(sums[f])
        watch = None
        if p.estimator is Estimator.LOGISTIC and p.classes > 2 and criterion is None and p.shuffled is not None:
            watch = Turned(p.x, p.rows[held], p.y[:, held], p.shuffled)
        fitted = _fit(p, ~out, settings, fitted_sums, None, dtype, watch, rough)
        converged &= fitted.converged
        loss, predicted = fitted.outcome(p.x, p.rows[held], p.y[:, held])
        if loss is None:
            loss = (predicted - p.y[:, None, held]) ** 2
        unseen = np.zeros(p.y[:, held].shape, dtype=bool)
        if p.classes:
            for i, y in enumerate(p.y):
                unseen[i] = ~np.isin(y[held], y[~out])
        board.add(loss, ~unseen)
        if criterion is not None:
            outcomes.append((held, (loss, predicted)))
        tick()
    if criterion is None:
        score = board.mean
    else:
        y = np.concatenate([p.y[:, held] for held, _ in outcomes], 1)
        score = criterion(y, *(np.concatenate([np.asarray(o[i]) for _, o in outcomes], 2) for i in (1, 0)))
    best: np.ndarray = np.zeros(len(p.y), dtype=np.int64)
    if tried:
        best = np.nan_to_num(score, nan=np.inf).argmin(1)
    heat = np.ones(len(p.y))
    if p.calibrate and p.classes and fitted is not None:
        log_p = fitted.log_proba(p.x, p.rows[held])[np.arange(len(p.y)), best]
        heat = np.concatenate([temperature(one[None], y[held]) for one, y in zip(log_p, p.y, strict=True)])
    start = fitted.choose(best) if isinstance(fitted, LogisticFit) else None
    final = _fit(p, np.ones(len(p.rows), dtype=bool), settings[best][:, None], total, start, dtype)
    tick()
    at = np.arange(len(p.y))
    return Chosen(
        final,
        settings[best],
        score[at, best] if tried else np.full(len(p.y), np.nan),
        board.edge(best) if criterion is None else edge_of(score, best),
        converged[at, best] & final.converged[:, 0],
        final.decrement[:, 0],
        tuple(digest_of(final, t) for t in range(len(p.y))),
        heat,
    )


def refit(problem: Problem, use: np.ndarray, settings: np.ndarray) -> Fitted:
    """Fit the rows of ``use``, bool (m,), with one setting for each target, (targets,)."""
    settings = np.asarray(settings, dtype=float)[:, None]
    return _fit(problem, use, settings, None, None, precision(len(problem.rows), problem.x.shape[1]))


def _moments(p: Problem, folds: Sequence[int], dtype: torch.dtype) -> tuple[list[Moments], Moments]:
    """Moments of the rows not fitted on for each fold, and of all rows."""
    if p.apart is not None:  # some rows belong to two of these sets
        *parts, total = moments(p.x, [*(p.rows[p.without(f)] for f in folds), p.rows], dtype=dtype)
        return parts, total
    parts = moments(p.x, [p.rows[p.fold == f] for f in (*folds, -1) if f >= 0 or (p.fold < 0).any()], dtype=dtype)
    return parts, reduce(add, parts)


class Board:
    """Sums of held-out losses, (targets, settings), and of the first and last setting's gain over their neighbours."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.count = np.zeros(shape[0])
        self.sum = np.zeros(shape)
        self.ends = np.zeros((2, 2, shape[0]))  # first and last: sums of differences, and of their squares

    def add(self, loss: np.ndarray, counts: np.ndarray) -> None:
        loss = np.where(counts[:, None], loss, 0)
        self.count += counts.sum(1)
        self.sum += loss.sum(2, dtype=np.float64)
        if loss.shape[1] > 1:
            for end, (a, b) in zip(self.ends, ((1, 0), (-2, -1)), strict=True):
                difference = (loss[:, a] - loss[:, b]).astype(np.float64)
                end += difference.sum(1), (difference**2).sum(1)

    @property
    def mean(self) -> np.ndarray:
        return self.sum / np.maximum(self.count, 1)[:, None]

    def edge(self, best: np.ndarray) -> np.ndarray:
        last = self.sum.shape[1] - 1
        least = (
            1e-3 * self.sum[np.arange(len(best)), best]
        )  # at least a thousandth of the loss, and more than a standard error
        first, end = ((total > np.sqrt(square)) & (total > least) for total, square in self.ends)
        return (last > 0) & np.where(best == 0, first, (best == last) & end)


def edge_of(score: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Whether the best setting of a criterion to minimise is the first or last, by a thousandth over the next."""
    at, last = np.arange(len(best)), score.shape[1] - 1
    beside = np.clip(best + np.where(best == 0, 1, -1), 0, last)
    gain = score[at, beside] - score[at, best]
    return (last > 0) & ((best == 0) | (best == last)) & (gain > 1e-3 * np.abs(score[at, best]))


def _fit(
    p: Problem,
    use: np.ndarray,
    settings: np.ndarray,
    sums: Moments | None,
    start: LogisticFit | None,
    dtype: torch.dtype,
    watch: Turned | None = None,
    tol: float | None = None,
) -> Fitted:
    """Fit the rows of ``use`` with settings (S,), or (targets, 1) for one setting per target."""
    rows = p.rows if use.all() else p.rows[use]
    y = p.y[:, use]
    weights = balanced(y, p.classes, None) if p.balanced else None
    if p.estimator is Estimator.RIDGE:
        return Ridge(fit_ridge(p.x, y, settings, rows=rows, sums=sums, dtype=dtype))
    if p.estimator is Estimator.LOGISTIC:
        return fit_logistic(
            p.x,
            y,
            p.classes,
            settings,
            rows=rows,
            sums=sums,
            weights=weights,
            start=start,
            tol=tol,
            dtype=dtype,
            max_iter=p.max_iter,
            watch=watch,
        )
    if p.estimator is Estimator.MONITOR:
        return _monitor(p, p.x.at(rows), y, settings, weights)
    if p.estimator is Estimator.ATTENTION:
        return _attention(p, p.x.at(rows), y, use, settings, weights)
    if p.estimator is Estimator.K_SPARSE and p.x.shape[1] > screening.WIDE:
        return _screened(p, rows, y, settings, weights)
    x = np.asarray(p.x[rows], dtype=np.float32)
    if not np.isfinite(x).all():
        raise NonFiniteError("the features contain NaN or infinity; no probe can be fitted on them.")
    mean, sd = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean)).astype(np.float32)
    mean = mean.astype(np.float32)
    np.subtract(x, mean, out=x)
    x *= scale

    def path(targets: np.ndarray, grid: Sequence[float]) -> Path:
        w = None if weights is None else weights[targets]
        if p.estimator is Estimator.MLP:
            return mlp.path(x, y[targets], p.classes, grid, seed=p.seed, weights=w, groups=_numbered(p, use))
        if p.estimator is Estimator.K_SPARSE:
            return ksparse.path(x, y[targets], p.classes, [int(k) for k in grid], weights=w)
        return mass_mean.path(x, y[targets], p.classes, grid, weights=w)

    return Paths(_members(len(y), settings, path), mean, scale)


def _screened(p: Problem, rows: np.ndarray, y: np.ndarray, settings: np.ndarray, weights: np.ndarray | None) -> Fitted:
    screen = screening.screen(p.x, rows, y, p.classes, weights)

    def path(targets: np.ndarray, grid: Sequence[float]) -> Path:
        w, own = None if weights is None else weights[targets], replace(screen, kept=screen.kept[targets])
        return screening.path(p.x, rows, y[targets], p.classes, [int(k) for k in grid], own, w)

    return Paths(_members(len(y), settings, path), screen.mean, screen.scale)


def _attention(
    p: Problem, x: attention.Sequences, y: np.ndarray, use: np.ndarray, settings: np.ndarray, weights: np.ndarray | None
) -> Fitted:
    def path(targets: np.ndarray, grid: Sequence[float]) -> attention.AttentionPath:
        w = None if weights is None else weights[targets]
        return attention.path(x, y[targets], p.classes, grid, seed=p.seed, weights=w, groups=_numbered(p, use))

    return Paths(_members(len(y), settings, path))


def _monitor(
    p: Problem, x: attention.Sequences, y: np.ndarray, settings: np.ndarray, weights: np.ndarray | None
) -> Fitted:
    def path(targets: np.ndarray, grid: Sequence[float]) -> monitor.MonitorPath:
        w, score = None if weights is None else weights[targets], Score.parse(p.scores)
        return monitor.path(x, y[targets], p.classes, grid, score=score, weights=w, max_iter=p.max_iter)

    return Paths(_members(len(y), settings, path))


def _numbered(p: Problem, use: np.ndarray) -> np.ndarray | None:
    """The groups of the rows of ``use``, 0, 1 …"""
    return None if p.groups is None else np.unique(p.groups[use], return_inverse=True)[1]


def _members(
    targets: int, settings: np.ndarray, path: Callable[[np.ndarray, Sequence[float]], Any]
) -> tuple[tuple[np.ndarray, Any], ...]:
    """One path of all targets, for settings (S,); for (targets, 1), one for each setting that is used."""
    everyone = np.arange(targets)
    if settings.ndim == 1:
        return ((everyone, path(everyone, list(settings))),)
    groups = [np.flatnonzero(settings[:, 0] == setting) for setting in np.unique(settings)]
    return tuple((at, path(at, [float(settings[at[0], 0])])) for at in groups)


@dataclass(frozen=True, slots=True)
class Ridge:
    fit: RidgeFit

    @property
    def converged(self) -> np.ndarray:
        return self.fit.converged

    @property
    def decrement(self) -> np.ndarray:
        return self.fit.decrement

    def outcome(self, x: Any, rows: np.ndarray | None, y: np.ndarray) -> Outcome:
        predicted = self.fit.predict(x, rows)
        if not np.isfinite(predicted).all():
            raise NonFiniteError("the features contain NaN or infinity.")
        return None, predicted

    def log_proba(self, x: Any, rows: np.ndarray | None) -> np.ndarray:
        raise UsageError("ridge regression gives no probabilities.")


@dataclass(frozen=True, slots=True)
class Paths:
    """Probes with their targets. They need standardised features, a block of rows in memory at a time, but for those
    that read all pieces.
    """

    members: tuple[tuple[np.ndarray, Any], ...]
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None

    @property
    def converged(self) -> np.ndarray:
        return self._gather([path.converged for _, path in self.members])

    @property
    def decrement(self) -> np.ndarray:
        return np.full(self.converged.shape, np.nan)

    def outcome(self, x: Any, rows: np.ndarray | None, y: np.ndarray) -> Outcome:
        losses, classes = [], []
        for at, log_p in self._blocks(x, rows):
            losses.append(-np.take_along_axis(log_p, y[:, None, at, None], 3)[..., 0])
            classes.append(log_p.argmax(3))
        return np.concatenate(losses, 2), np.concatenate(classes, 2)

    def log_proba(self, x: Any, rows: np.ndarray | None) -> np.ndarray:
        return np.concatenate([log_p for _, log_p in self._blocks(x, rows)], 2)

    def _blocks(self, x: Any, rows: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rows = np.arange(x.shape[0]) if rows is None else rows
        size = ROWS if self.mean is None else block_rows(len(self.mean))
        for at in np.array_split(np.arange(len(rows)), -(-len(rows) // size)):
            if self.mean is None:
                block = x.at(rows[at])
            else:
                with np.errstate(invalid="ignore"):  # infinity times 0; the path raises the error
                    block = (np.asarray(x[rows[at]], dtype=np.float32) - self.mean) * self.scale
            yield at, self._gather([path.log_proba(block) for _, path in self.members])

    def _gather(self, parts: list[np.ndarray]) -> np.ndarray:
        out = np.empty((sum(len(part) for part in parts), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for (at, _), part in zip(self.members, parts, strict=True):
            out[at] = part
        return out


def digest_of(fitted: Fitted, target: int) -> str:
    fit = fitted.fit if isinstance(fitted, Ridge) else fitted
    if not isinstance(fit, LogisticFit | RidgeFit):
        return ""
    return xxhash.xxh3_64(fit.weights[target].tobytes() + fit.intercepts[target].tobytes()).hexdigest()


def grid(estimator: Estimator, given: Sequence[float] | None, width: int) -> tuple[float, ...]:
    """The settings to try, the strongest first: the given ones, or the defaults of the estimator."""
    defaults: dict[Estimator, Sequence[float]] = {
        Estimator.LOGISTIC: CS,
        Estimator.RIDGE: ALPHAS,
        Estimator.MLP: mlp.WEIGHT_DECAYS,
        Estimator.K_SPARSE: [k for k in ksparse.KS if k <= width],
        Estimator.MASS_MEAN: mass_mean.SHRINKAGES,
        Estimator.ATTENTION: attention.WEIGHT_DECAYS,
        Estimator.MONITOR: monitor.CS,
    }
    settings = tuple(given) if given else tuple(defaults[estimator])
    most = width if width <= screening.WIDE else screening.KEPT
    if estimator is Estimator.K_SPARSE and max(settings) > most:
        raise UsageError(f"k-sparse probes can use at most {most} dimensions, not {max(settings):g}.")
    if estimator is Estimator.K_SPARSE and any(k % 1 for k in settings):
        raise UsageError(f"the numbers of dimensions of k-sparse must be whole numbers, not {settings}.")
    return tuple(sorted(settings, reverse=estimator not in (Estimator.LOGISTIC, Estimator.K_SPARSE)))
