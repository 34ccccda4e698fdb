"""The file of a finished cache, open for reading: nothing of it is used before it is compared with its digests.

Every byte is under a digest: those of a dataset under the rows of ``/blocks`` with its name, all others (HDF5's own
structure, the attributes, ``/blocks``) under the last row. The structure is compared when the file is opened, before
any text of variable length is read, whose damage HDF5 may follow for ever; a dataset whenever it is read.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from probekit.activations.hdf5 import DAMAGE, FORMAT, Extent, digest_structure, extents, open_cache_file, xxh3
from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch, DataError, UsageError
from probekit.hdf5 import own_dataset

__all__ = ["STRUCTURE", "CheckedFile", "Rows", "first_occurrence"]

AGAIN = "make the cache again with probekit cache-activations --overwrite"
STRUCTURE = "the file's structure or attributes were changed after it was written"
IN_MEMORY = 1 << 30
"""Bytes up to which a dataset is read into memory; a larger one is mapped."""


def first_occurrence(row_to_unique: np.ndarray) -> np.ndarray:
    """Bool (slots,): whether no earlier slot has the same unique sequence."""
    own = np.zeros(len(row_to_unique), dtype=bool)
    own[np.unique(row_to_unique, return_index=True)[1]] = True
    return own


class CheckedFile:
    """A cache's file.

    Attributes
    ----------
    path : Path
        Where it was when it was opened; another may have its name since.
    f : h5py.File
        For the attributes, once the structure is compared.
    sentences : int
        Vectors in a row of pooled ones; set by who has read the spec, as is ``links``.
    links : mapping
        Further names of datasets.

    Raises
    ------
    CacheError
        There is no such file, or it is none of ours, unfinished or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.f = open_cache_file(path)
        try:
            self.fd = os.dup(self.f.id.get_vfd_handle())  # of its own: arrays may be read after the file is closed
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

    def close(self) -> None:
        """Close the file; what was read or mapped of it stays valid."""
        self.f.close()

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def _check_structure(self) -> None:
        start = os.pread(self.fd, 1 << 20, 0)
        found = re.search(rb"probekit-activations/\d+", start)
        if found is None or found[0].decode() != FORMAT:
            what = "no probekit cache" if found is None else f"of format {found[0].decode()!r}"
            raise CacheMismatch(f"{self.path} is {what}; this version reads {FORMAT!r}.")
        try:
            where = extents(self.f)
            table = where["/blocks"].read(self.fd)
            unfinished = not table["xxh3"][-1] and not self.f.attrs["complete"]
            same = digest_structure(self.fd, where) == table["xxh3"][-1]
        except DAMAGE as error:
            raise CacheCorrupt(f"{self.path}: its structure cannot be read ({error}); {AGAIN}.") from error
        if unfinished:
            raise CacheIncomplete(f"{self.path} was never finished; run its probekit cache-activations command again.")
        if not same and (other := set(re.findall(rb"probekit-activations/\d+", start)) - {FORMAT.encode()}):
            raise CacheMismatch(f"{self.path} is of format {min(other).decode()!r}; this version reads {FORMAT!r}.")
        if not same:
            raise CacheCorrupt(f"{self.path}: {STRUCTURE}; {AGAIN}.")
        self.size = os.fstat(self.fd).st_size
        self._table: dict[str, list[tuple[int, int, int]]] = {}
        for name, start, stop, digest in table.tolist():
            self._table.setdefault(name.decode("utf-8", "replace"), []).append((start, stop, digest))

    def check_size(self) -> None:
        """Raise CacheCorrupt where the file was cut short since it was opened."""
        if os.fstat(self.fd).st_size < self.size:
            raise CacheCorrupt(f"{self.path} was cut short while it was read; {AGAIN}.")

    def dataset(self, name: str) -> h5py.Dataset:
        """A dataset of this very file: links out of it are not followed, at any depth."""
        if not self.f:
            raise UsageError(f"{self.path} was closed; open it again.")
        try:
            ds = own_dataset(self.f, name)
        except DataError as error:
            raise CacheCorrupt(f"{self.path}: {error}") from error
        if ds is None:
            raise CacheCorrupt(f"{self.path}: {name} is no dataset of this file; see probekit verify.")
        if ds.chunks is not None:
            import hdf5plugin  # noqa: F401  registers zstd
        return ds

    def values(self, name: str, *, mapped: bool = False) -> np.ndarray:
        """A dataset as a read-only array, compared with its digests; mapped where asked for, or where it is large.

        Before rows of what is mapped are taken the file is looked at: one that was cut short is told, where reading
        would end the process. Who takes its memory in another way calls :meth:`check_size`.
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
        """A dataset that is compared with its digests now, and whose rows are read when they are asked for."""
        self.compare(name)
        return Rows(self, name, self.dataset(name))

    def compare(self, name: str) -> None:
        """Compare a dataset with its digests, once; little of it is in memory at a time."""
        if name in self._compared:
            return
        ds = self.dataset(name)
        k = self.sentences if name.startswith("/pooled/") else 1
        source = Rows(self, name, ds)

        def read(start: int, stop: int) -> np.ndarray:  # of vectors, of which k are in a row
            first = start // k
            return self._vectors(name, source[first : -(-stop // k)])[start - first * k : stop - first * k]

        def at(slots: np.ndarray) -> np.ndarray:
            unique, back = np.unique(slots // k, return_inverse=True)
            return source[unique].reshape(len(unique), k, -1)[back, slots % k]

        if ds.size:
            self._compare_blocks(name, read)
            if name.startswith("/pooled/"):
                self._compare_repeated(name, at)
        self._compared.add(name)

    def _vectors(self, name: str, array: np.ndarray) -> np.ndarray:
        """Rows as vectors, of which several stand in one row of pairs that were read apart."""
        apart = name.startswith("/pooled/") and self.sentences > 1
        return array.reshape(len(array) * self.sentences, -1) if apart else array

    def _read(self, name: str, ds: h5py.Dataset) -> np.ndarray:
        """All of a dataset; a contiguous one past HDF5, which takes what a file lacks for zeros."""
        if ds.chunks is None:
            return Extent(ds.id.get_offset(), ds.shape, ds.dtype).read(self.fd, lambda: self._cut(name))
        try:
            return np.asarray(ds[...])
        except DAMAGE as error:
            raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); {AGAIN}.") from error

    def _cut(self, name: str) -> CacheCorrupt:
        return CacheCorrupt(f"{self.path} was cut short while {name} was read; {AGAIN}.")

    def own(self) -> np.ndarray:
        """Bool (slots,): which slots of pooled vectors are no repetition of an earlier text's."""
        if self._own is None:
            self._slots = self.values("/index/row_to_unique").reshape(-1)
            self._own = first_occurrence(self._slots)
        return self._own

    def _compare_blocks(self, name: str, read: Callable[[int, int], np.ndarray]) -> None:
        pooled = name.startswith("/pooled/")
        own = self.own() if pooled else None
        blocks = self._table.get(self.links.get(name, name))
        if blocks is None:
            raise CacheCorrupt(f"{self.path}: {name} has no digest in /blocks; {AGAIN}.")
        for start, stop, digest in blocks:
            try:
                data = read(start, stop)
            except DAMAGE as error:
                raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); {AGAIN}.") from error
            if own is not None and not own[start:stop].all():
                data = data[own[start:stop]]
            if xxh3(data) != digest:
                raise CacheCorrupt(
                    f"{self.path}: {name}, rows {start} to {stop - 1}: the bytes are not those that were written; "
                    f"{AGAIN}."
                )

    def _compare_repeated(self, name: str, at: Callable[[np.ndarray], np.ndarray]) -> None:
        """Raise CacheCorrupt where the vector of a repeated text is not that of its first occurrence."""
        again = np.flatnonzero(~self.own())
        if not len(again):
            return
        source = np.empty(int(self._slots.max()) + 1, dtype=np.int64)
        source[self._slots[self.own()]] = np.flatnonzero(self.own())
        for some in np.array_split(again, len(again) // 4096 + 1):
            wrong = (at(some).view(np.uint8) != at(source[self._slots[some]]).view(np.uint8)).any(1)
            if wrong.any():
                row = some[wrong][0]
                raise CacheCorrupt(f"{self.path}: {name}, row {row} differs from the row of the same text; {AGAIN}.")


class _Mapped(np.ndarray):
    """A mapped dataset, which is looked at before its rows are taken."""

    check: Callable[[], None] | None = None

    def __getitem__(self, at: Any) -> Any:
        if self.check is not None:
            self.check()
        return self.view(np.ndarray)[at]

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """As numpy's; ``np.take`` comes here, too."""
        if self.check is not None:
            self.check()
        return self.view(np.ndarray).take(indices, axis, out, mode)


class Rows:
    """Rows of a dataset that are read when they are asked for, as stored (bfloat16: uint16); nothing is mapped."""

    def __init__(self, file: CheckedFile, name: str, ds: h5py.Dataset) -> None:
        self.file, self.name, self.shape, self.dtype = file, name, ds.shape, ds.dtype
        self._ds = None if ds.chunks is None else ds
        self._offset = ds.id.get_offset() or 0
        self._row = int(np.prod(ds.shape[1:], dtype=np.int64)) * ds.dtype.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, at: slice | np.ndarray) -> np.ndarray:
        """Some rows in a row, or those of increasing numbers."""
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
        _fill(self.file.fd, out, self._offset + start * self._row, lambda: self.file._cut(self.name))


def _fill(fd: int, out: np.ndarray, offset: int, cut: Callable[[], Exception]) -> None:
    Extent(offset, out.shape, out.dtype).read(fd, cut, out)
