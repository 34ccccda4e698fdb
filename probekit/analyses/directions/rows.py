"""Rows of probes across models: values, differences with their tests, and angles between directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.probes.directions import After, Angles, Side, angles, by_chance, maps
from probekit.rows import make_fits
from probekit.runtime import Progress
from probekit.statistics.bootstrap import bounds
from probekit.statistics.comparisons import above_noise, difference_columns, paired
from probekit.statistics.options import CompareOptions, Tails
from probekit.statistics.predictions import Predictions

if TYPE_CHECKING:
    from probekit.analyses.directions import DirectionsOptions

ANGLE = "direction-angle"
UNRELATED = "unrelated rows"
"""In the column ``against``: the same map, fitted between rows that do not belong together."""
NULL = "the vectors of either model of an example are exchangeable"
COMPARED: tuple[tuple[str, str], ...] = (
    *((After.NATIVE, after) for after in (After.AS_IS, After.RESCALED, After.MAPPED)),
    (After.RESCALED, After.AS_IS),
    (After.MAPPED, After.RESCALED),
    (After.MAPPED, UNRELATED),
)
"""The differences that are tested over layers, the first minus the second (of unrelated rows, the mean of draws)."""


class Way(StrEnum):
    """Whose probes read whose vectors."""

    FORWARD = "forward"  # probes of the reference on the other model
    BACK = "back"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Data:
    """The labelled examples of dev, and those of train as far as maps need them.

    Attributes
    ----------
    y, groups : np.ndarray
        (n,) of dev; groups may be None.
    classes : int
        0 for numbers.
    units : int
        The number of groups of train.
    orders : sequence of np.ndarray
        Orders of the rows of train for maps between unrelated rows.
    label_names : tuple of str
        Of the classes.
    """

    y: np.ndarray
    groups: np.ndarray | None
    classes: int
    units: int
    orders: Sequence[np.ndarray] = ()
    label_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """Probes of one layer of two models on each other's vectors of dev, by way ("forward", "back").

    Attributes
    ----------
    predicted : dict
        By what is done before, (n,) each.
    unrelated : dict
        After orthogonal maps between unrelated rows, (draws, n); empty without a map.
    angles : dict
        By what is done before.
    dimensions, width : int
        Among how many dimensions the orthogonal map maps (0 if there is none), and how many there are.
    chance : float
        The angle below which 5 % of random directions lie.
    """

    predicted: dict[Way, dict[After, np.ndarray]]
    unrelated: dict[Way, np.ndarray]
    angles: dict[Way, dict[After, Angles]]
    dimensions: int
    width: int
    chance: float

    @classmethod
    def of(cls, reference: Side, other: Side, data: Data, seed: int = 0) -> Layer:
        """Both probes on both models."""
        weight, ways = reference.fit.weights.arrays["weight"], ((reference, other), (other, reference))
        layer = cls({}, {}, {}, 0, weight.shape[1], by_chance(weight.shape, seed))
        for way, (probe, read) in zip((Way.FORWARD, Way.BACK), ways, strict=True):
            between = maps(read.x, probe.x, data.units, data.orders)
            after = {name: probe.predicts(one(read.x_dev), data.classes) for name, one in between.of.items()}
            layer.predicted[way] = {After.NATIVE: read.predicts(read.x_dev, data.classes), **after}
            layer.unrelated[way] = np.array(
                [probe.predicts(one(read.x_dev), data.classes) for one in between.unrelated]
            )
            layer.angles[way] = {name: angles(probe, read, one) for name, one in between.of.items()}
        best = between.of.get(After.MAPPED)
        return replace(layer, dimensions=best.dimensions if best else 0)

    @property
    def note(self) -> str:
        """What limits the orthogonal map; "" if nothing does."""
        if not self.dimensions:
            return "too few examples of train for an orthogonal map"
        if self.dimensions < self.width:
            return f"the orthogonal map is among {self.dimensions} of {self.width} dimensions; the others are dropped"
        return ""


def rows_of(
    layers: Mapping[str, Layer], data: Data, metric: str, options: DirectionsOptions
) -> Iterator[dict[str, Any]]:
    """The rows of all layers of two models: values, differences and angles."""
    names = list(layers)
    for way in Way:
        table = _Table.of_way(list(layers.values()), way, data, metric)
        rows = [*table.values(options), *(table.differences(options) if options.resamples else ())]
        yield from ({"layer_name": names[i], "fitted_layer": names[i], "way": str(way), **row} for i, row in rows)
    for name, layer in layers.items():
        for way, by_after in layer.angles.items():
            for after, one in by_after.items():
                yield {
                    "layer_name": name, "fitted_layer": name, "way": str(way), "after": str(after), "metric": ANGLE,
                    "value": one.whole, "across_halves": one.across, "within_halves": one.within,
                    "null_low": layer.chance, "note": layer.note if after is After.MAPPED else "",
                }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Table:
    """The predictions of all layers, one way or both, for each value, interval and test.

    Both ways, the two readings of an example are two rows of one group. To exchange its predictions between native and
    transferred probes is then to exchange the vectors of the two models, for probes as they are. So the test is about
    what moved, not about which training examples a probe was fitted on.

    Attributes
    ----------
    fits : list of tuple
        The number of the layer, what is done before, and for unrelated rows the number of the draw, of each fit.
    of : Predictions
        Of these fits.
    """

    fits: list[tuple[int, str, int]]
    of: Predictions
    metric: str
    way: Way
    layers: Sequence[Layer]

    @classmethod
    def of_way(cls, layers: Sequence[Layer], way: Way, data: Data, metric: str) -> _Table:
        ways = (Way.FORWARD, Way.BACK) if way is Way.BOTH else (way,)
        fits, predicted = list[tuple[int, str, int]](), list[np.ndarray]()
        for i, layer in enumerate(layers):
            for after in layer.predicted[ways[0]]:
                fits.append((i, str(after), 0))
                predicted.append(np.concatenate([layer.predicted[one][after] for one in ways]))
            for k in range(len(layer.unrelated[ways[0]])):
                fits.append((i, UNRELATED, k))
                predicted.append(np.concatenate([layer.unrelated[one][k] for one in ways]))
        n = len(data.y)
        groups = np.arange(n) if data.groups is None and way is Way.BOTH else data.groups
        readings = np.repeat([str(one) for one in ways], n)
        of = Predictions(
            make_fits([{"target": "gold"} for _ in fits]),
            np.arange(len(readings)).astype(str),
            np.tile(data.y, len(ways)),
            np.stack(predicted),
            (metric,),
            None if groups is None else np.tile(groups, len(ways)),
            label_names=data.label_names,
            of_label=None if data.classes else readings,  # numbers of two models have their own scales
        )
        return cls(fits, of, metric, way, layers)

    def _numbered(self, after: str) -> dict[int, list[int]]:
        """By layer, the fits after this; {} unless every layer has one."""
        found: dict[int, list[int]] = {}
        for k, (layer, name, _) in enumerate(self.fits):
            if name == after:
                found.setdefault(layer, []).append(k)
        return found if len(found) == len(self.layers) else {}

    def values(self, options: DirectionsOptions) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows of the metric, beside permuted labels; both ways, also of maps between unrelated rows."""
        how: dict[str, Any] = {"resamples": options.resamples, "level": options.level, "seed": options.seed}
        found = bounds(metric=self.metric, **self.of.sample(), **how)
        tested = self._above_permuted(options) if options.resamples else {}
        for k, (layer, after, draw) in enumerate(self.fits):
            row = {"metric": self.metric, "value": found.value[k], "after": after}
            if after == UNRELATED:
                if self.way is Way.BOTH:
                    yield layer, row | {"after": str(After.MAPPED), "target": UNRELATED, "draw": draw}
                continue
            row |= {"ci_low": found.ci[k, 0], "ci_high": found.ci[k, 1], "why": str(found.why[k])}
            yield layer, row | tested.get(k, {}) | {"note": self.layers[layer].note if after == After.MAPPED else ""}

    def _above_permuted(self, options: DirectionsOptions) -> dict[int, dict[str, Any]]:
        """By fit, the mean of permuted labels, and whether it is better, corrected over layers."""
        found = dict[int, dict[str, Any]]()
        how: dict[str, Any] = {"draws": options.resamples, "seed": options.seed, "level": options.level}
        for after in After:
            fits = [k for ks in self._numbered(after).values() for k in ks]
            if not fits:
                continue
            noise = above_noise(self.of, fits, self.metric, **how)
            for i, k in enumerate(fits):
                found[k] = {
                    "null_mean": noise.mean[i], "p": noise.above.p[i], "p_adjusted": noise.above.p_adjusted[i],
                    "null": "permuted labels",
                }  # fmt: skip
        return found

    def differences(self, options: DirectionsOptions) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows of differences, the first minus the second; both ways with a test, corrected over layers."""
        how = CompareOptions(tails=Tails.BETTER, resamples=options.resamples, level=options.level, seed=options.seed)
        for first, second in COMPARED if self.way is Way.BOTH else COMPARED[:3]:
            one, other = self._numbered(first), self._numbered(second)
            if not one or not other:
                continue
            found = paired(self.of, [(one[i][0], other[i]) for i in one], self.metric, options=how)
            for i in one:
                row = {"after": first, "against": second, "margin": options.margin}
                row |= difference_columns(found, i, self.metric, NULL, how)
                if self.way is not Way.BOTH:  # for these two probes, not for what moved
                    row |= dict.fromkeys(("p", "p_adjusted"), np.nan) | {"null": ""}
                yield i, row


def other_layers(
    sides: Sequence[tuple[Side, Side]], names: Sequence[str], data: Data, metric: str, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Rows of probes of each layer on every other layer of the other model, without intervals."""
    pairs = list(permutations(range(len(sides)), 2))
    for done, (i, j) in enumerate(pairs):
        progress("pairs of layers", done, len(pairs))
        (one, other), (their_one, their_other) = sides[i], sides[j]
        for way, probe, read in ((Way.FORWARD, one, their_other), (Way.BACK, other, their_one)):
            found = maps(read.x, probe.x, data.units).of
            predicted = np.stack([probe.predicts(of(read.x_dev), data.classes) for of in found.values()])
            value = bounds(data.y, predicted, metric, resamples=0, label_names=data.label_names).value
            for after, number in zip(found, value, strict=True):
                yield {
                    "layer_name": names[j], "fitted_layer": names[i], "way": str(way), "after": str(after),
                    "metric": metric, "value": number,
                }  # fmt: skip
    progress("pairs of layers", len(pairs), len(pairs))
