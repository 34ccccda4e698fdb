"""An unfinished cache: a file of its final size, into which blocks are written, and the steps that finish it.

The file is created completely, as ``CACHE.h5.partial``, before the model runs: every dataset has its final position and
the disk space is allocated. Workers then write blocks directly to their offsets, sync them to the disk and append one
line to ``CACHE.h5.journal``. HDF5's structures do not change meanwhile, so an interruption cannot damage them. At the
end the journal's digests are copied to ``/blocks``, ``complete`` is set, and the file is renamed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from probekit.activations.hdf5 import (
    BEGUN_FILE,
    CACHE_FILE,
    FORMAT,
    Extent,
    datasets,
    digest_structure,
    extents,
    open_cache_file,
    xxh3,
)
from probekit.activations.writing.journal import Journal, journal_path, partial_path, sync_folder, writing
from probekit.activations.writing.plan import Block, sequences, texts_of_slots
from probekit.errors import CacheCorrupt, CacheError, UsageError
from probekit.files import parse_json
from probekit.hdf5 import DAMAGE

BLOCK_ROW = np.dtype([("dataset", "S64"), ("start", "<i8"), ("stop", "<i8"), ("xxh3", "<u8")])
ALIGNMENT = 64  # bytes: vector loads from a memory map


@dataclass(frozen=True, slots=True)
class Stream:
    """A dataset to fill with the model's vectors of one layer, in slots or in token rows."""

    name: str
    shape: tuple[int, ...]
    pooled: bool


@dataclass(frozen=True, slots=True)
class Later:
    """A dataset of one dimension that is filled block by block when the file is created."""

    shape: tuple[int]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole dataset."""
        return self.shape[0] * self.dtype.itemsize


@dataclass(frozen=True)
class Partial:
    """All that a worker must know about an unfinished cache.

    Attributes
    ----------
    file : Path
        The path.
    spec : Mapping[str, Any]
        The cache's spec.
    extents : Mapping[str, Extent]
        The position of each dataset in the file.
    streams : tuple[Stream, ...]
        The datasets to fill, in the order of the journal's digests.
    blocks : tuple[Block, ...]
        The plan's blocks.
    token_start, piece_start : np.ndarray
        int64, the first token row and the first piece of each (one more at the end).
    """

    file: Path
    spec: Mapping[str, Any]
    extents: Mapping[str, Extent]
    streams: tuple[Stream, ...]
    blocks: tuple[Block, ...]
    token_start: np.ndarray
    piece_start: np.ndarray

    @property
    def sentences(self) -> int:
        """Vectors per row of a pooled dataset: 1, or 2 for pairs read separately."""
        return int(self.spec["sentences"])

    def holds(self, name: str) -> bool:
        """Whether there is such a dataset."""
        return name in self.extents

    def array(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows of a static dataset, mapped."""
        return self.extents[name].map(self.file)[start:stop]

    def range(self, stream: Stream, b: int) -> tuple[int, int]:
        """First and last row (slot or token row) of block b in ``stream``."""
        return _range(stream, self.blocks, self.token_start, b)


