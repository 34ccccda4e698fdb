"""Several labels of a text: coverage of micro and macro F1, and layers of noise that are named.

Labels depend on each other, and some are rare. The value of a probe on a population is that on 10,000 texts which it
has not met.
"""

from __future__ import annotations

from functools import partial

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
SHARES = {"frequent": (0.5, 0.4, 0.3, 0.3), "rare": (0.4, 0.2, 0.05, 0.02)}
ABOUT = {"task": "t", "split": "dev", "model": "m", "representation": "mean"}


def texts(
    rng: np.random.Generator, n: int, shares: tuple[float, ...], *, signal: float, copies: int = 1
) -> tuple[list[np.ndarray], np.ndarray]:
    """Three layers of vectors, and labels that share half of their variance; near copies have the same labels."""
    units = n // copies
    cause = rng.normal(size=(units, 1)) + rng.normal(size=(units, len(shares)))
    holds = cause > 2**0.5 * np.array([_quantile(1 - share) for share in shares])
    layers = []
    for _ in range(3):
        x = rng.normal(size=(units, WIDTH))
        x[:, : len(shares)] += signal * holds
        layers.append(np.repeat(x, copies, 0) + 0.1 * rng.normal(size=(n, WIDTH)))
    return layers, np.repeat(holds, copies, 0)


def _quantile(share: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(share))


def fitted(
    rng: np.random.Generator, *, n: int, shares: str, signal: float, metrics: tuple[str, ...], copies: int = 1,
    more: int = 0, layers: int = 3,
) -> Predictions:  # fmt: skip
    """Predictions for n texts of dev, and for ``more`` of the population."""
    of = SHARES[shares]
    x, y = texts(rng, 2 * n, of, signal=signal)
    x_dev, y_dev = texts(rng, n, of, signal=signal, copies=copies)
    if more:
        x_all, y_all = texts(rng, more, of, signal=signal)
        x_dev, y_dev = [np.concatenate(both) for both in zip(x_dev, x_all, strict=True)], np.concatenate([y_dev, y_all])
    sets, number = np.unique(np.concatenate([y, y_dev]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    groups = np.concatenate([np.repeat(np.arange(n // copies), copies), n + np.arange(more)]) if copies > 1 else None
    options = ProbeOptions(controls=0, penalties=(1e-3, 1e-2, 0.1, 1.0), folds=3, seed=int(rng.integers(1 << 30)))
    return evaluate_label_sets(
        {str(i): one for i, one in enumerate(x[:layers])}, Labels(number[: 2 * n]),
        {str(i): one for i, one in enumerate(x_dev[:layers])}, Labels(number[2 * n :], groups),
        sets, Question("multi-label", metrics, ("a", "b", "c", "d"), ABOUT), options=options,
    )  # fmt: skip


def covered(rng: np.random.Generator, *, metric: str, n: int, **setting: object) -> bool | None:
    """Whether the interval of a fitted probe holds its value on the population."""
    e = fitted(rng, n=n, metrics=(metric,), signal=1.5, more=POPULATION, layers=1, **setting)  # type: ignore[arg-type]
    e = e.take(e.fits["layer"].notna().to_numpy(dtype=bool))
    labels = len(SHARES["rare"])
    one = bounds(metric=metric, **e.of_rows(np.arange(labels * n)).sample())
    if one.why[0]:
        return None
    rest = np.arange(labels * n, len(e.ids))
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


for shares in SHARES:
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
