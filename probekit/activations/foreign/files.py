"""Named arrays in files, as ``.safetensors`` and ``.npz`` hold them: shapes first, parts when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, reading
from probekit.files import parse_json

if TYPE_CHECKING:
    import torch

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
        Its precision: one of ``DTYPES.values()`` if it holds real numbers, else as the file calls it.
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
                self.dtypes[name] = DTYPES.get(part.get_dtype(), part.get_dtype())
            given = (file.metadata() or {}).get("texts")
            with reading(path, "JSON, which the texts in its metadata must be"):
                self.texts = texts_in(path, parse_json(given)) if given else ()

    def read(self, name: str, *at: Any) -> torch.Tensor:
        with opened(self.path) as file:
            part: torch.Tensor = file.get_slice(name)[at] if at else file.get_tensor(name)
            return part


def texts_in(path: Path, value: Any) -> tuple[str, ...]:
    """The texts of a file, which must be a list of strings."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise DataError(f"its texts are {json.dumps(value, default=str):.60}; wanted a list of strings.", file=path)
    return tuple(value)


def safetensors(path: Path) -> Named:
    """The arrays of a safetensors file; texts are the JSON list ``texts`` of its metadata."""
    return _Safetensors(path)
