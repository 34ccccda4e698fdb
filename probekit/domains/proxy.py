"""Proxy A-distance: how well a linear classifier distinguishes the documents of two domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from probekit.domains.resampling import matched
from probekit.errors import UsageError

STRENGTH = 10.0  # C of the penalty, for features of length 1
DRAWS = 10_000  # draws of the error for its interval


@dataclass(frozen=True, slots=True)
class Proxy:
    """Attributes
    ----------
    value : float
        2 (1 - 2 error), at most 2, about 0 for indistinguishable domains.
    low, high : float
        Interval of the value.
    error : float
        Error rate, averaged over the two domains.
    n : int
        Number of classified blocks.
    """

    value: float
    low: float
    high: float
    error: float
    n: int


def proxy_distance(
    a: Any, b: Any, documents: tuple[float, float], *, folds: int = 5, level: float = 0.95, seed: int = 0
) -> Proxy:
    """Proxy A-distance of two domains (Ben-David, Blitzer, Crammer & Pereira 2007, section 4): 2 (1 - 2ε).

    ε is the error on held-out blocks (in stratified ``folds``) of logistic regression on the square roots of a block's
    term shares, which have length 1; both domains have the same weight, so that chance is 1/2. The distance grows with
    the size of blocks: compare only distances for blocks of the same size. The interval is Jeffreys' interval for the
    two error rates; it does not include the variation due to the training data.

    Parameters
    ----------
    a, b : Any
        (blocks, v) counts.
    documents : tuple[float, float]
        Number of documents of each. Neighbouring blocks are merged if those of one domain hold at most half as many
        documents as the other's, because larger blocks are easier to classify.

    Raises
    ------
    UsageError
        For fewer than two blocks with terms in a domain, and for fewer than two folds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    sides = matched(a, b, documents)
    sizes = np.array([side.shape[0] for side in sides])
    folds = min(folds, int(sizes.min()))
    if folds < 2:
        raise UsageError(
            f"there are {sizes[0]} and {sizes[1]} blocks of similar size; testing a classifier needs two of each. Give "
            "the smaller domain more documents."
        )
    counts = sparse.vstack(sides, format="csr")
    x = (sparse.diags_array(1 / counts.sum(1)) @ counts).sqrt().tocsr()
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)  # required by liblinear
    y = np.repeat([0, 1], sizes)
    wrong = np.zeros(len(y), dtype=bool)
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
        model = LogisticRegression(C=STRENGTH, class_weight="balanced", solver="liblinear", max_iter=1000)
        wrong[test] = model.fit(x[train], y[train]).predict(x[test]) != y[test]
    errors = np.array([wrong[y == side].sum() for side in (0, 1)])
    error = float((errors / sizes).mean())
    drawn = np.random.default_rng(seed).beta(errors + 0.5, sizes - errors + 0.5, (DRAWS, 2)).mean(1)
    low, high = 2 * (1 - 2 * np.quantile(drawn, [(1 + level) / 2, (1 - level) / 2]))
    value = 2 * (1 - 2 * error)
    return Proxy(value, min(float(low), value), max(float(high), value), error, len(y))
