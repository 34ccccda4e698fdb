"""The activation cache, format ``probekit-activations/1``: its layout, and how to read it.

    /pooled/<pooling>/<layer>   (n, d)      one contiguous dataset per layer; (n, 2 d) for separately encoded pairs
    /tokens/<layer>             (t, d)      in the order of processing
    /index/start, /index/length (n)         the rows of an example in /tokens; (n, 2) for separate pairs
    /index/token_ids, word_index, char_start, char_end (t)
    /index/row_to_unique        (n)         the distinct text of each row; (n, 2) for separate pairs
    /index/role, position (t)               with --positions, and of conversations: the role of each row of /tokens,
                                            a row of /role_names, and its number in its sequence
    /generated/text, length, ended (n), token_ids   with --generate: what the model wrote after each text; the last
                                            piece of each has no row in /tokens, since the model did not read it
    /labels (n)   /ids (n)   /truncated (n)   /domains (n)   /label_names
    /groups (n) int32                       examples that belong together; the attribute "groups" says why
    /group_names                            names of declared groups, by number; "" for examples without a group
    /word_labels, /index/word_count (n)     for token-labelled tasks, words in the order of the task
    /targets/example, spans, second, labels (m)   for tasks about spans: see label_sets
    /label_values (n, label names)          several labels, or several numbers, of texts: see label_sets
    /pieces/…                               the model's input, distinct texts in the order of processing
    /blocks                                 dataset, start, stop, xxh3 of every written block
    attributes of /: format, complete, spec (JSON), spec_id, created, probekit

float32 and float16 are stored as such; bfloat16 as uint16 with the attribute ``encoding = "bfloat16"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from probekit.activations.checked import CheckedFile, Rows
from probekit.activations.folder import CheckedFolder, JoinedRows, open_checked
from probekit.activations.hdf5 import decode
from probekit.activations.pooling import TokenLevel, word_segments
from probekit.activations.ragged import Ragged, after_gap, second_pieces
from probekit.activations.remote import local
from probekit.activations.spec import check_spec
from probekit.addresses import is_address
from probekit.errors import CacheCorrupt, CacheIncomplete, UsageError
from probekit.files import parse_json
from probekit.hdf5 import DAMAGE
from probekit.recipe import Recipe
from probekit.sites import Site, choose, choose_all

if TYPE_CHECKING:
    from probekit.activations.batches import VectorBatch
    from probekit.activations.targets import Targets
    from probekit.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Words:
    """The labelled words of a cache, in the order of the task; one row per word.

    Attributes
    ----------
    vectors : (w, d) array
        Vectors of one layer.
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


