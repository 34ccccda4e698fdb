"""Feature extraction: a task model on the cached layers of a frozen encoder, which is not run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.activations.grouping import cached_groups
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.activations.tokens import TokenReader
from probekit.adaptation.data.batches import label_tensor, padded, word_tensors
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.spec import HeadSpec, choose_head, head_spec, reads_apart
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.training.learners import FeatureExtraction
from probekit.adaptation.training.objective import Objective, Training, rating_scale
from probekit.errors import CacheMismatch, UsageError
from probekit.models.conversion import default_pooling
from probekit.models.folder import model_type
from probekit.models.loading import parts_pairs
from probekit.models.scalar_mix import ScalarMix
from probekit.tasks.context import Context

MODEL = (
    "model",
    "checkpoint",
    "step",
    "revision",
    "weights_digest",
    "tokenizer_digest",
    "random_weights",
    "dtype",
    "cut_at",
    "stateful",
    "only",
    "context",
    "layers",
    "width",
)
"""Keys in which caches for one head must agree: the same model, training step and settings."""

POOLED = frozenset({Pooling.MEAN, Pooling.MEAN_ALL, Pooling.FIRST, Pooling.LAST})
"""Linear poolings: pooling the mix equals mixing the pooled layers."""


def cache_options(options: TrainOptions, task: TaskSpec, folder: Path) -> dict[str, Any]:
    """The arguments of ``cache_activations`` that the head needs, for the model in a folder.

    Raises
    ------
    UsageError
        If the head does not fit the task.
    """
    kind = model_type(folder)
    name = choose_head(options, task, Regime.FEATURE_EXTRACTION, kind)
    apart = reads_apart(options, name, task, kind, joins=partial(parts_pairs, folder))
    spec = _head_spec(options, task, kind, width=1, apart=apart)
    with torch.device("meta"):  # reports a mismatch before anything is cached
        spec.build(task)
    pairs = "separate" if spec.pairs_apart else "joint" if task.paired else "auto"
    how = {
        "pairs": pairs, "dtype": options.encoder_dtype, "store": options.store, "layers": options.layers,
        "compress": options.compress,
    }  # fmt: skip
    if _reads_pooled(spec):
        return {"pooling": [spec.pooling], "tokens": False, **how}
    if options.context is not Context.NONE:
        how |= {"token_level": TokenLevel.WORD_PIECES, "context": options.context}
    return {"pooling": [], "tokens": True, **how}


def check_apart(train: ActivationCache, dev: ActivationCache) -> None:
    """Raise CacheMismatch if train and dev hold the same examples."""
    if train.spec["data_digest"] == dev.spec["data_digest"]:
        data = f"{train.spec['task']} {train.spec['split']}"
        raise CacheMismatch(f"both caches hold the same examples, {data}; dev needs other examples.")


def prepare_feature_extraction(
    train: ActivationCache,
    dev: ActivationCache | None,
    options: TrainOptions,
    *,
    test: ActivationCache | None = None,
    held: np.ndarray | None = None,
) -> Training:
    """Scalar mix and head over the cached layers.

    Parameters
    ----------
    dev : ActivationCache, optional
        None if ``held``, bool (n,), marks the examples of ``train`` that are held out.
    options : TrainOptions
        Its ``layers`` are mixed (default: all; if their widths differ, the widest).

    Raises
    ------
    CacheMismatch
        If the caches do not match.
    UsageError
        If the head does not fit the task, or the caches lack the vectors it reads.
    """
    task = TaskSpec.of_cache(train.spec)
    rows: list[np.ndarray | None] = [None, None]
    if dev is None:
        assert held is not None
        dev, rows = train, [np.flatnonzero(~held), np.flatnonzero(held)]
    else:
        check_apart(train, dev)
        check_same(train, dev, ("task", "kind", "pairs", "label_names", *MODEL))
    layers, width = _alike(train, options.layers)
    spec = _head_spec(
        options, task, _type(train), width=width, apart=train.spec["sentences"] == 2,
        scale=rating_scale(task, train.labels, dev.labels),
    )  # fmt: skip
    head = spec.build(task)
    data = [
        None if cache is None else data_of(cache, spec, layers, some)
        for cache, some in zip((train, dev, test), (*rows, None), strict=True)
    ]
    assert data[0] is not None
    assert data[1] is not None
    read_tokens = any(isinstance(one, TokenData) for one in data[:2])
    if read_tokens:
        check_same(train, dev, ("tokens",))
    used = data[0].layers
    return Training(
        FeatureExtraction(ScalarMix(len(used), layer_norm=spec.layer_norm), head, used),
        (Objective(task, spec, data[0], data[1], data[2]),),
        options,
        encoder={key: train.spec.get(key) for key in (*MODEL, "pairs", *(["tokens"] if read_tokens else []))},
    )


def data_of(
    cache: ActivationCache, head: HeadSpec, layers: Sequence[int | str] | None = None, rows: np.ndarray | None = None
) -> TokenData | PooledData:
    """The data that the head reads from a cache, or from some of its ``rows``: pooled vectors if these suffice and
    exist, otherwise tokens."""
    layers, _ = _alike(cache, layers)
    if _reads_pooled(head):
        if head.pooling in cache.poolings:
            return PooledData(cache, str(head.pooling), layers, rows)
        if cache.spec["tokens"] != TokenLevel.PIECE:
            raise UsageError(
                f"{cache.path} has neither vectors of pieces nor the pooling {head.pooling}; "
                f"it has {', '.join(cache.poolings) or 'vectors of words'}. "
                f"Create a cache with --pooling {head.pooling}, or with --tokens."
            )
    return TokenData(cache, layers, rows)


def _head_spec(
    options: TrainOptions, task: TaskSpec, model_type: str, *, width: int, apart: bool,
    scale: tuple[int, int] | None = None,
) -> HeadSpec:  # fmt: skip
    """The head on cached layers; apart : whether the pairs of a cache are encoded separately."""
    name = choose_head(options, task, Regime.FEATURE_EXTRACTION, model_type)
    if options.pooling == "pooler":
        raise UsageError("a cache does not hold the output of the encoder's pooler; choose another pooling.")
    pooling = options.pooling if options.pooling != "auto" else default_pooling(model_type)
    return head_spec(options, name, width=width, apart=apart, pooling=pooling, scale=scale)


def _reads_pooled(head: HeadSpec) -> bool:
    return head.pooling in POOLED and not head.layer_norm


def _type(cache: ActivationCache) -> str:
    return str(cache.spec["environment"].get("model_type", ""))


def _alike(cache: ActivationCache, layers: Sequence[int | str] | None) -> tuple[list[str], int]:
    """The layers to mix (default: the widest), and their width, which must be the same."""
    widths = dict(zip(cache.layers, cache.spec.get("widths") or [cache.width] * len(cache.layers), strict=True))
    only = cache.spec.get("only")  # numbers may count from a last layer that is not in the cache
    if layers is not None and only is not None and [str(x) for x in layers] == only:
        chosen: Sequence[int | str] = cache.layers
    else:
        chosen = [x for x in cache.layers if widths[x] == cache.width] if layers is None else layers
    if not chosen:
        raise UsageError(f"layers is empty; {cache.path} has {', '.join(cache.layers)}.")
    names = [cache.layer_name(x) for x in chosen]
    if len({widths[x] for x in names}) > 1:
        found = ", ".join(f"{x} has {widths[x]}" for x in names)
        raise UsageError(f"layers of different widths cannot be mixed: {found}. Choose layers of the same width.")
    return names, widths[names[0]]


def text_labels(cache: ActivationCache) -> np.ndarray:
    """The label of each text, (n,), or several labels or numbers of each, (n, k)."""
    values = cache.label_values
    return cache.labels if values is None else values


class _Cached:
    """Some rows of a cache."""

    cache: ActivationCache
    rows: np.ndarray

    @cached_property
    def groups(self) -> np.ndarray | None:
        """The group of each example, (n,)."""
        of = cached_groups(self.cache).of
        return None if of is None else of[self.rows]


class TokenData(_Cached):
    """The examples of a token cache (see :class:`probekit.adaptation.data.batches.Data`), read on demand.

    Batches hold ``hidden`` (layers, pieces, d), the sequences one after another without padding, and their ``length``.
    """

    def __init__(
        self, cache: ActivationCache, layers: Sequence[int | str] | None = None, rows: np.ndarray | None = None
    ) -> None:
        self.cache, self.reader = cache, TokenReader(cache, layers)
        self.layers = self.reader.layers
        n = len(cache)
        self.rows = np.arange(n) if rows is None else rows
        self.start, self.lengths = (x.reshape(n, -1)[self.rows] for x in (self.reader.start, self.reader.length))
        self.length = self.lengths.sum(1)
        if not self.lengths.all():
            empty = cache.ids[self.rows[int(np.argmin(self.lengths.min(1)))]]
            raise UsageError(
                f"{cache.path}: example {empty!r} has no pieces after tokenization; remove it from the data."
            )
        self.order = np.argsort(self.start[:, 0], kind="stable")
        self.nbytes = float(self.length.mean()) * self.reader.row_bytes
        self.ids = cache.ids[self.rows]
        self.unread, self.truncated = 0, int(cache.truncated[self.rows].sum())
        self.words: list[tuple[np.ndarray, np.ndarray]] | None = None
        if cache.spec["kind"] == "sequence-labelling":
            self._find_words()
        else:
            self.labels = text_labels(cache)[self.rows]

    def _find_words(self) -> None:
        sentence, labels = self.cache.word_sentence, self.cache.word_labels
        at = self.cache.word_rows - self.reader.start.reshape(len(self.cache), -1)[sentence, 0]
        cuts = np.searchsorted(sentence, np.arange(1, len(self.cache)))
        words = list(zip(np.split(at, cuts), np.split(labels, cuts), strict=True))
        self.words = [words[i] for i in self.rows]
        self.labels = np.concatenate([of_words for _, of_words in self.words])
        self.unread = int(self.cache.index("word_count")[self.rows].sum()) - len(self.labels)

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        at = np.asarray(rows)
        first, *second = (self._inputs(self.start[at, s], self.lengths[at, s]) for s in range(self.start.shape[1]))
        if self.words is None:
            labels = label_tensor(self.labels[at])
        else:
            first["words"], labels = word_tensors(*zip(*(self.words[i] for i in rows), strict=True))
        return {"labels": labels, "first": first, **({"second": second[0]} if second else {})}

    def _inputs(self, start: np.ndarray, length: np.ndarray) -> dict[str, torch.Tensor]:
        rows = np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length)
        return {
            "hidden": torch.from_numpy(self.reader.gather(start, length)),
            "length": torch.from_numpy(length),
            "special": padded(self.reader.special[rows], length, fill=False),
        }


class PooledData(_Cached):
    """The examples of a cache as one pooled vector per layer, treated as sequences of one piece.

    This suffices for a linear layer on a pooled vector: the mean (first, last) of a mix is the mix of the means.
    """

    def __init__(
        self,
        cache: ActivationCache,
        pooling: str,
        layers: Sequence[int | str] | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        self.cache = cache
        self.rows = np.arange(len(cache)) if rows is None else rows
        self.layers = tuple(cache.layer_name(x) for x in (cache.layers if layers is None else layers))
        self.sources = [cache.mapped_layer(layer, pooling) for layer in self.layers]
        n = len(self.rows)
        self.sentences = int(cache.spec["sentences"])
        self.length, self.order = np.full(n, self.sentences, dtype=np.int64), np.arange(n)
        self.nbytes = float(len(self.layers) * self.sources[0].shape[1] * self.sources[0].dtype.itemsize)
        self.ids, self.labels = cache.ids[self.rows], text_labels(cache)[self.rows]
        self.unread, self.truncated = 0, int(cache.truncated[self.rows].sum())
        self.words: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __len__(self) -> int:
        return len(self.length)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        at = np.asarray(rows)
        self.cache.check_size()
        hidden = torch.from_numpy(np.stack([source[self.rows[at]] for source in self.sources]))
        first, *second = (
            {
                "hidden": part.contiguous(),
                "length": torch.ones(len(at), dtype=torch.int64),
                "special": torch.zeros(len(at), 1, dtype=torch.bool),
            }
            for part in hidden.chunk(self.sentences, dim=-1)
        )
        return {"labels": label_tensor(self.labels[at]), "first": first, **({"second": second[0]} if second else {})}
