"""SAELens's cached activations: folders of Arrow files that Hugging Face datasets wrote.

Each row is a context: ``token_ids`` (context,) and, named by the hook, vectors (context, d). Arrow files are mapped;
the library datasets is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.names import UNDERSTOOD, site_of
from probekit.activations.foreign.source import Array, Source, View
from probekit.errors import DataError, reading
from probekit.files import read_json

if TYPE_CHECKING:
    import torch

__all__ = ["open_saelens"]

IDS = "token_ids"


def open_saelens(path: Path, folders: Sequence[Path]) -> Source:
    """The rows of all shards, in their order."""
    files = [file for folder in folders for file in _data_files(folder)]
    tables = [_table(file) for file in files]
    names = [name for name in tables[0].column_names if name != IDS]
    if IDS not in tables[0].column_names:
        raise DataError(
            f"has no column {IDS}, so the model cannot read the same pieces. SAELens 5 and later write it.", file=path
        )
    sites = {name: site for name in names if (site := site_of(name)) is not None}
    if not sites:
        raise DataError(f"none of its columns ({', '.join(names)}) is understood, such as {UNDERSTOOD}.", file=path)
    for file, table in zip(files, tables, strict=True):
        if table.schema.names != tables[0].schema.names:
            raise DataError(f"has other columns than {files[0]}; give the shards of one run.", file=file)
    rows = _Rows(files, tables)
    if not len(rows):
        raise DataError("has no rows.", file=path)
    arrays = []
    for name, site in sites.items():
        one, t = rows.matrix(name, 0), len(rows[0])
        axes = [word for word, length in zip(("", SWAPPED), one.shape, strict=True) if length == t] or [""]
        arrays.append(Array(name, site, one.dtype.name, tuple(View(word, _reader(rows, name, word)) for word in axes)))
    skipped = tuple(name for name in names if name not in sites)
    return Source("saelens", path, tuple(files), tuple(arrays), rows, skipped=skipped)


SWAPPED = "width, positions"


def _data_files(folder: Path) -> list[Path]:
    """The Arrow files of a folder, in the order of ``state.json``."""
    with reading(folder / "state.json", "JSON"):
        return [folder / Path(part["filename"]).name for part in read_json(folder / "state.json")["_data_files"]]


def _table(path: Path) -> Any:
    import pyarrow as pa

    with reading(path, "Arrow"):
        return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def _reader(rows: _Rows, name: str, axes: str) -> Callable[[int], torch.Tensor]:
    def read(i: int) -> torch.Tensor:
        import torch

        found = torch.from_numpy(rows.matrix(name, i))
        return found.T if axes else found

    return read


class _Rows:
    """The pieces of each row, and its vectors."""

    def __init__(self, files: Sequence[Path], tables: Sequence[Any]) -> None:
        self.files, self.tables = files, tables
        self.count = np.cumsum([0, *(len(table) for table in tables)])

    def __len__(self) -> int:
        return int(self.count[-1])

    def __getitem__(self, i: int) -> np.ndarray:
        with reading(self.files[self._table_of(i)], "Arrow"):
            return np.asarray(self._row(IDS, i).flatten().to_numpy(zero_copy_only=False), dtype=np.int64)

    def matrix(self, name: str, i: int) -> np.ndarray:
        """A row of a column of matrices; raises DataError if it holds anything else."""
        file = self.files[self._table_of(i)]
        with reading(file, "Arrow"):
            vectors = self._row(name, i).flatten()
            if "list" not in str(vectors.type):
                what = f"the column {name} has a {vectors.type} for each position"
                raise DataError(f"{what}; wanted vectors (context, d).", file=file)
            return np.array(vectors.flatten().to_numpy(zero_copy_only=False)).reshape(len(vectors), -1)

    def _table_of(self, i: int) -> int:
        return int(np.searchsorted(self.count, i, side="right")) - 1

    def _row(self, name: str, i: int) -> Any:
        """Row i of a column, as an Arrow array of length 1 whose offsets were checked."""
        k = self._table_of(i)
        (part,) = self.tables[k].column(name).slice(i - int(self.count[k]), 1).chunks
        part.validate(full=True)
        return getattr(part, "storage", part)
