"""Families of sentences: those that one correction holds together, and a correction over several of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from probekit.analysis import Corrected, analyses
from probekit.rows.selection import curve_keys, over_curves, together

if TYPE_CHECKING:
    import pandas as pd

ALPHA = 0.05
"""Significance level for corrected p-values."""
OVER: ContextVar[int] = ContextVar("families", default=1)


@contextmanager
def corrected_for(count: int) -> Iterator[None]:
    """Within it, verdicts correct every p for ``count`` families, besides the correction within its own (Bonferroni).

    The set of layers that are not clearly worse than the best one has the level that this leaves it.
    """
    token = OVER.set(count)
    try:
        yield
    finally:
        OVER.reset(token)


def over_families(p: np.ndarray) -> np.ndarray:
    """p-values corrected for the families of the verdict, :func:`corrected_for`."""
    return np.asarray(np.minimum(1, p * OVER.get()))


def level() -> float:
    """The confidence level of one family."""
    return 1 - ALPHA / OVER.get()


def families(rows: pd.DataFrame) -> int:
    """The number of families of p-values that the sentences on some rows come from, each with its own 5 %.

    For each task and split: of probes, mutual information, code lengths, minimal pairs, trees and choices one for all
    curves; of probes one more for each reference (random weights, bag of word pieces), and two where some layer beats
    permuted labels (layer 0, and the best layer); of other tested analyses one for each curve, or for each reference
    that a curve is compared with.
    """
    count = 0
    for (analysis, _task, _split), part in rows.groupby(["analysis", "task", "split"], sort=False):
        if "p_adjusted" not in part or not part["p_adjusted"].notna().any():
            continue
        known = analyses().get(str(analysis))
        over = known.corrected if known else ""
        if analysis in together() or over is Corrected.TASK:
            count += 1 + (_references(part) if analysis == "probe" else 0)
        elif over is Corrected.CURVE:
            tested = part[part["p_adjusted"].notna()]
            keys = [*curve_keys(tested), *([tested["against"].astype("string")] if "against" in tested else ())]
            count += tested.groupby(keys, dropna=False).ngroups
    return count


def _references(rows: pd.DataFrame) -> int:
    """How many further questions the sentences on probes of one task answer."""
    of_layer = rows[(rows["site"] != "") & (rows["target"] == "gold") & rows["p_adjusted"].notna()]
    random = of_layer["random_weights"].notna() if "random_weights" in of_layer else of_layer["site"] == ""
    beating = bool(((over_curves(rows) <= ALPHA) & (rows["site"] != "").to_numpy()).any())
    return (
        bool(random.any() and not random.all())
        + bool((rows["representation"] == "bag-of-pieces").any())
        + 2 * (beating and of_layer["layer"].nunique() > 1)
    )
