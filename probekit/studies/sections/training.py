"""Training runs, their transfer to other tasks, and the comparison of both regimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

from probekit.adaptation.data.validation import VALIDATION
from probekit.adaptation.options import PLAIN, Preset, Regime, regime_defaults
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.targets import target_options
from probekit.errors import ProbekitError, UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import Evaluate, Pretrain, Train
from probekit.studies.sections.names import Plan, Run, encoder_name, guarded, pretraining_name, rows_leaf, task_name
from probekit.studies.steps import Inside, Outside, Step
from probekit.tasks.context import Context, in_context

PIECES = 25.0
"""Approximate number of pieces of a text."""


def pretraining_steps(plan: Plan, block: Pretrain) -> Iterator[Step]:
    """The untrained encoders of a section, one for each seed, and the training of each on its objectives."""
    encoder = plan.encoder(block)
    for seed in block.seeds:
        name = encoder_name(encoder, seed)
        leaves = tuple(f"encoders/{name}/{file}" for file in ("config.json", "model.safetensors"))
        yield guarded(f"encoder {name}", leaves, partial(_new, plan, encoder, seed, leaves))
        for model, objectives in block.on.items():
            if objectives:
                run = pretraining_name(model, seed)
                leaves_of_run = tuple(f"runs/{run}/{file}" for file in ("probekit.json", "rows.parquet"))
                yield guarded(run, leaves_of_run, partial(_pretrain, plan, block, model, seed, leaves_of_run))


def _new(plan: Plan, encoder: str, seed: int, leaves: tuple[str, ...]) -> Step:
    arguments = dict(plan.study.encoders[encoder])
    for key in ("tokenizer", "elmo"):
        if key in arguments:
            arguments[key] = Outside(arguments[key], plan.sources.model_digest(arguments[key]))
    for key in ("config", "vocabulary"):
        if isinstance(arguments.get(key), str):
            arguments[key] = Outside(arguments[key], plan.sources.file_digest(arguments[key]))
    name = f"encoder {encoder_name(encoder, seed)}"
    return Step(
        name, "new_encoder", {**arguments, "seed": seed, "out": Inside(leaves[0].rpartition("/")[0])}, leaves=leaves
    )


def _pretrain(plan: Plan, block: Pretrain, model: str, seed: int, leaves: tuple[str, ...]) -> Step:
    data_dir = plan.sources.data_dir
    given = arguments_of("pretrain_encoder", block.options)
    options = EncoderOptions(**given, data_dir=data_dir)
    if twice := {slug(one) for one in block.on if one != model} & {slug(model)}:
        raise UsageError(f"two encoders have the file name {twice.pop()}; give them different names.")
    untrained = encoder_name(plan.encoder(block), seed)
    arguments: dict[str, Any] = {
        "model": Inside(f"encoders/{untrained}"),
        "on": [plan.sources.objective(name, options) for name in block.on[model]],
        **given, **({} if data_dir is None else {"data_dir": Outside(str(data_dir))}),
        "seed": seed, "run_name": model, "out": Inside(leaves[0].rpartition("/")[0]),
    }  # fmt: skip
    work = _work(plan, options, model, block.on[model])
    return Step(leaves[0].split("/")[1], "pretrain_encoder", arguments, (f"encoder {untrained}",), leaves, work, 10.0)


def _work(plan: Plan, options: EncoderOptions, model: str, objectives: list[str]) -> float:
    """A rough estimate of the floating-point operations of a pretraining, validations included."""
    size, words = plan.size(model), options.batch_size * PIECES
    predicts = sum(name.split(":")[0] in GENERATIVE for name in objectives) / len(objectives)
    outputs = predicts * options.outputs * size.width
    return 6 * options.steps * words * (1.3 * size.weights + outputs)


GENERATIVE = ("language-model", "masked-language-model", "translate", "skip-thought", "reply", "denoise")
"""Objectives that predict words."""


def _dev(run: Run) -> str | None:
    """The split that chooses the epoch of a run; None if that is a part of train."""
    share = run.plan.sources.set_apart(run.task, run.block.dev, run.block.validation)
    return run.block.dev if share is None else None


def training_steps(plan: Plan, block: Train) -> Iterator[Step]:
    """The runs of a section, one per model, task, regime and seed, and their evaluation on the other tasks."""
    for run in plan.runs(block):
        predictions = f"{slug(_dev(run) or VALIDATION)}.examples.parquet"
        files = ("probekit.json", "rows.parquet", "head.safetensors", predictions)
        leaves = tuple(f"runs/{run.name}/{file}" for file in files)
        yield guarded(run.name, leaves, partial(_train, run, leaves))
        others = [other for other in block.tasks if other != run.task]
        if block.transfer and others:
            name, leaf = f"transfer {run.name}", f"rows/transfer.{run.name}.parquet"
            yield guarded(name, (leaf,), partial(_transfer, run, others, name, leaf))


def _train(run: Run, leaves: tuple[str, ...]) -> Step:
    block, sources, dev = run.block, run.plan.sources, _dev(run)
    if block.test and not sources.labelled(run.task, block.test):
        raise UsageError(f"{run.task} {block.test} has no labels; leave out test, or give files with labels.")
    in_context(sources.task(run.task), block.of_regime(run.regime).get("context", Context.NONE))  # checked first
    _check_unseen(run)
    of_task = sources.task_arguments(run.task, block.train, dev, block.test)
    (of_model, needs), scratch = run.plan.model(run.model, run.seed), ""
    arguments: dict[str, Any] = {
        **of_task, **of_model,
        "train": block.train, "dev": block.dev, "test": block.test, "limit": block.limit,
        **({} if block.validation is None else {"validation": block.validation}),
        **({} if block.limit is None and dev else {"data_seed": block.data_seed}),
        **arguments_of("train", block.of_regime(run.regime)),
        "regime": run.regime, "seed": run.seed, "variant": block.name, "out": run.folder,
    }  # fmt: skip
    if block.teacher:
        teacher = _teacher(run)
        arguments["teacher"] = teacher.folder
        needs += (teacher.name,)
    if run.regime is Regime.FEATURE_EXTRACTION:
        scratch = f"caches/{run.name}" if needs else ""  # no other step reads the caches of an encoder's run
        arguments["caches"] = Inside(scratch or "caches")
    work, space = _cost(run)
    return Step(run.name, "train", arguments, needs, leaves, work, space=space, scratch=scratch)


def _teacher(run: Run) -> Run:
    """The run from which a run is distilled."""
    wanted = run.model, run.task, Regime.FINE_TUNE, run.seed
    for block in run.plan.study.train:
        for one in run.plan.runs(block) if block.name == run.block.teacher else ():
            if (one.model, one.task, one.regime, one.seed) == wanted:
                return one
    raise UsageError(
        f"the teacher {run.block.teacher} has no fine-tuning run of {run.model} on {run.task} with seed {run.seed}; "
        "add it to [[train]]."
    )


def _check_unseen(run: Run) -> None:
    """Raise UsageError if the encoder is pretrained on the labels of the examples that the run reports."""
    pretraining = run.plan.pretraining(run.model)
    reported = {_dev(run) or run.block.train, run.block.test}
    if pretraining is not None and run.task in pretraining.on[run.model] and PRETRAINED_ON in reported:
        part = PRETRAINED_ON if _dev(run) else f"a held-out part of {PRETRAINED_ON}"
        raise UsageError(
            f"{run.model} is pretrained on {run.task} {PRETRAINED_ON}, with labels, so results on {part} would say "
            f"nothing about new examples. Evaluate on a labelled dev split instead: without validation, and with "
            f'dev = "NAME" if its name is not dev.'
        )


PRETRAINED_ON = "train"
"""The split of a task that pretraining reads."""


USED_EVALUATIONS = 0.04
"""Of the largest number of evaluations of a preset, the share after which a plateau schedule has usually ended."""


def _cost(run: Run) -> tuple[float, float]:
    """A rough estimate of a run's floating-point operations, and of the bytes of its token caches."""
    block, sources = run.block, run.plan.sources
    train, split = sources.pieces(run.task, block.train, block.limit), _dev(run)
    dev = 0.0 if split is None else sources.pieces(run.task, split)
    options = block.of_regime(run.regime)
    if preset := options.get("preset"):
        part = sources.task(run.task).split(block.train)
        found = target_options(run.task, sources.examples(run.task, part.name, block.limit), paired=part.paired,
                               preset=Preset(preset))  # fmt: skip
        options = found | {"epochs": ceil(found["epochs"] * USED_EVALUATIONS)} | options
    epochs = options.get("epochs") or regime_defaults(run.regime, options.get("head", "auto"))["epochs"]
    size = run.plan.size(run.model)
    if run.regime is Regime.FINE_TUNE:
        taught = 2 * size.weights * train if block.teacher else 0.0
        kept = min(1.0, (options.get("keep_layers") or size.layers) / (size.layers - 1))
        return taught + kept * size.weights * (6 * train * epochs + 2 * dev * (epochs + 1)), 0.0
    hidden, light = options.get("hidden_size") or 300, options.get("head") in PLAIN
    if options.get("head") == "max-mlp":
        head = 2 * size.width * hidden
    else:
        head = 0 if light else 8 * hidden * (size.width + hidden) + 24 * hidden**2
    made = run.plan.pretraining(run.model) is not None  # their caches are deleted after the run
    shared = light or made or run.seed != block.seeds[0]  # runs with different seeds share the caches
    space = 0.0 if shared else (train + dev) * size.layers * size.width * 4
    return 2 * size.weights * (train + dev) + head * (6 * train * epochs + 2 * dev * (epochs + 1)), space


