"""Expected validation performance of a search, by its number of trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.metrics import metric
from probekit.statistics.trials import expected_best, expected_best_unbiased

if TYPE_CHECKING:
    import pandas as pd

EXPECTED = "expected-performance"
"""The analysis of these rows."""


def expected_rows(trials: pd.DataFrame, about: Mapping[str, Any], *, drawn: str) -> list[dict[str, Any]]:
    """Rows of the expected dev metric of the best of n trials, for n = 1 … N.

    A trial that was stopped early counts with the best of its evaluations, one without any with the worst value of the
    others.

    Parameters
    ----------
    trials : pd.DataFrame
        The table of a search: ``value`` and ``by_epoch``.
    about : mapping
        Columns of all rows, with ``metric``.
    drawn : str
        How settings were drawn: "random", "tpe" or "grid". The expectation holds for independent draws.

    Returns
    -------
    list of dict
        ``value`` and ``sd`` as Dodge et al. (2019), ``unbiased`` as Tang et al. (2020), ``trials`` (n), ``drawn``.
    """
    sign = metric(str(about["metric"])).sign
    values = np.array([sign * _reached(*pair, sign) for pair in zip(trials["value"], trials["by_epoch"], strict=True)])
    values = np.where(np.isfinite(values), values, np.nanmin(values))
    mean, sd = expected_best(values)
    unbiased = expected_best_unbiased(values)
    return [
        {
            **about, "analysis": EXPECTED, "value": sign * m, "sd": s, "unbiased": sign * u, "trials": n,
            "drawn": drawn, "kept": False, "headline": False,
        }
        for n, (m, s, u) in enumerate(zip(mean, sd, unbiased, strict=True), start=1)
    ]  # fmt: skip


def _reached(value: float | None, by_epoch: list[float], sign: int) -> float:
    """The dev metric of a trial: its final one, or the best before it was stopped."""
    if value is not None and np.isfinite(value):
        return float(value)
    finite = [one for one in by_epoch if np.isfinite(one)]
    return float(max(finite, key=lambda one: sign * one)) if finite else np.nan


def expected_sentence(rows: pd.DataFrame) -> str:
    """What the search would be expected to reach on dev with one trial, half of them and all of them."""
    curve = rows[rows["analysis"] == EXPECTED].sort_values("trials")
    ends = sorted({0, (len(curve) - 1) // 2, len(curve) - 1})
    said = [f"{r['value']:.4f} after {r['trials']}" for r in curve.iloc[ends].to_dict("records")]
    first = curve.iloc[0]
    drawn = "" if first["drawn"] == "random" else f", if trials were independent (drawn by {first['drawn']})"
    return f"expected best {first['split']} {first['metric']} by the number of trials: {', '.join(said)}{drawn}"
