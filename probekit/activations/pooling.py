"""Pool tokens to one vector per sequence, and word pieces to words.

Sums run in float32 in the order of the pieces, one sequence at a time, so a pooled vector does not depend on the rest
of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from probekit.errors import UsageError

if TYPE_CHECKING:
    import torch


class Pooling(StrEnum):
    """How the pieces of a sequence become one vector.

    MEAN (Peters, Ruder & Smith 2019) and MAX leave out the pieces that the tokenizer added ([CLS], <s>, …); MEAN_ALL
    uses every piece; FIRST and LAST are the first and last piece of the sequence, special or not. A sequence without
    pieces to pool gives zeros. If ``--positions`` chooses pieces, all poolings are of these, special or not, and a
    sequence without any gives NaN.
    """

    MEAN = "mean"
    MEAN_ALL = "mean-all"
    FIRST = "first"
    LAST = "last"
    MAX = "max"


class Ema(str):
    """The pooling "ema:DECAY": the exponential moving average of the pieces that MEAN pools, at the last of them.

    It begins with the first piece, and each further one changes it to DECAY times itself plus 1 - DECAY times the
    piece. The score that a linear probe gives it is the moving average of the pieces' scores.
    """

    __slots__ = ()

    @property
    def decay(self) -> float:
        """Between 0 and 1."""
        return float(self.partition(":")[2])

    @classmethod
    def parse(cls, name: str) -> Ema | None:
        """The pooling as it is written, with a decay of 0.9 if none is given; None for another name.

        Raises
        ------
        UsageError
            If the decay is not between 0 and 1.

        Examples
        --------
        >>> Ema.parse("ema"), Ema.parse("ema:.50"), Ema.parse("mean")
        ('ema:0.9', 'ema:0.5', None)
        """
        base, colon, decay = name.partition(":")
        if base != "ema":
            return None
        try:
            given = float(decay) if colon else 0.9
        except ValueError:
            given = 0.0
        if not 0 < given < 1:
            raise UsageError(f"pooling is {name!r}; expected ema:DECAY with a decay between 0 and 1, such as ema:0.9.")
        return cls(f"ema:{given:g}")


class Sentence(str):
    """The pooling "sentence:MODE" or "sentence:MODE:unit": that of a model of sentence-transformers, over every piece.

    ``unit`` scales each vector to length 1. "sentence" alone stands for that of the model (see
    :func:`probekit.activations.sentence.with_own`). The modes are those of sentence-transformers.
    """

    __slots__ = ()

    MODES = ("mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean")

    @property
    def mode(self) -> str:
        """How pieces become one vector; "" if that is not known yet."""
        return self.split(":")[1] if ":" in self else ""

    @property
    def unit(self) -> bool:
        """Whether vectors have length 1."""
        return self.endswith(":unit")

    @classmethod
    def parse(cls, name: str) -> Sentence | None:
        """The pooling as it is written; None for another name.

        Raises
        ------
        UsageError
            For an unknown mode.

        Examples
        --------
        >>> Sentence.parse("sentence:mean:unit"), Sentence.parse("mean")
        ('sentence:mean:unit', None)
        """
        base, _, rest = name.partition(":")
        if base != "sentence":
            return None
        if rest.removesuffix(":unit") not in ("", *cls.MODES) or rest == ":unit":
            raise UsageError(f"pooling is {name!r}; expected sentence, that of a model of sentence-transformers.")
        return cls(name)


class TokenLevel(StrEnum):
    """Unit of a row in a token cache: a word piece, or a word (its first piece, or the mean of its pieces).

    WORD_PIECES are the pieces of words only, without special pieces and without context; CHOSEN are those that
    ``--positions`` chooses.
    """

    PIECE = "piece"
    WORD_PIECES = "word-pieces"
    WORD_FIRST = "word-first"
    WORD_MEAN = "word-mean"
    CHOSEN = "chosen"


def poolings(names: Iterable[str] | str) -> tuple[Pooling | Ema | Sentence, ...]:
    """Poolings by name, without duplicates; raises UsageError for an unknown name."""
    given = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    requested = [Ema.parse(name) or Sentence.parse(name) or name for name in given]
    if unknown := [name for name in requested if not isinstance(name, Ema | Sentence) and name not in set(Pooling)]:
        first = " Give first for the vector of [CLS]." if unknown[0].strip("[]").lower() in ("cls", "<s>") else ""
        known = ", ".join((*Pooling, "ema", "sentence"))
        raise UsageError(f"there is no pooling {unknown[0]!r}; expected one or more of {known}.{first}")
    return tuple(dict.fromkeys(n if isinstance(n, Ema | Sentence) else Pooling(n) for n in requested))


@dataclass(frozen=True, slots=True)
class Segments:
    """Positions of the sequences of a batch in its (t, d) hidden states. Rows and starts are int64.

    Attributes
    ----------
    start : torch.Tensor
        (s,) first piece of each sequence.
    last : torch.Tensor
        (s,) last piece of each sequence.
    rows : torch.Tensor
        (k,) the pieces that the tokenizer did not add.
    rows_start : torch.Tensor
        (s,) index in ``rows`` at which each sequence begins.
    special : torch.Tensor
        (t - k,) the other pieces.
    empty : torch.Tensor
        Sequences without pieces in ``rows``.
    runs : tuple[tuple[int, int], ...]
        (number of sequences, their length) of each run of equally long sequences.
    inner : tuple[slice, ...] or None
        The pieces of each sequence of a run that are in ``rows``; None if these are not the same neighbours in all.
    nothing : float
        The vector of a sequence without pieces.
    rows_count : np.ndarray
        int64 (s,), how many of ``rows`` each sequence has.
    """

    start: torch.Tensor
    last: torch.Tensor
    rows: torch.Tensor
    rows_start: torch.Tensor
    special: torch.Tensor
    empty: torch.Tensor
    runs: tuple[tuple[int, int], ...]
    inner: tuple[slice, ...] | None = None
    nothing: float = 0.0
    rows_count: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        length: np.ndarray,
        special: np.ndarray,
        device: torch.device | str = "cpu",
        chosen: np.ndarray | None = None,
    ) -> Segments:
        """Segments of sequences of these lengths, none of them 0; ``special``, bool (t,), marks the tokenizer's.

        ``chosen``, bool (t,), are the pieces to pool, first and last ones included; by default those not special.
        """
        import torch

        stop = np.cumsum(length)
        first, last = stop - length, stop - 1
        if chosen is not None:
            special, at = ~chosen, np.flatnonzero(np.append(chosen, True))  # a sequence without any is overwritten
            before = np.maximum(np.searchsorted(at, stop) - 1, 0)
            first, last = np.minimum(at[np.searchsorted(at, first)], last), np.minimum(at[before], last)
        n_pooled = np.add.reduceat(special == 0, stop - length, dtype=np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(length)) + 1).tolist(), len(length)]
        runs = tuple((b - a, int(length[a])) for a, b in pairwise(cuts))
        starts = (stop - length)[cuts[:-1]]
        inner = [_inner(special[a : a + n * m].reshape(n, m)) for a, (n, m) in zip(starts, runs, strict=True)]

        def tensor(rows: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(rows.astype(np.int64)).to(device)

        return cls(
            start=tensor(first),
            last=tensor(last),
            rows=tensor(np.flatnonzero(special == 0)),
            rows_start=tensor(np.cumsum(n_pooled) - n_pooled),
            special=tensor(np.flatnonzero(special)),
            empty=tensor(np.flatnonzero(n_pooled == 0)),
            runs=runs,
            inner=None if None in inner else tuple(part for part in inner if part is not None),
            nothing=0.0 if chosen is None else np.nan,
            rows_count=n_pooled,
        )


def _inner(special: np.ndarray) -> slice | None:
    """The pieces of equally long sequences that are not special, bool (n, m); None if they are not neighbours."""
    kept = np.flatnonzero(special[0] == 0)
    neighbours = len(kept) > 0 and kept[-1] - kept[0] == len(kept) - 1 and bool((special == special[0]).all())
    return slice(int(kept[0]), int(kept[-1]) + 1) if neighbours else None


def pool(hidden: torch.Tensor, segments: Segments, pooling: Pooling | Ema | Sentence) -> torch.Tensor:
    """One vector per sequence, (s, d), from float32 hidden states (t, d).

    A sequence without pieces to pool gives zeros, or NaN where pieces were chosen.
    """
    if isinstance(pooling, Sentence):
        return _sentence(hidden, segments, pooling)
    pooled = _pool(hidden, segments, pooling)
    return pooled if segments.nothing == 0 else pooled.index_fill_(0, segments.empty, segments.nothing)


def _pool(hidden: torch.Tensor, segments: Segments, pooling: Pooling | Ema) -> torch.Tensor:
    import torch

    if isinstance(pooling, Ema):
        assert segments.rows_count is not None
        weights = torch.from_numpy(ema_weights(segments.rows_count, pooling.decay)).to(hidden.device)
        return torch.nn.functional.embedding_bag(
            segments.rows, hidden, segments.rows_start, mode="sum", per_sample_weights=weights
        )
    if pooling is Pooling.FIRST:
        return hidden.index_select(0, segments.start)
    if pooling is Pooling.LAST:
        return hidden.index_select(0, segments.last)
    if pooling is Pooling.MEAN:
        return bag_means(segments.rows, hidden, segments.rows_start)
    if pooling is Pooling.MEAN_ALL:
        return bag_means(torch.arange(len(hidden), device=hidden.device), hidden, segments.start)
    inner = segments.inner
    if inner is None:
        hidden, inner = hidden.index_fill(0, segments.special, -torch.inf), (slice(None),) * len(segments.runs)
    out = hidden.new_empty(len(segments.start), hidden.shape[1])
    blocks, into = hidden.split([n * m for n, m in segments.runs]), out.split([n for n, _ in segments.runs])
    for block, vectors, part in zip(blocks, into, inner, strict=True):  # four times as fast as segment_reduce
        torch.amax(block.view(len(vectors), -1, hidden.shape[1])[:, part], 1, out=vectors)
    return out.index_fill_(0, segments.empty, 0.0)


def _sentence(hidden: torch.Tensor, segments: Segments, pooling: Sentence) -> torch.Tensor:
    """The vectors that sentence-transformers makes of all pieces, (s, d)."""
    import torch

    if pooling.mode in ("cls", "lasttoken"):
        out = _pool(hidden, segments, Pooling.FIRST if pooling.mode == "cls" else Pooling.LAST)
    elif pooling.mode == "max":
        blocks = hidden.split([n * m for n, m in segments.runs])
        out = torch.cat([torch.amax(x.view(n, m, -1), 1) for x, (n, m) in zip(blocks, segments.runs, strict=True)])
    else:
        length = np.concatenate([np.full(n, m) for n, m in segments.runs])
        place = np.arange(len(hidden)) - np.repeat(np.cumsum(length) - length, length) + 1.0
        size = np.repeat(length, length)
        weights = {
            "mean": 1 / size, "mean_sqrt_len_tokens": size**-0.5, "weightedmean": 2 * place / (size * (size + 1.0)),
        }[pooling.mode].astype(np.float32)  # fmt: skip
        out = torch.nn.functional.embedding_bag(
            torch.arange(len(hidden), device=hidden.device), hidden, segments.start, mode="sum",
            per_sample_weights=torch.from_numpy(weights).to(hidden.device),
        )  # fmt: skip
    return torch.nn.functional.normalize(out, dim=-1) if pooling.unit else out


def ema_weights(count: np.ndarray, decay: float) -> np.ndarray:
    """The weight of each piece in the moving average at the last one, float32 (sum of count,).

    Parameters
    ----------
    count : np.ndarray
        int64 (s,), the pieces of each sequence.
    decay : float
        Between 0 and 1.
    """
    stop = np.cumsum(count)
    later = np.repeat(stop, count) - np.arange(int(count.sum())) - 1  # pieces after each
    weights = (1 - decay) * decay**later
    first = (stop - count)[count > 0]
    weights[first] = decay ** later[first]
    return weights.astype(np.float32)


def bag_means(rows: torch.Tensor, values: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Means (s, d) of float32 values[rows[start[i] : start[i + 1]]]; zeros for empty bags. No mean depends on another.

    An embedding bag sums in the order of the rows, seven times as fast as segment_reduce.
    """
    import torch

    return torch.nn.functional.embedding_bag(rows, values, start, mode="mean")


