"""How often intervals of metrics hold the value of the same probe on all examples, by metric, prevalence and size.

Most probes are given: they say "positive" of so many positives and of so many negatives, and their value on all
examples follows from these shares. Those of "a fitted probe" begin with features; their value is that on a population
of examples that the probe has not met.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from calibration import case
from comparisons import classes, probed

from probekit.metrics import metric
from probekit.statistics.bootstrap import bounds, estimates

PROBES = {"nearly constant": (0.03, 0.003), "ordinary": (0.6, 0.1), "nearly perfect": (0.99, 0.005)}
"""Shares of positives and of negatives that the probe calls positive."""
TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")


def holds(gold: np.ndarray, predicted: np.ndarray, name: str, truth: float, **more: object) -> bool | None:
    """Whether the interval of one fit holds the truth; None where there is none."""
    found = bounds(gold, predicted[None], name, **more)  # type: ignore[arg-type]
    if found.why[0]:
        return None
    return bool(found.ci[0, 0] - 1e-9 <= truth <= found.ci[0, 1] + 1e-9)


def of_table(share: np.ndarray, name: str) -> float:
    """The metric of a table of shares (classes, classes), gold by predicted, by its definition."""
    hit, true, pred = np.diag(share), share.sum(1), share.sum(0)
    if name in ("accuracy", "token-accuracy"):
        return float(hit.sum())
    if name == "matthews":
        return float((hit.sum() - true @ pred) / np.sqrt((1 - true @ true) * (1 - pred @ pred)))
    f1 = 2 * hit / (true + pred)
    return float(f1[1] if name == "f1" else f1.mean())


def table(rng: np.random.Generator, *, share: np.ndarray, name: str, n: int) -> bool | None:
    """Examples drawn from a table of shares."""
    gold, predicted = np.divmod(rng.choice(share.size, size=n, p=share.ravel()), len(share))
    return holds(gold, predicted, name, of_table(share, name))


def two_classes(prevalence: float, positive: float, negative: float) -> np.ndarray:
    """Shares of a probe that calls so many positives and negatives positive, (2, 2)."""
    called = np.array([[1 - negative, negative], [1 - positive, positive]])
    return np.array([[1 - prevalence], [prevalence]]) * called


def many_classes(classes: int, accuracy: float, *, zipf: bool) -> np.ndarray:
    """Shares of a probe that is right of some classes more often than of others, (classes, classes)."""
    rng = np.random.default_rng(classes)
    wrong = rng.dirichlet(np.full(classes, 0.3), size=classes)
    np.fill_diagonal(wrong, 0)
    right = np.clip(accuracy + 0.3 * (1 - accuracy) * rng.normal(size=classes), 0, 1)
    often = 1 / np.arange(1, classes + 1) if zipf else np.ones(classes)
    wrong *= ((1 - right) / wrong.sum(1))[:, None]
    return (often / often.sum())[:, None] * (np.diag(right) + wrong)


def words(rng: np.random.Generator, *, name: str, sentences: int) -> bool | None:
    """Tags of words of 5 to 20 a sentence, right more often in some sentences than in others."""
    gold, predicted, sentence = tagged(rng, sentences)
    return holds(gold, predicted, name, word_truth(name), groups=sentence, label_names=TAGS)


def tagged(rng: np.random.Generator, sentences: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gold and predicted tags, and the sentence of each word."""
    length = rng.integers(5, 21, size=sentences)
    sentence = np.repeat(np.arange(sentences), length)
    easy = rng.beta(6, 1, size=sentences)[sentence]
    entity, kind = rng.random(len(sentence)) < 0.15, 2 * rng.integers(2, size=len(sentence))
    gold = np.where(entity, 1 + kind, 0)
    gold[1:] = np.where((gold[1:] == 0) & entity[:-1] & (rng.random(len(gold) - 1) < 0.4), kind[:-1] + 2, gold[1:])
    return gold, np.where(rng.random(len(gold)) < easy, gold, rng.integers(5, size=len(gold))), sentence


