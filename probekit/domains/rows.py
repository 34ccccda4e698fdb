"""Rows of how far domains are from each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.domains.divergence import Measure
from probekit.domains.proxy import proxy_distance
from probekit.domains.terms import Terms
from probekit.domains.uncertainty import Uncertain, by_size, halves, uncertainty
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PROXY", "domain_rows", "size_rows"]

PROXY = "proxy-a-distance"
DIRECTED = (Measure.KL, Measure.RENYI)
CORRECTED = (Measure.JS, Measure.JS_NATS, Measure.JS_DISTANCE, Measure.JS_SIMILARITY)


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

    measures : names of :class:`probekit.domains.divergence.Measure`, and ``PROXY``, the proxy A-distance
    resamples, draws, level, seed, options : see :func:`probekit.domains.uncertainty.uncertainty`
    ``value`` of the Jensen-Shannon family is corrected for what sampling adds, with the interval around it; of other
    measures it is ``raw``. Of ``kl`` and ``renyi``, which have a direction, there is a row for each way, from domain_a
    to domain_b. ``n`` is the number of documents. Own columns: domain_a, domain_b, raw, null_mean, null_high, p (see
    :class:`probekit.domains.uncertainty.Uncertain`), documents_a, documents_b, outside_a, outside_b (share of a
    domain's tokens that are not of the vocabulary). Rows with target "halves" are of two random halves of one domain,
    both domain_a and domain_b: the mean of ``draws``, and between which values ``level`` of them lie.
    Raises UsageError as :func:`probekit.domains.uncertainty.uncertainty` does; a single domain has its halves alone.
    """
    names = list(dict.fromkeys([measures] if isinstance(measures, str) else measures))
    of_terms = [name for name in names if name != PROXY]
    more: dict[str, Any] = {"level": level, "seed": seed}
    records: list[dict[str, Any]] = []
    if len(terms.names) > 1:
        found = uncertainty(
            terms.counts, terms.documents, of_terms, resamples=resamples, draws=draws, **more, **options
        )
        for name in of_terms:
            records += _of_pairs(terms, name, found[name], seed)
        if PROXY in names:
            records += _of_proxy(terms, more)
    for i, counts in enumerate(terms.counts):
        split = halves(counts, of_terms, draws=draws, seed=[seed, i], **options)
        for name, values in split.items():
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
            own = {"estimator": "plug-in", "target": "halves", "value": values.mean(), "ci_low": low, "ci_high": high}
            records.append(_about(terms, i, i) | own | {"metric": name, "seed": seed, "raw": values.mean()})
        progress("halves of domains", i + 1, len(terms.names))
    return make_rows(records)


def _of_pairs(terms: Terms, name: str, found: Uncertain, seed: int) -> Iterator[dict[str, Any]]:
    d = len(terms.names)
    estimator = "null-corrected" if name in CORRECTED else "plug-in"
    for i, j in permutations(range(d), 2) if name in DIRECTED else combinations(range(d), 2):
        yield _about(terms, i, j) | {
            "estimator": estimator, "target": "gold", "metric": name, "seed": seed, "value": found.value[i, j],
            "ci_low": found.low[i, j], "ci_high": found.high[i, j], "raw": found.raw[i, j],
            "null_mean": found.null_mean[i, j], "null_high": found.null_high[i, j], "p": found.p[i, j],
        }  # fmt: skip


def _of_proxy(terms: Terms, more: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for i, j in combinations(range(len(terms.names)), 2):
        pair = (float(terms.documents[i]), float(terms.documents[j]))
        found = proxy_distance(terms.counts[i], terms.counts[j], pair, **more)
        yield _about(terms, i, j) | {
            "estimator": "logistic", "target": "gold", "metric": PROXY, "seed": more["seed"], "value": found.value,
            "ci_low": found.low, "ci_high": found.high, "raw": found.value, "error": found.error, "blocks": found.n,
        }  # fmt: skip


def _about(terms: Terms, i: int, j: int) -> dict[str, Any]:
    documents, outside = terms.documents, terms.outside / np.maximum(terms.tokens, 1)
    return {
        "task": "domains", "split": "", "model": "", "layer": None, "representation": "terms",
        "n": int(documents[i] + documents[j] * (i != j)), "domain_a": terms.names[i], "domain_b": terms.names[j],
        "documents_a": int(documents[i]), "documents_b": int(documents[j]),
        "outside_a": float(outside[i]), "outside_b": float(outside[j]),
    }  # fmt: skip


def size_rows(
    terms: Terms,
    shares: Sequence[float] = (0.05, 0.1, 0.2, 0.5, 1.0),
    *,
    repeats: int = 20,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """The Jensen-Shannon divergence, in bits, of each pair by the share of the documents that is used.

    The metric is "js-divergence-by-size": ``value`` corrected, ``raw`` with raw_low and raw_high, null_mean, ``part``
    (the share) and ``n``, the documents of both that are used; see :func:`probekit.domains.uncertainty.by_size`.
    """
    records = []
    for found in by_size(terms.counts, terms.documents, shares, repeats=repeats, seed=seed, **options):
        own = {key: found[key] for key in ("value", "raw", "raw_low", "raw_high", "null_mean")}
        about = _about(terms, int(found["first"]), int(found["second"])) | {"n": found["documents"]}
        how = {"estimator": "null-corrected", "target": "gold", "metric": "js-divergence-by-size", "seed": seed}
        records.append(about | how | own | {"part": found["share"]})
    return make_rows(records)