def word_segments(length: np.ndarray, word_index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words of a batch: int64 (w,) rows of their first pieces, and int64 (w,) number of pieces of each.

    Parameters
    ----------
    length : np.ndarray
        Int (s,) pieces of each sequence.
    word_index : np.ndarray
        int32 (t,), -1 for special pieces.
    """
    start = np.zeros(len(word_index), dtype=bool)
    start[(np.cumsum(length) - length)[length > 0]] = True
    is_first = (word_index >= 0) & (start | (word_index != np.roll(word_index, 1)))
    first = np.flatnonzero(is_first)
    pieces = np.bincount((np.cumsum(is_first) - 1)[word_index >= 0], minlength=len(first))
    return first.astype(np.int64), pieces.astype(np.int64)


def token_rows(length: np.ndarray, word_index: np.ndarray, level: TokenLevel) -> tuple[np.ndarray, np.ndarray]:
    """The pieces behind each row of a token cache: int64 first piece, and int64 number of pieces.

    Arguments as in :func:`word_segments`; for CHOSEN, ``word_index`` is -1 for pieces that are not chosen.
    """
    if level not in (TokenLevel.WORD_PIECES, TokenLevel.CHOSEN):
        return word_segments(length, word_index)
    rows = np.flatnonzero(word_index >= 0)
    return rows, np.ones(len(rows), dtype=np.int64)


def pool_words(hidden: torch.Tensor, length: np.ndarray, word_index: np.ndarray, level: TokenLevel) -> torch.Tensor:
    """Rows of a token cache, (w, d), from hidden states (t, d): first piece, float32 mean, or all pieces of a word."""
    import torch

    first, pieces = token_rows(length, word_index, level)
    if level is not TokenLevel.WORD_MEAN:
        return hidden.index_select(0, torch.from_numpy(first).to(hidden.device))
    word_rows = torch.from_numpy(np.flatnonzero(word_index >= 0)).to(hidden.device)
    start = torch.from_numpy(np.cumsum(pieces) - pieces).to(hidden.device)
    return bag_means(word_rows, hidden.float(), start)
