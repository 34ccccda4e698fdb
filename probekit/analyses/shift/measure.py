"""Probes of one data set evaluated on others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.analyses.features import without_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.shift.rows import Cell, cell_rows, difference_rows
from probekit.analyses.train_dev import Pair, Pairs
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors
from probekit.errors import CacheMismatch, UsageError
from probekit.notes import logger
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.pieces import keys
from probekit.probes.shift import Trained, blocks_of, fit_blocks
from probekit.rows import Result, make_fits, make_rows
from probekit.runtime import Progress, part_of
from probekit.statistics.controls import shuffled
from probekit.statistics.folds import duplicates
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.load import load_task
from probekit.tasks.task import Task
from probekit.tasks.union import JOIN

if TYPE_CHECKING:
    from probekit.analyses.shift import ShiftOptions

log = logger(__name__)

MODEL = ("random_weights", "weights_digest", "tokenizer_digest", "cut_at", "stateful", "dtype", "store")
"""The keys of the spec in which all caches of a model agree."""
LABELS = ("kind", "label_names", "pairs")


def measure(
    caches: Pairs,
    tasks: tuple[str, ...] | str,
    data_dir: str | Path | None,
    vectors: VectorOptions,
    options: ShiftOptions,
    progress: Progress,
) -> Result:
    """The rows and predictions of :func:`probekit.shift`."""
    without_dictionary(vectors, "shift")
    records: list[dict[str, Any]] = []
    with caches:
        opened = list(caches.opened())
        named = {name: load_task(name, data_dir) for name in ((tasks,) if isinstance(tasks, str) else tasks)}
        pairs = [of for pair in opened for of in _data_sets(pair, named)]
        models = _models(pairs)
        found: list[Predictions] = []
        measured: list[list[Cell]] = []
        for i, of_model in enumerate(models):
            sets = [_DataSet.of(*pair, vectors) for pair in of_model]
            cells = list(_cells(sets, options, part_of(progress, i, len(models))))
            measured.append(cells)
            for cell in cells:
                records += cell_rows(cell, options)
            found += [_predictions(sets[b], [c for c in cells if c.test == b]) for b in range(len(sets))]
        records += difference_rows(measured, options)
    return Result(make_rows(records), tuple(by_split(found)), reads=tuple(caches.reads))


def _data_sets(pair: Pair, tasks: Mapping[str, Task]) -> Iterator[Pair]:
    """The data sets of two caches: those of ``tasks`` that the caches are made of, or what they are caches of."""
    train, dev = pair
    parts = train.spec["task"].split(JOIN)
    if len(parts) == 1:
        yield pair
        return
    for name, task in tasks.items():
        if name in parts:
            yield train.for_task(task, train.spec["split"]), dev.for_task(task, dev.spec["split"])
    if not set(parts) & set(tasks):
        given = f"none of which is among {', '.join(tasks)}" if tasks else "and no tasks are given"
        raise UsageError(
            f"{train.path} holds the sentences of {', '.join(parts)}, {given}. Name those that are data sets: "
            f"--tasks {','.join(parts[:2])}."
        )


def _models(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs of each model, in order; raises an error if they do not belong together."""
    seen: dict[tuple[str, str], Path] = {}
    first = pairs[0][0]
    found: dict[tuple[Any, ...], list[Pair]] = {}
    for pair in pairs:
        for cache in pair:
            key = cache.spec_id, cache.spec["task"]
            if key in seen:
                raise CacheMismatch(f"{cache.path} holds the same as {seen[key]}; give each cache once.")
            seen[key] = cache.path
            if cache.spec["kind"] != "classification":
                raise UsageError(f"{cache.path}: shift is for classes of texts, but {cache.spec['task']} is "
                                 f"{cache.spec['kind']}.")  # fmt: skip
            for label in LABELS:
                if cache.spec.get(label) != first.spec.get(label):
                    one, two = (_listed(c.spec.get(label)) for c in (first, cache))
                    what, names = label.replace("_", " "), [c.spec["task"] for c in (first, cache)]
                    raise UsageError(
                        f"{' and '.join(names)} differ in {what} ({one}; {two}), so a probe of one says nothing about "
                        "the other. Give data sets with equal labels."
                    )
        check_same(*pair, ("task", *MODEL))
        model = tuple(str(pair[0].spec.get(key)) for key in ("weights_digest", "random_weights", "step", "model"))
        found.setdefault(model, []).append(pair)
    for of_model in found.values():
        names = [a.spec["task"] for a, _ in of_model]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two data sets of one model are called {name}; give them names of their own.")
        if len(names) < 2:
            raise UsageError(f"only {names[0]} is given for {of_model[0][0].spec['model']}; shift needs two data sets.")
        for a, _ in of_model[1:]:
            check_same(of_model[0][0], a, MODEL)
    return list(found.values())


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list | tuple) else str(names)


@dataclass(frozen=True, slots=True)
class _DataSet:
    """The labelled rows of two splits of a data set."""

    train: ActivationCache
    dev: ActivationCache
    of_train: LayerVectors
    of_dev: LayerVectors
    rows: tuple[np.ndarray, np.ndarray]
    units: tuple[list[str], list[str]]

    @classmethod
    def of(cls, train: ActivationCache, dev: ActivationCache, vectors: VectorOptions) -> _DataSet:
        of_train = layer_vectors(train, vectors)
        same = replace(vectors, pooling=of_train.representation, layers=tuple(of_train.layers))
        of_dev = layer_vectors(dev, same)
        rows = np.flatnonzero(of_train.labels.known), np.flatnonzero(of_dev.labels.known)
        units = tuple(_units(c, v)[r] for c, v, r in zip((train, dev), (of_train, of_dev), rows, strict=True))
        for cache, at in zip((train, dev), rows, strict=True):
            if not len(at):
                raise UsageError(f"{cache.path} has no labelled example.")
        return cls(train, dev, of_train, of_dev, rows, (units[0].tolist(), units[1].tolist()))

    @property
    def name(self) -> str:
        return str(self.dev.spec["task"])

    @property
    def y(self) -> np.ndarray:
        return self.of_train.labels.y[self.rows[0]]

    def seen(self, other: _DataSet) -> int:
        """How many evaluated examples of ``other`` have a text or a unit that is in train here."""
        same = duplicates(keys(self.train.pieces), keys(other.dev.pieces))[other.rows[1]]
        named = set(self.units[0])
        return int((same | np.array([unit in named for unit in other.units[1]])).sum())


