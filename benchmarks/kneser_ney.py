"""An interpolated, modified Kneser-Ney n-gram model (Chen and Goodman 1999, section 3) over word pieces.

The counts of order n are those of the text; an n-gram of a lower order counts the distinct pieces before it. Each order
has three discounts, estimated from the numbers of n-grams that occur once to four times; the unigrams are interpolated
with the uniform distribution over the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["KneserNey"]


@dataclass(frozen=True)
class _Order:
    """The n-grams of one order.

    Attributes
    ----------
    keys : np.ndarray
        Sorted int64: id of the (n - 1)-gram without the last piece, times the vocabulary, plus the last piece.
    discounted : np.ndarray
        Count less discount, of each n-gram.
    total, free : np.ndarray
        Of each (n - 1)-gram as a context: the sum of counts, and of discounts.
    """

    keys: np.ndarray
    discounted: np.ndarray
    total: np.ndarray
    free: np.ndarray


class KneserNey:
    """The model of a text.

    Parameters
    ----------
    ids : np.ndarray
        Pieces of the text, (t,).
    vocabulary : int
        Number of pieces.
    order : int, default 5
        Pieces in the longest n-gram.
    """

    def __init__(self, ids: np.ndarray, vocabulary: int, order: int = 5) -> None:
        self.vocabulary = vocabulary
        grams: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # keys, first place, context of each
        before, places = np.zeros(len(ids), dtype=np.int64), np.arange(len(ids))
        counts = np.zeros(0, dtype=np.int64)
        numbers: list[np.ndarray] = []  # of the n-gram that ends at each place
        for _ in range(order):
            keys, at, inverse, counts = np.unique(
                before * vocabulary + ids[places], return_index=True, return_inverse=True, return_counts=True
            )
            grams.append((keys, places[at], before[at]))
            number = np.full(len(ids), -1, dtype=np.int64)
            number[places] = inverse
            numbers.append(number)
            places = places[1:]
            before = number[places - 1]
        self.orders, contexts = list[_Order](), 1
        for n, (keys, _, context) in enumerate(grams):
            if n + 1 < order:  # the distinct pieces before each n-gram: one for each longer n-gram that ends with it
                counted = np.bincount(numbers[n][grams[n + 1][1]], minlength=len(keys))
            self.orders.append(_order(keys, counted if n + 1 < order else counts, context, contexts))
            contexts = len(keys)

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """The probability of each piece given those before it, (t,); the first has none before it."""
        p = np.full(len(ids), 1 / self.vocabulary)
        number = np.zeros(len(ids), dtype=np.int64)  # of the context that ends before each place
        for one in self.orders:
            known = number >= 0
            keys = np.where(known, number, 0) * self.vocabulary + ids
            found = np.minimum(np.searchsorted(one.keys, keys), len(one.keys) - 1)
            seen = known & (one.keys[found] == keys)
            context = np.where(known, number, 0)
            total = np.where(known, one.total[context], 0)
            own = np.where(seen, one.discounted[found], 0.0)
            p = np.where(total > 0, (own + one.free[context] * p) / np.maximum(total, 1), p)
            number = np.concatenate([[-1], np.where(seen, found, -1)[:-1]])
        return p


def _order(keys: np.ndarray, counts: np.ndarray, context: np.ndarray, contexts: int) -> _Order:
    discount = discounts(counts)[np.minimum(counts, 3)]
    total = np.bincount(context, weights=counts, minlength=contexts)
    free = np.bincount(context, weights=discount, minlength=contexts)
    return _Order(keys, counts - discount, total, free)


def discounts(counts: np.ndarray) -> np.ndarray:
    """The discounts of n-grams with counts 0, 1, 2 and 3 or more (Chen and Goodman 1999, equation 26).

    They are at least 0.05, so that no piece has probability 0; only texts that hardly resemble language need this.
    """
    n1, n2, n3, n4 = (max(1, int((counts == k).sum())) for k in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    found = np.array([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return np.clip(found, [0, 0.05, 0.05, 0.05], [0, 1, 2, 3])
