"""The word pieces of a job, on the disk as soon as they are known: memory holds those of one block at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from probekit.activations.hdf5 import Extent
from probekit.activations.pooling import TokenLevel, token_rows
from probekit.activations.positions import Marks
from probekit.activations.writing.journal import writing
from probekit.models.encoder import Tokens

PIECE = np.dtype(
    [
        ("token_ids", np.int32), ("special", np.bool_), ("type_ids", np.uint8), ("word_index", np.int32),
        ("char_start", np.int32), ("char_end", np.int32),
    ]
)  # fmt: skip
"""What :class:`Tokens` says of each piece."""
OF_TOKENS = frozenset(f"/pieces/{name}" for name in ("flags", *(PIECE.names or ())))
"""The datasets that hold it."""
AT_A_TIME = 1 << 18
"""Pieces that are read at a time."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of s texts, in a file.

    Attributes
    ----------
    file : file
        One :data:`PIECE` for each piece; it has no name and ends with this process.
    start : np.ndarray
        int64 (s + 1,), the first piece of each text, and the number of pieces.
    truncated : np.ndarray
        Bool (s,), whether a text was truncated.
    characters : np.ndarray, optional
        The words of an open vocabulary; see :class:`Tokens`.
    """

    file: IO[bytes]
    start: np.ndarray
    truncated: np.ndarray
    characters: np.ndarray | None

    @property
    def length(self) -> np.ndarray:
        """int64 (s,), pieces of each text."""
        return np.diff(self.start)

    def tokens(self, first: int, last: int) -> Tokens:
        """The pieces of the texts ``first`` … ``last - 1``."""
        a, b = (int(self.start[k]) for k in (first, last))
        rows = Extent(a * PIECE.itemsize, (b - a,), PIECE).read(self.file.fileno())
        values = {name: np.ascontiguousarray(rows[name]) for name in PIECE.names or ()}
        length = np.diff(self.start[first : last + 1])
        return Tokens(**values, length=length, truncated=self.truncated[first:last], characters=self.characters)

    def parts(self) -> Iterator[tuple[int, int]]:
        """The texts in order, as ranges of about as many pieces as are read at a time."""
        first = 0
        while first < len(self.truncated):
            last = int(np.searchsorted(self.start, self.start[first] + AT_A_TIME, side="right")) - 1
            yield first, max(first + 1, last)
            first = max(first + 1, last)


@contextmanager
def spilled(parts: Iterable[Tokens], out: Path) -> Iterator[Pieces]:
    """Write pieces to a file in the folder of ``out`` as they come; it is gone after the block.

    The words of an open vocabulary are numbered in the order of their first occurrence.

    Raises
    ------
    CacheError
        If the disk is full.
    """
    words: dict[bytes, int] = {}
    length, truncated, wide = [], [], 0
    with writing(out):
        file = tempfile.TemporaryFile(dir=out.parent)  # noqa: SIM115  closed below
    with file:
        for tokens in parts:
            rows = np.empty(len(tokens.token_ids), PIECE)
            for name in PIECE.names or ():
                rows[name] = getattr(tokens, name)
            if (table := tokens.characters) is not None:
                number = np.array([words.setdefault(row.tobytes(), len(words)) for row in table], np.int32)
                rows["token_ids"], wide = number[tokens.token_ids], table.shape[1]
            length.append(tokens.length.astype(np.int32))
            truncated.append(tokens.truncated)
            with writing(out):
                file.write(rows.view(np.uint8).data)
                file.flush()
        start = np.zeros(sum(map(len, length)) + 1, dtype=np.int64)
        np.cumsum(np.concatenate(length), out=start[1:])
        characters = np.frombuffer(b"".join(words), np.int16).reshape(-1, wide) if wide else None
        del words, length
        yield Pieces(file, start, np.concatenate(truncated), characters)


def permuted(tokens: Tokens, order: np.ndarray) -> tuple[Tokens, np.ndarray]:
    """The same sequences in another order, and the piece that each piece was before."""
    length = tokens.length.astype(np.int64)
    start = np.cumsum(length) - length
    rows = _ranges(start[order], length[order])
    by_piece = {name: getattr(tokens, name)[rows] for name in PIECE.names or ()}
    return replace(tokens, length=length[order], truncated=tokens.truncated[order], **by_piece), rows


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """int64: the ``length[i]`` numbers from each ``start[i]`` on, concatenated."""
    return np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length)


def columns(tokens: Tokens, level: str | None, marks: Marks | None = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a cache stores of each piece, and of each row of ``/tokens``.

    Parameters
    ----------
    tokens : Tokens
        s sequences in the order in which they run.
    level : str, optional
        The unit of the rows of ``/tokens``; None if there are none.
    marks : Marks, optional
        Roles and positions of the pieces.

    Returns
    -------
    tuple[dict[str, np.ndarray], np.ndarray]
        The datasets by name, and int64 (s,), the rows of each sequence. The rows of "piece" are the pieces themselves.
    """
    names = ("token_ids", "word_index", "char_start", "char_end") if level else ("token_ids",)
    by_piece = {name: getattr(tokens, name).astype(np.int32, copy=False) for name in names}
    found = {"/pieces/flags": tokens.special.astype(np.uint8) | (tokens.type_ids.astype(np.uint8) << 1)}
    found |= {f"/pieces/{name}": a for name, a in by_piece.items()}
    if marks is not None:
        if marks.chosen is not None:
            found["/pieces/chosen"] = marks.chosen.astype(np.uint8)
        if level:
            by_piece |= {"role": marks.role, "position": marks.position}
            found |= {f"/pieces/{name}": by_piece[name] for name in ("role", "position")}
    length = tokens.length.astype(np.int64)
    if level in (None, TokenLevel.PIECE):
        return found, length if level else np.zeros_like(length)
    words = tokens.word_index
    if level == TokenLevel.CHOSEN:
        assert marks is not None
        assert marks.chosen is not None
        words = marks.chosen.astype(np.int32) - 1
    first, pieces = token_rows(length, words, TokenLevel(str(level)))
    last = first + pieces - 1
    found |= {f"/index/{name}": a[last if name == "char_end" else first] for name, a in by_piece.items()}
    return found, np.diff(np.searchsorted(first, np.append(0, np.cumsum(length))))