@dataclass(frozen=True, slots=True)
class Contents:
    """What an unfinished cache holds: everything that is known before the model runs, and space for the rest.

    Attributes
    ----------
    attributes : Mapping[str, Any]
        Attributes of ``/``.
    static : Mapping[str, np.ndarray | Later]
        Datasets by name.
    filled : Iterable[Mapping[str, np.ndarray]]
        The next rows of all datasets that are filled later; it is read once.
    links : Mapping[str, str]
        Further names of datasets.
    streams, dtype : Sequence[Stream] or str
        The datasets to fill, and their precision ("bfloat16" is stored as uint16 with the attribute ``encoding``).
    blocks, token_start : Sequence[Block] or np.ndarray
        The plan's blocks, and the first row of ``/tokens`` of each (one more at the end).
    """

    attributes: Mapping[str, Any]
    static: Mapping[str, np.ndarray | Later]
    filled: Iterable[Mapping[str, np.ndarray]]
    links: Mapping[str, str]
    streams: Sequence[Stream]
    dtype: str
    blocks: Sequence[Block]
    token_start: np.ndarray

    @property
    def stored(self) -> np.dtype:
        """The precision of the datasets to fill, as HDF5 has it."""
        return np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all datasets."""
        vectors = sum(int(np.prod(s.shape)) for s in self.streams) * self.stored.itemsize
        return vectors + sum(a.nbytes for a in self.static.values())

    def write(self, f: h5py.File) -> None:
        """Write all datasets, and their table ``/blocks``, whose digests of vectors are filled in at the end."""
        for name, array in self.static.items():
            if isinstance(array, Later):
                _dataset(f, name, array.shape, array.dtype)
            else:
                _put(f, name, array)
        for name, target in self.links.items():
            f[name] = f[target]
        for s in self.streams:
            ds = _dataset(f, s.name, s.shape, self.stored)
            if self.dtype == "bfloat16":
                ds.attrs["encoding"] = "bfloat16"
        digests = _fill(f, self.filled)
        blocks = range(len(self.blocks))
        table = [(s.name, *_range(s, self.blocks, self.token_start, b), 0) for b in blocks for s in self.streams]
        table += [
            (name, 0, a.shape[0], digests.get(name, 0) if isinstance(a, Later) else xxh3(a))
            for name, a in self.static.items()
        ]
        table.append(("", 0, 0, 0))  # the bytes outside datasets: see seal()
        _put(f, "/blocks", np.array(table, dtype=BLOCK_ROW))


def create(out: Path, journal: Journal, contents: Contents) -> None:
    """Create the unfinished file of the cache ``out``; raises CacheError if there is no space."""
    final = partial_path(out)
    new = final.with_name(final.name + ".new")
    with writing(out):
        _check_space(out, contents)
        CACHE_FILE.check(final)
        _remove_begun(new)
        with h5py.File(new, "x", libver="earliest", alignment_threshold=1, alignment_interval=ALIGNMENT) as f:
            for key, value in contents.attributes.items():
                f.attrs[key] = value
            f.attrs["complete"] = False
            f.flush()  # from here on it is recognised as a cache, also after an interruption
            contents.write(f)
        with new.open("rb+") as file:
            if hasattr(os, "posix_fallocate"):  # not on macOS: there the disk may fill up later
                os.posix_fallocate(file.fileno(), 0, new.stat().st_size)
            os.fsync(file.fileno())
        with open_cache_file(new) as f:
            where = extents(f)
        journal.clear(digest_structure(new, where, filled=False))
        new.replace(final)


def _check_space(out: Path, contents: Contents) -> None:
    """Raise CacheError if disk or system have no room for the file: HDF5 does not survive a failed write."""
    need, free = contents.nbytes, shutil.disk_usage(out.parent).free
    if need > free:
        raise CacheError(
            f"cannot write {out}: it needs {need:,} bytes, but only {free:,} are free in {out.parent}. Free some "
            "space, choose another --out, or use --limit, fewer poolings or --store float16."
        )
    parts = len(contents.streams) + len(contents.static) + len(contents.attributes)
    _check_limit(out, need + ALIGNMENT * parts)


def _check_limit(out: Path, need: int) -> None:
    """Raise CacheError if the system does not allow so large a file: HDF5 does not survive a failed write."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and need + STRUCTURE > limit:
        raise CacheError(
            f"cannot write {out}: it needs about {need + STRUCTURE:,} bytes, but files may have at most {limit:,} here "
            "(ulimit -f). Raise the limit, or use --limit, fewer poolings or --store float16."
        )


STRUCTURE = 1 << 18
"""Upper bound in bytes for the structure of a cache without its datasets."""


def _remove_begun(path: Path) -> None:
    """Remove the file of a killed process; raises UsageError if it is not a begun cache."""
    BEGUN_FILE.check(path)
    path.unlink(missing_ok=True)


def _range(stream: Stream, blocks: Sequence[Block], token_start: np.ndarray, b: int) -> tuple[int, int]:
    if stream.pooled:
        return blocks[b].slot_first, blocks[b].slot_last
    return int(token_start[b]), int(token_start[b + 1])


