"""The contents of a cache, and a check that they have not changed: a digest covers every byte of the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.checked import STRUCTURE, CheckedFile, first_occurrence
from probekit.activations.description import describe
from probekit.activations.hdf5 import datasets, digest_structure, extents, xxh3
from probekit.activations.manifest import Manifest, ShardFile, is_shard_folder, shards_in
from probekit.activations.remote import fetch, local, not_followed
from probekit.addresses import is_address
from probekit.calls import checked
from probekit.constraint import File
from probekit.errors import CacheCorrupt, CacheError
from probekit.hdf5 import DAMAGE
from probekit.runtime import Progress, no_progress


def shard_problems(folder: Path, verify: Callable[[Path], Any], progress: Progress) -> tuple[tuple[str, ...], int, int]:
    """Problems in plain words, each with the shard's name; the number of digests compared, and of bytes read.

    Parameters
    ----------
    verify : callable
        Checks one file: :func:`probekit.activations.inspection.verify`.

    Raises
    ------
    CacheError
        If there is no manifest, there are two, or it was changed.
    """
    shards = Manifest.read(folder).shards
    problems, digests, nbytes = [], 1, 0
    for k, told in enumerate(shards):
        progress("verifying", k, len(shards))
        path = folder / told.file
        fetch(folder, told.file)
        if not path.is_file():
            problems.append(f"{told.file} (rows {told.first} to {told.last - 1}) is missing{not_followed(folder)}")
            continue
        try:
            if other := _other_file(path, told):
                problems.append(f"{told.file}: {other}")
                continue
            verdict = verify(path)
        except CacheError as error:
            problems.append(f"{told.file}: {str(error).removeprefix(f'{path}: ')}")
            continue
        problems += [f"{told.file}: {problem}" for problem in verdict.problems]
        digests, nbytes = digests + verdict.digests, nbytes + verdict.nbytes
    named = {told.file for told in shards}
    problems += [f"{p.name} is not in the manifest" for p in shards_in(folder).values() if p.name not in named]
    progress("verifying", len(shards), len(shards))
    return tuple(problems), digests, nbytes


def _other_file(path: Path, told: ShardFile) -> str:
    """How a shard differs from the one of the manifest, as far as its structure tells; "" if it does not."""
    size = path.stat().st_size
    if size < told.nbytes:
        return f"it is truncated: {size:,} of {told.nbytes:,} bytes"
    checked = CheckedFile(path)
    try:
        if (spec_id := str(checked.attrs["spec_id"])) != told.spec_id:
            return f"it is a shard of another job (spec_id {spec_id}, expected {told.spec_id})"
        return "" if f"{checked.digest:016x}" == told.xxh3 else "it was written at another time than the manifest says"
    finally:
        checked.close()


@checked
def inspect(cache: File, /) -> dict[str, str]:
    """Show what a cache contains: task, model, layers, labels …, as text.

    Parameters
    ----------
    cache : path
        An activation cache, CACHE.h5.

    Returns
    -------
    dict
        The name of each fact and its text.

    Raises
    ------
    CacheError
        If it cannot be opened as a finished cache.

    Examples
    --------
    >>> probekit.inspect("sst2.dev.h5")["layers"]  # doctest: +SKIP
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12'

    On the command line::

        probekit inspect data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5
    """
    with ActivationCache(cache) as opened:
        return describe(opened)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of verify: problems in plain words (none: the cache is intact), digests compared, bytes read."""

    problems: tuple[str, ...]
    digests: int
    nbytes: int

    @property
    def ok(self) -> bool:
        """Whether no byte has changed."""
        return not self.problems


@checked
def verify(cache: File, /, *, progress: Progress = no_progress) -> Verdict:
    """Read a whole cache and check that no byte has changed since it was written.

    Every digest is compared, and the rows of repeated texts with those of the first; of a cache in shards, every shard,
    whose name its problems begin with. On the command line, the exit status is 1 if a byte has changed.

    Parameters
    ----------
    cache : path
        An activation cache, CACHE.h5.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Verdict
        The problems; none if the cache is intact.

    Raises
    ------
    CacheError
        If ``cache`` cannot be opened as a finished cache.

    Examples
    --------
    >>> probekit.verify("sst2.dev.h5").ok  # doctest: +SKIP
    True

    On the command line::

        probekit verify data_cache/sst2.train.bert-base-uncased.1a2b3c4d.h5
    """
    path = local(cache) if is_address(cache) else Path(cache)
    if is_shard_folder(path):
        return Verdict(*shard_problems(path, verify, progress))
    try:
        opened = ActivationCache(path)
    except CacheCorrupt as error:
        if STRUCTURE not in str(error):
            raise
        return Verdict((STRUCTURE,), 1, 0)
    with opened:
        assert isinstance(opened._checked, CheckedFile)
        try:
            return _verdict(opened, opened._checked.f, progress)
        except DAMAGE as error:
            raise CacheCorrupt(
                f"{path}: the structure is damaged ({error}); create the cache again with --overwrite."
            ) from error


