"""The activation cache, format ``probekit-activations/1``: what lies where, and how it is read.

    /pooled/<pooling>/<layer>   (n, d)      one contiguous dataset a layer; (n, 2 d) for separately encoded pairs
    /tokens/<layer>             (t, d)      in the order of processing
    /index/start, /index/length (n)         the rows of an example in /tokens; (n, 2) for separate pairs
    /index/token_ids, word_index, char_start, char_end (t)
    /index/row_to_unique        (n)         which of the distinct texts a row is; (n, 2) for separate pairs
    /labels (n)   /ids (n)   /truncated (n)   /domains (n)   /label_names
    /groups (n) int32                       examples that belong together; the attribute "groups" says why
    /group_names                            of declared groups, by their number; "" of examples that have none
    /word_labels, /index/word_count (n)     of token-labelled tasks, words in the order of the task
    /pieces/…                               what the model was fed, distinct texts in the order of processing
    /blocks                                 dataset, start, stop, xxh3 of every written block
    attributes of /: format, complete, spec (JSON), spec_id, created, probekit

float32 and float16 are stored as such; bfloat16 as uint16 with the attribute ``encoding = "bfloat16"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import xxhash

from probekit.activations.checked import CheckedFile, Rows
from probekit.activations.hdf5 import DAMAGE, decode
from probekit.activations.pooling import TokenLevel, word_segments
from probekit.errors import CacheCorrupt, CacheIncomplete, UsageError
from probekit.files import parse_json
from probekit.recipe import Recipe
from probekit.sites import Site, choose, choose_all

__all__ = ["ActivationCache", "Ragged", "Words"]


@dataclass(frozen=True, slots=True)
class Words:
    """The labelled words of a cache, in the order of the task; one row a word.

    Attributes
    ----------
    vectors : (w, d) array
        Of one layer.
    labels : (w,) int64
    sentence : (w,) int64
        The row of the example that each word belongs to.
    """

    vectors: np.ndarray
    labels: np.ndarray
    sentence: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<{len(self)} words of {len(np.unique(self.sentence))} examples, width {self.vectors.shape[1]}>"


class Ragged:
    """Vectors of many examples, one after another: ``ragged[i]`` is (length[i], d).

    Attributes
    ----------
    values : np.ndarray
        (t, d), or (t,) where they are numbers of pieces.
    start, length : np.ndarray
        int64 (n,).
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

    Attributes
    ----------
    path : str | Path
        The file.

    Raises
    ------
    CacheIncomplete
        For an unfinished file.
    CacheCorrupt
        For a damaged one.
    CacheMismatch
        For another format.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise UsageError(
                f"an activation cache is named by its path, 'CACHE.h5', not by a {type(path).__name__}; give each "
                "cache as an argument of its own."
            )
        self.path = Path(path)
        self._checked = CheckedFile(self.path)
        self._file = self._checked.f
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
        """Read the description, and hold it against what the file holds."""
        attrs = self._file.attrs
        if not attrs.get("complete", False):
            raise CacheIncomplete(f"{self.path} was never finished; run its probekit cache-activations command again.")
        self.spec: dict[str, Any] = parse_json(attrs["spec"])
        self.spec_id = str(attrs["spec_id"])
        if lacking := {"task", "split", "model", "kind", "n", "tokens", "pairs", "store", "counts"} - self.spec.keys():
            raise KeyError(f"no {', '.join(sorted(lacking))} in spec")
        self._checked.links, self._checked.sentences = self.spec.get("links", {}), int(self.spec["sentences"])
        self.spec["label_names"] = self._texts("/label_names").tolist()
        self.layers: tuple[str, ...] = tuple(self.spec["layers"])
        self.sites: tuple[Site, ...] = tuple(map(Site.parse, self.layers))
        self.poolings: tuple[str, ...] = tuple(self.spec["pooling"])
        self.width = int(self.spec["width"])
        self.widths: tuple[int, ...] = tuple(self.spec.get("widths") or (self.width,) * len(self.layers))
        self._check_shapes()

    def _check_shapes(self) -> None:
        """Raise CacheCorrupt where the file holds other numbers of examples or columns than its description says."""
        n, pooled = len(self), self.poolings[:1]
        wanted: dict[str, tuple[int, ...]] = {f"/{name}": (n,) for name in ("labels", "ids", "truncated")}
        if len(self.widths) != len(self.layers):
            raise ValueError(f"{len(self.widths)} widths of {len(self.layers)} layers")
        for layer, width in zip(self.layers, self.widths, strict=True):
            wanted |= {f"/pooled/{pooling}/{layer}": (n, width * self._checked.sentences) for pooling in pooled}
        for name, shape in wanted.items():
            if (found := self._checked.dataset(name).shape) != shape:
                raise CacheCorrupt(f"{self.path}: {name} is of the shape {found}, and its description says {shape}.")

    def __enter__(self) -> ActivationCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that were read or mapped stay valid."""
        self._checked.close()

    def __len__(self) -> int:
        return int(self.spec["n"])

    def __repr__(self) -> str:
        s = self.spec
        what = [*self.poolings, *([f"tokens ({s['tokens']})"] if s["tokens"] else [])]
        return (
            f"ActivationCache({str(self.path)!r}: {s['task']} {s['split']}, {len(self)} examples, {s['model']}, "
            f"layers {self.layers[0]}–{self.layers[-1]}, width {self.width}, {' + '.join(what)}, {s['store']})"
        )

    def _read(self, name: str, *, mapped: bool = False) -> np.ndarray:
        """A dataset as an array, compared with its digests and decoded where it must be."""
        array = self._checked.values(name, mapped=mapped)
        return decode(array) if self._encoded(name) else array

    def _encoded(self, name: str) -> bool:
        return self._checked.dataset(name).attrs.get("encoding") == "bfloat16"

    def _texts(self, name: str) -> np.ndarray:
        """A dataset of texts as an array of str."""
        array = self._checked.values(name)
        if array.dtype.kind != "S":
            raise CacheCorrupt(f"{self.path}: {name} holds no texts of fixed length; make the cache again.")
        return np.array([text.decode() for text in array.tolist()], dtype=object)

    def _indices(self, name: str, stop: int, what: str, *, lowest: int = 0) -> np.ndarray:
        """A dataset of whole numbers, each from ``lowest`` to below ``stop``."""
        array = self._checked.values(name)
        wrong = (array < lowest) | (array >= stop)
        if wrong.any():
            raise CacheCorrupt(
                f"{self.path}: {name} holds {array[wrong][0]}, and there are {stop} {what}; make the cache again."
            )
        return array

    def layer_name(self, layer: int | str | Site) -> str:
        """The name of a layer that is given by name or number (negative ones count from the last block)."""
        return str(choose(layer, self.sites, str(self.path)))

    def layer_names(self, layers: Sequence[int | str | Site] | None = None) -> tuple[str, ...]:
        """The names of several layers, as :meth:`layer_name` tells them, each once; all for None."""
        return tuple(map(str, choose_all(layers, self.sites, str(self.path))))

    def layer(self, layer: int | str | Site, pooling: str | None = None) -> np.ndarray:
        """Pooled vectors of one layer, (n, d), rows in the order of the task; (n, 2 d) for separate pairs.

        Read-only float32 or float16, whose bytes were compared with their digests; in memory up to a gibibyte, a memory
        map above. float32 in memory where the cache is bfloat16.

        Parameters
        ----------
        layer : int | str | Site
            0 … L, "final_norm", or negative to count from the last block.
        pooling : str, optional
            The first one there is by default.
        """
        if not self.poolings:
            raise UsageError(f"{self.path} holds no pooled vectors, only tokens; make a cache with --pooling mean.")
        pooling = self.poolings[0] if pooling is None else str(pooling)
        if pooling not in self.poolings:
            raise UsageError(f"{self.path} has no pooling {pooling!r}; it has {', '.join(self.poolings)}.")
        return self._read(f"/pooled/{pooling}/{self.layer_name(layer)}")

    def tokens(self, layer: int | str | Site) -> Ragged:
        """Token vectors of one layer: ``.tokens(3)[i]`` is (length of example i, d).

        Of separately encoded pairs, item i holds the first sentence of example i and then the second sentences follow:
        item n + i is the second sentence of example i.
        """
        if not self.spec["tokens"]:
            raise UsageError(f"{self.path} holds no token vectors; make a cache with --tokens.")
        values = self._read(f"/tokens/{self.layer_name(layer)}")
        start, length = self.places(len(values))
        return Ragged(values, start.reshape(-1, order="F"), length.reshape(-1, order="F"))

    def places(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """``/index/start`` and ``/index/length``: the rows of each example among so many rows of ``/tokens``."""
        start, length = self.index("start"), self.index("length")
        if ((start < 0) | (length < 0) | (start + length > rows)).any():
            raise CacheCorrupt(f"{self.path}: /index points out of the {rows} rows of /tokens; make the cache again.")
        return start, length

    @property
    def labels(self) -> np.ndarray:
        """(n,) int64, -1 where unlabelled, or float64, NaN where unlabelled."""
        labels = self._checked.values("/labels")
        return labels if labels.dtype.kind == "f" else self._labels("/labels")

    def _labels(self, name: str) -> np.ndarray:
        names = len(self.spec["label_names"])
        return self._indices(name, names, "classes", lowest=-1) if names else self._checked.values(name)

    @property
    def ids(self) -> np.ndarray:
        """(n,) strings, the ids of the examples."""
        return self._texts("/ids")

    @property
    def domains(self) -> np.ndarray | None:
        """(n,) strings, the domains of the examples, or None where the task has none."""
        return self._texts("/domains") if "domains" in self._file else None

    @property
    def groups(self) -> np.ndarray | None:
        """(n,) int32, examples that belong together have one number; None where none is stored."""
        return self._checked.values("/groups") if "groups" in self._file else None

    @property
    def group_names(self) -> np.ndarray | None:
        """Strings, the names of declared groups by their number, or None."""
        if "group_names" not in self._file:
            return None
        return self._texts("/group_names")

    @property
    def grouping(self) -> dict[str, Any]:
        """How the groups were made: "made" (declared, found), and how many examples are equal, share, nearly copy."""
        return dict(parse_json(self._file.attrs.get("groups", "{}")))

    @property
    def truncated(self) -> np.ndarray:
        """(n,) bool, whether the text was longer than the model reads."""
        return self._checked.values("/truncated").astype(bool)

    def index(self, name: str) -> np.ndarray:
        """One of the datasets of /index: start, length, token_ids, word_index, char_start, char_end, row_to_unique."""
        if name not in self._file["/index"]:
            raise UsageError(f"{self.path} has no index {name!r}; it has {', '.join(self._file['/index'])}.")
        return self._checked.values(f"/index/{name}")

    def rows(self, name: str) -> Rows:
        """A dataset whose rows can be read without the others, as stored (bfloat16: uint16)."""
        return self._checked.rows(name)

    def mapped_layer(self, layer: int | str | Site, pooling: str) -> np.ndarray:
        """What :meth:`layer` gives, as a memory map where it can be one; call :meth:`check_size` before each use."""
        return self._read(f"/pooled/{pooling}/{self.layer_name(layer)}", mapped=True)

    def check_size(self) -> None:
        """Raise CacheCorrupt where the file was cut short since it was opened: what is mapped would end the process."""
        self._checked.check_size()

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

    def words(self, layer: int | str | Site) -> Words:
        """Vectors of one layer, labels and sentences of the labelled words; in a piece-level cache of first pieces.

        ``/tokens`` holds the words of each distinct text once, in the order of processing; ``/word_labels`` those of
        each example, in the order of the task. Here they stand side by side, without words that were cut off.
        """
        row, sentence, place = self._words()
        return Words(self.tokens(layer).values[row], self._labels("/word_labels")[place], sentence)

    def layer_words(self, layer: int | str | Site) -> np.ndarray:
        """One vector a labelled word, (w, d), in the order of the task; in a piece-level cache its first piece's."""
        return self.tokens(layer).values[self._words()[0]]

    @property
    def word_labels(self) -> np.ndarray:
        """(w,) int64, the labels of the words that :meth:`layer_words` gives."""
        at = self._words()[2]
        return self._labels("/word_labels")[at]

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
        level = self.spec["tokens"]
        word = np.searchsorted(first, row) if level == TokenLevel.PIECE else row
        if level == TokenLevel.WORD_PIECES:  # its rows are the pieces of words
            word = np.searchsorted(first, np.flatnonzero(self._pieces("word_index") >= 0)[row])
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
        return self._checked.values(f"/pieces/{name}")

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the file, as stored."""
        return dict(self._file.attrs)

    @property
    def origin(self) -> dict[str, Any]:
        """The training that the model comes from: "run", "step", "trained_on", "regime", "head", "variant", "seed".

        {} of a model that was not trained by probekit, and of caches of before version 0.2, which do not tell.
        """
        return dict(parse_json(self._file.attrs.get("origin", "{}")))

    @property
    def recipe(self) -> Recipe | None:
        """What made it; None where that is not told, or of a later version."""
        try:
            return Recipe.from_json(parse_json(self._file.attrs["recipe"]))
        except (KeyError, ValueError, UsageError):
            return None

    def __recipe__(self) -> str:
        """As an argument of another recipe: its file."""
        return str(self.path)

    def _repr_html_(self) -> str:
        from probekit.activations.description import describe
        from probekit.display import facts_html

        return facts_html(f"Activations {self.path.name}", describe(self))
