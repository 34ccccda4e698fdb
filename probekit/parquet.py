"""Parquet that others may have written: no more is read than the file can hold, and what is wrong with it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, reading

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["open_parquet"]

FEW, DENSEST = 1 << 20, 100
"""Rows that any file may have, and that each byte of it may stand for: numbers that recur take next to no room."""


@contextmanager
def open_parquet(path: Path, **how: Any) -> Iterator[ParquetFile]:
    """A Parquet file; whatever a damaged one makes of what reads it in the block is a DataError that names it.

    Parameters
    ----------
    path : Path
        The file.
    **how
        As ``pyarrow.parquet.ParquetFile`` takes it.

    Raises
    ------
    DataError
        The file is damaged or no Parquet, or declares more rows than it can hold.
    """
    from pyarrow.parquet import ParquetFile

    with reading(path, "Parquet"), ParquetFile(path, **how) as file:
        rows, most = file.metadata.num_rows, max(FEW, DENSEST * path.stat().st_size)
        parts = sum(max(0, file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups))
        if not 0 <= rows <= most or parts > most:
            raise DataError(f"declares {max(rows, parts)} rows, which a file of its size does not hold.", file=path)
        yield file