@cache
def word_truth(name: str) -> float:
    """The metric of 40,000 sentences (± .0006)."""
    gold, predicted, sentence = tagged(np.random.default_rng(0), 40_000)
    return float(estimates(gold, predicted[None], name, groups=sentence, label_names=TAGS)[0])


Pairs = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def normal_pairs(r: float) -> Pairs:
    """Normal gold values and predictions, correlated r."""

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        gold = rng.normal(size=n)
        return gold, r * gold + np.sqrt(1 - r**2) * rng.normal(size=n)

    return draw


def errors(kind: str) -> Pairs:
    """Predictions 0 of gold values that are the errors."""

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        size = rng.normal(size=n) if kind == "normal" else rng.laplace(size=n) / np.sqrt(2)
        size = rng.standard_t(5, size=n) / np.sqrt(5 / 3) if kind == "t, 5 degrees" else size
        size = rng.standard_t(3, size=n) / np.sqrt(3) if kind == "t, 3 degrees" else size
        return size, np.zeros(n)

    return draw


def skewed_pairs(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gold values that pile up at one end, as similarity scores do."""
    gold = -rng.gamma(1.5, size=n)
    return gold, 0.8 * gold + 0.72 * rng.normal(size=n)


def numbers(rng: np.random.Generator, *, name: str, draw: Pairs, truth: float, n: int) -> bool | None:
    gold, predicted = draw(rng, n)
    return holds(gold, predicted, name, truth)


SIZES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "of 5": lambda rng, n: np.full(n, 5),
    "of lognormal size": lambda rng, n: np.maximum(1, np.rint(4 * np.exp(1.2 * rng.normal(size=n)))).astype(int),
}


def grouped_numbers(
    rng: np.random.Generator, groups: int, sizes: str, skewed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Gold values and predictions of deviation 1, half of whose variance is the group's; lognormal if ``skewed``."""
    of = np.repeat(np.arange(groups), SIZES[sizes](rng, groups) if sizes else 1)

    def draw(n: int) -> np.ndarray:
        x = rng.normal(size=n)
        return (np.exp(x) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e) if skewed else x

    def one() -> np.ndarray:
        return np.sqrt(0.5) * draw(groups)[of] + np.sqrt(0.5) * draw(len(of)) if sizes else draw(groups)

    gold, other = one(), one()
    return gold, 0.8 * (0.8 * gold + 0.6 * other), of if sizes else None


@cache
def truth_of_numbers(name: str, sizes: str, skewed: bool) -> float:
    """The metric of a million examples."""
    gold, predicted, _ = grouped_numbers(np.random.default_rng(0), 200_000 if sizes else 1_000_000, sizes, skewed)
    return float(metric(name).function(gold, predicted))  # type: ignore[misc]


def of_groups(rng: np.random.Generator, *, name: str, groups: int, sizes: str, skewed: bool) -> bool | None:
    """Numbers of groups, by the interval that ``probe`` prints."""
    gold, predicted, of = grouped_numbers(rng, groups, sizes, skewed)
    truth = truth_of_numbers(name, sizes, skewed)
    return holds(gold, predicted, name, truth, groups=of, score=metric(name).function)


def losses(rng: np.random.Generator, *, mean: float, spread: float, n: int) -> bool | None:
    """Log losses of log odds that are normal."""
    odds = np.linspace(mean - 9 * spread, mean + 9 * spread, 40_001)
    density = np.exp(-0.5 * ((odds - mean) / spread) ** 2)
    truth = float(np.logaddexp(0, -odds) @ density / density.sum())
    loss = np.logaddexp(0, -rng.normal(mean, spread, size=n))
    return holds(np.zeros(n, int), np.zeros(n, int), "log-loss", truth, log_loss=loss[None])


def fitted(rng: np.random.Generator, *, name: str, n: int, d: int = 10, train: int = 300) -> bool | None:
    """A probe of features, on n examples of dev and on 60 times as many, at least 20,000, that are all there are."""
    rows = train + n + max(20_000, 60 * n)
    number = name in ("pearson", "rmse")
    y = rng.standard_t(6, size=rows) if number else classes(rng, rows, 0.2)
    x = rng.normal(size=(rows, d)) + 1.2 * y[:, None] * (np.arange(d) < 2)
    kind, metrics = ("regression", ("pearson", "rmse")) if number else ("classification", (name, "accuracy"))
    e = probed(rng, [x[:train]], [x[train:]], y[:train], y[train:], metrics, kind=kind, controls=0)
    gold, said = np.atleast_2d(e.gold)[0], e.predicted[e.fits["layer"].notna().to_numpy(dtype=bool)][:1]
    truth = estimates(gold[n:], said[:, n:], name)[0]
    return holds(gold[:n], said[0, :n], name, float(truth))


def register() -> None:
    """Every case under its name."""
    for name in ("accuracy", "matthews", "f1", "macro-f1", "pearson", "rmse"):
        for n in (60, 300, 1000):
            case(f"intervals/{name} of a fitted probe, n {n}", "coverage")(partial(fitted, name=name, n=n))
    for name in ("accuracy", "f1", "macro-f1", "matthews"):
        for probe, (positive, negative) in PROBES.items():
            for prevalence in (0.02, 0.1, 0.3, 0.5):
                for n in (60, 300, 1000):
                    share = two_classes(prevalence, positive, negative)
                    where = f"intervals/{name}, {probe}, {prevalence:.0%} positive, n {n}"
                    case(where, "coverage")(partial(table, share=share, name=name, n=n))
        if name == "f1":
            continue
        for many, sizes in ((6, (60, 300, 1000)), (50, (300, 1000))):
            for accuracy in (0.4, 0.85, 0.98):
                for n in sizes:
                    share = many_classes(many, accuracy, zipf=n == 300)
                    where = f"intervals/{name}, {many} classes, {accuracy:.0%} right, n {n}"
                    case(where, "coverage", runs=100)(partial(table, share=share, name=name, n=n))
    for name in ("token-accuracy", "span-f1", "macro-f1"):
        for sentences in (10, 30, 100, 300):
            where = f"intervals/{name} of words, {sentences} sentences"
            case(where, "coverage")(partial(words, name=name, sentences=sentences))
    for n in (60, 300, 1000):
        for name in ("pearson", "spearman"):
            for r in (0.5, 0.9, 0.99):
                truth = r if name == "pearson" else 6 / np.pi * np.arcsin(r / 2)
                run = partial(numbers, name=name, draw=normal_pairs(r), truth=truth, n=n)
                case(f"intervals/{name}, normal, {r:g}, n {n}", "coverage")(run)
        truth = 0.8 * np.sqrt(1.5) / np.sqrt(0.64 * 1.5 + 0.72**2)
        run = partial(numbers, name="pearson", draw=skewed_pairs, truth=truth, n=n)
        case(f"intervals/pearson, skewed gold values, n {n}", "coverage")(run)
        for kind in ("normal", "Laplace", "t, 5 degrees", "t, 3 degrees"):
            where = f"intervals/rmse, {kind}, n {n}"
            run = partial(numbers, name="rmse", draw=errors(kind), truth=1.0, n=n)
            case(where, "coverage")(run)
        for called, (mean, spread) in {"ordinary": (1, 1.5), "confident": (4, 3), "nearly perfect": (6, 3)}.items():
            run = partial(losses, mean=mean, spread=spread, n=n)
            case(f"intervals/log-loss, {called}, n {n}", "coverage")(run)
    for name in ("pearson", "spearman", "r2", "mean-absolute-error", "rmse"):
        for groups, sizes, skewed in (
            (30, "of 5", False), (30, "of lognormal size", False), (100, "of lognormal size", False),
            (100, "of 5", True), (60, "", True), (200, "", True),
        ):  # fmt: skip
            about = f"{groups} groups {sizes}" if sizes else f"n {groups}"
            run = partial(of_groups, name=name, groups=groups, sizes=sizes, skewed=skewed)
            case(f"intervals/{name}, {about}{', lognormal' * skewed}", "coverage", runs=300)(run)


register()
