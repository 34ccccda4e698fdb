"""HDF5 as caches use it: datasets that lie in one piece, their places in the file, and their digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from probekit.errors import CacheCorrupt, CacheError, CacheMismatch
from probekit.files import FileKind
from probekit.hdf5 import DAMAGE

__all__ = [
    "CACHE_FILE",
    "DAMAGE",
    "FORMAT",
    "Extent",
    "datasets",
    "decode",
    "extents",
    "is_cache_file",
    "open_cache_file",
    "xxh3",
]

FORMAT = "probekit-activations/1"


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a contiguous dataset lies in its file: byte offset, shape and dtype."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole dataset."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def map(self, path: Path, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map."""
        return np.memmap(path, dtype=self.dtype, mode=mode, offset=self.offset, shape=self.shape)

    def vectors(self, path: Path, each: int, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map of vectors, of which ``each`` stand in one row."""
        return self.map(path, mode).reshape(self.shape[0] * each, -1)  # type: ignore[return-value]


def datasets(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """All datasets of this very file by name, those of several names under each; links out of it are not followed."""
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.HardLink):
            item = group[key]
            if isinstance(item, h5py.Group):
                yield from datasets(item, f"{prefix}/{key}")
            elif isinstance(item, h5py.Dataset):
                yield f"{prefix}/{key}", item


def extents(f: h5py.File) -> dict[str, Extent]:
    """Extents of all contiguous datasets that hold something, by name."""
    return {
        name: Extent(ds.id.get_offset(), ds.shape, ds.dtype)
        for name, ds in datasets(f)
        if ds.chunks is None and ds.size and not ds.external and not ds.is_virtual
    }


def xxh3(array: np.ndarray) -> int:
    """xxh3 digest, 64 bits, of an array's bytes."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data)


def open_cache_file(path: Path) -> h5py.File:
    """``path`` as HDF5, read only; raises CacheError where there is none, CacheCorrupt where it cannot be opened."""
    if path.is_dir():
        raise CacheError(f"{path} is a folder; name a file, such as {path / 'cache.h5'}.")
    if not path.is_file():
        raise CacheError(f"{path}: there is no such file.")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if path.stat().st_size and "signature not found" in str(error):
            raise CacheMismatch(f"{path} is not an HDF5 file, so it is no probekit cache.") from error
        reason = "it is cut short" if "truncated file" in str(error) else f"HDF5 says {error}"
        raise CacheCorrupt(
            f"{path} is not a readable HDF5 file: {reason}. Make it again with probekit cache-activations --overwrite."
        ) from error


def is_cache_file(path: Path) -> bool:
    """Whether a file begins as our caches do, whole or not: HDF5, and the name of the format in its first megabyte."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 20)
    except OSError:
        return False
    return start.startswith(b"\x89HDF\r\n\x1a\n") and FORMAT.encode() in start


CACHE_FILE = FileKind("an activation cache", is_cache_file)


def decode(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 values held as uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
