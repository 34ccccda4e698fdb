"""The units of the layers of caches: rankings on train, what the first units hold on dev, and stability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.apply.measure import changed_vectors
from probekit.analyses.features import read_of_dictionary
from probekit.analyses.matching import check_finite
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import Pairs, check_pair, labels_of_pair
from probekit.analyses.units.layer import Crossed, Data, Held, Layer, of_layer
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors
from probekit.errors import CacheMismatch, UsageError
from probekit.metrics import derive, metric
from probekit.monitors.folder import load_probes
from probekit.monitors.probe import Probe
from probekit.notes import logger
from probekit.probes.protocol.label_sets import label_sets
from probekit.probes.protocol.labels import Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.rows import Result, make_rows
from probekit.rows.families import ALPHA
from probekit.runtime import Progress, part_of
from probekit.similarity.chance import judged
from probekit.statistics.overlap import chance_overlap
from probekit.tasks.task import check_one_label

if TYPE_CHECKING:
    from probekit.analyses.units import UnitsOptions

log = logger(__name__)

STEADY = 0.9
"""The share of halves that must have a unit among the first ones for it to be named."""


def measure(
    caches: Pairs, probe: str | Path | None, vectors: VectorOptions, options: UnitsOptions, progress: Progress
) -> Result:
    """The rows of :func:`probekit.units`."""
    if probe is not None and vectors.through is not None:
        raise UsageError("a kept probe reads the vectors themselves; leave out --through, or --probe.")
    kept = {} if probe is None else _linear(load_probes(probe))
    with caches:
        pairs = [
            _of_pair(train, dev, kept, vectors, options, part_of(progress, i, caches.count))
            for i, (train, dev) in enumerate(caches.opened())
        ]
    records: list[dict[str, Any]] = []
    for one in pairs:
        family = [layer for other in pairs if other.data == one.data for layer in other.layers]
        records += [one.head | row for row in layer_rows(one.layers, one.metric, options, family)]
    return Result(make_rows(records), reads=(*caches.reads, *read_of_dictionary(vectors)))


@dataclass(frozen=True, slots=True)
class _Pair:
    """The layers of a pair of caches, the columns that their rows share, and the metric."""

    head: dict[str, Any]
    layers: list[Layer]
    metric: str

    @property
    def data(self) -> tuple[str, str, str]:
        """What the layers of several models must share so that p is corrected over all of them."""
        return self.head["task"], self.head["split"], self.metric


def _linear(probes: tuple[Probe, ...]) -> dict[str, Probe]:
    if other := next((one for one in probes if one.weights.form != "linear"), None):
        raise UsageError(f"a probe of the form {other.weights.form} has no weight of a unit; keep a linear one.")
    return {one.layer: one for one in probes}


def _of_pair(
    train: ActivationCache,
    dev: ActivationCache,
    kept: Mapping[str, Probe],
    vectors: VectorOptions,
    options: UnitsOptions,
    progress: Progress,
) -> _Pair:
    check_one_label(train.spec["task"], train.spec["kind"])
    name = _metric(train.spec, options)
    check_pair(train, dev, vectors.layers, (name,), any_split=False)
    if kept and vectors.layers is None:
        vectors = replace(vectors, layers=tuple(kept))
    of_train = layer_vectors(train, vectors)
    same = replace(vectors, pooling=of_train.pooling, layers=tuple(of_train.layers))
    of_dev = layer_vectors(dev, same)
    for layer in of_train.layers if kept else ():
        _check_kept(layer, kept, train, dev)
    fitting = ProbeOptions(controls=0, folds=options.folds, seed=options.seed)
    labels = labels_of_pair(train, dev, of_train, of_dev, fitting, ungrouped=vectors.groups == "none")
    sets = label_sets(*labels, Question(train.spec["kind"], (name,), tuple(train.spec["label_names"])), fitting)
    found = []
    for i, layer in enumerate(of_train.layers):
        progress("layers", i, len(of_train.layers))
        data = Data(*_vectors(layer, train, of_train, sets.rows), *_vectors(layer, dev, of_dev, sets.rows_dev), sets)
        found.append(of_layer(layer, data, kept.get(layer), name, tuple(train.spec["label_names"]), options))
    progress("layers", len(found), len(found))
    head = {"analysis": "units", **columns_of(dev, of_train.representation), **of_dev.group_columns}
    head |= {"seed": options.seed, **sets.sizes}
    return _Pair(head, found, name)


def _metric(spec: Mapping[str, Any], options: UnitsOptions) -> str:
    """The metric that is given, or the first of the task that predictions determine."""
    if options.metric is not None:
        name = options.metric
        if metric(name).needs in ("scores", "probabilities", ""):
            raise UsageError(f"{name} needs more than predictions; choose another metric, such as accuracy.")
        return name
    known = [one for one in spec["metrics"] if metric(one).needs not in ("scores", "probabilities", "")]
    return next((one for one in known if not metric(one).spans), "token-accuracy" if known else "accuracy")


def _check_kept(layer: str, kept: Mapping[str, Probe], train: ActivationCache, dev: ActivationCache) -> None:
    if layer not in kept:
        raise UsageError(f"there is no kept probe of layer {layer}; kept are {', '.join(kept)}. Give --layers.")
    if changed := changed_vectors(kept[layer], train):
        raise CacheMismatch(
            f"the probe was fitted on other vectors than those of {train.path}: {'; '.join(changed)}. Give the caches "
            "that it was fitted on."
        )
    fitted = kept[layer].card["train"].get("data_digest")
    if fitted is None:
        log.warning("the kept probe does not say which examples it was fitted on; those of dev must not be among them.")
    elif fitted != train.spec["data_digest"]:
        what = f"those of {dev.path}" if fitted == dev.spec["data_digest"] else "others"
        raise CacheMismatch(
            f"the probe was not fitted on the examples of {train.path}, but on {what}, so dev may hold what it has "
            "seen. Give the train cache that it was fitted on, and another one as dev."
        )


def _vectors(name: str, cache: ActivationCache, of: LayerVectors, rows: np.ndarray) -> tuple[np.ndarray]:
    """The labelled vectors of a layer, float32 (n, d)."""
    x = np.asarray(of.layers[name]()[rows], dtype=np.float32)
    check_finite(x, cache, name, of.labels[rows])
    return (x,)


def layer_rows(
    found: Sequence[Layer], name: str, options: UnitsOptions, family: Sequence[Layer]
) -> Iterator[dict[str, Any]]:
    """The rows of the layers of a pair of caches; p is corrected over the rankings of all layers of ``family``."""
    judgement = _judged(family, metric(name).sign) if options.draws and options.resamples else {}
    for layer in found:
        for by, held in layer.held.items():
            about = {"layer_name": layer.name, "estimator": by}
            own = judgement.get((id(layer), by), {})
            yield from (about | row for row in _curve(layer, held, name, options))
            if held.crossed is not None:
                yield about | _over_sizes(held.crossed, name, options) | own
            yield from (about | row for row in _stability(layer, held, options))
            shown = own.get("p_adjusted", 1.0) <= ALPHA
            yield from (about | row for row in _units(layer, held, name, options, shown=shown))


def _judged(family: Sequence[Layer], sign: int) -> dict[tuple[int, str], dict[str, Any]]:
    """p of the mean difference between first and random units over all numbers of units, for each layer and ranking.

    Two things could make first units look better: the units that happened to be drawn at random, and the labels that
    dev's examples happened to have. p is the larger one of two tests: how many random orders do as well as the ranking,
    and how many permutations of dev's labels. Each is corrected by its largest standardised value. Under noise random
    orders do not suffice: probes on few random units predict one class, and vary less than those on first units.
    """
    tests = {(id(one), by): held.crossed for one in family for by, held in one.held.items() if held.crossed is not None}
    if not tests:
        return {}
    of_orders = [np.append(held.first.mean(), held.random.mean(0)) for held in tests.values()]
    of_labels = [np.append(held.gap.mean(), held.null.mean(0)) for held in tests.values()]
    chances = [judged(sign * np.stack(null, axis=1)[:, :, None]) for null in (of_orders, of_labels)]
    return {
        key: {name: max(getattr(one, name)[at, 0] for one in chances) for name in ("p", "p_adjusted")}
        | {"tests": len(tests)}
        for at, key in enumerate(tests)
    }


def _curve(layer: Layer, held: Held, name: str, options: UnitsOptions) -> Iterator[dict[str, Any]]:
    """What the first, random and last units of each number hold."""
    gaps = [] if held.crossed is None else [*zip(held.crossed.gap, held.crossed.ends(options.level)[:-1], strict=True)]
    for i, k in enumerate(held.ks):
        row = {"metric": name, "units": k}
        yield row | _interval("gold", held.first[i], held.first_ends[i])
        yield row | _interval("bottom", held.last[i], held.last_ends[i])
        if options.draws and k < held.ks[-1]:
            random = layer.random[i]
            row["draws"] = len(random)
            yield row | _interval("random", random.mean(), np.quantile(random, [0.025, 0.975]))
        if i < len(gaps):
            about = {"metric": derive("difference", name), "against": f"{k} random units", "draws": options.draws}
            yield row | _interval("gold", *gaps[i]) | about


def _over_sizes(held: Crossed, name: str, options: UnitsOptions) -> dict[str, Any]:
    """The mean difference between first and random units over all numbers of units."""
    about = {"metric": derive("difference", name), "against": "random units", "sizes": len(held.first)}
    return _interval("gold", held.gap.mean(), held.ends(options.level)[-1]) | about | {"draws": options.draws}


def _interval(target: str, value: float, ends: np.ndarray) -> dict[str, Any]:
    return {"target": target, "value": float(value), "ci_low": float(ends[0]), "ci_high": float(ends[1])}


def _stability(layer: Layer, held: Held, options: UnitsOptions) -> Iterator[dict[str, Any]]:
    if not options.splits:
        return
    row = {"metric": "rank-biased-overlap", "persistence": options.persistence, "splits": len(held.halves) // 2}
    for target, (value, *ends) in (("gold", held.overlap), ("shuffled", held.shuffled)):
        yield row | _interval(target, value, np.array(ends))
    chance = chance_overlap(len(layer.units), p=options.persistence)
    yield row | {"target": "random", "value": chance}


def _most(ks: Sequence[int], d: int, held: Crossed, options: UnitsOptions, sign: int) -> int:
    """Among so many first of d units those that are named are looked for.

    The largest number whose difference to random units is within a standard error of the largest difference: fewer
    would leave out units that are as good as those that are named. It is at most √(2 (2 STEADY - 1) d): among more of d
    units any unit is in many halves. The bound of stability selection (Meinshausen & Bühlmann 2010, theorem 1) is then
    2 units named wrongly on average; in simulations they are far fewer.
    """
    gap = sign * held.gap[: sum(k * k <= 2 * (2 * STEADY - 1) * d for k in ks)]
    at = int(np.nanargmax(gap))
    error = np.nan_to_num(np.diff(held.ends(options.level)[at]).item() / 4)
    return ks[int(np.flatnonzero(gap >= gap[at] - error).max())]


def _units(layer: Layer, held: Held, name: str, options: UnitsOptions, *, shown: bool) -> Iterator[dict[str, Any]]:
    """The first units, how often halves of train have them among the first, and whether they are named.

    shown : whether the first units are shown to hold more than random ones
    """
    listed = min(options.top, len(layer.units))
    most = listed
    if shown and held.crossed is not None:
        most = _most(held.ks, len(layer.units), held.crossed, options, metric(name).sign)
    share = held.shares(most)
    chance = max(chance_overlap(len(layer.units), p=options.persistence), np.nan_to_num(held.shuffled[2], nan=1.0))
    agreed = shown and held.overlap[1] > chance
    first = min(most, held.ranked.count)
    named = [agreed and place < first and share[unit] >= STEADY for place, unit in enumerate(held.ranked.order)]
    listed = max([listed, *(i + 1 for i, one in enumerate(named) if one)])
    for place, unit in enumerate(held.ranked.order[:listed].tolist()):
        row = {"target": "gold", "unit": int(layer.units[unit]), "place": place + 1, "named": bool(named[place])}
        yield row | {"metric": "unit-score", "value": float(held.ranked.score[unit]), "units": most}
        if len(held.halves):
            yield row | {"metric": "selection-share", "value": float(share[unit]), "units": most}
