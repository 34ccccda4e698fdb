"""Open activations of another program: which format a file or folder is in.

Each row is a context: ``token_ids`` (context,) and, named by the hook, vectors (context, d). Arrow files are mapped;
the library datasets is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.arrays import open_arrays
from probekit.activations.foreign.names import UNDERSTOOD, site_of
from probekit.activations.foreign.source import Array, Source, View, check_unnamed
from probekit.activations.foreign.vllm import is_vllm, open_vllm
from probekit.activations.hdf5 import is_cache_file
from probekit.errors import DataError, reading
from probekit.files import read_json
from probekit.sites import Site

if TYPE_CHECKING:
    import torch

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


WANTED = (
    "wanted safetensors of vLLM's ExampleHiddenStatesConnector (token_ids, hidden_states), .npz or .safetensors with "
    "an array for each site and token_ids, or a SAELens folder (arrow files with state.json)"
)


def open_source(path: str | Path, layers: Sequence[Site] | None = None) -> Source:
    """Open activations of another program; only names, shapes and precisions are read.

    Parameters
    ----------
    path : str or Path
        A file, or a folder of files of one format.
    layers : sequence of Site, optional
        The sites of the arrays, in their order, where the file does not name them (vLLM).

    Raises
    ------
    DataError
        If it is in none of the formats, or holds no layer.
    """
    path = Path(path)
    source = _opened(path, layers)
    if not source.arrays:
        raise DataError("holds no layer.", file=path)
    return source


def _opened(path: Path, layers: Sequence[Site] | None) -> Source:
    if not path.exists():
        raise DataError("does not exist.", file=path)
    if is_export(path):
        raise DataError(
            "is an export of probekit, which cannot be imported again: it lacks the pieces of the texts. Use the cache "
            "that it was made of, or cache the texts again.",
            file=path,
        )
    inside = [p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")] if path.is_dir() else [path]
    files = sorted(inside, key=_natural)
    of = {suffix: [p for p in files if p.suffix == suffix] for suffix in (".safetensors", ".npz")}
    if path.is_dir() and (folders := _arrow_folders(path)):
        source = open_saelens(path, folders)
        check_unnamed(path, source.arrays, layers)
        return source
    if of[".safetensors"] and not of[".npz"] and is_vllm(of[".safetensors"][0]):
        return open_vllm(path, of[".safetensors"], layers)
    if bool(of[".safetensors"]) != bool(of[".npz"]):
        return open_arrays(path, of[".safetensors"] or of[".npz"], layers)
    raise DataError(f"{WANTED}; {_came(path, files)}", file=path)


def is_export(path: Path) -> bool:
    """Whether a folder is what ``probekit export`` wrote."""
    with suppress(OSError, ValueError, AttributeError):
        file = path / "spec.json"
        return file.stat().st_size < 1 << 26 and str(read_json(file).get("format", "")).startswith("probekit-export/")
    return False


def _natural(path: Path) -> list[tuple[int, str]]:
    """The order of file names in which 2 comes before 10, and 02 before 2."""
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]
    return [*parts, (-1, path.name)]


def _arrow_folders(path: Path) -> list[Path]:
    """The folders that datasets wrote: the folder itself, or its shards in their order.

    Raises
    ------
    DataError
        If a shard is missing or unfinished.
    """
    if (path / "state.json").is_file():
        return [path]
    hidden = path / ".tmp_shards"  # of a run of SAELens that was interrupted
    for folder in (path, hidden) if hidden.is_dir() else (path,):
        shards = sorted((p for p in folder.glob("shard_*") if p.is_dir()), key=_natural)
        if not shards:
            continue
        numbers = [int(name) if (name := p.name.removeprefix("shard_")).isdecimal() else -1 for p in shards]
        if missing := sorted(set(range(max(numbers) + 1)) - {*numbers}):
            many = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise DataError(
                f"its shards go up to {shards[-1].name}, but number {missing[0]}{many} is missing. Copy it here, or "
                "give a folder with whole shards, numbered from 0.",
                file=folder,
            )
        for shard in shards:
            if not (shard / "state.json").is_file():
                raise DataError("has no state.json, so its run was interrupted; remove this shard.", file=shard)
        return shards
    return []


PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")


def _came(path: Path, files: Sequence[Path]) -> str:
    """What is there instead, and what to do."""
    if path.is_dir():
        kinds = sorted({p.suffix or p.name for p in files})
        return f"the folder has {', '.join(kinds) if kinds else 'no files'}."
    if path.suffix in PICKLED:
        return (
            f"a {path.suffix} file may hold a pickle, which can run code and is not opened. Write the tensors with "
            "safetensors.torch.save_file, or with numpy.savez."
        )
    if path.suffix == ".npy":
        return "a .npy file has no pieces beside its array. Write numpy.savez(FILE, token_ids=…, layer_3=…)."
    if is_cache_file(path):
        return "this is a cache of probekit: run probekit verify."
    return f"this is a {path.suffix or 'nameless'} file."
