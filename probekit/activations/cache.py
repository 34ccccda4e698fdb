"""The activation cache, format ``probekit-activations/1``: what lies where, and how it is read.

    /pooled/<pooling>/<layer>   (n, d)      one contiguous dataset a layer; (n, 2 d) for separately encoded pairs
    /tokens/<layer>             (t, d)      in the order of processing
    /index/start, /index/length (n)         the rows of an example in /tokens; (n, 2) for separate pairs
    /index/token_ids, word_index, char_start, char_end (t)
    /index/row_to_unique        (n)         which of the distinct texts a row is; (n, 2) for separate pairs
    /labels (n)   /ids (n)   /truncated (n)   /domains (n)   /label_names
    /word_labels, /index/word_count (n)     of token-labelled tasks, words in the order of the task
    /pieces/…                               what the model was fed, distinct texts in the order of processing
    /blocks                                 dataset, start, stop, xxh3 of every written block
    attributes of /: format, complete, spec (JSON), spec_id, created, probekit

float32 and float16 are stored as such; bfloat16 as uint16 with the attribute ``encoding = "bfloat16"``.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import xxhash

from probekit.activations.pooling import TokenLevel, word_segments
from probekit.errors import CacheCorrupt, CacheError, CacheIncomplete, CacheMismatch, UsageError

__all__ = ["DAMAGE", "FORMAT", "ActivationCache", "Extent", "Ragged", "datasets", "extents", "open_cache_file", "xxh3"]

FORMAT = "probekit-activations/1"
DAMAGE = (KeyError, ValueError, TypeError, IndexError, AttributeError, OSError, RuntimeError, MemoryError)
"""What h5py raises on a damaged file."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a contiguous dataset lies in its file: byte offset, shape and dtype."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole dataset."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def map(self, path: Path, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map."""
        return np.memmap(path, dtype=self.dtype, mode=mode, offset=self.offset, shape=self.shape)

    def vectors(self, path: Path, each: int, mode: Any = "r") -> np.memmap:
        """The dataset as a memory map of vectors, of which ``each`` stand in one row."""
        return self.map(path, mode).reshape(self.shape[0] * each, -1)  # type: ignore[return-value]


def datasets(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """All datasets of this very file by name, those of several names under each; links out of it are not followed."""
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.HardLink):
            item = group[key]
            if isinstance(item, h5py.Group):
                yield from datasets(item, f"{prefix}/{key}")
            elif isinstance(item, h5py.Dataset):
                yield f"{prefix}/{key}", item


def extents(f: h5py.File) -> dict[str, Extent]:
    """Extents of all contiguous datasets that hold something, by name."""
    return {
        name: Extent(ds.id.get_offset(), ds.shape, ds.dtype)
        for name, ds in datasets(f)
        if ds.chunks is None and ds.size and not ds.external and not ds.is_virtual
    }


