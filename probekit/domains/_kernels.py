"""Loops over terms, for tiles of pairs of domains: Jensen-Shannon divergence, variational and Euclidean distance.

They release the interpreter's lock and use one thread; tiles run in parallel. The numbers of a tile depend only on its
rows, so they are the same for any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TERMS = 512  # terms per step: a pair fits into the processor's nearest cache, a tile into the next


def _polynomial(degree: int) -> tuple[float, ...]:
    """Coefficients of log2((3 + y) / 2) in y, -1 … 1, from its Chebyshev series (Mason & Handscomb 2003, section 5.2).

    ln(1 + 2ry + r²) is 2 Σ (-1)^(k+1) r^k / k T_k(y); r is 3 - √8 here. Degree 17 leaves an error below 1e-14.
    """
    r = 3 - np.sqrt(8)
    series = [-np.log(4 * r), *(-2 * (-r) ** k / k for k in range(1, degree + 1))]
    return tuple(map(float, np.polynomial.chebyshev.cheb2poly(series) / np.log(2)))


C = _polynomial(17)
MANTISSA, ONE = np.int64((1 << 52) - 1), np.int64(1023 << 52)
SHIFTED = np.int64(0x433 << 52)  # the float 2^52: with an integer in its last bits, it is that much more
BIASED = float(2**52 + 1023)


@njit(cache=True, nogil=True, fastmath={"contract"})
def log2(x: np.ndarray, parts: np.ndarray, out: np.ndarray) -> None:
    """log2 of each of ``x`` into ``out``, within 1e-14 for normal numbers, finite for 0.

    Exponent and mantissa come from the bits, and the loops have no calls or branches, so that one instruction can
    process several numbers, which the library's logarithm does not allow.

    Parameters
    ----------
    parts : np.ndarray
        float64 (2, at least n), scratch memory.
    """
    n = len(x)
    bits, exponent, mantissa = x.view(np.int64), parts[0].view(np.int64), parts[1].view(np.int64)
    for k in range(n):
        exponent[k] = (bits[k] >> 52) | SHIFTED
        mantissa[k] = (bits[k] & MANTISSA) | ONE
    e, m = parts[0], parts[1]
    for k in range(n):
        y = 2.0 * m[k] - 3.0
        high = C[17] * y + C[16]
        high = (((high * y + C[15]) * y + C[14]) * y + C[13]) * y + C[12]
        high = (((high * y + C[11]) * y + C[10]) * y + C[9]) * y + C[8]
        high = (((high * y + C[7]) * y + C[6]) * y + C[5]) * y + C[4]
        high = (((high * y + C[3]) * y + C[2]) * y + C[1]) * y + C[0]
        out[k] = (e[k] - BIASED) + high


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def dot(x: np.ndarray, y: np.ndarray) -> float:
    """Σ x y, in an order that the compiler chooses once."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@njit(cache=True, nogil=True)
def negative_entropies(p: np.ndarray, out: np.ndarray) -> None:
    """Σ p log2 p of each row of ``p`` (a, v) into ``out`` (a,)."""
    parts, logs, x = np.empty((2, TERMS)), np.empty(TERMS), np.empty(TERMS)
    for i in range(p.shape[0]):
        total = 0.0
        for at in range(0, p.shape[1], TERMS):
            n = min(TERMS, p.shape[1] - at)
            x[:n] = p[i, at : at + n]
            log2(x[:n], parts, logs)
            total += dot(x[:n], logs[:n])
        out[i] = total


@njit(cache=True, nogil=True)
def pair_sums(p: np.ndarray, q: np.ndarray, triangle: bool, out: np.ndarray) -> None:
    """Σ (p + q) log2 (p + q) of rows of ``p`` (a, v) and ``q`` (b, v) into ``out`` (1, a, b); triangle: i < j."""
    parts, logs, s = np.empty((2, TERMS)), np.empty(TERMS), np.empty(TERMS)
    out[:] = 0.0
    for at in range(0, p.shape[1], TERMS):
        n = min(TERMS, p.shape[1] - at)
        for i in range(p.shape[0]):
            left = p[i, at : at + n]
            for j in range(i + 1 if triangle else 0, q.shape[0]):
                other = q[j, at : at + n]
                for k in range(n):
                    s[k] = left[k] + other[k]
                log2(s[:n], parts, logs)
                out[0, i, j] += dot(s[:n], logs[:n])


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def absolute(x: np.ndarray, y: np.ndarray) -> float:
    """Σ |x - y|."""
    total = 0.0
    for k in range(len(x)):
        total += abs(x[k] - y[k])
    return total


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def square(x: np.ndarray, y: np.ndarray) -> float:
    """Σ (x - y)²."""
    total = 0.0
    for k in range(len(x)):
        total += (x[k] - y[k]) ** 2
    return total


@njit(cache=True, nogil=True)
def distances(p: np.ndarray, q: np.ndarray, triangle: bool, out: np.ndarray) -> None:
    """Σ |p - q| and Σ (p - q)² of rows of ``p`` (a, v) and ``q`` (b, v) into ``out`` (2, a, b)."""
    out[:] = 0.0
    for at in range(0, p.shape[1], TERMS):
        end = min(at + TERMS, p.shape[1])
        for i in range(p.shape[0]):
            for j in range(i + 1 if triangle else 0, q.shape[0]):
                out[0, i, j] += absolute(p[i, at:end], q[j, at:end])
                out[1, i, j] += square(p[i, at:end], q[j, at:end])
