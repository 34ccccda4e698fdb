"""Probes from a state, on gold and on random labels, and what they say of each example of dev."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probekit.analyses.stream.options import Analysis, StreamOptions
from probekit.analyses.stream.state import State
from probekit.errors import UsageError
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Chosen, Problem, grid, probabilities, select
from probekit.probes.protocol.summed import Crossed, Sample, select_mass_mean, select_ridge
from probekit.probes.solvers.design import Moments
from probekit.runtime import cores, torch_threads
from probekit.statistics.controls import shuffled

if TYPE_CHECKING:
    from probekit.statistics.predictions import Predictions

log = logging.getLogger(__name__)
PROBES = (Analysis.RIDGE, Analysis.MASS_MEAN, Analysis.LOGISTIC)


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """The probes of all label sets on one layer."""

    layer: str
    estimator: str
    chosen: Chosen


def folds_of(state: State, layer: str) -> list[Moments]:
    """The moments of each fold of the labelled rows."""
    a = state.sums.arrays
    return [
        Moments(a[f"centre/{layer}"], float(a["weight"][f]), a[f"total/{layer}"][f], a[f"gram/{layer}"][f])
        for f in range(state.sums.layout.folds)
    ]


def bin_labels(state: State, draws: int) -> np.ndarray:
    """Random labels of the bins, (draws, bins): codes as frequent as the classes, or numbers spread as in the sample.

    The labels know nothing of the texts, because texts are in bins by a hash. The null hypothesis is the one of
    shuffled labels, but for two details: texts of one bin have the same label, and class frequencies are rounded to
    whole bins. Bins stand in a random order, and where the middle row of a bin stands among all rows tells its label;
    so classes are as frequent among the rows, of which bins have unequal numbers.
    """
    a, layout, seed = state.sums.arrays, state.sums.layout, state.spec["seed"]
    weight, out = a["bin_weight"].sum(0), np.empty((draws, layout.bins))
    share = np.cumsum(a["y"].sum(0)) / weight.sum()
    for i in range(draws):
        order = np.random.default_rng([seed, 5, i]).permutation(layout.bins)
        middle = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
        if layout.columns > 1:
            out[i, order] = np.minimum(np.searchsorted(share, middle), layout.columns - 1)
        else:
            out[i, order] = np.quantile(state.sample.columns["y"], middle)
    return out


def crossed(state: State, layer: str, of_bins: np.ndarray) -> Crossed:
    """The sums of gold labels and of the controls of one layer."""
    a, columns = state.sums.arrays, state.sums.layout.columns
    cross, total, square = (x[:, None] for x in (a[f"cross/{layer}"], a["y"], a["yy"]))
    if not len(of_bins):
        return Crossed(cross, total, square)
    y = (of_bins[:, None] == np.arange(columns)[:, None]).astype(np.float64) if columns > 1 else of_bins[:, None]
    random = np.einsum("kcb,fbd->fkcd", y, a[f"bins/{layer}"], optimize=True)
    weight = a["bin_weight"]
    sums = [np.einsum("kcb,fb->fkc", one, weight) for one in (y, y**2)]
    return Crossed(*(np.concatenate(both, 1) for both in ((cross, random), (total, sums[0]), (square, sums[1]))))


def fit_layers(state: State, estimators: Sequence[str], options: StreamOptions) -> list[Fit]:
    """The probes of each layer, the layers in parallel."""
    check(state, estimators, options.controls)
    of_bins = bin_labels(state, options.controls) if options.controls else np.empty((0, state.sums.layout.bins))
    work = [(name, layer) for name in estimators for layer in state.sums.layout.names]
    with threadpool_limits(1), torch_threads(1), ThreadPoolExecutor(options.threads or cores()) as pool:
        return [
            Fit(layer, name, chosen)
            for (name, layer), chosen in zip(
                work, pool.map(lambda one: _fit(state, one[0], one[1], of_bins, options), work), strict=True
            )
        ]


def check(state: State, estimators: Sequence[str], controls: int) -> None:
    """Raise UsageError if the labels do not allow these probes, or controls of them."""
    rows, classes = state.counts["rows"], state.sums.layout.columns > 1
    if estimators and rows < 2:
        raise UsageError(f"{rows} rows of the data are labelled; a probe needs labels.")
    if classes and estimators and np.count_nonzero(state.sums.arrays["y"].sum(0)) < 2:
        raise UsageError("all labels are the same; a probe needs at least two.")
    layout, kept = state.sums.layout, state.sample.columns
    if estimators and np.count_nonzero(state.sums.arrays["weight"][: layout.folds]) < 2:
        raise UsageError(
            f"all {rows:,} labelled rows are in one fold, since they are few, or of few groups; give more --folds or "
            "another --seed, or analyse a cache."
        )
    if controls and not classes and not len(state.sample):
        raise UsageError("random numbers of controls are spread as in the sample; give a --sample, or --controls 0.")
    for name in estimators:
        if name == Analysis.RIDGE:
            continue
        if len(state.sample) < 2 * layout.folds:
            raise UsageError(f"{name} needs a sample of rows, and has {len(state.sample)}; give a larger --sample.")
        for what, column in (("have one label", "y"), ("are in one fold", "fold")):
            if len(np.unique(kept[column])) < 2:
                raise UsageError(
                    f"all {len(state.sample):,} rows of the sample {what}; {name} needs a larger --sample."
                )


def _fit(state: State, name: str, layer: str, of_bins: np.ndarray, options: StreamOptions) -> Chosen:
    kept, seed, classes = state.sample.columns, state.spec["seed"], state.sums.layout.columns > 1
    sample = None
    if classes and len(state.sample):
        gold, x = kept["y"].astype(np.int64), kept[f"x/{layer}"]
        sample = Sample(x, np.concatenate([gold[None], of_bins[:, kept["bin"]].astype(np.int64)]), kept["fold"])
    if name == Analysis.RIDGE:
        alphas = grid(Estimator.RIDGE, options.alphas, 0)
        return select_ridge(folds_of(state, layer), crossed(state, layer, of_bins), alphas, sample)
    assert sample is not None
    if name == Analysis.MASS_MEAN:
        shrinkages = grid(Estimator.MASS_MEAN, options.shrinkages, 0)
        return select_mass_mean(folds_of(state, layer), crossed(state, layer, of_bins), sample, shrinkages)
    y = np.concatenate([gold[None], shuffled(gold, options.controls, (seed, 0), groups=kept["unit"])])
    fold = np.unique(kept["fold"], return_inverse=True)[1]
    is_random = np.arange(len(y)) > 0
    problem = Problem(
        x, np.arange(len(x)), y, state.sums.layout.columns, fold, Estimator.LOGISTIC,
        grid(Estimator.LOGISTIC, None, x.shape[1]), shuffled=is_random, groups=kept["unit"], seed=seed,
    )  # fmt: skip
    return select(problem, None)


@dataclass(frozen=True, eq=False, slots=True)
class Dev:
    """The labelled rows of dev, n of them.

    Attributes
    ----------
    y : np.ndarray
        (T, n), codes or numbers: gold, and shuffled as often as there are controls.
    ids : np.ndarray
        Str (n,).
    groups : np.ndarray, optional
        Int (n,).
    seen : np.ndarray
        Bool (n,), whether the data contain the text.
    left_out : int
        Unlabelled rows.
    """

    y: np.ndarray
    ids: np.ndarray
    groups: np.ndarray | None
    sentences: np.ndarray | None
    seen: np.ndarray
    left_out: int


class Table:
    """The predictions of some fits, filled chunk by chunk; the first fit is the majority class, or the mean."""

    def __init__(self, state: State, fits: Sequence[Fit], dev: Dev, draws: int) -> None:
        columns, n = state.sums.layout.columns, dev.y.shape[1]
        self.state, self.fits, self.dev, self.classes = state, list(fits), dev, columns if columns > 1 else 0
        self.sets = 1 + draws
        rows = 1 + self.sets * len(self.fits)
        self.lossy = bool(self.classes) and len(state.sample) > 0
        self.predicted = np.zeros((rows, n), dtype=np.int64 if self.classes else np.float64)
        self.loss = np.zeros((rows, n), dtype=np.float32) if self.lossy else None
        self.shares = np.zeros((1 + len(self.fits), n, columns), dtype=np.float32) if self.lossy else None
        a = state.sums.arrays
        if not self.classes:
            self.predicted[0] = a["y"].sum() / a["weight"][: state.sums.layout.folds].sum()
            return
        count = a["y"].sum(0)
        self.predicted[0] = count.argmax()
        if self.loss is not None and self.shares is not None:
            self.loss[0] = -np.log(np.maximum(count, 0.5) / count.sum())[dev.y[0]]
            self.shares[0] = count / count.sum()

    def add(self, vectors: Mapping[str, np.ndarray], at: slice) -> None:
        """The predictions for rows ``at`` of dev, with these vectors by layer."""
        rows = np.arange(at.stop - at.start)
        for i, fit in enumerate(self.fits):
            x, fitted = vectors[fit.layer], fit.chosen.fitted
            loss, predicted = fitted.outcome(x, rows, self.dev.y[:, at])
            into = slice(1 + i * self.sets, 1 + (i + 1) * self.sets)
            self.predicted[into, at] = predicted[:, 0]
            if self.loss is not None and self.shares is not None and loss is not None:
                self.loss[into, at] = loss[:, 0]
                self.shares[1 + i, at] = probabilities(fitted, x, rows)

    def predictions(self, about: Mapping[str, Any], metrics: tuple[str, ...], names: tuple[str, ...]) -> Predictions:
        """The table."""
        import pandas as pd

        from probekit.statistics.predictions import Predictions

        state, dev = self.state, self.dev
        common = {
            **about, "analysis": "probe", "seed": state.spec["seed"], "n": dev.y.shape[1],
            "n_train": state.counts["rows"],
            "left_out_train": state.counts["unlabelled"] + state.counts["left_out"],
            "left_out_dev": dev.left_out, "seen_in_train": int(dev.seen.sum()), "penalty": np.nan, "held_out": np.nan,
            "decrement": np.nan, "digest": "", "penalty_at_edge": False, "converged": True, "draw": None,
            "target": "gold",
        }  # fmt: skip
        baseline = {"layer": None, "representation": "none", "estimator": "majority" if self.classes else "mean"}
        records = [common | baseline]
        for fit in self.fits:
            for t in range(self.sets):
                chosen = fit.chosen
                records.append({
                    **common, "layer": fit.layer, "estimator": fit.estimator,
                    "target": "shuffled" if t else "gold", "draw": t - 1 if t else None,
                    "penalty": chosen.setting[t], "held_out": chosen.held_out[t],
                    "penalty_at_edge": bool(chosen.edge[t]), "converged": bool(chosen.converged[t]),
                    "decrement": chosen.decrement[t], "digest": chosen.digest[t],
                })  # fmt: skip
        which = [0, *list(range(self.sets)) * len(self.fits)]
        measured = ("log-loss",) if self.lossy and "log-loss" not in metrics else ()
        return Predictions(
            pd.DataFrame(records), dev.ids, dev.y[which], self.predicted, (*metrics, *measured), dev.groups, self.loss,
            names, self._prior()[which] if self.lossy else None, dev.sentences, self.shares,
        )  # fmt: skip

    def _prior(self) -> np.ndarray:
        """The log loss of the class frequencies, (T, n); those of the controls are gold's."""
        count = self.state.sums.arrays["y"].sum(0)
        return -np.log(np.maximum(count, 0.5) / count.sum()).astype(np.float32)[self.dev.y]
