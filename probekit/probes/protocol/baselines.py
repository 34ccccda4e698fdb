"""What can be probed instead of activations: bags of pieces, lengths and word types, from the pieces a cache holds.

What a probe reaches on these, a layer has to beat: it is known without any model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge

from probekit.errors import UsageError

__all__ = [
    "SPARSE_CS",
    "LinearPath",
    "Pieces",
    "SparsePath",
    "TypeMajority",
    "bag_of_pieces",
    "keys",
    "length",
    "sparse_path",
    "sparse_ridge",
    "type_majority",
    "word_types",
]

SPARSE_CS = (1e-4, 1e-3, 1e-2, 1e-1, 0.3, 1.0, 10.0, 100.0)


class Pieces(Protocol):
    """Pieces of n texts or words: item i is ``values[start[i] : start[i] + length[i]]``.

    values : int (t,); start, length : int64 (n,)
    A cache's ``pieces`` is one such for each text of an example, its ``word_pieces`` one for all words.
    """

    values: np.ndarray
    start: np.ndarray
    length: np.ndarray


def keys(parts: Sequence[Pieces]) -> list[tuple[bytes, ...]]:
    """What tells examples apart: the bytes of the pieces of their texts, one tuple an example.

    parts : one for each text of an example. Comparable between caches of one tokenizer.
    """
    return list(zip(*map(_bytes, parts), strict=True))


def _bytes(pieces: Pieces) -> list[bytes]:
    flat, wide = pieces.values.tobytes(), pieces.values.itemsize
    start, stop = wide * pieces.start, wide * (pieces.start + pieces.length)
    return [flat[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]


def word_types(*words: Pieces) -> list[np.ndarray]:
    """A number for each word's sequence of pieces, int64 (w,) for each of the arguments; equal words, equal numbers.

    words : pieces of the words of train, dev …, of one tokenizer. To a tokenizer that marks the blank before a word
        (RoBERTa, GPT-2) the first word of a sentence is of another type than the same word further on.
    """
    codes: dict[bytes, int] = {}
    return [np.array([codes.setdefault(key, len(codes)) for key in _bytes(w)], dtype=np.int64) for w in words]


def length(parts: Sequence[Pieces]) -> np.ndarray:
    """The number of pieces and its ln(1 + number), of each text of an example: float32 (n, 2 × texts)."""
    counts = np.stack([p.length for p in parts], axis=1).astype(np.float32)
    return np.stack([counts, np.log1p(counts)], axis=2).reshape(len(counts), -1)


def bag_of_pieces(
    train: Sequence[Pieces], dev: Sequence[Pieces], *, binary: bool = True
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Bags of the pieces that occur in train, float32 csr (n_train, v) and (n_dev, v).

    train, dev : one Pieces for each text of an example. Two texts u and v become [u; v; |u - v|; u * v], as the vectors
        of pairs do (Conneau et al. 2017, section 3.1), of 4 v columns; three or more stand side by side.
    binary : whether a piece occurs, which serves short texts better than how often (Wang & Manning 2012)
    Pieces that train lacks are left out of dev.
    """
    if len(train) != len(dev):
        raise UsageError(f"train has {len(train)} texts an example, dev has {len(dev)}.")
    vocabulary = np.unique(np.concatenate([p.values[_rows(p)] for p in train]))
    return _joined(train, vocabulary, binary), _joined(dev, vocabulary, binary)


def _rows(pieces: Pieces) -> np.ndarray:
    """Where in ``values`` the pieces of all items lie, in the order of the items."""
    count = pieces.length
    return np.arange(int(count.sum())) + np.repeat(pieces.start - (np.cumsum(count) - count), count)


def _joined(parts: Sequence[Pieces], vocabulary: np.ndarray, binary: bool) -> sparse.csr_matrix:
    bags = [_bag(p, vocabulary, binary) for p in parts]
    if len(bags) == 2:
        u, v = bags
        bags += [abs(u - v), u.multiply(v)]
    return sparse.hstack(bags, format="csr", dtype=np.float32)


def _bag(pieces: Pieces, vocabulary: np.ndarray, binary: bool) -> sparse.csr_matrix:
    n, v = len(pieces.start), len(vocabulary)
    values, row = pieces.values[_rows(pieces)], np.repeat(np.arange(n), pieces.length)
    column = np.minimum(np.searchsorted(vocabulary, values), max(v - 1, 0))
    known = vocabulary[column] == values if v else np.zeros(len(values), dtype=bool)
    ones = np.ones(int(known.sum()), dtype=np.float32)
    bag = sparse.csr_matrix((ones, (row[known], column[known])), shape=(n, v))
    bag.sum_duplicates()
    if binary:
        bag.data[:] = 1
    return bag


@dataclass(frozen=True, slots=True)
class SparsePath:
    """Logistic regressions on sparse input, one for each of S penalties.

    coef : float64 (S, K, d); intercept : float64 (S, K); converged : bool (S,)
    """

    coef: np.ndarray
    intercept: np.ndarray
    converged: np.ndarray

    def log_proba(self, x: sparse.csr_matrix) -> np.ndarray:
        """Natural logarithms of the classes' probabilities, float32 (S, n, K)."""
        return np.stack(
            [
                log_softmax(x @ w.T + b, axis=1).astype(np.float32)
                for w, b in zip(self.coef, self.intercept, strict=True)
            ]
        )


