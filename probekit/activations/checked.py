"""The file of a finished cache, opened for reading; no data are used before their digests are compared.

A digest covers every byte: those of a dataset are in the rows of ``/blocks`` with its name, that of all other bytes
(HDF5's structure, the attributes, ``/blocks``) in the last row. The structure is compared when the file is opened,
before any text of variable length is read (a damaged one can send HDF5 into an endless loop); a dataset is compared
whenever it is read.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from probekit.activations.hdf5 import FORMAT, Extent, digest_structure, extents, open_cache_file, xxh3
from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch, DataError, UsageError
from probekit.hdf5 import DAMAGE, own_dataset

AGAIN = "create the cache again with probekit cache-activations --overwrite"
STRUCTURE = "the file's structure or attributes were changed after it was written"
IN_MEMORY = 1 << 30
"""Largest number of bytes of a dataset that is read into memory; larger ones are mapped."""


def first_occurrence(row_to_unique: np.ndarray) -> np.ndarray:
    """Bool (slots,): whether no earlier slot has the same unique sequence."""
    first = np.zeros(len(row_to_unique), dtype=bool)
    first[np.unique(row_to_unique, return_index=True)[1]] = True
    return first


class CheckedFile:
    """The file of a finished cache.

    Attributes
    ----------
    path : Path
        Its path when it was opened; another file may have this name by now.
    f : h5py.File
        The HDF5 file; use it only after the structure is compared.
    sentences : int
        Vectors per row of a pooled dataset; the caller sets it and ``links`` after reading the spec.
    links : mapping
        Further names of datasets.
    size, digest : int
        Bytes of the file, and the digest of its structure, which with the digests of all datasets covers every byte.

    Raises
    ------
    CacheError
        If the file does not exist, is not a cache, or is unfinished or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.f = open_cache_file(path)
        try:
            self.fd = os.dup(
                self.f.id.get_vfd_handle()
            )  # a duplicate, since arrays may be read after the file is closed
        except BaseException:
            self.f.close()
            raise
        self.sentences = 1
        self.links: Mapping[str, str] = {}
        self._compared: set[str] = set()
        self._own: np.ndarray | None = None
        self._mapped: mmap.mmap | None = None
        try:
            self._check_structure()
        except BaseException:
            self.close()
            raise

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of ``/``."""
        return self.f.attrs

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return self.size

    def __contains__(self, name: str) -> bool:
        return name in self.f

    def names(self, group: str) -> list[str]:
        """The names in a group."""
        return list(self.f[group])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a dataset."""
        return tuple(self.dataset(name).shape)

    def encoded(self, name: str) -> bool:
        """Whether a dataset holds bfloat16 as uint16."""
        return self.dataset(name).attrs.get("encoding") == "bfloat16"

    def close(self) -> None:
        """Close the file; arrays that were read or mapped stay valid."""
        self.f.close()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # os may be gone when Python exits
        if hasattr(self, "fd"):
            close(self.fd)

    def _check_structure(self) -> None:
        start = os.pread(self.fd, 1 << 20, 0)
        found = re.search(rb"probekit-activations/\d+", start)
        if found is None or found[0].decode() != FORMAT:
            found_format = "not a probekit cache" if found is None else f"of format {found[0].decode()!r}"
            raise CacheMismatch(f"{self.path} is {found_format}; this version reads {FORMAT!r}.")
        try:
            where = extents(self.f)
            table = where["/blocks"].read(self.fd)
            unfinished = not table["xxh3"][-1] and not self.f.attrs["complete"]
            same = digest_structure(self.fd, where) == table["xxh3"][-1]
        except DAMAGE as error:
            raise CacheCorrupt(f"{self.path}: the structure cannot be read ({error}); {AGAIN}.") from error
        if unfinished:
            raise CacheIncomplete(
                f"{self.path} is unfinished; run the same probekit cache-activations command again to finish it."
            )
        if not same and (other := set(re.findall(rb"probekit-activations/\d+", start)) - {FORMAT.encode()}):
            raise CacheMismatch(f"{self.path} is of format {min(other).decode()!r}; this version reads {FORMAT!r}.")
        if not same:
            raise CacheCorrupt(f"{self.path}: {STRUCTURE}; {AGAIN}.")
        self.size, self.digest = os.fstat(self.fd).st_size, int(table["xxh3"][-1])
        self._table: dict[str, list[tuple[int, int, int]]] = {}
        for name, start, stop, digest in table.tolist():
            self._table.setdefault(name.decode("utf-8", "replace"), []).append((start, stop, digest))

    def check_size(self) -> None:
        """Raise CacheCorrupt if the file was truncated after it was opened."""
        if os.fstat(self.fd).st_size < self.size:
            raise CacheCorrupt(f"{self.path} was truncated while it was read; {AGAIN}.")

    def dataset(self, name: str) -> h5py.Dataset:
        """A dataset in this file: links to other files are not followed, at any depth."""
        if not self.f:
            raise UsageError(f"{self.path} is closed; open it again.")
        try:
            ds = own_dataset(self.f, name)
        except DataError as error:
            raise CacheCorrupt(f"{self.path}: {error}") from error
        if ds is None:
            raise CacheCorrupt(f"{self.path}: {name} is not a dataset in this file; run probekit verify.")
        if ds.chunks is not None:
            import hdf5plugin  # noqa: F401  registers zstd
        return ds

    def values(self, name: str, *, mapped: bool = False) -> np.ndarray:
        """A dataset as a read-only array, compared with its digests; a memory map if ``mapped`` or if it is large.

        Indexing a memory map first checks the file's size, since access to a truncated file would kill the process.
        Callers that access its memory in another way call :meth:`check_size`.
        """
        ds = self.dataset(name)
        if not ds.size:
            return ds[...]
        if ds.chunks is None and (mapped or ds.nbytes > IN_MEMORY):
            self.compare(name)
            self.check_size()
            if self._mapped is None:
                self._mapped = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
            where = np.ndarray(ds.shape, ds.dtype, buffer=self._mapped, offset=ds.id.get_offset()).view(_Mapped)
            where.check = self.check_size
            return where
        array = self._read(name, ds)
        vectors = self._vectors(name, array)
        self._compare_blocks(name, lambda start, stop: vectors[start:stop])
        if name.startswith("/pooled/"):
            self._compare_repeated(name, lambda at: vectors[at])
        array.flags.writeable = False
        return array

    def rows(self, name: str) -> Rows:
        """A dataset that is compared with its digests now, and whose rows are read on access."""
        self.compare(name)
        return Rows(self, name, self.dataset(name))

    def stream(self, name: str, step: int) -> Iterator[np.ndarray]:
        """The rows of a dataset in order, ``step`` at a time, as stored (bfloat16: uint16).

        What was read is compared with the digests meanwhile, so an error may come after rows that are wrong: do not
        keep what was made of them.
        """
        ds = self.dataset(name)
        source, pooled = Rows(self, name, ds), name.startswith("/pooled/")
        running = _Running(self._table.get(self.links.get(name, name), ()), self.own() if pooled else None)
        for start in range(0, len(source), step):
            try:
                rows = source[start : min(start + step, len(source))]
            except DAMAGE as error:
                raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); {AGAIN}.") from error
            if problem := running.feed(self._vectors(name, rows)):
                raise CacheCorrupt(f"{self.path}: {name}, {problem}; {AGAIN}.")
            yield rows
        if pooled and ds.size:
            self._compare_repeated(name, lambda slots: self._slots_at(name, source, slots))

    def compare(self, name: str) -> None:
        """Compare a dataset with its digests, once, in small parts."""
        if name in self._compared:
            return
        ds = self.dataset(name)
        k = self.sentences if name.startswith("/pooled/") else 1
        source = Rows(self, name, ds)

        def read(start: int, stop: int) -> np.ndarray:  # vectors, k per row
            first = start // k
            return self._vectors(name, source[first : -(-stop // k)])[start - first * k : stop - first * k]

        if ds.size:
            self._compare_blocks(name, read)
            if name.startswith("/pooled/"):
                self._compare_repeated(name, lambda slots: self._slots_at(name, source, slots))
        self._compared.add(name)

    def _slots_at(self, name: str, source: Rows, slots: np.ndarray) -> np.ndarray:
        """Vectors of a pooled dataset by slot; pairs that were read separately have two per row."""
        k = self.sentences
        unique, back = np.unique(slots // k, return_inverse=True)
        found: np.ndarray = source[unique].reshape(len(unique), k, -1)[back, slots % k]
        return found

    def _vectors(self, name: str, array: np.ndarray) -> np.ndarray:
        """Rows as vectors; pairs that were read separately have several per row."""
        apart = name.startswith("/pooled/") and self.sentences > 1
        return array.reshape(len(array) * self.sentences, -1) if apart else array

    def _read(self, name: str, ds: h5py.Dataset) -> np.ndarray:
        """A whole dataset; contiguous ones are read without HDF5, which reads zeros past the end of a file."""
        if ds.chunks is None:
            return Extent(ds.id.get_offset(), ds.shape, ds.dtype).read(self.fd, lambda: self._truncated(name))
        try:
            return np.asarray(ds[...])
        except DAMAGE as error:
            raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); {AGAIN}.") from error

    def _truncated(self, name: str) -> CacheCorrupt:
        return CacheCorrupt(f"{self.path} was truncated while {name} was read; {AGAIN}.")

    def own(self) -> np.ndarray:
        """Bool (slots,): which slots of pooled vectors do not repeat an earlier text."""
        if self._own is None:
            self._slots = self.values("/index/row_to_unique").reshape(-1)
            self._own = first_occurrence(self._slots)
        return self._own

    def _compare_blocks(self, name: str, read: Callable[[int, int], np.ndarray]) -> None:
        pooled = name.startswith("/pooled/")
        first = self.own() if pooled else None
        blocks = self._table.get(self.links.get(name, name))
        if blocks is None:
            raise CacheCorrupt(f"{self.path}: {name} has no digest in /blocks; {AGAIN}.")
        for start, stop, digest in blocks:
            try:
                data = read(start, stop)
            except DAMAGE as error:
                raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); {AGAIN}.") from error
            if first is not None and not first[start:stop].all():
                data = data[first[start:stop]]
            if xxh3(data) != digest:
                raise CacheCorrupt(
                    f"{self.path}: {name}, rows {start} to {stop - 1}: the bytes were changed after they were written; "
                    f"{AGAIN}."
                )

    def _compare_repeated(self, name: str, at: Callable[[np.ndarray], np.ndarray]) -> None:
        """Raise CacheCorrupt if the vector of a repeated text differs from that of its first occurrence."""
        again = np.flatnonzero(~self.own())
        if not len(again):
            return
        source = np.empty(int(self._slots.max()) + 1, dtype=np.int64)
        source[self._slots[self.own()]] = np.flatnonzero(self.own())
        for part in np.array_split(again, len(again) // 4096 + 1):
            wrong = (at(part).view(np.uint8) != at(source[self._slots[part]]).view(np.uint8)).any(1)
            if wrong.any():
                row = part[wrong][0]
                raise CacheCorrupt(f"{self.path}: {name}, row {row} differs from the row of the same text; {AGAIN}.")


class _Running:
    """Compares vectors with the digests of their blocks as they come, in order."""

    def __init__(self, blocks: Sequence[tuple[int, int, int]], own: np.ndarray | None) -> None:
        self.blocks, self.own = sorted(b for b in blocks if b[0] < b[1]), own
        self.at, self.block, self.state = 0, 0, xxhash.xxh3_64()

    def feed(self, vectors: np.ndarray) -> str:
        """The next vectors; returns what is wrong, or ""."""
        done = 0
        while done < len(vectors):
            if self.block == len(self.blocks) or self.at < self.blocks[self.block][0]:
                return f"vector {self.at} has no digest in /blocks"
            start, stop, digest = self.blocks[self.block]
            part = vectors[done : done + stop - self.at]
            own = slice(None) if self.own is None else self.own[self.at : self.at + len(part)]
            if len(kept := part[own]):
                self.state.update(np.ascontiguousarray(kept).data)
            done, self.at = done + len(part), self.at + len(part)
            if self.at == stop:
                if self.state.intdigest() != digest:
                    return f"rows {start} to {stop - 1}: the bytes were changed after they were written"
                self.block, self.state = self.block + 1, xxhash.xxh3_64()
        return ""


class _Mapped(np.ndarray):
    """A mapped dataset; checks the file before rows are accessed."""

    check: Callable[[], None] | None = None

    def __getitem__(self, at: Any) -> Any:
        if self.check is not None:
            self.check()
        return self.view(np.ndarray)[at]

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """Like numpy's; ``np.take`` calls it, too."""
        if self.check is not None:
            self.check()
        return self.view(np.ndarray).take(indices, axis, out, mode)


class Rows:
    """Rows of a dataset, read on access, as stored (bfloat16: uint16); nothing is mapped."""

    def __init__(self, file: CheckedFile, name: str, ds: h5py.Dataset) -> None:
        self.file, self.name, self.shape, self.dtype = file, name, ds.shape, ds.dtype
        self._ds = None if ds.chunks is None else ds
        self._offset = ds.id.get_offset() or 0
        self._row = int(np.prod(ds.shape[1:], dtype=np.int64)) * ds.dtype.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, at: slice | np.ndarray) -> np.ndarray:
        """A slice of rows, or rows with increasing indices."""
        if isinstance(at, slice):
            start, stop, _ = at.indices(len(self)) if self.shape else (0, 1, 1)
            out = np.empty((max(0, stop - start), *self.shape[1:]) if self.shape else (), self.dtype)
            self.read(start, stop, out)
            return out
        if self._ds is not None:
            return np.asarray(self._ds[at])
        out = np.empty((len(at), *self.shape[1:]), self.dtype)
        for i, row in enumerate(at.tolist()):
            self.read(row, row + 1, out[i : i + 1])
        return out

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Rows start … stop - 1 into a contiguous array."""
        if not out.size:
            return
        if self._ds is not None:
            out[...] = self._ds[start:stop]
            return
        _fill(self.file.fd, out, self._offset + start * self._row, lambda: self.file._truncated(self.name))


def _fill(fd: int, out: np.ndarray, offset: int, cut: Callable[[], Exception]) -> None:
    Extent(offset, out.shape, out.dtype).read(fd, cut, out)
