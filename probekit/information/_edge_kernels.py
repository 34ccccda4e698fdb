"""Loops of EDGE: column sums, projection, distances of neighbours, buckets and their counts.

Every kernel works on a range of rows or ensemble members and lets go of the interpreter's lock, so that threads may
share the work; ranges do not depend on their number, and neither do the results. ``tests/naive.py`` holds slow twins.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["add_moments", "distinct", "members", "neighbour_distance", "project"]

BLOCK = 1024  # rows whose keys stay in the nearest cache
EXACT = 2.0**52  # whole numbers below are exact in float64


@njit(nogil=True, cache=True)
def add_moments(x, start, stop, total, square):
    """Sum of x - x[0] and of its square over rows start … stop - 1 to total, square: float64 (d,)."""
    d = x.shape[1]
    shift = x[0].astype(np.float64)
    full = start + (stop - start) // 4 * 4
    for i in range(start, full, 4):
        for c in range(d):
            p, q, r, s = x[i, c] - shift[c], x[i + 1, c] - shift[c], x[i + 2, c] - shift[c], x[i + 3, c] - shift[c]
            total[c] += (p + q) + (r + s)
            square[c] += (p * p + q * q) + (r * r + s * s)
    for i in range(full, stop):
        for c in range(d):
            p = x[i, c] - shift[c]
            total[c] += p
            square[c] += p * p


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def project(x, weights, start, stop, out):
    """``out[k, i] = x[i] · weights[k]`` for rows start … stop - 1; four rows by three columns in the registers."""
    columns, d = weights.shape
    threes, fours = columns // 3 * 3, start + (stop - start) // 4 * 4
    for i in range(start, fours, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for k in range(0, threes, 3):
            w0, w1, w2 = weights[k], weights[k + 1], weights[k + 2]
            a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = 0.0
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
            a0 = b0 = c0 = d0 = 0.0
            for c in range(d):
                a0 += x0[c] * w0[c]
                b0 += x1[c] * w0[c]
                c0 += x2[c] * w0[c]
                d0 += x3[c] * w0[c]
            out[k, i], out[k, i + 1], out[k, i + 2], out[k, i + 3] = a0, b0, c0, d0
    for i in range(fours, stop):
        for k in range(columns):
            a0 = 0.0
            for c in range(d):
                a0 += x[i, c] * weights[k, c]
            out[k, i] = a0


@njit(nogil=True, cache=True)
def neighbour_distance(values, queries, k):
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
def _slot(key, table):
    """Where ``key`` is in a hash table of keys (a power of two of them, -1 where free), or may be put."""
    mask = len(table) - 1
    at = (((key & 0x7FFFFFFF) * 0x2545F491 + (key >> 31) * 0x1B873593) >> 21) & mask
    while table[at] != key and table[at] != -1:
        at = (at + 1) & mask
    return at


@njit(nogil=True, cache=True)
def _grown(table, names, seen, n, room):
    """The table and its names with room for ``room`` more keys, at most half full. seen : the n keys in it."""
    size = len(table)
    while size < 2 * (n + room):
        size *= 2
    if size == len(table):
        return table, names
    table, names = np.full(size, -1, np.int64), np.full(size, -1, np.int32)
    for i in range(n):
        at = _slot(seen[i], table)
        table[at] = seen[i]
        names[at] = i
    return table, names


@njit(nogil=True, cache=True)
def _name(keys, table, names, direct, seen, n, ids):
    """Replace keys by numbers 0, 1, … in order of appearance, the same for equal keys; returns how many there are.

    direct : names are looked up at the key itself, not in the hash table. seen : the key of each number
    """
    for i in range(len(keys)):
        key = np.int64(keys[i])
        at = key if direct else _slot(key, table)
        if names[at] < 0:
            names[at] = n
            seen[n] = key
            n += 1
            if not direct:
                table[at] = key
        ids[i] = names[at]
    return n


@njit(nogil=True, cache=True)
def _tables(span, n):
    """Whether keys below ``span`` are looked up directly, and an empty table and names."""
    direct = span <= 4 * n + 4096
    size = int(span) if direct else 8192
    return direct, np.full(1 if direct else size, -1, np.int64), np.full(size, -1, np.int32)


@njit(nogil=True, cache=True)
def distinct(keys, ids, seen):
    """Number int64 ``keys`` >= 0 in order of appearance into ids; returns how many differ."""
    n = 0
    direct, table, names = _tables(2.0**62, len(keys))
    for start in range(0, len(keys), BLOCK):
        part = slice(start, min(start + BLOCK, len(keys)))
        table, names = _grown(table, names, seen, n, BLOCK)
        n = _name(keys[part], table, names, direct, seen, n, ids[part])
    return n


@njit(nogil=True, cache=True)
def _pack(keys, z, width, shift, low, span):
    """Append the digits floor((z + shift) / width) - low, each below span, to the keys."""
    for i in range(len(keys)):
        keys[i] = keys[i] * span + (np.floor((z[i] + shift) / width) - low)


@njit(nogil=True, cache=True)
def _buckets(z, low, high, width, share, ids, seen, keys):
    """Number the buckets of points, columns of z (r, n), into ids; returns how many there are, -1 for too many.

    Buckets are told apart exactly: the digits of a point are packed into one whole number below EXACT; where they do
    not fit, what was packed so far is numbered and goes on as one digit.
    """
    r, n = z.shape
    found, c0 = 1, 0
    ids[:n] = 0
    while c0 < r:
        span, c1 = float(found), c0
        while c1 < r:
            shift = share * width[c1]
            digits = np.floor((high[c1] + shift) / width[c1]) - np.floor((low[c1] + shift) / width[c1]) + 1
            if not span * digits < EXACT:
                break
            span *= digits
            c1 += 1
        if c1 == c0:
            return -1
        direct, table, names = _tables(span, n)
        count = 0
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            part = keys[: stop - start]
            part[:] = ids[start:stop]
            for c in range(c0, c1):
                shift = share * width[c]
                first = np.floor((low[c] + shift) / width[c])
                digits = np.floor((high[c] + shift) / width[c]) - first + 1
                _pack(part, z[c, start:stop], width[c], shift, first, digits)
            if not direct:
                table, names = _grown(table, names, seen, count, BLOCK)
            count = _name(part, table, names, direct, seen, count, ids[start:stop])
        found, c0 = count, c1
    return found


@njit(nogil=True, cache=True)
def _information(idx, idy, nx, ny, bound, seen, counts, cells):
    """Σ (N_ij/N) max(min(log2(N_ij N / (N_i N_j)), bound), 0.001), and how many cells ij are occupied."""
    n = len(cells)
    direct, table, names = _tables(float(nx) * ny, n)
    found, keys = 0, np.empty(BLOCK, np.int64)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        part = keys[: stop - start]
        for i in range(start, stop):
            part[i - start] = idx[i] * np.int64(ny) + idy[i]
        if not direct:
            table, names = _grown(table, names, seen, found, BLOCK)
        found = _name(part, table, names, direct, seen, found, cells[start:stop])
    counts[:found] = 0
    for i in range(n):
        counts[cells[i]] += 1
    in_x, in_y = np.zeros(nx, np.int64), np.zeros(ny, np.int64)
    for cell in range(found):
        in_x[seen[cell] // ny] += counts[cell]
        in_y[seen[cell] % ny] += counts[cell]
    total = 0.0
    for cell in range(found):
        both, apart = counts[cell], float(in_x[seen[cell] // ny]) * in_y[seen[cell] % ny]
        total += both / n * max(min(math.log2(both * n / apart), bound), 0.001)
    return total, found


@njit(nogil=True, cache=True)
def _spread(ids, rows, out):
    """Numbers of points to the rows that are them."""
    for i in range(len(rows)):
        out[i] = ids[rows[i]]


@njit(nogil=True, cache=True)
def members(x, y, stretch, share, bound, start, stop, values, buckets):
    """Members start … stop - 1 of the ensemble: their value into values, occupied buckets into buckets[member].

    x, y : (z float64 (r, m), lowest and highest of its columns, widths, all float64 (r,), number of each row's point
        int32 (n,) or empty where the points are the rows)
    stretch, share : of each member: factor of the widths, shift as a share of the width, float64 (L,)
    buckets : int64 (L, 3), of x, of y and of both; -1 where they are too many to be told apart
    """
    zx, lowx, highx, widthx, rowx = x
    zy, lowy, highy, widthy, rowy = y
    n = max(zx.shape[1], len(rowx))
    ids, idx, idy, cells = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    seen, counts, keys = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(BLOCK)
    for j in range(start, stop):
        nx = _buckets(zx, lowx, highx, widthx * stretch[j], share[j], ids if len(rowx) else idx, seen, keys)
        _spread(ids, rowx, idx)
        ny = _buckets(zy, lowy, highy, widthy * stretch[j], share[j], ids if len(rowy) else idy, seen, keys)
        _spread(ids, rowy, idy)
        buckets[j, 0], buckets[j, 1], buckets[j, 2] = nx, ny, -1
        if nx > 0 and ny > 0:
            values[j], buckets[j, 2] = _information(idx, idy, nx, ny, bound, seen, counts, cells)
