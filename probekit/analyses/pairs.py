"""Two caches, train and dev, to rows: which vectors, which labels, and whether the two belong together.

A cache here is anything with the names of :class:`Cache`; nothing is known of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from probekit.errors import CacheMismatch, UsageError
from probekit.probes.protocol.baselines import Pieces, bag_of_pieces, keys, length, word_types
from probekit.probes.protocol.diagnostic import evaluate_layers, pair_features
from probekit.probes.protocol.folds import duplicates
from probekit.probes.protocol.labels import Inputs, Labels
from probekit.probes.protocol.options import ProbeOptions
from probekit.probes.protocol.rows import probe_rows
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cache", "probe"]

SAME = (
    *("task", "kind", "label_names", "random_weights", "weights_digest", "tokenizer_digest"),
    *("cut_at", "stateful", "dtype", "store", "layers", "width", "pairs"),
)


class Cache(Protocol):
    """What is asked of a cache: vectors (n, d) by layer, labels (n,), and the spec that says what they are.

    Of a token-labelled task the vectors (w, d), labels and sentences of its words are asked for instead. The pieces
    that the model read tell which examples of dev train holds too, and make the inputs that need no model.
    """

    @property
    def spec(self) -> Mapping[str, Any]: ...
    @property
    def layers(self) -> Sequence[str]: ...
    @property
    def poolings(self) -> Sequence[str]: ...
    @property
    def labels(self) -> np.ndarray: ...
    @property
    def ids(self) -> np.ndarray: ...
    @property
    def pieces(self) -> Sequence[Pieces]: ...
    @property
    def word_pieces(self) -> Pieces: ...
    @property
    def domains(self) -> np.ndarray | None: ...
    @property
    def word_labels(self) -> np.ndarray: ...
    @property
    def word_sentence(self) -> np.ndarray: ...

    def layer(self, layer: str, pooling: str | None = None) -> np.ndarray: ...
    def layer_words(self, layer: str) -> np.ndarray: ...


def probe(
    train: Cache,
    dev: Cache,
    *,
    metrics: Mapping[str, Any],
    pooling: str | None = None,
    layers: Sequence[int | str] | None = None,
    options: ProbeOptions | None = None,
    progress: Progress = no_progress,
) -> tuple[pd.DataFrame, Predictions]:
    """Fit diagnostic classifiers on each layer of ``train`` and evaluate them on ``dev``: rows, and what they rest on.

    metrics : by name, as :func:`layer_rows` takes them
    pooling : which sentence vectors, the first that the caches hold for None. A token-labelled task is probed word by
        word. Vectors [u; v] of separately encoded pairs become [u; v; |u - v|; u * v].
    layers : some of the layers, all for None
    Raises CacheMismatch where the two caches differ in task, model, layers or the way they were made.
    """
    options = options or ProbeOptions()
    check_match(train.spec, dev.spec)
    names = tuple(train.layers) if layers is None else tuple(str(name) for name in layers)
    if not names:
        raise UsageError(f"no layer was asked for; the caches hold {', '.join(train.layers)}.")
    if unknown := [name for name in names if name not in train.layers]:
        raise UsageError(f"there is no layer {', '.join(unknown)}; the caches hold {', '.join(train.layers)}.")
    words = train.spec["kind"] == "sequence-labelling"
    if words and not train.spec["tokens"]:
        raise UsageError(f"{train.spec['task']} labels words, and these caches hold none; make them with --tokens.")
    if words and pooling is not None:
        raise UsageError(f"{train.spec['task']} is probed word by word; there is no pooling to choose.")
    if not words and not (train.poolings and dev.poolings):
        raise UsageError("the caches hold no pooled vectors; make them with --pooling mean.")
    how = str(train.spec["tokens"]) if words else pooling or train.poolings[0]
    for cache in () if words else (train, dev):
        if how not in cache.poolings:
            raise UsageError(f"{cache.spec['split']} has no pooling {how!r}; it has {', '.join(cache.poolings)}.")

    def read(cache: Cache, name: str) -> Any:
        if words:
            return cache.layer_words(name)
        x = cache.layer(name, how)
        return _Pairs(x) if cache.spec["pairs"] == "separate" else x

    labels = [_labels(cache, words) for cache in (train, dev)]
    if words:
        types = word_types(train.word_pieces, dev.word_pieces)
        labels = [replace(own, types=kind) for own, kind in zip(labels, types, strict=True)]
        inputs = Inputs()
    else:
        inputs = Inputs(bag_of_pieces(train.pieces, dev.pieces), (length(train.pieces), length(dev.pieces)))
    seen = duplicates(keys(train.pieces), keys(dev.pieces))
    labels[1] = replace(labels[1], seen=seen[dev.word_sentence] if words else seen)
    if options.hold_out_domains:
        if words or train.domains is None:
            raise UsageError(f"{train.spec['task']} has no domains of examples; leave hold_out_domains off.")
        labels[0] = replace(labels[0], groups=np.unique(train.domains, return_inverse=True)[1])
        if dev.domains is not None:  # what resembles each other is drawn as a whole, too
            labels[1] = replace(labels[1], groups=np.unique(dev.domains, return_inverse=True)[1])
    found = evaluate_layers(
        {name: partial(read, train, name) for name in names},
        labels[0],
        {name: partial(read, dev, name) for name in names},
        labels[1],
        kind=train.spec["kind"],
        metrics=metrics,
        about=about(dev.spec, how),
        label_names=train.spec["label_names"],
        inputs=inputs if options.controls != 0 else Inputs(),
        options=options,
        progress=progress,
    )
    known = labels[1].seen[labels[1].known]  # type: ignore[index]
    resamples, level, seed = options.resamples, options.level, options.seed
    return probe_rows(found, metrics, seen=known, resamples=resamples, level=level, seed=seed), found


def _labels(cache: Cache, words: bool) -> Labels:
    if not words:
        return Labels(cache.labels, ids=cache.ids)
    sentence = cache.word_sentence
    first = np.searchsorted(sentence, sentence)  # sentences are in order
    ids = np.char.add(np.char.add(cache.ids[sentence].astype(str), ":"), (np.arange(len(sentence)) - first).astype(str))
    return Labels(cache.word_labels, sentence, ids=ids)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Vectors [u; v] (n, 2d) read as [u; v; |u - v|; u * v] (n, 4d), some rows at a time."""

    x: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.x.shape[0], 2 * self.x.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.x.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        return pair_features(np.asarray(self.x[rows]))


