"""Structural probes: how often a layer is said to be above the linear chain, and how often intervals hold the truth.

The trees that probes predict are given: of each sentence the chain, or a star around a word. Sentences are of very
unequal length; they may come in documents whose trees are alike. A probe that joins the star has the same expected
share of edges as the chain where gold trees are one or the other with the same probability. From trees to the sentence.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.analyses.structural.measure import CHAIN, _beside_the_chain, _Set, _Table
from probekit.analyses.structural.scores import Gold, Intervals, Scores
from probekit.analyses.structural.trees import Treebank
from probekit.analyses.verdict import sentences
from probekit.probes.trees.gold import chain, distances
from probekit.probes.trees.options import StructuralOptions
from probekit.rows import make_rows
from probekit.statistics.predictions import by_split

OPTIONS = StructuralOptions(resamples=400, controls=0)


def star(n: int, root: int) -> np.ndarray:
    """The heads of words that all hang on one, int64 (n,)."""
    heads = np.full(n, root + 1)
    heads[root] = 0
    return heads


def lengths(rng: np.random.Generator, count: int) -> np.ndarray:
    """Words of sentences, from 3 to 40."""
    return np.clip(np.rint(rng.lognormal(2.0, 0.6, size=count)), 3, 40).astype(int)


def above(rng: np.random.Generator, *, count: int, document: int, models: int, layers: int) -> bool:
    """Whether a sentence says that a layer is above the chain, where all are as good."""
    length, of = lengths(rng, count), np.arange(count) // document
    roots = [int(rng.integers(n)) for n in length]
    is_star = (rng.random(count) < 0.5)[of]
    heads = [star(n, r) if s else np.arange(n) for n, r, s in zip(length, roots, is_star, strict=True)]
    flat = np.concatenate(heads)
    bank = Treebank(length, flat, np.zeros(len(flat), int), ("dep", "root"), np.ones(len(flat), bool),
                    np.arange(count), {})  # fmt: skip
    gold = Gold.of(bank, np.arange(len(flat)))
    score = Scores.of(bank, gold)
    whole = _Set([bank, bank], [], gold, score, Intervals(length, of, OPTIONS))
    lines = [chain(int(n)) for n in length]
    tables = []
    for m in range(models):
        about = {"analysis": "structural", "task": "t", "split": "dev", "model": f"m{m}", "target": "gold"}
        table = _Table(about, length, score.edges, np.arange(count).astype(str), of)
        found = score.found(lines)
        of_chain = {"layer": None, "representation": "none", "estimator": CHAIN}
        table.add(of_chain, score.of_distances(found, lines), found, whole)
        for layer in range(layers):
            said = rng.random(count) < (layer + 1) / layers  # joins the star in so many sentences, else the chain
            tree = [distances(star(n, r)) if s else line
                    for n, r, s, line in zip(length, roots, said, lines, strict=True)]  # fmt: skip
            found = score.found(tree)
            kind = {"layer": str(layer), "representation": "mean", "estimator": "structural-4", "rank": 4}
            table.add(kind, score.of_distances(found, tree), found, whole)
        tables.append(table)
    rows = [row for table in tables for row in table.rows]
    for e in by_split(table.predictions() for table in tables):
        rows += _beside_the_chain(e, OPTIONS)
    return any(", above the linear chain" in said for said in sentences(make_rows(rows)))


def roots(rng: np.random.Generator, *, count: int, share: float, document: int) -> bool | None:
    """Whether the interval of root accuracy holds the share of right roots, by documents that are alike."""
    of = np.arange(count) // document
    alike = rng.random(count) < 0.5 * (document > 1)
    right = np.where(alike, (rng.random(count) < share)[of], rng.random(count) < share)
    sums = np.stack([right, np.ones(count)], axis=1)
    [row] = Intervals(np.full(count, 7), of, OPTIONS).rows({"root-accuracy": sums})
    return None if "why" in row else bool(row["ci_low"] <= share <= row["ci_high"])


def edges(rng: np.random.Generator, *, count: int, share: float) -> bool | None:
    """Whether the interval of uuas holds the share of edges, of sentences of unequal length that are easy or hard."""
    total = lengths(rng, count) - 1
    easy = rng.beta(4 * share, 4 * (1 - share), size=count)
    sums = np.stack([rng.binomial(total, easy), total], axis=1).astype(float)
    [row] = Intervals(total + 1, np.arange(count), OPTIONS).rows({"uuas": sums})
    return None if "why" in row else bool(row["ci_low"] <= share <= row["ci_high"])


def ranks(rng: np.random.Generator, *, count: int, mean: float) -> bool | None:
    """Whether the interval of a mean of coefficients, of sentences of 5 to 8 words, holds the mean of all."""
    length = rng.integers(5, 9, size=count)
    value = 2 * rng.beta(3 * (1 + mean), 3 * (1 - mean), size=count) - 1
    sums = np.stack([value, np.ones(count)], axis=1)
    [row] = Intervals(length, np.arange(count), OPTIONS).rows({"depth-spearman": sums})
    return None if "why" in row else bool(row["ci_low"] <= mean <= row["ci_high"])


for count, document, models, layers in ((30, 1, 1, 1), (60, 1, 1, 4), (60, 1, 2, 4), (80, 4, 1, 4)):
    run = partial(above, count=count, document=document, models=models, layers=layers)
    where = f"{count} sentences" + f", documents of {document}" * (document > 1)
    where += f", {models} models" * (models > 1) + f", {layers} layers" * (layers > 1)
    case(f"structural/a layer is above a linear chain that is as good, {where}", "false positives", nominal=0.025)(run)
for count, share, document in ((10, 0.9, 1), (30, 0.95, 1), (30, 0.99, 1), (60, 0.95, 3), (200, 0.99, 1)):
    run = partial(roots, count=count, share=share, document=document)
    where = f"{share:.0%} right, {count} sentences" + f", documents of {document}" * (document > 1)
    case(f"structural/root-accuracy, {where}", "coverage", runs=400)(run)
for count in (10, 30, 100):
    for share in (0.5, 0.97):
        case(f"structural/uuas, {share:.0%} found, {count} sentences", "coverage", runs=400)(
            partial(edges, count=count, share=share)
        )
    for mean in (0.4, 0.95):
        case(f"structural/depth-spearman, {mean:g}, {count} sentences", "coverage", runs=400)(
            partial(ranks, count=count, mean=mean)
        )