def _dataset(f: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> h5py.Dataset:
    """A contiguous dataset that is allocated at once and never filled by HDF5."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.CONTIGUOUS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_obj_track_times(False)
    parent, _, leaf = name.rpartition("/")
    group = f.require_group(parent or "/")
    kind = h5py.string_dtype("utf-8", dtype.itemsize) if dtype.kind == "S" else dtype
    space = h5py.h5s.create_simple(shape)
    return h5py.Dataset(
        h5py.h5d.create(group.id, leaf.encode(), h5py.h5t.py_create(np.dtype(kind), logical=True), space, plist)
    )


def _put(f: h5py.File, name: str, array: np.ndarray) -> None:
    ds = _dataset(f, name, array.shape, array.dtype)
    if array.size:
        ds.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(array), mtype=ds.id.get_type())


def _fill(f: h5py.File, filled: Iterable[Mapping[str, np.ndarray]]) -> dict[str, int]:
    """Write the rows of some datasets as they come; the digest of each."""
    hashes: dict[str, Any] = {}
    at: Counter[str] = Counter()
    for rows in filled:
        for name, values in rows.items():
            if len(values):
                f[name][at[name] : at[name] + len(values)] = values
            hashes.setdefault(name, xxhash.xxh3_64()).update(np.ascontiguousarray(values).data)
            at[name] += len(values)
    return {name: state.intdigest() for name, state in hashes.items()}


def open_partial(out: Path) -> Partial:
    """The unfinished cache that will become ``out``; raises CacheCorrupt if it cannot be used."""
    path = partial_path(out)
    try:
        return _open_partial(path)
    except DAMAGE as error:
        raise CacheCorrupt(f"{path}: it cannot be read ({error}); start again with --overwrite.") from error


def _open_partial(path: Path) -> Partial:
    CACHE_FILE.check(path)
    with open_cache_file(path) as f:
        spec = parse_json(f.attrs["spec"])
        where = extents(f)
        table = f["/blocks"][...]
        cuts = f["/pieces/blocks"][...]
        pieces = [f["/pieces/length"][first:last].sum(dtype=np.int64) for first, last in cuts[:, :2].tolist()]
        shapes = {name: f[name].shape for name in dict.fromkeys(table["dataset"].astype(str)) if name}
    streams = tuple(
        Stream(name, shape, name.startswith("/pooled/"))
        for name, shape in shapes.items()
        if name.startswith(("/pooled/", "/tokens/"))
    )
    blocks = tuple(Block(*map(int, row[:4])) for row in cuts)
    token_start = np.array([*(row[4] for row in cuts), cuts[-1][5]], dtype=np.int64)
    piece_start = np.append(0, np.cumsum(pieces, dtype=np.int64))
    return Partial(path, spec, where, streams, blocks, token_start, piece_start)


def check_static(partial: Partial, structure: int) -> str:
    """The fault in the parts of an unfinished file that were written at its creation; "" if they are intact.

    An interruption of :func:`finish` may have left ``complete`` set; it is reset.
    """
    try:
        with h5py.File(partial.file, "r+") as f:
            if f.attrs["complete"]:
                f.attrs.modify("complete", np.False_)
        if digest_structure(partial.file, partial.extents, filled=False) != structure:
            return "its structure or description was changed after it was written"
        with partial.file.open("rb") as file:
            for row in partial.extents["/blocks"].read(file.fileno()):
                name = row["dataset"].decode()
                known = partial.extents.get(name) if not name.startswith(("/pooled/", "/tokens/")) else None
                if known and known.digest(file.fileno()) != row["xxh3"]:
                    return f"{name} was changed after it was written"
    except DAMAGE as error:
        return f"it cannot be read ({error})"
    return ""


def digest_blocks(partial: Partial, b: int) -> list[int]:
    """xxh3 of each stream's part of block b, read from the file; of pooled rows, of first occurrences of texts only."""
    own, found = sequences(partial, b).own, []
    for stream in partial.streams:
        start, stop = partial.range(stream, b)
        each = partial.sentences if stream.pooled else 1
        rows = partial.extents[stream.name].vectors(partial.file, each)[start:stop]
        found.append(xxh3(rows[own] if stream.pooled and not own.all() else rows))
    return found


def finish(out: Path, partial: Partial, done: Mapping[int, Sequence[int]], *, compress: bool = False) -> None:
    """Turn a partial file with all blocks into the cache ``out``."""
    path = partial.file
    missing = sorted(set(range(len(partial.blocks))) - set(done))
    if missing:
        raise CacheCorrupt(f"{path}: blocks {missing[:5]} are missing; run the same command again.")
    with writing(out):
        _copy_duplicates(partial)
        digests = [x for b in range(len(partial.blocks)) for x in done[b]]
        table = partial.extents["/blocks"].map(path, mode="r+")
        table["xxh3"][: len(digests)] = digests
        table.flush()
        del table
        if compress:
            path = _compressed(partial)
        with h5py.File(path, "r+") as f:
            f.attrs.modify("complete", np.True_)
        seal(path)
        CACHE_FILE.check(out)
        path.replace(out)
        partial.file.unlink(missing_ok=True)
        sync_folder(out.parent)
        journal_path(out).unlink()


def seal(path: Path) -> None:
    """Write the digest of all bytes outside datasets, and of /blocks, into the last row of /blocks."""
    with open_cache_file(path) as f:
        where = extents(f)
    table = where["/blocks"].map(path, mode="r+")
    table["xxh3"][-1] = digest_structure(path, where)
    table.flush()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _copy_duplicates(partial: Partial) -> None:
    """Copy the vectors of each text's first occurrence to its other rows."""
    again, first = _duplicates(partial)
    for stream in partial.streams if len(again) else ():
        if stream.pooled:
            for part in np.array_split(np.arange(len(again)), len(again) // 8192 + 1):  # mapped anew: nothing piles up
                rows = partial.extents[stream.name].vectors(partial.file, partial.sentences, mode="r+")
                rows[again[part]] = rows[first[part]]


def _duplicates(partial: Partial) -> tuple[np.ndarray, np.ndarray]:
    """int64: the slots whose text occurs in an earlier one, and the first slot with each of these texts."""
    again, texts = [], []
    for b, block in enumerate(partial.blocks):
        other = ~sequences(partial, b).own
        again.append(np.flatnonzero(other) + block.slot_first)
        texts.append(texts_of_slots(partial, block)[other])
    wanted, at = np.unique(np.concatenate(texts), return_inverse=True)
    first = np.empty(len(wanted), dtype=np.int64)
    for b, block in enumerate(partial.blocks):
        some = slice(*np.searchsorted(wanted, [block.first, block.last]))
        if some.start < some.stop:
            first[some] = sequences(partial, b).slot[wanted[some] - block.first]
    return np.concatenate(again), first[at]


def _compressed(partial: Partial) -> Path:
    """A copy of the partial file with vectors shuffled and compressed with zstd, in chunks of about a megabyte."""
    new = partial.file.with_name(partial.file.name + ".zstd")
    _remove_begun(new)
    need = partial.file.stat().st_size  # HDF5 does not survive a full disk
    free = shutil.disk_usage(new.parent).free
    if need > free:
        raise CacheError(
            f"cannot compress {partial.file}: it needs up to {need:,} more bytes, but only {free:,} are free. Free "
            "some space and run the same command again, or leave out --compress."
        )
    try:
        _write_compressed(partial, new)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # from HDF5, when it closes a file that it could not write
            raise CacheError(f"cannot write {new}: {error}. Finished blocks are kept.") from error
        raise
    return new


def _write_compressed(partial: Partial, new: Path) -> None:
    import hdf5plugin

    names = [s.name for s in partial.streams]
    with (
        h5py.File(partial.file, "r") as old,
        h5py.File(new, "x", libver="earliest", alignment_threshold=1, alignment_interval=ALIGNMENT) as f,
    ):
        for key, value in old.attrs.items():
            f.attrs[key] = value
        f.flush()  # from here on it is recognised as a cache, also after an interruption
        for name, ds in datasets(old):
            if name not in names and name not in partial.spec["links"]:
                known = partial.extents.get(name)  # None for an empty dataset
                _put(f, name, known.map(partial.file) if known else np.empty(ds.shape, ds.dtype))
        for link in partial.spec["links"]:
            f[link] = f[partial.spec["links"][link]]
        for name in names:
            data = old[name]
            rows = max(1, min(len(data), (1 << 20) // max(1, data.dtype.itemsize * data.shape[1])))
            ds = f.create_dataset(
                name, data.shape, data.dtype, chunks=(rows, data.shape[1]), shuffle=True,
                compression=hdf5plugin.Zstd(clevel=3), track_times=False,
            )  # fmt: skip
            for key, value in data.attrs.items():
                ds.attrs[key] = value
            for start in range(0, len(data), rows):
                ds[start : start + rows] = data[start : start + rows]


def now() -> str:
    """The time for ``created``: now, or SOURCE_DATE_EPOCH for reproducible builds."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}; expected seconds since 1970, as a whole number.") from None
    return moment.isoformat(timespec="seconds")


def attributes(
    spec: Mapping[str, Any], spec_id: str, version: str, about: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The attributes of ``/`` except ``complete``; those in ``about`` as JSON, unless they are empty."""
    return {
        "format": FORMAT,
        "spec": json.dumps(spec, sort_keys=True, ensure_ascii=False),
        "spec_id": spec_id,
        "created": now(),
        "probekit": version,
        **{
            name: json.dumps(value, sort_keys=True, ensure_ascii=False)
            for name, value in (about or {}).items()
            if value
        },
    }
