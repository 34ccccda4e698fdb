"""Several labels, or numbers, of a text: coverage of their metrics, and layers of noise that are named.

Labels depend on each other, and some are rare. The value of a probe on a population is that on 10,000 texts which it
has not met.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from calibration import case
from verdict import rows_of

from probekit.analyses.verdict import sentences
from probekit.probes.protocol.by_label import by_label_rows
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.multilabel import evaluate_label_sets
from probekit.probes.protocol.options import ProbeOptions
from probekit.statistics.bootstrap import bounds, estimates
from probekit.statistics.predictions import Predictions

WIDTH, POPULATION = 8, 10_000
SHARES = {
    "frequent": (0.5, 0.4, 0.3, 0.3), "rare": (0.4, 0.2, 0.05, 0.02),
    "fifty": tuple(np.geomspace(0.5, 0.05, 50).tolist()),
}  # fmt: skip
"""How often each label holds."""
NUMBERS = ("r2", "pearson")
"""Metrics of several numbers of a text, in place of labels."""
ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}


def texts(
    rng: np.random.Generator, n: int, shares: tuple[float, ...], *, signal: float, width: int, copies: int = 1,
    numbers: bool = False,
) -> tuple[list[np.ndarray], np.ndarray]:  # fmt: skip
    """Three layers of vectors, and labels that share half of their variance; near copies have the same labels.

    width : columns of a layer; numbers : whether there are numbers in place of labels, a third of whose variance the
    vectors hold with a ``signal`` of 1
    """
    units = n // copies
    cause = rng.normal(size=(units, 1)) + rng.normal(size=(units, len(shares)))
    holds = cause if numbers else cause > 2**0.5 * np.array([_quantile(1 - share) for share in shares])
    layers = []
    for _ in range(3):
        x = rng.normal(size=(units, width))
        x[:, : len(shares)] += signal * (holds / 2 if numbers else holds)
        layers.append(np.repeat(x, copies, 0) + 0.1 * rng.normal(size=(n, width)))
    return layers, np.repeat(holds, copies, 0)


def _quantile(share: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(share))


def fitted(
    rng: np.random.Generator, *, n: int, shares: str, signal: float, metrics: tuple[str, ...], copies: int = 1,
    more: int = 0, layers: int = 3, width: int = WIDTH,
) -> Predictions:  # fmt: skip
    """Predictions for n texts of dev, and for ``more`` of the population."""
    of, numbers = SHARES[shares], metrics[0] in NUMBERS
    draw = partial(texts, rng, shares=of, signal=signal, width=max(width, len(of)), numbers=numbers)
    x, y = draw(n=2 * n)
    x_dev, y_dev = draw(n=n, copies=copies)
    if more:
        x_all, y_all = draw(n=more)
        x_dev, y_dev = [np.concatenate(both) for both in zip(x_dev, x_all, strict=True)], np.concatenate([y_dev, y_all])
    sets, number = np.unique(np.concatenate([y, y_dev]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    groups = np.concatenate([np.repeat(np.arange(n // copies), copies), n + np.arange(more)]) if copies > 1 else None
    options = ProbeOptions(controls=0, penalties=(1e-3, 1e-2, 0.1, 1.0), folds=3, seed=int(rng.integers(1 << 30)))
    kind, names = "multi-output" if numbers else "multi-label", tuple(f"l{i}" for i in range(len(of)))
    return evaluate_label_sets(
        {str(i): one for i, one in enumerate(x[:layers])}, Labels(number[: 2 * n]),
        {str(i): one for i, one in enumerate(x_dev[:layers])}, Labels(number[2 * n :], groups),
        sets, Question(kind, metrics, names, ABOUT), options=options,
    )  # fmt: skip


def covered(rng: np.random.Generator, *, metric: str, n: int, shares: str, **setting: object) -> bool | None:
    """Whether the interval of a fitted probe holds its value on the population."""
    more = POPULATION * (2 if shares == "fifty" else 1)  # the larger dev is, the surer the truth must be
    e = fitted(rng, n=n, shares=shares, metrics=(metric,), signal=1.5, more=more, layers=1, **setting)  # type: ignore[arg-type]
    e = e.take(e.fits["layer"].notna().to_numpy(dtype=bool))
    labels = len(SHARES[shares])
    one = bounds(metric=metric, **e.of_rows(np.arange(labels * n)).sample())
    if one.why[0]:
        return None
    rest = np.arange(labels * n, len(e.ids))
    if metric not in ("micro-f1", *NUMBERS):  # means are over the labels that hold for a text of dev, as warnings say
        there = np.flatnonzero(np.atleast_2d(e.gold)[0][: labels * n].reshape(n, labels).any(0))
        rest = rest[np.isin(rest % labels, there)]
    truth = estimates(metric=metric, **e.of_rows(rest).sample())[0]
    return bool(one.ci[0, 0] - 1e-9 <= truth <= one.ci[0, 1] + 1e-9)


def named(rng: np.random.Generator, **setting: object) -> bool:
    """Whether the sentence says that a layer of noise beats permuted labels."""
    e = fitted(rng, signal=0.0, **setting)  # type: ignore[arg-type]
    return "no layer beats" not in sentences(rows_of(e, int(rng.integers(1 << 30))), [e])[0]


def alone(rng: np.random.Generator, **setting: object) -> bool:
    """Whether any label alone is said to be above noise in any layer of noise, as rows by label say."""
    e = fitted(rng, signal=0.0, metrics=("micro-f1",), **setting)  # type: ignore[arg-type]
    rows = by_label_rows(e, resamples=400, level=0.95, seed=int(rng.integers(1 << 30)))
    return bool((rows["p_adjusted"] <= 0.05).any())


for shares in ("frequent", "rare"):
    for metric in ("micro-f1", "macro-f1", "auroc", "balanced-accuracy"):
        for n, copies in ((200, 1), (400, 4)):
            more = ", near copies" if copies > 1 else ""
            case(f"several labels/{metric}, {shares} labels, n {n}{more}", "coverage")(
                partial(covered, metric=metric, shares=shares, n=n, copies=copies)
            )
    for metric in ("micro-f1", "macro-f1", "auroc"):
        case(f"several labels/a layer of noise is named, {metric}, {shares} labels", "false positives")(
            partial(named, metrics=(metric,), shares=shares, n=120)
        )
    case(f"several labels/a label alone is above noise, {shares} labels", "false positives")(
        partial(alone, shares=shares, n=120)
    )

FURTHER: dict[str, dict[str, Any]] = {
    "rare labels, 160 texts of 300 columns": {"shares": "rare", "n": 80, "width": 300},
    "rare labels, near copies": {"shares": "rare", "n": 240, "copies": 4},
    "50 labels": {"shares": "fifty", "n": 120},
}
for name, setting in FURTHER.items():
    for metric in ("micro-f1", "macro-f1") if "copies" not in name else ():
        enough = setting | {"n": 800 if "50" in name else setting["n"]}  # ten texts of each label
        case(f"several labels/{metric}, {name}, n {enough['n']}", "coverage")(partial(covered, metric=metric, **enough))
    case(f"several labels/a layer of noise is named, micro-f1, {name}", "false positives")(
        partial(named, metrics=("micro-f1",), **setting)
    )
    case(f"several labels/a label alone is above noise, {name}", "false positives")(partial(alone, **setting))

for name, setting in {
    "n 120": {"n": 120}, "n 80, 160 texts of 300 columns": {"n": 80, "width": 300},
    "n 240, near copies": {"n": 240, "copies": 4},
}.items():  # fmt: skip
    for metric in NUMBERS:
        case(f"several labels/{metric} of four numbers, {name}", "coverage")(
            partial(covered, metric=metric, shares="rare", **setting)
        )
    case(f"several labels/a layer of noise is named, pearson, four numbers, {name}", "false positives")(
        partial(named, metrics=("pearson",), shares="rare", **setting)
    )
