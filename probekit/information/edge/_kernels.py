"""Loops of EDGE: column sums, projection, distances of neighbours, buckets and their counts.

Every kernel works on a range of rows or ensemble members and lets go of the interpreter's lock, so that threads may
share the work; ranges do not depend on their number, and neither do the results. ``tests/naive.py`` holds slow twins.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

BLOCK = 1024  # rows whose keys stay in the nearest cache
CHUNK = 128 * BLOCK  # rows counted for one member before the next, so that its table is near
EXACT = 2.0**52  # whole numbers below are exact in float64


@njit(nogil=True, cache=True)
def add_moments(x: np.ndarray, start: int, stop: int, total: np.ndarray, square: np.ndarray) -> None:
    """Add x - x[0] and its square, over rows start … stop - 1, to total and square, float64 (d,); eight rows at a time.

    Less a row the squares keep their digits however far the mean is from 0, and a constant column is exactly 0.
    """
    d, shift = x.shape[1], x[0]
    eights = start + (stop - start) // 8 * 8
    for i in range(start, eights, 8):
        for c in range(d):
            x0, x1, x2, x3 = x[i, c] - shift[c], x[i + 1, c] - shift[c], x[i + 2, c] - shift[c], x[i + 3, c] - shift[c]
            x4, x5, x6, x7 = (
                x[i + 4, c] - shift[c],
                x[i + 5, c] - shift[c],
                x[i + 6, c] - shift[c],
                x[i + 7, c] - shift[c],
            )
            total[c] += ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7))
            square[c] += ((x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)) + ((x4 * x4 + x5 * x5) + (x6 * x6 + x7 * x7))
    for i in range(eights, stop):
        for c in range(d):
            x0 = x[i, c] - shift[c]
            total[c] += x0
            square[c] += x0 * x0


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def project(x: np.ndarray, weights: np.ndarray, start: int, stop: int, out: np.ndarray) -> None:
    """``out[k, i] = x[i] · weights[k]`` for rows start … stop - 1; four rows by three columns in the registers.

    x (n, d) and weights (columns, d) of one dtype, which the sums have too; out : float64 (columns, n)
    """
    (columns, d), zero = weights.shape, weights.dtype.type(0)
    threes, fours = columns // 3 * 3, start + (stop - start) // 4 * 4
    for i in range(start, fours, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for k in range(0, threes, 3):
            w0, w1, w2 = weights[k], weights[k + 1], weights[k + 2]
            a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = zero
            for c in range(d):
                a0 += x0[c] * w0[c]
                a1 += x0[c] * w1[c]
                a2 += x0[c] * w2[c]
                b0 += x1[c] * w0[c]
                b1 += x1[c] * w1[c]
                b2 += x1[c] * w2[c]
                c0 += x2[c] * w0[c]
                c1 += x2[c] * w1[c]
                c2 += x2[c] * w2[c]
                d0 += x3[c] * w0[c]
                d1 += x3[c] * w1[c]
                d2 += x3[c] * w2[c]
            out[k, i], out[k, i + 1], out[k, i + 2], out[k, i + 3] = a0, b0, c0, d0
            out[k + 1, i], out[k + 1, i + 1], out[k + 1, i + 2], out[k + 1, i + 3] = a1, b1, c1, d1
            out[k + 2, i], out[k + 2, i + 1], out[k + 2, i + 2], out[k + 2, i + 3] = a2, b2, c2, d2
        for k in range(threes, columns):
            w0 = weights[k]
            a0 = b0 = c0 = d0 = zero
            for c in range(d):
                a0 += x0[c] * w0[c]
                b0 += x1[c] * w0[c]
                c0 += x2[c] * w0[c]
                d0 += x3[c] * w0[c]
            out[k, i], out[k, i + 1], out[k, i + 2], out[k, i + 3] = a0, b0, c0, d0
    for i in range(fours, stop):
        for k in range(columns):
            a0 = zero
            for c in range(d):
                a0 += x[i, c] * weights[k, c]
            out[k, i] = a0


@njit(nogil=True, cache=True)
def neighbour_distance(values: np.ndarray, queries: np.ndarray, k: int) -> float:
    """Mean over queries of the distance to the k-th nearest of ``values``; both sorted, 1 <= k <= len(values).

    The k nearest of a query are the run of k values from the first a on whose values[a + k] is not nearer than
    values[a]; it moves to the right only, as the queries do.
    """
    last, low, total = len(values) - k, 0, 0.0
    for q in queries:
        step = 1
        while low + step <= last and q - values[low + step - 1] > values[low + step - 1 + k] - q:
            low += step
            step *= 2
        high = min(low + step - 1, last)
        while low < high:
            middle = (low + high) // 2
            if q - values[middle] > values[middle + k] - q:
                low = middle + 1
            else:
                high = middle
        total += max(q - values[low], values[low + k - 1] - q)
    return total / len(queries)


@njit(nogil=True, cache=True)
def _slot(key: int, table: np.ndarray, seen: np.ndarray) -> int:
    """Where the number of ``key`` is in a hash table (a power of two of them, -1 where free), or may be put."""
    mask = len(table) - 1
    at = (((key & 0x7FFFFFFF) * 0x2545F491 + (key >> 31) * 0x1B873593) >> 21) & mask
    while table[at] >= 0 and seen[table[at]] != key:
        at = (at + 1) & mask
    return at


@njit(nogil=True, cache=True)
def _table(span: float, n: int) -> tuple[bool, np.ndarray]:
    """Whether keys of n rows below ``span`` are looked up directly, not by their hash, and an empty table."""
    direct = span <= 4 * n + 4096
    return direct, np.full(np.int64(span) if direct else 8192, -1, np.int32)


@njit(nogil=True, cache=True)
def _grown(table: np.ndarray, seen: np.ndarray, n: int) -> np.ndarray:
    """The hash table, with room for another block beside the n keys in ``seen``; at most half full."""
    size = len(table)
    while size < 2 * (n + BLOCK):
        size *= 2
    if size > len(table):
        table = np.full(size, -1, np.int32)
        for i in range(n):
            table[_slot(seen[i], table, seen)] = i
    return table


@njit(nogil=True, cache=True)
def distinct(keys: np.ndarray, span: float, seen: np.ndarray) -> int:
    """Replace whole ``keys`` by 0, 1, … in order of appearance, equal keys by equal numbers; returns their number.

    Parameters
    ----------
    keys : np.ndarray
        int64 (n,), or float64 (n,) of whole numbers.
    span : float
        Above all keys, which are 0 or more then; else infinite.
    seen : np.ndarray
        int64 (n,), receives the key of each number.
    """
    direct, table = _table(span, len(keys))
    n = 0
    for start in range(0, len(keys), BLOCK):
        if not direct:
            table = _grown(table, seen, n)
        for i in range(start, min(start + BLOCK, len(keys))):
            key = np.int64(keys[i])
            at = key if direct else _slot(key, table, seen)
            if table[at] < 0:
                table[at] = n
                seen[n] = key
                n += 1
            keys[i] = table[at]
    return n


@njit(nogil=True, cache=True)
def _count(keys: np.ndarray, direct: bool, table: np.ndarray, seen: np.ndarray, counts: np.ndarray, n: int) -> int:
    """Count keys, numbering new ones from n; returns the number of keys.

    seen, counts : the key of each number, and its count
    """
    for i in range(len(keys)):
        key = np.int64(keys[i])
        at = key if direct else _slot(key, table, seen)
        number = table[at]
        if number < 0:
            number = table[at] = n
            seen[n], counts[n] = key, 0
            n += 1
        counts[number] += 1
    return n


@njit(nogil=True, cache=True)
def _pack(keys: np.ndarray, z: np.ndarray, width: float, shift: float, first: float, digits: float) -> None:
    """Append the digit floor((z + shift) / width) - first, one of ``digits``, to the keys."""
    for i in range(len(keys)):
        keys[i] = keys[i] * digits + (np.floor((z[i] + shift) / width) - first)


@njit(nogil=True, cache=True)
def _digits(low: np.ndarray, high: np.ndarray, width: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first digit of each column, and the number of digits."""
    first = np.floor((low + shift) / width)
    return first, np.floor((high + shift) / width) - first + 1


