"""Latitude and longitude from the vectors of place names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.description import check_same
from probekit.analyses.features import without_dictionary
from probekit.analyses.options import VectorOptions
from probekit.analyses.train_dev import Pairs
from probekit.analyses.vectors import columns_of, layer_vectors
from probekit.metrics import derive
from probekit.probes.protocol.options import Estimator
from probekit.probes.protocol.selection import Problem, grid, select
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, part_of
from probekit.statistics.clusters import FEWEST_PAIRED, mean_of_differences
from probekit.statistics.controls import shuffled
from probekit.statistics.distances import centroid, great_circle, mean_interval, median_interval, on_sphere, r2_interval
from probekit.statistics.folds import folds
from probekit.statistics.multiplicity import holm
from probekit.tasks.load import load_task

if TYPE_CHECKING:
    from probekit.analyses.places import PlaceOptions

SAME = ("task", "random_weights", "weights_digest", "tokenizer_digest", "cut_at", "dtype", "store")
PARTS = ("latitude", "longitude")
NULL = "the two are equally far from the truth on average, for these regressions"


def measure(
    caches: Pairs,
    task: str,
    data_dir: str | Path | None,
    vectors: VectorOptions,
    options: PlaceOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.places`."""
    without_dictionary(vectors, "places")
    of_part = [load_task(f"{task}:{part}", data_dir) for part in PARTS]
    records: list[dict[str, Any]] = []
    with caches:
        first: Errors | None = None
        for i, pair in enumerate(list(caches.opened())):
            check_same(*pair, SAME)
            sides = [[cache.for_task(part, cache.spec["split"]) for part in of_part] for cache in pair]
            rows, errors = _of_pair(task, sides[0], sides[1], vectors, options, part_of(progress, i, caches.count))
            records += [*rows, *difference_rows(errors, first, options)]
            first = first or errors
        return Result(make_rows(records), reads=tuple(caches.reads))


@dataclass(frozen=True, slots=True)
class Errors:
    """The distances (n,), km, of evaluated places: of each layer, and of the middle of train (None), with columns."""

    of: dict[str | None, tuple[dict[str, Any], np.ndarray]]
    ids: np.ndarray
    groups: np.ndarray | None


def _of_pair(
    task: str, train: list[ActivationCache], test: list[ActivationCache], vectors: VectorOptions,
    options: PlaceOptions, progress: Progress,
) -> tuple[list[dict[str, Any]], Errors]:  # fmt: skip
    """The rows of one pair of caches, each seen as latitudes and as longitudes, and the errors of its layers."""
    of_train, of_test = (layer_vectors(views[0], vectors) for views in (train, test))
    y, gold = (np.stack([view.labels for view in views]) for views in (train, test))
    groups, held = of_train.labels.groups, of_test.labels.groups
    order = [np.arange(y.shape[1]), *_exchanged(y.shape[1], groups, options)]
    sets = np.concatenate([y[:, at] for at in order])
    fold = folds(y[0], options.folds, groups=groups, seed=options.seed, stratify=False)
    about = {
        "analysis": "places", **columns_of(test[0], of_test.representation), **of_test.group_columns, "task": task,
        "n": gold.shape[1], "n_train": y.shape[1], "seed": options.seed, "draw": None,
    }  # fmt: skip
    middle = np.broadcast_to(np.array(centroid(*y))[:, None], gold.shape)
    none = {"estimator": "centroid", "target": "gold", "layer": None}
    found = [about | none | row for row in _rows(gold, middle, held, options)]
    errors = Errors({None: (about | none, distance(gold, middle))}, test[0].ids, held)
    for done, (name, read) in enumerate(of_train.layers.items()):
        progress("layers", done, len(of_train.layers))
        x, x_test = np.asarray(read()), np.asarray(of_test.layers[name]())
        predicted = regressed(x, sets, fold, x_test, np.repeat(gold, len(order), 0), options)
        for draw in range(len(order)):
            said = predicted[2 * draw : 2 * draw + 2]
            fit: dict[str, Any] = {"estimator": "ridge", "layer": name, "target": "shuffled" if draw else "gold"}
            fit |= {"draw": draw - 1 if draw else None}
            if not draw:
                errors.of[name] = about | fit, distance(gold, said)
            found += [about | fit | row for row in _rows(gold, said, held, options, interval=not draw)]
    return found, errors


