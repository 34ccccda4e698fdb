"""Tokenised texts on the disk, so that a corpus may be larger than memory, and the batches read from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probekit.adaptation.data.batches import padded, piece_tensors
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.pretraining.masking import masked
from probekit.models.loading import TextReader
from probekit.runtime import Progress, no_progress

Rows = Sequence[int] | np.ndarray
CHUNK = 4096
"""Texts that are tokenised at once."""


class Types:
    """The distinct words of an open vocabulary, by their characters, in the order of their first occurrence."""

    def __init__(self) -> None:
        self.index: dict[bytes, int] = {}
        self.rows: list[np.ndarray] = []
        self._table = np.zeros((0, 0), np.int16)

    def ids(self, characters: np.ndarray) -> np.ndarray:
        """The index of each word, int64 (v,); new words are added.

        Parameters
        ----------
        characters : np.ndarray
            int16 (v, 50).
        """
        for row in characters:
            if self.index.setdefault(row.tobytes(), len(self.rows)) == len(self.rows):
                self.rows.append(row.copy())  # a view would keep all characters in memory
        return np.array([self.index[row.tobytes()] for row in characters], dtype=np.int64)

    def table(self) -> np.ndarray:
        """The characters of all words, int16 (v, 50)."""
        if len(self._table) < len(self.rows):
            self._table = np.stack(self.rows)
        return self._table


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Tokenised texts, as memory maps.

    Attributes
    ----------
    ids : np.ndarray
        int32 (t,), the pieces of all texts.
    special : np.ndarray
        bool (t,), pieces that the reader added.
    start : np.ndarray
        int64 (s + 1,), the first piece of each text, and t.
    types : Types, optional
        The words that ``ids`` index, for encoders that read characters.
    padding : int
        The id of padding.
    truncated : int
        Number of truncated texts.
    """

    ids: np.ndarray
    special: np.ndarray
    start: np.ndarray
    types: Types | None
    padding: int
    truncated: int

    @property
    def length(self) -> np.ndarray:
        """int64 (s,)."""
        return np.diff(self.start)

    def inputs(self, rows: Rows, characters: np.ndarray | None) -> dict[str, torch.Tensor]:
        """The encoder's inputs for some texts, padded; ``characters`` is the table of the types."""
        ids, special = (np.concatenate([of[a:b] for a, b in self.bounds(rows)]) for of in (self.ids, self.special))
        return piece_tensors(ids, special, self.length_of(rows), self.padding, characters)

    def length_of(self, rows: Rows) -> np.ndarray:
        """Pieces of some texts, int64."""
        at = np.asarray(rows)
        return np.asarray(self.start[at + 1] - self.start[at])

    def bounds(self, rows: Rows) -> list[tuple[int, int]]:
        """The first piece of each of some texts, and the one after its last."""
        return [(int(self.start[i]), int(self.start[i + 1])) for i in rows]


def tokenized(
    texts: Iterable[str],
    reader: TextReader,
    place: Path,
    *,
    types: Types | None = None,
    total: int = 0,
    progress: Progress = no_progress,
) -> Sequences:
    """The pieces of texts, written to files that begin with ``place``.

    Parameters
    ----------
    types : Types, optional
        Words of earlier texts, to which the words of these are added.
    total : int, default 0
        Number of texts, for the progress.
    """
    start, truncated, rest = [np.zeros(1, np.int64)], 0, iter(texts)
    with _file(place, "ids").open("wb") as ids, _file(place, "special").open("wb") as special:
        while chunk := list(islice(rest, CHUNK)):
            found = reader(chunk)
            pieces = found.token_ids
            if found.characters is not None:
                types = types or Types()
                pieces = types.ids(found.characters)[pieces]
            ids.write(np.ascontiguousarray(pieces, dtype=np.int32).tobytes())
            special.write(np.ascontiguousarray(found.special, dtype=np.bool_).tobytes())
            start.append(start[-1][-1] + np.cumsum(found.length))
            truncated += int(found.truncated.sum())
            progress("tokenizing", sum(map(len, start)) - 1, total)
    ends = np.concatenate(start)
    count = int(ends[-1])
    of_ids, of_special = (
        _mapped(_file(place, "ids"), np.int32, count),
        _mapped(_file(place, "special"), np.bool_, count),
    )
    return Sequences(of_ids, of_special, ends, types if types and types.rows else None, reader.padding_id, truncated)


def _file(place: Path, what: str) -> Path:
    return place.with_name(f"{place.name}.{what}")


