"""``probekit import``: activations of another tool as a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.activations.foreign.options import ImportOptions
from probekit.cli.show import say

__all__ = ["import_activations"]


def import_activations(
    source: Path,
    /,
    *,
    model: str,
    out: Path,
    options: Annotated[ImportOptions, Parameter(name="*")] = ImportOptions(),
    overwrite: bool = False,
) -> None:
    """Turn activations of vLLM, TransformerLens, nnsight or SAELens into a cache, after a sample was recomputed.

    The cache says from which files the numbers come, and what was certified. If an array is not what its name says,
    nothing is written; see *probekit certify --against*.

    Examples:

        probekit import hidden_states/ --model Qwen/Qwen3-8B --layers 8,16,24 --dtype bfloat16 --out train.h5

        probekit import activations.npz --model gpt2 --labels labels.csv --pooling last --out train.h5

    Parameters
    ----------
    source
        safetensors of vLLM's ExampleHiddenStatesConnector, .npz or .safetensors with an array for each site, or a
        folder of SAELens.
    model
        Hub id or folder of the model that they are of.
    out
        The cache to write.
    overwrite
        Replace a cache that holds other activations.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        cache = probekit.import_activations(
            source, model=model, out=out, options=options, overwrite=overwrite, progress=progress
        )
    with cache:
        layers = ", ".join(cache.layers)
        say(f"{cache.path}: {len(cache):,} examples, {layers}; {cache.spec['certificate']['verdict']}")
