"""``probekit train``: train a model on a task and write a run with weights, card and metrics."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, fields, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from probekit.activations import ActivationCache, cache_activations
from probekit.adaptation.data.options import Long
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.validation import VALIDATION, drawn, set_apart, validation_share
from probekit.adaptation.optimisation.regularise import regularised
from probekit.adaptation.options import Regime, TrainOptions, check_names
from probekit.adaptation.runs.constant import constant_answer, warn_of_constant
from probekit.adaptation.runs.evaluation import restore
from probekit.adaptation.runs.folder import begin, kept, locked_run, read_card, save_folder, write_card
from probekit.adaptation.runs.predictions import Evaluation, predict
from probekit.adaptation.runs.rows import columns_of, slice_rows, training_rows
from probekit.adaptation.runs.run import Run, finish_run, new_card, noting_failure, open_run
from probekit.adaptation.runs.seeds import train_seeds
from probekit.adaptation.signals.signals import Signals
from probekit.adaptation.targets import with_preset
from probekit.adaptation.training.feature_extraction import (
    MODEL,
    PooledData,
    TokenData,
    cache_options,
    check_apart,
    prepare_feature_extraction,
)
from probekit.adaptation.training.fine_tuning import identity_of, prepare_fine_tuning
from probekit.adaptation.training.groups import LayerGroup, ever_trained
from probekit.adaptation.training.multi_task import further_tasks, place_of, source_of, with_further
from probekit.adaptation.training.objective import Objective, Training, Watcher
from probekit.adaptation.training.trainer import History, fit, own_randomness
from probekit.constraint import RunOut
from probekit.errors import CacheMismatch, UsageError
from probekit.files import slug
from probekit.models.find import resolve_model
from probekit.models.identity import identify
from probekit.models.transformers.quantised import number_of_weights
from probekit.public import public
from probekit.recipe import Read, Recipe
from probekit.rows import make_rows
from probekit.rows.examples import EXAMPLES
from probekit.runtime import Dtype, Progress, no_progress, part_of, processes, resolve_device
from probekit.tasks import load_task
from probekit.tasks.context import in_context
from probekit.tasks.task import Split, Task

log = logging.getLogger(__name__)

Source = Mapping[str, str | None]
"""Where to find the task, and a frozen model, again."""


@public(options=TrainOptions)
def train(
    task: str | Path | Task,
    model: str | Path,
    out: RunOut,
    *,
    options: TrainOptions,
    watcher: Watcher | None = None,
    progress: Progress = no_progress,
) -> Run:
    """Fine-tune a model on a task, or train a task model on its frozen layers, which are cached once.

    ``out`` becomes a folder with the weights, a card (probekit.json) and the metrics during training (rows.parquet).
    The folder of a fine-tuned encoder is a model folder that every command reads. Run the same command again to show a
    finished run, or to resume an interrupted one after its last evaluation, with the same numbers as an uninterrupted
    run.

    Parameters
    ----------
    task : str, Path or Task
        Name of a task (see ``probekit tasks``), or a TOML file; in Python also a task.
    model : str or Path
        A Hub id, or a local folder with config.json and safetensors; elmo:OPTIONS,WEIGHTS or skip-thoughts:FOLDER for
        published files. A checkpoint of another run has a name such as "bert@cola-step-4" in tables.
    out : str or Path
        Folder of the run.
    options : TrainOptions
        ``regime``, ``train``, ``dev``, ``test``, ``head``, ``learning_rate`` …; each may be given as a keyword.
    watcher : callable, optional
        Called with the metrics after each evaluation, ``watcher(number, metrics)``, where the number is the epoch
        unless ``evaluate_every`` is given; an exception ends the training.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Run
        The folder, the card, the metrics during training as rows, and the predictions for dev and test. With several
        ``seeds``, the kept metrics of each run with their means, and the runs as ``runs``.

    Raises
    ------
    UsageError
        For options that contradict each other or do not fit the task or the model, and if ``out`` holds another run.
    DataError
        For examples without labels, or labels that cannot be learned.
    ModelError, CacheMismatch, CacheBusy
        As from loading and caching.
    NonFiniteError
        If the loss is NaN or infinite.

    Examples
    --------
    >>> run = probekit.train("cola", "bert-base-uncased", "runs/cola", learning_rate=2e-5)  # doctest: +SKIP
    >>> run.metrics["matthews"]  # doctest: +SKIP

    On the command line::

        probekit train --task mrpc --model bert-base-uncased --out runs/mrpc
        probekit train --task mrpc --model bert-base-uncased --regime feature-extraction --out runs/mrpc-esim
        probekit train --task cola --model bert-base-uncased --save-at log-spaced --out runs/cola
        probekit train --task rte --model bert-base-uncased --seeds 5 --out runs/rte
        probekit train --task wnut17 --model roberta-base --head crf --dtype bfloat16 --out runs/wnut
        probekit train --task sst2 --model bert-base-uncased --schedule slanted-triangular --unfreezing gradual --layer-factor 0.4 --epochs 15 --out runs/ulmfit
    """  # noqa: E501
    how, recipe = options, Recipe.of("train", {"task": task, "model": model, "out": out, **_asdict(options)})
    if how.seeds > 1:
        name = how.run_name or Path(out).resolve().name

        def one(seed: int, folder: Path) -> Run:
            given = replace(how, seeds=1, seed=seed, run_name=f"{name}-seed-{seed}")
            of_all = part_of(progress, seed - how.seed, how.seeds)
            return train(task, model, folder, options=given, watcher=watcher, progress=of_all)

        return train_seeds(one, Path(out), how, recipe, progress)
    source = None if isinstance(task, Task) else source_of(str(task), how.data_dir)
    task = task if isinstance(task, Task) else load_task(str(task), data_dir=how.data_dir)
    if how.regime is not Regime.FINE_TUNE:
        _check_frozen(task, how)
    read = in_context(task, how.context)
    share = validation_share(task, how.dev, how.validation)
    if share is not None and how.validation is None:
        log.warning("%s has no dev split; a share of %g of train is held out to choose the epoch.", task.name, share)
    how = how if share is None else replace(how, validation=share, dev=VALIDATION)
    first, second, held = set_apart(read, how)
    how = with_preset(how, task.name, len(first), paired=first.paired)
    third = None if how.test is None else read.split(how.test)
    for part in (first, second, third):
        if part is not None and not len(part):
            raise UsageError(f"{task.name} {part.name} has no examples; give a split with some.")
    signals = Signals(how, read, first, progress, tuple(part for part in (second, third) if part is not None))
    if how.regime is Regime.FINE_TUNE:
        identity, prepare = _fine_tuning(task, model, how, (first, second, third), signals, progress)
        return _run(prepare, Path(out), how, identity, recipe, source=source, watcher=watcher, progress=progress)
    with ExitStack() as stack:
        found = _given(task, model, how) if how.cache else _caches(task, model, how, progress)
        opened = [stack.enter_context(cache) for cache in found]
        source = source and source | {"model": place_of(model)}
        whole = read.split(how.train)
        chosen = whole.sample(drawn(whole, how), how.data_seed)
        if held is not None and opened[0].ids.tolist() != [e.id for e in chosen]:
            raise CacheMismatch(
                f"{opened[0].path} must hold the {len(chosen)} examples of which a part is held out; it holds others."
            )
        return _run_on_caches(
            opened, Path(out), how, recipe, held, signals, source=source, watcher=watcher, progress=progress
        )


def _fine_tuning(
    task: Task, model: str | Path, options: TrainOptions, parts: tuple[Split, Split, Split | None], signals: Signals,
    progress: Progress,
) -> tuple[dict[str, Any], Callable[[TrainOptions], Training]]:  # fmt: skip
    """The identity of a fine-tuning on train, dev and perhaps test, and the function that prepares it."""
    first, second, third = parts
    others, old = further_tasks(options, task.name), _old_task(options)
    identity = {
        "task": task.name, "data": [part.digest() for part in (first, second)], "max_length": options.max_length,
        "model": identity_of(model, options), **signals.identity,
        "layers": None if options.layers is None else [str(layer) for layer in options.layers],
    }  # fmt: skip
    if old is not None:
        identity["fisher_data"] = old.split(options.fisher_split).digest()
    if others:
        identity["also_data"] = [[part.digest() for part in (one.train, one.dev)] for one in others]

    def prepare(how: TrainOptions) -> Training:
        examples, facts = signals.examples()
        training = regularised(prepare_fine_tuning(model, task, examples, second, how, test=third), old, progress)
        training = replace(training, facts={**training.facts, **facts})
        return signals.added(with_further(training, others), examples)

    return identity, prepare


def _check_frozen(task: Task, options: TrainOptions) -> None:
    """Raise UsageError for tasks and options that need the encoder's input, not its cached layers."""
    if not task.kind.cacheable:
        raise UsageError(
            f"{task.name} is a task of {task.kind}, for which layers are not cached; leave out --regime "
            f"{options.regime}, and freeze the encoder with --unfreezing top."
        )
    if options.also is not None:
        raise UsageError("also trains one encoder on several tasks; frozen layers need a run for each. Fine-tune.")
    if options.long is not Long.TRUNCATE:
        raise UsageError(f"--long {options.long} is for fine-tuning; caches hold truncated texts. Leave out --long.")


