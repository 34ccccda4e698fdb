"""Diagnostic classifiers, layer by layer: what a probe reads off each layer's vectors, beside what it reads off noise.

The protocol, for each layer on its own (Conneau et al. 2018; Peters, Ruder & Smith 2019, section 3): features are
standardised on train; the penalty is chosen by cross-validation within train; the model is fitted again on all of
train and evaluated once. Labels that carry nothing (shuffled; random by word type, Hewitt & Liang 2019) go the same
way beside the gold ones, and so do inputs that need no model. What is evaluated on is never looked at to choose.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.errors import NonFiniteError, UsageError
from probekit.probes.protocol.baselines import SPARSE_CS, sparse_path, sparse_ridge, type_majority
from probekit.probes.protocol.folds import folds, held_out
from probekit.probes.protocol.labels import Inputs, Labels
from probekit.probes.protocol.options import LOG_LOSS, ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.probes.protocol.selection import Estimator, Problem, grid, select
from probekit.probes.solvers.ridge import ALPHAS
from probekit.runtime import Progress, no_progress, torch_threads
from probekit.statistics.bootstrap import estimates
from probekit.statistics.calibration import MEASURES, tempered
from probekit.statistics.controls import control_task, shuffled_splits
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd
    from scipy import sparse

__all__ = ["evaluate_layers", "layer_rows", "pair_features"]

log = logging.getLogger(__name__)

Vectors = Any | Callable[[], Any]
CONTROLS = {"words": 3, "texts": 10}


def layer_rows(
    train_layers: Mapping[str, Vectors],
    y_train: np.ndarray | Labels,
    dev_layers: Mapping[str, Vectors],
    y_dev: np.ndarray | Labels,
    *,
    kind: str,
    metrics: Mapping[str, Any],
    options: ProbeOptions | None = None,
    **more: Any,
) -> pd.DataFrame:
    """Rows of every metric of every fit, as :func:`evaluate_layers` makes them; its arguments, and

    metrics : name → function of (y_true, y_pred), or an object with ``function`` and ``sign``. The first
        one is the main one. ``span-f1`` is handed one list of tag names (``label_names``) a sentence. The log loss in
        nats is always measured where classes are predicted.
    """
    options = options or ProbeOptions()
    found = evaluate_layers(
        train_layers, y_train, dev_layers, y_dev, kind=kind, metrics=metrics, options=options, **more
    )
    seen = y_dev.seen[y_dev.known] if isinstance(y_dev, Labels) and y_dev.seen is not None else None
    return probe_rows(found, metrics, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed)


def evaluate_layers(
    train_layers: Mapping[str, Vectors],
    y_train: np.ndarray | Labels,
    dev_layers: Mapping[str, Vectors],
    y_dev: np.ndarray | Labels,
    *,
    kind: str,
    metrics: Mapping[str, Any],
    about: Mapping[str, Any],
    label_names: Sequence[str] = (),
    inputs: Inputs | None = None,
    options: ProbeOptions | None = None,
    progress: Progress = no_progress,
) -> Predictions:
    """Fit a probe on each layer, for gold labels and controls, and keep what each says of every dev example.

    train_layers, dev_layers : by layer name, float (n, d) arrays or memory maps, or functions that give one. They are
        read in blocks: neither need fit into memory.
    y_train, y_dev : labels (n,), or :class:`Labels`. Unlabelled rows are left out and counted.
    kind : "classification" and "sequence-labelling" (logistic regression, multinomial) or "regression" (ridge)
    metrics : see :func:`layer_rows`; one of them may choose the penalty
    about : the columns task, split, model, representation … of the rows
    label_names : of the classes

    The columns of ``fits`` are those of rows, and: penalty (the setting chosen), held_out (its mean loss on the
    folds, or the metric that chose it, with the sign that makes small good), penalty_at_edge (the grid's first or
    last, and clearly better than its neighbour: widen the grid), converged (of every fit that it rests on), decrement
    (Newton decrement reached), digest (of the coefficients), n_train, left_out_train and left_out_dev (unlabelled
    rows), seen_in_train (dev rows that train holds too); with ``calibrate`` also temperature, and
    calibration-error-15 and brier as they are and ", scaled" by the temperature.
    Raises NonFiniteError naming a layer that holds NaN or infinity, UsageError for shapes, layers or labels that do
    not fit together.
    """
    options = options or ProbeOptions()
    if list(train_layers) != list(dev_layers):
        raise UsageError(f"train has the layers {', '.join(train_layers)}; dev has {', '.join(dev_layers)}.")
    if not metrics:
        raise UsageError("no metric was given.")
    grouped = all(isinstance(y, Labels) and y.groups is not None for y in (y_train, y_dev))
    if not grouped and any(name.startswith("span-") for name in metrics):
        raise UsageError("metrics of spans want the sentence of each word: give Labels with groups, for train and dev.")
    job = _Job.of(y_train, y_dev, kind, metrics, about, label_names, options)
    work: list[Callable[[], _Found]] = [
        partial(job.layer, name, train_layers[name], dev_layers[name]) for name in train_layers
    ]
    work = [*job.inputs(inputs or Inputs()), *work]  # the longest first
    found = [job.baseline()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with threadpool_limits(1), torch_threads(1), ThreadPoolExecutor(options.threads or cores) as pool:
        for done, one in enumerate(pool.map(lambda piece: piece(), work), 1):
            found.append(one)
            progress("probe", done, len(work))
    evaluated = job.gather(found)
    _complain(evaluated, options)
    return evaluated


@dataclass(frozen=True, slots=True)
class _Found:
    """Fits of one layer or input: their columns, and of each the labels asked for, predictions and losses (n,)."""

    fits: list[dict[str, Any]]
    gold: np.ndarray
    predicted: np.ndarray
    loss: np.ndarray | None


@dataclass(frozen=True, slots=True)
class _Job:
    """Labels and label sets of the known rows, and how they are folded: the same for every layer."""

    train: Labels
    dev: Labels
    names: tuple[str, ...]
    y: np.ndarray
    y_dev: np.ndarray
    classes: int
    fold: np.ndarray
    rows: np.ndarray
    rows_dev: np.ndarray
    metrics: Mapping[str, Any]
    label_names: tuple[str, ...]
    common: Mapping[str, Any]
    options: ProbeOptions

    @classmethod
    def of(
        cls,
        y_train: np.ndarray | Labels,
        y_dev: np.ndarray | Labels,
        kind: str,
        metrics: Mapping[str, Any],
        about: Mapping[str, Any],
        label_names: Sequence[str],
        options: ProbeOptions,
    ) -> _Job:
        classify = kind != "regression"
        train, dev = (
            y if isinstance(y, Labels) else Labels(np.asarray(y, dtype=None if classify else np.float64))
            for y in (y_train, y_dev)
        )
        if classify and (kinds := [y.y.dtype for y in (train, dev) if y.y.dtype.kind not in "iu"]):
            raise UsageError(f"classes are whole numbers from 0, -1 for unlabelled; these labels are {kinds[0]}.")
        rows, rows_dev = np.flatnonzero(train.known), np.flatnonzero(dev.known)
        if len(rows_dev) == 0 or len(rows) < 2:
            raise UsageError(f"{len(rows)} labelled rows in train and {len(rows_dev)} in dev: too few to probe.")
        sizes = {
            "n_train": len(rows),
            "left_out_train": len(train.y) - len(rows),
            "left_out_dev": len(dev.y) - len(rows_dev),
            "seen_in_train": None if dev.seen is None else int(dev.seen[rows_dev].sum()),
        }
        train, dev = train[rows], dev[rows_dev]
        if classify and (strange := int((~np.isin(dev.y, train.y)).sum())):
            log.warning("%d of dev have a label that train lacks; their log loss says little.", strange)
        groups = train.groups
        if options.hold_out_types:
            if train.types is None:
                raise UsageError("hold_out_types wants the word type of each row; these rows are no words.")
            groups = train.types
        if len(np.unique(train.y)) < 2:
            raise UsageError("all labels in train are the same; there is nothing to tell apart.")
        names, y, y_held = ["gold"], [train.y[None]], [dev.y[None]]
        words = train.types is not None and dev.types is not None
        k = CONTROLS["words" if words else "texts"] if options.controls is None else options.controls
        if k:
            names += [f"shuffled-{i}" for i in range(k)]
            for parts, own in zip((y, y_held), shuffled_splits(train.y, dev.y, k, options.seed), strict=True):
                parts.append(own)
        if k and words:
            names += [f"control-task-{i}" for i in range(k)]
            both = control_task(train.types, dev.types, train.y, k, options.seed)  # type: ignore[arg-type]
            for parts, own in zip((y, y_held), both, strict=True):
                parts.append(own)
        if options.held_out is None:
            fold = folds(train.y, options.folds, groups=groups, seed=options.seed, stratify=classify)
        else:
            share = held_out(train.y, options.held_out, groups=groups, seed=options.seed, stratify=classify)
            fold = np.where(share, 0, -1)
        most = max(int(train.y.max()), len(label_names) - 1) if classify else -1
        if classify and int(dev.y.max()) > most:  # another class would change the fit, and dev has no say in that
            raise UsageError(f"dev has the class {dev.y.max()}, train and label_names end at {most}; name all classes.")
        common = {"checkpoint": "", **about, "seed": options.seed, "n": len(rows_dev), **sizes}
        common.pop("target", None)
        ys = [np.concatenate(parts) for parts in (y, y_held)]
        return cls(
            train, dev, tuple(names), ys[0], ys[1], most + 1, fold, rows, rows_dev, metrics, tuple(label_names), common,
            options,
        )  # fmt: skip

    def layer(self, name: str, train: Vectors, dev: Vectors) -> _Found:
        x, x_dev = (_matrix(v, len(k) + left, name) for v, k, left in (
            (train, self.rows, self.common["left_out_train"]), (dev, self.rows_dev, self.common["left_out_dev"])
        ))  # fmt: skip
        if x.shape[1] != x_dev.shape[1]:
            raise UsageError(f"layer {name}: train has {x.shape[1]} features, dev has {x_dev.shape[1]}.")
        return self._select(x, x_dev, self.rows, self.rows_dev, self.names, {"layer": name})

    def inputs(self, given: Inputs) -> Iterator[Callable[[], _Found]]:
        """Work on the inputs that there are: gold labels only."""
        if given.bag is not None:
            yield partial(self._bag, *given.bag)
        if given.length is not None:
            about = {"layer": None, "representation": "length"}
            x, x_dev = given.length
            yield partial(self._select, x, x_dev, self.rows, self.rows_dev, ("gold",), about)
        if self.train.types is not None and self.classes:
            yield self._types

    def _select(
        self,
        x: Any,
        x_dev: Any,
        rows: np.ndarray,
        rows_dev: np.ndarray,
        names: tuple[str, ...],
        about: Mapping[str, Any],
    ) -> _Found:
        options = self.options
        plain = Estimator.LOGISTIC if self.classes else Estimator.RIDGE
        own = plain if options.estimator is None else Estimator(options.estimator)
        if (own is Estimator.RIDGE) == bool(self.classes):
            raise UsageError(f"{own} probes do not go with {'classes' if self.classes else 'numbers'} as labels.")
        if about["layer"] is None:  # an input: whatever is fitted on the layers, the plain probe here
            own = plain
        given = options.penalties if own == (options.estimator or own) else None
        y = self.y[: len(names)]
        problem = Problem(
            x,
            rows,
            y,
            self.classes,
            self.fold,
            own,
            grid(own, given, x.shape[1]),
            options.balanced,
            options.max_iter,
            options.calibrate,
            self.train.groups,
            options.seed,
        )
        try:
            chosen = select(problem, None if options.choose_by == LOG_LOSS else self._criterion)
        except NonFiniteError as error:
            raise NonFiniteError(f"{_called(about)}: {error} First in row {_first_bad(x, rows)}.") from None
        try:
            loss, predicted = chosen.fitted.outcome(x_dev, rows_dev, self.y_dev[: len(names)])
        except NonFiniteError:
            where = f"First in row {_first_bad(x_dev, rows_dev)}."
            raise NonFiniteError(f"{_called(about)} of dev holds NaN or infinity. {where}") from None
        fits = [
            {
                **about,
                "estimator": str(own),
                "target": name,
                "penalty": chosen.setting[i],
                "held_out": chosen.held_out[i],
                "penalty_at_edge": bool(chosen.edge[i]),
                "converged": bool(chosen.converged[i]),
                "decrement": chosen.decrement[i],
                "digest": chosen.digest[i],
            }
            for i, name in enumerate(names)
        ]
        if options.calibrate and self.classes:
            log_p = chosen.fitted.log_proba(x_dev, rows_dev)[:, 0]
            cooled = tempered(log_p, chosen.temperature)
            for i, fit in enumerate(fits):
                gold = self.y_dev[i]
                fit["temperature"] = chosen.temperature[i]
                for name, measure in MEASURES.items():
                    fit[name] = measure(log_p[i : i + 1], gold)[0]
                    fit[f"{name}, scaled"] = measure(cooled[i : i + 1], gold)[0]
        return _Found(fits, self.y_dev[: len(names)], predicted[:, 0], None if loss is None else loss[:, 0])

    def _criterion(self, y: np.ndarray, predicted: np.ndarray, loss: np.ndarray | None) -> np.ndarray:
        """Of the metric asked for, with the sign that makes small good, (targets, settings)."""
        name = self.options.choose_by
        if name not in self.metrics:
            raise UsageError(f"choose_by is log-loss or one of the metrics {', '.join(self.metrics)}, not {name!r}.")
        score = self.metrics[name]
        sign = -getattr(score, "sign", 1)
        groups = None
        if name.startswith("span-"):
            groups = np.concatenate([self.train.groups[self.fold == f] for f in range(self.fold.max() + 1)])  # type: ignore[index]
        value = [
            estimates(
                gold, own, name, score=getattr(score, "function", score), groups=groups, label_names=self.label_names
            )
            for gold, own in zip(y, predicted, strict=True)
        ]
        return sign * np.stack(value)

    def _bag(self, x: sparse.csr_matrix, x_dev: sparse.csr_matrix) -> _Found:
        """The bag of pieces: scikit-learn's sparse solver; the first fold chooses the penalty."""
        x, x_dev, held = x[self.rows], x_dev[self.rows_dev], self.fold == 0
        y, y_dev = self.y[0], self.y_dev[0]
        about = {"layer": None, "representation": "bag-of-pieces", "target": "gold"}
        if self.classes:
            path = sparse_path(x[~held], y[~held], self.classes, SPARSE_CS, balanced=self.options.balanced)
            log_p = path.log_proba(x[held]).clip(-50)
            losses = -np.take_along_axis(log_p, y[None, held, None], 2)[..., 0]
            score = losses.mean(1)
            if self.options.choose_by != LOG_LOSS:
                score = self._criterion(y[None, held], log_p.argmax(2)[None], losses[None])[0]
            best = int(score.argmin())
            last = sparse_path(x, y, self.classes, [SPARSE_CS[best]], balanced=self.options.balanced)
            log_p = last.log_proba(x_dev)[0].clip(-50)
            fit = {
                **about,
                "estimator": "logistic",
                "penalty": SPARSE_CS[best],
                "converged": bool(path.converged[best] and last.converged[0]),
                "held_out": score[best],
            }
            return _Found([fit], y_dev[None], log_p.argmax(1)[None], -log_p[np.arange(len(y_dev)), y_dev][None])
        alphas = ALPHAS[::-1]
        errors = ((sparse_ridge(x[~held], y[~held], alphas).predict(x[held]) - y[held]) ** 2).mean(1)
        best = int(errors.argmin())
        predicted = sparse_ridge(x, y, [alphas[best]]).predict(x_dev)
        fit = {
            **about,
            "estimator": "ridge",
            "penalty": alphas[best],
            "converged": True,
            "held_out": errors[best],
        }
        return _Found([fit], y_dev[None], predicted, None)

    def _types(self) -> _Found:
        """The most frequent label of each word type."""
        log_p = type_majority(self.train.types, self.y[0], self.classes).log_proba(self.dev.types).clip(-50)  # type: ignore[arg-type]
        gold = self.y_dev[0]
        fit = {"layer": None, "representation": "word-type", "estimator": "type-majority", "target": "gold"}
        return _Found([fit], gold[None], log_p.argmax(1)[None], -log_p[np.arange(len(gold)), gold][None])

    def baseline(self) -> _Found:
        """The class most frequent in train with the shares of classes as probabilities, or the mean."""
        y, gold = self.train.y, self.dev.y
        fit = {"layer": None, "representation": "none", "target": "gold"}
        if not self.classes:
            return _Found([{**fit, "estimator": "mean"}], gold[None], np.full((1, len(gold)), y.mean()), None)
        count = np.bincount(y, minlength=self.classes)
        loss = -np.log(np.maximum(count, 0.5) / len(y))[gold]
        return _Found(
            [{**fit, "estimator": "majority"}], gold[None], np.full((1, len(gold)), count.argmax()), loss[None]
        )

    def gather(self, found: Sequence[_Found]) -> Predictions:
        import pandas as pd

        plain = {"penalty": np.nan, "held_out": np.nan, "decrement": np.nan, "digest": ""}
        flags = {"penalty_at_edge": False, "converged": True}
        fits = pd.DataFrame([{**self.common, **plain, **flags, **fit} for one in found for fit in one.fits])
        fits["layer_name"] = ["" if fit["layer"] is None else str(fit["layer"]) for one in found for fit in one.fits]
        fits["layer"] = pd.array([int(n) if n.isdigit() else None for n in fits["layer_name"]], dtype="Int64")
        fits["step"] = pd.array([self.common.get("step")] * len(fits), dtype="Int64")
        n = len(self.rows_dev)
        names = tuple(self.metrics) + ((LOG_LOSS,) if self.classes and LOG_LOSS not in self.metrics else ())
        return Predictions(
            fits,
            np.arange(n).astype(str) if self.dev.ids is None else self.dev.ids,
            np.concatenate([one.gold for one in found]),
            np.concatenate([one.predicted for one in found]),
            names,
            self.dev.groups,
            np.concatenate([one.loss for one in found if one.loss is not None]).astype(np.float32)
            if self.classes
            else None,
            self.label_names,
            self._prior(list(fits["target"]), np.concatenate([one.gold for one in found])),
        )

    def _prior(self, targets: Sequence[str], gold: np.ndarray) -> np.ndarray | None:
        """Log losses of the shares that each target's classes have in train, float32 (F, n)."""
        if not self.classes or self.options.balanced:
            return None
        count = np.stack([np.bincount(y, minlength=self.classes) for y in self.y])
        loss = -np.log(np.maximum(count, 0.5) / count.sum(1, keepdims=True)).astype(np.float32)
        at = [self.names.index(name) for name in targets]
        return np.take_along_axis(loss[at], gold, 1)


