"""Rows of divergences between domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from probekit.domains.counting import FEWEST_TERMS
from probekit.domains.divergence import DIRECTED, contributions
from probekit.domains.options import PROXY, Measure
from probekit.domains.proxy import Proxy, proxy_distance
from probekit.domains.resampling import halves, has_like, stream
from probekit.domains.terms import Terms
from probekit.domains.uncertainty import Uncertain, by_size, uncertainty
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress
from probekit.statistics.duplicates import TextNumbers, find_groups

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__)

LONGER = 2.0  # ratio of mean lengths above which a note says that documents differ in length
REST = "(all other terms)"
"""The term of the last row of a truncated table."""
SIMILAR = 0.8
"""The least Jaccard similarity of two documents that are copies: long ones of one subject share many terms."""
MOST_OFTEN = 16
"""Occurrences of a term in a document; further ones are not compared."""


def domain_rows(
    terms: Terms,
    measures: str | Iterable[str] = (Measure.JS,),
    *,
    resamples: int = 1000,
    draws: int = 199,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> pd.DataFrame:
    """A row for each measure and pair of domains, and one for the two halves of each domain.

    Parameters
    ----------
    terms : Terms
        Counts of the domains.
    measures : str or iterable of str
        Names of :class:`probekit.domains.options.Measure`, and ``PROXY``, the proxy A-distance.
    resamples, draws, level, seed : int or float
        See :func:`probekit.domains.uncertainty.uncertainty`.
    progress : callable
        Receives the progress of the work.
    **options
        See :func:`probekit.domains.uncertainty.uncertainty`.

    Returns
    -------
    DataFrame
        For the Jensen-Shannon family, ``value`` is corrected for sampling, with an interval around it; for other
        measures it is ``raw``. ``kl`` and ``renyi`` are directed and have a row for each direction, from domain_a to
        domain_b. ``p`` refers to the null distribution, ``n`` is the number of documents. Additional columns: domain_a,
        domain_b, raw, null_mean, null_high (see :class:`probekit.domains.uncertainty.Uncertain`), terms (size of the
        vocabulary), and for each of the two domains documents, tokens, outside (share of tokens outside the vocabulary)
        and pruned (tokens of terms that were dropped to limit memory). Rows with target "halves" compare two random
        halves of one domain, which is both domain_a and domain_b: the mean over ``draws``, and their central ``level``.

    Raises
    ------
    UsageError
        As from :func:`probekit.domains.uncertainty.uncertainty`; a single domain only has rows for its halves.
    """
    names = list(dict.fromkeys([measures] if isinstance(measures, str) else measures))
    of_terms = [name for name in names if name != PROXY]
    more: dict[str, Any] = {"level": level, "seed": seed}
    terms, copies = _whole_units(terms)
    blocks = [int((counts.sum(axis=1) > 0).sum()) for counts in terms.counts]
    notes = {
        pair: "; ".join([*filter(None, [_note(terms, blocks, *pair)]), *(copies[k] for k in pair if k in copies)])
        for pair in permutations(range(len(blocks)), 2)
    }
    records: list[dict[str, Any]] = []
    if len(terms.names) > 1 and of_terms:
        how: dict[str, Any] = {"names": terms.names, "resamples": resamples, "draws": draws, "progress": progress}
        found = uncertainty(terms.counts, terms.documents, of_terms, **how, **more, **options)
        for name in of_terms:
            records += _of_pairs(terms, name, found[name], seed, notes)
    if PROXY in names:
        records += _of_proxy(terms, more, notes, progress)
    for i, (called, counts) in enumerate(zip(terms.names, terms.counts, strict=True)):
        if not (draws and of_terms):
            break
        split = halves(counts, of_terms, draws=draws, rng=stream(seed, "halves", called), **options)
        for name, values in split.items():
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
            row = {"estimator": "plug-in", "target": "halves", "value": values.mean(), "ci_low": low, "ci_high": high}
            records.append(_about(terms, i, i) | row | {"metric": name, "seed": seed, "raw": values.mean(), "note": ""})
        progress("halves", i + 1, len(terms.names))
    return make_rows(records)


def _of_pairs(
    terms: Terms, name: str, found: Uncertain, seed: int, notes: Mapping[tuple[int, int], str]
) -> Iterator[dict[str, Any]]:
    d = len(terms.names)
    for i, j in permutations(range(d), 2) if name in DIRECTED else combinations(range(d), 2):
        corrected = found.value[i, j] != found.raw[i, j]
        yield _about(terms, i, j) | {
            "estimator": "corrected" if corrected else "plug-in", "target": "gold", "metric": name, "seed": seed,
            "value": found.value[i, j], "ci_low": found.low[i, j], "ci_high": found.high[i, j],
            "raw": found.raw[i, j], "null_mean": found.null_mean[i, j], "null_high": found.null_high[i, j],
            "p": found.p[i, j], "null_share": found.null_share[i, j], "note": notes[i, j],
        }  # fmt: skip


def _of_proxy(
    terms: Terms, more: Mapping[str, Any], notes: Mapping[tuple[int, int], str], progress: Progress
) -> Iterator[dict[str, Any]]:
    pairs = list(combinations(range(len(terms.names)), 2))
    for done, (i, j) in enumerate(pairs, 1):
        a, b = sorted((i, j), key=terms.names.__getitem__)  # the numbers must not depend on the order
        note = notes[i, j]
        try:
            both = float(terms.documents[a]), float(terms.documents[b])
            found = proxy_distance(terms.counts[a], terms.counts[b], both, **more)
        except UsageError as error:  # too little text for this pair; the others are still measured
            found, note = Proxy(np.nan, np.nan, np.nan, np.nan, 0), str(error)
        yield _about(terms, i, j) | {
            "estimator": "logistic", "target": "gold", "metric": PROXY, "seed": more["seed"], "value": found.value,
            "ci_low": found.low, "ci_high": found.high, "raw": found.value, "error": found.error, "blocks": found.n,
            "note": note,
        }  # fmt: skip
        progress("proxies", done, len(pairs))


def _note(terms: Terms, blocks: Sequence[int], i: int, j: int) -> str:
    """A warning on a pair of domains with these numbers of non-empty blocks; usually ""."""
    names, documents = (terms.names[i], terms.names[j]), (int(terms.documents[i]), int(terms.documents[j]))
    sizes = documents[0] / blocks[i], documents[1] / blocks[j]
    notes = []
    if not has_like((blocks[i], blocks[j]), documents):
        large = int(sizes[1] > sizes[0])
        notes.append(
            f"no null: a block of {names[large]} holds {sizes[large]:,.0f} documents, but {names[1 - large]} has only "
            f"{documents[1 - large]:,}; divide {names[large]} into more blocks"
        )
    lengths = [terms.tokens[k] / terms.documents[k] for k in (i, j)]
    if max(lengths) > LONGER * min(lengths):
        long = int(lengths[1] > lengths[0])
        notes.append(
            f"documents of {names[long]} are {max(lengths) / min(lengths):.1f} times as long as those of "
            f"{names[1 - long]}; the null is approximate"
        )
    return "; ".join(notes)


def _about(terms: Terms, i: int, j: int) -> dict[str, Any]:
    documents, outside = terms.documents, terms.outside / np.maximum(terms.tokens, 1)
    return {
        "analysis": "domains", "task": "domains", "split": "", "model": "", "layer": None, "representation": "terms",
        "n": int(documents[i] + documents[j] * (i != j)), "domain_a": terms.names[i], "domain_b": terms.names[j],
        "documents_a": int(documents[i]), "documents_b": int(documents[j]),
        "tokens_a": int(terms.tokens[i]), "tokens_b": int(terms.tokens[j]), "terms": len(terms.vocabulary),
        "pruned_a": int(terms.pruned[i]), "pruned_b": int(terms.pruned[j]),
        "outside_a": float(outside[i]), "outside_b": float(outside[j]),
    }  # fmt: skip


def size_rows(
    terms: Terms,
    parts: Sequence[float] = (0.05, 0.1, 0.2, 0.5, 1.0),
    *,
    repeats: int = 20,
    seed: int = 0,
    progress: Progress = no_progress,
    **options: Any,
) -> pd.DataFrame:
    """The Jensen-Shannon divergence of each pair, in bits, by the share of documents used.

    The metric is "js-divergence-by-size": ``value`` corrected, ``raw`` with raw_low and raw_high, null_mean, ``part``
    (the share) and ``n``, the number of documents used in both; see :func:`probekit.domains.uncertainty.by_size`.
    """
    records = []
    terms, _ = _whole_units(terms)
    how: dict[str, Any] = {"names": terms.names, "repeats": repeats, "seed": seed, "progress": progress}
    for found in by_size(terms.counts, terms.documents, parts, **how, **options):
        numbers = {key: found[key] for key in ("value", "raw", "raw_low", "raw_high", "null_mean")}
        about = _about(terms, int(found["first"]), int(found["second"])) | {"n": found["documents"]}
        kind = {"estimator": "corrected", "target": "gold", "metric": "js-divergence-by-size", "seed": seed}
        records.append(about | kind | numbers | {"part": found["part"]})
    return make_rows(records)


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


def _whole_units(terms: Terms) -> tuple[Terms, dict[int, str]]:
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