def _transfer(run: Run, others: list[str], name: str, leaf: str) -> Step:
    """The evaluation of a run on the other tasks of its section."""
    block, sources = run.block, run.plan.sources
    found, errors = {}, []
    for other in others:
        try:
            found[other] = sources.task_arguments(other, block.dev)
        except (ProbekitError, OSError) as error:
            errors.append(error)  # its training reports it
    if not found:
        raise errors[0]
    folders = {sources.folder(other) for other in found}
    if len(folders) > 1:
        raise UsageError(f"the other tasks must have their files in one folder, not in {len(folders)}.")
    return _evaluation(run, name, leaf, found, block.dev)


def evaluation_steps(plan: Plan, block: Evaluate) -> Iterator[Step]:
    """The evaluation of each run on one task on another task."""
    runs = [run for train in plan.study.train for run in plan.runs(train) if run.task == block.of]
    if not runs:
        raise UsageError(f"[[evaluate]] needs runs on {block.of}; add it to [[train]].")
    for run in runs:
        leaf = f"rows/evaluate.{task_name(block.task)}.{run.name}.parquet"
        name = f"evaluate {task_name(block.task)}.{run.name}"
        yield guarded(name, (leaf,), partial(_evaluate, run, block, name, leaf))


def _evaluate(run: Run, block: Evaluate, name: str, leaf: str) -> Step:
    found = {block.task: run.plan.sources.task_arguments(block.task, block.split)}
    own = run.regime is Regime.FEATURE_EXTRACTION and run.plan.pretraining(run.model)
    options = arguments_of("evaluate", block.options)
    return _evaluation(run, name, leaf, found, block.split, options, f"caches/{slug(name)}" if own else "")