def sparse_path(
    x: sparse.csr_matrix, codes: np.ndarray, classes: int, Cs: Sequence[float] = SPARSE_CS, *, balanced: bool = False
) -> SparsePath:
    """Logistic regressions for each C, each starting from the one before; scikit-learn's, by Newton's method.

    x : csr (n, d), not standardised, which would fill it up; codes : int (n,), 0 … classes-1, or -1 for rows that are
        left out. A class that does not occur gets probability 0 (-inf). balanced : all classes weigh the same
    Seconds on one core for 8 values of C: 6 for SST-2 (67,349 texts, 11,570 pieces), 17 for 5,452 texts of 50 classes.
    Raises UsageError for fewer than two classes, and codes or penalties out of range.
    """
    codes = np.asarray(codes)
    if codes.shape != x.shape[:1] or codes.min() < -1 or codes.max() >= classes:
        raise UsageError(f"codes of {x.shape[0]} rows, each -1 or 0 … {classes - 1}, are wanted, not {codes.shape}.")
    if not (len(Cs) and all(0 < c < np.inf for c in Cs)):
        raise UsageError(f"penalties are positive numbers, not {tuple(Cs)}.")
    there = np.unique(codes[codes >= 0])
    if len(there) < 2:
        raise UsageError("fewer than two classes are labelled; there is nothing to tell apart.")
    x, codes = x[codes >= 0].astype(np.float64), codes[codes >= 0]
    coef = np.zeros((len(Cs), classes, x.shape[1]))
    intercept = np.full((len(Cs), classes), -np.inf)
    converged = np.zeros(len(Cs), dtype=bool)
    weight = "balanced" if balanced else None
    model = LogisticRegression(solver="newton-cg", warm_start=True, tol=1e-6, max_iter=200, class_weight=weight)
    for s in np.argsort(Cs, kind="stable"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what does not converge is told by ``converged``
            model.set_params(C=Cs[s]).fit(x, codes)
        w, b = model.coef_, model.intercept_
        binary = len(there) == 2  # one row of weights, for the second class
        coef[s, there] = np.vstack([0 * w, w]) if binary else w
        intercept[s, there] = np.append(0, b) if binary else b
        converged[s] = int(np.max(model.n_iter_)) < model.max_iter
    return SparsePath(coef, intercept, converged)


@dataclass(frozen=True, slots=True)
class LinearPath:
    """Ridge regressions on sparse input: coef float64 (S, d), intercept float64 (S,)."""

    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, x: sparse.csr_matrix) -> np.ndarray:
        """Predicted values, float64 (S, n)."""
        return (x @ self.coef.T + self.intercept).T


def sparse_ridge(x: sparse.csr_matrix, y: np.ndarray, alphas: Sequence[float]) -> LinearPath:
    """Minimisers of ‖y - xw - b‖² + alpha ‖w‖² for each alpha, b free; scikit-learn's, by conjugate gradients.

    x : csr (n, d); y : float (n,), NaN for rows that are left out
    """
    known = ~np.isnan(y)
    x, y = x[known].astype(np.float64), y[known]
    models = [Ridge(alpha=alpha, solver="sparse_cg", tol=1e-8).fit(x, y) for alpha in alphas]
    return LinearPath(np.stack([m.coef_ for m in models]), np.array([m.intercept_ for m in models]))


@dataclass(frozen=True, slots=True)
class TypeMajority:
    """How often each word type of train had each label.

    types : int64 (m,), sorted; counts : float64 (m, K); prior : float64 (K,), the frequencies of labels in train
    """

    types: np.ndarray
    counts: np.ndarray
    prior: np.ndarray

    def log_proba(self, types: np.ndarray) -> np.ndarray:
        """ln of (count + prior) / (total + 1), float32 (n, K): the prior counts as one occurrence.

        So the likeliest label is the type's most frequent one, of equally frequent ones the more frequent in train,
        and a type that train lacks has the prior. A label that train lacks has probability 0 (-inf).
        """
        at = np.minimum(np.searchsorted(self.types, types), len(self.types) - 1)
        counts = np.where((self.types[at] == types)[:, None], self.counts[at], 0) + self.prior
        with np.errstate(divide="ignore"):
            return np.log(counts / counts.sum(1, keepdims=True)).astype(np.float32)


def type_majority(types: np.ndarray, codes: np.ndarray, classes: int) -> TypeMajority:
    """The most frequent label of each word type in train: what a word alone tells, the baseline of taggers.

    types : int (w,), from :func:`word_types`; codes : int (w,), -1 for words that are left out
    """
    if not (codes >= 0).any():
        raise UsageError("no word of train is labelled.")
    known = codes >= 0
    numbers, at = np.unique(types[known], return_inverse=True)
    counts = np.bincount(at * classes + codes[known], minlength=len(numbers) * classes).reshape(-1, classes)
    return TypeMajority(numbers, counts.astype(np.float64), counts.sum(0) / counts.sum())