def _matrix(vectors: Vectors, rows: int, name: str) -> Any:
    x = vectors() if callable(vectors) else vectors
    x = x if hasattr(x, "shape") and hasattr(x, "dtype") else np.asarray(x)
    if len(x.shape) != 2 or x.shape[0] != rows:
        raise UsageError(f"layer {name}: vectors {x.shape} do not go with {rows} labels; (n, d) is wanted.")
    return x


def _called(about: Mapping[str, Any]) -> str:
    return f"layer {about['layer']}" if about["layer"] is not None else str(about["representation"])


def _first_bad(x: Any, rows: np.ndarray) -> int:
    for at in np.array_split(rows, -(-len(rows) // 4096)):
        bad = ~np.isfinite(np.asarray(x[at], dtype=np.float64)).all(1)
        if bad.any():
            return int(at[bad.argmax()])
    return -1


def _complain(found: Predictions, options: ProbeOptions) -> None:
    """Lines for all layers: a narrow grid, a solver that did not get there, folds that gave answers away."""
    layer = "layer " + found.fits["layer_name"].astype(str)
    fits = found.fits.assign(name=np.where(found.fits["layer_name"] == "", found.fits["representation"], layer))
    gold = fits[fits["target"] == "gold"]
    if edges := [f"{fit.name} ({fit.penalty:g})" for fit in gold[gold["penalty_at_edge"]].itertuples(index=False)]:
        log.info("the best penalty is at the edge of the grid in %s; widen it.", ", ".join(edges))
    if short := sorted(set(fits.loc[~fits["converged"].astype(bool), "name"])):
        log.warning("not converged in %d iterations: %s.", options.max_iter, ", ".join(short))
    if found.log_loss is not None and options.choose_by == LOG_LOSS:
        loss = found.log_loss[gold.index].mean(1)
        prior = found.log_loss[fits.index[fits["estimator"] == "majority"]].mean()
        far = gold[(loss > 2 * gold["held_out"]) & (loss > prior)]
        if len(far):
            log.warning(
                "what was evaluated is predicted worse than by the shares of the classes, while the folds promised "
                "less than half the loss, in %s: do examples of train give each other away? See hold_out_domains.",
                ", ".join(far["name"]),
            )


def pair_features(x: np.ndarray) -> np.ndarray:
    """[u; v] as [u; v; |u - v|; u * v], (n, 2d) to (n, 4d) (Conneau et al. 2017, section 3.1)."""
    u, v = np.split(x, 2, axis=1)
    return np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
