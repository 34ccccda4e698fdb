"""How often a scoreboard tells equally good models apart, and how often its intervals of means over tasks hold.

From features to what is printed: probes are fitted once by the protocol, to 15,000 rows, and evaluated on a population
of sentences, of which an experiment has a sample. The features of models are a signal in noise, most of which can be
the same for all models, so that few examples tell them apart; the tasks of a board read the same sentences, each some.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations

import numpy as np
from calibration import case
from comparisons import probed

from probekit.statistics.bootstrap import estimates
from probekit.statistics.normalised import mean_score, normalised_layers
from probekit.statistics.permutation import exchanged
from probekit.statistics.predictions import Predictions
from probekit.statistics.rankings import ranks
from probekit.statistics.shared_units import Source, shared_units

POPULATION = 40_000  # sentences
TRAIN = 15_000
POPULATIONS = 4
D = 8


@dataclass(frozen=True)
class Kind:
    """Models of the same signal: how many; tasks; share of the noise that all models have; share that tasks have in
    common; sentences a document, whose noise is mostly the same; the metric; strength of the signal."""

    models: int = 3
    tasks: int = 1
    alike: float = 0.5
    common: float = 0.7
    document: int = 1
    metric: str = "accuracy"
    strength: float = 1.0

    def draw(self, rng: np.random.Generator, sentences: int) -> tuple[np.ndarray, np.ndarray]:
        """Features (models, n, D), labels (tasks, n); a class 1 in .3 of the sentences."""
        of = np.arange(sentences) // self.document

        def normal(*shape: int) -> np.ndarray:
            own = rng.normal(size=(*shape[:-1], sentences, shape[-1]))
            if self.document == 1:
                return own
            return np.sqrt(0.8) * rng.normal(size=(*shape[:-1], sentences, shape[-1]))[..., of, :] + np.sqrt(0.2) * own

        hidden = np.sqrt(self.common) * normal(1, 1) + np.sqrt(1 - self.common) * normal(self.tasks, 1)
        y = (hidden[..., 0] > 0.52).astype(np.int64)
        x = np.sqrt(self.alike) * normal(1, D) + np.sqrt(1 - self.alike) * normal(self.models, D)
        x[..., : self.tasks] += self.strength * y.T
        return x, y


@cache
def population(kind: Kind, number: int) -> list[Predictions]:
    """For each task, the predictions of the majority class and of each model for all sentences."""
    rng = np.random.default_rng([number, 7])
    (x, y), (x_dev, y_dev) = kind.draw(rng, TRAIN), kind.draw(rng, POPULATION)
    metrics = (kind.metric, *({"accuracy"} - {kind.metric}))
    found = [probed(rng, list(x), list(x_dev), *labels, metrics, controls=0) for labels in zip(y, y_dev, strict=True)]
    return [
        replace(e, gold=np.atleast_2d(e.gold)[0], probabilities=None, log_loss=None, prior_loss=None) for e in found
    ]


def sampled(rng: np.random.Generator, kind: Kind, number: int, units: int) -> list[Predictions]:
    """The predictions for a sample of documents, of whose sentences each task has some; the majority class is first."""
    documents = rng.integers(POPULATION // kind.document, size=units)
    at = (documents[:, None] * kind.document + np.arange(kind.document)).ravel()
    of, name = np.repeat(np.arange(units), kind.document), np.array([f"s{i}" for i in range(len(at))])
    found = []
    for t, every in enumerate(population(kind, number)):
        some = np.sort(rng.permutation(len(at))[: round(len(at) * (1 - 0.6 * t / kind.tasks))])
        fits = np.append(_constant(every), np.flatnonzero(every.fits["layer"].notna()))
        about = every.fits.iloc[fits].reset_index(drop=True)
        about = about.assign(analysis="probe", task=f"t{t}", model=["", *(f"m{i}" for i in range(len(fits) - 1))])
        about["layer"] = about["layer"].where(about["layer"].isna(), 0)
        groups = of[some] if kind.document > 1 else None
        said = every.predicted[np.ix_(fits, at[some])]
        found.append(Predictions(about, name[some], every.gold[at[some]], said, every.metrics, groups))
    return found


def told_apart(rng: np.random.Generator, *, kind: Kind, units: int, overall: bool) -> bool:
    """Whether any two of the models are shown to differ, on the first task or in their means."""
    parts = [e.take(np.arange(1, len(e))) for e in sampled(rng, kind, int(rng.integers(POPULATIONS)), units)]
    pairs, seed = [(a, [b]) for a, b in combinations(range(kind.models), 2)], int(rng.integers(1 << 30))
    value = np.stack([estimates(metric=kind.metric, **e.sample()) for e in parts])
    shared = shared_units([(Source("made"), e) for e in parts])
    null = [
        exchanged(replace(e, groups=of), pairs, kind.metric, draws=2000, seed=seed, by_name=True)[1]
        for e, of in zip(parts, shared, strict=True)
    ]
    found = ranks(value, np.stack(null))
    return bool((found.better_overall if overall else found.better[0]).any())


def _constant(e: Predictions) -> int:
    return int(np.flatnonzero(e.fits["representation"] == "none")[0])


@cache
def truth(kind: Kind, number: int) -> float:
    """The mean over tasks of the normalised scores of the first model on the whole population."""
    scores = []
    for every in population(kind, number):
        layer = int(np.flatnonzero(every.fits["layer"].notna())[0])
        floor, value = estimates(every.gold, every.predicted[[_constant(every), layer]], kind.metric)
        scores.append((value - floor) / (1 - floor))
    return float(np.mean(scores))


def mean_held(rng: np.random.Generator, *, kind: Kind, units: int) -> bool | None:
    """Whether the interval of the first model's mean holds that of the fitted probes on all sentences."""
    number, seed = int(rng.integers(POPULATIONS)), int(rng.integers(1 << 30))
    parts = [e.take(np.arange(2)) for e in sampled(rng, kind, number, units)]
    parts = [replace(e, fits=e.fits.assign(model="m0")) for e in parts]
    value, again, counts = [], [], []
    for e, of in zip(parts, shared_units([(Source("made"), e) for e in parts]), strict=True):
        rows, drawn = normalised_layers(replace(e, groups=of), seed=seed, by_name=True)
        value.append(rows["value"].iloc[0])
        again.append(drawn[0])
        counts.append(len(np.unique(of)))
    _, low, high = mean_score(np.array(value), np.stack(again), counts)
    return None if np.isnan(low) else bool(low <= truth(kind, number) <= high)


