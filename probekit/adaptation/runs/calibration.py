"""Calibration of a run's probabilities: a temperature from dev, and how well confidence and accuracy agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probekit.adaptation.runs.predictions import Evaluation
from probekit.adaptation.training.multi_task import predictions_name
from probekit.errors import UsageError
from probekit.statistics.calibration import brier_score, calibration_error, temperature, tempered
from probekit.statistics.predictions import Predictions

__all__ = ["calibration_rows", "dev_temperature"]


def dev_temperature(folder: Path, card: Mapping[str, Any], split: str) -> float:
    """The temperature that minimises the log loss of a run on dev (Guo et al. 2017), from its stored predictions.

    Raises
    ------
    UsageError
        If the split to evaluate is this one, or the run stores no probabilities of dev.
    """
    dev = str(card["splits"][1])
    if split == dev:
        raise UsageError(f"--calibrate fits a temperature on {dev}; evaluate on another split.")
    file = folder / predictions_name(card, dev)
    if not file.is_file():
        raise UsageError(
            f"{folder} has no predictions of {dev} ({file.name}), on which --calibrate fits a temperature."
        )
    table = Predictions.read(file)
    if table.probabilities is None:
        raise UsageError(f"{folder} stores no probabilities, so there is nothing to calibrate.")
    return float(temperature(_logarithm(table.probabilities), np.atleast_2d(table.gold)[0])[0])


def calibration_rows(
    found: Evaluation, degrees: float, about: Mapping[str, Any], *, same_classes: bool = True
) -> Iterator[dict[str, Any]]:
    """Log loss, Brier score and calibration error as they are and, as "…, scaled", at a temperature.

    Parameters
    ----------
    degrees : float
        The temperature, also in the column ``temperature`` of the scaled ones.
    same_classes : bool
        Whether the classes are those of the run; merged classes have other temperatures.

    Raises
    ------
    UsageError
        For merged classes, and for predictions without probabilities.
    """
    if found.probabilities is None or not same_classes:
        raise UsageError("--calibrate needs the probabilities of the run's own classes.")
    gold = np.concatenate(found.labels)
    log_p = _logarithm(np.concatenate(found.probabilities)[None])
    for suffix, scores, more in (("", log_p, {}), (", scaled", tempered(log_p, np.array([degrees])), _at(degrees))):
        loss = -scores[0, np.arange(len(gold)), gold].mean()
        values = {
            "log-loss": loss, "brier": brier_score(scores, gold)[0],
            "calibration-error-15": calibration_error(scores, gold)[0],
        }  # fmt: skip
        for name, value in values.items():
            if suffix or name != "log-loss":  # the loss as it is has a row already
                yield {**about, "metric": name + suffix, "value": float(value), "headline": False, **more}


def _at(degrees: float) -> dict[str, float]:
    return {"temperature": degrees}


def _logarithm(shares: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(shares.astype(np.float64), 1e-38))
