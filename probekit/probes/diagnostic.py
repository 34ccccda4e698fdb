"""Diagnostic classifiers, layer by layer: what a linear model reads off each layer's vectors.

The protocol, for each layer on its own (Conneau et al. 2018; Peters, Ruder & Smith 2019, section 3): features are
standardised on train; the L2 penalty is chosen on a part of train that is held out; the model is fitted again on all
of train and evaluated once on dev, with a bootstrap interval over the dev examples. Dev is never looked at to choose.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.bootstrap import interval
from probekit.probes.ridge import ridge_path
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ALPHAS",
    "CS",
    "Labels",
    "Options",
    "hold_out",
    "layer_rows",
    "logistic_path",
    "pair_features",
    "standardise",
]

log = logging.getLogger(__name__)

CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
ALPHAS = tuple(float(a) for a in np.logspace(-2, 6, 17))
Vectors = np.ndarray | Callable[[], np.ndarray]
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Options:
    """How the probes are fitted.

    penalties : C of the logistic regression (inverse strength) or alpha of the ridge regression (strength), on
        standardised features; None for CS or ALPHAS. Of equally good ones the strongest penalty is taken.
    held_out : share of train that chooses the penalty
    hold_out_domains : hold out whole domains of train (templates, documents, genres), for when examples of one domain
        resemble each other, so that its other examples would give an answer away
    seed : of that part, and of the resamples
    resamples : of the bootstrap; 0 for no interval. level : its coverage
    max_iter : of L-BFGS
    threads : layers fitted at a time, None for one a core; the numbers do not depend on it
    """

    penalties: tuple[float, ...] | None = None
    held_out: float = 0.2
    hold_out_domains: bool = False
    seed: int = 0
    resamples: int = 1000
    level: float = 0.95
    max_iter: int = 1000
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.penalties is not None and not (self.penalties and all(0 < p < np.inf for p in self.penalties)):
            raise UsageError(f"penalties are positive numbers, not {self.penalties}.")
        if not 0 < self.held_out < 1:
            raise UsageError(f"held_out is a share between 0 and 1, not {self.held_out}.")


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of one split.

    y : int (n,) with -1 for unlabelled, or float (n,) with NaN
    groups : int (n,), rows that are held out and resampled together: the sentence of each word, where a row is a word,
        or the domain of each example; None where every row stands for itself
    """

    y: np.ndarray
    groups: np.ndarray | None = None

    @property
    def known(self) -> np.ndarray:
        """Which rows are labelled, bool (n,)."""
        return ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0

    def __getitem__(self, rows: np.ndarray) -> Labels:
        return Labels(self.y[rows], None if self.groups is None else self.groups[rows])


