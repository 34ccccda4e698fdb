"""Code length of the labels of a cache, given the vectors of each layer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from probekit.activations import ActivationCache
from probekit.analyses.features import read_of_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import columns_of, layer_vectors, open_caches, read_of
from probekit.errors import UsageError
from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.options import CodeOptions
from probekit.probes.protocol.pieces import word_types
from probekit.rows import Result
from probekit.runtime import Progress
from probekit.tasks.task import check_one_label


def measure(
    train: str | Path | ActivationCache, vectors: VectorOptions, options: CodeOptions, progress: Progress
) -> Result:
    """The rows of :func:`probekit.mdl`."""
    with ExitStack() as stack:
        (cache,) = open_caches([train], stack)
        check_one_label(cache.spec["task"], cache.spec["kind"])
        chosen = layer_vectors(cache, vectors)
        if cache.spec["kind"] == "regression":
            raise UsageError(f"{cache.spec['task']} is a regression task; code lengths are defined only for classes.")
        labels = replace(chosen.labels, types=word_types(cache.word_pieces)[0]) if chosen.words else chosen.labels
        rows = mdl_rows(
            chosen.layers,
            labels,
            about={"analysis": "mdl", **columns_of(cache, chosen.representation), **chosen.group_columns},
            options=options,
            classes=len(cache.spec["label_names"]) or None,
            progress=progress,
        )
        return Result(rows, reads=(read_of(cache), *read_of_dictionary(vectors)))
