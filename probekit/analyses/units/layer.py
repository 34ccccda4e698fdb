"""One layer: its units by each ranking, what the first, random and last ones hold, and how halves of train agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import UsageError
from probekit.information.by_unit import unit_information
from probekit.monitors.probe import Probe
from probekit.probes.kept import Weights
from probekit.probes.protocol.label_sets import LabelSets
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, grid, select
from probekit.probes.protocol.sizes import check_memory
from probekit.probes.units.rankings import CELLS, Ranked, Ranking, Units, chosen_c, weight_times_spread
from probekit.probes.units.stability import Half, halves
from probekit.probes.units.subsets import Subsets, curves, sizes
from probekit.statistics.bootstrap import bounds, estimates, intervals, replicates
from probekit.statistics.controls import shuffled
from probekit.statistics.overlap import mean_of_pairs, rank_biased_overlap
from probekit.statistics.predictions import Predictions
from probekit.statistics.relabelling import relabelled

if TYPE_CHECKING:
    from probekit.analyses.units import UnitsOptions


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The labelled vectors of train (n, d) and of dev (m, d), float32, and their labels."""

    x: np.ndarray
    x_dev: np.ndarray
    sets: LabelSets


@dataclass(frozen=True, slots=True, eq=False)
class Crossed:
    """First units beside random ones, ranked on one half of train and fitted on the other: both ways, averaged.

    On the same rows those units rank first whose part these rows happen to show best, and a probe that is fitted on
    these rows does better on them, even where all units hold the same.

    Attributes
    ----------
    first : np.ndarray
        (ks - 1,), the metric of a probe on the first units; all are left out.
    random : np.ndarray
        (ks - 1, draws), that of probes on random units.
    again, null : np.ndarray
        (ks - 1, resamples), the difference of the first and the mean of random units in resamples of dev, and with
        permuted labels of dev.
    """

    first: np.ndarray
    random: np.ndarray
    again: np.ndarray
    null: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """The difference between first and random units, (ks - 1,)."""
        return np.asarray(self.first - self.random.mean(1))

    def ends(self, level: float) -> np.ndarray:
        """The intervals of the difference, (ks - 1, 2), and of its mean over all numbers of units, below them."""
        if not self.again.shape[1]:
            return np.full((len(self.first) + 1, 2), np.nan)
        return np.asarray(intervals(np.concatenate([self.again, self.again.mean(0)[None]]), level=level))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One ranking of the units of a layer.

    Attributes
    ----------
    ranked : Ranked
        The units, by their place among those that vary.
    ks : list of int
        Numbers of units.
    first, last : np.ndarray
        (ks,), the metric of a probe on so many first, and last, units.
    first_ends, last_ends : np.ndarray
        (ks, 2), their intervals.
    crossed : Crossed or None
        What first units hold beyond random ones; None without random orders, and if train cannot be halved.
    halves : np.ndarray
        Int (2 · splits, d), the orders of the halves of train.
    overlap, shuffled : tuple of float
        Mean rank-biased overlap of two halves with its interval, with gold and with shuffled labels.
    """

    ranked: Ranked
    ks: list[int]
    first: np.ndarray
    last: np.ndarray
    first_ends: np.ndarray
    last_ends: np.ndarray
    crossed: Crossed | None
    halves: np.ndarray
    overlap: tuple[float, float, float]
    shuffled: tuple[float, float, float]

    def shares(self, k: int) -> np.ndarray:
        """The share of halves that have each unit among their first k, float64 (d,)."""
        count = np.bincount(self.halves[:, :k].ravel(), minlength=len(self.ranked.order))
        return count / max(1, len(self.halves))


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """What was measured of a layer.

    Attributes
    ----------
    units : np.ndarray
        Int (d,), the numbers of the units that vary in train.
    held : dict of str to Held
        By ranking.
    random : np.ndarray
        (ks, draws), the metric of probes on random units.
    """

    name: str
    units: np.ndarray
    held: dict[str, Held]
    random: np.ndarray


def of_layer(
    name: str, data: Data, probe: Probe | None, metric: str, names: Sequence[str], options: UnitsOptions
) -> Layer:
    """Rank the units of a layer, and measure the rankings."""
    sets = data.sets
    check_memory(data.x, len(data.x), Estimator.MASS_MEAN, options.folds)
    every = Subsets.of(data.x, sets.y[0], sets.classes)
    varies = np.flatnonzero(every.scale)
    if len(varies) < 2:
        raise UsageError(f"layer {name} has {len(varies)} units that vary in train; a ranking needs two.")
    x = np.ascontiguousarray(data.x[:, varies])
    rankings = [Ranking(one) for one in options.rankings]
    of_units, ranked = _ranked(name, x, sets, probe, varies, rankings, options)
    subsets = every if len(varies) == data.x.shape[1] else Subsets.of(x, sets.y[0], sets.classes)
    z, ks = subsets.standardised(data.x_dev[:, varies]), sizes(len(varies))
    sample: dict[str, Any] = {"metric": metric, "groups": sets.dev.groups, "label_names": names}
    sample |= {"sentences": sets.dev.sentences} if sets.dev.sentences is not None else {}
    random, curve = _curves(subsets, z, ks, [one.order for one in ranked.values()], sets.y_dev[0], sample, options)
    pairs = _pairs(sets, options)
    orders = {by: [of_units.ranked(by, half).order for pair in pairs for half in pair] for by in rankings}
    crossed = dict[Ranking, Crossed]()
    if pairs and options.draws:
        crossed = _crossed(x, data.x_dev[:, varies], sets, pairs[0], orders, ks[:-1], sample, options)
    held = {}
    for i, (by, one) in enumerate(ranked.items()):
        overlaps = _overlaps(of_units, by, pairs[: options.splits], orders[by], sets, options)
        own = np.array(orders[by][: 2 * options.splits], dtype=np.int64).reshape(-1, len(varies))
        measured: dict[str, Any] = {part: values[:, i] for part, values in curve.items()}
        measured |= {"crossed": crossed.get(by), "overlap": overlaps[0], "shuffled": overlaps[1]}
        held[str(by)] = Held(one, ks, **measured, halves=own)
    return Layer(name, varies, held, random)


def _ranked(
    name: str, x: np.ndarray, sets: LabelSets, probe: Probe | None, varies: np.ndarray, rankings: Sequence[Ranking],
    options: UnitsOptions,
) -> tuple[Units, dict[Ranking, Ranked]]:  # fmt: skip
    """The units, and each ranking on all of train."""
    plain = Estimator.LOGISTIC if sets.classes else Estimator.RIDGE
    estimator = plain if probe is None else Estimator(str(probe.card["estimator"]))
    if Ranking.ELASTIC_NET in rankings and not sets.classes:
        raise UsageError("elastic-net ranks units by classes, but these labels are numbers; leave it out.")
    problem = Problem(
        x, np.arange(len(x)), sets.y[:1], sets.classes, sets.fold, estimator, grid(estimator, None, x.shape[1]),
        groups=sets.train.groups, seed=options.seed,
    )  # fmt: skip
    setting, c = np.full(1, np.nan), 0.0
    if probe is not None:
        setting = np.array([float(probe.card["penalty"])])
    elif Ranking.WEIGHT in rankings:
        setting = select(problem, None).setting[:1]
    if Ranking.ELASTIC_NET in rankings:
        c = chosen_c(x, sets.y[0], sets.fold == 0, seed=options.seed)
    of_units = Units(problem, setting, c, partial(unit_information, bins=CELLS))
    found = dict[Ranking, Ranked]()
    for by in rankings:
        if by is Ranking.WEIGHT and probe is not None:
            arrays = {**probe.weights.arrays, "weight": probe.weights.arrays["weight"][:, varies]}
            found[by] = weight_times_spread(Weights("linear", arrays), x.std(0, dtype=np.float64))
        else:
            found[by] = of_units.ranked(by)
    return of_units, found


def _curves(
    subsets: Subsets, z: np.ndarray, ks: list[int], orders: Sequence[np.ndarray], gold: np.ndarray,
    sample: dict[str, Any], options: UnitsOptions,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """The metric of random units (ks, draws), and for each ranking, (ks, rankings …), what :class:`Held` holds."""
    count = len(orders)
    drawn = _drawn(z.shape[1], options, 3)
    ends = np.concatenate([np.stack(orders), np.stack(orders)[:, ::-1]])
    random = np.full((len(ks), options.draws), np.nan)
    curve = {part: np.full((len(ks), count), np.nan) for part in ("first", "last")}
    curve |= {f"{part}_ends": np.full((len(ks), count, 2), np.nan) for part in ("first", "last")}
    how: dict[str, Any] = {"resamples": options.resamples, "seed": options.seed}
    for i, predicted in enumerate(curves(subsets, z, ends, ks)):
        found = bounds(gold, predicted, level=options.level, **how, **sample)
        curve["first"][i], curve["last"][i] = found.value[:count], found.value[count:]
        curve["first_ends"][i], curve["last_ends"][i] = found.ci[:count], found.ci[count:]
    for i, predicted in enumerate(curves(subsets, z, drawn, ks[:-1]) if options.draws else ()):
        random[i] = estimates(gold, predicted, **sample)
    return random, curve


def _drawn(d: int, options: UnitsOptions, *stream: int) -> np.ndarray:
    """Random orders of the units, int (draws, d)."""
    rng = np.random.default_rng([options.seed, *stream])
    return rng.permuted(np.tile(np.arange(d), (options.draws, 1)), axis=1)


def _pairs(sets: LabelSets, options: UnitsOptions) -> list[tuple[Half, Half]]:
    """Splits of train in two halves: for stability, or a single one, in which units are ranked and probes fitted."""
    how: dict[str, Any] = {"groups": sets.train.groups, "seed": options.seed, "stratify": bool(sets.classes)}
    return [*halves(sets.y[0], splits=max(min(1, options.draws), options.splits), **how)]


def _crossed(
    x: np.ndarray, x_dev: np.ndarray, sets: LabelSets, pair: tuple[Half, Half],
    orders: Mapping[Ranking, Sequence[np.ndarray]], ks: list[int], sample: dict[str, Any], options: UnitsOptions,
) -> dict[Ranking, Crossed]:  # fmt: skip
    """Of units that are ranked on one half of a pair, and probes that are fitted on the other, what they hold.

    orders : of each ranking, its order on the first half of the pair, and on the second …
    """
    draws, gold, ways = options.draws, sets.y_dev[0], []
    for i, other in enumerate(reversed(pair)):
        fitted = Subsets.of(x[other], sets.y[0][other], sets.classes)
        own = np.concatenate([_drawn(x.shape[1], options, 4, i), np.stack([order[i] for order in orders.values()])])
        ways.append(curves(fitted, fitted.standardised(x_dev), own, ks))

    def both(values: np.ndarray) -> np.ndarray:
        return np.asarray(values.reshape(2, draws + len(orders), *values.shape[1:]).mean(0))

    value, again, null = [], [], []
    for parts in zip(*ways, strict=True):
        predicted = np.concatenate(parts)
        value.append(both(estimates(gold, predicted, **sample)))
        if options.resamples:
            again.append(both(replicates(gold, predicted, resamples=options.resamples, seed=options.seed, **sample)))
            null.append(both(_relabelled(gold, predicted, sample, options)))
    of = np.stack(value)
    gaps = [
        np.stack(one)[:, draws:] - np.nanmean(np.stack(one)[:, :draws], axis=1, keepdims=True)
        if one else np.empty((len(ks), len(orders), 0))
        for one in (again, null)
    ]  # fmt: skip
    return {by: Crossed(of[:, draws + i], of[:, :draws], *(gap[:, i] for gap in gaps)) for i, by in enumerate(orders)}


def _relabelled(gold: np.ndarray, predicted: np.ndarray, sample: dict[str, Any], options: UnitsOptions) -> np.ndarray:
    """The metric of predictions (F, n) with permuted labels of dev, (F, resamples)."""
    import pandas as pd

    more = {name: value for name, value in sample.items() if name != "metric"}
    fits, ids = pd.DataFrame({"target": ["random"] * len(predicted)}), np.arange(len(gold)).astype(str)
    evaluated = Predictions(fits, ids, gold, predicted, (sample["metric"],), **more)
    of_fits = range(len(predicted))
    return relabelled(evaluated, of_fits, sample["metric"], draws=options.resamples, seed=options.seed)[1]


def _overlaps(
    of_units: Units, by: Ranking, pairs: Sequence[tuple[Half, Half]], orders: Sequence[np.ndarray], sets: LabelSets,
    options: UnitsOptions,
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:  # fmt: skip
    """The mean overlap of the orders of two halves of train, with gold and with shuffled labels."""
    noise = shuffled(
        sets.y[0], len(pairs), options.seed, groups=sets.train.groups, ordered=sets.train.types is not None
    )
    gold = [rank_biased_overlap(*orders[2 * i : 2 * i + 2], p=options.persistence) for i in range(len(pairs))]
    chance = list[float]()
    for pair, labels in zip(pairs, noise, strict=True):
        if all(len(np.unique(labels[half])) > 1 for half in pair):
            other = [of_units.ranked(by, half, labels).order for half in pair]
            chance.append(rank_biased_overlap(*other, p=options.persistence))
    return mean_of_pairs(gold, level=options.level), mean_of_pairs(chance, level=options.level)
