"""What each layer's probe predicts for the points of a scene, from the files of ``probekit probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.analyses.exploration.sources import Sources
from probekit.analyses.vectors import columns_of, read_of
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.rows import Result, layer_labels, read
from probekit.rows.model_names import results_apart
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd

log = logger(__name__)

MODEL = ("model", "checkpoint", "step", "random_weights", "run_seed")
"""Columns that identify the model of a side."""


@dataclass(frozen=True, slots=True, eq=False)
class SideRows:
    """The rows of one side.

    Attributes
    ----------
    prediction : np.ndarray or None
        (layers, n), int or float; -1 or NaN where there is none.
    confidence : np.ndarray or None
        float32 (layers, n).
    curve : DataFrame or None
        All rows of the side's model.
    probes : tuple of str
        The probes whose predictions the rows hold; those of the first are taken.
    """

    prediction: np.ndarray | None = None
    confidence: np.ndarray | None = None
    curve: pd.DataFrame | None = None
    probes: tuple[str, ...] = ()


def rows_of_sides(
    given: str | Path | Result | Sequence[str | Path | Result] | None, sources: Sources
) -> tuple[list[SideRows], list[str]]:
    """For each side its rows and predictions, and notes on what is missing.

    Raises
    ------
    UsageError
        If rows are given and none is about any of the sides.
    """
    if given is None:
        return [SideRows() for _ in sources.caches], ["No rows of probes were given, so there are no predictions."]
    results = [
        r if isinstance(r, Result) else read(r) for r in ([given] if isinstance(given, str | Path | Result) else given)
    ]
    results = results_apart(results, [read_of(cache) for cache in sources.caches])
    found = [_of_side(results, sources, side) for side in range(len(sources.caches))]
    if all(one.curve is None and one.prediction is None for one in found):
        raise UsageError(
            f"the rows belong to other caches: they are about {_about(results)}, the caches about "
            f"{'; '.join(_shown(_key(cache)) for cache in sources.caches)}. Probe these caches, or give their rows."
        )
    notes, lacks = [], dict[str, list[str]]()
    for cache, one in zip(sources.caches, found, strict=True):
        if one.prediction is None:
            what = "no rows" if one.curve is None else "rows but no predictions"
            lacks.setdefault(what, []).append(cache.path.name)
        elif lacking := int(_missing(one.prediction).any(0).sum()):
            notes.append(f"{lacking:,} points of {cache.path.name} have no prediction in some layer.")
        if len(one.probes) > 1:
            notes.append(
                f"The rows hold predictions of several probes for {cache.path.name}: those of {one.probes[0]} are "
                f"shown, not those of {' and '.join(one.probes[1:])}."
            )
    for what, names in lacks.items():
        called = " and ".join(names) if len(names) < 3 else f"{len(names)} of {len(found)} caches, such as {names[0]}"
        notes.append(f"The files hold {what} for {called}, so predictions of its probes are missing.")
        log.warning("%s", notes[-1])  # before the maps, which take long
    return found, notes


def _of_side(results: Sequence[Result], sources: Sources, side: int) -> SideRows:
    import pandas as pd

    key = _key(sources.caches[side])
    kept = [r.rows[_matches(r.rows, key)] for r in results]
    kept = [rows for rows in kept if len(rows)]
    curve = pd.concat(kept, ignore_index=True) if kept else None
    prediction, confidence, probes = None, None, dict[str, None]()
    for table in (table for result in results for table in result.predictions):
        if (found := _predicted(table, key, sources, side)) is not None:
            if not probes:
                prediction, confidence, _ = found
            probes |= dict.fromkeys(found[2])
    return SideRows(prediction, confidence, curve, tuple(probes))


def _predicted(
    table: Predictions, key: dict[str, str], sources: Sources, side: int
) -> tuple[np.ndarray, np.ndarray | None, list[str]] | None:
    """The predictions of a table's first probe for the layers of a side, and all its probes; None if it has none."""
    fits, gold = table.fits, table.is_gold
    match = _matches(fits, key) & gold & (fits["site"] != "").to_numpy(dtype=bool)
    if sources.pooling and (same := match & (fits["representation"] == sources.pooling).to_numpy(dtype=bool)).any():
        match = same
    kinds = [" on ".join(kind) for kind in fits[["estimator", "representation"]].astype(str).to_numpy().tolist()]
    probes = list(dict.fromkeys(kind for kind, matched in zip(kinds, match, strict=True) if matched))
    match &= np.array([kind in probes[:1] for kind in kinds], dtype=bool)
    names = layer_labels(fits).to_numpy()
    first = {str(names[f]): int(f) for f in np.flatnonzero(match)[::-1]}
    place = {name: at for at, name in enumerate(table.ids.tolist())}
    at = np.array([place.get(name, -1) for name in sources.points.ids.tolist()])
    if not first or (at < 0).all():
        return None
    number = table.predicted.dtype.kind == "f" and sources.points.labels.dtype.kind == "f"
    shape = (len(sources.layers[side]), len(at))
    predicted = np.full(shape, np.nan) if number else np.full(shape, -1, dtype=np.int64)
    confidence = None if table.probabilities is None else np.full(shape, np.nan, dtype=np.float32)
    known, gold_row = at >= 0, np.cumsum(gold) - 1
    for layer, name in enumerate(sources.layers[side]):
        if (fit := first.get(name)) is not None:
            predicted[layer, known] = table.predicted[fit, at[known]]
            if confidence is not None and table.probabilities is not None:
                confidence[layer, known] = table.probabilities[gold_row[fit]][at[known]].max(1)
    return predicted, confidence, probes


def _key(cache: ActivationCache) -> dict[str, str]:
    columns = columns_of(cache, "")
    return {name: _text(columns.get(name)) for name in ("task", "split", *MODEL)}


def _matches(rows: pd.DataFrame, key: dict[str, str]) -> np.ndarray:
    """Which rows are about the model, task and split of a cache."""
    same = np.ones(len(rows), dtype=bool)
    for name, value in key.items():
        column = rows.get(name)
        same &= np.array([_text(v) for v in column] if column is not None else [""] * len(rows)) == value
    return same


def _text(value: Any) -> str:
    import pandas as pd

    if value is None or pd.isna(value):
        return ""
    return str(int(value)) if isinstance(value, int | float | np.number) else str(value)


def _missing(prediction: np.ndarray) -> np.ndarray:
    return np.isnan(prediction) if prediction.dtype.kind == "f" else prediction < 0


def _about(results: Sequence[Result]) -> str:
    keys = set()
    for result in results:
        rows = result.rows
        columns = [name for name in ("task", "split", *MODEL) if name in rows]
        keys |= {
            _shown(dict(zip(columns, map(_text, row), strict=True)))
            for row in rows[columns].drop_duplicates().to_numpy()
        }
    return "; ".join(sorted(keys)[:4])


def _shown(key: dict[str, str]) -> str:
    parts = [f"{key['task']} {key['split']}", key["model"], key["checkpoint"]]
    return ", ".join(filter(None, [*parts, f"step {key['step']}" if key.get("step") else ""]))
