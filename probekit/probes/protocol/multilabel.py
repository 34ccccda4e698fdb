"""Diagnostic classifiers of several labels that can hold at once, or of several numbers, evaluated together.

The procedure is that of :mod:`probekit.probes.protocol.diagnostic`, with a logistic regression of each label (binary
relevance), or a ridge regression of each number, and a penalty for each, chosen by cross-validation. Controls move the
whole label set of an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_expit, logit
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.errors import UsageError
from probekit.files import in_words
from probekit.probes.kept import Weights, stacked, weights_of
from probekit.probes.protocol.baselines import Baselines, baseline_fits
from probekit.probes.protocol.experiment import Experiment, Vectors
from probekit.probes.protocol.label_sets import LabelSets, folded, with_controls
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.selection import Estimator, Problem, grid, select
from probekit.runtime import Progress, memory, no_progress, torch_threads
from probekit.statistics.over_labels import PENALTIES, pairs_of
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

Fitted = tuple[list[dict[str, Any]], np.ndarray | None, np.ndarray]
"""The columns of the fits of T label sets on some vectors, and their losses and predictions, (T, n · labels)."""


def evaluate_label_sets(
    train_layers: Mapping[str, Vectors],
    train: Labels,
    dev_layers: Mapping[str, Vectors],
    dev: Labels,
    sets: np.ndarray,
    question: Question,
    *,
    baselines: Baselines = Baselines(),
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
    keep: Callable[[str, Weights, np.ndarray], Any] = lambda *layer: None,
) -> Predictions:
    """Fit probes of all labels on each layer, for gold labels and controls; predictions for each dev example and label.

    Parameters
    ----------
    train_layers, dev_layers : mapping of str to array
        As for :func:`probekit.probes.protocol.diagnostic.evaluate_layers`.
    train, dev : Labels
        The number of each example's label set; -1 for unlabelled, which are left out.
    sets : ndarray
        (s, labels), the label sets by number: bool, or float for several numbers.
    question : Question
        Metrics of 0 and 1 or of numbers, the label names, and columns that describe the vectors.
    baselines : Baselines
        Inputs that need no model.
    options : ProbeOptions
        How the probes are fitted; ``calibrate`` and ``choose_by`` do not apply.
    progress : callable
        Called before the first layer and after each.
    keep : callable
        Called with each layer, the weights of its linear probes of gold labels, and their logits of dev (n, labels).

    Returns
    -------
    Predictions
        Of the n · labels pairs of an example and a label, with the ids "EXAMPLE/LABEL"; 1 if the label holds.
    """
    if options.calibrate or options.choose_by != "log-loss":
        raise UsageError("where several labels can hold at once, leave out calibrate and choose_by.")
    task = _Sets.of(train, dev, sets, question, options)
    _check_memory(task, len(train_layers))
    found: list[Fitted] = [task.constant(), *(_baseline(task, one) for one in _each(task, baselines))]
    progress("probe", 0, len(train_layers))
    with threadpool_limits(1), torch_threads(1):
        for done, name in enumerate(train_layers, 1):
            found.append(task.fitted_on(name, _vectors(train_layers[name]), _vectors(dev_layers[name]), keep))
            progress("probe", done, len(train_layers))
    return _predictions(task, found)


@dataclass(frozen=True, slots=True)
class _Sets:
    """The labelled rows, and T label sets of them: y (T · labels, m) and y_dev (T · labels, n), label by label."""

    question: Question
    options: ProbeOptions
    train: Labels
    dev: Labels
    rows: np.ndarray
    rows_dev: np.ndarray
    sizes: Mapping[str, int | None]
    targets: tuple[Mapping[str, str | int | None], ...]
    y: np.ndarray
    y_dev: np.ndarray
    fold: np.ndarray
    apart: np.ndarray | None
    can: np.ndarray
    """Bool (T · labels,), whether a probe can be fitted: every fold leaves some of both, or numbers that differ."""

    @classmethod
    def of(cls, train: Labels, dev: Labels, sets: np.ndarray, question: Question, options: ProbeOptions) -> _Sets:
        rows, rows_dev = np.flatnonzero(train.known), np.flatnonzero(dev.known)
        if len(rows) < 2 or not len(rows_dev):
            raise UsageError(
                f"too few labelled rows to probe: {len(rows)} in train (2 needed), {len(rows_dev)} in dev (1 needed)."
            )
        sizes = {
            "n": len(rows_dev), "n_train": len(rows), "left_out_train": len(train.y) - len(rows),
            "left_out_dev": len(dev.y) - len(rows_dev), "labels": sets.shape[1],
            "seen_in_train": None if dev.seen is None else int(dev.seen[rows_dev].sum()),
        }  # fmt: skip
        train, dev = train[rows], dev[rows_dev]
        whole = replace(question, kind="classification")  # of label sets
        targets, codes, codes_dev = with_controls(train, dev, whole, options)
        fold, apart = folded(train, whole if sets.dtype == bool else replace(question, kind="regression"), options)
        kind = np.int8 if sets.dtype == bool else np.float64
        y, y_dev = (np.moveaxis(sets[c], 2, 1).reshape(-1, c.shape[1]).astype(kind) for c in (codes, codes_dev))
        inside = [fold != f for f in range(int(fold.max()) + 1)]
        can = np.array([all(len(np.unique(one[i])) > 1 for i in inside) for one in y])
        if not can[: sets.shape[1]].any():
            raise UsageError("no label occurs often enough in train to fit a probe on every fold.")
        return cls(question, options, train, dev, rows, rows_dev, sizes, targets, y, y_dev, fold, apart, can)

    @property
    def labels(self) -> int:
        return len(self.y) // len(self.targets)

    @property
    def classes(self) -> int:
        """2, or 0 for numbers."""
        return 0 if self.y.dtype == np.float64 else 2

    def constant(self) -> Fitted:
        """The more frequent answer for each label, or the mean of each number."""
        loss, said = _constant(self.y[: self.labels], self.y_dev[: self.labels])
        columns: dict[str, Any] = {"layer": None, "representation": "none", "target": "gold", "draw": None}
        columns |= {"estimator": "majority" if self.classes else "mean", "penalty": np.nan, "held_out": np.nan}
        columns |= {PENALTIES: ""}
        return [columns], None if loss is None else self.by_example(loss), self.by_example(said)

    def by_example(self, values: np.ndarray) -> np.ndarray:
        """(T · labels, n) as (T, n · labels)."""
        shape = len(values) // self.labels, self.labels, values.shape[1]
        return np.moveaxis(values.reshape(shape), 1, 2).reshape(shape[0], -1)

    def fitted_on(self, name: str, x: Any, x_dev: Any, keep: Callable[[str, Weights, np.ndarray], Any]) -> Fitted:
        """Probes of all label sets on one layer."""
        options, estimator = self.options, self.options.estimator
        estimator = Estimator(estimator or (Estimator.LOGISTIC if self.classes else Estimator.RIDGE))
        if (estimator is Estimator.RIDGE) == bool(self.classes):
            raise UsageError(
                f"{estimator} probes cannot be fitted to {'classes' if self.classes else 'numbers'}; choose "
                f"{'another estimator than ridge' if self.classes else 'ridge'}."
            )
        problem = Problem(
            x, self.rows, self.fitted_targets(self.can), self.classes, self.fold, estimator,
            grid(estimator, options.penalties, x.shape[1]), options.balanced, options.max_iter,
            groups=self.train.groups, seed=options.seed, apart=self.apart, scores=options.scores or "rolling:10",
        )  # fmt: skip
        chosen = select(problem, None)
        loss, said = _constant(self.y, self.y_dev)
        its_loss, its = chosen.fitted.outcome(x_dev, self.rows_dev, self.y_dev[self.can])
        said[self.can] = its[:, 0]
        if loss is not None and its_loss is not None:
            loss[self.can] = its_loss[:, 0]
        if (weights := self._weights(chosen.fitted)) is not None:  # gold is evaluated with what is kept
            logits = weights.logits(x_dev, self.rows_dev)
            keep(name, weights, logits)
            said[: self.labels] = logits.T > 0 if self.classes else logits.T
            if loss is not None:
                loss[: self.labels] = -log_expit(np.where(self.y_dev[: self.labels] == 1, logits.T, -logits.T))
        about = {"penalty": chosen.setting, "held_out": chosen.held_out, "converged": chosen.converged}
        told = _by_target(about, self.can, len(self.targets))
        each = np.full(len(self.can), np.nan)
        each[self.can] = chosen.setting
        told[PENALTIES] = np.array([_in_order(own) for own in each.reshape(len(self.targets), -1)])
        columns = [
            {"layer": name, "estimator": str(estimator), **target, **{key: values[i] for key, values in told.items()}}
            for i, target in enumerate(self.targets)
        ]
        return columns, None if loss is None else self.by_example(loss), self.by_example(said)

    def _weights(self, fitted: Any) -> Weights | None:
        """The weights of gold labels, an output for each; None if they are not linear."""
        share = np.clip(self.y[: self.labels].mean(1), 0.5 / self.y.shape[1], 1 - 0.5 / self.y.shape[1])
        constant = logit(share) if self.classes else self.y[: self.labels].mean(1)
        at = np.cumsum(self.can) - 1
        return stacked([
            weights_of(fitted, int(at[k])) if self.can[k] else float(constant[k]) for k in range(self.labels)
        ])  # fmt: skip

    def fitted_targets(self, which: np.ndarray) -> np.ndarray:
        """Some rows of ``y``, with the numbers that solvers expect."""
        return self.y[which].astype(np.int64 if self.classes else np.float64, copy=False)

    def of_label(self, k: int) -> LabelSets:
        """The gold labels of one label alone."""
        return LabelSets(
            self.train, self.dev, self.rows, self.rows_dev, self.targets[:1], self.fitted_targets(np.array([k])),
            self.y_dev[k][None], self.classes, self.fold, None, self.sizes,
        )  # fmt: skip


def _each(task: _Sets, given: Baselines) -> Iterator[list[Any]]:
    """For each baseline, the function that fits it for each label, or None where no probe can be fitted."""
    if task.dev.types is not None:
        return
    question = replace(task.question, kind="classification" if task.classes else "regression")
    by_label = [
        list(baseline_fits(Experiment(question, task.of_label(k), task.options), given)) if task.can[k] else None
        for k in range(task.labels)
    ]
    for i in range(max(len(fits) for fits in by_label if fits is not None)):
        yield [None if fits is None else fits[i] for fits in by_label]


def _baseline(task: _Sets, by_label: list[Any]) -> Fitted:
    """One baseline, fitted for each label."""
    loss, said = _constant(task.y[: task.labels], task.y_dev[: task.labels])
    columns, each = list[dict[str, Any]](), np.full(task.labels, np.nan)
    for k, fit in enumerate(by_label):
        if fit is None:
            continue
        found = fit()
        said[k] = found.predicted[0]
        if loss is not None and found.loss is not None:
            loss[k] = found.loss[0]
        columns.append(found.columns[0])
        each[k] = columns[-1]["penalty"]
    summary = {"penalty": np.median([c["penalty"] for c in columns]), "converged": all(c["converged"] for c in columns)}
    about = columns[0] | summary | {"held_out": np.mean([c["held_out"] for c in columns]), PENALTIES: _in_order(each)}
    return [about], None if loss is None else task.by_example(loss), task.by_example(said)


def _check_memory(task: _Sets, layers: int) -> None:
    """Raise UsageError if the predictions of all fits are larger than this machine's memory."""
    names, texts = task.question.label_names, len(task.rows_dev)
    a_name = 8 * max(map(len, names), default=0)  # two strings of 4 bytes a character
    each = 2 * (6 if task.classes else 16)  # gold, predicted and loss; twice, while they are joined
    size = texts * task.labels * (layers * len(task.targets) * each + a_name + 64)
    if size > memory():
        raise UsageError(
            f"{task.labels:,} labels of {texts:,} evaluated texts, for {layers} layers and {len(task.targets) - 1} "
            f"controls, need about {in_words(size)} of memory; this machine has {in_words(memory())}. Probe fewer "
            "layers (--layers), labels or controls, or a part of the texts."
        )


