"""Feature extraction: a task model on the layers of a frozen encoder, which were cached once and are not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from probekit.activations import ActivationCache
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.adaptation.cached import PooledData, TokenData
from probekit.adaptation.heads.scalar_mix import ScalarMix
from probekit.adaptation.learners import FeatureExtraction
from probekit.adaptation.options import HeadOptions, Regime
from probekit.adaptation.parts import Parts
from probekit.adaptation.setup import Target, build_head, choose_head, describe, reads_apart
from probekit.errors import CacheMismatch, UsageError

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


def cache_wanted(options: HeadOptions, target: Target) -> dict[str, Any]:
    """How ``cache_activations`` must be called so that the head finds what it reads."""
    name = choose_head(options, target, Regime.FEATURE_EXTRACTION)
    pairs = "separate" if reads_apart(options, name, target) else "joint"
    apart = pairs == "separate"
    with torch.device("meta"):  # what does not fit is told before anything is cached
        build_head(options, name, target, 1, apart=apart, pooling=_pooling(options))
    pooling = _pooled(options, name)
    return (
        {"pooling": [pooling], "tokens": None, "pairs": pairs}
        if pooling
        else {"pooling": [], "tokens": True, "pairs": pairs}
    )


def prepare_feature_extraction(
    train: ActivationCache, dev: ActivationCache, options: HeadOptions, *, layers: Sequence[int | str] | None = None
) -> Parts:
    """Scalar mix and head over the cached layers.

    layers : those that are mixed; all for None
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
    name = choose_head(options, target, Regime.FEATURE_EXTRACTION)
    apart = train.spec["sentences"] == 2
    pooling = _pooling(options)
    head = build_head(options, name, target, train.width, apart=apart, pooling=pooling)

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
        head=describe(options, name, width=train.width, apart=apart, pooling=pooling), read=read, layers=used,
    )  # fmt: skip


def data_of(
    cache: ActivationCache, options: HeadOptions, head: str, layers: Sequence[int | str] | None = None
) -> TokenData | PooledData:
    """What the head reads of a cache: pooled vectors where these are enough and there, tokens otherwise."""
    if layers is not None and not layers:
        raise UsageError(f"no layers are chosen to be mixed; {cache.path} has {', '.join(cache.layers)}.")
    pooling = _pooled(options, head)
    if pooling in cache.poolings:
        return PooledData(cache, str(pooling), layers)
    if pooling and cache.spec["tokens"] != TokenLevel.PIECE:
        raise UsageError(
            f"{cache.path} has neither vectors of pieces nor the pooling {pooling}; "
            f"it has {', '.join(cache.poolings) or 'vectors of words'}. "
            f"Make a cache with --pooling {pooling}, or with --tokens."
        )
    return TokenData(cache, layers)


def _pooling(options: HeadOptions) -> str:
    if options.pooling == "pooler":
        raise UsageError("a cache does not hold what the encoder's pooler gives; choose another pooling.")
    return options.pooling if options.pooling != "auto" else "mean"


def _pooled(options: HeadOptions, head: str) -> str | None:
    pooling = _pooling(options)
    return pooling if head == "linear" and pooling in POOLED and not options.layer_norm else None


def _same(name: str, train: ActivationCache, dev: ActivationCache) -> None:
    if train.spec.get(name) != dev.spec.get(name):
        raise CacheMismatch(
            f"the two caches do not belong together: {name} is {train.spec.get(name)!r} in {train.path} and "
            f"{dev.spec.get(name)!r} in {dev.path}."
        )
