"""Model and analyses in one pass, without a cache: the analysis of ``probekit stream``."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from probekit.analyses.streaming.accumulate import begun, run
from probekit.analyses.streaming.evaluate import evaluate
from probekit.analyses.streaming.job import Job, analyses_of, make_job, metrics_of
from probekit.analyses.streaming.layers import ERASERS_FILE, cka_rows, eraser_rows, erasers_of, mi_rows, write_erasers
from probekit.analyses.streaming.options import Analysis, StreamOptions, part_of
from probekit.analyses.streaming.probes import PROBES
from probekit.analyses.streaming.state import STATE_FILE, State, check_same, merged, read_state
from probekit.calls import checked
from probekit.errors import UsageError
from probekit.files import check_folder
from probekit.models.encoder import Encoder
from probekit.probes.protocol.rows import probe_rows
from probekit.public import public
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, no_progress
from probekit.tasks.task import Task

__all__ = ["merge_streams", "stream"]

log = logging.getLogger(__name__)
RANDOM = "random:"


@public(options=StreamOptions)
def stream(
    model: str | Path | Encoder,
    task: str | Path | Task,
    split: str = "train",
    *,
    dev: str | None = "dev",
    metrics: tuple[str, ...] | str | None = None,
    options: StreamOptions,
    progress: Progress = no_progress,
) -> Result:
    """Run a model on a task and analyse its layers in one pass; no activation is stored.

    Sums over the rows (means, products, and their products with the labels, for each fold) give ridge regression,
    differences of means, erasers and CKA as from a cache; a random sample of the rows gives what sums cannot. Probes
    are evaluated on ``dev``, with intervals and controls, as by :func:`probekit.probe`.

    Parameters
    ----------
    model : str, path or Encoder
        As for :func:`probekit.cache_activations`.
    task : str, path or Task
        Name of a task, a TOML file, a file of texts (JSON lines), or the task itself.
    split : str
        The split to fit on.
    dev : str, optional
        The split to evaluate probes on; None without probes.
    metrics : tuple of str, optional
        The main one first (default: those of the task).
    options : StreamOptions
        ``analysis``, ``pooling``, ``positions``, ``state``, ``part`` …; each may be given as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        Rows as those of :func:`probekit.probe`, :func:`probekit.similarity` and :func:`probekit.mi`, and those of
        erasers; the predictions for each example of dev. For a part, no rows.

    Raises
    ------
    UsageError
        For options that do not fit, texts without a piece at the positions, states of other jobs, and missing parts.
    DataError
        If a state is damaged.
    NonFiniteError
        If a vector is NaN or infinite; the message names example and layer.

    Examples
    --------
    >>> result = probekit.stream("gpt2", "sst2", analysis=("ridge", "cka"), state="sst2.npz")  # doctest: +SKIP
    """
    if isinstance(model, str) and model.startswith(RANDOM):
        model, options = model.removeprefix(RANDOM), replace(options, random_weights=options.random_weights or 0)
    for path, kind in ((options.state, STATE_FILE), (options.erasers, ERASERS_FILE)):
        if path is not None:
            kind.check(Path(path))
            check_folder(Path(path).parent)
    job = make_job(model, task, split, dev, options)
    options = replace(options, analysis=analyses_of(options, job, dev))
    names, merge = metrics_of(job, metrics), options.merge
    if merge:
        found = merged([read_state(one) for one in merge], merge)
        check_same(merge[0], found, {**job.spec, "across": job.spec["across"] or found.spec["across"]})
        if options.state is not None:
            found.save(Path(options.state))
    else:
        found = _read(job, options, progress)
    _tell(job, found)
    if options.part is not None:
        return Result(make_rows([]), reads=job.reads)
    _check_whole(found)
    return _measured(job, found, names, options, progress)


@checked
def merge_streams(*states: str | Path) -> State:
    """The state of several parts of one stream; the order does not matter.

    Parameters
    ----------
    *states : path
        Finished states of :func:`stream`, of different parts.

    Returns
    -------
    State
        Sums, sample and counts of all of them; ``.save(path)`` writes it.

    Raises
    ------
    UsageError
        For states of different jobs or overlapping parts.
    """
    return merged([read_state(one) for one in states], [str(one) for one in states])


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
    parts, path = (part_of(options.part),), None if options.state is None else Path(options.state)
    if path is not None and path.exists():
        found = read_state(path)
        check_same(path, found, {**job.spec, "across": job.spec["across"] or found.spec["across"]})
        if found.parts != parts and (options.part is not None or not found.complete):
            shown = ", ".join(f"{i}/{n}" for i, n in found.parts)
            raise UsageError(f"{path} is the state of part {shown}; give another --state, or --part {shown}.")
    else:
        found = begun(job.source, parts[0])
    if not found.complete:
        run(found, job.source, path, options.save_every, progress)
    return found


def _measured(job: Job, state: State, metrics: tuple[str, ...], options: StreamOptions, progress: Progress) -> Result:
    """The rows of all analyses."""
    import pandas as pd

    tables, predictions = [], []
    probes = [name for name in options.analysis or () if name in PROBES]
    if probes:
        found, seen = evaluate(job, state, probes, metrics, options, progress)
        tables.append(probe_rows(found, seen=seen, resamples=options.resamples, level=options.level, seed=options.seed))
        predictions = [found]
    if Analysis.CKA in (options.analysis or ()):
        tables.append(cka_rows(state, job.about, options, progress))
    if Analysis.MI in (options.analysis or ()):
        tables.append(mi_rows(state, job.about, options, progress))
    if Analysis.LEACE in (options.analysis or ()):
        of_layers = erasers_of(state)
        if options.erasers is not None:
            write_erasers(of_layers, Path(options.erasers))
        tables.append(eraser_rows(state, of_layers, job.about))
    rows = make_rows(pd.concat(tables, ignore_index=True))
    return Result(rows, tuple(predictions), reads=job.reads)
