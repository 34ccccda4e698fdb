"""Lower bounds on mutual information from probes: H(Y) minus the cross-entropy of a probe on unseen examples.

For any q, I(X; Y) ≥ H(Y) + E log q(Y | X), with equality if q is the true conditional distribution (Barber & Agakov
2003; Pimentel et al. 2020, section 3). Examples are held out in folds, and settings are chosen within the others.
Labels are shuffled within folds, so every fold keeps its share of each class, for gold and for shuffled labels. This is
impossible if whole groups of several sizes are shuffled. Folds are then drawn without regard to the labels, so that
they do not suit gold labels better than shuffled ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.grouping import Groups, grouped, in_order, row_keys
from probekit.information.response import Response

CS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""C of logistic regression, inverse strength on standardised columns, from which one is chosen."""
ALPHAS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
"""Penalties of ridge regression on standardised columns, from which one is chosen."""
WEIGHT_DECAYS = (10.0, 100.0)
"""Of perceptrons, from which one is chosen."""
NATS = 1e-2  # that a fit may be above its optimum, of all examples together
Z95 = 1.96


@threadpool_limits.wrap(limits=1)  # many small products: a second thread costs more than it saves
def logistic_bound(
    x: np.ndarray,
    y: Response,
    *,
    groups: np.ndarray | None = None,
    draws: int = 100,
    seed: int = 0,
    folds: int = 5,
    Cs: Sequence[float] = CS,
) -> Information:
    """H(Y) minus the cross-validated cross-entropy of logistic regression, in bits: the information for a linear probe.

    H(Y) is computed from the shares of the labels. It is biased downwards, so the value remains a lower bound. A
    negative value is reported as 0, and ``raw`` contains it. ``ci_low`` comes from the variance of the examples' terms;
    a number below the bound is also below the information. A class with one example is never held out and adds nothing.

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d), standardised in the fit.
    y : Response
        Classes.
    groups : np.ndarray, optional
        (n,), groups to hold out and shuffle as wholes; equal vectors always form a group.
    draws : int, default 100
        Shuffles of the labels for ``null`` and ``p``; all are fitted at once.
    folds : int, default 5
        3 or more. The C for a fold is the best on the other folds, in fits without that fold and the fold itself.

    Raises
    ------
    UsageError
        For numbers, and fewer than 3 folds or too few examples for them.
    NonFiniteError
        For NaN and infinity.
    """
    from probekit.probes.solvers.design import moments, precision
    from probekit.probes.solvers.logistic import LogisticFit, fit_logistic

    if folds < 3:
        raise UsageError(f"folds must be 3 or more, not {folds}: the penalty for one fold is chosen on the others.")
    whole = grouped(groups, x, len(y))
    fold, labels = _classes(y, whole, folds, draws, seed)
    grid = np.sort(np.asarray(Cs, dtype=np.float64))
    dtype = precision(len(y) * (folds - 2) // folds, x.shape[1])
    parts = moments(x, [np.flatnonzero(fold == f) for f in range(-1, folds)], dtype=dtype)

    def fit(without: tuple[int, ...], settings: np.ndarray) -> LogisticFit:
        rows, sums = np.flatnonzero(~np.isin(fold, without)), parts[0]
        for f in set(range(folds)) - set(without):
            sums = sums + parts[1 + f]
        return fit_logistic(x, labels[:, rows], y.classes, settings, rows=rows, sums=sums, tol=NATS, dtype=dtype)

    score = np.zeros((folds, len(labels), len(grid)))
    for pair in combinations(range(folds), 2) if len(grid) > 1 else ():
        found, fitted = fit(pair, grid), ~np.isin(fold, pair)
        unseen = np.stack([np.bincount(own[fitted], minlength=y.classes) == 0 for own in labels])
        for f, other in (pair, pair[::-1]):
            held = np.flatnonzero(fold == f)
            loss = found.outcome(x, held, labels[:, held])[0]
            loss[np.broadcast_to(np.take_along_axis(unseen, labels[:, held], 1)[:, None], loss.shape)] = 0
            score[other] += loss.sum(2, dtype=np.float64)
    losses = np.zeros(labels.shape)
    for f in range(folds):
        held = np.flatnonzero(fold == f)
        own = fit((f,), grid[score[f].argmin(1)][:, None])
        losses[:, held] = own.outcome(x, held, labels[:, held])[0][:, 0]
    return _of_losses("logistic", y, labels, losses, fold, whole, f"{folds} folds")


def mlp_bound(
    x: np.ndarray,
    y: Response,
    *,
    groups: np.ndarray | None = None,
    draws: int = 19,
    seed: int = 0,
    folds: int = 5,
    weight_decays: Sequence[float] = WEIGHT_DECAYS,
) -> Information:
    """H(Y) minus the cross-validated cross-entropy of a perceptron with one hidden layer, in bits.

    Otherwise as :func:`logistic_bound`. It is slow: about half a minute for 1,000 × 768 with 19 draws, where
    logistic regression takes seconds. Before the fit, all vectors are multiplied by one sign, and classes are numbered
    by the location of their vectors. The value is therefore the same for -x and for other names of the classes.

    Parameters
    ----------
    folds : int, default 5
        2 or more. The weight decay for a fold is the best on the part of the other folds that is used for early
        stopping.
    """
    from probekit.probes.solvers import mlp

    _check(x)
    key = row_keys(x)
    y, whole = in_order(y, key), grouped(groups, x, len(y))
    fold, labels = _classes(y, whole, folds, draws, seed)
    sign = np.sign(((key[0] - key[0].mean()) ** 3).sum()) or 1.0
    losses, targets = np.zeros(labels.shape), np.arange(len(labels))
    for f in range(folds):
        rows, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        part = np.asarray(x[rows])
        mean, sd = part.mean(0, dtype=np.float64), part.std(0, dtype=np.float64)
        scale = np.divide(sign, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
        path = mlp.path(
            ((part - mean) * scale).astype(np.float32),
            labels[:, rows],
            y.classes,
            list(weight_decays),
            seed=seed,
            groups=None if whole is None else whole[rows].code,
        )
        log_p = path.log_proba(((x[held] - mean) * scale).astype(np.float32))[targets, path.loss.argmin(1)]
        losses[:, held] = -np.take_along_axis(log_p, labels[:, held, None], 2)[..., 0]
    return _of_losses("mlp", y, labels, losses, fold, whole, f"{folds} folds")


@threadpool_limits.wrap(limits=1)
def ridge_bound(
    x: np.ndarray,
    y: Response,
    *,
    groups: np.ndarray | None = None,
    draws: int = 100,
    seed: int = 0,
    folds: int = 5,
    alphas: Sequence[float] = ALPHAS,
) -> Information:
    """½ log₂ |S| / |R| in bits, S the covariance of the numbers and R that of the cross-validated errors of ridge.

    For one column this is -½ log₂(1 - R²) with the cross-validated R². It is a bound for any distribution without
    repeated values: normal scores do not change the information, they have the entropy of a normal distribution, and no
    error of this variance has a larger entropy than a normal one. For several columns it assumes that the scores are
    jointly normal. A negative value is reported as 0, and ``raw`` contains it. The interval is for the bound.

    Parameters
    ----------
    x : np.ndarray
        float32 or float64 (n, d), standardised in the fit.
    y : Response
        Numbers (n, m), whose ranks become normal scores first.
    groups : np.ndarray, optional
        (n,), groups to hold out and shuffle as wholes; equal vectors always form a group.
    draws : int, default 100
        Shuffles of the labels.
    folds : int, default 5
        2 or more.
    alphas : Sequence[float], default ALPHAS
        Penalties; each fold uses the one with the smallest leave-one-out error on the other folds.

    Raises
    ------
    UsageError
        For classes, and too few examples for the folds.
    NonFiniteError
        For NaN and infinity.
    """
    from probekit.probes.solvers.ridge import fit_ridge

    if y.numbers is None:
        raise UsageError("ridge bounds need numbers; these labels are classes, for which you can use logistic bounds.")
    n, m = y.numbers.shape
    scores = ndtri((rankdata(y.numbers, axis=0) - 0.5) / n)
    units = grouped(groups, x, n)
    fold = _folds(y, units, folds, seed)
    order = _orders(fold, units, draws, seed)
    targets = np.moveaxis(scores[order], 2, 1).reshape(-1, n)  # (targets · m, n)
    errors = np.zeros(targets.shape)
    for f in range(folds):
        rows, held = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        found = fit_ridge(x, targets[:, rows], alphas, rows=rows, leave_one_out=True)
        predicted = found.choose(found.leave_one_out.argmin(1)).predict(x, held)
        if not np.isfinite(predicted).all():
            raise NonFiniteError("the vectors contain NaN or infinity; leave such examples out.")
        errors[:, held] = targets[:, held] - predicted[:, 0]
    left = errors.reshape(-1, m, n)
    centred = scores - scores.mean(0)
    whole = centred.T @ centred / n
    rest = left @ left.transpose(0, 2, 1) / n
    bits = (np.linalg.slogdet(whole)[1] - np.linalg.slogdet(rest)[1]) / (2 * math.log(2))
    # the term of each example: the difference of the normal log densities, whose quadratic parts are m on average
    before = np.einsum("ij,ij->i", centred, np.linalg.solve(whole, centred.T).T)
    after = np.einsum("ji,ji->i", left[0], np.linalg.solve(rest[0], left[0]))
    terms = bits[0] + (before - after) / (2 * math.log(2))
    shares = 1 - np.diagonal(rest[0]) / np.diagonal(whole)
    named = ", ".join(f"{share:.2f}" for share in shares) if m <= 4 else f"{shares.mean():.2f} on average"
    return _report("ridge", y, bits, terms, f"{folds} folds, R² {named}", units)


def _classes(y: Response, whole: Groups | None, folds: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fold of each example, and label sets int64 (1 + draws, n), the first as given."""
    if y.codes is None:
        raise UsageError("this bound needs classes; these labels are numbers, for which you can use ridge bounds.")
    fold = _folds(y, whole, folds, seed)
    return fold, y.codes[_orders(fold, whole, draws, seed)]


def _folds(y: Response, whole: Groups | None, folds: int, seed: int) -> np.ndarray:
    from probekit.statistics.folds import folds as split

    if y.codes is None or whole is not None:
        return split(np.arange(len(y)), folds, groups=None if whole is None else whole.code, seed=seed, stratify=False)
    return split(y.codes, folds, seed=seed)


def _orders(fold: np.ndarray, whole: Groups | None, draws: int, seed: int) -> np.ndarray:
    """The order of the examples, and ``draws`` ones that are shuffled within folds: int64 (1 + draws, n)."""
    rng = np.random.default_rng(seed)
    order = np.tile(np.arange(len(fold)), (1 + draws, 1))
    for f in np.unique(fold):
        at = np.flatnonzero(fold == f)
        if whole is None:
            order[1:, at] = rng.permuted(order[1:, at], axis=1)
        else:
            order[1:, at] = at[whole[at].orders(draws, seed + int(f) + 1)]
    return order


def _check(x: np.ndarray) -> None:
    for start in range(0, len(x), 4096):
        if not (fine := np.isfinite(x[start : start + 4096]).all(1)).all():
            raise NonFiniteError(f"vector {start + int((~fine).argmax())} contains NaN or infinity; leave it out.")


def _of_losses(
    name: str, y: Response, labels: np.ndarray, losses: np.ndarray, fold: np.ndarray, whole: Groups | None, view: str
) -> Information:
    """losses : nats (targets, n) of the labels; those of examples that were never held out do not count."""
    with np.errstate(divide="ignore"):
        surprise = np.stack([-np.log2(np.bincount(own, minlength=y.classes) / len(fold))[own] for own in labels])
    terms = np.where(fold < 0, 0, surprise - losses / math.log(2))
    return _report(name, y, terms.mean(1), terms[0], view, whole)


def _report(
    name: str, y: Response, bits: np.ndarray, terms: np.ndarray, view: str, whole: Groups | None
) -> Information:
    """bits : (1 + draws,); terms : (n,), whose mean the first of them is."""
    raw, null, n = float(bits[0]), bits[1:], len(terms)
    bound = min(y.entropy, math.log2(n))
    margin = Z95 * math.sqrt(terms.var(ddof=1) / n if whole is None else whole.variance(terms))
    return Information(
        value=min(max(raw, 0.0), bound),
        raw=raw,
        entropy=y.entropy,
        n=n,
        estimator=name,
        null=null,
        null_mean=float(null.mean()) if len(null) else float("nan"),
        p=p_value(raw, null),
        ci_low=min(max(raw - margin, 0.0), bound),
        ci_high=bound,
        shown_high=min(max(raw + margin, 0.0), bound),
        groups=0 if whole is None else whole.count,
        view=view,
    )