def _evaluation(
    run: Run,
    name: str,
    leaf: str,
    found: Mapping[str, Mapping[str, Any]],
    split: str,
    options: Mapping[str, Any] | None = None,
    scratch: str = "",
) -> Step:
    """The evaluation of a run on tasks, whose arguments are given."""
    sources, tasks = run.plan.sources, [one["task"] for one in found.values()]
    arguments: dict[str, Any] = {
        **next(iter(found.values())), "task": tasks, "run": run.folder, "split": split, **(options or {}),
        "out": Inside(leaf),
    }  # fmt: skip
    if run.regime is Regime.FEATURE_EXTRACTION:
        arguments |= {"model": run.plan.model(run.model, run.seed)[0]["model"], "caches": Inside(scratch or "caches")}
    work = 2 * run.plan.size(run.model).weights * sum(sources.pieces(task, split) for task in found)
    return Step(name, "evaluate", arguments, (run.name,), (leaf,), work, scratch=scratch)


def guidelines_steps(plan: Plan) -> Iterator[Step]:
    """Paired comparisons of the regimes, for all tasks of a variant together, if both are trained.

    Several fine-tuned variants on the same tasks give one comparison of all settings on these tasks instead.
    """
    both = [block for block in plan.study.train if set(block.regimes) == set(Regime)]
    if shared := _compared(plan):
        runs = [run for block in plan.study.train for run in plan.runs(block) if run.task in shared]
        yield _guidelines("guidelines", runs)
        both = [block for block in both if not set(block.tasks) & shared]
    for variant in dict.fromkeys(block.name for block in both):
        runs = [run for block in both if block.name == variant for run in plan.runs(block)]
        yield _guidelines(f"guidelines {variant}".strip(), runs)


def _compared(plan: Plan) -> set[str]:
    """The tasks on which two or more named sections fine-tune, at least one of them with several seeds.

    With one seed of each, guidelines would say nothing of the settings.
    """
    named = [block for block in plan.study.train if block.name and Regime.FINE_TUNE in block.regimes]
    by_task = {task: [block for block in named if task in block.tasks] for block in named for task in block.tasks}
    return {
        task
        for task, blocks in by_task.items()
        if len({block.name for block in blocks}) > 1 and any(len(block.seeds) > 1 for block in blocks)
    }


def _guidelines(name: str, runs: Sequence[Run]) -> Step:
    arguments = {"runs": [run.folder for run in runs], "out": Inside(rows_leaf(name))}
    names = tuple(run.name for run in runs)
    return Step(name, "guidelines", arguments, names, (rows_leaf(name),), seconds=20.0, partly=True)
