"""Counting kernels: words of UTF-8 bytes to numbers, and numbers into tables of counts.

The bytes must be valid UTF-8, without NUL within words, and end with a whole word. The hash of a word of up to seven
bytes is unique, since multiplication by an odd number is invertible; a longer word has an odd hash and is compared byte
by byte. The slow reference is counting with a tokenizer that is a function of Python strings.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio (Knuth 1998, section 6.4)
SEVEN = np.uint64(1 << 48)  # the least number that seven bytes make, none of which is 0


@njit(nogil=True, cache=True)
def cut(
    data: np.ndarray,
    kinds: np.ndarray,
    end: int,
    paragraphs: bool,
    place: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    codes: np.ndarray,
    documents: np.ndarray,
) -> tuple[int, bool]:
    """Find the words of ``data``; returns their number, and whether there is a character of kind 2.

    Parameters
    ----------
    data : np.ndarray
        uint8 (n,).
    kinds : np.ndarray
        uint8 (0x110000,), 1 for word characters, plus 2 for characters to report (none below 128).
    end : int
        The byte that ends a document, or -1.
    paragraphs : bool
        Documents end at ``end`` only after a blank line.
    place : np.ndarray
        int64 (3,), updated: number of the document, 1 while it continues, 1 while the line is blank.
    starts, sizes : np.ndarray
        int32 output, bytes of each word.
    codes : np.ndarray
        uint64 output, hash of each word.
    documents : np.ndarray
        int32 output, document of each word, relative to ``place[0]`` at the call; all hold up to (n + 1) / 2 words.
    """
    document, goes_on, blank = place[0], place[1], place[2]
    first, found, seen = document, 0, np.uint8(0)
    i, n = np.uint64(0), np.uint64(len(data))
    while i < n:
        at, earlier, held = i, np.uint64(0), np.uint64(0)
        c, size = np.uint64(0), np.uint64(1)
        while i < n:
            c, size = np.uint64(data[i]), np.uint64(1)
            if c >= np.uint64(0x80):
                c, size = _character(data, i, c)
                seen |= kinds[c]
            if not kinds[c] & np.uint8(1):
                break
            for k in range(i, i + size):
                if held >= SEVEN:
                    earlier, held = (earlier ^ held) * SPREAD, np.uint64(0)
                held = held << np.uint64(8) | np.uint64(data[k])
            i += size
        if i > at:
            if not goes_on:
                document, goes_on = document + 1, 1
            blank = 0
            code = (earlier ^ held) * SPREAD
            if i - at > np.uint64(7):
                codes[found] = (code ^ code >> np.uint64(32)) * SPREAD | np.uint64(1)
            else:
                codes[found] = code << np.uint64(1)
            starts[found], sizes[found], documents[found] = at, i - at, document - first
            found += 1
        if i < n:  # not a word character
            if np.int64(c) == end:
                if blank or not paragraphs:
                    goes_on = 0
                blank = 1
            elif c != np.uint64(32) and (c < np.uint64(9) or c > np.uint64(13)):
                blank = 0
            i += size
    place[0], place[1], place[2] = document, goes_on, blank
    return found, bool(seen > np.uint8(1))


@njit(nogil=True, cache=True)
def number(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    codes: np.ndarray,
    begin: int,
    known: int,
    slots: np.ndarray,
    hashes: np.ndarray,
    bounds: np.ndarray,
    arena: np.ndarray,
    ids: np.ndarray,
) -> tuple[int, int]:
    """Number the words from ``begin`` on, new ones after the ``known``, until half of the slots are used.

    Parameters
    ----------
    slots : np.ndarray
        int32 (power of 2,), -1 where free.
    hashes : np.ndarray
        uint64.
    bounds : np.ndarray
        int64, word k is arena[bounds[k]:bounds[k+1]].
    ids : np.ndarray
        int32 output. Returns the number of processed words, and the number of distinct known words.
    """
    shift, mask, room = _shift(len(slots)), np.uint64(len(slots) - 1), len(slots) // 2
    for k in range(begin, len(codes)):
        if known == room:
            return k, known
        code = codes[k]
        slot = code >> shift
        word = slots[slot]
        while word >= 0 and not (
            hashes[word] == code and (not code & np.uint64(1) or _same(data, starts[k], sizes[k], arena, bounds, word))
        ):
            slot = (slot + np.uint64(1)) & mask
            word = slots[slot]
        if word < 0:
            word = known
            slots[slot], hashes[word] = word, code
            bounds[word + 1] = bounds[word] + sizes[k]
            arena[bounds[word] : bounds[word + 1]] = data[starts[k] : starts[k] + sizes[k]]
            known += 1
        ids[k] = word
    return len(codes), known


@njit(nogil=True, cache=True)
def _character(data: np.ndarray, i: np.uint64, c: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Code point and number of bytes of the character that begins at ``i`` with ``c``, more than one byte."""
    low, six = np.uint64(63), np.uint64(6)
    second = np.uint64(data[i + np.uint64(1)]) & low
    if c < np.uint64(0xE0):
        return (c & np.uint64(31)) << six | second, np.uint64(2)
    third = np.uint64(data[i + np.uint64(2)]) & low
    if c < np.uint64(0xF0):
        return (c & np.uint64(15)) << np.uint64(12) | second << six | third, np.uint64(3)
    fourth = np.uint64(data[i + np.uint64(3)]) & low
    head = (c & np.uint64(7)) << np.uint64(18) | second << np.uint64(12)
    return head | third << six | fourth, np.uint64(4)


