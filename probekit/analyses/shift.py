"""Probes of one data set evaluated on others: the analysis of ``probekit shift``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.analyses.options import ShiftOptions, VectorOptions
from probekit.analyses.shift_rows import Cell, cell_rows, difference_rows
from probekit.analyses.vectors import LayerVectors, columns_of, layer_vectors, read_of
from probekit.errors import CacheMismatch, UsageError
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.pieces import keys
from probekit.probes.shift import Trained, blocks_of, fit_blocks
from probekit.public import public
from probekit.rows import Result, make_fits, make_rows
from probekit.runtime import Progress, no_progress
from probekit.statistics.controls import shuffled
from probekit.statistics.folds import duplicates
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.load import load_task
from probekit.tasks.task import Task
from probekit.tasks.union import JOIN

__all__ = ["shift"]

log = logging.getLogger(__name__)

MODEL = ("random_weights", "weights_digest", "tokenizer_digest", "cut_at", "stateful", "dtype", "store")
"""The keys of the spec in which all caches of a model agree."""
LABELS = ("kind", "label_names", "pairs")


@public(vectors=VectorOptions, options=ShiftOptions)
def shift(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    tasks: tuple[str, ...] | str = (),
    data_dir: str | Path | None = None,
    vectors: VectorOptions,
    options: ShiftOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit probes on each of several data sets with the same labels, and evaluate each of them on all.

    The cell (A, B) is a probe fitted on the train split of A and evaluated on the dev split of B; the diagonal is a
    probe on held-out examples of its own data set. Cells of one column have the same test examples, so their
    differences to the diagonal are paired.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Caches of two splits of a data set. Each has the name of its task.
    *more : path or ActivationCache
        Further pairs, train and dev alternating: other data sets, and the same ones with other weights (random ones,
        say), which give a matrix of their own.
    tasks, data_dir : tuple of str, and path, optional
        Of a cache of the sentences of several tasks (``--task A+B``): those among them that are data sets, and the
        folder of their files, as for :func:`probekit.load_task` (default: one cache is one data set).
    vectors : VectorOptions
        ``pooling``, ``layers`` and ``groups``; each may be given as a keyword.
    options : ShiftOptions
        ``estimators``, ``rate``, ``blocks``, ``controls`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        For each layer, probe and cell (``trained_on``, ``task``): "accuracy", and with two classes "auroc",
        "recall-at-rate" and "false-positive-rate" at the threshold that the scores out of fold on train give, and
        "recall-at-rate-on-test" at the test set's own threshold. Their intervals are over the evaluated groups, for
        these probes. Rows of "difference(METRIC)" are a cell minus the diagonal of its column, with intervals and p
        that include the choice of training examples, corrected by Holm (``p_adjusted``) over all cells, layers, probes
        and models of a metric. Areas and recalls need 10 examples (groups) of each class for an interval or p; ``why``
        says so. Rows of the target "shuffled" are probes of shuffled labels. The predictions are
        those of each probe for each evaluated example.

    Raises
    ------
    UsageError
        For data sets with different labels or one name, fewer groups than blocks, a class that is missing in train, and
        unknown layers.
    CacheMismatch
        If a cache occurs twice, or the caches of a data set or a model do not match.

    References
    ----------
    Marks & Tegmark 2023, The Geometry of Truth, section 4 (train × test); DeLong, DeLong & Clarke-Pearson 1988 (areas);
    Obuchowski 1997 (groups).

    Examples
    --------
    >>> result = probekit.shift("cities.train.h5", "cities.dev.h5", "neg.train.h5", "neg.dev.h5")  # doctest: +SKIP
    """
    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"caches must be given in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    records: list[dict[str, Any]] = []
    with ExitStack() as stack:
        opened = [c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches]
        reads = tuple(map(read_of, opened))
        named = {name: load_task(name, data_dir) for name in ((tasks,) if isinstance(tasks, str) else tasks)}
        pairs = [of for pair in zip(opened[::2], opened[1::2], strict=True) for of in _data_sets(pair, named)]
        models = _models(pairs)
        found: list[Predictions] = []
        measured: list[list[Cell]] = []
        for of_model in models:
            sets = [_DataSet.of(*pair, vectors) for pair in of_model]
            cells = list(_cells(sets, options, progress))
            measured.append(cells)
            for cell in cells:
                records += cell_rows(cell, options)
            found += [_predictions(sets[b], [c for c in cells if c.test == b]) for b in range(len(sets))]
        records += difference_rows(measured, options)
    return Result(make_rows(records), tuple(by_split(found)), reads=reads)


Pair = tuple[ActivationCache, ActivationCache]


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