def check_match(train: Mapping[str, Any], dev: Mapping[str, Any]) -> None:
    """Raise CacheMismatch where two specs describe vectors or labels that do not go together."""
    words = train["kind"] == "sequence-labelling"
    if train.get("data_digest") == dev.get("data_digest") is not None:
        raise CacheMismatch(
            f"both caches hold the same examples, {train['task']} {train['split']}; dev must be others."
        )
    for name in (*SAME, "tokens") if words else SAME:
        if train.get(name) != dev.get(name):
            raise CacheMismatch(
                f"the two caches do not belong together: {name} is {train.get(name)!r} in train ({train['split']}, "
                f"{train['model']}) and {dev.get(name)!r} in dev ({dev['split']}, {dev['model']})."
            )


def about(spec: Mapping[str, Any], representation: str) -> dict[str, Any]:
    """The columns that say what was probed. A checkpoint of training is called by its run, and has a step.

    A randomly initialised model has the checkpoint "random-SEED". A model that was read from a folder is called by the
    folder's name.
    """
    random = spec["random_weights"]
    return {
        "task": spec["task"],
        "split": spec["split"],
        "model": PurePath(spec["model"]).name if PurePath(spec["model"]).is_absolute() else spec["model"],
        "checkpoint": spec.get("checkpoint", "") if random is None else f"random-{random}",
        "step": spec.get("step"),
        "representation": representation,
    }
