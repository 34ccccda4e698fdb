"""The steps of a suite: caches that tasks share, an analysis of each task and model, the scoreboard, figure and page.

Tasks whose files are in one folder share a cache for each split, because they read the same sentences: one for tasks
about texts, one for tasks about pairs of texts, and one for tasks about words and spans, which needs the vectors of
all pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from probekit.analyses.scoreboard import line_name
from probekit.analysis import analyses
from probekit.errors import ProbekitError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.plan import unique
from probekit.studies.schema import Figure, Study, Table
from probekit.studies.sections.names import guarded, task_name
from probekit.studies.sections.outputs import figure_step, report_step, table_step
from probekit.studies.sources import Sources
from probekit.studies.steps import Inside, Outside, Step
from probekit.studies.suites.schema import Suite, Tasks
from probekit.tasks.task import TaskKind
from probekit.tasks.union import JOIN

TEXTS, PAIRS, WORDS = "texts", "pairs", "words"
"""What a cache stores: vectors of texts, of pairs of texts, or of all pieces."""


class Key(NamedTuple):
    """What tasks must have in common to share a cache."""

    folder: str
    level: str
    train: str
    dev: str
    limit: int | None
    limit_dev: int | None


@dataclass(slots=True)
class Shared:
    """The tasks that share the caches of a key, in the order of the file."""

    key: Key
    number: int = 0  # of others with the same folder and level
    tasks: list[str] = field(default_factory=list)

    @property
    def called(self) -> str:
        """In names of files."""
        where = task_name(self.tasks[0]) if len(self.tasks) == 1 else slug(Path(self.key.folder).name or "tasks")
        return f"{where}.{self.key.level}" + (f".{self.number}" if self.number else "")


@dataclass(frozen=True, slots=True)
class _Plan:
    suite: Suite
    sources: Sources

    def key(self, section: Tasks, name: str) -> Key:
        """The caches of a task; ProbekitError or OSError if it cannot be read."""
        task = self.sources.task(name)
        dev = section.dev if section.dev != "dev" or "dev" in task.splits else "test"
        for split in (section.train, dev):
            task.split(split)
        of_words = task.kind in (TaskKind.SEQUENCE_LABELLING, TaskKind.SPAN_LABELLING)
        paired = any(task.split(split).paired for split in (section.train, dev))
        level = WORDS if of_words or section.options.get("span") else PAIRS if paired else TEXTS
        folder = self.sources.folder(name)
        suite = self.suite
        limits = section.limit or suite.limit, section.limit_dev or suite.limit_dev or section.limit or suite.limit
        return Key("" if folder is None else str(folder), level, section.train, dev, *limits)

    def pairs_key(self, name: str) -> Key:
        """Of minimal pairs, which need no caches: their folder; ProbekitError or OSError if they cannot be read."""
        folder = self.sources.folder(name)
        self.sources.pairs(name)
        return Key("" if folder is None else str(folder), TEXTS, "test", "test", None, None)

    def weights(self) -> list[int | None]:
        """None for the pretrained weights, the seed for random ones."""
        return [None if of == "pretrained" else self.suite.random_seed for of in self.suite.of]


def study_of(suite: Suite) -> Study:
    """The title and the models of a suite, as a study without sections."""
    return Study(name=suite.name, title=suite.title, about=suite.about, models=suite.models, data=suite.data)


def suite_steps(suite: Suite, data_dir: str | Path | None = None) -> list[Step]:
    """The steps of a suite, each after the steps it needs.

    Parameters
    ----------
    suite : Suite
        The suite.
    data_dir : path, optional
        Folder with one subfolder per task (default: the hub).

    Returns
    -------
    list of Step
        A task or model that cannot be read affects only its steps, which hold the error.
    """
    plan = _Plan(suite, Sources(None if data_dir is None else Path(data_dir), suite.data, suite.models))
    shared: dict[Key, Shared] = {}
    keys: dict[tuple[int, str], Key | str] = {}
    for i, section in enumerate(suite.tasks):
        for name in section.tasks:
            try:
                key = plan.pairs_key(name) if section.analysis == "pairs" else plan.key(section, name)
            except (ProbekitError, OSError) as error:
                keys[i, name] = " ".join(str(error).split())
                continue
            keys[i, name] = key
            if section.analysis != "pairs":
                alike = sum(other[:2] == key[:2] for other in shared)
                of = shared.setdefault(key, Shared(key, alike))
                of.tasks += [name] * (name not in of.tasks)
    caches = {
        (of.key, model): tuple(step for seed in plan.weights() for step in _caches(plan, of, model, seed))
        for of in shared.values()
        for model in suite.models
    }
    measured = [
        step
        for i, section in enumerate(suite.tasks)
        if section.analysis != "shift"
        for name in section.tasks
        for model in suite.models
        for step in _analyses(plan, section, name, model, keys[i, name], shared, caches)
    ]
    shifts = [
        step
        for i, section in enumerate(suite.tasks)
        if section.analysis == "shift"
        for model in suite.models
        for step in _shifts(plan, i, model, keys, shared, caches)
    ]
    steps = [*(step for some in caches.values() for step in some), *measured, *shifts]
    if any(not step.error for step in measured):
        board = _scoreboard(plan, keys, measured)
        steps += [board, table_step(Table(kind="scoreboard"), [board])]
        steps.append(figure_step(Figure(kind="scoreboard", rows="scoreboard"), [board]))
    if matrices := [step for step in shifts if not step.error]:
        steps.append(figure_step(Figure(kind="shift", rows="shift"), matrices))
    return unique([*steps, report_step(suite.title, steps)])


def check_models(suite: Suite) -> None:
    """Raise the error of the first model if none can be read, before any data are."""
    sources, errors = Sources(None, {}, suite.models), []
    for model in suite.models:
        try:
            sources.size(model)
            return
        except (ProbekitError, OSError) as error:
            errors.append(error)
    raise errors[0]


def _caches(plan: _Plan, shared: Shared, model: str, seed: int | None) -> Iterator[Step]:
    """The caches of train and of dev for one kind of weights."""
    key, suite, sources = shared.key, plan.suite, plan.sources
    for split, limit in ((key.train, key.limit), (key.dev, key.limit_dev)):
        name = (
            f"cache {shared.called}.{slug(model)}"
            + ("" if seed is None else f".random-{seed}")
            + f".{slug(split)}"
            + (f".limit-{limit}" if limit else "")
        )
        leaf = f"caches/{slug(name.removeprefix('cache '))}.h5"

        def make(split: str = split, limit: int | None = limit, name: str = name, leaf: str = leaf) -> Step:
            size = sources.size(model)
            pieces = sum(sources.pieces(task, split, limit) for task in shared.tasks)
            texts = sum(sources.examples(task, split, limit) for task in shared.tasks)
            arguments: dict[str, Any] = {
                **_task(sources, shared.tasks, key), **sources.model_arguments(model), "split": split,
                "random_weights": seed, "limit": limit, **({"data_seed": suite.data_seed} if limit else {}),
            }  # fmt: skip
            arguments |= {"tokens": True} if key.level == WORDS else {"pooling": ["mean"]}
            space = (pieces if key.level == WORDS else texts) * size.layers * size.width * 4
            work = 2 * size.weights * pieces
            arguments["out"] = Inside(leaf)
            return Step(name, "cache_activations", arguments, (), (leaf,), work, 4.0, space, between=True)

        yield guarded(name, (leaf,), make)


def _task(sources: Sources, tasks: Sequence[str], key: Key) -> dict[str, Any]:
    """The arguments for one task, or for several that are read together, identified by the digests of their splits."""
    read = [sources.task_arguments(task, *dict.fromkeys((key.train, key.dev)))["task"].digest for task in tasks]
    where = {"data_dir": Outside(key.folder)} if key.folder else {}
    return {"task": Outside(JOIN.join(tasks), json.dumps(read)), **where}


def _analyses(
    plan: _Plan,
    section: Tasks,
    task: str,
    model: str,
    key: Key | str,
    shared: dict[Key, Shared],
    caches: dict[tuple[Key, str], tuple[Step, ...]],
) -> Iterator[Step]:
    """The analysis of a task on a model, with all its weights."""
    function = section.analysis
    name = f"{function} {task_name(task)}.{slug(model)}"
    rows = f"rows/{slug(name)}.parquet"
    leaves = (rows, rows.replace(".parquet", ".examples.parquet"))
    if isinstance(key, str):
        yield Step(name, leaves=leaves, error=key)
        return
    options = arguments_of(function, section.options)
    if function == "pairs":
        limit = section.limit or plan.suite.limit
        yield from _pairs(plan, task, model, name, options | ({"limit": limit} if limit else {}))
        return
    of, made = shared[key], caches[key, model]
    if error := plan.sources.unfit(task, key.train, key.dev) if function == "probe" else "":
        yield Step(name, leaves=leaves, error=error)
        return
    read, needs = [Inside(step.leaves[0]) for step in made], tuple(step.name for step in made)
    arguments = {"train": read[0], "dev": read[1], "more": read[2:], **options, "out": Inside(rows)}
    if len(of.tasks) > 1:
        arguments |= _task(plan.sources, [task], key)
    yield Step(
        name, function, arguments, needs, leaves, seconds=analyses()[function].in_suites,
        partly=True, together=tuple(zip(needs[::2], needs[1::2], strict=True)), inputs=("train", "dev", "more"),
    )  # fmt: skip


def _shifts(
    plan: _Plan,
    number: int,
    model: str,
    keys: dict[tuple[int, str], Key | str],
    shared: dict[Key, Shared],
    caches: dict[tuple[Key, str], tuple[Step, ...]],
) -> Iterator[Step]:
    """Probes of each task of a section on all of them; tasks that cannot be read are left out, and said."""
    section = plan.suite.tasks[number]
    of_section = {task: keys[number, task] for task in section.tasks}
    for task, error in of_section.items():
        if isinstance(error, str):
            yield Step(f"shift {task_name(task)}.{slug(model)}", error=error)
    read = {task: key for task, key in of_section.items() if isinstance(key, Key)}
    if len(read) < 2:
        return
    name = f"shift {section.group}.{slug(model)}"
    rows = f"rows/{slug(name)}.parquet"
    labels = {plan.sources.task(task).label_names: task for task in read}
    if len(labels) > 1:
        (names, one), (other_names, other), *_ = labels.items()
        which = f"{one} has the labels {', '.join(names)}, {other} {', '.join(other_names)}"
        yield Step(name, leaves=(rows,), error=f"{which}; shift needs equal labels in the same order")
        return
    made = [step for key in dict.fromkeys(read.values()) for step in caches[key, model]]
    places, needs = [Inside(step.leaves[0]) for step in made], tuple(step.name for step in made)
    arguments: dict[str, Any] = {"train": places[0], "dev": places[1], "more": places[2:]}
    if any(len(shared[key].tasks) > 1 for key in read.values()):
        if len({key.folder for key in read.values()}) > 1:
            yield Step(name, leaves=(rows,), error="the tasks of a section of shift must be in one folder")
            return
        given = [plan.sources.task_arguments(task, key.train, key.dev) for task, key in read.items()]
        arguments |= given[0] | {"tasks": [one["task"] for one in given]}
        del arguments["task"]
    arguments |= arguments_of("shift", section.options) | {"out": Inside(rows)}
    yield Step(name, "shift", arguments, needs, (rows,), seconds=analyses()["shift"].in_suites)


def _pairs(plan: _Plan, task: str, model: str, name: str, options: dict[str, Any]) -> Iterator[Step]:
    """Minimal pairs scored by the head of each kind of weights."""
    for seed in plan.weights():
        called = name + ("" if seed is None else f".random-{seed}")
        rows = f"rows/{slug(called)}.parquet"
        leaves = (rows, rows.replace(".parquet", ".examples.parquet"))

        def make(seed: int | None = seed, called: str = called, leaves: tuple[str, ...] = leaves) -> Step:
            from probekit.models.scoring.load import is_causal

            where = plan.sources.models[model]
            is_causal(where, "it cannot score minimal pairs")
            folder, found = plan.sources.folder(task), plan.sources.pairs(task)
            digest = xxhash.xxh3_128_hexdigest(repr(found).encode("utf-8", "surrogatepass"))
            arguments = {"source": plan.sources.model_arguments(model)["model"], "task": Outside(task, digest)}
            arguments |= {"data_dir": Outside(str(folder))} if folder else {}
            arguments |= {"model_name": model, "random_weights": seed, **options}
            arguments |= {"out": Inside(leaves[0])}
            return Step(called, "pairs", arguments, (), leaves, seconds=analyses()["pairs"].in_suites)

        yield guarded(called, leaves, make)


def _scoreboard(plan: _Plan, keys: dict[tuple[int, str], Key | str], measured: Sequence[Step]) -> Step:
    """The step that puts all analyses on one scale."""
    groups = []
    for (i, name), key in keys.items():
        section = plan.suite.tasks[i]
        if isinstance(key, Key) and section.analysis != "shift":
            of = plan.sources.pairs(name) if section.analysis == "pairs" else plan.sources.task(name)
            called = of.name
            groups.append(f"{line_name(section.analysis, called)}={section.group}")
    read, needs = [Inside(step.leaves[0]) for step in measured], tuple(step.name for step in measured)
    leaf = "rows/scoreboard.parquet"
    arguments: dict[str, Any] = {"sources": read, "groups": groups, "out": Inside(leaf)}
    if plan.suite.against is not None:
        arguments["against"] = Outside(plan.suite.against, plan.sources.file_digest(plan.suite.against))
    return Step("scoreboard", "scoreboard", arguments, needs, (leaf,), seconds=30.0, partly=True)
