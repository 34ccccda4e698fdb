"""What the sums of a state say of layers without a second split: CKA of all pairs, and erasers of the labels."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.similarity.measure import OTHER, pair_rows
from probekit.analyses.stream.options import StreamOptions
from probekit.analyses.stream.state import State
from probekit.erasure import Eraser, leace
from probekit.errors import UsageError
from probekit.files import FileKind, whole
from probekit.information.curves import layer_information
from probekit.information.options import InformationOptions
from probekit.probes.protocol.summed import rest
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress
from probekit.similarity.chance import Chance
from probekit.similarity.kernel_measures import cka_from_sums
from probekit.similarity.layer_pairs import PairValues, layer_pairs
from probekit.similarity.options import SimilarityOptions

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("cka", "cka-biased")
CHANCE = tuple(part.name for part in fields(Chance))
ENOUGH = 20  # rows of a sample for intervals


def cka_rows(
    state: State, about: Mapping[str, Any], options: StreamOptions, progress: Progress = no_progress
) -> pd.DataFrame:
    """Rows of CKA, debiased and biased, of all pairs of layers: of all rows, labelled or not.

    Intervals and p come from the sample. An interval is as wide as that of the sample, times the root of its share of
    the rows: the bootstrap's width follows from the influence of single examples. p is of the sample's permutations.
    """
    names, a = state.sums.layout.names, state.sums.arrays
    n = int(a["weight"].sum())
    means = {name: a[f"centre/{name}"] + a[f"total/{name}"].sum(0) / n for name in names}
    sums = state.sums.about(means)
    products = np.array([[float((sums.product(x, y) ** 2).sum()) for y in names] for x in names])
    powers = np.array([float(np.trace(sums.product(x, x))) for x in names])
    powers[powers <= 1e-12 * n * np.array([float(m @ m) for m in means.values()])] = 0
    sampled, values = _of_sample(state, options, progress), dict[str, PairValues]()
    for metric in MEASURES:
        value = cka_from_sums(n, products, sums.arrays["long"], powers, debiased=metric == "cka")
        values[metric] = _with_sample(value, n, sampled.get(metric))
    head = {**about, "analysis": "similarity", "estimator": "", "target": "gold", "seed": state.spec["seed"]}
    rows = pair_rows(values, names, names, head | {f"{key}_b": about.get(key) for key in OTHER})
    return make_rows(rows.drop(columns=[name for name in CHANCE if not name.startswith("p")]))


def _of_sample(state: State, options: StreamOptions, progress: Progress) -> dict[str, PairValues]:
    """The same measures of the sample; {} if there is no sample, or nothing is asked of it."""
    if not options.resamples or len(state.sample) < ENOUGH:
        return {}
    kept, unit = state.sample.columns, state.sample.columns["unit"]
    how = SimilarityOptions(
        measures=MEASURES, draws=options.resamples, resamples=options.resamples, level=options.level,
        seed=options.seed, threads=options.threads,
    )  # fmt: skip
    layers = [partial(np.asarray, kept[f"x/{name}"]) for name in state.sums.layout.names]
    groups = unit if len(np.unique(unit)) < len(unit) else None
    return layer_pairs(layers, options=how, groups=groups, progress=progress)


def _with_sample(value: np.ndarray, n: int, of: PairValues | None) -> PairValues:
    """The values of all n rows, with the intervals and p that the sample gives."""
    nothing = np.full(value.shape, np.nan)
    chance: dict[str, Any] = dict.fromkeys(CHANCE, nothing)
    if of is None:
        return PairValues(**chance, value=value, ci_low=nothing, ci_high=nothing, draws=0, n=n)
    narrower = np.sqrt(min(1, of.n / n))
    low, high = (value + (end - of.value) * narrower for end in (of.ci_low, of.ci_high))
    chance |= {"p": of.p, "p_adjusted": of.p_adjusted}
    ends = {"ci_low": np.minimum(value, low), "ci_high": np.clip(high, value, 1)}
    return PairValues(**chance, value=value, **ends, draws=of.draws, n=n)


def erasers_of(state: State) -> dict[str, Eraser]:
    """The LEACE eraser of the labels of each layer, from all labelled rows."""
    a, out = state.sums.arrays, {}
    if state.counts["rows"] < 2:
        raise UsageError(f"{state.counts['rows']} rows of the data are labelled; leace needs labels.")
    y = a["y"].sum(0)
    for name in state.sums.layout.names:
        total = rest(state.sums.folds(name), None)
        cross = a[f"cross/{name}"].sum(0) - np.outer(y, total.total) / total.weight
        free = total.weight - 1
        out[name] = leace(total.mean, total.scatter / free, cross.T / free)
    return out


def eraser_rows(state: State, erasers: Mapping[str, Eraser], about: Mapping[str, Any]) -> pd.DataFrame:
    """How many dimensions each eraser takes, and how much of the variance."""
    head = {
        **about, "analysis": "stream", "estimator": "leace", "target": "gold", "n": state.counts["rows"],
        "seed": state.spec["seed"],
    }  # fmt: skip
    return make_rows([
        {**head, "layer": name, "metric": metric, "value": value}
        for name, eraser in erasers.items()
        for metric, value in (("erased-dimensions", eraser.rank), ("erased-variance", eraser.variance))
    ])  # fmt: skip


def mi_rows(
    state: State, about: Mapping[str, Any], options: StreamOptions, progress: Progress = no_progress
) -> pd.DataFrame:
    """Rows of the mutual information of each layer with the labels, of the sample (EDGE, with its noise level)."""
    kept, classes = state.sample.columns, state.sums.layout.columns > 1
    if len(state.sample) < ENOUGH:
        raise UsageError(f"mi needs a sample of labelled rows, and has {len(state.sample)}; give a larger --sample.")
    unit, y = kept["unit"], kept["y"].astype(np.int64) if classes else kept["y"]
    return layer_information(
        {name: kept[f"x/{name}"] for name in state.sums.layout.names}, y, about={**about, "analysis": "mi"},
        groups=unit if len(np.unique(unit)) < len(unit) else None, discrete=classes,
        options=InformationOptions(seed=options.seed, threads=options.threads), progress=progress,
    )  # fmt: skip


def _is_erasers(path: Path) -> bool:
    try:
        with np.load(path) as file:
            return bytes(file["format"]) == FORMAT
    except (zipfile.BadZipFile, KeyError):
        return False


FORMAT = b"probekit-erasers/1"
ERASERS_FILE = FileKind("a file of erasers", _is_erasers, "give the erasers another name")


def write_erasers(erasers: Mapping[str, Eraser], path: Path) -> None:
    """Write ``LAYER/mean`` (d,) and ``LAYER/projection`` (d, d) of each layer as .npz: x → mean + P (x - mean)."""
    arrays = {f"{name}/mean": eraser.mean for name, eraser in erasers.items()}
    arrays |= {f"{name}/projection": eraser.projection for name, eraser in erasers.items()}
    with whole(path, ERASERS_FILE) as new, new.open("wb") as file:
        np.savez(file, format=np.frombuffer(FORMAT, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