@njit(nogil=True, cache=True)
def _packed(
    z: np.ndarray,
    width: np.ndarray,
    shift: np.ndarray,
    first: np.ndarray,
    digits: np.ndarray,
    keys: np.ndarray,
    seen: np.ndarray,
) -> float:
    """Buckets of points, columns of z (r, n), as whole keys >= 0, float64 (n,), of any number of digits.

    Returns a bound on the keys, at most EXACT, or -1 if a single column has too many buckets. Buckets are distinguished
    exactly: the digits of a point are packed into one integer. If they do not fit, the integers so far are numbered,
    and their number becomes one digit.
    """
    r, n = z.shape
    span, end = 1.0, 0
    for c in range(r):
        if not digits[c] * n < EXACT:
            return -1.0
    keys[:] = 0
    while end < r:
        begin = end
        if begin:
            span = float(distinct(keys, span, seen))
        while end < r and span * digits[end] < EXACT:
            span *= digits[end]
            end += 1
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            for c in range(begin, end):
                _pack(keys[start:stop], z[c, start:stop], width[c], shift[c], first[c], digits[c])
    return span


@njit(nogil=True, cache=True)
def _append(keys: np.ndarray, numbers: np.ndarray, rows: np.ndarray, found: int, start: int) -> None:
    """Append the numbers, below ``found``, of the rows from ``start`` on to keys; rows : as of :func:`members`."""
    if len(rows):
        for i in range(len(keys)):
            keys[i] = keys[i] * found + numbers[rows[start + i]]
    else:
        for i in range(len(keys)):
            keys[i] = keys[i] * found + numbers[start + i]


