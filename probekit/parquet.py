"""Parquet files from untrusted sources: no more is read than the file can hold, and errors name the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, reading
from probekit.files import MARK, is_sealed_data, parse_json, seal

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

FEW, DENSEST = 1 << 20, 100
"""Rows that any file may have, and maximum rows per byte: repeated numbers take almost no space."""


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[ParquetFile]:
    """Open a Parquet file; any error in the block because of a damaged file becomes a DataError that names it.

    Parameters
    ----------
    path : Path
        The file.
    **options
        Options for ``pyarrow.parquet.ParquetFile``.

    Raises
    ------
    DataError
        If the file is damaged or not Parquet, or declares more rows than it can hold.
    """
    from pyarrow.parquet import ParquetFile

    with reading(path, "Parquet"), ParquetFile(path, **options) as file:
        rows, most = file.metadata.num_rows, max(FEW, DENSEST * path.stat().st_size)
        parts = sum(max(0, file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups))
        if not 0 <= rows <= most or parts > most:
            raise DataError(f"declares {max(rows, parts)} rows, more than a file of its size can hold.", file=path)
        yield file


def with_digest(about: Mapping[str, Any]) -> bytes:
    """The metadata of a file, which no checksum of a page covers, with a digest of themselves."""
    return seal(json.dumps({**about, "probekit": MARK}).encode())


def about_in(file: ParquetFile, key: bytes, path: Path) -> dict[str, Any]:
    """What :func:`with_digest` wrote, empty without; raises DataError if it was changed. Older files have no digest."""
    text = (file.schema_arrow.metadata or {}).get(key, b"{}")
    about = parse_json(text)
    if not isinstance(about, dict) or (b"made by probekit" in text and not is_sealed_data(text)):
        raise DataError("its metadata were changed or are damaged.", file=path)
    return about