def regressed(
    x: np.ndarray, sets: np.ndarray, fold: np.ndarray, x_test: np.ndarray, gold: np.ndarray, options: PlaceOptions
) -> np.ndarray:
    """What ridge regressions of sets of numbers (s, n) on vectors (n, d) predict for other vectors (m, d), (s, m)."""
    settings = grid(Estimator.RIDGE, options.penalties, x.shape[1])
    chosen = select(Problem(x, np.arange(len(x)), sets, 0, fold, Estimator.RIDGE, settings), None)
    predicted = chosen.fitted.outcome(x_test, np.arange(len(x_test)), gold)[1]
    return predicted[:, 0].astype(np.float64)


def difference_rows(errors: Errors, first: Errors | None, options: PlaceOptions) -> list[dict[str, Any]]:
    """Each layer minus the middle of train, the first layer, and the same layer of the first pair of caches."""
    start = next(name for name in errors.of if name is not None)
    units = len(errors.ids) if errors.groups is None else len(np.unique(errors.groups))
    few = f"{units} examples or groups; intervals need at least {FEWEST_PAIRED}" if units < FEWEST_PAIRED else ""
    rows = []
    for name, (about, error) in errors.of.items():
        if name is None:
            continue
        others = {"centroid": errors.of[None][1]} | ({} if name == start else {f"layer {start}": errors.of[start][1]})
        if first is not None and name in first.of and first.ids.tolist() == errors.ids.tolist():
            others[str(first.of[name][0]["model"])] = first.of[name][1]
        for against, other in others.items():
            value, low, high, p = mean_of_differences(error - other, errors.groups, options.level)
            rows.append(about | {"metric": derive("difference", "great-circle-error"), "against": against, "p": p})
            rows[-1] |= {"value": value, "ci_low": low, "ci_high": high, "null": NULL, "why": few}
    adjusted = holm(np.array([row["p"] for row in rows], dtype=np.float64))
    tests = int(np.isfinite(adjusted).sum())
    of_holm = {"correction": "holm", "tests": tests}
    return [row | of_holm | {"p_adjusted": float(p)} for row, p in zip(rows, adjusted, strict=True)]


def _exchanged(n: int, groups: np.ndarray | None, options: PlaceOptions) -> np.ndarray:
    """Rows of train in other orders: whole places are exchanged, (controls, n)."""
    return shuffled(np.arange(n), options.controls, options.seed, groups=groups)


def distance(gold: np.ndarray, said: np.ndarray) -> np.ndarray:
    """How far predicted coordinates (2, n) are from the true ones, km."""
    return great_circle(gold[0], gold[1], *on_sphere(said[0], said[1]))


def _rows(
    gold: np.ndarray, said: np.ndarray, groups: np.ndarray | None, options: PlaceOptions, *, interval: bool = True
) -> Iterator[dict[str, Any]]:
    """The errors of predicted coordinates (2, n)."""
    error = distance(gold, said)
    how: dict[str, Any] = {
        "resamples": options.resamples if interval else 0,
        "level": options.level,
        "seed": options.seed,
    }
    for name, measure in (("great-circle-error", mean_interval), ("great-circle-error-median", median_interval)):
        value, low, high = measure(error, groups, **how)
        yield {"metric": name, "value": value, "ci_low": low, "ci_high": high}
    for name, true, guess in zip(PARTS, gold, said, strict=True):
        value, low, high = r2_interval(true, guess, groups, **how)
        yield {"metric": "r2", "coordinate": name, "value": value, "ci_low": low, "ci_high": high}
