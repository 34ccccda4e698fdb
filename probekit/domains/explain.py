"""The contributions of terms to the divergence between two domains."""

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
"""The term of the last row of a truncated table."""


def explain(
    p: np.ndarray,
    q: np.ndarray,
    vocabulary: Sequence[str],
    *,
    domains: tuple[str, str] = ("p", "q"),
    tokens: tuple[int, int] = (0, 0),
    top: int | None = None,
) -> pd.DataFrame:
    """The contribution of each term to the Jensen-Shannon divergence of two domains, the largest first.

    Parameters
    ----------
    p, q : ndarray
        (v,), the distributions.
    vocabulary : sequence of str
        The terms.
    domains : tuple of str
        Names of the two domains.
    tokens : tuple of int
        Numbers of tokens behind the distributions.
    top : int, optional
        Number of terms, followed by a row ``REST`` for all others together (default: all terms, without that row).

    Returns
    -------
    DataFrame
        Rows with the metric "js-contribution", ``value`` in bits (see
        :func:`probekit.domains.divergence.contributions`); they sum to the divergence. Additional columns: domain_a,
        domain_b, term, share (of the divergence; 0 if that is 0), share_a and share_b (of the tokens of each domain),
        mostly (the domain in which the term is more frequent). Ties are in the order of the vocabulary.

    Raises
    ------
    UsageError
        If the numbers of terms and probabilities differ, for top < 1, and for invalid distributions.
    """
    bits = contributions(p, q)
    if len(vocabulary) != len(bits):
        raise UsageError(f"the numbers of terms ({len(vocabulary)}) and probabilities ({len(bits)}) differ.")
    if top is not None and top < 1:
        raise UsageError(f"top must be 1 or more, not {top}.")
    order = np.argsort(-bits, kind="stable")
    chosen = order if top is None else order[:top]
    table = [(vocabulary[i], bits[i], p[i], q[i]) for i in chosen]
    if others := order[len(chosen) :].tolist():
        table.append((REST, bits[others].sum(), np.asarray(p)[others].sum(), np.asarray(q)[others].sum()))
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
