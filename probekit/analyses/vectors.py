"""The vectors of a cache that an analysis uses: texts or words, pooling, layers, and their columns in rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import unread, without_content
from probekit.activations.grouping import groups_of, with_equal_vectors
from probekit.activations.targets import Targets
from probekit.activations.tokens import TokenReader
from probekit.analyses.features import Coding, coding_of
from probekit.analyses.options import PairVector, SpanVector, VectorOptions
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.probes.protocol.labels import Labels
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import pair_features, span_vectors
from probekit.recipe import Read
from probekit.rows.card import CACHE
from probekit.rows.model_names import name_in_rows, told_apart

log = logger(__name__)

OF_TRAINING = {"trained_on": "trained_on", "regime": "regime", "head": "head", "variant": "variant", "seed": "run_seed"}
"""Keys of a cache's origin that describe a trained model, and their columns."""


@dataclass(frozen=True, slots=True)
class LayerVectors:
    """The vectors of one cache by layer, and the labels of their rows.

    Attributes
    ----------
    representation : str
        The pooling, for words over the pieces of a word; with the dictionary whose features are read.
    words : bool
        Whether a row is a word, or a span: several rows belong to a sentence.
    layers : dict[str, Callable[[], Any]]
        By name, in the order of the model: functions that return (n, d), or (n, 4 d) for pairs.
    labels : Labels
        Labels of the n rows with their groups; for words, with their sentences.
    group_columns : dict[str, Any]
        The columns of rows that describe the grouping of examples, and for words ``unread_words``, the number of
        labelled words without a vector.
    targets : Targets, optional
        The spans, if a row is a span or a pair of spans.
    label_sets : np.ndarray, optional
        Bool (sets, label names), if several labels can hold at once: the labels of code c are row c; float for several
        numbers.
    cosines : dict[str, Callable[[], Any]]
        Of pairs of texts or spans, by layer: functions that return the cosine of the two vectors, (n, 1).
    pooling : str, optional
        Of texts, the pooling alone.
    """

    representation: str
    words: bool
    layers: dict[str, Callable[[], Any]]
    labels: Labels
    group_columns: dict[str, Any] = field(default_factory=dict)
    targets: Targets | None = None
    label_sets: np.ndarray | None = None
    cosines: dict[str, Callable[[], Any]] = field(default_factory=dict)
    pooling: str | None = None


def open_caches(caches: Iterable[str | Path | ActivationCache], stack: ExitStack) -> tuple[ActivationCache, ...]:
    """Caches, those that were given by path opened; ``stack`` closes these. Models of one name are told apart."""
    found = [c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in caches]
    for model, doubt in dict.fromkeys((c.spec["model"], doubt) for c in found for doubt in c.spec.get("doubts", ())):
        log.warning("%s: %s.", model, doubt)
    names = told_apart(map(read_of, found))
    return tuple(_named(cache, columns) if columns else cache for cache, columns in zip(found, names, strict=True))


def _named(cache: ActivationCache, columns: Mapping[str, str]) -> ActivationCache:
    """The same open cache, whose model has another name in some columns of rows."""
    found = copy(cache)
    found.spec = {**cache.spec, "named": dict(columns)}
    return found


def layer_vectors(
    cache: ActivationCache, options: VectorOptions = VectorOptions(), *, pieces: bool = False
) -> LayerVectors:
    """The vectors of a cache to analyse, and the groups of its examples; with ``pieces``, those of all pieces of texts.

    To find equal vectors, one layer is read in full, the others only for examples whose vectors are equal in it.

    Raises
    ------
    UsageError
        For an unknown layer or pooling, and if the cache lacks the vectors that its task needs.
    """
    if pieces:
        return _of_pieces(cache, options)
    if options.span is not None or cache.spec["kind"] == "span-labelling":
        return _of_spans(cache, options)
    spec, words = cache.spec, cache.spec["kind"] == "sequence-labelling"
    if words and not spec["tokens"]:
        raise UsageError(f"{spec['task']} labels words, but the cache holds no token vectors; create it with --tokens.")
    if words and options.pooling is not None:
        raise UsageError(f"{spec['task']} is probed word by word; leave out --pooling.")
    if not words and not cache.poolings:
        raise UsageError("the cache holds no pooled vectors; create it with --pooling mean.")
    how = str(spec["tokens"]) if words else options.pooling or cache.poolings[0]
    if not words and how not in cache.poolings:
        raise UsageError(f"the cache of {spec['split']} has no pooling {how!r}; it has {', '.join(cache.poolings)}.")

    def read(name: str) -> Any:
        if words:
            return cache.layer_words(name)
        return cache.layer(name, how)

    coding = coding_of(cache, options)
    names, cosines = _chosen(cache, options, coding), dict[str, Callable[[], Any]]()
    layers: dict[str, Callable[[], Any]] = {name: partial(read, name) for name in names}
    if coding is not None:
        layers = _made(coding, coding.words() if words else coding.texts(how))
    if spec["pairs"] == "separate" and not words:
        layers, cosines = _compared(layers)
    groups = groups_of(cache, options.groups)
    if lost := unread(cache) if words else without_content(cache):
        log.warning("%s %s: %s.", spec["task"], spec["split"], lost)
    unread_words = {"unread_words": len(cache.unread_words)} if words else {}
    if not words and options.groups != "none":
        groups = with_equal_vectors(cache, groups, [partial(cache.layer, name, how) for name in names])
    columns = groups.columns | unread_words | _columns(coding)
    return LayerVectors(
        _named_with(coding, how), words, layers, _labels(cache, words, groups.of), columns, cosines=cosines,
        pooling=None if words else how,
    )  # fmt: skip


