"""The Jensen-Shannon divergence of the domains that two corpora come from, and its standard error.

The divergence is a mean over terms of the information that a term gives about its domain, 1 - H(r) bits, weighted by
the term's frequency, where r is the share of the first domain in the term. For frequent terms, r is known and the
plug-in estimate has only a bias of first order (delta method). For rare terms it is not: a term with two occurrences in
one corpus looks as if only that domain had it. The distribution of r is estimated from all terms of similar frequency,
by nonparametric maximum likelihood (Kiefer & Wolfowitz 1956; Laird 1978; empirical Bayes, Efron 2010, chapter 1),
symmetric in the two domains, and a term counts with its posterior mean. The estimate for a frequency starts from that
of more frequent terms and takes a few EM steps, so that the rarest terms, which carry least information, stay close to
their neighbours.

Occurrences are not independent draws: words of one document come together. The likelihood is tempered by the design
effect of the terms of a frequency, their variance between blocks over that of independent draws (quasi-likelihood,
Wedderburn 1974). The standard error is the jackknife's over parts of the blocks (Efron & Tibshirani 1993, chapter 11).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

SHARES = np.concatenate([[1e-9, 1e-3, 4e-3, 0.01, 0.02, 0.04], np.linspace(0.07, 0.5, 13)])
SHARES = np.concatenate([SHARES, 1 - SHARES[-2::-1]])
"""Grid of values of r."""
INFORMATION = 1 + SHARES * np.log2(SHARES) + (1 - SHARES) * np.log2(1 - SHARES)
"""Information of a term with such an r about its domain, in bits."""
ENOUGH = 100
"""With this many effective occurrences, r is treated as known, except for its bias of first order."""
TERMS = 60
"""Smallest number of terms of similar frequency whose shares are estimated together."""
STEPS = {"first": 100, "next": 15}
PARTS = 10
"""Parts of each domain's blocks that the jackknife leaves out in turn."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A divergence in bits, its standard error, and the factor of the error that gives the interval."""

    value: float
    error: float
    factor: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """For blocks with counts c_k and n_k tokens: Σ c_k, Σ c_k², Σ c_k n_k, each (v,), Σ n_k², and their number."""

    count: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    tokens2: float
    blocks: int

    @property
    def total(self) -> float:
        return float(self.count.sum())

    @property
    def variance(self) -> np.ndarray:
        """Variance of a term's count between blocks: n² times that of the ratio (Cochran 1977, equation 6.9)."""
        p = self.count / self.total
        residual = self.square - 2 * p * self.cross + p**2 * self.tokens2
        return np.maximum(residual, 0) * self.blocks / max(self.blocks - 1, 1)

    def __sub__(self, other: _Counts) -> _Counts:
        return _Counts(
            self.count - other.count,
            self.square - other.square,
            self.cross - other.cross,
            self.tokens2 - other.tokens2,
            self.blocks - other.blocks,
        )


def js_of_domains(a: sparse.csr_array, b: sparse.csr_array) -> float:
    """The divergence of two domains in bits, from their blocks (blocks, v)."""
    return _estimate(_counts(a), _counts(b))


def js_with_error(a: sparse.csr_array, b: sparse.csr_array, level: float = 0.95) -> Estimate:
    """The same with its standard error; the factor is Student's, with Satterthwaite's degrees of freedom."""
    whole = _counts(a), _counts(b)
    variance = []
    for side, blocks in enumerate((a, b)):
        parts = min(PARTS, blocks.shape[0])
        of = np.arange(blocks.shape[0]) % parts
        without = [whole[side] - _counts(blocks[np.flatnonzero(of == k)]) for k in range(parts)]
        again = np.array([_estimate(*((w, whole[1]) if side == 0 else (whole[0], w))) for w in without if w.total > 0])
        variance.append(((len(again) - 1) / max(len(again), 1) * ((again - again.mean()) ** 2).sum(), len(again) - 1))
    total = sum(v for v, _ in variance)
    spread = sum(v**2 / max(df, 1) for v, df in variance)
    df = total**2 / spread if spread > 0 else 1.0
    return Estimate(_estimate(*whole), float(np.sqrt(total)), float(stats.t.ppf((1 + level) / 2, df)))


def _counts(blocks: sparse.csr_array) -> _Counts:
    tokens = np.asarray(blocks.sum(1)).ravel()
    square = np.asarray(blocks.multiply(blocks).sum(0)).ravel()
    return _Counts(
        np.asarray(blocks.sum(0)).ravel(), square, blocks.T @ tokens, float(tokens @ tokens), int((tokens > 0).sum())
    )


def _estimate(a: _Counts, b: _Counts) -> float:
    count = a.count + b.count
    order = np.argsort(-count, kind="stable")
    order = order[count[order] > 0]
    variance = a.variance + b.variance
    prior, bits = None, 0.0
    for at in np.split(order, _cuts(count[order])):
        effect = variance[at].sum() / count[at].sum()
        if count[at].min() >= ENOUGH * effect:
            bits += _known(a, b, at)
        else:
            added, prior = _estimated(a, b, at, max(effect, 1.0), prior)
            bits += added
    return float(np.clip(bits, 0, 1))


def _cuts(count: np.ndarray) -> list[int]:
    """Boundaries between frequency classes of terms: half octaves, merged until they have enough terms."""
    ends = [*(np.flatnonzero(np.diff(np.floor(2 * np.log2(count)))) + 1).tolist(), len(count)]
    cuts = [0]
    for end in ends:
        if end - cuts[-1] >= TERMS:
            cuts.append(end)
    if len(cuts) > 1 and cuts[-1] != len(count):
        cuts.pop()
    return [cut for cut in cuts[1:] if cut != len(count)]


def _known(a: _Counts, b: _Counts, at: np.ndarray) -> float:
    """Information of terms minus half of Σ ∂²J/∂p² Var p + ∂²J/∂q² Var q, where ∂²J/∂p² is q / 2p(p + q) nats."""
    (p, var_p), (q, var_q) = ((s.count[at] / s.total, s.variance[at] / s.total**2) for s in (a, b))
    share = p / (p + q)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nan_to_num(share * np.log2(share)) - np.nan_to_num((1 - share) * np.log2(1 - share))
        bias = np.where(p > 0, q / (p * (p + q)) * var_p, 0) + np.where(q > 0, p / (q * (p + q)) * var_q, 0)
    return float((p + q) @ (1 - entropy) / 2 - bias.sum() / (4 * np.log(2)))


def _estimated(
    a: _Counts, b: _Counts, at: np.ndarray, effect: float, prior: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Information of terms from the posterior of their shares, and the distribution of the shares."""
    one, two = SHARES * a.total, (1 - SHARES) * b.total
    base = b.count[at].max() + 1
    codes, times = np.unique(a.count[at] * base + b.count[at], return_counts=True)
    pairs = np.stack(np.divmod(codes, base), 1)
    likely = pairs @ np.log(np.stack([one, two]) / (one + two))
    likely = np.exp((likely - likely.max(1, keepdims=True)) / effect)
    steps = STEPS["first" if prior is None else "next"]
    shares = np.full(len(SHARES), 1 / len(SHARES)) if prior is None else prior
    for _ in range(steps):
        shares = shares * (likely.T @ (times / (likely @ shares))) / times.sum()
        shares = (shares + shares[::-1]) / 2
    information = likely @ (shares * INFORMATION) / (likely @ shares)
    weight = (pairs[:, 0] / a.total + pairs[:, 1] / b.total) / 2 * times
    return float(weight @ information), shares
