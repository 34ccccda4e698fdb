"""In how many bits labels can be sent to one who has the vectors of a layer: the analysis behind ``probekit mdl``."""

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
    """Measure in how many bits the labels of a cache can be sent to one who has its vectors, layer by layer.

    A probe that finds the labels easily, from few examples, sends them in few bits. Compression is the length of the
    uniform code over that of the code; "compression-over-prior" is that of a code that learns the shares of the classes
    and looks at no vectors, and a layer whose code is no shorter than this holds nothing that the probe finds.

    Parameters
    ----------
    train : path or ActivationCache
        Of the training split; no other is needed.
    vectors : VectorOptions
        ``pooling`` and ``layers``; they may be given one by one.
    options : CodeOptions
        ``code``, ``controls``, ``penalties``, ``fractions``, ``orders``, ``seed``; they may be given one by one.
    progress : callable
        Told how far the work is.

    Returns
    -------
    Result
        Rows of each layer, for gold labels and each draw of a control: "codelength-bits", "bits-per-example",
        "compression", "compression-over-prior", "saved-bits", and of the online code "portion-bits-per-example"; of
        the targets "uniform" and "prior", codes that look at no vectors. Gold has the mean over several orders with a
        95 % interval for new examples in new orders. There are no predictions.

    Raises
    ------
    UsageError
        For a regression task, an unknown layer or pooling.
    NonFiniteError
        Naming a layer with NaN.

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
        own = layer_vectors(cache, vectors)
        if cache.spec["kind"] == "regression":
            raise UsageError(f"{cache.spec['task']} asks for numbers; a code length is defined for classes.")
        labels = replace(own.labels, types=word_types(cache.word_pieces)[0]) if own.words else own.labels
        rows = mdl_rows(
            own.layers,
            labels,
            about={"analysis": "mdl", **columns_of(cache, own.representation), **own.told},
            options=options,
            classes=len(cache.spec["label_names"]) or None,
            progress=progress,
        )
        return Result(rows, reads=(read_of(cache),))