def _made(coding: Coding, features: Any) -> dict[str, Callable[[], Any]]:
    """The only layer of a dictionary, whose features are in memory."""
    return {coding.layer: lambda: features}


def _named_with(coding: Coding | None, how: str) -> str:
    return how if coding is None else coding.named(how)


def _columns(coding: Coding | None) -> dict[str, Any]:
    """The columns of rows that say how well features describe the vectors."""
    return {} if coding is None else coding.found


def _compared(
    layers: Mapping[str, Callable[[], Any]], pair: PairVector = PairVector.COMPARED
) -> tuple[dict[str, Callable[[], Any]], dict[str, Callable[[], Any]]]:
    """What is read of each layer of pairs, whose vectors are there side by side, and their cosines."""

    def of(change: Callable[[Any], Any], read: Callable[[], Any]) -> Any:
        return change(read())

    cosines: dict[str, Callable[[], Any]] = {name: partial(of, cosine, read) for name, read in layers.items()}
    if pair is PairVector.SIDES:
        return dict(layers), cosines
    return {name: partial(of, PairFeatures, read) for name, read in layers.items()}, cosines


def _of_spans(cache: ActivationCache, options: VectorOptions) -> LayerVectors:
    """The vectors of the spans that labels are about; a row is a target."""
    if options.pooling is not None:
        raise UsageError(f"{cache.spec['task']} is probed span by span; leave out --pooling, or give --span ends|mean.")
    found, how = cache.targets, options.span or SpanVector.ENDS
    if found.left_out:
        log.warning(
            "%s %s: %s of %s targets are left out, because the model did not read all of their spans.",
            cache.spec["task"], cache.spec["split"], f"{found.left_out:,}", f"{found.left_out + len(found):,}",
        )  # fmt: skip

    def read(name: str) -> Any:
        return span_vectors(cache.tokens(name).values, found.first, found.last, mean=how is SpanVector.MEAN)

    groups = groups_of(cache, options.groups)
    sentence = found.example
    ids = numbered(cache.ids[sentence], sentence)
    if found.labels.ndim == 1:
        y, sets = found.labels, None
    else:
        sets, y = np.unique(found.labels, axis=0, return_inverse=True)
        y = y.reshape(-1)
    of = sentence if groups.of is None else groups.of[sentence]
    labels = Labels(y, of, ids=ids, sentences=None if groups.of is None else sentence)
    coding = coding_of(cache, options)
    layers: dict[str, Callable[[], Any]] = {name: partial(read, name) for name in _chosen(cache, options, coding)}
    if coding is not None:
        layers = _made(coding, coding.spans(found.first, found.last, mean=how is SpanVector.MEAN))
    cosines: dict[str, Callable[[], Any]] = {}
    if found.first.shape[1] == 2:
        layers, cosines = _compared(layers, options.span_pair)
    return LayerVectors(
        _named_with(coding, str(how)), words=True, layers=layers, labels=labels, targets=found, label_sets=sets,
        group_columns=groups.columns | _columns(coding), cosines=cosines,
    )  # fmt: skip


def _of_pieces(cache: ActivationCache, options: VectorOptions) -> LayerVectors:
    """All pieces of each text, without those that the tokenizer added."""
    spec = cache.spec
    if spec["kind"] in ("sequence-labelling", "span-labelling") or options.span is not None:
        raise UsageError(
            f"attention probes and monitors read whole texts, and {spec['task']} labels words or spans; try edges."
        )
    if options.pooling is not None or spec["pairs"] == "separate":
        given = "--pooling" if options.pooling is not None else "pairs that are read separately"
        raise UsageError(f"attention probes and monitors read the pieces of one sequence, not {given}.")
    coding = coding_of(cache, options)
    names = _chosen(cache, options, coding)
    reader = TokenReader(cache, names[:1])
    start, length = reader.start, reader.length
    row = np.repeat(start - (np.cumsum(length) - length), length) + np.arange(length.sum())
    kept = ~reader.special[row]
    length = np.bincount(np.repeat(np.arange(len(length)), length)[kept], minlength=len(length))

    def read(name: str) -> Sequences:
        return Sequences(cache.tokens(name).values, row[kept], np.cumsum(length) - length, length)

    groups = groups_of(cache, options.groups)
    layers: dict[str, Callable[[], Any]] = {name: partial(read, name) for name in names}
    if coding is not None:
        layers = _made(coding, coding.pieces(row[kept], np.cumsum(length) - length, length))
    return LayerVectors(
        _named_with(coding, str(spec["tokens"])), words=False, layers=layers,
        labels=_labels(cache, words=False, groups=groups.of), group_columns=groups.columns | _columns(coding),
    )  # fmt: skip