def _units(cache: ActivationCache, vectors: LayerVectors) -> np.ndarray:
    """The name of each example's group: the declared one, or one of this data set only; str (n,)."""
    ids = np.char.add(f"{cache.spec['task']} ", cache.ids.astype(str)).astype(object)
    groups = vectors.labels.groups
    if groups is None:
        return ids
    names, declared = cache.group_names, cache.groups
    if vectors.group_columns.get("groups") == "declared" and names is not None and declared is not None:
        given = np.asarray(names, dtype=object)[declared]
        ids = np.where(given != "", given, ids)
    first = np.unique(groups, return_index=True)
    return np.asarray(ids[first[1]][np.searchsorted(first[0], groups)], dtype=object)


def _cells(sets: Sequence[_DataSet], options: ShiftOptions, progress: Progress) -> Iterator[Cell]:
    """Every layer, probe and pair of data sets."""
    classes = max(len(sets[0].train.spec["label_names"]), 2)
    layers = [name for name in sets[0].of_train.layers if all(name in s.of_train.layers for s in sets)]
    seen = [[a.seen(b) for b in sets] for a in sets]
    for one, row in zip(sets, seen, strict=True):
        for other, count in zip(sets, row, strict=True):
            if count:
                log.warning(
                    "%d of %d evaluated examples of %s have a text or a group that is in train of %s; the cell says "
                    "less about unseen examples.", count, len(other.rows[1]), other.name, one.name,
                )  # fmt: skip
    labels = [_label_sets(s, options) for s in sets]
    blocks = [blocks_of(s.units[0], options.blocks, options.seed) for s in sets]
    steps, done = len(layers) * len(sets) * len(options.estimators), 0
    for layer in layers:
        tests = [np.asarray(s.of_dev.layers[layer]())[s.rows[1]] for s in sets]
        for a, (y, block) in enumerate(zip(labels, blocks, strict=True)):
            x = np.asarray(sets[a].of_train.layers[layer]())
            for estimator in options.estimators:
                fitted = _fitted(sets[a], x, y, classes, block, tests, Estimator(estimator))
                done += 1
                progress("probes", done, steps)
                for b, other in enumerate(sets):
                    yield Cell(
                        _columns(sets[a], other, layer, estimator, seen[a][b], options), a, b,
                        other.of_dev.labels.y[other.rows[1]], _groups(other), fitted, y[0], block,
                    )  # fmt: skip


def _fitted(
    of: _DataSet, x: np.ndarray, y: np.ndarray, classes: int, block: np.ndarray, tests: Sequence[Any],
    estimator: Estimator,
) -> Trained:  # fmt: skip
    try:
        return fit_blocks(x, y, classes, block, tests, estimator=estimator, rows=of.rows[0])
    except UsageError as error:
        raise UsageError(f"{of.name}: {error}") from None


def _label_sets(of: _DataSet, options: ShiftOptions) -> np.ndarray:
    """The labels of train, and shuffled ones, (T, m)."""
    names = of.train.spec["label_names"]
    if len(present := np.unique(of.y)) < 2:
        only = names[int(present[0])] if len(names) > present[0] else present[0]
        raise UsageError(f"all labels of {of.train.path} are {only!r}; a probe needs examples of two classes.")
    groups = of.of_train.labels.groups
    groups = None if groups is None else groups[of.rows[0]]
    return np.concatenate([of.y[None], shuffled(of.y, options.controls, options.seed, groups=groups)])


def _groups(of: _DataSet) -> np.ndarray | None:
    groups = of.of_dev.labels.groups
    return None if groups is None else groups[of.rows[1]]


def _columns(
    a: _DataSet, b: _DataSet, layer: str, estimator: str, seen: int, options: ShiftOptions
) -> Mapping[str, Any]:
    columns = columns_of(b.dev, b.of_dev.representation)
    if "trained_on" in columns:
        columns["model_trained_on"] = columns["trained_on"]
    return {
        "analysis": "shift", **columns, **b.of_dev.group_columns, "trained_on": a.name, "layer": layer,
        "estimator": estimator, "n": len(b.rows[1]), "n_train": len(a.rows[0]), "seen_in_train": seen,
        "seed": options.seed,
    }  # fmt: skip


def _predictions(of: _DataSet, cells: Sequence[Cell]) -> Predictions:
    """What each probe said of each evaluated example of one data set."""
    fits, shares, predicted, losses = [], [], [], []
    y = cells[0].y
    for cell in cells:
        log_p = cell.fitted.tests[cell.test]
        fits += [{**cell.columns, **target} for target in cell.targets]
        predicted.append(log_p.argmax(2))
        losses.append(-np.take_along_axis(log_p, y[None, :, None], 2)[..., 0])
        shares.append(np.exp(log_p[:1]))
    return Predictions(
        make_fits(fits), of.dev.ids.astype(str)[of.rows[1]], y, np.concatenate(predicted), ("accuracy",), _groups(of),
        np.concatenate(losses), tuple(of.dev.spec["label_names"]), probabilities=np.concatenate(shares),
    )  # fmt: skip
