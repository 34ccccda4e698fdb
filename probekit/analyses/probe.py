"""From two cache files to the rows of a per-layer curve."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache
from probekit.analyses.pairs import probe as probe_caches
from probekit.metrics import metric
from probekit.probes import Options
from probekit.runtime import Progress, no_progress
from probekit.statistics.predictions import Evaluated

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["probe", "probe_examples"]


def probe(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    *,
    metrics: Sequence[str] | None = None,
    pooling: str | None = None,
    layers: Sequence[int | str] | None = None,
    examples: str | Path | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> pd.DataFrame:
    """Fit a diagnostic classifier on each layer of one cache and evaluate it on another; one row a number.

    Features are standardised on train, the L2 penalty is chosen by cross-validation in train, the probe is fitted
    again on all of train (logistic regression, or ridge for numbers), and dev is looked at once, with a bootstrap
    interval. Shuffled labels, and control tasks where words are labelled, go the same way; so do a bag of pieces and
    the length of the texts.

        rows = probekit.probe("cola.train.h5", "cola.dev.h5")
        probekit.plots.layer_curve(rows)

    train, dev : files or open caches of the same task, model and layers
    metrics : names known to ``probekit.metrics``, the task's own for None; the first one is the main one
    pooling : one of the caches' poolings, the first for None; layers : some of the layers, all for None
    examples : a file (.parquet) for what each probe said of each example, which comparisons are computed from;
        :func:`probe_examples` returns it without a file
    options : fields of :class:`probekit.probes.Options`: estimator, penalties, controls, folds, seed, threads … An MLP
        takes many times as long as the others.
    Returns rows (see ``probekit.rows``); the columns after ``n`` are those of ``probekit.probes.evaluate_layers``.
    Raises CacheMismatch where the caches do not belong together, NonFiniteError naming a layer with NaN, UsageError.
    """
    rows, found = probe_examples(
        train, dev, metrics=metrics, pooling=pooling, layers=layers, progress=progress, **options
    )
    if examples is not None:
        found.write(examples)
    return rows


def probe_examples(
    train: str | Path | ActivationCache,
    dev: str | Path | ActivationCache,
    *,
    metrics: Sequence[str] | None = None,
    pooling: str | None = None,
    layers: Sequence[int | str] | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> tuple[pd.DataFrame, Evaluated]:
    """The rows of :func:`probe`, and what each probe said of each example, which they are computed from."""
    with ExitStack() as stack:
        a, b = (
            cache if isinstance(cache, ActivationCache) else stack.enter_context(ActivationCache(cache))
            for cache in (train, dev)
        )
        names = a.spec["metrics"] if metrics is None else [metrics] if isinstance(metrics, str) else metrics
        return probe_caches(
            a,
            b,
            metrics={name: metric(name) for name in names},
            pooling=pooling,
            layers=layers,
            options=Options(**options),
            progress=progress,
        )
