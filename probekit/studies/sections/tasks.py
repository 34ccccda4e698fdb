"""Tasks that share caches, an analysis of each task and model with all its weights, and the scoreboard.

Tasks whose files are in one folder share a cache for each split, because they read the same sentences: one for tasks
about texts, one for tasks about pairs of texts, and one for tasks about words and spans, which needs the vectors of
all pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from probekit.analyses.scoreboard import line_name
from probekit.analysis import analyses
from probekit.errors import ProbekitError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import Tasks
from probekit.studies.sections.layers import Part, Weights, analysis_step, cache_step
from probekit.studies.sections.names import Plan, guarded, leaves_of, task_name
from probekit.studies.sources import Sources
from probekit.studies.steps import Inside, Outside, Step
from probekit.tasks.task import TaskKind
from probekit.tasks.union import JOIN

TEXTS, PAIRS, WORDS = "texts", "pairs", "words"
"""What a cache stores: vectors of texts, of pairs of texts, or of all pieces."""
BOARD = "rows/scoreboard.parquet"


class Key(NamedTuple):
    """What tasks must have in common to share a cache."""

    folder: str
    level: str
    train: str
    dev: str
    limit: int | None
    limit_dev: int | None


@dataclass(slots=True, eq=False)
class Shared:
    """The tasks that share the caches of a key, in the order of the file, and these caches by model."""

    key: Key
    number: int = 0  # of others with the same folder and level
    tasks: list[str] = field(default_factory=list)
    caches: dict[str, list[Step]] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """In names of files."""
        where = task_name(self.tasks[0]) if len(self.tasks) == 1 else slug(Path(self.key.folder).name or "tasks")
        return f"{where}.{self.key.level}" + (f".{self.number}" if self.number else "")


@dataclass(frozen=True, slots=True)
class _Read:
    """A task of a section, and the caches that it reads, or why it cannot be read."""

    section: Tasks
    task: str
    caches: Shared | None = None
    error: str = ""


def task_steps(plan: Plan) -> list[Step]:
    """The steps of all sections of tasks: caches, analyses, and the scoreboard of the tasks that have a group."""
    shared: dict[Key, Shared] = {}
    sections, models = plan.study.of_tasks, plan.study.models
    read = [_read(plan, section, task, shared) for section in sections for task in dict.fromkeys(section.tasks)]
    for one in shared.values():
        one.caches = {model: [*_caches(plan, one, model)] for model in models}
    single = [(one, model) for one in read if one.section.analysis != "shift" for model in models]
    measured = [(one.section.group, step) for one, model in single for step in _analyses(plan, one, model)]
    ranked = [step for group, step in measured if group]
    return [
        *(step for one in shared.values() for steps in one.caches.values() for step in steps),
        *(step for _, step in measured),
        *(
            step
            for section in sections
            if section.analysis == "shift"
            for model in models
            for step in _shifts(plan, section, [one for one in read if one.section is section], model)
        ),
        *([_scoreboard(plan, read, ranked)] if any(not step.error for step in ranked) else []),
    ]


def _read(plan: Plan, section: Tasks, task: str, shared: dict[Key, Shared]) -> _Read:
    """A task of a section, with the caches of its key among those that are shared."""
    try:
        if section.analysis == "pairs":  # which need no caches
            plan.sources.pairs(task)
            return _Read(section, task)
        key = _key(plan, section, task)
    except (ProbekitError, OSError) as error:
        return _Read(section, task, error=" ".join(str(error).split()))
    caches = shared.setdefault(key, Shared(key, sum(other[:2] == key[:2] for other in shared)))
    caches.tasks += [task] * (task not in caches.tasks)
    return _Read(section, task, caches)


def _key(plan: Plan, section: Tasks, name: str) -> Key:
    """The caches of a task; ProbekitError or OSError if it cannot be read."""
    study, task = plan.study, plan.sources.task(name)
    dev = section.dev if section.dev != "dev" or "dev" in task.splits else "test"
    splits = [task.split(split) for split in (section.train, dev)]
    level = PAIRS if any(split.paired for split in splits) else TEXTS
    if task.kind in (TaskKind.SEQUENCE_LABELLING, TaskKind.SPAN_LABELLING) or section.options.get("span"):
        level = WORDS
    limits = section.limit or study.limit, section.limit_dev or study.limit_dev or section.limit or study.limit
    return Key(str(plan.sources.folder(name) or ""), level, section.train, dev, *limits)


def _weights(plan: Plan) -> list[Weights]:
    return [Weights(seed=None if of == "pretrained" else plan.study.random_seed) for of in plan.study.of]


def _caches(plan: Plan, shared: Shared, model: str) -> Iterator[Step]:
    """The caches of train and of dev for each kind of weights."""
    key = shared.key
    stores: dict[str, Any] = {"tokens": True} if key.level == WORDS else {"pooling": ["mean"]}
    for weights in _weights(plan):
        for split, limit in ((key.train, key.limit), (key.dev, key.limit_dev)):
            part, called = Part(shared.tasks, split, limit, plan.study.data_seed), weights.name(shared.called, model)
            of_tasks = partial(_task, plan.sources, shared.tasks, key)
            yield cache_step(plan, called, part, model, weights, stores, of_tasks)


def _task(sources: Sources, tasks: Sequence[str], key: Key) -> dict[str, Any]:
    """The arguments for one task, or for several that are read together, identified by the digests of their splits."""
    read = [sources.task_arguments(task, *dict.fromkeys((key.train, key.dev)))["task"].digest for task in tasks]
    where = {"data_dir": Outside(key.folder)} if key.folder else {}
    return {"task": Outside(JOIN.join(tasks), json.dumps(read)), **where}


def _analyses(plan: Plan, one: _Read, model: str) -> Iterator[Step]:
    """The analysis of a task on a model, with all its weights."""
    section, task, shared = one.section, one.task, one.caches
    name = f"{section.analysis} {task_name(task)}.{slug(model)}"
    options = arguments_of(section.analysis, section.options)
    if one.error:
        yield Step(name, leaves=leaves_of(name), error=one.error)
    elif shared is None:
        yield from _pairs(plan, section, task, model, name)
    else:
        key = shared.key
        error = plan.sources.unfit(task, key.train, key.dev) if section.analysis == "probe" else ""
        options |= _task(plan.sources, [task], key) if len(shared.tasks) > 1 else {}
        yield analysis_step(section.analysis, name, shared.caches[model], options, error)


def _pairs(plan: Plan, section: Tasks, task: str, model: str, name: str) -> Iterator[Step]:
    """Minimal pairs scored by the head of each kind of weights."""
    for weights in _weights(plan):
        called = name + ("" if weights.seed is None else f".random-{weights.seed}")
        yield guarded(called, leaves_of(called), partial(_scored, plan, section, task, model, weights, called))


def _scored(plan: Plan, section: Tasks, task: str, model: str, weights: Weights, name: str) -> Step:
    from probekit.models.scoring.load import is_causal

    sources, leaves = plan.sources, leaves_of(name)
    is_causal(sources.models[model], "it cannot score minimal pairs")
    folder, limit = sources.folder(task), section.limit or plan.study.limit
    digest = xxhash.xxh3_128_hexdigest(repr(sources.pairs(task)).encode("utf-8", "surrogatepass"))
    arguments = {
        "source": sources.model_arguments(model)["model"], "task": Outside(task, digest),
        **({"data_dir": Outside(str(folder))} if folder else {}),
        "model_name": model, "random_weights": weights.seed, **arguments_of("pairs", section.options),
        **({"limit": limit} if limit else {}), "out": Inside(leaves[0]),
    }  # fmt: skip
    return Step(name, "pairs", arguments, (), leaves, seconds=analyses()["pairs"].in_suites)


def _shifts(plan: Plan, section: Tasks, read: Sequence[_Read], model: str) -> Iterator[Step]:
    """Probes of each task of a section on all of them; tasks that cannot be read are left out, and said."""
    for one in read:
        if one.error:
            yield Step(f"shift {task_name(one.task)}.{slug(model)}", error=one.error)
    of_tasks = {one.task: one.caches for one in read if one.caches}
    if len(of_tasks) < 2:
        return
    name, sources = f"shift {section.group}.{slug(model)}".replace(" .", " "), plan.sources
    labels = {sources.task(task).label_names: task for task in of_tasks}
    folders = {shared.key.folder for shared in of_tasks.values()}
    joint = any(len(shared.tasks) > 1 for shared in of_tasks.values())
    error, options = "", arguments_of("shift", section.options)
    if len(labels) > 1:
        (names, task), (other_names, other), *_ = labels.items()
        which = f"{task} has the labels {', '.join(names)}, {other} {', '.join(other_names)}"
        error = f"{which}; shift needs equal labels in the same order"
    elif joint and len(folders) > 1:
        error = "the tasks of a section of shift must be in one folder"
    elif joint:
        given = [sources.task_arguments(task, one.key.train, one.key.dev) for task, one in of_tasks.items()]
        options |= {name: value for name, value in given[0].items() if name != "task"}
        options |= {"tasks": [one["task"] for one in given]}
    caches = [step for shared in dict.fromkeys(of_tasks.values()) for step in shared.caches[model]]
    step = analysis_step("shift", name, caches, options, error)
    yield replace(step, leaves=step.leaves[:1], partly=False, together=(), inputs=())


def _scoreboard(plan: Plan, read: Sequence[_Read], measured: Sequence[Step]) -> Step:
    """The step that puts all analyses on one scale."""
    groups = []
    for one in read:
        if one.section.group and one.section.analysis != "shift" and not one.error:
            of = plan.sources.task(one.task) if one.caches else plan.sources.pairs(one.task)
            groups.append(f"{line_name(one.section.analysis, of.name)}={one.section.group}")
    places, needs = [Inside(step.leaves[0]) for step in measured], tuple(step.name for step in measured)
    arguments: dict[str, Any] = {"sources": places, "groups": groups, "out": Inside(BOARD)}
    if (against := plan.study.against) is not None:
        arguments["against"] = Outside(against, plan.sources.file_digest(against))
    return Step("scoreboard", "scoreboard", arguments, needs, (BOARD,), seconds=30.0, partly=True)