@njit(nogil=True, cache=True)
def _cells(
    z: np.ndarray,
    width: np.ndarray,
    shift: np.ndarray,
    first: np.ndarray,
    digits: np.ndarray,
    numbers: np.ndarray,
    rows: np.ndarray,
    found_y: np.ndarray,
    bound: float,
    values: np.ndarray,
    buckets: np.ndarray,
) -> None:
    """Some members, by the points of x, columns of z (r, n), and the numbers of the buckets of y, (members, points).

    The digits of x and the number of y make a key below EXACT, which only a chunk of rows is held of: a block of points
    is packed for all members while it is near, and a chunk counted for one member while its table is.
    """
    (r, n), count = z.shape, len(width)
    keys = np.empty((count, min(CHUNK, n)))
    direct, found = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    tables, seen, counts = [], [], []
    for j in range(count):
        span = float(found_y[j])
        for c in range(r):
            span *= digits[j, c]
        direct[j], table = _table(span, n)
        tables.append(table)
        seen.append(np.empty(n, np.int64))
        counts.append(np.empty(n, np.int64))
    for begin in range(0, n, CHUNK):
        stop = min(begin + CHUNK, n)
        for start in range(begin, stop, BLOCK):
            end = min(start + BLOCK, stop)
            for j in range(count):
                part = keys[j, start - begin : end - begin]
                part[:] = 0
                for c in range(r):
                    _pack(part, z[c, start:end], width[j, c], shift[j, c], first[j, c], digits[j, c])
                _append(part, numbers[j], rows, found_y[j], start)
        for j in range(count):
            for start in range(0, stop - begin, BLOCK):
                if not direct[j]:
                    tables[j] = _grown(tables[j], seen[j], found[j])
                part = keys[j, start : min(start + BLOCK, stop - begin)]
                found[j] = _count(part, direct[j], tables[j], seen[j], counts[j], found[j])
    for j in range(count):
        values[j], buckets[j, 0] = _information(seen[j][: found[j]], counts[j], found_y[j], n, bound)
        buckets[j, 1], buckets[j, 2] = found_y[j], found[j]


