"""One experiment: label sets, and the fit of a probe for each on the vectors of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.metrics import metric
from probekit.notes import logger
from probekit.probes.kept import Weights, weights_of
from probekit.probes.protocol.label_sets import LabelSets
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import LOG_LOSS, ProbeOptions
from probekit.probes.protocol.selection import Chosen, Estimator, Problem, grid, select
from probekit.statistics.bootstrap import estimates
from probekit.statistics.calibration import MEASURES, tempered

log = logger(__name__, by_input=True)

Vectors = Any | Callable[[], Any]
"""float (n, d), an array or memory map, or a function that returns one."""


@dataclass(frozen=True, slots=True)
class Fits:
    """F fits of one layer or baseline, on the n labelled rows of dev.

    The fits are of the first F label sets.

    Attributes
    ----------
    columns : list[dict[str, Any]]
        The row columns of each fit.
    predicted : np.ndarray
        (F, n).
    loss : np.ndarray | None
        (F, n), nats; None for numbers.
    probabilities : np.ndarray | None
        float32 (n, classes), from the fit on gold labels; None for numbers.
    """

    columns: list[dict[str, Any]]
    predicted: np.ndarray
    loss: np.ndarray | None
    probabilities: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """The parts shared by all layers: question, label sets, options, and what is called after each fold.

    ``keep`` gets the layer and the weights of each probe of gold labels, and its logits (n, K) of dev's labelled rows.
    """

    question: Question
    sets: LabelSets
    options: ProbeOptions
    tick: Callable[[], Any] = lambda: None
    keep: Callable[[str, Weights, np.ndarray], Any] = lambda *layer: None

    def layer(self, name: str, train: Vectors, dev: Vectors) -> Fits:
        """Probes of all label sets on one layer."""
        sizes = self.sets.sizes
        x = _matrix(train, len(self.sets.rows) + (sizes["left_out_train"] or 0), name)
        x_dev = _matrix(dev, len(self.sets.rows_dev) + (sizes["left_out_dev"] or 0), name)
        if x.shape[1] != x_dev.shape[1]:
            raise UsageError(f"layer {name}: train has {x.shape[1]} features, dev has {x_dev.shape[1]}.")
        if constant := constant_features(x, self.sets.rows):
            log.warning("layer %s: %d of %d features are constant in train.", name, constant, x.shape[1])
        plain = self.plain if self.options.estimator is None else Estimator(self.options.estimator)
        if (plain is Estimator.RIDGE) == bool(self.sets.classes):
            raise UsageError(
                f"{plain} probes cannot be fitted to {'classes' if self.sets.classes else 'numbers'}; "
                f"choose {'another estimator than ridge' if self.sets.classes else 'ridge'}."
            )
        return self.fit(x, x_dev, plain, len(self.sets), {"layer": name})

    @property
    def plain(self) -> Estimator:
        """The default probe, also used for baselines."""
        return Estimator.LOGISTIC if self.sets.classes else Estimator.RIDGE

    def fit(self, x: Any, x_dev: Any, estimator: Estimator, count: int, about: Mapping[str, Any]) -> Fits:
        """Probes of the first ``count`` label sets on vectors (n, d) and (n_dev, d) of all rows."""
        sets, options = self.sets, self.options
        penalties = options.penalties if estimator == (options.estimator or estimator) else None
        problem = Problem(
            x,
            sets.rows,
            sets.y[:count],
            sets.classes,
            sets.fold,
            estimator,
            grid(estimator, penalties, x.shape[1]),
            options.balanced,
            options.max_iter,
            options.calibrate,
            sets.train.groups,
            options.seed,
            sets.apart,
            np.array([target["target"] == "shuffled" for target in sets.targets[:count]]),
            options.scores or "rolling:10",
        )
        try:
            chosen = select(problem, None if options.choose_by == LOG_LOSS else self.criterion, self.tick)
        except NonFiniteError as error:
            raise NonFiniteError(f"{_called(about)}: {error} First in row {_first_bad(x, sets.rows)}.") from None
        try:
            loss, predicted = chosen.fitted.outcome(x_dev, sets.rows_dev, sets.y_dev[:count])
        except NonFiniteError:
            where = f"First in row {_first_bad(x_dev, sets.rows_dev)}."
            raise NonFiniteError(f"{_called(about)} of dev contains NaN or infinity. {where}") from None
        weights = weights_of(chosen.fitted)  # gold is evaluated with what is kept, alone
        logits, shares = weights.logits(x_dev, sets.rows_dev), None
        if loss is None:
            predicted[0, 0] = logits[:, 0]
        else:
            log_p, shares = weights.log_proba(logits), weights.proba(logits)
            loss[0, 0], predicted[0, 0] = -log_p[np.arange(len(log_p)), sets.y_dev[0]], log_p.argmax(1)
        name = f"monitor {options.scores or 'rolling:10'}" if estimator is Estimator.MONITOR else str(estimator)
        columns = [
            {**about, "estimator": name, **target, **columns_of(chosen, i)}
            for i, target in enumerate(sets.targets[:count])
        ]
        if options.calibrate and sets.classes:
            for fit, calibration in zip(columns, self._calibration(chosen, x_dev), strict=True):
                fit.update(calibration)
        if about["layer"] is not None:
            self.keep(str(about["layer"]), weights, logits)
        return Fits(columns, predicted[:, 0], None if loss is None else loss[:, 0], shares)

    def _calibration(self, chosen: Chosen, x_dev: Any) -> list[dict[str, Any]]:
        """Calibration of each fit, before and after temperature scaling."""
        log_p = chosen.fitted.log_proba(x_dev, self.sets.rows_dev)[:, 0]
        cooled = tempered(log_p, chosen.temperature)
        found = []
        for i, gold in enumerate(self.sets.y_dev[: len(log_p)]):
            found.append({"temperature": chosen.temperature[i]})
            for name, measure in MEASURES.items():
                found[-1][name] = measure(log_p[i : i + 1], gold)[0]
                found[-1][f"{name}, scaled"] = measure(cooled[i : i + 1], gold)[0]
        return found

    def criterion(self, y: np.ndarray, predicted: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
        """The metric that chooses, with the sign for which small is good, (targets, settings)."""
        name = self.options.choose_by
        some = [one for one in self.question.metrics if metric(one).needs != "scores"]
        if name not in some:
            known = ", ".join(some) or "that you name with --metrics"
            raise UsageError(f"choose_by must be log-loss or one of the metrics {known}, not {name!r}.")
        definition, groups, fold = metric(name), None, self.sets.fold
        if name.startswith("span-"):
            train = self.sets.train
            sentences = train.groups if train.sentences is None else train.sentences
            groups = np.concatenate([sentences[fold == f] for f in range(fold.max() + 1)])  # type: ignore[index]
        names = self.question.label_names
        value = [
            estimates(gold, guess, name, score=definition.function, groups=groups, label_names=names)
            for gold, guess in zip(y, predicted, strict=True)
        ]
        return -definition.sign * np.stack(value)


def constant_features(x: Any, rows: np.ndarray) -> int:
    """The number of constant columns in the rows; the first few rows rule out most."""
    first = np.asarray(x[rows[:1]])
    same = np.ones(x.shape[1], dtype=bool)
    start, step = 0, 64
    while start < len(rows) and same.any():
        same &= (np.asarray(x[rows[start : start + step]]) == first).all(0)
        start, step = start + step, 4096
    return int(same.sum())


def columns_of(chosen: Chosen, i: int) -> dict[str, Any]:
    """What the rows say of the fit of label set ``i``."""
    return {
        "penalty": chosen.setting[i],
        "held_out": chosen.held_out[i],
        "penalty_at_edge": bool(chosen.edge[i]),
        "converged": bool(chosen.converged[i]),
        "decrement": chosen.decrement[i],
        "digest": chosen.digest[i],
    }


def _matrix(vectors: Vectors, rows: int, name: str) -> Any:
    x = vectors() if callable(vectors) else vectors
    x = x if hasattr(x, "shape") and hasattr(x, "dtype") else np.asarray(x)
    if len(x.shape) != 2 or x.shape[0] != rows:
        raise UsageError(f"layer {name}: vectors must have the shape (n, d) with n = {rows} labels, not {x.shape}.")
    return x


def _called(about: Mapping[str, Any]) -> str:
    return f"layer {about['layer']}" if about["layer"] is not None else str(about["representation"])


def _first_bad(x: Any, rows: np.ndarray) -> int:
    for at in np.array_split(rows, -(-len(rows) // 4096)):
        bad = ~np.isfinite(np.asarray(x[at], dtype=np.float64)).all(1)
        if bad.any():
            return int(at[bad.argmax()])
    return -1
