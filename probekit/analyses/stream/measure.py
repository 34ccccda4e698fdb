"""Model and analyses in one pass, without a cache; probes are evaluated on a second split that is read once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.activations.writing.chosen import tell_left_out
from probekit.activations.writing.reading import units_read
from probekit.analyses.stream.accumulate import begun, labels_of, read, run, units_of
from probekit.analyses.stream.job import Job, analyses_of, make_job, metrics_of
from probekit.analyses.stream.layers import ERASERS_FILE, cka_rows, eraser_rows, erasers_of, mi_rows, write_erasers
from probekit.analyses.stream.options import Analysis, StreamOptions, part_of
from probekit.analyses.stream.probes import PROBES, Dev, Table, fit_layers
from probekit.analyses.stream.state import STATE_FILE, State, check_same, merged, read_state
from probekit.analyses.vectors import numbered
from probekit.errors import UsageError
from probekit.files import check_folder
from probekit.models.encoder import Encoder
from probekit.notes import logger
from probekit.probes.protocol.labels import Labels, Question
from probekit.probes.protocol.rows import probe_rows
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.statistics.controls import shuffled
from probekit.statistics.predictions import Predictions
from probekit.tasks.task import Example, Task, TaskKind

log = logger(__name__)
RANDOM = "random:"


def measure(
    model: str | Path | Encoder,
    data: tuple[str | Path | Task, str, str | None],
    metrics: tuple[str, ...] | str | None,
    options: StreamOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.stream`; ``data`` is the task with the splits to fit and to evaluate on."""
    task, split, dev = data
    if isinstance(model, str) and model.startswith(RANDOM):
        model, options = model.removeprefix(RANDOM), replace(options, random_weights=options.random_weights or 0)
    for path, kind in ((options.state, STATE_FILE), (options.erasers, ERASERS_FILE)):
        if path is not None:
            kind.check(path)
            check_folder(path.parent)
    job = make_job(model, task, split, dev, options)
    options = replace(options, analysis=analyses_of(options, job, dev))
    names, merge = metrics_of(job, metrics), options.merge
    if merge:
        state = merged([read_state(one) for one in merge], merge)
        check_same(merge[0], state, {**job.spec, "across": job.spec["across"] or state.spec["across"]})
        if options.state is not None:
            state.save(options.state)
    else:
        state = _read(job, options, progress)
    _tell(job, state)
    if options.part is not None:
        return Result(make_rows([]), reads=job.reads)
    _check_whole(state)
    return _measured(job, state, names, options, progress)


def _tell(job: Job, state: State) -> None:
    """Warn of texts that were truncated, and of those, or of spans, that have no row."""
    counts, of = state.counts, f"{job.task.name} {job.split}"
    if cut := counts["truncated"]:
        log.warning(
            "%s: %s of %s texts exceed the model's maximum length and were truncated.",
            of, f"{cut:,}", f"{counts['examples']:,}",
        )  # fmt: skip
    if none := counts["left_out"]:
        what, where = ("spans", "the model did not read them") if job.source.span else ("texts", "no piece is there")
        total = none + counts["rows"] + counts["unlabelled"]
        log.warning("%s: %s of %s %s are left out, because %s.", of, f"{none:,}", f"{total:,}", what, where)


def _check_whole(state: State) -> None:
    """Raise UsageError if parts of the data are missing."""
    of = state.parts[0][1]
    if missing := sorted(set(range(1, of + 1)) - {i for i, _ in state.parts}):
        shown = ", ".join(f"{i}/{of}" for i in missing)
        raise UsageError(f"the parts {shown} are missing; make their states (--part), and merge all of them.")


def _read(job: Job, options: StreamOptions, progress: Progress) -> State:
    """The state of a part, or of all data, read from its file as far as it goes."""
    parts, path = (part_of(options.part),), options.state
    if path is not None and path.exists():
        state = read_state(path)
        check_same(path, state, {**job.spec, "across": job.spec["across"] or state.spec["across"]})
        if state.parts != parts and (options.part is not None or not state.complete):
            shown = ", ".join(f"{i}/{n}" for i, n in state.parts)
            raise UsageError(f"{path} is the state of part {shown}; give another --state, or --part {shown}.")
    else:
        state = begun(job.source, parts[0])
    if not state.complete:
        run(state, job.source, path, options.save_every, progress)
    return state


def _measured(job: Job, state: State, metrics: tuple[str, ...], options: StreamOptions, progress: Progress) -> Result:
    """The rows of all analyses."""
    import pandas as pd

    tables, predictions = [], []
    probes = [name for name in options.analysis or () if name in PROBES]
    if probes:
        table, seen = _evaluated(job, state, probes, metrics, options, progress)
        tables.append(probe_rows(table, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed))
        predictions = [table]
    if Analysis.CKA in (options.analysis or ()):
        tables.append(cka_rows(state, job.about, options, progress))
    if Analysis.MI in (options.analysis or ()):
        tables.append(mi_rows(state, job.about, options, progress))
    if Analysis.LEACE in (options.analysis or ()):
        of_layers = erasers_of(state)
        if options.erasers is not None:
            write_erasers(of_layers, options.erasers)
        tables.append(eraser_rows(state, of_layers, job.about))
    rows = make_rows(pd.concat(tables, ignore_index=True))
    return Result(rows, tuple(predictions), reads=job.reads)


def _evaluated(
    job: Job, state: State, probes: Sequence[str], metrics: tuple[str, ...], options: StreamOptions, progress: Progress
) -> tuple[Predictions, np.ndarray]:
    """Fit the probes and read dev: the predictions, and which rows the data contain."""
    fits, examples = fit_layers(state, probes, options), [*job.dev]
    dev, known = _dev(job, examples, state, options)
    table = Table(state, fits, dev)
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
    about = {**job.about, "split": job.dev.name, "analysis": "probe"}
    question = Question(str(job.task.kind), metrics, job.task.label_names, about)
    return table.predictions(question), dev.seen


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
    labels = Labels(gold, groups, ids=ids, sentences=of if several else None)
    return Dev(labels, np.concatenate(sets), state.seen[of], int((~known).sum() + (~read).sum())), known
