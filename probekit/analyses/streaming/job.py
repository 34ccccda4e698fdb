"""The data and the model of a pass: everything that is known before the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.options import CacheOptions
from probekit.activations.pooling import poolings
from probekit.activations.writing.chunk import Reading
from probekit.activations.writing.job import task_of
from probekit.activations.writing.loading import Loading, load
from probekit.activations.writing.prepare import kept_sites
from probekit.activations.writing.request import data_digest, of_model, origin_of, pairs_read, type_of
from probekit.analyses.streaming.accumulate import Source, text_keys
from probekit.analyses.streaming.options import Analysis, StreamOptions
from probekit.analyses.streaming.probes import PROBES
from probekit.analyses.vectors import model_columns
from probekit.errors import UsageError
from probekit.metrics import metric, unfit
from probekit.models.conversion import default_pooling
from probekit.models.encoder import Encoder
from probekit.recipe import Read
from probekit.tasks.task import Task, TaskKind

__all__ = ["Job", "analyses_of", "make_job", "metrics_of"]

KINDS = (TaskKind.CLASSIFICATION, TaskKind.REGRESSION, TaskKind.SEQUENCE_LABELLING)


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """What is read, by which model."""

    task: Task
    split: str
    dev: Any
    source: Source
    spec: Mapping[str, Any]
    about: Mapping[str, Any]
    reads: tuple[Read, ...]


def _second(loaded: Task, task: str | Path | Task, dev: str | None, options: StreamOptions) -> Any:
    """The split to evaluate on; None if there is no such split."""
    if dev is None or dev in loaded.splits:
        return None if dev is None else loaded.split(dev).sample(options.limit)
    try:
        return task_of(task, dev, options).split(dev).sample(options.limit)
    except UsageError:
        return None


def make_job(
    model: str | Path | Encoder, task: str | Path | Task, split: str, dev: str | None, options: StreamOptions
) -> Job:
    """Everything that is known before the model runs."""
    loaded = task_of(task, split, options)
    if loaded.kind not in KINDS:
        raise UsageError(f"{loaded.name} is a task of {loaded.kind}; stream reads {', '.join(KINDS)}.")
    given = loaded.split(split).sample(options.limit)
    if any(e.chat for e in given[0:1]):
        raise UsageError(f"{loaded.name} has conversations, which stream does not read; cache them.")
    labelled = bool(loaded.label_names) or loaded.kind is TaskKind.REGRESSION
    other = _second(loaded, task, dev, options) if labelled else None
    how = CacheOptions(
        dtype=options.dtype, device=options.device, revision=options.revision, random_weights=options.random_weights,
        model_name=options.model_name, max_length=options.max_length, sites=options.sites, layers=options.layers,
        pairs=options.pairs,
    )  # fmt: skip
    found, identity = of_model(model, how)
    encoder = load(found) if isinstance(found, Loading) else found
    words, kind = loaded.kind is TaskKind.SEQUENCE_LABELLING, type_of(model, options.revision)
    if words and options.pooling is not None:
        raise UsageError(f"{loaded.name} labels words, which are read one by one; leave out --pooling.")
    pooling = None if words else str(poolings(options.pooling or default_pooling(kind))[0])
    sites = kept_sites({} if options.sites or options.layers is None else {"only": list(options.layers)}, encoder)
    pairs = pairs_read(options.pairs, kind) if given.paired else None
    reading = Reading(loaded.kind, pooling, "word-first" if words else None, pairs, tuple(sites))
    across, features = Analysis.CKA in (options.analysis or ()) or not labelled, 4 if pairs == "separate" else 1
    if across and features > 1:
        raise UsageError("cka is of the vectors of one sequence; leave it out, or use --pairs joint.")
    spec = {
        **identity, "task": loaded.name, "split": split, "kind": str(loaded.kind), "pairs": pairs,
        "data_digest": data_digest(given.digest(), loaded.label_names), "representation": pooling or "word-first",
        "dev_digest": None if other is None else other.digest(), "layers": [str(site) for site, _ in sites],
        "widths": [features * width for _, width in sites], "columns": max(1, len(loaded.label_names)),
        "folds": options.folds, "bins": options.bins, "sample": options.sample, "chunk": options.chunk,
        "seed": options.seed, "labelled": labelled, "across": across,
    }  # fmt: skip
    keys = np.empty(0, dtype=np.uint64) if other is None else text_keys([*other])
    about = {
        "task": loaded.name, "split": split, **model_columns(identity, origin_of(model, how)),
        "representation": spec["representation"],
    }  # fmt: skip
    reads = [Read(str(task) if not isinstance(task, Task) else task.name, "data", spec["data_digest"])]
    reads.append(Read(str(identity["model"]), "model", str(identity.get("weights_digest") or "")))
    source = Source(encoder, reading, given, spec, keys, options.batch_tokens)
    return Job(loaded, split, other, source, spec, about, tuple(reads))


def analyses_of(options: StreamOptions, job: Job, dev: str | None) -> tuple[str, ...]:
    """What to measure; UsageError for what the labels do not allow."""
    labelled = bool(job.task.label_names) or job.task.kind is TaskKind.REGRESSION
    default = (Analysis.RIDGE if job.task.kind is TaskKind.REGRESSION else Analysis.MASS_MEAN) if labelled else "cka"
    chosen = options.analysis or (str(default),)
    for name in chosen:
        if name != Analysis.CKA and not labelled:
            raise UsageError(f"{name} needs labels, and {job.task.name} has none; choose cka.")
        if name in (Analysis.MASS_MEAN, Analysis.LOGISTIC) and job.task.kind is TaskKind.REGRESSION:
            raise UsageError(f"{name} is for classes, and the labels are numbers; choose ridge.")
        if name in PROBES and job.dev is None:
            raise UsageError(
                f"{name} is evaluated on a second split, and {job.task.name} has no {dev!r}; name one with --dev."
            )
    return chosen


def metrics_of(job: Job, given: tuple[str, ...] | str | None) -> tuple[str, ...]:
    """The metrics, the main one first; UsageError for one that does not exist or does not fit the labels."""
    names = job.task.metrics if given is None else (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        metric(name)
    if wrong := unfit(names, str(job.task.kind)):
        raise UsageError(f"metrics must fit the labels: {wrong}")
    return names
