"""Feature extraction: a task model on the layers of a frozen encoder, which were cached once and are not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from probekit.activations import ActivationCache
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.adaptation.data.cached import PooledData, TokenData
from probekit.adaptation.heads import pools
from probekit.adaptation.heads.scalar_mix import ScalarMix
from probekit.adaptation.options import HeadOptions, Regime
from probekit.adaptation.training.learners import FeatureExtraction
from probekit.adaptation.training.objective import Target, build_head, choose_head, describe, reads_apart, scale_of
from probekit.adaptation.training.parts import Parts
from probekit.errors import CacheMismatch, UsageError
from probekit.models.conversion import default_pooling

__all__ = ["MODEL", "cache_wanted", "data_of", "prepare_feature_extraction"]

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
    "layers",
    "width",
)
"""What two caches must share to be read by one head: the same model, at the same step of training, run the same way."""

POOLED = frozenset({Pooling.MEAN, Pooling.MEAN_ALL, Pooling.FIRST, Pooling.LAST})
"""Poolings that are linear: pooling the mix is mixing what is pooled."""


def cache_wanted(options: HeadOptions, target: Target, model_type: str) -> dict[str, Any]:
    """How ``cache_activations`` must be called so that the head finds what it reads, of a model of this type."""
    name = choose_head(options, target, Regime.FEATURE_EXTRACTION, model_type)
    apart = reads_apart(options, name, target, model_type)
    pairs = "separate" if apart else "joint"
    with torch.device("meta"):  # what does not fit is told before anything is cached
        build_head(options, name, target, 1, apart=apart, pooling=_pooling(options, model_type))
    pooling = _pooled(options, name, model_type)
    return (
        {"pooling": [pooling], "tokens": None, "pairs": pairs}
        if pooling
        else {"pooling": [], "tokens": True, "pairs": pairs}
    )


def prepare_feature_extraction(
    train: ActivationCache, dev: ActivationCache, options: HeadOptions, *, layers: Sequence[int | str] | None = None
) -> Parts:
    """Scalar mix and head over the cached layers.

    layers : those that are mixed; all for None, or where they differ in width the widest
    Raises CacheMismatch where the two caches do not belong together, UsageError where the head does not fit the task
    or the caches lack what it reads.
    """
    target = Target.of_spec(train.spec)
    if train.spec["data_digest"] == dev.spec["data_digest"]:
        raise CacheMismatch(
            f"both caches hold the same examples, {target.task} {train.spec['split']}; dev must be others."
        )
    for name in ("task", "kind", "pairs", "label_names", *MODEL):
        _same(name, train, dev)
    name = choose_head(options, target, Regime.FEATURE_EXTRACTION, _type(train))
    apart = train.spec["sentences"] == 2
    pooling = _pooling(options, _type(train))
    layers, width = _alike(train, layers)
    scale = scale_of(target, train.labels, dev.labels)
    head = build_head(options, name, target, width, apart=apart, pooling=pooling, scale=scale)

    def read(cache: ActivationCache) -> TokenData | PooledData:
        return data_of(cache, options, name, layers)

    data = [read(cache) for cache in (train, dev)]
    read_tokens = isinstance(data[0], TokenData) or isinstance(data[1], TokenData)
    if read_tokens:
        _same("tokens", train, dev)
    used = data[0].layers
    learner = FeatureExtraction(ScalarMix(len(used), layer_norm=options.layer_norm), head)
    trained = [(key, p) for key, p in learner.named_parameters()]
    return Parts(
        learner, data[0], data[1], target, [("head", trained)], None, "",
        identity={key: train.spec.get(key) for key in (*MODEL, "pairs", *(["tokens"] if read_tokens else []))},
        head=describe(options, name, width=width, apart=apart, pooling=pooling, scale=scale), read=read, layers=used,
    )  # fmt: skip


def data_of(
    cache: ActivationCache, options: HeadOptions, head: str, layers: Sequence[int | str] | None = None
) -> TokenData | PooledData:
    """What the head reads of a cache: pooled vectors where these are enough and there, tokens otherwise."""
    layers, _ = _alike(cache, layers)
    pooling = _pooled(options, head, _type(cache))
    if pooling in cache.poolings:
        return PooledData(cache, str(pooling), layers)
    if pooling and cache.spec["tokens"] != TokenLevel.PIECE:
        raise UsageError(
            f"{cache.path} has neither vectors of pieces nor the pooling {pooling}; "
            f"it has {', '.join(cache.poolings) or 'vectors of words'}. "
            f"Make a cache with --pooling {pooling}, or with --tokens."
        )
    return TokenData(cache, layers)


def _type(cache: ActivationCache) -> str:
    return str(cache.spec["environment"].get("model_type", ""))


def _alike(cache: ActivationCache, layers: Sequence[int | str] | None) -> tuple[list[str], int]:
    """The layers that are mixed, the widest where none are named, and their width, which must be one."""
    widths = dict(zip(cache.layers, cache.spec.get("widths") or [cache.width] * len(cache.layers), strict=True))
    chosen = [x for x in cache.layers if widths[x] == cache.width] if layers is None else layers
    if not chosen:
        raise UsageError(f"no layers are chosen to be mixed; {cache.path} has {', '.join(cache.layers)}.")
    names = [cache.layer_name(x) for x in chosen]
    if len({widths[x] for x in names}) > 1:
        told = ", ".join(f"{x} is {widths[x]} wide" for x in names)
        raise UsageError(f"layers of different widths cannot be mixed: {told}. Choose one, or some alike.")
    return names, widths[names[0]]


def _pooling(options: HeadOptions, model_type: str) -> str:
    if options.pooling == "pooler":
        raise UsageError("a cache does not hold what the encoder's pooler gives; choose another pooling.")
    return options.pooling if options.pooling != "auto" else default_pooling(model_type)


def _pooled(options: HeadOptions, head: str, model_type: str) -> str | None:
    pooling = _pooling(options, model_type)
    return pooling if pools(head) and pooling in POOLED and not options.layer_norm else None


def _same(name: str, train: ActivationCache, dev: ActivationCache) -> None:
    if train.spec.get(name) != dev.spec.get(name):
        raise CacheMismatch(
            f"the two caches do not belong together: {name} is {train.spec.get(name)!r} in {train.path} and "
            f"{dev.spec.get(name)!r} in {dev.path}."
        )
