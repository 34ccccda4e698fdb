"""Probes of a state, evaluated on a second split that is read once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.activations.writing.chosen import tell_left_out
from probekit.activations.writing.reading import units_read
from probekit.analyses.streaming.accumulate import labels_of, read, units_of
from probekit.analyses.streaming.job import Job
from probekit.analyses.streaming.options import StreamOptions
from probekit.analyses.streaming.probes import Dev, Table, fit_layers
from probekit.analyses.streaming.state import State
from probekit.analyses.vectors import numbered
from probekit.errors import UsageError
from probekit.runtime import Progress
from probekit.statistics.controls import shuffled
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Example, TaskKind

__all__ = ["evaluate"]


def evaluate(
    job: Job, state: State, probes: Sequence[str], metrics: tuple[str, ...], options: StreamOptions, progress: Progress
) -> tuple[Predictions, np.ndarray]:  # fmt: skip
    """Fit the probes and read dev: the predictions, and which rows the data contain."""
    fits, examples = fit_layers(state, probes, options), [*job.dev]
    dev, known = _dev(job, examples, state, options)
    table = Table(state, fits, dev, options.controls)
    layers, at, row, left_out = state.sums.layout.names, 0, 0, Counter[str]()
    for first in range(0, len(examples), state.spec["chunk"]):
        chunk = read(job.source, examples[first : first + state.spec["chunk"]])
        left_out.update(chunk.left_out)
        kept = known[row : row + int(chunk.read.sum())]
        row += len(kept)
        to = at + int(kept.sum())
        if to > at:
            table.add({name: x[kept] for name, x in zip(layers, chunk.vectors, strict=True)}, slice(at, to))
        at = to
        progress("dev", min(first + state.spec["chunk"], len(examples)), len(examples))
    tell_left_out(left_out, len(examples))
    return table.predictions({**job.about, "split": job.dev.name}, metrics, job.task.label_names), dev.seen


def _dev(job: Job, examples: list[Example], state: State, options: StreamOptions) -> tuple[Dev, np.ndarray]:
    """The labelled rows of dev, and which of its rows are labelled, bool (rows,)."""
    kind, reading = job.task.kind, job.source.reading
    units = units_of(examples, reading)
    read = np.concatenate([
        units_read(job.source.encoder, examples[first : first + state.spec["chunk"]], reading)
        for first in range(0, len(examples), state.spec["chunk"])
    ]) if reading.positions else np.ones(int(units.sum()), dtype=bool)  # fmt: skip
    y = labels_of(examples, reading)[read]
    known = ~np.isnan(y)
    if not known.any():
        raise UsageError(f"{job.task.name} {job.dev.name} has no labels to evaluate on; name another split with --dev.")
    of, several = np.repeat(np.arange(len(examples)), units)[read], reading.level is not None
    ids = np.array([e.id for e in examples])[of]
    ids, of, y = (numbered(ids, of) if several else ids)[known], of[known], y[known]
    if len(np.unique(ids)) < len(ids):
        raise UsageError(f"ids of {job.task.name} {job.dev.name} occur twice; name another column as id, or none.")
    stored, _ = stored_groups(examples, kind)
    groups = stored.get("/groups")
    groups = (of if several else None) if groups is None else groups[of]
    gold = y if kind is TaskKind.REGRESSION else y.astype(np.int64)
    sets = [gold[None]]
    if options.controls:
        sets.append(shuffled(gold, options.controls, (options.seed, 1), groups=groups, ordered=several))
    left_out = int((~known).sum() + (~read).sum())
    sentences = of if several else None
    return Dev(np.concatenate(sets), ids, groups, sentences, state.seen[of], left_out), known
