"""Tokens to one vector a sequence, word pieces to words.

Sums run in float32 in the order of the pieces, one sequence at a time, so that a pooled vector does not depend on what
else was in the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["Pooling", "Segments", "TokenLevel", "pool", "pool_words", "poolings", "word_segments"]


class Pooling(StrEnum):
    """How the pieces of a sequence become one vector.

    MEAN (Peters, Ruder & Smith 2019) and MAX leave out the pieces that the tokenizer added ([CLS], <s>, …);
    MEAN_ALL takes every piece; FIRST and LAST are the sequence's first and last piece, whatever they are.
    A sequence with no piece to pool gives zeros.
    """

    MEAN = "mean"
    MEAN_ALL = "mean-all"
    FIRST = "first"
    LAST = "last"
    MAX = "max"


class TokenLevel(StrEnum):
    """What a row of a token cache stands for: a word piece, or a word (its first piece, or the mean of its pieces)."""

    PIECE = "piece"
    WORD_FIRST = "word-first"
    WORD_MEAN = "word-mean"


def poolings(names: Iterable[str] | str) -> tuple[Pooling, ...]:
    """Poolings by name, each once; raises UsageError for a name that is none."""
    names = names.split(",") if isinstance(names, str) else names
    try:
        return tuple(dict.fromkeys(Pooling(name.strip()) for name in names))
    except ValueError as error:
        raise UsageError(f"{error}; the poolings are {', '.join(Pooling)}.") from None


@dataclass(frozen=True, slots=True)
class Segments:
    """Where the sequences of a batch lie in its (t, d) hidden states.

    rows : int64 (k,) the pieces that are pooled, or None for all of them
    length : int64 (s,) how many of these each sequence has
    """

    rows: torch.Tensor | None
    length: np.ndarray

    @classmethod
    def of(cls, length: np.ndarray, keep: np.ndarray | None, device: torch.device | str = "cpu") -> Segments:
        """Segments of sequences of these lengths; ``keep``, bool (t,), says which pieces count."""
        import torch

        if keep is None or keep.all():
            return cls(None, length)
        kept = np.add.reduceat(keep, np.cumsum(length) - length, dtype=np.int64)
        return cls(torch.from_numpy(np.flatnonzero(keep)).to(device), kept)


def pool(hidden: torch.Tensor, segments: Segments, how: Pooling) -> torch.Tensor:
    """One vector a segment, float32 (s, d), of hidden states (t, d); zeros for a segment with no piece."""
    import torch

    length = segments.length
    if segments.rows is not None:
        hidden = hidden.index_select(0, segments.rows)
    out = torch.zeros(len(length), hidden.shape[1], dtype=torch.float32, device=hidden.device)
    if how in (Pooling.FIRST, Pooling.LAST):
        last = np.cumsum(length) - 1
        at = last if how is Pooling.LAST else last + 1 - length
        some = np.flatnonzero(length)
        out[torch.from_numpy(some)] = hidden[torch.from_numpy(at[some]).to(hidden.device)].float()
        return out
    # Runs of equal length are reduced as one (sequences, length, d) block: three times as fast as segment_reduce.
    cuts = np.flatnonzero(np.diff(length)) + 1
    start = 0
    for a, b in zip([0, *cuts], [*cuts, len(length)], strict=True):
        m = int(length[a]) if b > a else 0
        if m:
            block = hidden[start : start + m * (b - a)].view(b - a, m, -1)
            if how is Pooling.MAX:
                out[a:b] = block.amax(1).float()
            else:
                out[a:b] = block.sum(1, dtype=torch.float32) / m
            start += m * (b - a)
    return out


def word_segments(length: np.ndarray, word_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words of a batch: int64 (w,) rows of their first pieces, and int64 (w,) how many pieces each has.

    length : int (s,) pieces of each sequence; word_index : int32 (t,), -1 for special pieces
    """
    start = np.zeros(len(word_index), dtype=bool)
    start[(np.cumsum(length) - length)[length > 0]] = True
    is_first = (word_index >= 0) & (start | (word_index != np.roll(word_index, 1)))
    first = np.flatnonzero(is_first)
    pieces = np.bincount((np.cumsum(is_first) - 1)[word_index >= 0], minlength=len(first))
    return first.astype(np.int64), pieces.astype(np.int64)


def pool_words(hidden: torch.Tensor, length: np.ndarray, word_index: np.ndarray, level: TokenLevel) -> torch.Tensor:
    """One vector a word, (w, d), from hidden states (t, d): its first piece, or float32 means of its pieces."""
    import torch

    first, pieces = word_segments(length, word_index)
    if level is TokenLevel.WORD_FIRST:
        return hidden.index_select(0, torch.from_numpy(first).to(hidden.device))
    kept = torch.from_numpy(np.flatnonzero(word_index >= 0)).to(hidden.device)
    lengths = torch.from_numpy(pieces).to(hidden.device)
    return torch.segment_reduce(hidden.index_select(0, kept).float(), "mean", lengths=lengths, axis=0)
