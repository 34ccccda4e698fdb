"""The rows of shift matrices: cells, and their differences to the diagonal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import derive
from probekit.probes.shift import Trained
from probekit.statistics.bootstrap import bounds
from probekit.statistics.detection import (
    area,
    area_influence,
    area_interval,
    difference,
    own_recall,
    smallest_rate,
    threshold,
    too_few_above,
    too_few_of_class,
)
from probekit.statistics.multiplicity import holm

if TYPE_CHECKING:
    from probekit.analyses.shift import ShiftOptions

DIFFERENCES = ("auroc", "accuracy", "recall-at-rate")
"""The metrics whose differences to the diagonal are measured, the main one first."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Probes of one layer fitted on data set ``train`` and evaluated on ``test``, by number.

    Attributes
    ----------
    columns : mapping
        The columns of its rows.
    y, groups : np.ndarray
        Labels (n,) and groups (n,) or None of the evaluated examples.
    fitted : Trained
        The probes.
    y_train, block : np.ndarray
        (m,), the labels and blocks of train.
    """

    columns: Mapping[str, Any]
    train: int
    test: int
    y: np.ndarray
    groups: np.ndarray | None
    fitted: Trained
    y_train: np.ndarray
    block: np.ndarray

    @property
    def targets(self) -> list[dict[str, Any]]:
        """The columns target, draw, penalty and converged of each probe, that of gold labels first."""
        fitted = self.fitted
        return [
            {
                "target": "shuffled" if i else "gold", "draw": i - 1 if i else None,
                "penalty": float(fitted.penalty[i]), "converged": bool(fitted.converged[i]),
            }
            for i in range(len(fitted.penalty))
        ]  # fmt: skip

    @property
    def two(self) -> bool:
        """Whether there are two classes, and evaluated examples of both."""
        return self.fitted.held_out.shape[1] == 2 and 0 < int((self.y == 1).sum()) < len(self.y)

    @property
    def scores(self) -> np.ndarray:
        """The log-odds of class 1, (T, n)."""
        return _odds(self.fitted.tests[self.test])

    def at(self, rate: float, without: int | None = None) -> float:
        """The threshold that the scores out of fold of train's negatives give, but for those of one block."""
        negative = self.y_train == 0
        if without is not None:
            negative &= self.block != without
        return float(threshold(_odds(self.fitted.held_out)[negative][None], rate)[0])


def _odds(log_p: np.ndarray) -> np.ndarray:
    return log_p[..., 1].astype(np.float64) - log_p[..., 0]


def cell_rows(cell: Cell, options: ShiftOptions) -> Iterator[dict[str, Any]]:
    """The rows of one cell: gold labels with intervals, shuffled ones without."""
    right = (cell.fitted.tests[cell.test].argmax(2) == cell.y).astype(np.int64)
    for i, (target, scores) in enumerate(zip(cell.targets, cell.scores if cell.two else right, strict=True)):
        row = {**cell.columns, **target, "n_positive": int((cell.y == 1).sum()), "n_negative": int((cell.y == 0).sum())}
        yield row | {"metric": "accuracy"} | _share(right[i], cell.groups, options, interval=not i)
        if cell.fitted.held_out.shape[1] != 2:
            continue
        yield row | {"metric": "auroc"} | _area(cell, scores, options, interval=not i)
        if not i:
            yield from (row | more for more in _at_rate(cell, scores, options))


def _area(cell: Cell, scores: np.ndarray, options: ShiftOptions, *, interval: bool) -> dict[str, Any]:
    if not cell.two:
        return {"value": np.nan, "why": "all evaluated examples are of one class"}
    value = float(area(cell.y, scores[None])[0])
    if not interval:
        return {"value": value}
    low, high, why = area_interval(cell.y, scores[None], cell.groups, options.level)
    return {"value": value, "ci_low": float(low[0]), "ci_high": float(high[0]), "why": why}


def _share(
    right: np.ndarray, groups: np.ndarray | None, options: ShiftOptions, *, interval: bool = True
) -> dict[str, Any]:
    """A share of examples with its interval."""
    if not interval:
        return {"value": float(right.mean())}
    found = bounds(
        np.ones(len(right), dtype=np.int64), right[None], "accuracy", resamples=options.resamples, level=options.level,
        seed=options.seed, groups=groups,
    )  # fmt: skip
    (low, high), why = found.ci[0], found.why[0]
    return {"value": float(found.value[0]), "ci_low": float(low), "ci_high": float(high), "why": str(why)}


