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
from probekit.rows.schema import called
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    import pandas as pd


WAYS = ("forward", "back")


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
    """What the rows of one layer say, both ways together and each way."""

    name: str
    unread: tuple[str, ...]  # ways whose native probe is not above permuted labels by more than the margin: no
    changes: dict[tuple[str, str, str], Change]  # probe could lose more
    margin: float

    def lost(self, after: str, way: str = "both") -> Change:
        return self.changes.get((way, "native", after), Change())

    def kept(self, after: str) -> bool:
        """Whether no way loses the margin: the mean of both hides a loss where the other way gains."""
        return all(self.lost(after, way).high <= self.margin for way in ("both", *WAYS))

    def apart(self, after: str) -> bool:
        """Whether the two ways differ beyond their intervals, or only their mean is below the margin."""
        one, other = (self.lost(after, way) for way in WAYS)
        hidden = self.lost(after).high <= self.margin and not self.kept(after)
        return one.high < other.low or other.high < one.low or hidden

    def gained(self, after: str, over: str) -> bool:
        one = self.changes.get(("both", after, over))
        return one is not None and one.shown and one.value > 0

    @property
    def found(self) -> Found:
        """What the tests show; each step needs one of its own."""
        if self.unread:
            return Found.NOTHING
        if self.kept("as is"):
            return Found.KEPT
        if not self.lost("as is").shown:
            return Found.UNSHOWN
        stretched = self.gained("rescaled", "as is")
        if stretched and self.kept("rescaled"):
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
    for part, prefix in prefixed(rows[rows["target"] == "gold"]):
        head, found = part.iloc[0], list(layers_of(part))
        pooled = f", {head['representation']}"
        names = [shown_label(str(name).removesuffix(pooled)) for name in (head["against_model"], called(head))]
        several = f"{prefix.partition(',')[0]}, " if prefix.startswith("the last of") else ""
        between = f"{several}probes of {names[0]} on {names[1]} and back"
        if not found:
            yield f"{between} were not tested (resamples = 0)"
            continue
        said = [
            _unread(list(some), [names[way == "forward"] for way in ways]) if ways else _said(kind, list(some))
            for (kind, ways), some in groupby(found, lambda layer: (layer.found, layer.unread))
        ]
        yield f"{between}: {'; '.join(said)}"


def layers_of(rows: pd.DataFrame) -> Iterator[Layer]:
    """The layers of one model, in order, from its rows both ways and each way; none without tests."""
    for name, part in rows.groupby("name", sort=False):
        tested = part[part["metric"].str.startswith("difference(")]
        if tested.empty:
            return
        metric, margin = str(tested["metric"].iloc[0])[len("difference(") : -1], float(tested["margin"].iloc[0])
        native = part[(part["metric"] == metric) & (part["after"] == "native")].set_index("way")
        native = native[["value", "null_mean", "p_adjusted"]]
        native = native.fillna(native.loc["both"])  # earlier rows of one way have no permuted labels
        read = (native["p_adjusted"] <= ALPHA) & (native["value"] - native["null_mean"] > margin)
        changes = {
            (row["way"], row["after"], row["against"]): Change(
                row["value"], row["joint_low"], row["joint_high"], row["p_adjusted"]
            )
            for row in tested.to_dict("records")
        }
        yield Layer(str(name), tuple(way for way in WAYS if not read[way]), changes, margin)


def _unread(some: Sequence[Layer], models: Sequence[str]) -> str:
    """The clause on neighbouring layers where the probes of these models read nothing that could be lost."""
    whose = f" of {models[0]}" if len(models) == 1 else ""
    of = layers([layer.name for layer in some])
    return f"{of}: cannot tell, the native probes{whose} do not beat permuted labels by more than the margin"


def _said(found: Found, some: Sequence[Layer]) -> str:
    """The clause on neighbouring layers of which the same is found."""
    of = layers([layer.name for layer in some])
    as_is, rescaled, mapped = (_lost(some, after) for after in ("as is", "rescaled", "mapped"))
    left = f"{as_is} as is, {rescaled} after rescaling" + f", {mapped} after an orthogonal map" * bool(mapped)
    if found is Found.KEPT:
        return f"{of}: direction kept, transfer loses {as_is}"
    if found is Found.RESCALED:
        kind = "(means and scales of dimensions)"
        return f"{of}: only rescaled {kind}, transfer loses {as_is} as is, {rescaled} after rescaling"
    if found is Found.PARTLY_RESCALED:
        brings = f"rescaling {_brings(some, 'rescaled')}"
        return f"{of}: {found}, {brings} (transfer loses {left})"
    if found in (Found.MOVED, Found.PARTLY_MOVED):
        brings = f"an orthogonal map {_brings(some, 'mapped')}"
        return f"{of}: {found}, {brings}, rescaling {_back(some, 'rescaled')} (transfer loses {left})"
    if found is Found.LOST:
        return f"{of}: lost, transfer loses {left}; neither is shown to bring any of it back"
    if found is Found.UNSHOWN:
        return f"{of}: {found}, no loss is shown, but one above the margin is possible ({as_is})"
    if found is Found.PERHAPS:
        brings = f"rescaling {_brings(some, 'rescaled')}"
        return f"{of}: {found}, {brings}, but a loss above the margin after it is possible (transfer loses {left})"
    return f"{of}: {found}, transfer loses {left}"


def _lost(some: Sequence[Layer], after: str) -> str:
    """The loss of both ways, and each way's where they are apart; "" if not measured."""
    if np.isnan(some[0].lost(after).value):
        return ""
    ways = [f"{way} {_interval(some, after, way)}" for way in WAYS if any(layer.apart(after) for layer in some)]
    return ", ".join([_interval(some, after), *([" and ".join(ways)] if ways else [])])


def _interval(some: Sequence[Layer], after: str, way: str = "both") -> str:
    """The loss with the interval for all layers together; of several layers, both are ranges."""
    found = [layer.lost(after, way) for layer in some]
    low, high = min(one.low for one in found), max(one.high for one in found)
    ends = f" [{number(low)}, {number(high)}]" if np.isfinite([low, high]).all() else ""
    return _range([one.value for one in found]) + ends


def _brings(some: Sequence[Layer], after: str) -> str:
    """How much of the loss something brings back, and whether probes then read better than the native ones."""
    better = ", and probes read better after it than the native ones do"
    back = f"brings {_back(some, after)} of {_range([layer.lost('as is').value for layer in some])} back"
    return back + better * any(layer.lost(after).value < 0 >= layer.lost(after).high for layer in some)


def _back(some: Sequence[Layer], after: str) -> str:
    """How much of the loss something brings back: at most what was lost."""
    return _range([layer.lost("as is").value - max(0.0, layer.lost(after).value) for layer in some])


def _range(values: Sequence[float]) -> str:
    """One number, or the range of several: ".012" or ".003 to .020"."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"