def _in_order(penalties: np.ndarray) -> str:
    return " ".join(str(penalty) for penalty in penalties.tolist())


def _vectors(given: Vectors) -> Any:
    return given() if callable(given) else given


def _constant(y: np.ndarray, y_dev: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Log loss, nats, and prediction of each label's frequency in train, (labels, n); of numbers their mean alone."""
    if y.dtype == np.float64:
        return None, np.tile(y.mean(1, keepdims=True), (1, y_dev.shape[1]))
    share = np.clip(y.mean(1, keepdims=True), 0.5 / y.shape[1], 1 - 0.5 / y.shape[1])
    loss = -np.log(np.where(y_dev == 1, share, 1 - share)).astype(np.float32)
    return loss, np.broadcast_to(share > 0.5, y_dev.shape).astype(np.int8)


def _by_target(about: Mapping[str, np.ndarray], fitted: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """For each label set: the median penalty, the mean held-out loss, and whether all of its fits converged."""
    of = np.flatnonzero(fitted) // (len(fitted) // count)
    summaries: dict[str, Any] = {"penalty": np.median, "held_out": np.mean, "converged": np.all}
    return {
        name: np.array([summary(about[name][of == i]) if (of == i).any() else np.nan for i in range(count)])
        for name, summary in summaries.items()
    }


def _predictions(task: _Sets, found: list[Fitted]) -> Predictions:
    import pandas as pd

    base = {**task.question.about, "seed": task.options.seed, **task.sizes}
    base |= {"penalty_at_edge": False, "decrement": np.nan, "digest": "", "converged": True}
    fits = pd.DataFrame([{**base, **columns} for some, _, _ in found for columns in some])
    gold, losses = task.by_example(task.y_dev), [loss for _, loss, _ in found if loss is not None]
    return predictions_of_labels(
        fits, task.dev, task.question.label_names, task.question.metrics,
        np.concatenate([gold[: len(said)] for _, _, said in found]), np.concatenate([said for _, _, said in found]),
        np.concatenate(losses) if losses else None,
    )  # fmt: skip


def predictions_of_labels(
    fits: pd.DataFrame, dev: Labels, names: Sequence[str], metrics: tuple[str, ...], gold: np.ndarray,
    said: np.ndarray, loss: np.ndarray | None,
) -> Predictions:  # fmt: skip
    """The table of F fits for the n · labels pairs of an example and a label.

    Parameters
    ----------
    dev : Labels
        The n labelled examples.
    names : sequence of str
        The labels, or numbers.
    gold, said : np.ndarray
        (F, n · labels), example by example: 0 and 1, or numbers.
    loss : np.ndarray, optional
        (F, n · labels), nats; None for numbers.
    """
    pairs = pairs_of(np.arange(len(dev.y)) if dev.ids is None else dev.ids, names, dev.groups)
    kind, measured = (np.float64, ()) if loss is None else (np.int8, ("log-loss",))
    return Predictions(
        fits,
        pairs["ids"],
        gold.astype(kind),
        said.astype(kind),
        tuple(dict.fromkeys((*metrics, *measured))),
        pairs["groups"],
        None if loss is None else loss.astype(np.float32),
        () if loss is None else ("no", "yes"),
        of_label=pairs["of_label"],
    )
