"""Pieces of texts in concatenated arrays of different lengths, and those of the second text of a pair."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class Ragged:
    """Concatenated vectors of many examples: ``ragged[i]`` is (length[i], d).

    Attributes
    ----------
    values : np.ndarray
        (t, d), or (t,) for ids of pieces.
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


def second_pieces(length: np.ndarray, special: np.ndarray, type_ids: np.ndarray, char_start: np.ndarray) -> np.ndarray:
    """bool (t,), which pieces belong to the second text; by the first of three signs that a model gives.

    Parameters
    ----------
    length : np.ndarray
        Int (s,).
    special, type_ids, char_start : np.ndarray
        (t,), as in :class:`~probekit.models.encoder.Tokens`.
    """
    content = special == 0
    if type_ids.any():
        return content & (type_ids > 0)
    second = after_gap(length, content)
    if not second.any():
        sequence = np.repeat(np.arange(len(length)), length)[content]
        second[content] = starting_again(sequence, char_start[content])
    return second


def after_gap(length: np.ndarray, content: np.ndarray) -> np.ndarray:
    """bool (t,), which pieces stand after special pieces that have text before them.

    Parameters
    ----------
    length : np.ndarray
        Int (s,).
    content : np.ndarray
        Bool (t,), the pieces that are not special.
    """
    sequence = np.repeat(np.arange(len(length)), length)[content]
    count = np.bincount(sequence, minlength=len(length))
    gaps = np.cumsum(~content)[content]  # special pieces so far
    second = np.zeros(len(content), dtype=bool)
    second[content] = gaps > gaps[(np.cumsum(count) - count)[sequence]]
    return second


def starting_again(sequence: np.ndarray, char_start: np.ndarray) -> np.ndarray:
    """bool (k,), which pieces stand after one where the characters of their sequence begin again.

    Parameters
    ----------
    sequence : np.ndarray
        Int (k,), ascending: the sequence of each piece.
    char_start : np.ndarray
        Int (k,), its first character.
    """
    again = np.append(False, np.diff(char_start) < 0) & np.append(False, np.diff(sequence) == 0)
    passed = np.cumsum(again)
    return passed > passed[np.searchsorted(sequence, sequence)]
