"""Analyses of the layers of several models, or kinds of weights, on a probe's caches of dev, or of train and dev."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

from probekit.analysis import Reads, analyses
from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import AcrossModels, Compare, OfModels, Probe
from probekit.studies.sections.layers import analysis_name, cache_steps, poolings_of, vectors_of
from probekit.studies.sections.names import Plan, rows_leaf, task_name
from probekit.studies.steps import Inside, Step


def compare_steps(plan: Plan, block: Compare) -> Iterator[Step]:
    """A comparison for each task, model and pooling that a section probes with both kinds of weights."""
    first, second = block.of
    probes = [probe for probe in plan.study.probe if not probe.together]
    for task, model, probe in sorted(_probed(plan, "compare", block, probes), key=lambda one: probes.index(one[2])):
        for pooling in poolings_of(plan, probe, task):
            needs = tuple(analysis_name(probe, task, model, of, pooling) for of in block.of)
            which = needs[0].removeprefix("probe ").replace(first, f"{first}-{second}")
            name = f"compare {which}{f'.{slug(block.name)}' if block.name else ''}"
            leaf, sides = rows_leaf(name), [Inside(rows_leaf(need)) for need in needs]
            arguments = {
                "first": sides[0], "second": sides[1], **({"against": "random"} if second == "random" else {}),
                **arguments_of("compare", block.options), "out": Inside(leaf),
            }  # fmt: skip
            yield Step(name, "compare", arguments, needs, (leaf,), seconds=20.0)


def _probed(
    plan: Plan, function: str, block: Compare | OfModels, among: Sequence[Probe]
) -> list[tuple[str, str, Probe]]:
    """The tasks and models that sections ``[[probe]]`` among these analyse with all kinds of weights of a section."""
    probes = [probe for probe in among if set(block.of) <= set(probe.of)]
    chosen = block.models if isinstance(block, OfModels) else []
    tasks = block.tasks or list(dict.fromkeys(task for probe in probes for task in probe.tasks))
    models = chosen or list(dict.fromkeys(model for probe in probes for model in plan.models(probe)))
    read = [
        (task, model, probe)
        for task, model, probe in product(tasks, models, probes)
        if task in probe.tasks and model in plan.models(probe)
    ]
    lacking = [f"on {task} " for task in block.tasks if task not in {task for task, *_ in read}]
    lacking += [f"for model {model} " for model in chosen if model not in {model for _, model, _ in read}]
    if lacking or not read:
        kinds = ", ".join(f'"{of}"' for of in block.of)
        apart = " and without together" if any(probe.together for probe in plan.study.probe) else ""
        raise UsageError(f"[[{function}]] needs a section [[probe]] {''.join(lacking[:1])}with of = [{kinds}]{apart}.")
    return read


def model_steps(plan: Plan, block: OfModels) -> Iterator[Step]:
    """One analysis of each task and pooling that a section probes with all kinds of weights: per model, or across."""
    function, pairs = block.function, analyses()[block.function].reads is Reads.REFERENCE_PAIRS
    across = isinstance(block, AcrossModels) and block.across == "models"
    caches: dict[tuple[Any, ...], list[Step]] = {}  # by what is compared, on which examples
    for task, model, probe in _probed(plan, function, block, plan.study.probe):
        for pooling in poolings_of(plan, probe, task):
            of_kind = partial(
                cache_steps,
                plan,
                probe,
                task,
                model,
                pooling=pooling,
                splits=probe.splits if pairs else [probe.dev],
                runs=block,
            )
            found = [step for of in block.of for step in of_kind(of)]
            of_dev = probe.dev, probe.limit_dev, probe.data_seed if probe.limit_dev else None
            of_train = (probe.train, probe.limit, probe.data_seed if probe.limit else None) if pairs else ()
            steps = caches.setdefault((task, "" if across else model, pooling, *of_dev, *of_train), [])
            steps += [step for step in found if step not in steps]
    for (task, model, pooling, *_), steps in caches.items():
        if len(steps) < 2 and across:
            raise UsageError(f'[[{function}]] with across = "models" needs two or more models, but {task} has one.')
        if len(steps) < (4 if pairs else 2):
            raise UsageError(f"[[{function}]] selects no run on {task} that a section [[probe]] analyses.")
        yield _step(plan, block, (task, model, pooling), steps)


def _step(plan: Plan, block: OfModels, of: tuple[str, str, str], caches: list[Step]) -> Step:
    """The step that compares these caches of one model, or of all models (its name is "")."""
    function, (task, model, pooling) = block.function, of
    kinds = [slug(model) if model else "models", "-".join(block.of), *([slug(block.name)] if block.name else [])]
    name = f"{function} {'.'.join([task_name(task), *kinds, pooling])}"
    leaf = rows_leaf(name)
    read = [Inside(step.leaves[0]) for step in caches]
    paired = analyses()[function].reads is Reads.REFERENCE_PAIRS
    arguments = {
        **({"train": read[0], "dev": read[1], "more": read[2:]} if paired else {"caches": read}),
        **vectors_of(plan, task, pooling),
        **({} if model else {"against": "all"}),
        **arguments_of(function, block.options), "out": Inside(leaf),
    }  # fmt: skip
    needs = tuple(step.name for step in caches)
    pairs: Any = (*combinations(needs, 2),) if arguments.get("against") == "all" else (*product(needs[:1], needs[1:]),)
    if paired:  # the pair of the reference with each other pair
        pairs = tuple((*needs[:2], *both) for both in zip(needs[2::2], needs[3::2], strict=True))
    seconds = 8.0 + 2.0 * (len(pairs) if arguments.get("against") == "all" else 1)
    return Step(
        name, function, arguments, needs, (leaf,), seconds=seconds, partly=True, together=pairs,
        inputs=("train", "dev", "more") if paired else (),
    )  # fmt: skip
