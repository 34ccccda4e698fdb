"""The n-gram model that language models are compared with: against a slow twin, and as a distribution."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from kneser_ney import KneserNey, discounts


def slow(text: list[int], vocabulary: int, order: int):
    """The same model with dictionaries, as in the paper: p(w | context) by recursion."""
    grams = [Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for n in range(1, order + 1)]
    counts = [Counter(g[1:] for g in grams[n + 1]) if n + 1 < order else grams[n] for n in range(order)]
    followers = [defaultdict(list) for _ in range(order)]
    for n in range(order):
        for g, count in counts[n].items():
            followers[n][g[:-1]].append(count)
    steps = [discounts(np.array([counts[n][g] for g in grams[n]])) for n in range(order)]

    def p(piece: int, context: tuple[int, ...]) -> float:
        n = len(context)
        lower = p(piece, context[1:]) if n else 1 / vocabulary
        total = sum(followers[n][context])
        if not total:
            return lower
        count = counts[n][(*context, piece)]
        free = sum(steps[n][min(c, 3)] for c in followers[n][context])
        return (count - steps[n][min(count, 3)] + free * lower) / total

    return p


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_a_slow_twin_and_add_to_one(order):
    draw = np.random.default_rng(order)
    vocabulary = 9  # pieces 7 and 8 do not occur in the text
    text = np.minimum(draw.geometric(0.35, size=400) - 1, 6)
    held = np.concatenate([draw.integers(0, 9, size=30), text[100:130]])
    model, p = KneserNey(text, vocabulary, order), slow(text.tolist(), vocabulary, order)
    expected = [p(int(piece), tuple(held[max(0, i - order + 1) : i].tolist())) for i, piece in enumerate(held)]
    np.testing.assert_allclose(model.probabilities(held), expected, rtol=1e-12)
    for context in (held[:4], text[-4:], text[5:9]):
        sums = [model.probabilities(np.append(context, piece))[-1] for piece in range(vocabulary)]
        assert sum(sums) == pytest.approx(1, rel=1e-12)
    assert (model.probabilities(text) > 0).all()
    assert (KneserNey(np.tile([0, 1, 2], 50), 4).probabilities(np.array([3, 0, 3, 2, 2, 1])) > 0).all()


def test_more_context_helps_where_there_is_some_and_not_where_there_is_none():
    draw = np.random.default_rng(0)
    cycle = np.tile([0, 1, 2, 0, 2, 1], 200)
    noise = draw.integers(0, 3, size=1200)
    for text, better in ((cycle, True), (noise, False)):
        nats = [-np.log(KneserNey(text[:1000], 3, n).probabilities(text[1000:])).mean() for n in (1, 4)]
        assert bool(nats[1] < nats[0] - 0.5) is better