class ActivationCache:
    """A finished activation cache, a file or a folder of shards, opened for reading; data are read as you access them.

    Layers are named "0" … "L" and, if the model has one, "final_norm": layer 0 is the input of the first block, layer l
    the residual stream after block l.

        with ActivationCache("cola.h5") as cache:
            x, y = cache.layer(3), cache.labels       # (n, d), (n,)

    Attributes
    ----------
    path : str | Path
        The file, or the folder with ``manifest.json``; or the URL of one in an object store (``s3://bucket/cola``): its
        shards are fetched to ``data_cache/remote`` when they are first read.

    Raises
    ------
    CacheIncomplete
        If the file is unfinished.
    CacheCorrupt
        If the file is damaged.
    CacheMismatch
        If the file has another format.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise UsageError(
                f"found the {type(path).__name__} {path!r:.60} where the path of one activation cache is expected; "
                'give each cache as a separate argument, such as ("train.h5", "dev.h5").'
            )
        self.path = local(path) if is_address(path) else Path(path)
        self._checked: CheckedFile | CheckedFolder = open_checked(self.path)
        try:
            self._check()
        except BaseException as error:
            self.close()
            if isinstance(error, DAMAGE):
                raise CacheCorrupt(
                    f"{self.path}: its description cannot be read ({error}); create the cache again with --overwrite."
                ) from error
            raise

    def _check(self) -> None:
        """Read the description, and compare it with the contents of the file."""
        attrs = self._checked.attrs
        if not attrs.get("complete", False):
            raise CacheIncomplete(
                f"{self.path} is unfinished; run the same probekit cache-activations command again to finish it."
            )
        self.spec: dict[str, Any] = parse_json(attrs["spec"])
        self.spec_id = str(attrs["spec_id"])
        check_spec(self.spec)
        self._checked.links, self._checked.sentences = self.spec.get("links", {}), int(self.spec["sentences"])
        self.spec["label_names"] = self._texts("/label_names").tolist()
        self.layers: tuple[str, ...] = tuple(self.spec["layers"])
        self.sites: tuple[Site, ...] = tuple(map(Site.parse, self.layers))
        self.poolings: tuple[str, ...] = tuple(self.spec["pooling"])
        self.width = int(self.spec["width"])
        self.widths: tuple[int, ...] = tuple(self.spec.get("widths") or (self.width,) * len(self.layers))
        self._check_shapes()

    def _check_shapes(self) -> None:
        """Raise CacheCorrupt if numbers of examples or columns differ from the description."""
        n, pooled = len(self), self.poolings[:1]
        expected: dict[str, tuple[int, ...]] = {f"/{name}": (n,) for name in ("labels", "ids", "truncated")}
        if len(self.widths) != len(self.layers):
            raise ValueError(f"{len(self.widths)} widths for {len(self.layers)} layers")
        for layer, width in zip(self.layers, self.widths, strict=True):
            expected |= {f"/pooled/{pooling}/{layer}": (n, width * self._checked.sentences) for pooling in pooled}
        for name, shape in expected.items():
            if (found := self._checked.shape(name)) != shape:
                raise CacheCorrupt(
                    f"{self.path}: {name} has the shape {found}, but the description says {shape}; "
                    "create the cache again with --overwrite."
                )

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
        from probekit.activations.description import model_of

        s = self.spec
        what = [*self.poolings, *([f"tokens ({s['tokens']})"] if s["tokens"] else [])]
        return (
            f"ActivationCache({str(self.path)!r}: {s['task']} {s['split']}, {len(self)} examples, {model_of(self)}, "
            f"layers {self.layers[0]}–{self.layers[-1]}, width {self.width}, {' + '.join(what)}, {s['store']})"
        )

    def _has(self, name: str) -> bool:
        """Whether there is a dataset with this name."""
        return name in self._checked

    def _read(self, name: str, *, mapped: bool = False) -> np.ndarray:
        """A dataset as an array, compared with its digests and decoded if necessary."""
        array = self._checked.values(name, mapped=mapped)
        return decode(np.asarray(array)) if self._checked.encoded(name) else array

    def _texts(self, name: str) -> np.ndarray:
        """A dataset of strings as an array of str."""
        array = self._checked.values(name)
        if array.dtype.kind != "S":
            raise CacheCorrupt(
                f"{self.path}: {name} does not hold strings of fixed length; create the cache again with --overwrite."
            )
        try:
            return np.array([text.decode() for text in array.tolist()], dtype=object)
        except UnicodeDecodeError as error:
            raise CacheCorrupt(f"{self.path}: {name} is not UTF-8; create the cache again with --overwrite.") from error

    def _numbers(self, name: str, kinds: str = "iu") -> np.ndarray:
        """A dataset of numbers of these kinds, as NumPy calls them."""
        array = self._checked.values(name)
        if array.dtype.kind not in kinds:
            raise CacheCorrupt(f"{self.path}: {name} holds no numbers; create the cache again with --overwrite.")
        return array

    def _described(self, name: str) -> dict[str, Any]:
        """An attribute of the file that is a JSON object; {} if it is missing."""
        try:
            return dict(parse_json(self._checked.attrs.get(name, "{}")))
        except (ValueError, TypeError) as error:
            raise CacheCorrupt(
                f"{self.path}: its {name} cannot be read ({error}); create the cache again with --overwrite."
            ) from error

    def _indices(self, name: str, stop: int, things: str, *, lowest: int = 0) -> np.ndarray:
        """A dataset of whole numbers, each from ``lowest`` to below ``stop``."""
        array = self._numbers(name)
        wrong = (array < lowest) | (array >= stop)
        if wrong.any():
            raise CacheCorrupt(
                f"{self.path}: {name} holds {array[wrong][0]}, but there are {stop} {things}; create the cache again "
                "with --overwrite."
            )
        return array

    def layer_name(self, layer: int | str | Site) -> str:
        """The name of a layer given by name or number (negative numbers count from the last block)."""
        return str(choose(layer, self.sites, str(self.path)))

    def layer_names(self, layers: Sequence[int | str | Site] | None = None) -> tuple[str, ...]:
        """The names of several layers, as :meth:`layer_name` gives them, without duplicates; None for all."""
        return tuple(map(str, choose_all(layers, self.sites, str(self.path))))

    def layer(self, layer: int | str | Site, pooling: str | None = None) -> np.ndarray:
        """Pooled vectors of one layer, (n, d), rows in the order of the task; (n, 2 d) for separate pairs.

        Read-only float32 or float16, verified with digests; in memory up to a gibibyte, a memory map above (of a folder
        of shards, rows that are read on access). For a bfloat16 cache, float32 in memory.

        Parameters
        ----------
        layer : int | str | Site
            0 … L, "final_norm", or negative to count from the last block.
        pooling : str, optional
            By default the first one in the cache.
        """
        return self._read(f"/pooled/{self.pooling_name(pooling)}/{self.layer_name(layer)}")

    def pooling_name(self, pooling: str | None = None) -> str:
        """A pooling of the cache; by default the first one."""
        if not self.poolings:
            raise UsageError(f"{self.path} has no pooled vectors, only tokens; create a cache with --pooling mean.")
        pooling = self.poolings[0] if pooling is None else str(pooling)
        if pooling not in self.poolings:
            raise UsageError(f"{self.path} has no pooling {pooling!r}; it has {', '.join(self.poolings)}.")
        return pooling

    def batches(
        self,
        layers: Sequence[int | str | Site] | None = None,
        *,
        size: int = 256,
        seed: int | None = None,
        pooling: str | None = None,
        tokens: bool = False,
    ) -> Iterator[VectorBatch]:
        """Batches of vectors of some layers, of a cache that may be larger than memory.

        About 16,000 rows are in memory at a time. Each part of the cache is compared with its digests before it is
        used. The order depends on the number of rows and the seed alone, not on files, shards or ``size``.

        Parameters
        ----------
        layers : Sequence[int | str | Site], optional
            By default all.
        size : int, default 256
            Rows in a batch; the last may have fewer.
        seed : int, optional
            Shuffles: 64 runs of 256 rows, drawn from the whole cache, are mixed at a time. None: the task's order.
        pooling : str, optional
            By default the first one in the cache.
        tokens : bool, default False
            Whether rows are those of ``/tokens`` instead of pooled vectors.

        Examples
        --------
        >>> for batch in cache.batches([3], size=512, seed=0):  # doctest: +SKIP
        ...     x, y = batch.vectors[0], cache.labels[batch.rows]
        """
        from probekit.activations.batches import batches

        return batches(self, layers, size, seed, pooling, tokens)

    def tokens(self, layer: int | str | Site) -> Ragged:
        """Token vectors of one layer: ``.tokens(3)[i]`` is (length of example i, d).

        For separately encoded pairs, item i is the first sentence of example i and item n + i its second sentence.
        """
        if not self.spec["tokens"]:
            raise UsageError(f"{self.path} has no token vectors; create a cache with --tokens.")
        values = self._read(f"/tokens/{self.layer_name(layer)}")
        start, length = self.places(len(values))
        return Ragged(values, start.reshape(-1, order="F"), length.reshape(-1, order="F"))

    def places(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """``/index/start`` and ``/index/length``: the rows of each example in ``/tokens``, which has ``rows`` rows."""
        start, length = self.index("start"), self.index("length")
        if ((start < 0) | (length < 0) | (start + length > rows)).any():
            raise CacheCorrupt(
                f"{self.path}: /index points beyond the {rows} rows of /tokens; create the cache again "
                "with --overwrite."
            )
        return start, length

    @property
    def labels(self) -> np.ndarray:
        """(n,) int64, -1 if unlabelled, or float64, NaN if unlabelled."""
        labels = self._numbers("/labels", "iuf")
        return labels if labels.dtype.kind == "f" else self._labels("/labels")

    @property
    def label_values(self) -> np.ndarray | None:
        """Several labels of each text, int8 (n, label names): 1 if the label holds, -1 if unlabelled.

        Or several numbers, float64, NaN if unlabelled; None if the task has one label or number.
        """
        if not self._has("/label_values"):
            return None
        found, shape = self._numbers("/label_values", "if"), (len(self), len(self.spec["label_names"]))
        if found.shape != shape:
            raise CacheCorrupt(f"{self.path}: /label_values has the shape {found.shape}, expected {shape}.")
        return found

    def _labels(self, name: str) -> np.ndarray:
        names = len(self.spec["label_names"])
        return self._indices(name, names, "classes", lowest=-1) if names else self._numbers(name)

    @property
    def ids(self) -> np.ndarray:
        """(n,) strings, the ids of the examples."""
        return self._texts("/ids")

    @property
    def domains(self) -> np.ndarray | None:
        """(n,) strings, the domains of the examples, or None if the task has none."""
        return self._texts("/domains") if self._has("/domains") else None

    @property
    def groups(self) -> np.ndarray | None:
        """(n,) int32, the same number for examples that belong together; None if no groups are stored."""
        return self._numbers("/groups") if self._has("/groups") else None

    @property
    def group_names(self) -> np.ndarray | None:
        """Strings, the names of declared groups by number, or None."""
        if not self._has("/group_names"):
            return None
        return self._texts("/group_names")

    @property
    def grouping(self) -> dict[str, Any]:
        """Origin of the groups: "made" (declared, found), and numbers of equal, shared and near copies."""
        return self._described("groups")

    @property
    def truncated(self) -> np.ndarray:
        """(n,) bool, whether the text was truncated."""
        return self._numbers("/truncated", "biu").astype(bool)

    def index(self, name: str) -> np.ndarray:
        """One of the datasets of /index: start, length, token_ids, word_index, char_start, char_end, row_to_unique."""
        if not self._has(f"/index/{name}"):
            raise UsageError(f"{self.path} has no index {name!r}; it has {', '.join(self._checked.names('/index'))}.")
        return self._numbers(f"/index/{name}")

    def rows(self, name: str) -> Rows | JoinedRows:
        """A dataset with random access to its rows, as stored (bfloat16: uint16)."""
        return self._checked.rows(name)

    def mapped_layer(self, layer: int | str | Site, pooling: str) -> np.ndarray:
        """:meth:`layer` as a memory map where possible; call :meth:`check_size` before each use."""
        return self._read(f"/pooled/{pooling}/{self.layer_name(layer)}", mapped=True)

    def check_size(self) -> None:
        """Raise CacheCorrupt if the file was truncated after it was opened; access to a map would kill the process."""
        self._checked.check_size()

    def special_rows(self) -> np.ndarray:
        """bool (t,), whether a row of /tokens is a special piece; all False if the rows are words."""
        if self.spec["tokens"] in (TokenLevel.PIECE, TokenLevel.CHOSEN):
            special = self._pieces("flags") & 1 > 0
            return special if self.spec["tokens"] == TokenLevel.PIECE else special[self._piece_of_row()]
        return np.zeros(len(self.index("token_ids")), dtype=bool)

    def _words(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token row, sentence and position in /word_labels of every word not truncated, in the task's order."""
        if self.spec["kind"] != "sequence-labelling":
            raise UsageError(f"{self.path}: {self.spec['task']} has one label per text, not one per word.")
        start, length, word = self.index("start"), self.index("length"), self.index("word_index")
        first_word = np.cumsum(count := self.index("word_count")) - count
        sentence = np.repeat(np.arange(len(start)), length)
        row = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length - start, length)
        w = word[row]
        first = (w >= 0) & ((w != np.roll(w, 1)) | (sentence != np.roll(sentence, 1)))
        first[:1] = w[:1] >= 0
        return row[first], sentence[first], first_word[sentence[first]] + w[first]

    def words(self, layer: int | str | Site) -> Words:
        """Vectors of one layer, labels and sentences of the labelled words (first pieces in a piece-level cache).

        ``/tokens`` holds the words of each distinct text once, in the order of processing; ``/word_labels`` the labels
        for each example, in the order of the task. This method aligns them and leaves out truncated words.
        """
        row, sentence, place = self._words()
        return Words(self.tokens(layer).values[row], self._labels("/word_labels")[place], sentence)

    def layer_words(self, layer: int | str | Site) -> np.ndarray:
        """One vector per labelled word, (w, d), in the order of the task; in a piece-level cache its first piece's."""
        return self.tokens(layer).values[self._words()[0]]

    @property
    def word_labels(self) -> np.ndarray:
        """(w,) int64, the labels of the words in :meth:`layer_words`."""
        at = self._words()[2]
        return self._labels("/word_labels")[at]

    @property
    def unread_words(self) -> np.ndarray:
        """(u,) int64, the labels of the labelled words without a vector: those that :meth:`layer_words` leaves out.

        The tokenizer leaves nothing of them (zero-width and control characters, for some), or the text was truncated.
        """
        every = self._labels("/word_labels")
        unread = every >= 0
        unread[self._words()[2]] = False
        return every[unread]

    @property
    def word_rows(self) -> np.ndarray:
        """(w,) int64, the row of /tokens for each word in :meth:`layer_words`."""
        return self._words()[0]

    @property
    def word_sentence(self) -> np.ndarray:
        """(w,) int64, the row of the example that each word of :meth:`layer_words` belongs to."""
        return self._words()[1]

    @property
    def targets(self) -> Targets:
        """The spans to classify as rows of ``/tokens``; for a task that labels words, each labelled word.

        Raises
        ------
        UsageError
            If the task labels no spans, or the cache holds no token vectors.
        """
        from probekit.activations.targets import targets

        return targets(self)

    def stored_targets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """``/targets``: example, spans, second, labels, and whether the spans count words; see :mod:`label_sets`."""
        if not self._has("/targets/spans"):
            raise UsageError(f"{self.path}: {self.spec['task']} has no labels of spans.")
        example = self._indices("/targets/example", len(self), "examples")
        spans, second, labels, words = (
            self._checked.values(f"/targets/{name}") for name in ("spans", "second", "labels", "in_words")
        )
        return example, spans, second.astype(bool), labels, words.astype(bool)

    def for_task(self, task: Task, split: str) -> ActivationCache:
        """The same vectors as a cache of another task, all of whose sentences this one holds.

        Parameters
        ----------
        task : Task
            One of the tasks whose sentences the cache was made of (``--task "A+B"``).
        split : str
            Its split.

        Raises
        ------
        CacheMismatch
            If the cache was not made of several tasks, or lacks a sentence.
        """
        from probekit.activations.view import view

        return view(self, task, split)

    @property
    def has_pieces(self) -> bool:
        """Whether the cache says which pieces its texts have; vectors of other programs may come without them."""
        return self._has("/pieces/length") and self._has("/pieces/token_ids")

    @property
    def pieces(self) -> tuple[Ragged, ...]:
        """Ids of the pieces that the model read, without special ones: a Ragged of n items for each text of an example.

        One Ragged, or two for pairs. Jointly encoded pairs have one, with both texts concatenated, if the tokenizer
        puts nothing between them (GPT-2).
        """
        length, flags = self._pieces("length"), self._pieces("flags")
        not_special = flags & 1 == 0
        sequence = np.repeat(np.arange(len(length)), length)[not_special]
        count = np.bincount(sequence, minlength=len(length))
        start = np.cumsum(count) - count
        ids, row = self._piece_ids()[not_special], self.index("row_to_unique")
        if row.ndim == 2:
            return tuple(Ragged(ids, start[of], count[of]) for of in row.T)
        if self.spec["pairs"] is None:
            return (Ragged(ids, start[row], count[row]),)
        second = self.second_pieces()[not_special]
        if not second.any():
            return (Ragged(ids, start[row], count[row]),)
        first = count - np.bincount(sequence[second], minlength=len(count))
        return Ragged(ids, start[row], first[row]), Ragged(ids, (start + first)[row], (count - first)[row])

    def second_pieces(self) -> np.ndarray:
        """bool (t,), which of all pieces belong to the second text of a jointly encoded pair."""
        length, flags = self._pieces("length"), self._pieces("flags")
        content = flags & 1 == 0
        if (flags & 2).any() or self.spec["pairs"] != "joint":
            return content & (flags & 2 > 0)
        return after_gap(length, content)

    def second_rows(self) -> np.ndarray:
        """bool (t,), which rows of a cache of chosen pieces belong to the second text of a jointly encoded pair."""
        length, flags, char_start = (self._pieces(name) for name in ("length", "flags", "char_start"))
        return second_pieces(length, flags & 1, flags >> 1, char_start)[self._piece_of_row()]

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
        """Ids with the same meaning in every cache of the model: int32 (t,), or int64 for an open vocabulary.

        Each cache numbers the words of an open vocabulary differently, so these are 64-bit digests of their characters.
        """
        ids = self._pieces("token_ids")
        if "/pieces/characters" not in self._checked:
            return ids
        digests = [xxhash.xxh3_64_intdigest(row.tobytes()) for row in self._pieces("characters")]
        return np.array(digests, dtype=np.uint64).view(np.int64)[ids]

    @property
    def generated(self) -> np.ndarray:
        """(n,) strings, what the model wrote after each text, without special pieces.

        The last piece that it wrote has no vector: the model never read it. ``generated_pieces`` includes it.

        Raises
        ------
        UsageError
            If the cache was made without ``generate``.
        """
        self._check_generated()
        return self._texts("/generated/text")

    @property
    def generated_pieces(self) -> Ragged:
        """Ids of the pieces that the model wrote after each text: a Ragged of n items."""
        self._check_generated()
        length = self._checked.values("/generated/length")
        return Ragged(self._checked.values("/generated/token_ids"), np.cumsum(length) - length, length)

    def _check_generated(self) -> None:
        if not self._has("/generated/text"):
            raise UsageError(f"{self.path} holds nothing that the model wrote; create a cache with --generate.")

    @property
    def roles(self) -> np.ndarray:
        """(t,) strings, the role of each row of ``/tokens``; see :data:`probekit.activations.positions.ROLES`.

        Raises
        ------
        UsageError
            If the cache has none: it was made without ``positions``, of texts that are not conversations.
        """
        names = self.index("role")  # raises if there is none
        return self._texts("/role_names")[names]

    def row_pieces(self) -> np.ndarray:
        """The id of the (first) piece of each row of ``/tokens``, with the same meaning in every cache of the model."""
        ids = self._piece_ids()
        return ids if self.spec["tokens"] == TokenLevel.PIECE else ids[self._piece_of_row()]

    def _piece_of_row(self) -> np.ndarray:
        if self.spec["tokens"] == TokenLevel.CHOSEN:
            return np.flatnonzero(self._pieces("chosen"))
        word = self._pieces("word_index")
        if self.spec["tokens"] == TokenLevel.WORD_PIECES:
            return np.flatnonzero(word >= 0)
        return word_segments(self._pieces("length"), word)[0]

    def _pieces(self, name: str) -> np.ndarray:
        return self._numbers(f"/pieces/{name}", "biuS")

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the file, as stored; of a folder, those of its manifest."""
        return dict(self._checked.attrs)

    @property
    def nbytes(self) -> int:
        """Bytes of the file, or of the files of a folder."""
        return self._checked.nbytes

    @property
    def origin(self) -> dict[str, Any]:
        """The training that produced the model: "run", "step", "trained_on", "regime", "head", "variant", "seed".

        {} for a model that probekit did not train, and for caches older than version 0.2, which do not store it.
        """
        return self._described("origin")

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the cache; None if it has none, or one of a later version."""
        try:
            return Recipe.from_json(parse_json(self._checked.attrs["recipe"]))
        except (KeyError, ValueError, UsageError):
            return None

    def __recipe__(self) -> str:
        """As an argument of another recipe: its file."""
        return str(self.path)

    def _repr_html_(self) -> str:
        from probekit.activations.description import describe
        from probekit.display import facts_html

        return facts_html(f"Activations {self.path.name}", describe(self))