def _at_rate(cell: Cell, scores: np.ndarray, options: ShiftOptions) -> Iterator[dict[str, Any]]:
    """Recall and false positives at the threshold of train, and recall at that of the test set."""
    at, rate = cell.at(options.rate), options.rate
    about = {"rate": rate, "threshold": at}
    lacking = _too_few(int((cell.y_train == 0).sum()), rate, "train")
    for name, side in (("recall-at-rate", 1), ("false-positive-rate", 0)):
        mine = cell.y == side
        if np.isnan(at) or not mine.any():
            yield about | {"metric": name, "value": np.nan, "why": lacking or "no evaluated example of the class"}
            continue
        groups = None if cell.groups is None else cell.groups[mine]
        share = _share((scores[mine] > at).astype(np.int64), groups, options)
        yield about | {"metric": name} | share | {"n": int(mine.sum())}
    value, low, high, own = (
        float(x[0])
        for x in own_recall(
            cell.y, scores[None], rate, cell.groups, resamples=options.resamples, level=options.level, seed=options.seed
        )
    )
    negatives = int((cell.y == 0).sum())
    why = _too_few(negatives, rate, "test")
    if not why and (why := too_few_above(cell.y, scores, rate, cell.groups, " of test")):
        low = high = np.nan
    why = why or too_few_of_class(cell.y, cell.groups)
    yield {
        "metric": "recall-at-rate-on-test", "rate": rate, "threshold": own, "value": value, "ci_low": low,
        "ci_high": high, "n": int((cell.y == 1).sum()), "why": why,
    }  # fmt: skip


def _too_few(negatives: int, rate: float, where: str) -> str:
    """Why a rate cannot be had from so many negatives; "" if it can."""
    if int(rate * negatives + 1e-9):
        return ""
    least = f"{100 * smallest_rate(negatives):.2g} %" if negatives else "any rate"
    return f"the {negatives} negatives of {where} resolve no rate of false positives below {least}"


def difference_rows(models: Sequence[Sequence[Cell]], options: ShiftOptions) -> Iterator[dict[str, Any]]:
    """Each cell of each model minus the diagonal of its column, for gold labels.

    p is corrected by Holm for each metric, over all differences of all models.
    """
    for name in DIFFERENCES:
        found = []
        for cells in models:
            place = {(c.columns["layer"], c.columns["estimator"], c.train, c.test): c for c in cells}
            for (layer, estimator, a, b), cell in place.items():
                if a != b:
                    found.append(_difference(name, cell, place[layer, estimator, b, b], options))
        found = [row for row in found if row]
        adjusted = holm(np.array([row["p"] for row in found], dtype=np.float64))
        tests = int(np.isfinite(adjusted).sum())
        for row, p in zip(found, adjusted, strict=True):
            yield row | {"p_adjusted": float(p), "correction": "holm", "tests": tests}


def _difference(name: str, cell: Cell, home: Cell, options: ShiftOptions) -> dict[str, Any]:
    """The row of one difference; {} for a metric that these classes do not have."""
    if name != "accuracy" and not cell.two:
        return {}
    row = {
        **cell.columns, "target": "gold", "draw": None, "metric": derive("difference", name),
        "against": f"trained on {home.columns['trained_on']}",
        "null": "training on the one or the other data set makes no difference",
    }  # fmt: skip
    blocks = len(cell.fitted.without[cell.test])
    parts = [_measure(name, one, options.rate) for one in (cell, home)]
    if any(np.isnan(value) for value, _ in parts):
        why = _too_few(int((cell.y_train == 0).sum()), options.rate, "train") or _too_few(
            int((home.y_train == 0).sum()), options.rate, "train"
        )
        return row | {"value": np.nan, "p": np.nan, "why": why, "rate": options.rate}
    if name != "accuracy" and (why := too_few_of_class(cell.y, cell.groups)):
        return row | {"value": parts[0][0] - parts[1][0], "p": np.nan, "why": why}
    without = np.array(
        [_measure(name, cell, options.rate, b)[0] - _measure(name, home, options.rate, b)[0] for b in range(blocks)]
    )
    (value, influence), (base, other) = parts
    found = difference(value - base, influence - other, without, cell.groups, options.level)
    return row | {
        "value": found.value, "ci_low": found.low, "ci_high": found.high, "p": found.p,
        "error_of_test": found.of_test, "error_of_train": found.of_train,
    }  # fmt: skip


def _measure(name: str, cell: Cell, rate: float, without: int | None = None) -> tuple[float, np.ndarray]:
    """A metric of the probe of gold labels, or of that without a block, and the influence (n,) of each example."""
    log_p = cell.fitted.tests[cell.test][0] if without is None else cell.fitted.without[cell.test][without]
    if name == "accuracy":
        right = (log_p.argmax(1) == cell.y).astype(np.float64)
        return float(right.mean()), right - right.mean()
    scores = _odds(log_p)
    if name == "auroc":
        value = float(area(cell.y, scores[None])[0])
        return value, area_influence(cell.y, scores[None])[0] if without is None else scores
    at, positive = cell.at(rate, without), cell.y == 1
    if np.isnan(at):
        return float("nan"), scores
    hit = (scores > at).astype(np.float64)
    value = float(hit[positive].mean())
    return value, np.where(positive, hit - value, 0) * len(hit) / positive.sum()
