"""Loops of the hash estimator: column sums, buckets, joint counts, their expectation, and shuffled labels.

They run without the interpreter's lock and use one thread; layers run in parallel.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LANES = 32  # shuffled label sets that are counted at once
NEGLIGIBLE = 1e-30  # a probability


@njit(cache=True, nogil=True)
def column_extents(x: np.ndarray) -> np.ndarray:
    """The largest absolute value of each column of x (n, d), float64 (d,); NaN does not count."""
    n, d = x.shape
    out = np.zeros(d, dtype=x.dtype)
    for i in range(n):
        for j in range(d):
            v = abs(x[i, j])
            out[j] = v if v > out[j] else out[j]
    return out.astype(np.float64)


@njit(cache=True, nogil=True)
def column_sums(x: np.ndarray, centre: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
    """Add each column's sum and sum of squares about ``centre`` (d,) to ``total`` and ``squares``, float64."""
    n, d = x.shape
    for i in range(n):
        for j in range(d):
            v = x[i, j] - centre[j]
            total[j] += v
            squares[j] += v * v


@njit(cache=True, nogil=True)
def row_keys(x: np.ndarray, centre: np.ndarray, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
    """(x - centre) @ first and @ second, float64 (2, n), summed in one order: equal rows have equal keys."""
    n, d = x.shape
    fours = d // 4 * 4
    for i in range(n):
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
        for j in range(0, fours, 4):
            v0, v1 = x[i, j] - centre[j], x[i, j + 1] - centre[j + 1]
            v2, v3 = x[i, j + 2] - centre[j + 2], x[i, j + 3] - centre[j + 3]
            a0, a1, a2, a3 = a0 + v0 * first[j], a1 + v1 * first[j + 1], a2 + v2 * first[j + 2], a3 + v3 * first[j + 3]
            b0, b1, b2, b3 = (
                b0 + v0 * second[j],
                b1 + v1 * second[j + 1],
                b2 + v2 * second[j + 2],
                b3 + v3 * second[j + 3],
            )
        for j in range(fours, d):
            a0 += (x[i, j] - centre[j]) * first[j]
            b0 += (x[i, j] - centre[j]) * second[j]
        out[0, i], out[1, i] = a0 + a1 + a2 + a3, b0 + b1 + b2 + b3


@njit(cache=True, nogil=True)
def group_sums(x: np.ndarray, centre: np.ndarray, group: np.ndarray, out: np.ndarray) -> None:
    """Add row i minus ``centre`` (d,) to row ``group[i]`` of ``out`` (groups, d), float64."""
    n, d = x.shape
    for i in range(n):
        row = out[group[i]]
        for j in range(d):
            row[j] += x[i, j] - centre[j]


@njit(cache=True, nogil=True)
def grid(z: np.ndarray, shift: np.ndarray, out: np.ndarray) -> int:
    """The occupied cells of a unit grid, numbered from 0 in the order in which rows first fall into them.

    Parameters
    ----------
    z : np.ndarray
        (n, q), in widths, of moderate range.
    shift : np.ndarray
        (q,) in 0..1.
    out : np.ndarray
        int32 (n,). Returns how many there are.
    """
    n, q = z.shape
    code = np.zeros(n, dtype=np.int64)
    size = np.int64(1)
    for j in range(q):
        low = high = np.floor(z[0, j] + shift[j])
        for i in range(1, n):
            cell = np.floor(z[i, j] + shift[j])
            low, high = min(low, cell), max(high, cell)
        for i in range(n):
            code[i] += size * np.int64(np.floor(z[i, j] + shift[j]) - low)
        size *= np.int64(high - low) + 1
    seen = np.full(size, -1, dtype=np.int32)
    count = 0
    for i in range(n):
        if seen[code[i]] < 0:
            seen[code[i]] = count
            count += 1
        out[i] = seen[code[i]]
    return count


@njit(cache=True, nogil=True)
def expected_information(
    a: np.ndarray, b: np.ndarray, log_factorial: np.ndarray, xlog: np.ndarray
) -> tuple[float, float]:
    """E[I] in nats of two labellings with these counts when one is shuffled, and E[occupied joint cells].

    Joint counts are hypergeometric (Vinh, Epps & Bailey 2010, equation 24). Equal counts are computed once; from the
    mean on, each probability follows from the one before, until they no longer matter.

    Parameters
    ----------
    a, b : np.ndarray
        int64 counts that sum to the same n.
    log_factorial, xlog : np.ndarray
        float64, ln i! and i ln i for i = 0 … n.
    """
    n, f = a.sum(), log_factorial
    total = cells = 0.0
    for x, times_x in _distinct(a):
        for y, times_y in _distinct(b):
            mean = x * (y / n)
            log_mean = np.log(mean)
            rest = n - x - y
            start = min(max(np.int64(mean), 1, -rest), x, y)
            fixed = f[x] + f[y] + f[n - x] + f[n - y] - f[n]
            first = np.exp(fixed - f[start] - f[x - start] - f[y - start] - f[rest + start])
            part, p = 0.0, first
            for k in range(start, min(x, y) + 1):
                part += p * (xlog[k] - k * log_mean)
                p *= (x - k) * ((y - k) / ((k + 1) * (rest + k + 1.0)))
                if p < NEGLIGIBLE:
                    break
            p = first
            for k in range(start, max(1, -rest), -1):
                p *= k * ((rest + k) / ((x - k + 1) * (y - k + 1.0)))
                part += p * (xlog[k - 1] - (k - 1) * log_mean)
                if p < NEGLIGIBLE:
                    break
            empty = np.exp(f[n - x] + f[n - y] - f[n] - f[rest]) if rest >= 0 else 0.0
            total += times_x * times_y * part / n
            cells += times_x * times_y * (1 - empty)
    return total, cells


@njit(cache=True, nogil=True)
def _distinct(counts: np.ndarray) -> list[tuple[np.int64, np.int64]]:
    """Pairs (value, how often) of the positive values."""
    ordered = np.sort(counts)
    out = [(np.int64(0), np.int64(0))][:0]
    for v in ordered:
        if v > 0 and len(out) and out[-1][0] == v:
            out[-1] = (v, out[-1][1] + 1)
        elif v > 0:
            out.append((np.int64(v), np.int64(1)))
    return out


@njit(cache=True, nogil=True)
def _entropy(counts: np.ndarray) -> float:
    """In bits."""
    n, h = counts.sum(), 0.0
    for c in counts:
        if c > 0:
            h -= c / n * np.log2(c / n)
    return h


@njit(cache=True, nogil=True)
def shared(
    buckets: np.ndarray,
    occupied: np.ndarray,
    types: np.ndarray,
    lookup: np.ndarray,
    columns: int,
    log_factorial: np.ndarray,
    xlog: np.ndarray,
    terms: np.ndarray,
) -> tuple[float, float, float, float, float, float, float]:
    """Information of buckets and labels, summed over grids; ``terms`` (n,) gets ln(n n_ab / (n_a n_b)) added.

    Arguments as of :func:`shuffled_sums` and :func:`expected_information`.

    Returns
    -------
    tuple of float
        Σ c ln c over the counts of buckets and of labels; the mean information of shuffled labels in nats; the
        entropy of labels and the lesser of both entropies, bits; kinds of labels; the joint cells that are occupied
        beyond those that each bucket and label must have, and their mean over shuffled labels.
    """
    grids, n = buckets.shape
    margins = expected = heights = tops = kinds = beyond = usual = 0.0
    for g in range(grids):
        counts = np.zeros((occupied[g], columns), dtype=np.int64)
        own, look = buckets[g], lookup[g]
        for i in range(n):
            counts[own[i], look[types[i]]] += 1
        rows, cols = counts.sum(1), counts.sum(0)
        ratios, filled = np.zeros(counts.shape), 0
        for a in range(len(rows)):
            margins += xlog[rows[a]]
            for b in range(columns):
                if counts[a, b]:
                    ratios[a, b] = np.log(counts[a, b] * (n / (rows[a] * cols[b])))
                    filled += 1
        for i in range(n):
            terms[i] += ratios[own[i], look[types[i]]]
        held = 0
        for c in cols:
            margins += xlog[c]
            held += c > 0
        information, cells = expected_information(rows, cols, log_factorial, xlog)
        h = _entropy(cols)
        heights, tops = heights + h, tops + min(h, _entropy(rows))
        expected, kinds = expected + information, kinds + held
        beyond += max(filled - occupied[g] - held + 1, 0)
        usual += max(cells - occupied[g] - held + 1, 0.0)
    return margins, expected, heights, tops, kinds, beyond, usual


@njit(cache=True, nogil=True)
def _mixed(state: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The next state and 32 random bits of a splitmix64 generator (Steele, Lea & Flood 2014)."""
    state += np.uint64(0x9E3779B97F4A7C15)
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, (z ^ (z >> np.uint64(31))) >> np.uint64(32)


@njit(cache=True, nogil=True)
def shuffle(values: np.ndarray, state: np.uint64) -> None:
    """Shuffle ``values`` in place (Fisher and Yates) from a state of the generator; a bias of at most n / 2^32."""
    for i in range(len(values) - 1, 0, -1):
        state, bits = _mixed(state)
        j = np.int64((bits * np.uint64(i + 1)) >> np.uint64(32))
        values[i], values[j] = values[j], values[i]


@njit(cache=True, nogil=True)
def shuffled_sums(
    buckets: np.ndarray,
    occupied: np.ndarray,
    types: np.ndarray,
    lookup: np.ndarray,
    columns: int,
    states: np.ndarray,
    xlog: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add Σ c ln c over the joint counts of each grid and each shuffled label set to ``out`` (draws,).

    Parameters
    ----------
    buckets : np.ndarray
        int32 (grids, n), numbered below ``occupied`` (grids,).
    types : np.ndarray
        int32 (n,), the type of each row, shuffled from the state ``states[s]`` for label set s.
    lookup : np.ndarray
        int32 (grids, types), the label bucket of each type in each grid, below ``columns``.
    xlog : np.ndarray
        float64 (n + 1,), c ln c.
    """
    grids, n = buckets.shape
    if lookup.shape[1] == 2:
        _shuffled_pairs(buckets, occupied, types, states, xlog, out)
        return
    draw = np.empty(n, dtype=np.int32)
    counts = np.empty(occupied.max() * columns, dtype=np.int32)
    for s in range(len(states)):
        draw[:] = types
        shuffle(draw, states[s])
        for g in range(grids):
            cells = counts[: occupied[g] * columns]
            cells[:] = 0
            own, look = buckets[g], lookup[g]
            for i in range(n):
                cells[own[i] * columns + look[draw[i]]] += 1
            total = 0.0
            for c in cells:
                total += xlog[c]
            out[s] += total


@njit(cache=True, nogil=True)
def _shuffled_pairs(
    buckets: np.ndarray, occupied: np.ndarray, types: np.ndarray, states: np.ndarray, xlog: np.ndarray, out: np.ndarray
) -> None:
    """:func:`shuffled_sums` for types 0 and 1, their own buckets: many shuffled label sets are counted side by side."""
    grids, n = buckets.shape
    draw = np.empty(n, dtype=np.int32)
    ones = np.zeros((n, LANES), dtype=np.uint8)
    size = np.empty(occupied.max(), dtype=np.int32)
    counts = np.empty((occupied.max(), LANES), dtype=np.int32)
    for start in range(0, len(states), LANES):
        lanes = min(LANES, len(states) - start)
        for lane in range(lanes):
            draw[:] = types
            shuffle(draw, states[start + lane])
            for i in range(n):
                ones[i, lane] = draw[i]
        for g in range(grids):
            size[:] = 0
            counts[:] = 0
            own = buckets[g]
            for i in range(n):
                size[own[i]] += 1
                row, one = counts[own[i]], ones[i]
                for lane in range(LANES):
                    row[lane] += one[lane]
            for b in range(occupied[g]):
                for lane in range(lanes):
                    c = counts[b, lane]
                    out[start + lane] += xlog[c] + xlog[size[b] - c]


@njit(cache=True, nogil=True)
def _grouped_order(
    rows: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    ranked: np.ndarray,
    ends: np.ndarray,
    state: np.uint64,
    out: np.ndarray,
) -> None:
    """One shuffle of whole groups, int32 (n,): groups of a stratum exchange their labels, turned by chance."""
    for stratum in range(len(ends)):
        begin = np.int64(0) if stratum == 0 else np.int64(ends[stratum - 1])
        source = ranked[begin : ends[stratum]].copy()
        for i in range(len(source) - 1, 0, -1):
            state, bits = _mixed(state)
            j = np.int64((bits * np.uint64(i + 1)) >> np.uint64(32))
            source[i], source[j] = source[j], source[i]
        for i in range(len(source)):
            own, other = ranked[begin + i], source[i]
            state, bits = _mixed(state)
            at = np.int64((bits * np.uint64(size[other])) >> np.uint64(32))
            for k in range(size[own]):
                out[rows[start[own] + k]] = rows[start[other] + (at + k) % size[other]]


@njit(cache=True, nogil=True)
def grouped_orders(
    rows: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    ranked: np.ndarray,
    ends: np.ndarray,
    states: np.ndarray,
    out: np.ndarray,
) -> None:
    """Shuffles of whole groups, int32 (draws, n), a state of the generator each: whose label each row takes.

    Parameters
    ----------
    rows, start, size : np.ndarray
        Rows by group (n,), where each group begins among them, and how long it is.
    ranked, ends : np.ndarray
        Groups by stratum, and where each stratum ends.
    """
    for s in range(len(states)):
        _grouped_order(rows, start, size, ranked, ends, states[s], out[s])


@njit(cache=True, nogil=True)
def grouped_sums(
    buckets: np.ndarray,
    occupied: np.ndarray,
    types: np.ndarray,
    lookup: np.ndarray,
    columns: int,
    groups: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    states: np.ndarray,
    xlog: np.ndarray,
    out: np.ndarray,
) -> float:
    """Add n times the information in nats of each grid and each shuffle of whole groups to ``out`` (draws,).

    Arguments as of :func:`shuffled_sums` and :func:`grouped_orders`. Returns the mean number of occupied joint cells
    beyond those that each bucket and label must have, summed over grids.
    """
    grids, n = buckets.shape
    rows, start, size, ranked, ends = groups
    order, labels = np.empty(n, dtype=np.int32), np.empty(columns, dtype=np.int32)
    counts, draw = np.empty(occupied.max() * columns, dtype=np.int32), np.empty(n, dtype=np.int32)
    fixed, beyond = np.full(grids, xlog[n]), 0.0
    held = np.zeros((grids, occupied.max()), dtype=np.int32)
    for g in range(grids):
        for i in range(n):
            held[g, buckets[g, i]] += 1
        for b in range(occupied[g]):
            fixed[g] -= xlog[held[g, b]]
    for s in range(len(states)):
        _grouped_order(rows, start, size, ranked, ends, states[s], order)
        for i in range(n):
            draw[i] = types[order[i]]
        for g in range(grids):
            cells = counts[: occupied[g] * columns]
            cells[:] = 0
            labels[:] = 0
            own, look = buckets[g], lookup[g]
            for i in range(n):
                label = look[draw[i]]
                cells[own[i] * columns + label] += 1
                labels[label] += 1
            total, filled = fixed[g], 1 - occupied[g]
            for c in cells:
                total += xlog[c]
                filled += c > 0
            for c in labels:
                total -= xlog[c]
                filled -= c > 0
            out[s] += total
            beyond += max(filled, 0)
    return beyond / len(states)
