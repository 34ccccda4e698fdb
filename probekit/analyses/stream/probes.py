"""Probes from a state, on gold and on random labels, and what they say of each example of dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from probekit.analyses.stream.options import Analysis, StreamOptions
from probekit.analyses.stream.state import State
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.probes.protocol.baselines import constant_fit
from probekit.probes.protocol.diagnostic import gathered
from probekit.probes.protocol.experiment import Fits, columns_of
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Chosen, Fitted, Problem, grid, select
from probekit.probes.protocol.summed import Crossed, Sample, select_mass_mean, select_ridge
from probekit.probes.solvers.logistic import LogisticFit
from probekit.statistics.controls import shuffled
from probekit.threads import working_threads

if TYPE_CHECKING:
    from probekit.statistics.predictions import Predictions

log = logger(__name__)
PROBES = (Analysis.RIDGE, Analysis.MASS_MEAN, Analysis.LOGISTIC)


@dataclass(frozen=True, eq=False, slots=True)
class Fit:
    """The probes of all label sets on one layer."""

    layer: str
    estimator: str
    chosen: Chosen


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
    with working_threads(options.threads) as pool:
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
        return select_ridge(state.sums.folds(layer), crossed(state, layer, of_bins), alphas, sample)
    assert sample is not None
    if name == Analysis.MASS_MEAN:
        shrinkages = grid(Estimator.MASS_MEAN, options.shrinkages, 0)
        return select_mass_mean(state.sums.folds(layer), crossed(state, layer, of_bins), sample, shrinkages)
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
    labels : Labels
        With ids, groups and sentences.
    y : np.ndarray
        (T, n), codes or numbers: gold, and shuffled as often as there are controls.
    seen : np.ndarray
        Bool (n,), whether the data contain the text.
    left_out : int
        Unlabelled rows.
    """

    labels: Labels
    y: np.ndarray
    seen: np.ndarray
    left_out: int


def _shares(fitted: Fitted, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Class probabilities of gold, the first target, float32 (m, classes)."""
    if isinstance(fitted, LogisticFit):
        only = {name: getattr(fitted, name)[:1] for name in ("weights", "intercepts", "decrement", "iterations")}
        fitted = replace(fitted, **only)
    return np.exp(fitted.log_proba(x, rows)[0, 0]).astype(np.float32)


class Table:
    """The predictions of some fits, chunk by chunk."""

    def __init__(self, state: State, fits: Sequence[Fit], dev: Dev) -> None:
        self.state, self.fits, self.dev = state, list(fits), dev
        self.parts: list[list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]] = [[] for _ in fits]

    def add(self, vectors: Mapping[str, np.ndarray], at: slice) -> None:
        """The predictions for rows ``at`` of dev, the next ones, with these vectors by layer."""
        rows = np.arange(at.stop - at.start)
        for fit, parts in zip(self.fits, self.parts, strict=True):
            x, fitted = vectors[fit.layer], fit.chosen.fitted
            loss, predicted = fitted.outcome(x, rows, self.dev.y[:, at])
            shares = None if loss is None else _shares(fitted, x, rows)
            parts.append((predicted[:, 0], None if loss is None else loss[:, 0], shares))

    def predictions(self, question: Question) -> Predictions:
        """The table; the first fit is the majority class, or the mean."""
        state, dev, gold = self.state, self.dev, self.dev.labels
        layout, labels = state.sums.layout, state.sums.arrays["y"].sum(0)
        known = layout.columns > 1 and len(state.sample) > 0  # the probabilities of classes
        mean = float(labels.sum() / state.sums.arrays["weight"][: layout.folds].sum())
        constant = constant_fit(labels if layout.columns > 1 else mean, gold.y)
        found = [constant if known else replace(constant, loss=None, probabilities=None)]
        targets = [{"target": "shuffled" if t else "gold", "draw": t - 1 if t else None} for t in range(len(dev.y))]
        for fit, parts in zip(self.fits, self.parts, strict=True):
            about, (predicted, loss, shares) = (
                {"layer": fit.layer, "estimator": fit.estimator},
                zip(*parts, strict=True),
            )
            found.append(Fits(
                [about | target | columns_of(fit.chosen, t) for t, target in enumerate(targets)],
                np.concatenate(predicted, 1), np.concatenate(loss, 1) if known else None,
                np.concatenate(shares) if known else None,
            ))  # fmt: skip
        sizes = {
            "seed": state.spec["seed"], "n": len(gold.y), "n_train": state.counts["rows"],
            "left_out_train": state.counts["unlabelled"] + state.counts["left_out"], "left_out_dev": dev.left_out,
            "seen_in_train": int(dev.seen.sum()),
        }  # fmt: skip
        # the class frequencies of the controls are gold's
        prior = -np.log(np.maximum(labels, 0.5) / labels.sum()).astype(np.float32)[dev.y] if known else None
        return gathered(found, question, sizes, gold, dev.y, prior)
