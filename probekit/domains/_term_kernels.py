"""Loops of counting: words of UTF-8 bytes to numbers, and numbers into tables of counts.

The bytes must be valid UTF-8 and end where a word does. The slow twin of ``scan`` is counting with a callable
tokenizer, which goes through Python's strings.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["add", "put", "refill", "rehash", "scan"]

BASIS, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio (Knuth 1998, section 6.4)


@njit(nogil=True, cache=True)
def scan(
    data: np.ndarray,
    kinds: np.ndarray,
    end: int,
    paragraphs: bool,
    place: np.ndarray,
    slots: np.ndarray,
    hashes: np.ndarray,
    bounds: np.ndarray,
    arena: np.ndarray,
    ids: np.ndarray,
    documents: np.ndarray,
) -> tuple[int, int]:
    """The words of ``data`` as numbers, new words numbered on; returns how many words, and how many different so far.

    data : uint8 (n,); kinds : uint8 (0x110000,), 1 for a character of words; end : the byte that ends a document, or -1
    paragraphs : documents end at ``end`` only where nothing but blanks came since the last one
    place : int64 (4,): number of the document, 1 while it goes on, 1 while the line is blank, words known
    slots : int32 (power of 2,), -1 where free; hashes : uint64; bounds : int64, word k is arena[bounds[k]:bounds[k+1]]
    ids : int32 out; documents : int32 out, counted from ``place[0]`` at the call
    """
    mask = np.uint64(len(slots) - 1)
    first, known = place[0], place[3]
    i, n, found = 0, len(data), 0
    while i < n:
        at, h = i, BASIS
        while i < n:
            c = np.int64(data[i])
            size = 1
            if c >= 0xF0:
                c = (c & 7) << 18 | (data[i + 1] & 63) << 12 | (data[i + 2] & 63) << 6 | (data[i + 3] & 63)
                size = 4
            elif c >= 0xE0:
                c = (c & 15) << 12 | (data[i + 1] & 63) << 6 | (data[i + 2] & 63)
                size = 3
            elif c >= 0x80:
                c = (c & 31) << 6 | (data[i + 1] & 63)
                size = 2
            if not kinds[c]:
                break
            for k in range(i, i + size):
                h = (h ^ np.uint64(data[k])) * PRIME
            i += size
        if i > at:
            slot = (h * SPREAD) >> np.uint64(32) & mask
            word = slots[slot]
            while word >= 0:
                if hashes[word] == h and bounds[word + 1] - bounds[word] == i - at:
                    k, start = 0, bounds[word]
                    while k < i - at and arena[start + k] == data[at + k]:
                        k += 1
                    if k == i - at:
                        break
                slot = (slot + np.uint64(1)) & mask
                word = slots[slot]
            if word < 0:
                word = known
                slots[slot], hashes[word] = word, h
                start = bounds[word]
                for k in range(i - at):
                    arena[start + k] = data[at + k]
                bounds[word + 1] = start + i - at
                known += 1
            if not place[1]:
                place[0] += 1
                place[1] = 1
            place[2] = 0
            ids[found] = word
            documents[found] = place[0] - first
            found += 1
        if i < n:  # a character of no word, of ``size`` bytes
            if c == end:
                if not paragraphs or place[2]:
                    place[1] = 0
                place[2] = 1
            elif c != 32 and not 9 <= c <= 13:
                place[2] = 0
            i += size
    place[3] = known
    return found, known


@njit(nogil=True, cache=True)
def rehash(hashes: np.ndarray, slots: np.ndarray) -> None:
    """Enter the words of ``hashes`` into ``slots``, which are free (-1) and at least twice as many."""
    mask = np.uint64(len(slots) - 1)
    for word in range(len(hashes)):
        slot = (hashes[word] * SPREAD) >> np.uint64(32) & mask
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

    dense : int32 (rows, words), of the first words; keys, values : an open table of row << 32 | word for the others
    each : 1, or 0 where counts has one number that is meant for all
    """
    new, columns = 0, dense.shape[1]
    for k in range(len(ids)):
        if ids[k] < columns:
            dense[rows[k], ids[k]] += counts[k * each]
        else:
            new += put(keys, values, np.int64(rows[k]) << 32 | np.int64(ids[k]), counts[k * each])
    return new
