"""HDF5 in caches: contiguous datasets, their positions in the file, and their digests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from probekit.errors import CacheCorrupt, CacheError, CacheMismatch
from probekit.files import FileKind
from probekit.rows.files import SUFFIXES, card_of

FORMAT = "probekit-activations/1"


@dataclass(frozen=True, slots=True)
class Extent:
    """Position of a contiguous dataset in its file: byte offset, shape and dtype."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole dataset."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def read(
        self, fd: int, cut: Callable[[], Exception] = lambda: OSError("it is truncated"), out: Any = None
    ) -> np.ndarray:
        """The dataset, read into memory.

        Parameters
        ----------
        fd : int
            Descriptor of the file.
        cut : callable
            Returns the error to raise if the file ends before the dataset.
        out : np.ndarray, optional
            Array to read into.
        """
        array = np.empty(self.shape, self.dtype) if out is None else out
        view, at = array.reshape(-1).view(np.uint8).data, 0
        while at < len(view):
            got = os.preadv(fd, [view[at : at + (1 << 30)]], self.offset + at)
            if not got:
                raise cut()
            at += got
        return array

    def digest(self, fd: int) -> int:
        """xxh3 of the dataset, 64 bits, read 4 MiB at a time."""
        state = xxhash.xxh3_64()
        for at in range(self.offset, self.offset + self.nbytes, 1 << 22):
            state.update(os.pread(fd, min(1 << 22, self.offset + self.nbytes - at), at))
        return state.intdigest()

    def map(self, path: Path, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map."""
        return np.memmap(path, dtype=self.dtype, mode=mode, offset=self.offset, shape=self.shape)

    def vectors(self, path: Path, each: int, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map of vectors, with ``each`` vectors per row."""
        return self.map(path, mode).reshape(self.shape[0] * each, -1)  # type: ignore[return-value]


def datasets(group: h5py.Group, prefix: str = "", above: tuple[Any, ...] = ()) -> Iterator[tuple[str, h5py.Dataset]]:
    """All datasets in this file by name (under each of several names); links to other files are not followed.

    above : parent groups, which a damaged or hostile file may contain again
    """
    here = h5py.h5o.get_info(group.id).addr
    for key in group if here not in above else ():
        if group.id.links.get_info(key.encode("utf-8", "surrogateescape")).type == h5py.h5l.TYPE_HARD:
            item = group[key]
            if isinstance(item, h5py.Group):
                yield from datasets(item, f"{prefix}/{key}", (*above, here))
            elif isinstance(item, h5py.Dataset):
                yield f"{prefix}/{key}", item


def extents(f: h5py.File) -> dict[str, Extent]:
    """Extents of all non-empty contiguous datasets, by name."""
    found = {}
    for name, ds in datasets(f):
        stored = ds.id.get_create_plist()
        if stored.get_layout() == h5py.h5d.CONTIGUOUS and not stored.get_external_count() and ds.size:
            found[name] = Extent(ds.id.get_offset(), ds.shape, ds.dtype)
    return found


def xxh3(array: np.ndarray) -> int:
    """xxh3 digest, 64 bits, of an array's bytes."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data)


def open_cache_file(path: Path) -> h5py.File:
    """``path`` as HDF5, read only; raises CacheError if there is no such file, CacheCorrupt if it cannot be opened."""
    if path.is_dir():
        raise CacheError(f"{path} is a folder; give a file, such as {path / 'cache.h5'}.")
    if not path.is_file():
        raise CacheError(f"{path} does not exist.")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if path.stat().st_size and "signature not found" in str(error):
            what = "is not an activation cache (it is not an HDF5 file)."
            if path.suffix in SUFFIXES:
                caches = [read["path"] for read in card_of(path).get("reads", ()) if read.get("kind") == "cache"]
                made = f" ({', '.join(caches)})" if caches else ""
                what = f"holds rows (results), not activations. Give a cache that they were made from{made}."
            raise CacheMismatch(f"{path} {what}") from error
        reason = "it is truncated" if "truncated file" in str(error) else f"HDF5 says {error}"
        raise CacheCorrupt(
            f"{path} is not a readable HDF5 file: {reason}. Create it again with probekit cache-activations "
            "--overwrite."
        ) from error


def is_cache_file(path: Path) -> bool:
    """Whether a file begins like a cache, complete or not: HDF5, with the name of the format in the first megabyte."""
    try:
        with path.open("rb") as file:
            start = file.read(1 << 20)
    except OSError:
        return False
    return start.startswith(b"\x89HDF\r\n\x1a\n") and FORMAT.encode() in start


def _is_begun(path: Path) -> bool:
    """Whether a file is the beginning of a cache, whose writer may have been killed before it wrote anything."""
    if is_cache_file(path):
        return True
    with path.open("rb") as file:
        if file.read(8) != b"\x89HDF\r\n\x1a\n":
            return False
    try:
        with h5py.File(path, "r") as f:
            return not len(f) and not len(f.attrs)
    except OSError:  # truncated
        return True


CACHE_FILE = FileKind("an activation cache", is_cache_file)
BEGUN_FILE = FileKind("the beginning of an activation cache", _is_begun)


def digest_structure(file: Path | int, where: Mapping[str, Extent], *, filled: bool = True) -> int:
    """xxh3 of /blocks (except for this digest) and of every byte outside contiguous datasets.

    Parameters
    ----------
    file : Path or int
        Path or descriptor of the file.
    filled : bool, default True
        Whether to include the digests of vectors in /blocks, as in a finished file.
    """
    if isinstance(file, Path):
        with file.open("rb") as stream:
            return digest_structure(stream.fileno(), where, filled=filled)
    table = where["/blocks"].read(file)
    table["xxh3"][-1] = 0
    if not filled:
        table["xxh3"][[name.startswith((b"/pooled/", b"/tokens/")) for name in table["dataset"]]] = 0
    state, at = xxhash.xxh3_64(table.tobytes()), 0
    size = os.fstat(file).st_size
    for start, stop in [*sorted({(e.offset, e.offset + e.nbytes) for e in where.values()}), (size, 0)]:
        while at < start and (chunk := os.pread(file, min(start - at, 1 << 22), at)):
            state.update(chunk)
            at += len(chunk)
        at = max(at, stop)
    return state.intdigest()


def decode(bits: np.ndarray) -> np.ndarray:
    """float32 from bfloat16 values stored as uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
