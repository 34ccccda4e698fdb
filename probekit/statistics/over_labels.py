"""Means over the labels of a text, where several can hold, or over several numbers: each is measured alone.

The rows of a table are pairs of an example and a label (:attr:`probekit.statistics.predictions.Predictions.of_label`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import block_diag

from probekit.statistics._sums import Pseudo, Statistic, UnitSums

if TYPE_CHECKING:
    import pandas as pd

POOLED = ("micro-f1", "f1", "log-loss", "accuracy", "matthews")
"""The metrics of all pairs of an example and a label together; every other one is a mean over the labels."""
ALONE = {"macro-f1": "f1"}
"""What is measured of each label, if it has another name."""

PENALTIES = "penalties"
"""The column of fits with the penalty of each label, in their order; "nan" for one that could not be fitted."""


def over_labels(name: str, of_label: np.ndarray | None) -> bool:
    """Whether a metric of these rows is a mean over labels."""
    return of_label is not None and name not in POOLED


def pairs_of(ids: np.ndarray, names: Sequence[str], groups: np.ndarray | None) -> dict[str, np.ndarray]:
    """The columns ids, groups and of_label of the n · labels pairs of an example and a label, example by example.

    Parameters
    ----------
    ids : np.ndarray
        Str (n,); a pair is called "EXAMPLE/LABEL".
    names : sequence of str
        The labels.
    groups : np.ndarray, optional
        (n,), groups of examples; by default each example is one, since its labels are resampled together.
    """
    of_label = np.tile(np.array(names), len(ids))
    repeated = np.repeat(np.char.add(ids.astype(str), "/"), len(names))
    of = np.repeat(np.arange(len(ids)) if groups is None else groups, len(names))
    return {"ids": np.char.add(repeated, of_label), "groups": of, "of_label": of_label}


def rows_by_label(of_label: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of each label, int, in the order of their first rows; all labels have the same examples."""
    again = np.flatnonzero(of_label[1:] == of_label[:1])
    period = 1 + int(again[0]) if len(again) else len(of_label)
    if len(of_label) % period == 0 and (of_label.reshape(-1, period) == of_label[:period]).all():  # as probes write
        rows = np.arange(len(of_label)).reshape(-1, period).T
        return {str(name): own for name, own in zip(of_label, rows, strict=False)}
    names, first, code = np.unique(of_label, return_index=True, return_inverse=True)
    own_rows = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    return {str(names[k]): own_rows[k] for k in np.argsort(first)}


def penalties_of(fits: pd.DataFrame, labels: int) -> np.ndarray:
    """The penalty of each label, float64 (F, labels); NaN for one that could not be fitted; inf where none is told."""
    told = [""] * len(fits) if PENALTIES not in fits else fits[PENALTIES].fillna("").tolist()
    return np.array([[float(p) for p in one.split()] if one else [np.inf] * labels for one in told])


def rows_that_count(of_label: np.ndarray, gold: np.ndarray) -> list[np.ndarray]:
    """The rows of each label that holds for some example, (n,) or (F, n); of all, if none does, and of numbers.

    A label that holds for no example has no area and no recall, and its F1 is 0 whatever the probe: means over labels
    leave it out, for all fits of a table alike.
    """
    every = list(rows_by_label(of_label).values())
    held = every if gold.dtype.kind == "f" else [rows for rows in every if (gold[..., rows] == 1).any()]
    return held or every


@dataclass(frozen=True, slots=True)
class OverLabels:
    """The mean over labels of a metric that is not a function of sums."""

    parts: tuple[Statistic, ...]

    def at(self, weights: np.ndarray) -> np.ndarray:
        return mean_of(np.stack([part.at(weights) for part in self.parts]))


def mean_of(values: np.ndarray) -> np.ndarray:
    """The mean of (labels, …) over the labels for which it is defined; NaN if it is for none."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(0) / known.sum(0))


def combined(name: str, parts: Sequence[Statistic]) -> Statistic:
    """The mean over labels from the statistic of each, with the same units and fits.

    In a resample, F1 leaves out labels that occur in neither gold labels nor predictions, as macro-F1 of classes does.
    """
    sums = [part for part in parts if isinstance(part, UnitSums)]
    if len(sums) < len(parts):
        return OverLabels(tuple(parts))
    ends = np.cumsum([0, *(len(part.cuts) - 2 for part in sums)])
    blocks = [part.matrix[: part.cuts[-2]] for part in sums]
    starts = np.cumsum([0, *map(len, blocks)])
    cuts = [0, *(int(start) + cut for start, part in zip(starts, sums, strict=False) for cut in part.cuts[1:-1])]
    cuts.append(cuts[-1] + 1)
    f1 = name == "macro-f1"

    def value(planes: Sequence[np.ndarray], n: np.ndarray) -> np.ndarray:
        found = []
        for k, part in enumerate(sums):
            own = planes[ends[k] : ends[k + 1]]
            one = part.value(own, n)
            found.append(np.where(own[1] + own[2] > 0, one, np.nan) if f1 else one)
        return mean_of(np.stack(np.broadcast_arrays(*found)))

    pseudos = [part.pseudo for part in sums if part.pseudo is not None]
    if f1:
        pseudos = [replace(p, known=p.known & p.held.any(1, keepdims=True)) for p in pseudos]
    return UnitSums(
        np.concatenate([*blocks, sums[0].matrix[-1:]]), tuple(cuts), sums[0].fits, value,
        _joined(pseudos) if len(pseudos) == len(sums) else None,
    )  # fmt: skip


def _joined(parts: Sequence[Pseudo]) -> Pseudo:
    starts = np.cumsum([0, *(len(part.mass) for part in parts)])
    planes = block_diag(*(part.planes[:-1] for part in parts))
    return Pseudo(
        np.concatenate([planes, np.ones((1, planes.shape[1]))]),
        np.concatenate([part.mass for part in parts]),
        np.concatenate([part.right for part in parts]),
        np.concatenate([np.where(p.partner < 0, -1, p.partner + s) for p, s in zip(parts, starts, strict=False)]),
        np.concatenate([part.held for part in parts], axis=1),
        np.concatenate([part.known for part in parts], axis=1),
        np.max([part.size for part in parts], axis=0),
        np.min([part.degrees for part in parts], axis=0),
    )
