"""Named arrays in ``.safetensors`` and ``.npz`` files: shapes first, parts when asked for. Nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

from probekit.errors import DataError, reading
from probekit.files import parse_json

if TYPE_CHECKING:
    import torch

__all__ = ["DTYPES", "Named", "npz", "opened", "safetensors"]

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Precisions of real numbers in safetensors."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file; errors name it."""
    from safetensors import safe_open

    with reading(path, "safetensors"), safe_open(path, "pt") as file:
        yield file


class Named:
    """The arrays of a file.

    Attributes
    ----------
    path : Path
        The file.
    shapes : dict of str to tuple of int
        The shape of each array.
    dtypes : dict of str to str
        Its precision if it holds real numbers, else "".
    texts : tuple of str
        The texts that the file holds; () if it holds none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.texts: tuple[str, ...] = ()

    def read(self, name: str, *at: Any) -> torch.Tensor:
        """A part of an array: ``read(name, slice(None), 3)``."""
        raise NotImplementedError


class _Safetensors(Named):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with opened(path) as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                part = file.get_slice(name)
                self.shapes[name] = tuple(part.get_shape())
                self.dtypes[name] = DTYPES.get(part.get_dtype(), "")
            given = (file.metadata() or {}).get("texts")
            self.texts = _texts(path, parse_json(given)) if given else ()

    def read(self, name: str, *at: Any) -> torch.Tensor:
        with opened(self.path) as file:
            part: torch.Tensor = file.get_slice(name)[at] if at else file.get_tensor(name)
            return part


class _Npz(Named):
    """Members are whole: the last one that was read stays in memory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last: tuple[str, np.ndarray | None] = ("", None)
        with reading(path, "npz"), ZipFile(path) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                with archive.open(member) as file:
                    self.shapes[name], dtype = _header(file)
                if dtype.hasobject:
                    raise DataError(
                        f"{name} holds Python objects, which are pickled and are not opened. Save arrays of numbers "
                        "(texts as np.array(texts, dtype=str)).",
                        file=path,
                    )
                self.dtypes[name] = dtype.name if dtype.kind == "f" and dtype.itemsize <= 8 else ""
        if "texts" in self.shapes:
            self.texts = _texts(path, self._whole("texts").tolist())
            del self.shapes["texts"]

    def _whole(self, name: str) -> np.ndarray:
        if self._last[0] != name:
            with reading(self.path, "npz"), np.load(self.path, allow_pickle=False) as archive:
                self._last = name, archive[name]
        return np.asarray(self._last[1])

    def read(self, name: str, *at: Any) -> torch.Tensor:
        import torch

        part = np.array(self._whole(name)[at])
        return torch.from_numpy(part.astype(part.dtype.newbyteorder("="), copy=False))


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _texts(path: Path, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise DataError(f"its texts are {json.dumps(value, default=str):.60}; wanted a list of strings.", file=path)
    return tuple(value)


def safetensors(path: Path) -> Named:
    """The arrays of a safetensors file; texts are the JSON list ``texts`` of its metadata."""
    return _Safetensors(path)


def npz(path: Path) -> Named:
    """The arrays of an npz file; texts are its array of strings ``texts``."""
    return _Npz(path)
