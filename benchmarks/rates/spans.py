"""How often intervals of probes of spans hold the value of the fitted probe on new sentences.

Features and labels of the targets of a sentence are alike, sentences have unequal numbers of targets (a twentieth are
long), some sentences are copies, and sentences may form documents. A probe is fitted by the protocol to some sentences
and evaluated on a population of others; the dev split is a sample of its sentences, or documents, and the truth is the
metric on the whole population. The twelve probes of a case are fitted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from calibration import case
from comparisons import noise_layers, probed
from intervals import holds

from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.bootstrap import estimates
from probekit.statistics.predictions import Predictions

PROBES = 12
POPULATION = 6_000  # sentences
NAMES = ("a", "b", "c", "d")
SHARES = (0.5, 0.3, 0.1, 0.03)  # of the classes, or of the labels that can hold at once


@dataclass(frozen=True)
class Kind:
    """Targets: dimensions of features; strength of labels in them; share of the variance that a sentence has in common;
    share of sentences with a copy; sentences a document; whether the four labels can hold at once."""

    d: int = 10
    strength: float = 1.5
    alike: float = 0.5
    copied: float = 0.1
    document: int = 1
    several: bool = False
    train: int = 80

    def draw(self, rng: np.random.Generator, sentences: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features (n, d), labels (n,) or label sets (n, 4), and the group of each target."""
        long = rng.random(sentences) < 0.05
        count = np.where(long, rng.integers(20, 61, size=sentences), rng.geometric(0.3, size=sentences))
        of = np.repeat(np.arange(sentences), count)
        document = np.arange(sentences)[of] // self.document

        def normal(width: int) -> np.ndarray:
            wide = 0.5 if self.document > 1 else 0.0
            shared = np.sqrt(1 - wide) * rng.normal(size=(sentences, width))[of]
            shared = shared + np.sqrt(wide) * rng.normal(size=(sentences, width))[document]
            return np.sqrt(self.alike) * shared + np.sqrt(1 - self.alike) * rng.normal(size=(len(of), width))

        if self.several:
            y = normal(len(SHARES)) > [[_beyond(share) for share in SHARES]]
            mean = y.astype(float)
        else:
            y = (normal(len(SHARES)) + 0.7 * np.log(SHARES)).argmax(1)
            mean = np.eye(len(SHARES))[y]
        x = normal(self.d)
        x[:, : len(SHARES)] += self.strength * mean
        again = np.flatnonzero((rng.random(sentences) < self.copied)[of])
        rows = np.concatenate([np.arange(len(of)), again])
        return x[rows], y[rows], document[rows]

    def probe(self, rng: np.random.Generator, controls: int = 0, noise: bool = False, dev: int = POPULATION,
              layers: int = 1) -> Predictions:  # fmt: skip
        """Predictions for new sentences of a probe fitted by the protocol; ``noise``: features that know nothing."""
        (x, y, of), (x_dev, y_dev, of_dev) = (self.draw(rng, count) for count in (self.train, dev))
        both = [x] * layers, [x_dev] * layers
        if noise:
            both = _unrelated(rng, self, of, layers), _unrelated(rng, self, of_dev, layers)
        if not self.several:
            metrics = ("accuracy", "macro-f1")
            return probed(
                rng, *both, _every_class(y), y_dev, metrics, controls=controls, names=NAMES, groups=(of, of_dev)
            )
        sets, code = np.unique(np.concatenate([y, y_dev]), axis=0, return_inverse=True)
        named = [{str(i): one for i, one in enumerate(part)} for part in both]
        given = Labels(code[: len(y)], of), Labels(code[len(y) :], of_dev)
        about = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}
        question = Question("classification", ("micro-f1",), NAMES, about)
        options = ProbeOptions(
            controls=controls, penalties=(1e-3, 1e-2, 0.1, 1.0), folds=3, resamples=0, threads=1,
            seed=int(rng.integers(1 << 30)),
        )  # fmt: skip
        return evaluate_label_sets(named[0], given[0], named[1], given[1], sets, question, options=options)


def _beyond(share: float) -> float:
    """The threshold that a normal variable exceeds with this probability."""
    from scipy import stats

    return float(stats.norm.isf(share))


def _unrelated(rng: np.random.Generator, kind: Kind, of: np.ndarray, layers: int) -> list[np.ndarray]:
    """Layers of features that know nothing of the labels, alike within a sentence and from layer to layer."""
    shared = noise_layers(rng, int(of.max()) + 1, kind.d, layers)
    own = noise_layers(rng, len(of), kind.d, layers)
    return [np.sqrt(kind.alike) * a[of] + np.sqrt(1 - kind.alike) * b for a, b in zip(shared, own, strict=True)]


def _every_class(y: np.ndarray) -> np.ndarray:
    """Each class at least twice, so that each fold can fit it."""
    y = y.copy()
    y[: 2 * len(SHARES)] = np.tile(np.arange(len(SHARES)), 2)
    return y


@cache
def population(kind: Kind, number: int, controls: int = 0) -> Predictions:
    """Predictions of one of the twelve probes of a kind for the population."""
    return kind.probe(np.random.default_rng([number, controls]), controls=controls)


@cache
def members(kind: Kind, number: int, controls: int = 0) -> list[np.ndarray]:
    """The rows of each sentence (document) of the population."""
    of = population(kind, number, controls).groups
    assert of is not None
    order = np.argsort(of, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(of[order])) + 1)


@cache
def truth(kind: Kind, number: int, name: str) -> float:
    """The metric of the first layer's gold probe on the population."""
    every = population(kind, number)
    return float(estimates(every.gold[-1], every.predicted[-1:], name)[0])


def drawn(rng: np.random.Generator, rows: list[np.ndarray], units: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of so many sentences (documents) of the population, and their groups."""
    parts = [rows[i] for i in rng.integers(len(rows), size=units)]
    return np.concatenate(parts), np.repeat(np.arange(units), [len(part) for part in parts])


def covered(rng: np.random.Generator, *, kind: Kind, name: str, units: int) -> bool | None:
    """Whether the interval from a sample of sentences holds the metric of the fitted probe on all sentences."""
    number = int(rng.integers(PROBES))
    every = population(kind, number)
    at, groups = drawn(rng, members(kind, number), units)
    return holds(every.gold[-1, at], every.predicted[-1, at], name, truth(kind, number, name), groups=groups)


KINDS = {
    "spans": Kind(),
    "spans, very alike": Kind(alike=0.9),
    "spans, weak probe, d 300": Kind(d=300, strength=1.0, train=40),
    "spans, documents of 5": Kind(document=5),
    "several labels": Kind(several=True),
    "several labels, very alike": Kind(several=True, alike=0.9),
    "several labels, d 300": Kind(several=True, d=300, strength=1.0, train=40),
}


def register() -> None:
    """Every case under its name."""
    for where, kind in KINDS.items():
        for name in ("micro-f1",) if kind.several else ("accuracy", "macro-f1"):
            for units in (20, 50, 200):
                called = "documents" if kind.document > 1 else "sentences"
                run = partial(covered, kind=kind, name=name, units=units)
                case(f"suites/{name} of {where}, {units} {called}", "coverage", runs=600)(run)


register()
