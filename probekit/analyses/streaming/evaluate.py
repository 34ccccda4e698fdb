"""Probes of a state, evaluated on a second split that is read once more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.analyses.streaming.accumulate import labels_of, read
from probekit.analyses.streaming.job import Job
from probekit.analyses.streaming.options import Analysis, StreamOptions
from probekit.analyses.streaming.probes import Dev, Table, fit_layers
from probekit.analyses.streaming.state import State
from probekit.errors import UsageError
from probekit.metrics import metric, unfit
from probekit.runtime import Progress
from probekit.statistics.controls import shuffled
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import TaskKind

__all__ = ["evaluate"]


def evaluate(
    job: Job, state: State, probes: Sequence[str], metrics: tuple[str, ...] | str | None, options: StreamOptions,
    progress: Progress,
) -> tuple[list[Predictions], np.ndarray]:  # fmt: skip
    """Fit the probes and read dev: the predictions, of ridge on classes in their own table, and rows seen in train."""
    names = job.task.metrics if metrics is None else (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in names:
        metric(name)
    if wrong := unfit(names, str(job.task.kind)):
        raise UsageError(f"metrics must fit the labels: {wrong}")
    fits = fit_layers(state, probes, options)
    dev, known = _dev(job, state, options)
    ridge = [fit for fit in fits if fit.estimator == Analysis.RIDGE]
    others = [fit for fit in fits if fit.estimator != Analysis.RIDGE]
    tables = [Table(state, part, dev, options.controls) for part in (others, ridge) if part]
    layers, at, row = state.sums.layout.names, 0, 0
    size, total = state.spec["chunk"], len(job.dev)
    for first in range(0, total, size):
        examples = job.dev[first : first + size]
        chunk = read(job.source, examples)
        kept = known[row : row + int(chunk.rows.sum())]
        row += len(kept)
        vectors = {name: x[kept] for name, x in zip(layers, chunk.vectors, strict=True)}
        to = at + int(kept.sum())
        for table in tables if to > at else ():
            table.add(vectors, slice(at, to))
        at = to
        progress("dev", min(first + size, total), total)
    about = {**job.about, "split": job.dev.name}
    return [table.predictions(about, names, job.task.label_names) for table in tables], dev.seen


def _dev(job: Job, state: State, options: StreamOptions) -> tuple[Dev, np.ndarray]:
    """The labelled rows of dev, and which rows these are, bool (rows,)."""
    examples, kind = [*job.dev], job.task.kind
    y = labels_of(examples, kind)
    known = ~np.isnan(y)
    if not known.any():
        raise UsageError(f"{job.task.name} {job.dev.name} has no labels to evaluate on; name another split with --dev.")
    words = kind is TaskKind.SEQUENCE_LABELLING
    count = np.array([len(e.words or ()) for e in examples]) if words else np.ones(len(examples), dtype=np.int64)
    of = np.repeat(np.arange(len(examples)), count)[known]
    ids = np.array([e.id for e in examples])[of]
    if words:
        place = np.arange(len(known)) - np.repeat(np.cumsum(count) - count, count)
        ids = np.char.add(np.char.add(ids, ":"), place[known].astype(str))
    stored, _ = stored_groups(examples, kind)
    groups = stored.get("/groups")
    groups = (of if words else None) if groups is None else groups[of]
    gold = y[known] if kind is TaskKind.REGRESSION else y[known].astype(np.int64)
    sets = [gold[None]]
    if options.controls:
        sets.append(shuffled(gold, options.controls, (options.seed, 1), groups=groups, ordered=words))
    left_out = int((~known).sum())
    return Dev(np.concatenate(sets), ids, groups, of if words else None, state.seen[of], left_out), known