def xxh3(array: np.ndarray) -> int:
    """xxh3 digest, 64 bits, of an array's bytes."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data)


def open_cache_file(path: Path) -> h5py.File:
    """``path`` as HDF5, read only; raises CacheError where there is none, CacheCorrupt where it cannot be opened."""
    if path.is_dir():
        raise CacheError(f"{path} is a folder; name a file, such as {path / 'cache.h5'}.")
    if not path.is_file():
        raise CacheError(f"{path}: there is no such file.")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if path.stat().st_size and "signature not found" in str(error):
            raise CacheMismatch(f"{path} is not an HDF5 file, so it is no probekit cache.") from error
        reason = "it is cut short" if "truncated file" in str(error) else f"HDF5 says {error}"
        raise CacheCorrupt(
            f"{path} is not a readable HDF5 file: {reason}. Make it again with probekit cache-activations --overwrite."
        ) from error


class Ragged:
    """Vectors of many examples, one after another: ``ragged[i]`` is (length[i], d).

    values : (t, d), or (t,) where they are numbers of pieces; start, length : int64 (n,)
    """

    def __init__(self, values: np.ndarray, start: np.ndarray, length: np.ndarray) -> None:
        self.values, self.start, self.length = values, start, length

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, i: int) -> np.ndarray:
        start = int(self.start[i])
        return self.values[start : start + int(self.length[i])]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))


class ActivationCache:
    """A finished activation cache, opened for reading. Nothing is read before it is asked for.

    Layers are named "0" … "L" and, where the model has one, "final_norm": layer 0 is what enters the first block,
    layer l the residual stream after block l.

        with ActivationCache("cola.h5") as cache:
            x, y = cache.layer(3), cache.labels       # (n, d), (n,)

    path : the file
    Raises CacheIncomplete for an unfinished file, CacheCorrupt for a damaged one, CacheMismatch for another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        while True:  # two looks at one file: HDF5's, and ours to map; another may be renamed into place in between
            self._file = open_cache_file(self.path)
            with self.path.open("rb") as raw:
                if os.path.samestat(os.fstat(raw.fileno()), os.fstat(self._file.id.get_vfd_handle())):
                    self._map = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)
                    break
            self._file.close()
        try:
            self._check()
        except BaseException as error:
            self.close()
            if isinstance(error, DAMAGE):
                raise CacheCorrupt(
                    f"{self.path}: its description cannot be read ({error}); make the cache again with --overwrite."
                ) from error
            raise

    def _check(self) -> None:
        attrs = self._file.attrs
        form = attrs.get("format")
        if form != FORMAT:
            what = "no probekit cache" if form is None else f"of format {form!r}"
            raise CacheMismatch(f"{self.path} is {what}; this version reads {FORMAT!r}.")
        if not attrs.get("complete", False):
            raise CacheIncomplete(f"{self.path} was never finished; run its probekit cache-activations command again.")
        self.spec: dict[str, Any] = json.loads(attrs["spec"])
        self.spec_id = str(attrs["spec_id"])
        self.spec["label_names"] = [str(x) for x in self._dataset("/label_names").asstr()[...]]
        self.layers: tuple[str, ...] = tuple(self.spec["layers"])
        self.poolings: tuple[str, ...] = tuple(self.spec["pooling"])
        self.width = int(self.spec["width"])
        if lacking := {"task", "split", "model", "kind", "n", "tokens", "pairs", "store", "counts"} - self.spec.keys():
            raise KeyError(f"no {', '.join(sorted(lacking))} in spec")

    def __enter__(self) -> ActivationCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that were read or mapped stay valid."""
        self._file.close()

    def __len__(self) -> int:
        return int(self.spec["n"])

    def __repr__(self) -> str:
        s = self.spec
        what = [*self.poolings, *([f"tokens ({s['tokens']})"] if s["tokens"] else [])]
        return (
            f"ActivationCache({str(self.path)!r}: {s['task']} {s['split']}, {len(self)} examples, {s['model']}, "
            f"layers {self.layers[0]}–{self.layers[-1]}, width {self.width}, {' + '.join(what)}, {s['store']})"
        )

    def _dataset(self, name: str) -> h5py.Dataset:
        """A dataset of this very file: links out of it are not followed."""
        if not self._file:
            raise UsageError(f"{self.path} was closed; open it again.")
        try:
            link = self._file.get(name, getlink=True)
            ds = self._file[name] if isinstance(link, h5py.HardLink) else None
        except (KeyError, OSError, RuntimeError) as error:
            raise CacheCorrupt(f"{self.path}: dataset {name} cannot be read; see probekit verify.") from error
        if not isinstance(ds, h5py.Dataset) or ds.external or ds.is_virtual:
            raise CacheCorrupt(f"{self.path}: {name} is no dataset of this file.")
        return ds

    def _read(self, name: str) -> np.ndarray:
        """A dataset as an array: a read-only memory map where it lies in one piece, decoded where it must be."""
        ds = self._dataset(name)
        try:
            offset = ds.id.get_offset() if ds.chunks is None and ds.size else None
            if offset is not None:
                array: np.ndarray = np.ndarray(ds.shape, ds.dtype, buffer=self._map, offset=offset)
            else:
                if ds.chunks is not None:
                    import hdf5plugin  # noqa: F401  registers zstd
                array = ds[...]
        except (OSError, ValueError) as error:
            raise CacheCorrupt(f"{self.path}: {name} cannot be read ({error}); see probekit verify.") from error
        return decode(array) if ds.attrs.get("encoding") == "bfloat16" else array

    def layer_name(self, layer: int | str) -> str:
        """The name of a layer that is given by name or number (negative ones count from the last block)."""
        name = str(layer)
        if name.startswith("-") and name[1:].isdigit():
            residual = [x for x in self.layers if x.isdigit()]
            name = residual[int(name)] if int(name[1:]) <= len(residual) else name
        if name not in self.layers:
            raise UsageError(f"{self.path} has no layer {layer!r}; it has {', '.join(self.layers)}.")
        return name

    def layer(self, layer: int | str, pooling: str | None = None) -> np.ndarray:
        """Pooled vectors of one layer, (n, d), rows in the order of the task; (n, 2 d) for separate pairs.

        layer : 0 … L, "final_norm", or negative to count from the last block
        pooling : the first one there is by default
        A read-only memory map of float32 or float16; float32 in memory where the cache is bfloat16.
        """
        if not self.poolings:
            raise UsageError(f"{self.path} holds no pooled vectors, only tokens; make a cache with --pooling mean.")
        pooling = self.poolings[0] if pooling is None else str(pooling)
        if pooling not in self.poolings:
            raise UsageError(f"{self.path} has no pooling {pooling!r}; it has {', '.join(self.poolings)}.")
        return self._read(f"/pooled/{pooling}/{self.layer_name(layer)}")

    def tokens(self, layer: int | str) -> Ragged:
        """Token vectors of one layer: ``.tokens(3)[i]`` is (length of example i, d).

        Of separately encoded pairs, item i holds the first sentence of example i and then the second sentences follow:
        item n + i is the second sentence of example i.
        """
        if not self.spec["tokens"]:
            raise UsageError(f"{self.path} holds no token vectors; make a cache with --tokens.")
        start, length = self._read("/index/start"), self._read("/index/length")
        return Ragged(
            self._read(f"/tokens/{self.layer_name(layer)}"), start.reshape(-1, order="F"), length.reshape(-1, order="F")
        )

    @property
    def labels(self) -> np.ndarray:
        """(n,) int64, -1 where unlabelled, or float64, NaN where unlabelled."""
        return self._dataset("/labels")[...]

    @property
    def ids(self) -> np.ndarray:
        """(n,) strings, the ids of the examples."""
        return np.array(self._dataset("/ids").asstr()[...], dtype=object)

    @property
    def domains(self) -> np.ndarray | None:
        """(n,) strings, the domains of the examples, or None where the task has none."""
        return np.array(self._dataset("/domains").asstr()[...], dtype=object) if "domains" in self._file else None

    @property
    def truncated(self) -> np.ndarray:
        """(n,) bool, whether the text was longer than the model reads."""
        return self._dataset("/truncated")[...].astype(bool)

    def index(self, name: str) -> np.ndarray:
        """One of the datasets of /index: start, length, token_ids, word_index, char_start, char_end, row_to_unique."""
        if name not in self._file["/index"]:
            raise UsageError(f"{self.path} has no index {name!r}; it has {', '.join(self._file['/index'])}.")
        return self._dataset(f"/index/{name}")[...]

    def rows(self, name: str) -> Any:
        """A dataset whose rows can be sliced without reading the others, as stored (bfloat16: uint16)."""
        ds = self._dataset(name)
        if ds.chunks is not None:
            import hdf5plugin  # noqa: F401  registers zstd

            return ds
        return np.ndarray(ds.shape, ds.dtype, buffer=self._map, offset=ds.id.get_offset()) if ds.size else ds[...]

    def special_rows(self) -> np.ndarray:
        """bool (t,), which rows of /tokens are pieces that the tokenizer added; none where the rows are words."""
        if self.spec["tokens"] == TokenLevel.PIECE:
            return self._pieces("flags") & 1 > 0
        return np.zeros(len(self.index("token_ids")), dtype=bool)

    def _words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token row, sentence and place in /word_labels of every word that was not cut off, in the task's order."""
        if self.spec["kind"] != "sequence-labelling":
            raise UsageError(f"{self.path}: {self.spec['task']} has one label a text, not one a word.")
        start, length, word = self.index("start"), self.index("length"), self.index("word_index")
        first_word = np.cumsum(count := self.index("word_count")) - count
        sentence = np.repeat(np.arange(len(start)), length)
        row = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length - start, length)
        w = word[row]
        first = (w >= 0) & ((w != np.roll(w, 1)) | (sentence != np.roll(sentence, 1)))
        first[:1] = w[:1] >= 0
        return row[first], sentence[first], first_word[sentence[first]] + w[first]

    def layer_words(self, layer: int | str) -> np.ndarray:
        """One vector a labelled word, (w, d), in the order of the task; in a piece-level cache its first piece's."""
        return self.tokens(layer).values[self._words()[0]]

    @property
    def word_labels(self) -> np.ndarray:
        """(w,) int64, the labels of the words that :meth:`layer_words` gives."""
        at = self._words()[2]
        return self._dataset("/word_labels")[...][at]

    @property
    def word_rows(self) -> np.ndarray:
        """(w,) int64, the row of /tokens that :meth:`layer_words` takes for each word."""
        return self._words()[0]

    @property
    def word_sentence(self) -> np.ndarray:
        """(w,) int64, the row of the example that each word of :meth:`layer_words` belongs to."""
        return self._words()[1]

    @property
    def pieces(self) -> tuple[Ragged, ...]:
        """Ids of the pieces that the model read, without special ones: a Ragged of n items for each text of an example.

        One, or two of pairs. Of jointly encoded pairs there is one, both texts in a row, where the tokenizer puts
        nothing between them (GPT-2).
        """
        length, flags = self._pieces("length"), self._pieces("flags")
        kept = flags & 1 == 0
        sequence = np.repeat(np.arange(len(length)), length)[kept]
        count = np.bincount(sequence, minlength=len(length))
        start = np.cumsum(count) - count
        ids, row = self._piece_ids()[kept], self.index("row_to_unique")
        if row.ndim == 2:
            return tuple(Ragged(ids, start[of], count[of]) for of in row.T)
        if self.spec["pairs"] is None:
            return (Ragged(ids, start[row], count[row]),)
        gaps = np.cumsum(~kept)[kept]  # special pieces so far
        second = flags[kept] & 2 > 0 if (flags & 2).any() else gaps > gaps[start[sequence]]
        if not second.any():
            return (Ragged(ids, start[row], count[row]),)
        first = count - np.bincount(sequence[second], minlength=len(count))
        return Ragged(ids, start[row], first[row]), Ragged(ids, (start + first)[row], (count - first)[row])

    @property
    def word_pieces(self) -> Ragged:
        """Ids of the pieces of each word of :meth:`layer_words`, w items."""
        row = self._words()[0]
        first, count = word_segments(self._pieces("length"), self._pieces("word_index"))
        word = np.searchsorted(first, row) if self.spec["tokens"] == TokenLevel.PIECE else row
        return Ragged(self._piece_ids(), first[word], count[word])

    def _piece_ids(self) -> np.ndarray:
        """Ids that mean the same in every cache of the model: int32 (t,), or int64 where the vocabulary is open.

        Each cache numbers the words of an open vocabulary in its own way, so that what counts is their characters'
        digest, whose 64 bits two words do not share.
        """
        ids = self._pieces("token_ids")
        if "characters" not in self._file["/pieces"]:
            return ids
        digests = [xxhash.xxh3_64_intdigest(row.tobytes()) for row in self._pieces("characters")]
        return np.array(digests, dtype=np.uint64).view(np.int64)[ids]

    def _pieces(self, name: str) -> np.ndarray:
        return self._dataset(f"/pieces/{name}")[...]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the file, as stored."""
        return dict(self._file.attrs)


def decode(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 values held as uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