def register() -> None:
    """Every case under its name."""
    for where, kind, units in (
        ("n 300", Kind(), 300),
        ("n 300, few discordant", Kind(alike=0.99), 300),
        ("n 100, few discordant", Kind(alike=0.97), 100),
        ("6 models, n 300, few discordant", Kind(models=6, alike=0.99), 300),
        ("60 documents of 5", Kind(document=5), 60),
        ("12 documents of 5", Kind(document=5), 12),
        ("macro-f1, n 300", Kind(metric="macro-f1"), 300),
    ):
        run = partial(told_apart, kind=kind, units=units, overall=False)
        case(f"suites/equal models told apart on a task, {where}", "false positives", runs=400)(run)
    for where, kind, units in (
        ("n 300", Kind(tasks=4), 300),
        ("n 300, few discordant", Kind(tasks=4, alike=0.99), 300),
        ("60 documents of 5", Kind(tasks=4, document=5), 60),
    ):
        run = partial(told_apart, kind=kind, units=units, overall=True)
        case(f"suites/equal models told apart in the mean of 4 tasks, {where}", "false positives", runs=400)(run)
    for where, kind, units in (
        ("n 200", Kind(tasks=8, models=2), 200),
        ("n 200, strong probes", Kind(tasks=8, models=2, strength=2.5), 200),
        ("40 documents of 5", Kind(tasks=8, models=2, document=5), 40),
    ):
        run = partial(mean_held, kind=kind, units=units)
        case(f"suites/mean of 8 tasks on shared sentences, {where}", "coverage", runs=400)(run)


register()
