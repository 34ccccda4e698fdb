"""From one cache file to the rows of description length by layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.errors import UsageError
from probekit.probes.caches import about
from probekit.probes.diagnostic import pair_features
from probekit.probes.inputs import word_types
from probekit.probes.mdl import Code, mdl_rows
from probekit.probes.options import Labels
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mdl"]


def mdl(
    train: str | Path | ActivationCache,
    *,
    code: Code | str = Code.ONLINE,
    controls: int = 3,
    pooling: str | None = None,
    layers: Sequence[int | str] | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> pd.DataFrame:
    """In how many bits the labels of a cache can be sent to one who has its vectors, layer by layer.

        rows = mdl("cola.train.h5")
        rows[rows["metric"] == "compression"]

    train : a file or an open cache of the training split; no other is needed
    code : "online" or "variational"; controls : how many shufflings of the labels (and, of words, control tasks)
    pooling : one of the cache's poolings, the first for None; layers : some of the layers, all for None
    options : ``Cs``, ``fractions`` and ``seed`` of :func:`probekit.probes.mdl.mdl_rows`, where the rows are described
    Raises UsageError for a regression task, an unknown layer or pooling; NonFiniteError naming a layer.
    """
    with ExitStack() as stack:
        cache = train if isinstance(train, ActivationCache) else stack.enter_context(ActivationCache(train))
        spec, words = cache.spec, cache.spec["kind"] == "sequence-labelling"
        if spec["kind"] == "regression":
            raise UsageError(f"{spec['task']} asks for numbers; a code length is defined for classes.")
        if words and not spec["tokens"]:
            raise UsageError(f"{spec['task']} labels words, and this cache holds none; make it with --tokens.")
        if words and pooling is not None:
            raise UsageError(f"{spec['task']} is probed word by word; there is no pooling to choose.")
        if not words and not cache.poolings:
            raise UsageError("the cache holds no pooled vectors; make it with --pooling mean.")
        how = str(spec["tokens"]) if words else pooling or cache.poolings[0]
        if not words and how not in cache.poolings:
            raise UsageError(f"there is no pooling {how!r}; the cache holds {', '.join(cache.poolings)}.")
        names = tuple(cache.layers) if layers is None else tuple(str(name) for name in layers)
        if unknown := [name for name in names if name not in cache.layers]:
            raise UsageError(f"there is no layer {', '.join(unknown)}; the cache holds {', '.join(cache.layers)}.")

        def read(name: str) -> np.ndarray:
            if words:
                return cache.layer_words(name)
            x = cache.layer(name, how)
            return pair_features(x) if spec["pairs"] == "separate" else x

        labels = Labels(cache.labels)
        if words:
            labels = Labels(cache.word_labels, cache.word_sentence, word_types(cache.word_pieces)[0])
        return mdl_rows(
            {name: partial(read, name) for name in names},
            labels,
            about=about(spec, how),
            targets=controls,
            code=code,
            classes=len(spec["label_names"]) or None,
            progress=progress,
            **options,
        )
