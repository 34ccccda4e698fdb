"""One layer: its units by each ranking, what the first, random and last ones hold, and how halves of train agree."""

from __future__ import annotations

from collections.abc import Sequence
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
from probekit.probes.units.stability import halves
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
    first_ends, last_ends, gap_ends : np.ndarray
        (ks, 2), their intervals, and that of the difference between the first and random units.
    again : np.ndarray
        (ks, resamples), that difference in resamples of dev; NaN for all units.
    null : np.ndarray
        (ks, resamples), that difference with permuted labels of dev; NaN for all units.
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
    gap_ends: np.ndarray
    again: np.ndarray
    null: np.ndarray
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
    held = {}
    for i, (by, one) in enumerate(ranked.items()):
        orders, overlaps = _halves(of_units, by, sets, options)
        measured: dict[str, Any] = {part: curve[part][:, i] for part in PARTS}
        held[str(by)] = Held(one, ks, **measured, halves=orders, overlap=overlaps[0], shuffled=overlaps[1])
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


PARTS = {"first": 0, "last": 0, "first_ends": 2, "last_ends": 2, "gap_ends": 2, "again": None, "null": None}
"""The attributes of :class:`Held` that are measured for all rankings at once, and how many numbers each has for a k."""


def _curves(
    subsets: Subsets, z: np.ndarray, ks: list[int], orders: Sequence[np.ndarray], gold: np.ndarray,
    sample: dict[str, Any], options: UnitsOptions,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """The metric of random units (ks, draws), and for each ranking, (ks, rankings …), what :class:`Held` holds."""
    d, count, draws = z.shape[1], len(orders), options.draws
    rng = np.random.default_rng([options.seed, 3])
    drawn = rng.permuted(np.tile(np.arange(d), (draws, 1)), axis=1)
    ends = np.concatenate([np.stack(orders), np.stack(orders)[:, ::-1]])
    random = np.full((len(ks), draws), np.nan)
    widths = {part: options.resamples if width is None else width for part, width in PARTS.items()}
    curve = {part: np.full((len(ks), count, width)[: 3 if width else 2], np.nan) for part, width in widths.items()}
    how: dict[str, Any] = {"resamples": options.resamples, "seed": options.seed}
    for i, predicted in enumerate(curves(subsets, z, ends, ks)):
        found = bounds(gold, predicted, level=options.level, **how, **sample)
        curve["first"][i], curve["last"][i] = found.value[:count], found.value[count:]
        curve["first_ends"][i], curve["last_ends"][i] = found.ci[:count], found.ci[count:]
    for i, predicted in enumerate(curves(subsets, z, drawn, ks[:-1]) if draws else ()):
        random[i] = estimates(gold, predicted, **sample)
        if options.resamples:
            firsts = np.stack([subsets.predictions(z, order[: ks[i]]) for order in orders])
            every = np.concatenate([predicted, firsts])
            again, null = replicates(gold, every, **how, **sample), _relabelled(gold, every, sample, options)
            for part, values in (("again", again), ("null", null)):
                curve[part][i] = values[draws:] - np.nanmean(values[:draws], axis=0)
            curve["gap_ends"][i] = intervals(curve["again"][i], level=options.level)
    return random, curve


def _relabelled(gold: np.ndarray, predicted: np.ndarray, sample: dict[str, Any], options: UnitsOptions) -> np.ndarray:
    """The metric of predictions (F, n) with permuted labels of dev, (F, resamples)."""
    import pandas as pd

    more = {name: value for name, value in sample.items() if name != "metric"}
    fits, ids = pd.DataFrame({"target": ["random"] * len(predicted)}), np.arange(len(gold)).astype(str)
    evaluated = Predictions(fits, ids, gold, predicted, (sample["metric"],), **more)
    of_fits = range(len(predicted))
    return relabelled(evaluated, of_fits, sample["metric"], draws=options.resamples, seed=options.seed)[1]


def _halves(
    of_units: Units, by: Ranking, sets: LabelSets, options: UnitsOptions
) -> tuple[np.ndarray, tuple[tuple[float, float, float], tuple[float, float, float]]]:
    """The orders of halves of train, and their mean overlap with gold and with shuffled labels."""
    y, groups = sets.y[0], sets.train.groups
    classify = bool(sets.classes)
    pairs = [*halves(y, groups=groups, splits=options.splits, seed=options.seed, stratify=classify)]
    noise = shuffled(y, len(pairs), options.seed, groups=groups, ordered=sets.train.types is not None)
    orders, gold, chance = [], list[float](), list[float]()
    for pair, labels in zip(pairs, noise, strict=True):
        own = [of_units.ranked(by, half).order for half in pair]
        orders += own
        gold.append(rank_biased_overlap(*own, p=options.persistence))
        if all(len(np.unique(labels[half])) > 1 for half in pair):
            other = [of_units.ranked(by, half, labels).order for half in pair]
            chance.append(rank_biased_overlap(*other, p=options.persistence))
    found = np.stack(orders) if orders else np.empty((0, of_units.problem.x.shape[1]), dtype=np.int64)
    return found, (mean_of_pairs(gold, level=options.level), mean_of_pairs(chance, level=options.level))
