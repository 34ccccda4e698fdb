"""``probekit export``: a cache in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from probekit.cli.show import say, warn
from probekit.files import in_words

__all__ = ["export"]


def export(
    cache: Path,
    /,
    *,
    to: Literal["safetensors", "zarr", "npy", "parquet"],
    out: Path,
    layers: tuple[str, ...] | None = None,
) -> None:
    """Write the vectors of a cache to a folder in another format, with ids, labels, spec and digests beside them.

    The cache is compared with its digests while it is read. The folder appears when all is written.

    Examples:

        probekit export train.h5 --to npy --out train-npy

        probekit export train.h5 --to zarr --layers 4:12:2 --out train-zarr

    Parameters
    ----------
    cache
        The cache.
    to
        safetensors: shards with some rows of every layer. zarr: a sharded group of version 3 (needs the extra zarr).
        npy: a file for each layer, which numpy can map. parquet: vectors as lists, beside ids and labels.
    out
        The folder to write, which must not exist.
    layers
        Layers and sites to write, such as 0,4-8,attn_out.3; by default all.
    """
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        made = probekit.export(cache, to=to, out=out, layers=layers, progress=progress)
    say(f"{made.path}: {len(made.files)} files, {in_words(made.nbytes)}")
    for note in made.notes:
        warn(f"probekit: {note}.")