def train_on_caches(
    train: ActivationCache | str | Path,
    dev: ActivationCache | str | Path,
    out: str | Path,
    *,
    test: ActivationCache | str | Path | None = None,
    source: Source | None = None,
    watcher: Watcher | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Run:
    """Feature extraction from existing caches; see :func:`train`.

    Parameters
    ----------
    source : Source, optional
        ``task``, ``data_dir`` and ``model``, as for :func:`train`, which allow evaluation of the run on other texts.
    """
    check_names(options, TrainOptions)
    with ExitStack() as stack:
        opened = [stack.enter_context(_opened(cache)) for cache in (train, dev, test) if cache is not None]
        if options.get("validation") is not None:
            raise UsageError(
                "train_on_caches takes a cache for dev, not validation; train(task, model) holds out a part."
            )
        check_apart(opened[0], opened[1])
        splits = dict(zip(("train", "dev", "test"), (cache.spec["split"] for cache in opened), strict=False))
        how = TrainOptions(**{"regime": Regime.FEATURE_EXTRACTION, **options, **splits})
        if how.signals() or how.also is not None or how.slices is not None:
            raise UsageError("caches hold no text, which other models could read; use train(task, model) instead.")
        spec = TaskSpec.of_cache(opened[0].spec)
        how = with_preset(how, spec.name, len(opened[0].ids), paired=spec.paired)
        return _run_on_caches(
            opened, Path(out), how, None, None, None, source=source, watcher=watcher, progress=progress
        )


def _old_task(options: TrainOptions) -> Task | None:
    """The task of EWC's Fisher information."""
    if options.fisher_task is None:
        return None
    return load_task(options.fisher_task, data_dir=options.fisher_data_dir or options.data_dir)


def _caches(task: Task, model: str | Path, options: TrainOptions, progress: Progress) -> Iterator[ActivationCache]:
    """The caches of train, dev and test that the head reads."""
    spec = TaskSpec.of_task(task, options.train)
    needed = cache_options(options, spec, resolve_model(model, options.revision))
    dev = options.dev if options.validation is None else None
    for split in filter(None, (options.train, dev, options.test)):
        yield cache_activations(
            model, task, split, limit=drawn(task.split(split), options) if split == options.train else None,
            device=options.device, data_seed=options.data_seed, progress=progress,
            out=None if options.caches is None else f"{options.caches}/",
            revision=options.revision, random_weights=options.random_weights, max_length=options.max_length,
            model_name=options.model_name, **needed,
        )  # fmt: skip


def _given(task: Task, model: str | Path, options: TrainOptions) -> Iterator[ActivationCache]:
    """The given caches; raises CacheMismatch if one comes from another task, split or model."""
    identity = identify(model, revision=options.revision, random_weights=options.random_weights)
    splits = filter(None, (options.train, options.dev if options.validation is None else None, options.test))
    for path, split in zip(options.cache or (), splits, strict=True):
        cache = ActivationCache(path)
        expected = {"task": task.name, "split": split} | {k: identity[k] for k in ("weights_digest", "random_weights")}
        for key, value in expected.items():
            if (has := cache.spec.get(key)) != value:
                cache.close()
                raise CacheMismatch(f"{path}: {key} is {has!r}, expected {value!r}. Give a matching cache.")
        yield cache


def _run_on_caches(
    caches: Sequence[ActivationCache], out: Path, options: TrainOptions, recipe: Recipe | None,
    held: np.ndarray | None, signals: Signals | None, **more: Any,
) -> Run:  # fmt: skip
    """The run on the caches of train, dev (unless ``held`` marks a part of train that replaces it) and test."""
    train, *others = caches
    dev = others.pop(0) if held is None else None
    test = others[0] if others else None
    identity = {
        "task": train.spec["task"],
        "data": [c.spec["data_digest"] for c in (train, train if dev is None else dev)],
        "model": {key: train.spec.get(key) for key in MODEL},
        "cache": {key: train.spec.get(key) for key in ("pairs", "tokens", "store")},
        "layers": None if options.layers is None else [str(layer) for layer in options.layers],
        **({} if signals is None else signals.identity),
    }

    def prepare(how: TrainOptions) -> Training:
        training = prepare_feature_extraction(train, dev, how, test=test, held=held)
        return training if signals is None else signals.added(training)

    return _run(prepare, out, options, identity, recipe, **more)


def _asdict(options: TrainOptions) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in fields(options)}


