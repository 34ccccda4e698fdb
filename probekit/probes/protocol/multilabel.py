"""Diagnostic classifiers of several labels that can hold at once: one for each label, evaluated together.

The procedure is that of :mod:`probekit.probes.protocol.diagnostic`, with a logistic regression of each label and a
penalty for each, chosen by cross-validation (binary relevance). Controls move the whole label set of an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.errors import UsageError
from probekit.probes.protocol.experiment import Vectors
from probekit.probes.protocol.label_sets import folded, with_controls
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.selection import Estimator, Problem, grid, select
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.statistics.predictions import Predictions


def evaluate_label_sets(
    train_layers: Mapping[str, Vectors],
    train: Labels,
    dev_layers: Mapping[str, Vectors],
    dev: Labels,
    sets: np.ndarray,
    question: Question,
    *,
    options: ProbeOptions = ProbeOptions(),
    progress: Progress = no_progress,
) -> Predictions:
    """Fit probes of all labels on each layer, for gold labels and controls; predictions for each dev example and label.

    Parameters
    ----------
    train_layers, dev_layers : mapping of str to array
        As for :func:`probekit.probes.protocol.diagnostic.evaluate_layers`.
    train, dev : Labels
        The number of each example's label set, m and n of them, all labelled.
    sets : ndarray
        Bool (s, labels), the label sets by number.
    question : Question
        Metrics of 0 and 1, the label names, and columns that describe the vectors.
    options : ProbeOptions
        How the probes are fitted; ``calibrate`` and ``choose_by`` do not apply.
    progress : callable
        Called before the first layer and after each.

    Returns
    -------
    Predictions
        Of the n · labels pairs of an example and a label, with the ids "EXAMPLE/LABEL"; 1 if the label holds.
    """
    if options.calibrate or options.choose_by != "log-loss":
        raise UsageError("where several labels can hold at once, leave out calibrate and choose_by.")
    targets, codes, codes_dev = with_controls(train, dev, question, options)
    fold, apart = folded(train, question, options)
    y = np.moveaxis(sets[codes], 2, 1).reshape(-1, len(train.y)).astype(np.int64)  # (targets · labels, m)
    gold = sets[codes_dev].reshape(len(targets), -1).astype(np.int8)  # (targets, n · labels)
    y_dev = np.moveaxis(sets[codes_dev], 2, 1).reshape(-1, len(dev.y)).astype(np.int64)
    inside = [fold != f for f in range(int(fold.max()) + 1)]
    fitted = np.array([len(np.unique(one)) == 2 and all(len(np.unique(one[i])) == 2 for i in inside) for one in y])
    if not fitted[: sets.shape[1]].any():
        raise UsageError("no label occurs often enough in train to fit a probe on every fold.")
    estimator = Estimator(options.estimator or Estimator.LOGISTIC)
    if estimator is Estimator.RIDGE:
        raise UsageError("ridge probes cannot be fitted to classes; choose another estimator than ridge.")

    def fitted_on(x: Any, x_dev: Any) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        settings = grid(estimator, options.penalties, x.shape[1])
        rows, rows_dev = np.arange(len(train.y)), np.arange(len(dev.y))
        problem = Problem(
            x, rows, y[fitted], 2, fold, estimator, settings, options.balanced, options.max_iter,
            groups=train.groups, seed=options.seed, apart=apart,
        )  # fmt: skip
        chosen = select(problem, None)
        loss, predicted = _constant(y, y_dev)
        its_loss, its = chosen.fitted.outcome(x_dev, rows_dev, y_dev[fitted])
        loss[fitted], predicted[fitted] = its_loss[:, 0], its[:, 0]  # type: ignore[index]
        about = {"penalty": chosen.setting, "held_out": chosen.held_out, "converged": chosen.converged}
        shape = len(targets), sets.shape[1], len(dev.y)
        loss, predicted = (np.moveaxis(a.reshape(shape), 1, 2).reshape(len(targets), -1) for a in (loss, predicted))
        return _by_target(about, fitted, len(targets)), loss, predicted

    found = []
    progress("probe", 0, len(train_layers))
    with threadpool_limits(1), torch_threads(1):
        for done, name in enumerate(train_layers, 1):
            found.append(fitted_on(*(_vectors(v[name]) for v in (train_layers, dev_layers))))
            progress("probe", done, len(train_layers))
    none_loss, none = _constant(y[: sets.shape[1]], y_dev[: sets.shape[1]])
    base = {**question.about, "seed": options.seed, "n": len(dev.y), "n_train": len(train.y), "left_out_train": 0}
    base |= {"left_out_dev": 0, "penalty_at_edge": False, "decrement": np.nan, "digest": ""}
    base |= {"seen_in_train": None if dev.seen is None else int(dev.seen.sum()), "labels": sets.shape[1]}
    fits = [{**base, "layer": None, "representation": "none", "estimator": "majority", "target": "gold", "draw": None}]
    fits[0] |= {"penalty": np.nan, "held_out": np.nan, "converged": True}
    for name, (about, _, _) in zip(train_layers, found, strict=True):
        for i, target in enumerate(targets):
            chosen = {key: values[i] for key, values in about.items()}
            fits.append({**base, "layer": name, "estimator": str(estimator), **target, **chosen})
    return _predictions(fits, found, (none_loss.T.reshape(1, -1), none.T.reshape(1, -1)), gold, dev, question)


def _vectors(given: Vectors) -> Any:
    return given() if callable(given) else given


def _constant(y: np.ndarray, y_dev: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log loss, nats, and prediction of each label's frequency in train: float32 and int8 (labels, n)."""
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


def _predictions(
    fits: list[dict[str, Any]],
    found: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]],
    none: tuple[np.ndarray, np.ndarray],
    gold: np.ndarray,
    dev: Labels,
    question: Question,
) -> Predictions:
    import pandas as pd

    names, n = question.label_names, len(dev.y)
    ids = np.arange(n).astype(str) if dev.ids is None else dev.ids
    pairs = np.char.add(np.repeat(np.char.add(ids.astype(str), "/"), len(names)), np.tile(np.array(names), n))
    return Predictions(
        pd.DataFrame(fits),
        pairs,
        np.concatenate([gold[:1], *[gold] * len(found)]),
        np.concatenate([none[1], *(predicted for _, _, predicted in found)]).astype(np.int8),
        tuple(dict.fromkeys((*question.metrics, "log-loss"))),
        np.repeat(np.arange(n) if dev.groups is None else dev.groups, len(names)),
        np.concatenate([none[0], *(loss for _, loss, _ in found)]).astype(np.float32),
        ("no", "yes"),
    )
