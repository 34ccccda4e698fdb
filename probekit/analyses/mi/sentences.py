"""Sentences on mutual information."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.curves import Curve, curves_of, each, largest, smallest
from probekit.analyses.verdict.words import ALPHA, layers
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


def sentences(rows: pd.DataFrame, tables: Sequence[Predictions]) -> Iterator[str]:
    curves = curves_of(rows)
    trained, random = ([one for one in curves if one.random is kind] for kind in (False, True))
    verbs = "holds information about the labels", "hold information about the labels"
    yield from each(trained, random, _information_text, *verbs)


def _information_text(curve: Curve, trained: Sequence[Curve], random: Sequence[Curve]) -> str:
    """The layers of a curve that are shown to hold information, and their highest estimate."""
    lost = f"; undetermined at {layers(curve.unknown)}" if curve.unknown else ""
    if np.isnan(curve.value).all():
        why = next(filter(None, curve.rows.get("undetermined", [])), "")
        return f"information is undetermined at every layer{f' ({why})' if why else ''}"
    at = curve.best()
    where = f"{curve.value[at]:.3f} bits at layer {curve.layers[at]}"
    if np.isnan(curve.p).all():
        return f"most {where}, not tested against shuffled labels{lost}"
    beating = curve.beating(curve.value > 0)
    if not beating:
        few = _too_few(curve, len(trained) + len(random))
        return f"no layer is shown to hold information about the labels (most {where}, {few}){lost}"
    bits, layer = max((v, name) for v, name in zip(curve.value, curve.layers, strict=True) if name in beating)
    who = curve.subject(beating, "holds", "hold")
    p = largest(curve, curve.value > 0)
    most = (
        f"; the highest estimate of these is {bits:.3f} bits at layer {layer}, but which layer holds most is not tested"
    )
    estimate = most if len(beating) > 1 else f": {bits:.3f} bits"
    return f"{who} information about the labels ({p}){estimate}{lost}"


def _too_few(curve: Curve, curves: int) -> str:
    """The smallest p, or a note that there are too few shuffled label sets for any significant p."""
    count = curve.rows["shuffles"].max() if "shuffles" in curve.rows else np.nan
    floor = len(curve.layers) * curves / (1 + count) if count == count else 0.0  # smallest possible p after Holm
    if floor > ALPHA and np.nanmin(curve.rows["p"].to_numpy(dtype=float)) <= 1 / (1 + count) + 1e-12:
        return f"{int(count)} shuffled label sets are too few for a significant p"
    return smallest(curve)