def _verdict(cache: ActivationCache, f: h5py.File, progress: Progress) -> Verdict:
    table = f["/blocks"][...]
    slots = f["/index/row_to_unique"][...].reshape(-1)
    first_of_text = first_occurrence(slots)
    problems: list[str] = []
    nbytes = 0
    for k, row in enumerate(table):
        name, start, stop, digest = row["dataset"].decode("utf-8", "replace"), *(int(x) for x in row.tolist()[1:])
        if k % 64 == 0:
            progress("verifying", k, len(table))
        if not name:
            if digest_structure(cache.path, extents(f)) != digest:
                problems.append("the file's structure or attributes were changed after it was written")
            continue
        try:
            data = _vectors(f, name, start, stop, int(cache.spec["sentences"]))
        except DAMAGE as error:
            problems.append(f"{name}, rows {start} to {stop - 1}: cannot be read ({error})")
            continue
        nbytes += data.nbytes
        if xxh3(data[first_of_text[start:stop]] if name.startswith("/pooled/") else data) != digest:
            problems.append(f"{name}, rows {start} to {stop - 1}: the bytes were changed after they were written")
    problems += _duplicates(f, cache, slots, first_of_text)
    problems += [f"{name} has no digest in /blocks" for name in _uncovered(f, table)]
    progress("verifying", len(table), len(table))
    return Verdict(tuple(problems), len(table), nbytes)


def _vectors(f: h5py.File, name: str, start: int, stop: int, k: int) -> np.ndarray:
    """Rows start … stop - 1 of a dataset; for pooled ones vectors, with k vectors per row."""
    ds = f[name]
    if ds.chunks is not None:
        import hdf5plugin  # noqa: F401  registers zstd
    if name.startswith("/pooled/") and k > 1:
        first = start // k
        rows = ds[first : -(-stop // k)].reshape(-1, ds.shape[1] // k)
        return rows[start - first * k : stop - first * k]
    return ds[start:stop] if ds.shape else ds[...]


def _duplicates(f: h5py.File, cache: ActivationCache, slots: np.ndarray, first_of_text: np.ndarray) -> list[str]:
    """Rows of repeated texts that differ from the row of the text's first occurrence."""
    again, problems = np.flatnonzero(~first_of_text), []
    if not len(again):
        return []
    source = np.empty(int(slots.max()) + 1, dtype=np.int64)
    source[slots[first_of_text]] = np.flatnonzero(first_of_text)

    def rows(name: str, at: np.ndarray) -> np.ndarray:
        k = int(cache.spec["sentences"])
        unique, back = np.unique(at // k, return_inverse=True)
        return f[name][unique].reshape(len(unique), k, -1)[back, at % k].view(np.uint8)

    for pooling in cache.poolings:
        for layer in cache.layers:
            name = f"/pooled/{pooling}/{layer}"
            try:
                for part in np.array_split(again, len(again) // 1024 + 1):
                    wrong = part[(rows(name, part) != rows(name, source[slots[part]])).any(1)]
                    if len(wrong):
                        problems.append(f"{name}, row {wrong[0]}: differs from the row of the same text")
            except DAMAGE as error:
                problems.append(f"{name}: cannot be read ({error})")
    return problems


def _uncovered(f: h5py.File, table: np.ndarray) -> list[str]:
    """Datasets without a row in /blocks, under this name or another."""
    known = {row["dataset"].decode("utf-8", "replace") for row in table} | {"/blocks"}
    by_name = dict(datasets(f))
    covered = [ds for name, ds in by_name.items() if name in known]
    return [name for name, ds in by_name.items() if ds.size and ds not in covered]
