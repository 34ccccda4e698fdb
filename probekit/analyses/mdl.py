"""From one cache file to the rows of description length by layer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache
from probekit.analyses.pairs import about
from probekit.analyses.vectors import reading
from probekit.errors import UsageError
from probekit.probes.codes.mdl import Code, mdl_rows
from probekit.probes.protocol.baselines import word_types
from probekit.probes.protocol.labels import Labels
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
    options : ``Cs``, ``fractions`` and ``seed`` of :func:`probekit.probes.codes.mdl.mdl_rows`, which describes the rows
    Raises UsageError for a regression task, an unknown layer or pooling; NonFiniteError naming a layer.
    """
    with ExitStack() as stack:
        cache = train if isinstance(train, ActivationCache) else stack.enter_context(ActivationCache(train))
        spec, own = cache.spec, reading(cache, pooling, layers)
        if spec["kind"] == "regression":
            raise UsageError(f"{spec['task']} asks for numbers; a code length is defined for classes.")
        labels = Labels(own.labels)
        if own.words:
            labels = Labels(own.labels, cache.word_sentence, word_types(cache.word_pieces)[0])
        return mdl_rows(
            own.layers,
            labels,
            about=about(spec, own.representation),
            targets=controls,
            code=code,
            classes=len(spec["label_names"]) or None,
            progress=progress,
            **options,
        )
