"""Sentences on directions: kept, only rescaled, moved, lost, or open, by ranges of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.verdict.representations import prefixed
from probekit.analyses.verdict.words import ALPHA, layers, number
from probekit.display import shown_label
from probekit.metrics import metric as metric_called
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


class Found(StrEnum):
    """What is shown of a direction."""

    NOTHING = "nothing to lose"
    KEPT = "kept"
    RESCALED = "only rescaled"
    PARTLY_RESCALED = "rescaled in part"
    MOVED = "moved"
    PARTLY_MOVED = "moved in part"
    LOST = "lost"
    UNSHOWN = "cannot tell whether anything moved"
    PERHAPS = "cannot tell whether it is only rescaled"
    OPEN = "cannot tell what happened"


@dataclass(frozen=True, slots=True)
class Change:
    """A difference in favour of the first, its interval for all layers together, and its corrected p."""

    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan

    @property
    def shown(self) -> bool:
        return self.p <= ALPHA


@dataclass(frozen=True, slots=True)
class Layer:
    """What the rows of one layer say, both ways."""

    name: str
    read: bool  # natively, above permuted labels by more than the margin: otherwise a probe could not lose more
    changes: dict[tuple[str, str], Change]
    margin: float

    def lost(self, after: str) -> Change:
        return self.changes.get(("native", after), Change())

    def gained(self, after: str, over: str) -> bool:
        one = self.changes.get((after, over))
        return one is not None and one.shown and one.value > 0

    @property
    def found(self) -> Found:
        """What the tests show; each step needs one of its own."""
        if not self.read:
            return Found.NOTHING
        if self.lost("as is").high <= self.margin:
            return Found.KEPT
        if not self.lost("as is").shown:
            return Found.UNSHOWN
        stretched = self.gained("rescaled", "as is")
        if stretched and self.lost("rescaled").high <= self.margin:
            return Found.RESCALED
        if not self.lost("rescaled").shown:
            return Found.PERHAPS if stretched else Found.OPEN
        left = self.lost("mapped").shown
        if self.gained("mapped", "rescaled") and self.gained("mapped", "unrelated rows"):
            return Found.PARTLY_MOVED if left else Found.MOVED
        if stretched:
            return Found.PARTLY_RESCALED
        return Found.LOST if left else Found.OPEN


def sentences(rows: pd.DataFrame, _: Sequence[Predictions]) -> Iterator[str]:
    """For each model, what happened to the directions of neighbouring layers."""
    if "way" not in rows:
        return
    both = rows[(rows["way"] == "both") & (rows["target"] == "gold")]
    for part, prefix in prefixed(both):
        head, found = part.iloc[0], list(layers_of(part))
        pooled = f", {head['representation']}"
        names = [shown_label(str(name).removesuffix(pooled)) for name in (head["against_model"], called(head))]
        several = f"{prefix.partition(',')[0]}, " if prefix.startswith("the last of") else ""
        between = f"{several}probes of {names[0]} on {names[1]} and back"
        if not found:
            yield f"{between} were not tested (resamples = 0)"
            continue
        said = [_said(kind, list(some)) for kind, some in groupby(found, lambda layer: layer.found)]
        yield f"{between}: {'; '.join(said)}"


def layers_of(rows: pd.DataFrame) -> Iterator[Layer]:
    """The layers of one model, in order, from its rows both ways; none without tests."""
    for name, part in rows.groupby("name", sort=False):
        tested = part[part["metric"].str.startswith("difference(")]
        if tested.empty:
            return
        metric = str(tested["metric"].iloc[0])[len("difference(") : -1]
        sign = metric_called(metric).sign
        native = part[(part["metric"] == metric) & (part["after"] == "native")].iloc[0]
        changes = {}
        for row in tested.to_dict("records"):
            low, high = sorted(sign * row[end] for end in ("joint_low", "joint_high"))
            changes[row["after"], row["against"]] = Change(sign * row["value"], low, high, row["p_adjusted"])
        margin, above = float(tested["margin"].iloc[0]), sign * (native["value"] - native["null_mean"])
        read = bool(native["p_adjusted"] <= ALPHA and above > margin)
        yield Layer(str(name), read, changes, margin)


def _said(found: Found, some: Sequence[Layer]) -> str:
    """The clause on neighbouring layers of which the same is found."""
    of = layers([layer.name for layer in some])
    as_is, rescaled, mapped = (_lost(some, after) for after in ("as is", "rescaled", "mapped"))
    left = f"{as_is} as is, {rescaled} after rescaling" + f", {mapped} after an orthogonal map" * bool(mapped)
    if found is Found.NOTHING:
        return f"{of}: cannot tell, the native probes do not beat permuted labels by more than the margin"
    if found is Found.KEPT:
        return f"{of}: direction kept, transfer loses {as_is}"
    if found is Found.RESCALED:
        kind = "(means and scales of dimensions)"
        return f"{of}: only rescaled {kind}, transfer loses {as_is} as is, {rescaled} after rescaling"
    if found is Found.PARTLY_RESCALED:
        brings = f"rescaling brings {_back(some, 'rescaled')} of {_sizes(some, 'as is')} back"
        return f"{of}: {found}, {brings} (transfer loses {left})"
    if found in (Found.MOVED, Found.PARTLY_MOVED):
        brings = f"an orthogonal map brings {_back(some, 'mapped')} of {_sizes(some, 'as is')} back"
        return f"{of}: {found}, {brings}, rescaling {_back(some, 'rescaled')} (transfer loses {left})"
    if found is Found.LOST:
        return f"{of}: lost, transfer loses {left}; neither is shown to bring any of it back"
    if found is Found.UNSHOWN:
        return f"{of}: {found}, no loss is shown, but one above the margin is possible ({as_is})"
    if found is Found.PERHAPS:
        brings = f"rescaling brings {_back(some, 'rescaled')} of {_sizes(some, 'as is')} back"
        return f"{of}: {found}, {brings}, but a loss above the margin after it is possible (transfer loses {left})"
    return f"{of}: {found}, transfer loses {left}"


def _lost(some: Sequence[Layer], after: str) -> str:
    """The loss with the interval for all layers together; of several layers, both are ranges; "" if not measured."""
    low, high = (f([getattr(layer.lost(after), end) for layer in some]) for f, end in ((min, "low"), (max, "high")))
    if np.isnan(some[0].lost(after).value):
        return ""
    return _sizes(some, after) + (f" [{number(low)}, {number(high)}]" if np.isfinite([low, high]).all() else "")


def _sizes(some: Sequence[Layer], after: str) -> str:
    return _range([layer.lost(after).value for layer in some])


def _back(some: Sequence[Layer], after: str) -> str:
    """How much of the loss something brings back."""
    return _range([layer.lost("as is").value - layer.lost(after).value for layer in some])


def _range(values: Sequence[float]) -> str:
    """One number, or the range of several: ".012" or ".003 to .020"."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"
