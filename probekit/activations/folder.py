"""A cache in shards, read like one file: the datasets of all shards, one after another.

:class:`CheckedFolder` answers what :class:`~probekit.activations.checked.CheckedFile` answers. Numbers that point to
rows (of tokens, of texts, of examples) are moved by what the shards before hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from probekit.activations.checked import IN_MEMORY, CheckedFile
from probekit.activations.manifest import MANIFEST, Manifest, is_shard_folder
from probekit.activations.remote import fetch, not_followed, source_of
from probekit.errors import CacheCorrupt, CacheMismatch
from probekit.files import parse_json

OPEN = 64
"""Most shards that are open at the same time."""
AGAIN = "run the same probekit cache-activations command again, which makes only what is missing"


def open_checked(path: Path) -> CheckedFile | CheckedFolder:
    """The file or folder of a finished cache, whose bytes are compared with their digests before they are used."""
    return CheckedFolder(path) if is_shard_folder(path) else CheckedFile(path)


class CheckedFolder:
    """The folder of a finished cache in shards.

    Attributes
    ----------
    path : Path
        The folder.
    attrs : Mapping[str, Any]
        The attributes that a single file would have.
    starts : np.ndarray
        int64 (shards + 1,), the first row of each shard; at the end, the number of rows.

    Raises
    ------
    CacheError
        If there is no manifest, or shards are missing or of another size.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, Manifest.read(path)
        about = {"complete": True, "spec": json.dumps(self.manifest.spec), "spec_id": self.manifest.spec["spec_id"]}
        self.attrs: Mapping[str, Any] = {**self.manifest.attributes, **about}
        self.links: Mapping[str, str] = {}
        self.sentences = 1
        shards = self.manifest.shards
        self.starts = np.array([*(s.first for s in shards), shards[-1].last], dtype=np.int64)
        there = {s.file for s in shards if (path / s.file).is_file()}
        if (missing := [s.file for s in shards if s.file not in there]) and source_of(path) is None:
            raise CacheCorrupt(
                f"{path}: {len(missing)} of {len(shards)} shards are missing ({missing[0]} …); {AGAIN}."
                f"{not_followed(path)}"
            )
        for s in (s for s in shards if s.file in there):
            if (size := (path / s.file).stat().st_size) != s.nbytes:
                raise CacheCorrupt(
                    f"{path / s.file} has {size:,} bytes, but the manifest says {s.nbytes:,}; remove it, and {AGAIN}."
                )
        self.nbytes = sum(s.nbytes for s in shards)
        self.shard = lru_cache(maxsize=OPEN)(self._open)
        self._starts = lru_cache(maxsize=None)(self._find_starts)
        self._compared: dict[tuple[int, int], set[str]] = {}

    def _open(self, k: int) -> CheckedFile:
        """Shard ``k``, fetched if the folder stands for a URL, after a comparison with the manifest."""
        fetch(self.path, self.manifest.shards[k].file)
        try:
            return self._as_told(k)
        except (CacheCorrupt, CacheMismatch) as error:
            if (url := source_of(self.path)) is None:
                raise
            raise type(error)(
                f"{error} This shard was fetched from {url}: remove it here, and it is fetched again. If it is damaged "
                "there, too, copy the cache there again."
            ) from error

    def _as_told(self, k: int) -> CheckedFile:
        told = self.manifest.shards[k]
        opened = CheckedFile(self.path / told.file)
        spec_id = str(opened.attrs["spec_id"])
        if spec_id != told.spec_id:
            raise CacheMismatch(
                f"{opened.path} is a shard of another job (spec_id {spec_id}, expected {told.spec_id}); remove it, and "
                f"{AGAIN}."
            )
        if f"{opened.digest:016x}" != told.xxh3:
            raise CacheCorrupt(f"{opened.path} is not the file of the manifest; remove it, and {AGAIN}.")
        spec = parse_json(opened.attrs["spec"])
        opened.links, opened.sentences = spec.get("links", {}), int(spec["sentences"])
        opened._compared = self._compared.setdefault((k, opened.size), opened._compared)
        return opened

    def shards(self) -> Iterator[CheckedFile]:
        """The shards in order."""
        return map(self.shard, range(len(self.manifest.shards)))

    def close(self) -> None:
        """Close the shards; arrays that were read stay valid."""
        self.shard.cache_clear()

    def check_size(self) -> None:
        """Nothing: rows are read, not mapped, and a truncated shard is an error."""

    def __contains__(self, name: str) -> bool:
        return name in self.manifest.datasets

    def names(self, group: str) -> list[str]:
        """The names in a group."""
        return [name.removeprefix(f"{group}/") for name in self.manifest.datasets if name.startswith(f"{group}/")]

    def encoded(self, name: str) -> bool:
        """Whether a dataset holds bfloat16 as uint16."""
        return bool(self.manifest.datasets[name]["encoded"])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a dataset."""
        return (int(self._starts(name)[-1]), *self.manifest.datasets[name]["shape"])

    def _find_starts(self, name: str) -> np.ndarray:
        """The first row of each shard in a dataset; at the end, its number of rows."""
        if name.startswith("/pooled/") or name in ("/labels", "/ids", "/truncated"):
            return self.starts
        if name.startswith("/tokens/"):
            counts = [s.tokens for s in self.manifest.shards]
        else:
            counts = [s.shape(name)[0] if name in s else 0 for s in self.shards()]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    def rows(self, name: str) -> JoinedRows:
        """A dataset whose rows are read on access; each shard's is compared with its digests before the first."""
        if name not in self:
            raise CacheCorrupt(f"{self.path}: {name} is not a dataset of its shards; run probekit verify.")
        return JoinedRows(self, name, self._starts(name))

    def stream(self, name: str, step: int) -> Iterator[np.ndarray]:
        """The rows of a dataset in order, ``step`` at a time; each shard's part is compared before it is read."""
        vectors = name.startswith(("/pooled/", "/tokens/"))
        source = self.rows(name) if vectors else self.values(name)
        return (np.asarray(source[start : start + step]) for start in range(0, len(source), step))

    @property
    def digest(self) -> int:
        """xxh3 of the manifest, which holds the digests of all shards."""
        return xxhash.xxh3_64_intdigest((self.path / MANIFEST).read_bytes())

    def values(self, name: str, *, mapped: bool = False) -> Any:
        """A dataset as a read-only array; if ``mapped`` or if it is large, vectors as :class:`JoinedRows`."""
        if name.startswith(("/pooled/", "/tokens/")):
            rows = self.rows(name)
            if mapped or rows.nbytes > IN_MEMORY:
                return rows
            array = rows[:]
        elif name in ("/groups", "/group_names"):
            array = self._declared_groups()[name == "/group_names"]
        elif name in ("/label_names", "/role_names"):
            array = self.shard(0).values(name)
        else:
            array = _join([self._part(k, name) for k in range(len(self.manifest.shards))])
        array.flags.writeable = False
        return array

    def _part(self, k: int, name: str) -> np.ndarray:
        """Shard ``k``'s part of a small dataset; numbers of rows count from the beginning of the whole cache."""
        shard, told = self.shard(k), self.manifest.shards[k]
        if name not in shard:
            rows = told.last - told.first if name == "/domains" else 0
            return np.zeros((rows, *self.manifest.datasets[name]["shape"]), self.manifest.datasets[name]["dtype"])
        array = shard.values(name)
        if name == "/index/start":
            return array + sum(s.tokens for s in self.manifest.shards[:k])
        if name == "/targets/example":
            return array + told.first
        if name == "/index/row_to_unique":
            return array + int(self._starts("/pieces/length")[k])
        if name in ("/index/token_ids", "/pieces/token_ids") and "/pieces/characters" in self:
            return array + int(self._starts("/pieces/characters")[k])
        return array

    def _declared_groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Declared groups of all examples: a name is one group, in whatever shards it occurs."""
        known: dict[tuple[int, bytes], int] = {}
        numbers: list[np.ndarray] = []
        for k, shard in enumerate(self.shards()):
            if "/group_names" in shard:
                of, names = shard.values("/groups"), shard.values("/group_names").tolist()
            else:  # none is declared in this shard; what was found in it holds there alone
                rows = self.starts[k + 1] - self.starts[k]
                of, names = np.arange(rows), [b""] * int(rows)
            own = [(0, name) if name else (k * len(self) + i + 1, name) for i, name in enumerate(names)]
            numbers.append(np.array([known.setdefault(key, len(known)) for key in own], dtype=np.int32)[of])
        return np.concatenate(numbers), np.array([name for _, name in known])

    def __len__(self) -> int:
        return int(self.starts[-1])


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """The rows of all parts; where only some have several labels at once, the others have none."""
    deepest = max(parts, key=lambda part: part.ndim)
    parts = [np.zeros((len(p), *deepest.shape[1:]), deepest.dtype) if p.ndim < deepest.ndim else p for p in parts]
    full = [part for part in parts if len(part)]
    return np.concatenate(full) if full else parts[0].copy()


class JoinedRows:
    """A dataset of all shards, read on access: slices, and rows with any indices.

    Attributes
    ----------
    shape : tuple[int, ...]
        Of the whole dataset.
    dtype : np.dtype
        As stored (bfloat16: uint16).
    """

    def __init__(self, folder: CheckedFolder, name: str, starts: np.ndarray) -> None:
        self.folder, self.name, self.starts = folder, name, starts
        known = folder.manifest.datasets[name]
        self.shape, self.dtype = (int(starts[-1]), *known["shape"]), np.dtype(known["dtype"])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole dataset."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, at: Any) -> np.ndarray:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
            self.read(start, stop, out)
            return out
        if isinstance(at, tuple):
            return self[at[0]][(slice(None), *at[1:])]
        rows = np.asarray(at)
        if rows.dtype == bool and rows.shape == (len(self),):
            rows = np.flatnonzero(rows)
        elif rows.size and rows.dtype.kind not in "iu":
            raise IndexError(
                f"found {at!r:.60} where rows of {self.name} are chosen; give whole numbers, a slice, or a mask of "
                f"{len(self)} truth values."
            )
        return self._take(rows.reshape(-1)).reshape(rows.shape + self.shape[1:])

    def _take(self, rows: np.ndarray) -> np.ndarray:
        """Rows with any indices, of each shard in ascending order."""
        rows = rows.astype(np.int64)
        if len(wrong := rows[(rows < -len(self)) | (rows >= len(self))]):
            raise IndexError(f"row {wrong[0]} of {self.name}, which has {len(self)} rows")
        rows = np.where(rows < 0, rows + len(self), rows)
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows, kind="stable")
        shard = np.searchsorted(self.starts, rows[order], side="right") - 1
        for k in np.unique(shard).tolist():
            places = order[shard == k]
            wanted, back = np.unique(rows[places] - self.starts[k], return_inverse=True)
            out[places] = self.folder.shard(k).rows(self.name)[wanted][back]
        return out

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        """Rows start … stop - 1 into a contiguous array."""
        first, at = int(np.searchsorted(self.starts, start, side="right")) - 1, start
        for k in range(first, len(self.starts) - 1):
            if at >= stop:
                return
            end = min(stop, int(self.starts[k + 1]))
            if end > at:
                own = int(self.starts[k])
                self.folder.shard(k).rows(self.name).read(at - own, end - own, out[at - start : end - start])
                at = end
