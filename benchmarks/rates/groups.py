"""Copies and clusters: is a probe of noise, measured on examples that belong together, found better than noise?

From texts on: copies are found among them, and groups are folded, shuffled and drawn as the commands do. Labels have
nothing to do with the vectors, but examples that belong together have them in common.
"""

from __future__ import annotations

import numpy as np
from calibration import case

from probekit.probes.protocol.diagnostic import evaluate_layers
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.comparisons import compare_predictions
from probekit.statistics.duplicates import find_groups, text_numbers
from probekit.statistics.options import CompareOptions

LAYERS, WIDTH = 3, 16
OPTIONS = ProbeOptions(folds=3, penalties=(0.01, 1.0), resamples=0, threads=1)
QUESTION = Question("classification", ("accuracy",), ("no", "yes"), {"task": "noise", "split": "dev", "model": "m"})
Split = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Vectors (layers, n, d), labels and groups."""


def texts(rng: np.random.Generator, n: int) -> list[str]:
    """Sentences that have nothing in common."""
    return [" ".join(f"w{word}" for word in rng.integers(5000, size=10)) for _ in range(n)]


def grouped(*sides: list[str], domains: np.ndarray | None = None) -> np.ndarray | None:
    found = find_groups([text_numbers(side) for side in sides], domains)
    return None if found.count == len(found.of) else found.of


def better_than_noise(train: Split, dev: Split, seed: int) -> bool:
    """Whether any layer is called better than the same probe of shuffled labels."""
    (x, y, groups), (x_dev, y_dev, groups_dev) = train, dev
    layers = [{str(i): layer for i, layer in enumerate(side)} for side in (x, x_dev)]
    options = ProbeOptions(**{name: getattr(OPTIONS, name) for name in OPTIONS.__slots__} | {"seed": seed})
    found = evaluate_layers(
        layers[0], Labels(y, groups), layers[1], Labels(y_dev, groups_dev), QUESTION, options=options
    )
    rows = compare_predictions(
        found, None, CompareOptions(against="shuffled", tails="better", resamples=999, seed=seed)
    )
    return bool((rows["p_adjusted"] < 0.05).any())


def copies(rng: np.random.Generator, n: int, twice: float, *, near: bool = False) -> Split:
    """A share of the rows occurs twice, as it is or with another word in it; labels are coins."""
    first = round(n * (1 - twice / 2))
    of = np.append(np.arange(first), rng.permutation(first)[: n - first])
    text = texts(rng, first)
    again = [text[i] if not near else " ".join(["other", *text[i].split()[1:]]) for i in of[first:]]
    x = rng.normal(size=(LAYERS, first, WIDTH))[:, of] + near * 0.1 * rng.normal(size=(LAYERS, n, WIDTH))
    return x.astype(np.float32), rng.integers(2, size=first)[of], grouped([*text, *again])


def halves(rng: np.random.Generator, n: int) -> Split:
    """Pairs, each of which shares a sentence with another; such two agree in their label nine times in ten."""
    side, other = texts(rng, n // 2), texts(rng, n)
    u, v = rng.normal(size=(LAYERS, n // 2, WIDTH)).repeat(2, 1), rng.normal(size=(LAYERS, n, WIDTH))
    y = rng.integers(2, size=n // 2).repeat(2)
    y[1::2] ^= rng.random(n // 2) < 0.1
    x = np.concatenate([u, v, np.abs(u - v), u * v], 2)
    return x.astype(np.float32), y, grouped([text for text in side for _ in range(2)], other)


def words(rng: np.random.Generator, sentences: int) -> Split:
    """Words whose label is their sentence's: sentences of 4 to 12 words."""
    sentence = np.repeat(np.arange(sentences), rng.integers(4, 13, size=sentences))
    x = rng.normal(size=(LAYERS, sentences, WIDTH))[:, sentence]
    x = x + rng.normal(size=(LAYERS, len(sentence), WIDTH))
    return x.astype(np.float32), rng.integers(2, size=sentences)[sentence], sentence


def constructions(rng: np.random.Generator, count: int) -> Split:
    """Ten near copies of each construction, whose label they have, in a domain of their own."""
    of = np.repeat(np.arange(count), 10)
    pattern = texts(rng, count)
    text = [" ".join([f"a{i}", *pattern[c].split()[2:], f"b{i}"]) for i, c in enumerate(of)]
    x = rng.normal(size=(LAYERS, count, WIDTH))[:, of] + 0.3 * rng.normal(size=(LAYERS, len(of), WIDTH))
    return x.astype(np.float32), rng.integers(2, size=count)[of], grouped(text, domains=of)


def _case(name: str, before: str, make, *size, **more) -> None:
    @case(f"groups/{name}", "false positives", before=before, runs=200, nightly=1000)
    def _(rng: np.random.Generator) -> bool:
        return better_than_noise(make(rng, *size, **more), make(rng, *size, **more), int(rng.integers(1 << 31)))


_case("probe, every row twice", "15.0 % (200 runs)", copies, 240, 1.0)
_case("probe, every row twice, one word changed", "10.0 % (200 runs)", copies, 240, 1.0, near=True)
_case("probe, a fifth of the rows in pairs", "6.5 % (200 runs)", copies, 240, 0.2)
_case("probe, pairs that share a sentence", "4.5 % (200 runs)", halves, 240)
_case("probe, words labelled by sentence", "4.5 % (200 runs)", words, 60)
_case("probe, ten near copies of each construction", "51.0 % (200 runs)", constructions, 30)
_case("probe, no copies", "2.5 % (200 runs)", copies, 240, 0.0)
