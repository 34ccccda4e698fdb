"""How often what ``probekit shift`` says is wrong: from features of true and false twins to intervals and p.

A subject has two statements, one of each class, whose vectors share a part; a probe is fitted on some subjects and
evaluated on others. Its value on a population is that on 20,000 subjects that it has not met.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from calibration import case

from probekit.analyses.shift import ShiftOptions
from probekit.analyses.shift.rows import Cell, cell_rows, difference_rows
from probekit.probes.protocol.options import Estimator
from probekit.probes.shift import blocks_of, fit_blocks
from probekit.statistics.detection import area, threshold

WIDTH = 8
POPULATION = 20_000


def twins(rng: np.random.Generator, subjects: int, strength: float = 1.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (2 n, d), labels and subjects."""
    y = np.tile([0, 1], subjects)
    of = np.repeat(np.arange(subjects), 2)
    x = rng.normal(size=(subjects, WIDTH))[of] + rng.normal(size=(2 * subjects, WIDTH))
    x[:, 0] += strength * (y - 0.5) * 2**0.5
    return x.astype(np.float32), y, of


def of_rare_class(
    rng: np.random.Generator, n: int, positives: int, spread: float = 1.0, copies: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Single statements, few of class 1, whose vectors vary by another ``spread`` in the direction that tells."""
    y = np.repeat((np.arange(n // copies) < positives // copies).astype(int), copies)
    of = np.repeat(np.arange(n // copies), copies)
    x = 2**0.5 * rng.normal(size=(n // copies, WIDTH))[of]
    x[:, 0] = np.where(y == 1, spread, 1) * x[:, 0] + 1.5 * (y - 0.5) * 2**0.5
    x[:, 1:] += 0.1 * rng.normal(size=(n, WIDTH - 1))  # near copies
    return x.astype(np.float32), y, of


def cells(
    rng: np.random.Generator,
    *,
    train: int,
    dev: int,
    estimator: Estimator,
    sets: int = 2,
    more: bool = False,
    rare: dict[str, float] | None = None,
) -> tuple[list[Cell], list[np.ndarray], np.ndarray]:
    """All cells of data sets that are samples of one population, and with ``more`` the probes' scores of it."""
    fitted_on = [twins(rng, train) for _ in range(sets)]
    evaluated = [twins(rng, dev) if rare is None else of_rare_class(rng, dev, **rare) for _ in range(sets)]  # type: ignore[arg-type]
    population = twins(rng, POPULATION if more else 1)
    if rare is not None:
        population = of_rare_class(rng, 2 * POPULATION, POPULATION, rare.get("spread", 1.0))
    out, scores = [], []
    for a, (x, y, of) in enumerate(fitted_on):
        block = blocks_of([f"{a} {unit}" for unit in of], 10)
        tests = [test for test, _, _ in evaluated]
        fitted = fit_blocks(x, y[None], 2, block, [*tests, population[0]], estimator=estimator)
        scores.append(fitted.tests[-1][0, :, 1] - fitted.tests[-1][0, :, 0])
        for b, (_, y_dev, of_dev) in enumerate(evaluated):
            about = {"layer": "0", "estimator": str(estimator), "trained_on": str(a)}
            out.append(Cell(about, a, b, y_dev, of_dev, fitted, y, block))
    return out, scores, population[1]


def covered(rng: np.random.Generator, *, metric: str, **setting: Any) -> bool | None:
    """Whether the interval of a probe on new examples of its own population holds its value on the population."""
    [cell], [scores], y = cells(rng, sets=1, more=True, **setting)
    row = next(row for row in cell_rows(cell, ShiftOptions()) if row["metric"] == metric)
    if not np.isfinite(row.get("ci_low", np.nan)):
        return None
    at = threshold(scores[y == 0][None], 0.01)[0] if metric.endswith("on-test") else cell.at(0.01)
    truth = {
        "auroc": lambda: area(y, scores[None])[0],
        "accuracy": lambda: ((scores > 0) == (y == 1)).mean(),
        "false-positive-rate": lambda: (scores[y == 0] > at).mean(),
    }.get(metric, lambda: (scores[y == 1] > at).mean())()
    return bool(row["ci_low"] - 1e-9 <= truth <= row["ci_high"] + 1e-9)


def different(rng: np.random.Generator, *, metric: str, fixed: bool = False, **setting: Any) -> bool | None:
    """Whether any of two differences to the diagonal has p adjusted ≤ .05, for two samples of one population.

    With ``fixed`` the error of the training examples is left out, as if the probes were given.
    """
    found = cells(rng, **setting)[0]
    rows = [row for row in difference_rows([found], ShiftOptions()) if row["metric"] == f"difference({metric})"]
    if fixed:
        return any(abs(row["value"]) > 2.24 * row["error_of_test"] for row in rows)  # .05 / 2, two-sided
    p = [row["p_adjusted"] for row in rows if np.isfinite(row["p_adjusted"])]
    return min(p) <= 0.05 if p else None


for _estimator in (Estimator.LOGISTIC, Estimator.MASS_MEAN):
    for _train, _dev in ((150, 60), (150, 150), (150, 600)):
        about = {"train": _train, "dev": _dev, "estimator": _estimator}
        setting = f"{_estimator}, {_train} subjects of train, {_dev} of dev"
        for _metric in ("auroc", "accuracy", "recall-at-rate", "false-positive-rate", "recall-at-rate-on-test"):
            if _dev >= 100 or _metric != "recall-at-rate-on-test":
                case(f"shift/{_metric}, {setting}", "coverage")(partial(covered, metric=_metric, **about))
        for _metric in ("auroc", "accuracy", "recall-at-rate"):
            case(f"shift/difference of {_metric}, {setting}", "false positives")(
                partial(different, metric=_metric, **about)
            )

for _positives, _dev, _more in (
    (5, 200, {}), (10, 200, {}), (10, 200, {"spread": 3.0}), (20, 200, {}), (20, 200, {"spread": 3.0}),
    (10, 600, {}), (40, 800, {"copies": 4}),
):  # fmt: skip
    _words = "".join(
        f", {word} {_more[key]:g}" for key, word in (("spread", "spread"), ("copies", "near copies")) if key in _more
    )
    setting = f"mass-mean, {_positives} positives of {_dev}{_words}"
    about = {"train": 150, "dev": _dev, "estimator": Estimator.MASS_MEAN, "rare": {"positives": _positives, **_more}}
    for _metric in ("auroc", "recall-at-rate-on-test")[: 1 + (_dev >= 600)]:
        case(f"shift/{_metric}, {setting}", "coverage", runs=300)(partial(covered, metric=_metric, **about))
    case(f"shift/difference of auroc, {setting}", "false positives", runs=200)(
        partial(different, metric="auroc", **about)
    )