def _opened(cache: ActivationCache | str | Path) -> AbstractContextManager[ActivationCache]:
    return nullcontext(cache) if isinstance(cache, ActivationCache) else ActivationCache(cache)


def _run(
    prepare: Callable[[TrainOptions], Training],
    out: Path,
    options: TrainOptions,
    identity: Mapping[str, Any],
    recipe: Recipe | None,
    *,
    source: Source | None,
    watcher: Watcher | None,
    progress: Progress,
) -> Run:
    """The run in ``out``, finished, resumed or new; source : where to find its task and model again."""
    splits = (options.train, options.dev, options.test)
    apart = {} if options.validation is None else {"validation": [options.validation, options.data_seed]}
    identity = json.loads(json.dumps({**identity, **options.numbers(), "splits": splits, **apart}))
    with locked_run(out), own_randomness(options.seed):
        done = begin(out, identity, overwrite=options.overwrite)
        if done is not None:
            run = open_run(out, done)
            if watcher is None:
                warn_of_constant(run.rows)
            return run
        options = replace(options, device=resolve_device(options.device))
        if options.dtype is Dtype.FLOAT16 and not options.device.startswith("cuda"):
            raise UsageError(f"float16 training needs a GPU, not {options.device}; choose bfloat16 or float32.")
        training = prepare(options)
        for objective in training.objectives:
            objective.check_labels()
            _warn(objective, options)
        sizes = _sizes(training.learner.groups())
        card = _card(training, out, recipe) | {**training.facts} | {"source": source, "identity": identity}
        write_card(out, card)

        def save(folder: Path, step: int, metrics: Mapping[str, float]) -> None:
            state = {"step": step, "metrics": dict(metrics), "complete": True}
            save_folder(folder, training.learner.saved_state(), card | state, training.source, training.layout)

        with noting_failure(out, card):
            history = fit(training, out, save, watcher=watcher, progress=progress)
        passes = ceil(history.log[-1]["epoch"])  # perhaps fewer than planned, and not all layers were trained
        card["parameters"] = card["parameters"] | {"trained": _trained(sizes, options, passes)}
        run = _finish(training, history, out, card, recipe, progress)
    if watcher is None and not processes()[0]:  # a search warns only about its best setting
        warn_of_constant(run.rows)
    return run


