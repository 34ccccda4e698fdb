"""Diagnostic classifiers on each layer of caches: the analysis behind ``probekit probe``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pandas as pd

from probekit.activations import ActivationCache
from probekit.analyses.options import VectorOptions
from probekit.analyses.pairs import probe as probe_pair
from probekit.analyses.vectors import read_of
from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.probes.protocol.options import ProbeOptions
from probekit.recipe import public
from probekit.rows import Result
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Predictions, join

__all__ = ["probe"]


@public(vectors=VectorOptions, options=ProbeOptions)
def probe(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    /,
    *more: str | Path | ActivationCache,
    metrics: tuple[str, ...] | str | None = None,
    vectors: VectorOptions,
    options: ProbeOptions,
    progress: Progress = no_progress,
) -> Result:
    """Fit a diagnostic classifier on each layer of one cache and evaluate it on another.

    Features are standardised on train, the L2 penalty is chosen by cross-validation in train, the probe is fitted
    again on all of train (logistic regression, or ridge for numbers), and dev is looked at once, with a bootstrap
    interval. Shuffled labels, and control tasks where words are labelled, go the same way; so do a bag of pieces and
    the length of the texts.

    Parameters
    ----------
    train, dev : path or ActivationCache
        Files or open caches of the same task, model and layers.
    *more : path or ActivationCache
        Further pairs, train and dev in turn, whose rows follow.
    metrics : tuple of str, optional
        Names in :data:`probekit.metrics.METRICS`, the main one first; the task's own for None.
    vectors : VectorOptions
        ``pooling`` and ``layers``; they may be given one by one.
    options : ProbeOptions
        ``estimator``, ``penalties``, ``controls``, ``folds``, ``seed`` …; they may be given one by one.
    progress : callable
        Told how far the work is.

    Returns
    -------
    Result
        A row for each layer and metric, and for each control; what each probe said of each example.

    Raises
    ------
    CacheMismatch
        Where two caches do not belong together.
    NonFiniteError
        Naming a layer with NaN.
    UsageError
        For an odd number of caches, an unknown layer, pooling or metric.

    Examples
    --------
    >>> result = probekit.probe("cola.train.h5", "cola.dev.h5")  # doctest: +SKIP
    >>> probekit.plots.layer_curve(result)  # doctest: +SKIP
    """
    caches = (train, dev, *more)
    if len(caches) % 2:
        raise UsageError(f"caches come in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    names = [metrics] if isinstance(metrics, str) else metrics
    rows, said, reads = [], [], []
    with ExitStack() as stack:
        for pair in zip(caches[::2], caches[1::2], strict=True):
            a, b = (c if isinstance(c, ActivationCache) else stack.enter_context(ActivationCache(c)) for c in pair)
            own, found = probe_pair(
                a,
                b,
                metrics={name: metric(name) for name in names or a.spec["metrics"]},
                pooling=vectors.pooling,
                layers=vectors.layers,
                options=options,
                progress=progress,
            )
            rows.append(own.assign(analysis="probe"))
            said.append(found)
            reads += [read_of(a), read_of(b)]
    return Result(pd.concat(rows, ignore_index=True), tuple(_by_split(said)), reads=tuple(reads))


def _by_split(found: Iterable[Predictions]) -> list[Predictions]:
    """One table for each task and split, all models in it."""
    splits: dict[tuple[str, str], list[Predictions]] = {}
    for one in found:
        splits.setdefault((one.task, one.split), []).append(one)
    return [join(*same) if len(same) > 1 else same[0] for same in splits.values()]
