"""Caches in pairs, to fit on and to evaluate on: opened, checked against each other, and their labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.activations.targets import span_pieces
from probekit.analyses.vectors import LayerVectors, open_caches, read_of
from probekit.errors import CacheMismatch, UsageError
from probekit.metrics import metric, unfit, unordered
from probekit.notes import logger
from probekit.probes.protocol.labels import Labels
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.pieces import keys, word_types
from probekit.recipe import Read
from probekit.rows import Result
from probekit.runtime import Progress, part_of
from probekit.statistics.duplicates import related
from probekit.statistics.folds import duplicates
from probekit.statistics.predictions import Predictions, by_split
from probekit.tasks.load import load_task
from probekit.tasks.task import Task

log = logger(__name__)

SAME = (
    *("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest"),
    *("cut_at", "stateful", "dtype", "store", "pairs"),
)
"""The keys of the spec in which a train and a dev cache must agree."""
Pair = tuple[ActivationCache, ActivationCache]


class Pairs(ExitStack):
    """Caches TRAIN DEV TRAIN DEV …; within ``with``, all are opened before the first is read, and closed at the end.

    Parameters
    ----------
    caches : sequence of path or ActivationCache
        An even number; UsageError otherwise. Open ones stay open.
    second : str
        What the second of a pair is called in messages.

    Attributes
    ----------
    count : int
        The number of pairs.
    reads : list of Read
        The entries of those that were reached in a card, with the task that they are read for.
    """

    def __init__(self, caches: Sequence[str | Path | ActivationCache], second: str = "DEV.h5") -> None:
        if len(caches) % 2:
            raise UsageError(f"caches must be given in pairs, TRAIN.h5 {second}; {len(caches)} were given.")
        super().__init__()
        self.caches, self.count, self.reads = caches, len(caches) // 2, list[Read]()

    def opened(self, task: str | Task | None = None, data_dir: str | Path | None = None) -> Iterator[Pair]:
        """Each pair; of caches of the sentences of several tasks, as caches of one of them."""
        of = load_task(task, data_dir) if isinstance(task, str) else task
        found = open_caches(self.caches, self)
        for a, b in zip(found[::2], found[1::2], strict=True):
            if of is not None:
                a, b = (cache.for_task(of, cache.spec["split"]) for cache in (a, b))
            self.reads += [read_of(a), read_of(b)]
            yield a, b

    def result(
        self,
        of_pair: Callable[..., tuple[pd.DataFrame, Predictions]],
        progress: Progress,
        metrics: tuple[str, ...] | str | None,
        task: str | Task | None,
        data_dir: str | Path | None,
    ) -> Result:
        """The rows and predictions of all pairs, from those of each with the names of metrics (None: the task's)."""
        tables, predictions = list[pd.DataFrame](), list[Predictions]()
        names = (metrics,) if isinstance(metrics, str) else metrics
        for name in names or ():
            metric(name)
        with self:
            for i, pair in enumerate(self.opened(task, data_dir)):
                rows, evaluated = of_pair(*pair, names, progress=part_of(progress, i, self.count))
                tables.append(rows)
                predictions.append(evaluated)
        return Result(pd.concat(tables, ignore_index=True), tuple(by_split(predictions)), reads=tuple(self.reads))


def numbered_alike(
    of_train: LayerVectors, of_dev: LayerVectors, labels: tuple[Labels, Labels]
) -> tuple[np.ndarray, Labels, Labels]:
    """The label sets of two caches, (sets, label names), and the labels as their numbers: each has its own."""
    own = [np.asarray(of.label_sets) for of in (of_train, of_dev)]
    sets, number = np.unique(np.concatenate(own), axis=0, return_inverse=True)
    places = np.split(number.reshape(-1), [len(own[0])])
    train, dev = (
        replace(given, y=np.where(given.known, np.append(place, -1)[given.y], -1))
        for given, place in zip(labels, places, strict=True)
    )
    return sets, train, dev


def labels_of_pair(
    train: ActivationCache,
    dev: ActivationCache,
    of_train: LayerVectors,
    of_dev: LayerVectors,
    options: ProbeOptions,
    *,
    ungrouped: bool,
) -> tuple[Labels, Labels]:
    """The labels, with word types, domains as groups, and the examples of dev that train contains too."""
    words, train_labels, dev_labels = of_train.words, of_train.labels, of_dev.labels
    if words:
        types, types_dev = _types(train, dev, of_train, of_dev)
        train_labels, dev_labels = replace(train_labels, types=types), replace(dev_labels, types=types_dev)
    seen = duplicates(keys(train.pieces), keys(dev.pieces)) if ungrouped else _shared(train, dev)
    dev_labels = replace(dev_labels, seen=seen[_sentences(dev, of_dev)] if words else seen)
    if options.hold_out_domains:
        if words or train.domains is None:
            raise UsageError(
                f"hold_out_domains needs the domain of each example, and the task {train.spec['task']} has none. "
                'Name their column in the task file (domain = "COLUMN") and make both caches again, or leave out '
                "hold_out_domains."
            )
        train_labels = replace(
            train_labels, groups=np.unique(train.domains, return_inverse=True)[1]
        )  # dev is resampled by example
    return train_labels, dev_labels


def _types(
    train: ActivationCache, dev: ActivationCache, of_train: LayerVectors, of_dev: LayerVectors
) -> tuple[np.ndarray, np.ndarray]:
    """The type of each word; of a span or a pair of spans, its words, or those of both."""
    if of_train.targets is None or of_dev.targets is None:
        types, types_dev = word_types(train.word_pieces, dev.word_pieces)
        return types, types_dev
    pieces = zip(span_pieces(train, of_train.targets), span_pieces(dev, of_dev.targets), strict=True)
    by_span = [np.concatenate(word_types(*both)) for both in pieces]
    codes = np.unique(np.stack(by_span, 1), axis=0, return_inverse=True)[1].reshape(-1)
    return codes[: len(of_train.targets)], codes[len(of_train.targets) :]


def _sentences(cache: ActivationCache, of: LayerVectors) -> np.ndarray:
    return cache.word_sentence if of.targets is None else of.targets.example


def _shared(train: ActivationCache, dev: ActivationCache) -> np.ndarray:
    """Which examples of dev share a text, a near copy or a declared group with train, bool (n_dev,)."""
    found = {"have the same or a nearly equal text in": related(train.pieces, dev.pieces)}
    if train.group_names is not None and dev.group_names is not None and dev.groups is not None:
        same_group = np.isin(dev.group_names, [name for name in train.group_names if name])[dev.groups]
        found["belong to groups (named in the task's group column) that also occur in"] = same_group
    for relation, shared in found.items():
        if shared.any():
            log.warning(
                "%s: %s of %s examples of %s %s %s, and say less about unseen text. "
                "The column value_unseen leaves them out.",
                dev.spec["task"], f"{int(shared.sum()):,}", f"{len(shared):,}", dev.spec["split"], relation,
                train.spec["split"],
            )  # fmt: skip
    return np.logical_or.reduce(list(found.values()))


def check_pair(
    train: ActivationCache,
    dev: ActivationCache,
    layers: tuple[int | str, ...] | None,
    metrics: tuple[str, ...] | None,
    *,
    any_split: bool,
) -> None:
    """Raise CacheMismatch or UsageError if probes cannot be fitted on the one and evaluated on the other."""
    _check_match(train, dev)
    _check_layers(train, dev, layers)
    if not any_split:
        _check_splits(train.spec, dev.spec)
    spec = train.spec
    if wrong := unfit(metrics or (), spec["kind"]) or unordered(
        metrics or (), spec["kind"], spec["label_names"], spec.get("metrics", ())
    ):
        raise UsageError(f"metrics must fit the labels: {wrong}")


def _check_splits(train: Mapping[str, Any], dev: Mapping[str, Any]) -> None:
    """Raise UsageError if the splits of two caches do not fit their roles as train and dev."""
    fitted, evaluated = train["split"].lower(), dev["split"].lower()
    for_evaluation = re.match(r"(dev|valid|val|test|eval)", fitted) and "train" not in fitted
    if for_evaluation or ("train" in evaluated and "train" not in fitted):
        raise UsageError(
            f"the first cache (to fit probes on) holds the split {train['split']!r}, the second (to evaluate on) "
            f"{dev['split']!r}; are they swapped? TRAIN comes first; --any-split allows any splits."
        )


def _check_match(train: ActivationCache, dev: ActivationCache) -> None:
    """Raise CacheMismatch if two caches hold incompatible vectors or labels, or the same examples."""
    if train.spec.get("data_digest") == dev.spec.get("data_digest") is not None:
        raise CacheMismatch(
            f"both caches hold the same examples, {train.spec['task']} {train.spec['split']}; dev needs other examples."
        )
    of_tokens = train.spec["kind"] in ("sequence-labelling", "span-labelling")
    check_same(train, dev, (*SAME, "tokens") if of_tokens else SAME)


def _check_layers(train: ActivationCache, dev: ActivationCache, layers: tuple[int | str, ...] | None) -> None:
    """Raise an error if two caches hold different layers, and none are chosen, or some that one of them lacks."""
    if train.layers == dev.layers:
        return
    if layers is not None:
        dev.layer_names(train.layer_names(layers))
        return
    both = ",".join(name for name in train.layers if name in dev.layers)
    give = f"Give --layers with those both hold ({both}), or cache" if both else "Cache"
    raise CacheMismatch(
        f"{train.path} holds layers {', '.join(train.layers)}, {dev.path} {', '.join(dev.layers)}. {give} both with "
        "the same --layers."
    )
