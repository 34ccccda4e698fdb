"""A cache in the formats of other tools: read once, in blocks, and compared with its digests meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.foreign.writers import Columns, Format, Table, joined, opened_writer
from probekit.activations.hdf5 import decode
from probekit.constraint import Out
from probekit.files import digest_of_content, new_folder
from probekit.public import public
from probekit.runtime import Progress, no_progress

BYTES = 64 << 20
"""About how many bytes of vectors are in memory at a time."""
KEEP_BFLOAT16 = (Format.SAFETENSORS,)


@dataclass(frozen=True, slots=True)
class Export:
    """An exported cache.

    Attributes
    ----------
    path : Path
        Its folder.
    files : tuple of str
        The files in it.
    nbytes : int
        Their size.
    notes : tuple of str
        What the format cannot keep.
    """

    path: Path
    files: tuple[str, ...]
    nbytes: int
    notes: tuple[str, ...]


@public()
def export(
    cache: ActivationCache | str | Path,
    /,
    *,
    to: Literal["safetensors", "zarr", "npy", "parquet"],
    out: Out,
    layers: tuple[str, ...] | None = None,
    progress: Progress = no_progress,
) -> Export:
    """Write the vectors of a cache to a folder in another format, with ids, labels, spec and digests beside them.

    The cache is compared with its digests while it is read, about 64 MiB at a time. The folder appears when all is
    written. bfloat16 stays bfloat16 in safetensors; the other formats have no such numbers, and hold the same values
    as float32. An export cannot be imported again, since it lacks the pieces of the texts: keep the cache.

    Parameters
    ----------
    cache : ActivationCache, str or Path
        The cache.
    to : {"safetensors", "zarr", "npy", "parquet"}
        safetensors: shards of about 1 GiB, with some rows of every layer. zarr: a sharded group of version 3 (needs the
        extra zarr). npy: a file for each layer, which numpy can map. parquet: vectors as lists of fixed size, beside
        ids and labels.
    out : path
        The folder to write, which must not exist.
    layers : tuple of str, optional
        Layers and sites to write, such as 0,4-8,attn_out.3; by default all.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Export
        The folder and its files.

    Raises
    ------
    UsageError
        If the folder exists, or the format is unknown or needs a package that is not installed.
    CacheCorrupt
        If the cache was changed after it was written; nothing is left in the folder then.

    Examples
    --------
    >>> probekit.export("sst2.dev.h5", to="npy", out="sst2-dev")  # doctest: +SKIP

    On the command line::

        probekit export train.h5 --to npy --out train-npy
        probekit export train.h5 --to zarr --layers 4:12:2 --out train-zarr
    """
    opened = cache if isinstance(cache, ActivationCache) else ActivationCache(cache)
    path = Path(out)
    try:
        with new_folder(path) as folder:
            kept = opened.layer_names(layers)
            written = _Writing(opened, Format(to), folder, kept, progress)
            written.tables()
            names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
            digests = {name: digest_of_content(folder / name) for name in names}
            (folder / "spec.json").write_text(written.description(digests), encoding="utf-8")
            nbytes = sum((folder / name).stat().st_size for name in (*names, "spec.json"))
    finally:
        if opened is not cache:
            opened.close()
    return Export(path, (*names, "spec.json"), nbytes, written.notes)


class _Writing:
    """One export."""

    def __init__(
        self, cache: ActivationCache, to: Format, folder: Path, layers: Sequence[str], progress: Progress
    ) -> None:
        self.cache, self.to, self.folder, self.layers, self.progress = cache, to, folder, layers, progress
        store = str(cache.spec["store"])
        self.decoded = store == "bfloat16" and to not in KEEP_BFLOAT16
        self.dtype = "float32" if self.decoded else store
        self.notes = (f"{to} has no bfloat16; the numbers are the same, written as float32",) if self.decoded else ()
        self.about = {"format": "probekit-export/1", "spec_id": cache.spec_id, "cache": f"{cache._checked.digest:016x}"}

    def tables(self) -> None:
        """Write ids, labels and pooled vectors by example, then the vectors of tokens."""
        cache, widths = self.cache, dict(zip(self.cache.layers, self.cache.widths, strict=True))
        k = int(cache.spec["sentences"])
        vectors = {f"pooled/{p}/{layer}": k * widths[layer] for p in cache.poolings for layer in self.layers}
        values = {"id": "/ids", "label": "/labels", "truncated": "/truncated"}
        values |= {"domain": "/domains"} if cache._has("/domains") else {}
        if cache.spec["tokens"]:
            values |= {"first_token": "/index/start", "tokens": "/index/length"}
        self._table("examples", len(cache), vectors, values)
        if cache.spec["tokens"]:
            vectors = {f"tokens/{layer}": widths[layer] for layer in self.layers}
            values = {"token_id": "/index/token_ids", "word": "/index/word_index"}
            extra = {name: f"/index/{name}" for name in ("role", "position")}
            values |= {name: at for name, at in extra.items() if cache._has(at)}
            self._table("tokens", cache._checked.shape("/index/token_ids")[0], vectors, values)

    def _table(self, name: str, rows: int, widths: Mapping[str, int], values: Mapping[str, str]) -> None:
        if not rows:
            return
        size = 4 if self.dtype == "float32" else 2
        step = max(1, min(BYTES // max(1, sum(widths.values()) * size), 1 << 16))
        table = Table(name, rows, step, widths, self.dtype, self.about)
        columns = Columns(self.folder / f"{name}.parquet", self.about)
        writer = opened_writer(self.to, self.folder, table) if widths else None
        done = 0
        try:
            for part in joined(self._streams(widths, values, step)):
                beside = {key: _values(key, part[key]) for key in values}
                beside = {key: column for stored in beside.values() for key, column in stored.items()}
                vectors = {key: decode(part[key]) if self.decoded else part[key] for key in widths}
                columns.write(beside, vectors if writer is None else {})
                if writer is not None:
                    writer.write(done, vectors)
                done += len(next(iter(part.values())))
                self.progress(f"writing {name}", done, rows)
        finally:
            columns.close()
            if writer is not None:
                writer.close()

    def _streams(
        self, widths: Mapping[str, int], values: Mapping[str, str], step: int
    ) -> dict[str, Iterator[np.ndarray]]:
        places = {**values, **{name: f"/{name}" for name in widths}}
        return {name: self.cache._checked.stream(at, step) for name, at in places.items()}

    def description(self, digests: Mapping[str, str]) -> str:
        """``spec.json``: where the numbers come from, and the digest of each file."""
        about: dict[str, Any] = {
            **self.about,
            "to": str(self.to),
            "store": self.dtype,
            "layers": list(self.layers),
            "notes": list(self.notes),
            "spec": self.cache.spec,
            **({"role_names": self.cache._texts("/role_names").tolist()} if self.cache._has("/role_names") else {}),
            "files": dict(digests),
        }
        return json.dumps(about, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _values(name: str, part: np.ndarray) -> dict[str, Any]:
    """Columns for a dataset: texts as texts, pairs that were read separately in two columns."""
    if part.dtype.kind == "S":
        return {name: [text.decode() for text in part.tolist()]}
    if part.ndim == 2:
        return {f"{name}_{i}": np.ascontiguousarray(part[:, i]) for i in range(part.shape[1])}
    return {name: part}
