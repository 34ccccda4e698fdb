"""Multi-task fine-tuning: one encoder, a head for each task, and where the tasks of a run are found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.data.validation import set_apart
from probekit.adaptation.heads.spec import choose_head, head_spec, reads_apart
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.runs.constant import constant_answer
from probekit.adaptation.training.fine_tuning import pooling_of
from probekit.adaptation.training.objective import Objective, Training, rating_scale
from probekit.errors import UsageError
from probekit.files import slug
from probekit.rows.examples import EXAMPLES
from probekit.tasks import load_task
from probekit.tasks.context import in_context
from probekit.tasks.task import Split, Task


@dataclass(frozen=True, slots=True, eq=False)
class Further:
    """A further task of a training, with its parts.

    Attributes
    ----------
    task : Task
        The task.
    train, dev, test : Split
        The examples to train on, to evaluate on, and to evaluate on once.
    source : Mapping[str, Any]
        ``task`` and ``data_dir``, with which ``load_task`` finds the task.
    """

    task: Task
    train: Split
    dev: Split
    test: Split | None
    source: Mapping[str, Any]


def further_tasks(options: TrainOptions, first: str) -> list[Further]:
    """The tasks of ``options.also``, with the splits that the options name; a limit holds for each task.

    Parameters
    ----------
    first : str
        Name of the first task.

    Raises
    ------
    UsageError
        For a task twice, feature extraction, and splits without examples.
    """
    if options.also is None:
        return []
    if options.teacher is not None:
        raise UsageError("a teacher knows the labels of one task; leave out --teacher or --also.")
    found = list[Further]()
    for name in (part.strip() for part in options.also.split(",")):
        task = load_task(name, data_dir=options.data_dir)
        if task.name in (first, *(one.task.name for one in found)):
            raise UsageError(f"{task.name} is given twice; each task of --task and --also has one head.")
        task = in_context(task, options.context)
        train, dev, _ = set_apart(task, options)
        spec = TaskSpec.of_task(task, train.name)
        if not spec.kind.cacheable or spec.marked:
            raise UsageError(f"{task.name} cannot be a further task: its examples are not one text or pair.")
        test = task.splits.get(options.test or "")
        for part in (train, dev):
            if not len(part):
                raise UsageError(f"{task.name} {part.name} has no examples; give a split with some.")
        found.append(Further(task, train, dev, test, source_of(name, options.data_dir)))
    return found


def with_further(training: Training, others: Sequence[Further]) -> Training:
    """The training with a head and an objective for each further task, and what the card says of these."""
    if not others:
        return training
    objectives, learned = list(training.objectives), []
    for i, other in enumerate(others, start=1):
        objective = _objective(training, other, f"head_{i}")
        objectives.append(objective)
        learned.append(
            {
                "module": objective.module, "task": objective.task.name, "target": objective.task.on_card(),
                "head": objective.head.on_card(), "constant": constant_answer(objective.task, objective.train),
                "examples": [len(objective.train), len(objective.dev)],
                "source": dict(other.source),
            }
        )  # fmt: skip
    return replace(training, objectives=tuple(objectives), facts={**training.facts, "also": learned})


def _objective(training: Training, other: Further, module: str) -> Objective:
    options, first, learner = training.options, training.objectives[0], training.learner
    encoder = learner.encoder
    kind, spec = encoder.config.model_type, TaskSpec.of_task(other.task, other.train.name)
    how = (
        options if spec.kind == first.task.kind and spec.paired == first.task.paired else replace(options, head="auto")
    )
    name = choose_head(how, spec, Regime.FINE_TUNE, kind)
    apart = reads_apart(replace(how, pairs=how.pairs if spec.paired else "auto"), name, spec, kind)
    labels = (replace(other.task, splits={s.name: s}).labels(s.name) for s in (other.train, other.dev))
    head = head_spec(
        replace(how, pooling="auto") if spec.tags else how, name, width=int(encoder.config.hidden_size), apart=apart,
        pooling=pooling_of(encoder, options), scale=rating_scale(spec, *labels),
    )  # fmt: skip
    learner.add_module(module, head.build(spec))
    if head.pooling == "pooler":
        encoder.pooler.requires_grad_(requires_grad=True)
    assert isinstance(first.train, TextData)
    data = [
        None if split is None else TextData(other.task, split, first.train.tokenizer, apart=apart)
        for split in (other.train, other.dev, other.test)
    ]
    assert data[0] is not None
    assert data[1] is not None
    return Objective(spec, head, data[0], data[1], data[2], module)


def mixed_names(card: Mapping[str, Any]) -> str:
    """The tasks that a run was trained on, such as "rte+mrpc"."""
    return "+".join([card["task"], *(one["task"] for one in card.get("also") or ())])


def card_for(card: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The card of a run as that of one of its tasks: with its head, its labels and its constant prediction."""
    chosen: dict[str, Any] = next((one for one in card.get("also") or () if one["task"] == task), {})
    return {"module": "head", **card, **chosen}


def predictions_name(card: Mapping[str, Any], split: str) -> str:
    """The name of the file with a run's predictions for a split, of the task whose card this is."""
    before = "" if card.get("module", "head") == "head" else f"{slug(card['task'])}."
    return f"{before}{slug(split)}{EXAMPLES}"


def source_of(task: str, data_dir: str | Path | None) -> dict[str, str | None]:
    """The arguments with which ``load_task`` finds a task from any folder."""
    return {
        "task": place_of(task) if ".toml" in task else task,
        "data_dir": None if data_dir is None else str(Path(data_dir).expanduser().resolve()),
    }


def place_of(name: str | Path) -> str:
    """The absolute form of a path; other names, such as hub ids, are unchanged."""
    whole, toml, domain = str(name).partition(".toml:")
    path, part = (f"{whole}.toml", f":{domain}") if toml else (str(name), "")
    return str(Path(path).expanduser().resolve()) + part if Path(path).expanduser().exists() else str(name)


def own_sources(card: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """Where the tasks that a run was trained on are found again, by name; the first one chose the epoch.

    Tasks that were defined in Python have only their name.
    """
    first = {"task": card["task"], "data_dir": None} | (card.get("source") or {})
    return {card["task"]: first} | {one["task"]: dict(one["source"]) for one in card.get("also") or ()}
