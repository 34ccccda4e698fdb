"""Arrays in ``.npz`` files: a part is read from its place when it is asked for, and nothing is unpickled.

A member that is not compressed is mapped in the archive; a compressed one is unpacked once, to a temporary file. Both
are read once as a whole before, and compared with the checksum of the archive.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any
from weakref import finalize
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np

from probekit.activations.foreign.files import Named, texts_in
from probekit.errors import DataError, UsageError, reading
from probekit.files import in_words

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class _Member:
    """An array as its header describes it, after ``header`` bytes."""

    info: ZipInfo
    shape: tuple[int, ...]
    order: Any
    dtype: np.dtype
    header: int


class _Npz(Named):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.members: dict[str, _Member] = {}
        self._places: dict[str, tuple[Any, int]] = {}
        with reading(path, "npz"), ZipFile(path) as archive:
            for info in archive.infolist():
                self._add(info.filename.removesuffix(".npy"), _member(archive, info))
        if "texts" in self.shapes:
            self.texts = texts_in(path, self._part("texts").tolist())
            del self.shapes["texts"]

    def _add(self, name: str, member: _Member) -> None:
        if name in self.members:
            raise DataError(f"holds {name} twice; leave one out.", file=self.path)
        if member.dtype.hasobject:
            raise DataError(
                f"{name} holds Python objects, which are pickled and are not opened. Save arrays of numbers (texts as "
                "np.array(texts, dtype=str)).",
                file=self.path,
            )
        size = member.header + prod(member.shape) * member.dtype.itemsize
        if size != member.info.file_size:
            what = f"{name} is {member.dtype} {member.shape}, which takes {size:,} bytes"
            raise DataError(f"{what}, but has {member.info.file_size:,}. Is the file complete?", file=self.path)
        self.members[name] = member
        self.shapes[name], self.dtypes[name] = member.shape, member.dtype.name

    def read(self, name: str, *at: Any) -> torch.Tensor:
        import torch

        if (kind := self.members[name].dtype).kind not in "biuf":
            raise DataError(f"{name} is {kind}; wanted an array of numbers.", file=self.path)
        part = self._part(name, *at)
        return torch.from_numpy(part.astype(part.dtype.newbyteorder("="), copy=False))

    def _part(self, name: str, *at: Any) -> np.ndarray:
        """A copy of a part of an array; what is mapped for it is let go."""
        member = self.members[name]
        if not prod(member.shape):
            return np.array(np.empty(member.shape, member.dtype)[at])
        with reading(self.path, "npz"):
            if name not in self._places:
                self._places[name] = self._place(name, member.info)
            file, start = self._places[name]
            where = {"offset": start + member.header, "shape": member.shape, "order": member.order}
            return np.array(np.memmap(file, member.dtype, "r", **where)[at])

    def _place(self, name: str, info: ZipInfo) -> tuple[Any, int]:
        """The file in which a member lies as it is, and where; its checksum was compared."""
        with ZipFile(self.path) as archive, archive.open(info) as packed:
            if info.compress_type == ZIP_STORED:
                while packed.read(1 << 20):
                    pass
                return self.path, _start(self.path, info)
            free = shutil.disk_usage(gettempdir()).free
            if free < info.file_size:
                raise UsageError(
                    f"{self.path}: {name} is compressed, and unpacked it takes {in_words(info.file_size)}; "
                    f"{gettempdir()} has {in_words(free)}. Set TMPDIR to a folder with more, or write it with "
                    "numpy.savez, which does not compress."
                )
            file = TemporaryFile()  # noqa: SIM115  open as long as this object, and nameless
            finalize(self, file.close)
            shutil.copyfileobj(packed, file, 1 << 20)
            file.flush()
            return file, 0


def _member(archive: ZipFile, info: ZipInfo) -> _Member:
    with archive.open(info) as file:
        try:
            version = np.lib.format.read_magic(file)
        except ValueError as error:
            raise DataError(
                f"{info.filename} in it is no numpy array. Write arrays with numpy.savez; a file of torch.save holds a "
                "pickle, which can run code and is not opened.",
                file=archive.filename,
            ) from error
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        return _Member(info, shape, "F" if fortran else "C", dtype, file.tell())


def _start(path: Path, info: ZipInfo) -> int:
    """Where the bytes of a member begin: after its local header, a name and extra fields, whose lengths it says."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        head = file.read(30)
    return info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def npz(path: Path) -> Named:
    """The arrays of an npz file; texts are its array of strings ``texts``."""
    return _Npz(path)
