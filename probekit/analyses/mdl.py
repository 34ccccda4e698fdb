"""Code length of the labels, given the vectors of each layer: the analysis of ``probekit mdl``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.vectors import columns_of, layer_vectors, read_of
from probekit.errors import UsageError
from probekit.probes.codes.mdl import mdl_rows
from probekit.probes.codes.options import CodeOptions
from probekit.probes.protocol.pieces import word_types
from probekit.public import public
from probekit.rows import Result
from probekit.runtime import Progress, no_progress

__all__ = ["mdl"]


@public(vectors=VectorOptions, options=CodeOptions)
def mdl(
    train: str | Path | ActivationCache,
    /,
    *,
    vectors: VectorOptions,
    options: CodeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Measure the code length of a cache's labels, in bits, for a receiver who has the vectors of a layer.

    A probe that finds the labels easily, from few examples, transmits them in few bits. Compression is the length of
    the uniform code over that of the probe's code. "compression-over-prior" divides instead the length of a code that
    learns only the class frequencies; a layer whose code is not shorter than that holds nothing that the probe finds.

    Parameters
    ----------
    train : path or ActivationCache
        Cache of the training split; no other is needed.
    vectors : VectorOptions
        ``pooling`` and ``layers``; each may be given as a keyword.
    options : CodeOptions
        ``code``, ``controls``, ``penalties``, ``fractions``, ``orders``, ``seed``; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows of each layer, for gold labels and each draw of a control: "codelength-bits", "bits-per-example",
        "compression", "compression-over-prior", "saved-bits", and for the online code "portion-bits-per-example"; also
        of the targets "uniform" and "prior", codes that do not use the vectors. Gold rows are means over several
        orders, with a 95 % interval for new examples in new orders. There are no predictions.

    Raises
    ------
    UsageError
        For a regression task, an unknown layer or pooling.
    NonFiniteError
        If a layer contains NaN; the message names the layer.

    References
    ----------
    Voita & Titov 2020, Information-Theoretic Probing with Minimum Description Length, section 2.

    Examples
    --------
    >>> result = probekit.mdl("cola.train.h5")  # doctest: +SKIP
    >>> result.rows[result.rows["metric"] == "compression"]  # doctest: +SKIP
    """
    with ExitStack() as stack:
        cache = train if isinstance(train, ActivationCache) else stack.enter_context(ActivationCache(train))
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
        return Result(rows, reads=(read_of(cache),))