@njit(nogil=True, cache=True)
def _same(data: np.ndarray, at: int, size: int, arena: np.ndarray, bounds: np.ndarray, word: int) -> bool:
    """Whether ``data[at:at + size]`` is ``word``."""
    start = bounds[word]
    if bounds[word + 1] - start != size:
        return False
    for k in range(size):  # noqa: SIM110 (numba knows no generators within all)
        if data[at + k] != arena[start + k]:
            return False
    return True


@njit(nogil=True, cache=True)
def _shift(slots: int) -> np.uint64:
    """The shift that reduces 64 bits to an index into ``slots``, a power of 2."""
    bits = 0
    while 1 << bits < slots:
        bits += 1
    return np.uint64(64 - bits)


@njit(nogil=True, cache=True)
def rehash(hashes: np.ndarray, slots: np.ndarray) -> None:
    """Enter the words of ``hashes`` into ``slots``, which are free (-1) and at least twice as many."""
    shift, mask = _shift(len(slots)), np.uint64(len(slots) - 1)
    for word in range(len(hashes)):
        slot = hashes[word] >> shift
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = word


@njit(nogil=True, cache=True)
def put(keys: np.ndarray, values: np.ndarray, key: int, value: int) -> int:
    """Add ``value`` to that of ``key`` in an open table (int64, power of 2, -1 where free); 1 if the key is new."""
    mask = np.uint64(len(keys) - 1)
    slot = (np.uint64(key) * SPREAD) >> np.uint64(32) & mask
    while keys[slot] >= 0:
        if keys[slot] == key:
            values[slot] += value
            return 0
        slot = (slot + np.uint64(1)) & mask
    keys[slot], values[slot] = key, value
    return 1


@njit(nogil=True, cache=True)
def refill(old_keys: np.ndarray, old_values: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
    """Put all of ``old_keys`` (int64) with their values into another open table."""
    for k in range(len(old_keys)):
        put(keys, values, old_keys[k], old_values[k])


@njit(nogil=True, cache=True)
def add(
    rows: np.ndarray,
    ids: np.ndarray,
    counts: np.ndarray,
    each: int,
    dense: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
) -> int:
    """Add ``counts[k * each]`` to the count of word ``ids[k]`` in row ``rows[k]``; returns how many keys are new.

    Parameters
    ----------
    each : int
        1, or 0 if counts has a single number for all.
    dense : np.ndarray
        int32 (rows, words), for the first words.
    keys, values : np.ndarray
        An open table of row << 32 | word for the others.
    """
    new, columns = 0, dense.shape[1]
    for k in range(len(ids)):
        if ids[k] < columns:
            dense[rows[k], ids[k]] += counts[k * each]
        else:
            new += put(keys, values, np.int64(rows[k]) << 32 | np.int64(ids[k]), counts[k * each])
    return new