def _finish(
    training: Training, history: History, out: Path, card: dict[str, Any], recipe: Recipe | None, progress: Progress
) -> Run:
    """Evaluate a training, write its run and publish it."""
    options, objective = training.options, training.objectives[0]
    restore(training.learner, kept(out))
    evaluations = {one: _evaluated(training, one, progress) for one in training.objectives}
    found = evaluations.pop(objective)
    rows = training_rows(training, history, card, found, evaluations)
    if training.slices:
        rows = make_rows(pd.concat([rows, make_rows([*_of_slices(training, history, card, found)])]))
    tables = {}
    for one, of_roles in {objective: found, **evaluations}.items():
        about = columns_of(card, one.task.name)
        before = "" if one is objective else f"{slug(one.task.name)}."
        for role, evaluation in of_roles.items():
            split = getattr(options, role)
            tables[f"{before}{slug(split)}"] = evaluation.table({**about, "split": split, "step": history.step})
    if not processes()[0]:
        for name, table in tables.items():
            table.write(out / f"{name}{EXAMPLES}")
    outcome = {
        "step": history.step, "total_steps": history.total, "metrics": history.metrics,
        "test": found["test"].metrics if "test" in found else None,
        "cost": None if history.cost is None else asdict(history.cost),
    }  # fmt: skip
    finish_run(out, card | outcome, rows, recipe, _reads(card), history.seconds)
    return Run(rows, tuple(tables.values()), recipe, _reads(card), {"train": history.seconds}, read_card(out), out)


