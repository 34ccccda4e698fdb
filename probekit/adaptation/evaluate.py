"""``probekit evaluate``: evaluate a run on other data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache
from probekit.adaptation.options import EvaluateOptions, Regime
from probekit.adaptation.perplexity import evaluate_text
from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.adaptation.runs.constant import constant_rows, merged_constant, warn_of_constant
from probekit.adaptation.runs.evaluation import predict_run
from probekit.adaptation.runs.folder import read_card
from probekit.adaptation.runs.predictions import Evaluation
from probekit.adaptation.runs.rows import calibration_rows, columns_of, dev_temperature, evaluation_rows, slice_rows
from probekit.adaptation.runs.run import Run
from probekit.adaptation.training.multi_task import card_for, own_sources
from probekit.constraint import File
from probekit.errors import DataError, UsageError
from probekit.public import public
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress, no_progress
from probekit.tasks import load_task
from probekit.tasks.slices import read_slices
from probekit.tasks.task import Task, domains_of


@public(options=EvaluateOptions)
def evaluate(run: File | Run, /, *, options: EvaluateOptions, progress: Progress = no_progress) -> Result:
    """Evaluate a model that probekit train trained, on other examples.

    Each metric except the loss has its 95 % interval over the examples (over whole sentences if words are tagged). The
    task and the model are read from where training read them.

    Parameters
    ----------
    run : path or Run
        A run, or one of its checkpoints (RUN/step-10).
    options : EvaluateOptions
        ``task`` (names, TOML files, or tasks defined in Python), ``split``, ``cache``, ``device`` …; each may be given
        as a keyword.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Result
        A row for each task (with ``by_domain`` also for each domain, as "TASK:DOMAIN", with ``slices`` for each slice,
        as "TASK:SLICE") and metric, with its 95 % interval over examples (for tagged words over sentences), and one for
        the loss of each task; the predictions for each example. Rows with ``against`` "rest" are the main metric on a
        slice minus that on the other examples, with ``p`` and ``p_adjusted`` (Holm, over the slices). ``headline``
        marks the task's main metric. ``kept`` is True, because these weights are those that the run kept (as in the
        rows of its training). Rows with the estimator "majority" or "mean" are for the constant prediction from train.
        With ``text``, the rows are those of :func:`probekit.adaptation.perplexity.evaluate_text`.

    Raises
    ------
    ModelError
        If there is no finished run.
    UsageError
        If you give a cache to a run that reads text, or if the labels differ from those of the run.
    CacheMismatch
        If the cache comes from another model.
    DataError
        For examples without labels, slices that the task does not have, and texts that are missing, too short or not
        UTF-8.

    Examples
    --------
    >>> probekit.evaluate("runs/fiction", task=["mnli:travel"], split="dev-matched")  # doctest: +SKIP

    On the command line::

        probekit evaluate runs/mrpc --split test
        probekit evaluate runs/fiction --task mnli:travel --task mnli:slate --split dev-matched --out transfer.parquet
        probekit evaluate runs/mrpc-esim --cache mrpc.test.h5
        probekit evaluate runs/mnli --task glue-diagnostic --data-dir diagnostic --by-domain
        probekit evaluate runs/cola --split dev --slices slices.toml
        probekit evaluate runs/cola --text wiki.test.tokens
    """
    folder = Path(run.path or "") if isinstance(run, Run) else Path(run)
    card = read_card(folder)
    if options.text is not None:
        return evaluate_text(folder, card, options, progress)
    if card["regime"] == PRETRAIN:
        raise UsageError(
            f"{folder} is a language model from probekit pretrain, without a head for a task. Measure its perplexity "
            f"(--text FILES), or train a head: probekit train --model {folder}"
        )
    if options.cache is not None and card["regime"] == Regime.FINE_TUNE:
        raise UsageError(f"{folder} is a fine-tuned model, which reads text; give --task instead of --cache.")
    trained = (card.get("parameters") or {}).get("trained")  # missing in runs of earlier versions
    cost = {} if trained is None else {"trained_parameters": trained}
    slices = None if options.slices is None else read_slices(options.slices)
    records: list[dict[str, Any]] = []
    predictions = []
    for data, name, split in _data(card, options):
        found = predict_run(
            folder, data, split, model=options.model, caches=options.caches, batch_size=options.batch_size,
            device=options.device, progress=progress,
        )  # fmt: skip
        about = columns_of(card, name) | {"task": name, "split": split, "step": card["step"]}
        columns = about | {"analysis": "evaluate"}
        of = card_for(card, name)
        constant = of.get("constant")  # missing in runs of earlier versions
        if constant:
            constant = merged_constant(constant, tuple(of["target"]["label_names"]), found.task.label_names)
        parts = {name: found} | (_by_domain(found, data, name, split) if options.by_domain else {})
        for called, part in parts.items():
            records += evaluation_rows(part, columns | cost | {"task": called})
            if constant:
                records += constant_rows(part, constant, columns | {"task": called})
        if slices is not None and isinstance(data, Task) and (options.task or name == card["task"]):
            records += slice_rows(found, slices.members(data, data.split(split)), columns | cost, constant)
        if options.calibrate:
            shared = columns | {"layer": None, "n": len(found.ids), "kept": True}
            same = found.task.label_names == tuple(of["target"]["label_names"])
            degrees = dev_temperature(folder, of, split)
            records += calibration_rows(found, degrees, shared, same_classes=same)
        predictions.append(found.table(about))
    weights = str(card["encoder"].get("weights_digest") or "")
    reads: tuple[Read, ...] = (Read(str(folder), "run", weights, {"run": card["run"], "step": card["step"]}),)
    reads += () if slices is None else (Read(str(slices.path), "slices", slices.digest),)
    rows = make_rows(pd.DataFrame(records))
    warn_of_constant(rows)
    return Result(rows, tuple(predictions), reads=reads)


def _data(card: dict[str, Any], options: EvaluateOptions) -> Iterator[tuple[Task | Path, str, str]]:
    """The data to evaluate on, with the names of their task and split."""
    if options.cache is not None:
        with ActivationCache(options.cache) as cache:
            names = cache.spec["task"], cache.spec["split"]
        yield (options.cache, *names)
        return
    own = own_sources(card)
    known = own | {str(source["task"]): source for source in own.values()}
    given: Any = options.task or tuple(own)
    given = [given] if isinstance(given, str | Path | Task) else given
    for name, one in {one.name if isinstance(one, Task) else str(one): one for one in given}.items():
        task = one if isinstance(one, Task) else _loaded(card, known.get(name, {"task": name}), options)
        if options.task or task.name == card["task"] or options.split in task.splits:
            yield task, task.name, options.split


def _loaded(card: dict[str, Any], source: Mapping[str, str | None], options: EvaluateOptions) -> Task:
    """The task of a source, which is one of the run or has only the name that was given."""
    try:
        return load_task(str(source["task"]), data_dir=options.data_dir or source.get("data_dir"))
    except (UsageError, DataError) as error:
        if "data_dir" not in source:
            raise
        raise type(error)(
            f"{error} {card['run']} was trained on this task; give its name, its TOML file or the task itself as task, "
            "and its folder as data_dir."
        ) from error


def _by_domain(found: Evaluation, data: Task | Path, name: str, split: str) -> dict[str, Evaluation]:
    """The evaluation of the examples of each domain, by the name of the task of that domain."""
    if isinstance(data, Task):
        domains = {e.id: domains_of(e.domain) for e in data.split(split)}
    else:
        with ActivationCache(data) as cache:
            texts = cache.domains
            domains = {} if texts is None else dict(zip(cache.ids, map(domains_of, texts), strict=True))
    known = sorted({one for several in domains.values() for one in several})
    if not known:
        raise UsageError(f"the examples of {name} {split} have no domains; leave out --by-domain.")
    rows = {one: np.flatnonzero([one in domains[i] for i in found.ids]) for one in known}
    return {f"{name}:{one}": found.subset(some) for one, some in rows.items()}
