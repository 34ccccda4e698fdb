"""Documents that are copies of each other form one unit: resampled, split and left out together."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from probekit.statistics.duplicates import TextNumbers, find_groups

if TYPE_CHECKING:
    from probekit.domains.terms import Terms

__all__ = ["FEWEST_TERMS", "SIMILAR", "whole_units"]

log = logging.getLogger(__name__)

SIMILAR = 0.8
"""The least Jaccard similarity of two documents that are copies: long ones of one subject share many terms."""
FEWEST_TERMS = 5
"""Shorter documents ("Yes.") are equal by chance."""
MOST_OFTEN = 16
"""Occurrences of a term in a document; further ones are not compared."""


def whole_units(terms: Terms) -> tuple[Terms, dict[int, str]]:
    """Counts with copies in one block, and a message for each domain that has some.

    If there are more documents than blocks, equal documents already share a block (see
    :mod:`probekit.domains.counting`).
    """
    counts, messages = list(terms.counts), {}
    for k, (name, matrix) in enumerate(zip(terms.names, terms.counts, strict=True)):
        if matrix.shape[0] != terms.documents[k]:
            continue
        own = sparse.csr_array(matrix)
        long = np.flatnonzero(np.diff(own.indptr) >= FEWEST_TERMS)
        found = find_groups([_numbers(own, long)], near=SIMILAR, frames=False)
        if found.count == len(long):
            continue
        of = np.arange(matrix.shape[0])
        first = np.unique(found.of, return_index=True)[1]
        of[long] = long[first[found.of]]
        unit = np.unique(of, return_inverse=True)[1].reshape(-1).astype(np.int32)
        size = int(unit.max()) + 1
        ones = np.ones(len(unit), dtype=matrix.dtype)
        rows = np.arange(len(unit), dtype=np.int32)
        counts[k] = sparse.csr_array((ones, (unit, rows)), shape=(size, len(unit))) @ own
        messages[k] = (
            f"{found.together:,} of {len(unit):,} documents of {name} are copies or near copies of others; they are "
            f"resampled and split together, as {size:,} units"
        )
        log.warning("%s.", messages[k])
    return (replace(terms, counts=tuple(counts)) if messages else terms), messages


def _numbers(counts: sparse.csr_array, documents: np.ndarray) -> TextNumbers:
    """Documents as numbers: a term's first occurrence, its second … are different ones, in the order of the terms."""
    own = counts[documents]
    own.sort_indices()
    often = np.minimum(own.data, MOST_OFTEN).astype(np.int64)
    which = np.arange(int(often.sum())) - np.repeat(np.cumsum(often) - often, often)
    values = np.repeat(own.indices.astype(np.int64), often) * MOST_OFTEN + which
    end = np.append(0, np.cumsum(often))[own.indptr]
    return TextNumbers(values, end[:-1], np.diff(end))