@njit(nogil=True, cache=True)
def _information(seen: np.ndarray, counts: np.ndarray, found_y: int, n: int, bound: float) -> tuple[float, int]:
    """Σ (N_ij/N) max(min(log2(N_ij N / (N_i N_j)), bound), 0.001) over cells, and occupied buckets of x."""
    found = len(seen)
    of_x = seen // found_y
    found_x = distinct(of_x, np.inf, np.empty(found, np.int64))
    in_x, in_y = np.zeros(found_x, np.int64), np.zeros(found_y, np.int64)
    for cell in range(found):
        in_x[of_x[cell]] += counts[cell]
        in_y[seen[cell] % found_y] += counts[cell]
    total = 0.0
    for cell in range(found):
        both, apart = counts[cell], float(in_x[of_x[cell]]) * in_y[seen[cell] % found_y]
        total += both / n * max(min(math.log2(both * n / apart), bound), 0.001)
    return total, found_x


@njit(nogil=True, cache=True)
def members(
    x: tuple[np.ndarray, ...],
    y: tuple[np.ndarray, ...],
    stretch: np.ndarray,
    bound: float,
    values: np.ndarray,
    buckets: np.ndarray,
) -> None:
    """Some members of the ensemble: their values, and the numbers of occupied buckets of x, of y and of both.

    Parameters
    ----------
    x, y : tuple[np.ndarray, ...]
        (points float64 (r, m), lowest and highest of its columns float64 (r,), the point of each row int32 (n,), empty
        where the points are the rows, widths float64 (r,), shifts as shares of the widths float64 (members, r)).
    stretch : np.ndarray
        Factors of the widths, float64 (members,).
    values : np.ndarray
        float64 (members,).
    buckets : np.ndarray
        int64 (members, 3), -1 if a single column has too many.
    """
    points_x, low_x, high_x, rows_x, width_x, share_x = x
    points_y, low_y, high_y, rows_y, width_y, share_y = y
    m, count = points_x.shape[1], len(stretch)
    n = max(m, len(rows_x))
    keys_y, seen = np.empty(points_y.shape[1]), np.empty(max(n, points_y.shape[1]), np.int64)
    numbers, found_y = np.empty((count, points_y.shape[1]), np.int32), np.ones(count, np.int64)
    width, wide_y = width_x * stretch.reshape(-1, 1), width_y * stretch.reshape(-1, 1)
    shift, shift_y = share_x * width, share_y * wide_y
    first, digits = _digits(low_x, high_x, width, shift)
    first_y, digits_y = _digits(low_y, high_y, wide_y, shift_y)
    together = np.zeros(count, np.bool_)
    buckets[:] = -1
    for j in range(count):
        span = _packed(points_y, wide_y[j], shift_y[j], first_y[j], digits_y[j], keys_y, seen)
        if span < 0:
            continue
        found_y[j] = distinct(keys_y, span, seen)
        for i in range(len(keys_y)):  # numba takes seconds to compile that an array becomes part of another
            numbers[j, i] = keys_y[i]
        fits = digits[j].max() * n < EXACT and digits[j].prod() * found_y[j] < EXACT
        together[j] = fits and len(rows_x) == 0
        if together[j]:
            continue
        keys = np.empty(m)
        span = _packed(points_x, width[j], shift[j], first[j], digits[j], keys, seen)
        if span < 0:
            continue
        if not span * found_y[j] < EXACT:
            span = float(distinct(keys, span, seen))
        points, one, of = (keys[rows_x] if len(rows_x) else keys).reshape(1, -1), np.ones((1, 1)), slice(j, j + 1)
        _cells(
            points, one, 0 * one, 0 * one, span * one, numbers[of], rows_y, found_y[of], bound, values[of], buckets[of]
        )
    fast = np.flatnonzero(together)
    found, cells = np.empty(len(fast)), np.empty((len(fast), 3), np.int64)
    _cells(
        points_x,
        width[fast],
        shift[fast],
        first[fast],
        digits[fast],
        numbers[fast],
        rows_y,
        found_y[fast],
        bound,
        found,
        cells,
    )
    for k in range(len(fast)):
        values[fast[k]] = found[k]
        for c in range(3):
            buckets[fast[k], c] = cells[k, c]