def _mapped(path: Path, dtype: Any, count: int) -> np.ndarray:
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,)) if count else np.zeros(0, dtype)


def written(rows: Iterable[Sequence[int]], place: Path, max_length: int) -> Sequences:
    """The ids of output words in some rows, at most ``max_length`` each, in files that begin with ``place``."""
    start, truncated = [0], 0
    with _file(place, "ids").open("wb") as ids:
        for found in rows:
            ids.write(np.array(found[:max_length], np.int32).tobytes())
            start.append(start[-1] + min(len(found), max_length))
            truncated += len(found) > max_length
    kept = _mapped(_file(place, "ids"), np.int32, start[-1])
    return Sequences(kept, np.zeros(0, np.bool_), np.array(start), None, IGNORED, truncated)


class SequenceData:
    """Texts, or pairs of texts, with what is predicted from them, as training data.

    Attributes
    ----------
    first, second : Sequences
        The texts that the encoder reads; ``second`` for pairs.
    targets : Sequences, optional
        Sequences of output words.
    labels : np.ndarray, optional
        int64 (n,), classes; without labels and targets, all are 0.
    partner : np.ndarray, optional
        int64 (n,), the row of ``second`` that belongs to each row of ``first``; by default the same.
    of_types : np.ndarray, optional
        int64 (v,), the output word of each piece of ``first``: the targets are the texts themselves.
    """

    def __init__(
        self,
        first: Sequences,
        second: Sequences | None = None,
        *,
        targets: Sequences | None = None,
        labels: np.ndarray | None = None,
        partner: np.ndarray | None = None,
        of_types: np.ndarray | None = None,
    ) -> None:
        self.first, self.second, self.targets, self.labels, self.of_types = first, second, targets, labels, of_types
        self.partner = np.arange(len(first.length)) if partner is None else partner
        self.length = first.length + (0 if second is None else second.length[self.partner])
        self.order = np.arange(len(self.length))
        self.nbytes = 4.0 * float(self.length.mean()) if len(self.length) else 0.0
        self.characters = None if first.types is None else first.types.table()

    def __len__(self) -> int:
        return len(self.length)

    @property
    def truncated(self) -> int:
        """Number of truncated texts, with targets."""
        return sum(part.truncated for part in (self.first, self.second, self.targets) if part is not None)

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        batch = {"first": self.first.inputs(rows, self.characters)}
        if self.second is not None:
            batch["second"] = self.second.inputs(self.partner[list(rows)], self.characters)
        return {"labels": self._labels(rows), **batch}

    def _labels(self, rows: Sequence[int]) -> torch.Tensor:
        of = self.first if self.of_types is not None else self.targets
        if of is None:
            return torch.from_numpy(np.zeros(len(rows), np.int64) if self.labels is None else self.labels[list(rows)])
        ids = np.concatenate([of.ids[a:b] for a, b in of.bounds(rows)]).astype(np.int64)
        if self.of_types is not None:
            ids = self.of_types[ids]
        return padded(ids, of.length_of(rows), IGNORED)


class MaskedData(SequenceData):
    """Texts with hidden pieces, which the labels are.

    torch's default generator draws the pieces, so those of a batch in training follow from the seed and the step.

    Attributes
    ----------
    mask, vocabulary : int
        The piece of a mask, and the number of pieces.
    """

    def __init__(self, first: Sequences, of_types: np.ndarray, *, mask: int, vocabulary: int) -> None:
        super().__init__(first, of_types=of_types)
        self.mask, self.vocabulary = mask, vocabulary

    def __getitems__(self, rows: Sequence[int]) -> Mapping[str, Any]:
        batch = super().__getitems__(rows)
        first, labels = batch["first"], batch["labels"]
        special = first["special"] | (labels == IGNORED)
        pieces, chosen = masked(
            first["input_ids"], special, mask=self.mask, vocabulary=self.vocabulary, draw=torch.default_generator
        )
        return {"labels": labels.masked_fill(~chosen, IGNORED), "first": {**first, "input_ids": pieces}}

    def drawn(self, seed: int) -> SequenceData:
        """The same texts with one drawing of hidden pieces, for validation."""
        first = self.first
        pieces, chosen = masked(
            torch.from_numpy(first.ids.astype(np.int64)), torch.from_numpy(first.special.copy()),
            mask=self.mask, vocabulary=self.vocabulary, draw=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        assert self.of_types is not None
        labels = np.where(chosen.numpy(), self.of_types[first.ids], IGNORED)
        return SequenceData(replace(first, ids=pieces.numpy()), targets=replace(first, ids=labels, truncated=0))
