"""Probes of each model of caches in pairs on the vectors of a reference, and those of the reference on theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.directions.rows import Data, Layer, other_layers, rows_of
from probekit.analyses.matching import Matched, check_finite, check_layers, check_once, check_same_data, matched
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import Pairs, check_pair
from probekit.errors import UsageError
from probekit.metrics import metric as metric_called
from probekit.notes import logger
from probekit.probes.directions import Side, fit, halves
from probekit.probes.protocol.label_sets import LabelSets, label_sets
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import Estimator, ProbeOptions
from probekit.rows import Result, make_rows
from probekit.rows.schema import identified
from probekit.runtime import Progress
from probekit.statistics.relabelling import shuffles

if TYPE_CHECKING:
    from probekit.analyses.directions import DirectionsOptions

log = logger(__name__)


def measure(caches: Pairs, vectors: VectorOptions, options: DirectionsOptions, progress: Progress) -> Result:
    """The rows of :func:`probekit.directions`."""
    with caches:
        pairs = list(caches.opened())
        if len(pairs) < 2:
            raise UsageError(
                "directions needs the pair of a reference and that of another model: TRAIN.h5 DEV.h5 TRAIN_B.h5 "
                "DEV_B.h5."
            )
        metric = _metric(pairs[0][0], options)
        for first, *others in zip(*pairs, strict=True):
            for cache in others:
                check_same_data(first, cache)
        for pair in pairs:
            check_pair(*pair, vectors.layers, (metric,), any_split=options.any_split)
        check_once([cache for pair in pairs for cache in pair])
        train, dev = _matched(pairs, vectors)
        records = list(_records(_Work.of(train, dev, metric, options), progress))
    return Result(make_rows(records), reads=tuple(caches.reads))


def _metric(cache: ActivationCache, options: DirectionsOptions) -> str:
    """The metric; UsageError for one that predictions of one example do not determine, and for several labels."""
    if cache.label_values is not None or cache.spec["kind"] == "span-labelling":
        raise UsageError(f"{cache.path}: directions reads one label, or one number, of each text or word.")
    name = options.metric or cache.spec["metrics"][0]
    one = metric_called(name)
    if one.needs not in ("classes", "labels", "numbers"):
        raise UsageError(
            f"directions measures predictions, such as accuracy or pearson, not {name}; name another --metric."
        )
    if one.better == "lower":
        raise UsageError(
            f"directions needs a metric of which more is better: {name} is an error in units of the labels, so that no "
            "margin suits it; name another --metric, such as pearson."
        )
    return name


def _matched(
    pairs: Sequence[tuple[ActivationCache, ActivationCache]], vectors: VectorOptions
) -> tuple[Matched, Matched]:
    """The examples of train and of dev that all models share."""
    train = matched([pair[0] for pair in pairs], vectors)
    if not train.words:
        vectors = replace(vectors, pooling=str(train.sides[0].columns["representation"]))
    dev = matched([pair[1] for pair in pairs], vectors)
    for of in (train, dev):
        for side in of.sides[1:]:
            check_layers(of.sides[0], side)
    return train, dev


@dataclass(frozen=True, slots=True)
class _Work:
    """What is shared by all models and layers."""

    train: Matched
    dev: Matched
    sets: LabelSets
    data: Data
    half: np.ndarray
    metric: str
    estimator: Estimator
    options: DirectionsOptions

    @classmethod
    def of(cls, train: Matched, dev: Matched, metric: str, options: DirectionsOptions) -> _Work:
        spec, seed = train.sides[0].cache.spec, options.seed
        question = Question(spec["kind"], (metric,), tuple(spec["label_names"]))
        sets = label_sets(train.labels, dev.labels, question, ProbeOptions(controls=0, folds=options.folds, seed=seed))
        y, groups = sets.train.y, sets.train.groups
        units = len(y) if groups is None else len(np.unique(groups))
        orders = [order for some in shuffles(len(y), groups, draws=options.draws, seed=seed) for order in some]
        data = Data(sets.dev.y, sets.dev.groups, sets.classes, units, orders, question.label_names)
        half = halves(y, groups, seed, classes=question.classify)
        estimator = Estimator(options.estimator) if question.classify else Estimator.RIDGE
        return cls(train, dev, sets, data, half, metric, estimator, options)

    def side(self, i: int, name: str) -> Side:
        """One layer of one model, with its probe."""
        x, x_dev = (
            np.asarray(_finite(of, i, name)[rows], dtype=np.float32)
            for of, rows in ((self.train, self.sets.rows), (self.dev, self.sets.rows_dev))
        )
        fitted = fit(
            x, self.sets.y[0], self.sets.classes, self.sets.fold, self.half, self.estimator, self.options.penalties
        )
        if not fitted.converged:
            log.warning("probes of layer %s of %s did not converge.", name, self.train.sides[i].cache.path)
        return Side(x, x_dev, fitted)


def _finite(of: Matched, i: int, name: str) -> Any:
    x = of.sides[i].layers[name]()
    check_finite(x, of.sides[i].cache, name, of.labels)
    return x


def _records(work: _Work, progress: Progress) -> Iterator[dict[str, Any]]:
    """All rows, one other model after another."""
    names = list(work.dev.sides[0].layers)
    total, done = len(work.dev.sides) * len(names), 0
    sides: dict[tuple[int, str], Side] = {}
    for i in range(len(work.dev.sides)):
        sides = {key: side for key, side in sides.items() if key[0] == 0}  # of the reference
        for name in names:
            progress("layers", done, total)
            sides[i, name] = work.side(i, name)
            done += 1
        if i:
            yield from _of_model(work, i, [(sides[0, name], sides[i, name]) for name in names], progress)
    progress("layers", total, total)


def _of_model(work: _Work, i: int, sides: Sequence[tuple[Side, Side]], progress: Progress) -> Iterator[dict[str, Any]]:
    """The rows of one other model; sides : of each layer."""
    reference, other = work.dev.sides[0], work.dev.sides[i]
    names = list(reference.layers)
    layers = {name: Layer.of(*pair, work.data, work.options.seed) for name, pair in zip(names, sides, strict=True)}
    for note in dict.fromkeys(layer.note for layer in layers.values() if layer.note):
        log.warning("mapped: %s.", note)
    about = {
        "analysis": "directions", **other.columns, **work.dev.group_columns,
        "against_model": identified(reference.columns),
        "estimator": str(work.estimator), "target": "gold", "seed": work.options.seed,
        "n": len(work.data.y), "n_train": len(work.half),
    }  # fmt: skip
    yield from (about | row for row in rows_of(layers, work.data, work.metric, work.options))
    if work.options.other_layers:
        yield from (about | row for row in other_layers(sides, names, work.data, work.metric, progress))