def _evaluated(training: Training, objective: Objective, progress: Progress) -> dict[str, Evaluation]:
    """The predictions for dev and, if there is one, test."""
    options, parts = training.options, {"dev": objective.dev, "test": objective.test}
    return {
        role: predict(
            training.learner, data, objective.task, module=objective.module, batch_size=options.batch_size,
            device=options.device, progress=progress,
        )
        for role, data in parts.items()
        if data is not None
    }  # fmt: skip


def _of_slices(
    training: Training, history: History, card: Mapping[str, Any], found: Mapping[str, Evaluation]
) -> Iterator[dict[str, Any]]:
    """Rows of the kept weights on the slices of dev and test."""
    options, objective = training.options, training.objectives[0]
    for role, evaluation in found.items():
        about = {"analysis": "train", "split": getattr(options, role), "step": history.step}
        about |= {"trained_parameters": card["parameters"]["trained"], "examples": len(objective.train)}
        yield from slice_rows(evaluation, training.slices[role], columns_of(card) | about, card["constant"])


def _reads(card: Mapping[str, Any]) -> tuple[Read, ...]:
    """The inputs of a run: the examples of train and dev, the file of slices, and the pretrained model."""
    source = card["source"] or {}
    splits = zip(card["splits"], card["identity"]["data"], strict=False)
    data = [Read(str(source.get("task") or card["task"]), "data", d, {"split": split}) for split, d in splits]
    slices = card["identity"].get("slices")
    data += [Read(slices, "slices", card["identity"]["signals"]["slices"])] if slices else []
    model = Read(str(source.get("model") or card["model"]), "model", str(card["encoder"].get("weights_digest") or ""))
    return (*data, model)


def _warn(objective: Objective, options: TrainOptions) -> None:
    """Warn of texts and words of each split that are not read."""
    for role in ("train", "dev", "test"):
        data, split = getattr(objective, role), getattr(options, role)
        if data is not None and data.truncated:
            log.warning(
                "%d texts of %s %s exceed the maximum length and are truncated.",
                *(data.truncated, objective.task.name, split),
            )
        if data is not None and data.unread:
            log.warning(
                "%d words of %s %s are truncated or have no pieces; they are left out.",
                *(data.unread, objective.task.name, split),
            )


def _called(encoder: Mapping[str, Any]) -> str:
    """The name of a run's initial model.

    "bert@cola-step-4" for a checkpoint, which is not the pretrained model; "mini@step-4" for one of its pretraining.
    """
    name, run = encoder["model"], encoder.get("checkpoint")
    if run is None:
        return str(name)
    return f"{name}@step-{encoder['step']}" if run == name else f"{name}@{run}-step-{encoder['step']}"


def _sizes(groups: Sequence[LayerGroup]) -> dict[str, int]:
    """The number of weights of each layer that can be trained, without the auxiliary ones."""
    return {
        layer: sum(weight.numel() for name, weight in members if not name.startswith("auxiliary."))
        for layer, members in groups
    }


def _trained(sizes: Mapping[str, int], options: TrainOptions, epochs: int) -> int:
    """The number of weights that are trained in any of the first ``epochs`` epochs."""
    layers = [*sizes]
    return sum(sizes[layers[i]] for i in ever_trained(layers, options, epochs))


def _card(training: Training, out: Path, recipe: Recipe | None) -> dict[str, Any]:
    """The card of a new run."""
    options, objective = training.options, training.objectives[0]
    data = (objective.train, objective.dev)
    parameters = {
        "trained": _trained(_sizes(training.learner.groups()), options, options.epochs),
        "all": sum(map(number_of_weights, training.learner.parameters())),
    }
    return new_card(
        out, options.run_name, options.seed, recipe, variant=options.variant,
        model=options.model_name or _called(training.encoder), task=objective.task.name,
        splits=[s for s in (options.train, options.dev, options.test) if s], regime=options.regime,
        prefix=training.layout.prefix, target=objective.task.on_card(), head=objective.head.on_card(),
        layers=list(training.learner.layers), parameters=parameters,
        constant=constant_answer(objective.task, objective.train),
        caches=[str(one.cache.path) for one in data if isinstance(one, (PooledData, TokenData))],
        encoder=training.encoder, examples=[len(one) for one in data], truncated=[one.truncated for one in data],
        unread_words=[one.unread for one in data],
    )  # fmt: skip
