"""Which terms make up the divergence between two domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.domains.divergence import contributions
from probekit.errors import UsageError
from probekit.rows import make_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["REST", "explain"]

REST = "(all other terms)"
"""What the last row of a cut table is of."""


def explain(
    p: np.ndarray,
    q: np.ndarray,
    vocabulary: Sequence[str],
    *,
    domains: tuple[str, str] = ("p", "q"),
    tokens: tuple[int, int] = (0, 0),
    top: int | None = None,
) -> pd.DataFrame:
    """What each term adds to the Jensen-Shannon divergence of two domains: rows, the largest first.

    Parameters
    ----------
    p, q : ndarray
        (v,), the distributions.
    vocabulary : sequence of str
        The terms.
    domains : tuple of str
        Names of the two.
    tokens : tuple of int
        That the distributions rest on.
    top : int, optional
        Only so many terms, and a last row ``REST`` for all others together; all, without such a row, for None.

    Returns
    -------
    DataFrame
        Rows of the metric "js-contribution", ``value`` in bits (see
        :func:`probekit.domains.divergence.contributions`): they sum to the divergence. Own columns: domain_a,
        domain_b, term, share (of the divergence; 0 where that is 0), share_a and share_b (of the tokens of each
        domain), mostly (the domain that has more of it). Of equal contributions the term first in the vocabulary comes
        first.

    Raises
    ------
    UsageError
        Where there are not as many terms as probabilities, for top < 1, and for what is no distribution.
    """
    bits = contributions(p, q)
    if len(vocabulary) != len(bits):
        raise UsageError(f"there are {len(vocabulary)} terms and {len(bits)} probabilities.")
    if top is not None and top < 1:
        raise UsageError(f"at least 1 term is wanted, not {top}.")
    order = np.argsort(-bits, kind="stable")
    chosen = order if top is None else order[:top]
    table = [(vocabulary[i], bits[i], p[i], q[i]) for i in chosen]
    if rest := order[len(chosen) :].tolist():
        table.append((REST, bits[rest].sum(), np.asarray(p)[rest].sum(), np.asarray(q)[rest].sum()))
    whole = bits.sum()
    return make_rows(
        {
            "analysis": "domains", "task": "domains", "split": "", "model": "", "representation": "terms",
            "estimator": "plug-in", "target": "gold", "metric": "js-contribution", "value": value, "n": sum(tokens),
            "domain_a": domains[0], "domain_b": domains[1], "term": term, "share": value / whole if whole else 0.0,
            "share_a": a, "share_b": b, "mostly": "" if a == b else domains[0] if a > b else domains[1],
        }
        for term, value, a, b in table
    )  # fmt: skip