def layer_rows(
    train_layers: Mapping[str, Vectors],
    y_train: np.ndarray | Labels,
    dev_layers: Mapping[str, Vectors],
    y_dev: np.ndarray | Labels,
    *,
    kind: str,
    metrics: Mapping[str, Any],
    about: Mapping[str, Any],
    label_names: Sequence[str] = (),
    options: Options | None = None,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """Fit and evaluate a probe on each layer; rows of every metric, and of the majority class (or the mean) first.

    train_layers, dev_layers : by layer name, float (n, d), or a function that reads it. Layers are fitted in turn, so
        that only ``threads`` of them need be in memory.
    y_train, y_dev : labels (n,), or :class:`Labels` where rows are words. Unlabelled rows are left out and counted.
    kind : "classification" and "sequence-labelling" (logistic regression, multinomial) or "regression" (ridge)
    metrics : name → function of (y_true, y_pred), or an object with ``function`` and ``higher_is_better``. The first
        one chooses the penalty. ``span-f1`` is handed one list of tag names (``label_names``) a sentence.
    about : the columns task, split, model, representation … of the rows; target is "gold" unless it says otherwise

    Own columns: penalty (C or alpha), penalty_at_edge (the grid's first or last, and clearly better than its
    neighbour: widen the grid), converged (of every fit that the row rests on), n_train, and left_out_train,
    left_out_dev (unlabelled rows).
    Raises NonFiniteError naming a layer that holds NaN or infinity, UsageError for shapes, layers or labels that do
    not fit together.
    """
    options = options or Options()
    if list(train_layers) != list(dev_layers):
        raise UsageError(f"train has the layers {', '.join(train_layers)}; dev has {', '.join(dev_layers)}.")
    if not metrics:
        raise UsageError("no metric was given.")
    classify = kind != "regression"
    train, dev = (
        y if isinstance(y, Labels) else Labels(np.asarray(y, dtype=None if classify else np.float64))
        for y in (y_train, y_dev)
    )
    sizes = {
        "n": int(dev.known.sum()),
        "n_train": int(train.known.sum()),
        "left_out_train": int((~train.known).sum()),
        "left_out_dev": int((~dev.known).sum()),
    }
    if sizes["n"] == 0 or sizes["n_train"] < 2:
        raise UsageError(f"{sizes['n_train']} labelled rows in train and {sizes['n']} in dev: too few to probe.")
    if classify and len(np.unique(train.y[train.known])) < 2:
        raise UsageError("all labels in train are the same; there is nothing to tell apart.")
    scores = {name: _Score(name, m, tuple(label_names)) for name, m in metrics.items()}
    held = hold_out(train[train.known], options.held_out, np.random.default_rng(options.seed), stratify=classify)
    ready = train[train.known], dev[dev.known]
    common = {"checkpoint": "", "target": "gold", **about, "seed": options.seed, **sizes}

    def measure(predicted: np.ndarray, **own: Any) -> list[dict[str, Any]]:
        return [
            {**common, **own, "metric": name, **s.measure(ready[1], predicted, options)} for name, s in scores.items()
        ]

    def fit_layer(name: str) -> _Fit:
        x, x_dev = (_read(of[name], y, name) for of, y in ((train_layers, train), (dev_layers, dev)))
        if x.shape[1] != x_dev.shape[1]:
            raise UsageError(f"layer {name}: train has {x.shape[1]} features, dev has {x_dev.shape[1]}.")
        return _select(x, ready[0], held, x_dev, next(iter(scores.values())), classify, options)

    constant = np.full(sizes["n"], _most_frequent(ready[0].y) if classify else ready[0].y.mean())
    baseline = {"representation": "none", "estimator": "majority" if classify else "mean"}
    records = measure(constant, layer=None, **baseline, penalty=np.nan, penalty_at_edge=False, converged=True)
    fits: dict[str, _Fit] = {}
    with threadpool_limits(1), warnings.catch_warnings(), ThreadPoolExecutor(options.threads or _cores()) as pool:
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported as a column, and logged below
        for done, (name, fit) in enumerate(zip(train_layers, pool.map(fit_layer, train_layers), strict=True), 1):
            fits[name] = fit
            own = {"penalty": fit.penalty, "penalty_at_edge": fit.edge, "converged": fit.converged}
            records += measure(fit.predicted, layer=name, estimator="logistic" if classify else "ridge", **own)
            progress("probe", done, len(train_layers))
    _complain(fits, options)
    return make_rows(records)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Score:
    """A metric, whatever shape it wants its labels in."""

    name: str
    metric: Any
    label_names: tuple[str, ...]

    def __call__(self, y: Labels, predicted: np.ndarray) -> float:
        return float(getattr(self.metric, "function", self.metric)(*self._shaped(y, predicted)))

    @property
    def sign(self) -> int:
        return 1 if getattr(self.metric, "higher_is_better", True) else -1

    def measure(self, y: Labels, predicted: np.ndarray, options: Options) -> dict[str, float]:
        """The value and its interval: the columns value, ci_low, ci_high."""
        gold, guess = self._shaped(y, predicted)
        score = getattr(self.metric, "function", self.metric)
        low, high = interval(
            gold,
            guess,
            score,
            name=self.name,
            groups=None if self._spans else y.groups,
            resamples=options.resamples,
            level=options.level,
            seed=options.seed,
        )
        return {"value": float(score(gold, guess)), "ci_low": low, "ci_high": high}

    @property
    def _spans(self) -> bool:
        return self.name.startswith("span-")

    def _shaped(self, y: Labels, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self._spans:
            return y.y, predicted
        if y.groups is None or not self.label_names:
            raise UsageError(f"{self.name} wants the sentence of each word (Labels.groups) and the label_names.")
        names = np.array(self.label_names, dtype=object)
        cuts = np.flatnonzero(np.diff(y.groups)) + 1
        return tuple(_ragged(np.split(names[tags], cuts)) for tags in (y.y, predicted))  # type: ignore[return-value]


def _ragged(parts: list[np.ndarray]) -> np.ndarray:
    out = np.empty(len(parts), dtype=object)
    out[:] = [list(part) for part in parts]
    return out


def _read(vectors: Vectors, y: Labels, name: str) -> np.ndarray:
    """The labelled rows of a layer, float32 (n, d), finite."""
    x = np.asarray(vectors() if callable(vectors) else vectors)
    if x.ndim != 2 or len(x) != len(y.y):
        raise UsageError(f"layer {name}: vectors {x.shape} do not go with {len(y.y)} labels; (n, d) is wanted.")
    x = x[y.known].astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(1))[0])
        raise NonFiniteError(f"layer {name} holds NaN or infinity (first in labelled row {row}); it cannot be probed.")
    return x


def _most_frequent(y: np.ndarray) -> Any:
    classes, counts = np.unique(y, return_counts=True)
    return classes[counts.argmax()]


@dataclass(frozen=True, slots=True)
class _Fit:
    """A chosen probe: its penalty, its predictions of dev, and whether the grid's edge clearly beat its neighbour."""

    penalty: float
    converged: bool
    predicted: np.ndarray
    edge: bool


