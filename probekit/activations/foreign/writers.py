"""The formats that a cache is exported to: each writes vectors as they come, a few rows of every layer at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probekit.errors import UsageError


class Format(StrEnum):
    """What ``probekit export`` writes."""

    SAFETENSORS = "safetensors"
    ZARR = "zarr"
    NPY = "npy"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Table:
    """Vectors with the same rows.

    Attributes
    ----------
    name : str
        "examples" or "tokens".
    rows : int
        The number of rows.
    step : int
        How many are written at a time.
    widths : mapping of str to int
        The width of each array, by its name.
    dtype : str
        float32, float16, or bfloat16 (given as uint16).
    about : mapping of str to str
        What a file says of itself.
    """

    name: str
    rows: int
    step: int
    widths: Mapping[str, int]
    dtype: str
    about: Mapping[str, str]


class VectorWriter(Protocol):
    """Writes the rows of a table."""

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Write ``rows``, (k, width) of each array, which begin at row ``start``."""

    def close(self) -> None:
        """Finish the files."""


def opened_writer(to: Format, folder: Path, table: Table) -> VectorWriter | None:
    """The writer of a table; None for Parquet, where vectors are columns beside the others."""
    if to is Format.SAFETENSORS:
        return _Safetensors(folder, table)
    if to is Format.ZARR:
        return _Zarr(folder, table)
    return _Npy(folder, table) if to is Format.NPY else None


def file_name(name: str) -> str:
    """The name of an array as part of a file name."""
    return name.replace("/", ".")


class _Npy:
    """One file for each array, which numpy can map."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.stack = ExitStack()
        self.files = {}
        for name, width in table.widths.items():
            file = self.stack.enter_context((folder / f"{file_name(name)}.npy").open("xb"))
            header = {"descr": np.dtype(table.dtype).str, "fortran_order": False, "shape": (table.rows, width)}
            np.lib.format.write_array_header_1_0(file, header)
            self.files[name] = file

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        for name, part in rows.items():
            self.files[name].write(np.ascontiguousarray(part).data)

    def close(self) -> None:
        self.stack.close()


TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
SHARD = 1 << 30
"""About how many bytes a safetensors file has."""


class _Safetensors:
    """Files with some of the rows of every array: a header in JSON that says where each is, and their bytes."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.folder, self.table = folder, table
        self.size = 2 if table.dtype != "float32" else 4
        row = sum(table.widths.values()) * self.size
        self.each = max(1, SHARD // (row * table.step)) * table.step
        self.count = max(1, -(-table.rows // self.each))
        self.file: Any = None
        self.offsets: dict[str, int] = {}
        if not table.rows:
            self._begin(0)

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        if start % self.each == 0:
            self.close()
            self._begin(start)
        for name, part in rows.items():
            self.file.seek(self.offsets[name] + (start % self.each) * self.table.widths[name] * self.size)
            self.file.write(np.ascontiguousarray(part).data)

    def _begin(self, start: int) -> None:
        rows, at = min(self.each, self.table.rows - start), 0
        header: dict[str, Any] = {}
        for name, width in self.table.widths.items():
            stop = at + rows * width * self.size
            dtype = TYPES[self.table.dtype]
            header[name] = {"dtype": dtype, "shape": [rows, width], "data_offsets": [at, stop]}
            at = stop
        about = {**self.table.about, "first_row": str(start)}
        text = json.dumps({"__metadata__": about, **header}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        number = start // self.each + 1
        name = f"{self.table.name}-{number:05d}-of-{self.count:05d}.safetensors"
        self.file = (self.folder / name).open("xb")
        self.file.write(len(text).to_bytes(8, "little") + text)
        self.offsets = {key: 8 + len(text) + part["data_offsets"][0] for key, part in header.items()}
        self.file.truncate(8 + len(text) + at)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


INNER = 32
"""Chunks in a shard of a zarr array."""


class _Zarr:
    """A group with an array for each layer, whose shards are the rows that are written at a time."""

    def __init__(self, folder: Path, table: Table) -> None:
        try:
            import zarr
        except ImportError:
            raise UsageError("--to zarr needs zarr 3: pip install 'probekit-lm[zarr]'.") from None
        if int(zarr.__version__.partition(".")[0]) < 3:
            raise UsageError(f"--to zarr needs zarr 3; {zarr.__version__} is installed: pip install 'zarr>=3'.")
        group = zarr.open_group(folder / "activations.zarr", mode="a", zarr_format=3)
        group.attrs.update(dict(table.about))
        chunk = max(1, -(-table.step // INNER))
        self.arrays = {
            name: group.create_array(
                name,
                shape=(table.rows, width),
                chunks=(chunk, width),
                shards=(-(-table.step // chunk) * chunk, width),
                dtype=table.dtype,
            )
            for name, width in table.widths.items()
        }

    def write(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        for name, part in rows.items():
            self.arrays[name][start : start + len(part)] = part

    def close(self) -> None:
        pass


class Columns:
    """A Parquet file of single values and, for Parquet, of vectors as lists of fixed size."""

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self.path, self.about = path, dict(about)
        self.writer: Any = None

    def write(self, values: Mapping[str, Any], vectors: Mapping[str, np.ndarray]) -> None:
        """Write rows as one row group."""
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        columns = {name: pa.array(part) for name, part in values.items()}
        for name, part in vectors.items():
            flat = pa.array(np.ascontiguousarray(part).reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, part.shape[1])
        table = pa.table(columns)
        if self.writer is None:
            schema = table.schema.with_metadata(self.about)
            self.writer = ParquetWriter(self.path, schema, compression="zstd")
        self.writer.write_table(table.cast(self.writer.schema), row_group_size=max(1, len(table)))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def joined(streams: Mapping[str, Iterable[np.ndarray]]) -> Iterable[dict[str, np.ndarray]]:
    """Parts of several streams side by side."""
    names: Sequence[str] = tuple(streams)
    return (dict(zip(names, parts, strict=True)) for parts in zip(*streams.values(), strict=True))
