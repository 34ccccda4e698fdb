"""The data and the model of a pass: everything that is known before the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.options import CacheOptions, ReadOptions
from probekit.activations.pooling import TokenLevel, poolings
from probekit.activations.positions import Positions
from probekit.activations.sentence import with_own
from probekit.activations.writing.job import task_of
from probekit.activations.writing.loading import Loading, load
from probekit.activations.writing.prepare import kept_sites
from probekit.activations.writing.reading import Reading
from probekit.activations.writing.request import data_digest, of_model, origin_of, pairs_read, template_of, type_of
from probekit.analyses.options import PairVector, SpanVector
from probekit.analyses.stream.accumulate import CENTRED, Source, text_keys
from probekit.analyses.stream.options import Analysis, StreamOptions
from probekit.analyses.stream.probes import PROBES
from probekit.analyses.vectors import model_columns
from probekit.calls import fields_of
from probekit.errors import UsageError
from probekit.metrics import metric, unfit
from probekit.models.conversion import default_pooling
from probekit.models.encoder import Encoder
from probekit.recipe import Read
from probekit.tasks.targets import targets_of
from probekit.tasks.task import Example, Task, TaskKind

KINDS = (TaskKind.CLASSIFICATION, TaskKind.REGRESSION, TaskKind.SEQUENCE_LABELLING, TaskKind.SPAN_LABELLING)


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
    if options.pooling is not None:
        options = replace(options, pooling=(with_own((options.pooling,), model, options.revision) or ("",))[0])
    loaded = task_of(task, split, options)
    if loaded.kind not in KINDS:
        raise UsageError(f"{loaded.name} is a task of {loaded.kind}; stream reads {', '.join(KINDS)}.")
    given = loaded.split(split).sample(options.limit)
    labelled = bool(loaded.label_names) or loaded.kind is TaskKind.REGRESSION
    other = _second(loaded, task, dev, options) if labelled else None
    shared = {name: getattr(options, name) for name in fields_of(ReadOptions)}
    how = CacheOptions(**shared, pooling=None if options.pooling is None else (options.pooling,))
    found, identity = of_model(model, how)
    template, kind = template_of(model, given, how), type_of(model, options.revision)
    span, spans = _spans(loaded, given[0:CENTRED], options)
    encoder = load(found) if isinstance(found, Loading) else found
    reading = replace(_reading(loaded, given.paired, encoder, kind, span, options), template=template, spans=spans)
    features = 4 if reading.pairs == "separate" else 1
    if span:
        compared = spans == 2 and options.span_pair is PairVector.COMPARED
        features = (1 if span is SpanVector.MEAN else 2) * spans * (2 if compared else 1)
    across = Analysis.CKA in (options.analysis or ()) or not labelled
    if across and features > 1 and span is None:
        raise UsageError("cka is of the vectors of one sequence; leave it out, or use --pairs joint.")
    spec = {
        **identity, "task": loaded.name, "split": split, "kind": str(loaded.kind), "pairs": reading.pairs,
        "data_digest": data_digest(given.digest(), loaded.label_names),
        "representation": str(span or reading.pooling or reading.level),
        "dev_digest": None if other is None else other.digest(), "layers": [str(site) for site, _ in reading.sites],
        "widths": [features * width for _, width in reading.sites], "columns": max(1, len(loaded.label_names)),
        "folds": options.folds, "bins": options.bins, "sample": options.sample, "chunk": options.chunk,
        "seed": options.seed, "labelled": labelled, "across": across,
        **({} if span is None else {"span": str(span)}),
        **({} if how.positions is None else {"positions": how.positions, "leave_out": options.leave_out}),
        **({} if template is None else {"chat_template": template.digest()}),
    }  # fmt: skip
    keys = np.empty(0, dtype=np.uint64) if other is None else text_keys([*other])
    about = {
        "task": loaded.name, "split": split, **model_columns(identity, origin_of(model, how)),
        "representation": spec["representation"],
    }  # fmt: skip
    reads = [Read(str(task) if not isinstance(task, Task) else task.name, "data", spec["data_digest"])]
    reads.append(Read(str(identity["model"]), "model", str(identity.get("weights_digest") or "")))
    source = Source(encoder, reading, given, spec, keys, options.batch_tokens, span, options.span_pair)
    return Job(loaded, split, other, source, spec, about, tuple(reads))


def _reading(
    task: Task, paired: bool, encoder: Encoder, kind: str, span: SpanVector | None, options: StreamOptions
) -> Reading:
    """What is read of texts by a model of this ``kind``; UsageError for options that do not fit the labels."""
    words = task.kind is TaskKind.SEQUENCE_LABELLING
    if words and (options.pooling is not None or options.positions is not None):
        raise UsageError(f"{task.name} labels words, which are read one by one; leave out --pooling and --positions.")
    sites = kept_sites({} if options.sites or options.layers is None else {"only": list(options.layers)}, encoder)
    level = TokenLevel.WORD_FIRST if words else TokenLevel.CHOSEN if span else None
    return Reading(
        task,
        None if level else str(poolings(options.pooling or default_pooling(kind))[0]),
        None if level is None else str(level),
        pairs_read(options.pairs, kind) if paired else None,
        tuple(sites),
        Positions.parse("span" if span else options.positions),
        leave_out=options.leave_out,
    )


def _spans(task: Task, head: Sequence[Example], options: StreamOptions) -> tuple[SpanVector | None, int]:
    """How spans become vectors, None if a row is no span; and the number of spans of a label.

    Raises
    ------
    UsageError
        If the first texts have no spans with a label, several labels of a span can hold at once, or the texts are
        conversations, whose spans are placed when they are rendered.
    """
    if options.span is None and task.kind is not TaskKind.SPAN_LABELLING:
        return None, 1
    if options.pooling is not None or options.positions is not None:
        raise UsageError(f"{task.name} labels spans; leave out --pooling and --positions, or give --span ends|mean.")
    if any(e.chat for e in head):
        raise UsageError("--span is of texts; of conversations, --positions span pools the pieces of a span.")
    found = [target for e in head for target in targets_of(e, task.kind)]
    if not found or task.kind is TaskKind.SEQUENCE_LABELLING:
        raise UsageError(f"{task.name} has no labels of spans; leave out --span.")
    if any(isinstance(target.label, tuple) for target in found):
        raise UsageError(
            f"several labels of a span of {task.name} can hold at once, and sums are of one; make caches, and probe "
            "them."
        )
    return options.span or SpanVector.ENDS, max(len(target.spans) for target in found)


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
