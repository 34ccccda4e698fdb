"""Layer curves of mutual information with the labels, with noise levels and correction over layers.

Figure 2 of Peters, Ruder & Smith (2019), with the controls that show whether a curve is above noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.errors import NonFiniteError, UsageError
from probekit.information.estimate import Information, p_value
from probekit.information.estimators import mutual_information
from probekit.information.grouping import grouped
from probekit.information.options import InformationEstimator, InformationOptions
from probekit.information.response import response
from probekit.rows import make_rows
from probekit.runtime import Progress, no_progress
from probekit.statistics.controls import shuffled
from probekit.statistics.multiplicity import holm
from probekit.threads import working_threads

if TYPE_CHECKING:
    import pandas as pd

Vectors = Any | Callable[[], Any]
FOR_CLASSES = (InformationEstimator.LOGISTIC, InformationEstimator.MLP)
FOR_NUMBERS = (InformationEstimator.RIDGE,)
THREADED = "edge-"  # prefix of estimators that use several threads for one layer at a time
ENOUGH = 19  # shuffled label sets; with fewer, p cannot reach 0.05
CONTROLS = ENOUGH


def check_estimators(estimators: Sequence[str], labels: Any, *, discrete: bool | None = None) -> None:
    """Raise UsageError if an estimator cannot measure ``labels`` of layers; a cheap check before a long run.

    Parameters
    ----------
    estimators : sequence of str
        Values of :class:`InformationEstimator`.
    labels, discrete
        As for :func:`layer_information`.
    """
    classes = response(_labelled(labels, discrete)[0], discrete=discrete).codes is not None
    kinds = ("classes", FOR_CLASSES), ("numbers", FOR_NUMBERS)
    (these, suitable), (those, others) = kinds if classes else kinds[::-1]
    for name in map(InformationEstimator.named, estimators):
        if name in others:
            raise UsageError(
                f"{name} is for {those}, but the labels are {these}; leave it out, or use {' or '.join(suitable)}."
            )
        if name is InformationEstimator.PLUG_IN:
            raise UsageError(f"{name} is for single values, but layers hold vectors; leave it out.")


def layer_information(
    layers: Mapping[str, Vectors],
    labels: Any,
    *,
    about: Mapping[str, Any],
    groups: Any = None,
    discrete: bool | None = None,
    options: InformationOptions | None = None,
    progress: Progress = no_progress,
) -> pd.DataFrame:
    """A lower bound on the mutual information of each layer with the labels, in bits: one curve per estimator.

    Parameters
    ----------
    layers : mapping
        By layer, float (n, d) arrays or memory maps, or functions that return one.
    labels : array_like
        (n,), as for :func:`mutual_information`; NaN and, unless ``discrete`` is False, integers below 0 mark unlabelled
        rows, which are left out and counted.
    about : mapping
        The columns task, split, model, representation … of the rows.
    groups : array_like, optional
        (n,), the group of each example, such as its sentence or document. See :func:`mutual_information`.
    discrete : bool, optional
        Whether labels are classes, regardless of their type.
    options : InformationOptions, optional
        Estimators, draws, controls, seed, threads. For an estimator that does not shuffle labels itself, p comes
        from the controls if there are at least 19, and is then at best 1 / 20, before correction over layers. Published
        EDGE uses several threads per layer; other estimators measure layers in parallel.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    DataFrame
        Rows with the metric "mutual-information". Target "gold" holds the estimate; ``ci_low`` is a lower confidence
        bound on the information, and ``ci_high`` the entropy of the labels, because an estimator may miss information;
        ``shown_high`` is the upper end of a 95 % interval for the detected information. The value is NaN if the
        estimate is undetermined. Target "shuffled" gives the noise level: the mean of values under shuffled labels, and
        their 2.5 and 97.5 % quantiles; rows with a ``draw`` are single shuffled label sets, if these are full
        estimates. ``p`` is uncorrected. Additional columns: unit ("bits"), raw, null_mean, null_sd, p_adjusted (over
        the layers of the curve; Holm 1979), share (of the entropy of classes), entropy, buckets, bins, n_groups (for
        grouped examples), undetermined, warning, view, shuffles (behind noise and p) and left_out (unlabelled rows);
        see :class:`Information`.

    Raises
    ------
    NonFiniteError
        If a layer contains NaN or infinity; the message names the layer.
    UsageError
        For invalid names, shapes and labels.
    """
    options = options or InformationOptions()
    check_estimators(options.estimator, labels, discrete=discrete)
    if not layers:
        raise UsageError("layers is empty; give one or more.")
    y, known = _labelled(labels, discrete)
    job = _Job(y, known, None if groups is None else np.asarray(groups)[known], discrete, options)
    found = _each(job, layers, progress)
    common = {
        **{"checkpoint": "", **about, "metric": "mutual-information", "unit": "bits"},
        **{"seed": options.seed, "left_out": job.left_out},
    }
    records = []
    for estimator in options.estimator:
        curve = {layer: found[estimator, layer] for layer in layers}
        adjusted = dict(zip(layers, holm(np.array([one.p for one in curve.values()])), strict=True))
        for layer, one in curve.items():
            for record in one.records():
                gold = {"p": one.p, "p_adjusted": adjusted[layer]} if record["target"] == "gold" else {}
                records.append({**common, "warning": "", "layer": layer, "estimator": estimator, **record, **gold})
    return make_rows(records)


def _each(job: _Job, layers: Mapping[str, Vectors], progress: Progress) -> dict[tuple[str, str], _Found]:
    """The result of each estimator for each layer; layers run in parallel unless the estimator uses threads itself."""
    found: dict[tuple[str, str], _Found] = {}
    work = [(estimator, layer) for estimator in job.options.estimator for layer in layers]
    with working_threads(job.options.threads) as pool:
        for run, threaded in ((pool.map, False), (map, True)):
            keys = [key for key in work if key[0].startswith(THREADED) == threaded]
            for key, one in zip(keys, run(lambda key: job.measure(key[0], key[1], layers[key[1]]), keys), strict=True):
                found[key] = one
                progress("information", len(found), len(work))
    return found


def _labelled(labels: Any, discrete: bool | None) -> tuple[np.ndarray, np.ndarray]:
    """The known labels, and the rows that have one, bool (n,)."""
    y = np.asarray(labels)
    known: np.ndarray = np.ones(len(y), dtype=bool)
    if y.dtype.kind in "fi":
        unknown = np.isnan(y) if y.dtype.kind == "f" or discrete is False else y < 0
        known = ~np.any(unknown.reshape(len(y), -1), axis=1)
    return y[known], known


@dataclass(frozen=True, slots=True)
class _Found:
    """The estimate of a layer, those of shuffled label sets, and the noise level."""

    gold: Information
    draws: list[Information]

    @property
    def noise(self) -> np.ndarray:
        """Values under shuffled labels, (draws,); NaN if undetermined."""
        if self.draws:
            return np.array([draw.value for draw in self.draws])
        return np.maximum(self.gold.null, 0)

    @property
    def p(self) -> float:
        """The p of the estimator, or from the draws if there are enough."""
        drawn = self.noise[np.isfinite(self.noise)]
        if len(self.gold.null) or len(drawn) < ENOUGH or np.isnan(self.gold.value):
            return self.gold.p
        return p_value(self.gold.value, drawn)

    def records(self) -> Iterator[dict[str, Any]]:
        gold, noise = self.gold, self.noise
        drawn = {}
        if self.draws and not len(gold.null):
            raw = np.array([draw.raw for draw in self.draws])
            drawn = {"null_mean": raw.mean(), "null_sd": np.std(noise)}
        yield {"target": "gold", **_columns(gold), **drawn, "shuffles": len(gold.null) or len(noise)}
        for i, draw in enumerate(self.draws):
            yield {"target": "shuffled", "draw": i, **_columns(draw), "shuffles": len(draw.null)}
        if len(noise):
            fine = noise[np.isfinite(noise)]
            low, high = np.quantile(fine, (0.025, 0.975)) if len(fine) else (np.nan, np.nan)
            yield {
                "target": "shuffled",
                **{"value": fine.mean() if len(fine) else np.nan, "ci_low": low, "ci_high": high},
                **{"n": gold.n, "entropy": gold.entropy, "bins": gold.bins, "shuffles": len(noise)},
                **{"undetermined": "", "view": ""},
            }


def _columns(one: Information) -> dict[str, Any]:
    same = ("value", "ci_low", "ci_high", "n", "raw", "null_mean", "null_sd", "share", "entropy", "buckets", "bins")
    columns = {name: getattr(one, name) for name in (*same, "shown_high", "undetermined", "warning", "view")}
    if one.groups:
        columns["n_groups"] = one.groups
    if one.bins or np.isinf(one.entropy):  # for numbers, the maximum depends on n
        columns["share"] = np.nan
    if one.undetermined and np.isnan(one.ci_low):
        top = min(one.entropy, np.log2(one.n))
        columns |= {"ci_low": 0.0, "ci_high": top, "shown_high": top}
    return columns


@dataclass(frozen=True, slots=True)
class _Job:
    """The labelled rows and the options for each layer."""

    labels: np.ndarray
    known: np.ndarray
    groups: np.ndarray | None
    discrete: bool | None
    options: InformationOptions

    @property
    def left_out(self) -> int:
        return int((~self.known).sum())

    def measure(self, estimator: str, layer: str, vectors: Vectors) -> _Found:
        x = vectors() if callable(vectors) else vectors
        x = x if isinstance(x, np.ndarray) else np.asarray(x)
        if x.ndim != 2 or len(x) != len(self.known):
            raise UsageError(
                f"layer {layer}: vectors must have the shape (n, d) with n = {len(self.known)} labels, not {x.shape}."
            )
        x = x[self.known] if self.left_out else x
        options = self.options
        how: dict[str, Any] = {"estimator": estimator, "discrete": self.discrete, "seed": options.seed}
        how["groups"] = self.groups
        if estimator.startswith(THREADED):
            how["threads"] = options.threads
        times: dict[str, Any] = {} if options.draws is None else {"draws": options.draws}
        try:
            gold = mutual_information(x, self.labels, **how, **times)
            k = options.controls
            if k is None:
                k = 0 if len(gold.null) or options.draws == 0 else CONTROLS
            whole = grouped(self.groups, x, len(x)) if k else None
            rows = np.arange(len(x))
            orders = shuffled(rows, k, (options.seed, 1)) if whole is None else whole.orders(k, options.seed + 1)
            return _Found(gold, [mutual_information(x, self.labels[order], **how, draws=0) for order in orders])
        except NonFiniteError as error:
            raise NonFiniteError(f"layer {layer}: {error}") from None