def numbered(ids: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """ "ID:0", "ID:1" … for the words or targets of each sentence, which are in order."""
    first = np.searchsorted(sentence, sentence)
    return np.char.add(np.char.add(ids.astype(str), ":"), (np.arange(len(sentence)) - first).astype(str))


def _chosen(cache: ActivationCache, options: VectorOptions, coding: Coding | None) -> list[str]:
    """The names of the requested layers, in the order of the model; that of a dictionary."""
    if coding is not None:
        return [coding.layer]
    if options.layers is None:
        return list(cache.layers)
    if not options.layers:
        raise UsageError(f"layers is empty; the cache holds {', '.join(cache.layers)}.")
    chosen = set(cache.layer_names(options.layers))
    return [name for name in cache.layers if name in chosen]


def with_label_sets(of: LayerVectors, cache: ActivationCache) -> LayerVectors:
    """The vectors with the label sets of texts that have several labels or numbers; otherwise texts are unlabelled."""
    if of.words or (values := cache.label_values) is None:
        return of
    known = ~np.isnan(values).any(1) if values.dtype.kind == "f" else (values >= 0).all(1)
    sets, number = np.unique(values[known], axis=0, return_inverse=True)
    y = np.full(len(values), -1)
    y[known] = number.reshape(-1)
    return replace(of, labels=replace(of.labels, y=y), label_sets=sets if sets.dtype.kind == "f" else sets.astype(bool))


def _labels(cache: ActivationCache, words: bool, groups: np.ndarray | None) -> Labels:
    if not words:
        return Labels(cache.labels, groups, ids=cache.ids)
    sentence = cache.word_sentence
    ids = numbered(cache.ids[sentence], sentence)
    if groups is None:
        return Labels(cache.word_labels, sentence, ids=ids)
    return Labels(cache.word_labels, groups[sentence], ids=ids, sentences=sentence)


def cosine(x: Any) -> np.ndarray:
    """The cosine of u and v in each row of [u; v], float32 (n, 2d) to (n, 1); 0 where one of them is 0."""
    found = np.empty((x.shape[0], 1), dtype=np.float32)
    for start in range(0, len(found), 4096):
        rows = slice(start, min(start + 4096, len(found)))
        u, v = np.split(np.asarray(x[rows], dtype=np.float64), 2, axis=1)
        size = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
        found[rows, 0] = (u * v).sum(1) / np.where(size > 0, size, 1.0)
    return found


@dataclass(frozen=True, slots=True)
class PairFeatures:
    """Vectors [u; v] (n, 2d) read as [u; v; |u - v|; u * v] (n, 4d), a few rows at a time."""

    x: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.x.shape[0], 2 * self.x.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.x.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        return pair_features(np.asarray(self.x[rows]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


def columns_of(cache: ActivationCache, representation: str) -> dict[str, Any]:
    """The columns of rows that identify the vectors and the model.

    A training checkpoint has the name of its run, and a step. A randomly initialised model has the checkpoint
    "random-SEED", and its seed in the column ``random_weights``. An untrained encoder of :func:`probekit.new_encoder`
    has the checkpoint "untrained, seed SEED". A model read from a folder has the folder's name, and what tells it apart
    if another model of the call has that name.
    """
    spec = cache.spec
    of_model = model_columns(spec, cache.origin)
    return {"task": spec["task"], "split": spec["split"], **of_model, "representation": representation}


def model_columns(spec: Mapping[str, Any], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of :func:`columns_of` that identify the model, from its identity and the training that made it.

    spec, origin : as from :func:`probekit.models.identity.identify` and :func:`probekit.models.identity.trained_by`
    """
    random = spec["random_weights"]
    untrained = f"untrained, seed {origin['untrained']}" if "untrained" in origin else ""
    return {
        "model": name_in_rows(spec["model"]),
        "checkpoint": spec.get("checkpoint", untrained) if random is None else f"random-{random}",
        "step": spec.get("step"),
        "random_weights": random,
        **{column: origin[name] for name, column in OF_TRAINING.items() if origin.get(name) is not None},
        **spec.get("named", {}),
    }


def precision_of(cache: ActivationCache) -> float | None:
    """The ε that the vectors were rounded to, if it is not that of their type: bfloat16 is read as float32."""
    return 2**-7 if cache.spec["store"] == "bfloat16" else None


def read_of(cache: ActivationCache) -> Read:
    """The entry of a cache in a card: its path, ``spec_id``, spec and recipe."""
    about: dict[str, Any] = {"spec": {k: cache.spec[k] for k in CACHE if k in cache.spec}}
    if cache.recipe is not None:
        about["recipe"] = cache.recipe.to_json()
    return Read(str(cache.path), "cache", cache.spec_id, about)


def read_of_model(source: str | Path, spec: Mapping[str, Any]) -> Read:
    """The entry of a scored model in a card: where it was found, its digest, and its identity."""
    about = {name: value for name, value in spec.items() if name != "path"}  # that of its forward pass
    return Read(str(source), "model", str(spec.get("weights_digest") or ""), about)