def _select(
    x: np.ndarray, y: Labels, held: np.ndarray, x_dev: np.ndarray, score: _Score, classify: bool, options: Options
) -> _Fit:
    grid = sorted(options.penalties or (CS if classify else ALPHAS), reverse=not classify)  # strongest penalty first
    x_fit, x_held = standardise(x[~held], x[held])
    path = _path(x_fit, y.y[~held], grid, classify, options)
    values = np.nan_to_num([score.sign * score(y[held], predict(x_held)) for predict, _ in path], nan=-np.inf)
    best = int(values.argmax())
    x_all, x_dev = standardise(x, x_dev)
    [(predict, converged)] = _path(x_all, y.y, grid[best : best + 1], classify, options)
    beaten = {0: 1, len(grid) - 1: len(grid) - 2}.get(best)
    noise = 0.5 / np.sqrt(held.sum())  # standard error of a share: at chance, any penalty may come out best
    edge = len(grid) > 1 and beaten is not None and bool(values[best] - values[beaten] > noise)
    return _Fit(grid[best], converged and all(ok for _, ok in path), predict(x_dev), edge)


def _complain(fits: Mapping[str, _Fit], options: Options) -> None:
    """One line for all layers: where the grid was too narrow, and where the solver did not get there."""
    if edges := [f"{layer} ({fit.penalty:g})" for layer, fit in fits.items() if fit.edge]:
        log.info("the best penalty is at the edge of the grid in layer %s; widen it.", ", ".join(edges))
    if short := [layer for layer, fit in fits.items() if not fit.converged]:
        log.warning("L-BFGS did not converge in %d iterations in layer %s.", options.max_iter, ", ".join(short))


def _path(
    x: np.ndarray, y: np.ndarray, grid: Sequence[float], classify: bool, options: Options
) -> list[tuple[Predict, bool]]:
    if classify:
        return logistic_path(x, y, grid, max_iter=options.max_iter)
    weights, intercepts = ridge_path(x, y, grid)
    return [(partial(_line, w, b), True) for w, b in zip(weights.T, intercepts, strict=True)]


def logistic_path(
    x: np.ndarray, y: np.ndarray, penalties: Sequence[float], *, max_iter: int = 1000, tol: float = 1e-4
) -> list[tuple[Predict, bool]]:
    """Multinomial logistic regression (L-BFGS, scikit-learn) for each C, in order, each starting from the last one.

    x : float64 (n, d); y : (n,). Returns for each C a function from (m, d) to classes (m,), and whether it converged:
    whether no element of the gradient of the mean penalised loss is above ``tol`` (doubled, for rounding).
    """
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UsageError("the part of train that is fitted holds one class only; more examples are needed.")
    model = LogisticRegression(warm_start=True, max_iter=max_iter, tol=tol)
    path: list[tuple[Predict, bool]] = []
    for c in penalties:
        model.set_params(C=c).fit(x, codes)
        w, b = model.coef_.copy(), model.intercept_.copy()
        error = model.predict_proba(x).astype(np.float64)
        error[np.arange(len(x)), codes] -= 1
        if len(classes) == 2:  # one row of weights, for the second class
            slope, w, b = error[:, 1:].T @ x + w / c, np.vstack([0 * w, w]), np.append(0, b)
        else:
            slope = error.T @ x + w / c
        steepest = max(np.abs(slope).max() / len(x), np.abs(error.mean(0)).max())
        path.append((partial(_class, classes, w, b), bool(steepest <= 2 * tol)))
    return path


def _line(w: np.ndarray, b: float, x: np.ndarray) -> np.ndarray:
    return x @ w + b


def _class(classes: np.ndarray, w: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    return classes[(x @ w.T + b).argmax(1)]


def standardise(x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """``x`` and ``others`` with the mean and standard deviation of ``x`` taken out, float64.

    In float32 L-BFGS stops early: the loss no longer changes, the gradient is still there.

    A feature whose deviation is at most 1e-5 of its mean is rounding noise and becomes 0.
    """
    mean, sd = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
    return tuple((z - mean) * scale for z in (x, *others))


def hold_out(y: Labels, share: float, rng: np.random.Generator, *, stratify: bool) -> np.ndarray:
    """Which rows are held out, bool (n,): ``share`` of each class, or of all rows; of sentences where rows are words.

    A class keeps at least one row in the part that is fitted.
    """
    held = np.zeros(len(y.y), dtype=bool)
    if y.groups is not None:
        units = np.unique(y.groups)
        if len(units) < 2:
            raise UsageError("train has one sentence or domain only; two are needed to hold one out.")
        chosen = rng.permutation(units)[: min(max(1, round(share * len(units))), len(units) - 1)]
        return np.isin(y.groups, chosen)
    strata = np.unique(y.y, return_inverse=True)[1] if stratify else np.zeros(len(y.y), dtype=int)
    for stratum in range(strata.max() + 1):
        rows = np.flatnonzero(strata == stratum)
        held[rng.permutation(rows)[: min(round(share * len(rows)), len(rows) - 1)]] = True
    if not held.any():
        raise UsageError(
            f"{len(held)} labelled rows in train leave none to choose the penalty on; {share:.0%} was wanted."
        )
    return held


def pair_features(x: np.ndarray) -> np.ndarray:
    """[u; v] as [u; v; |u - v|; u * v], (n, 2d) to (n, 4d) (Conneau et al. 2017, section 3.1)."""
    u, v = np.split(x, 2, axis=1)
    return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
