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
    OPEN = "cannot tell"


@dataclass(frozen=True, slots=True)
class Change:
    """A difference in favour of the first: its size, its largest size, and its corrected p."""

    value: float
    most: float
    p: float

    @property
    def shown(self) -> bool:
        return self.p <= ALPHA


@dataclass(frozen=True, slots=True)
class Layer:
    """What the rows of one layer say, both ways."""

    name: str
    native: float
    read: bool  # natively, above permuted labels
    changes: dict[tuple[str, str], Change]
    margin: float

    def lost(self, after: str) -> Change:
        return self.changes.get(("native", after), Change(np.nan, np.nan, np.nan))

    def gained(self, after: str, over: str) -> bool:
        one = self.changes.get((after, over))
        return one is not None and one.shown and one.value > 0

    @property
    def found(self) -> Found:
        """What the tests show; each step needs one of its own."""
        if not self.read:
            return Found.NOTHING
        if self.lost("as is").most <= self.margin:
            return Found.KEPT
        if not self.lost("as is").shown:
            return Found.OPEN
        stretched = self.gained("rescaled", "as is")
        if stretched and self.lost("rescaled").most <= self.margin:
            return Found.RESCALED
        if not self.lost("rescaled").shown:
            return Found.OPEN
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
        found = list(layers_of(part))
        if not found:
            yield f"{prefix}directions were not tested (resamples = 0)"
            continue
        reference = shown_label(str(part["against_model"].iloc[0]))
        said = [_said(kind, list(some)) for kind, some in groupby(found, lambda layer: layer.found)]
        yield f"{prefix}probes of {reference} on this model and back: {'; '.join(said)}"


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
            ends = [sign * row["joint_low"], sign * row["joint_high"]]
            most = max(ends) if np.isfinite(ends).all() else np.inf
            changes[row["after"], row["against"]] = Change(sign * row["value"], most, row["p_adjusted"])
        yield Layer(
            str(name),
            float(native["value"]),
            bool(native["p_adjusted"] <= ALPHA),
            changes,
            float(tested["margin"].iloc[0]),
        )


def _said(found: Found, some: Sequence[Layer]) -> str:
    """The clause on neighbouring layers of which the same is found."""
    of = layers([layer.name for layer in some])
    loss = {after: _sizes([layer.lost(after).value for layer in some]) for after in ("as is", "rescaled", "mapped")}
    if found is Found.NOTHING:
        return f"{of}: cannot tell, the native probes are not shown to beat permuted labels"
    if found is Found.KEPT:
        return f"{of}: direction kept, transfer loses {loss['as is']} (at most {_most(some, 'as is')})"
    if found is Found.RESCALED:
        return (
            f"{of}: only rescaled, transfer loses {loss['as is']} as is, {loss['rescaled']} after rescaling "
            f"(at most {_most(some, 'rescaled')})"
        )
    back = {after: _sizes([one.lost("as is").value - one.lost(after).value for one in some]) for after in loss}
    if found is Found.PARTLY_RESCALED:
        stays = f"an orthogonal map is not shown to bring more ({loss['mapped']} lost)" * (loss["mapped"] != "nan")
        brings = f"rescaling brings {back['rescaled']} of {loss['as is']} back"
        return "; ".join(filter(None, (f"{of}: {found}, {brings}", stays)))
    if found in (Found.MOVED, Found.PARTLY_MOVED):
        stays = f", {loss['mapped']} stays lost" if found is Found.PARTLY_MOVED else ""
        brings = f"an orthogonal map brings {back['mapped']} of {loss['as is']} back, rescaling {back['rescaled']}"
        return f"{of}: {found}, {brings}{stays}"
    every = f"transfer loses {loss['as is']} as is, {loss['rescaled']} after rescaling"
    mapped = "" if loss["mapped"] == "nan" else f", {loss['mapped']} after an orthogonal map"
    if found is Found.LOST:
        return f"{of}: lost, {every}{mapped}; neither is shown to bring any of it back"
    if not any(layer.lost("as is").shown for layer in some):
        possible = f"but one of up to {_most(some, 'as is')} is possible"
        return f"{of}: cannot tell, no loss is shown ({loss['as is']}), {possible}"
    return f"{of}: cannot tell what happened, {every}{mapped}"


def _sizes(values: Sequence[float]) -> str:
    """One number, or the range of several: ".012" or ".003 to .020"."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def _most(some: Sequence[Layer], after: str) -> str:
    """The largest loss that the intervals of all layers together leave possible."""
    return number(max(layer.lost(after).most for layer in some))
