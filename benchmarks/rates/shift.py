"""How often what ``probekit shift`` says is wrong: from features of true and false twins to intervals and p.

A subject has two statements, one of each class, whose vectors share a part; a probe is fitted on some subjects and
evaluated on others. Its value on a population is that on 20,000 subjects that it has not met.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from calibration import case

from probekit.analyses.options import ShiftOptions
from probekit.analyses.shift_rows import Cell, cell_rows, difference_rows
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


def cells(
    rng: np.random.Generator, *, train: int, dev: int, estimator: Estimator, sets: int = 2, more: bool = False
) -> tuple[list[Cell], list[np.ndarray], np.ndarray]:
    """All cells of data sets that are samples of one population, and with ``more`` the probes' scores of it."""
    fitted_on = [twins(rng, train) for _ in range(sets)]
    evaluated = [twins(rng, dev) for _ in range(sets)]
    population = twins(rng, POPULATION if more else 1)
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


def covered(rng: np.random.Generator, *, metric: str, train: int, dev: int, estimator: Estimator) -> bool | None:
    """Whether the interval of a probe on new examples of its own population holds its value on the population."""
    [cell], [scores], y = cells(rng, train=train, dev=dev, estimator=estimator, sets=1, more=True)
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


def different(
    rng: np.random.Generator, *, metric: str, train: int, dev: int, estimator: Estimator, fixed: bool = False
) -> bool | None:
    """Whether any of two differences to the diagonal has p adjusted ≤ .05, for two samples of one population.

    With ``fixed`` the error of the training examples is left out, as if the probes were given.
    """
    found = cells(rng, train=train, dev=dev, estimator=estimator)[0]
    rows = [row for row in difference_rows(found, ShiftOptions()) if row["metric"] == f"difference({metric})"]
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
