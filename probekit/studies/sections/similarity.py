"""How alike layers are, and how far fine-tuning moves them, on the caches of a probe's dev split."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal

from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import Similarity
from probekit.studies.sections.layers import cache_steps, poolings_of
from probekit.studies.sections.names import Plan, task_name
from probekit.studies.steps import Inside, Step

__all__ = ["similarity_steps"]


def similarity_steps(plan: Plan, block: Similarity, function: Literal["similarity", "movement"]) -> Iterator[Step]:
    """One analysis of each task, model and pooling that a section probes with all kinds of weights."""
    probes = [probe for probe in plan.study.probe if set(block.of) <= set(probe.of)]
    tasks = block.tasks or list(dict.fromkeys(task for probe in probes for task in probe.tasks))
    if lacking := [task for task in tasks or [""] if not any(task in probe.tasks for probe in probes)]:
        which = f"on {lacking[0]} " if lacking[0] else ""
        kinds = ", ".join(f'"{of}"' for of in block.of)
        raise UsageError(f"[[{function}]] needs a section [[probe]] {which}with of = [{kinds}].")
    for probe in probes:
        for task, model in product([task for task in tasks if task in probe.tasks], plan.models(probe)):
            for pooling in poolings_of(plan, probe, task):
                caches = [
                    step for of in block.of for step in cache_steps(plan, probe, task, model, of, pooling, [probe.dev])
                ]
                parts = [task_name(task), slug(model), "-".join(block.of), *([slug(block.name)] if block.name else [])]
                name = f"{function} {'.'.join([*parts, pooling])}"
                leaf = f"rows/{slug(name)}.parquet"
                arguments = {
                    "caches": [Inside(step.leaves[0]) for step in caches],
                    **({} if plan.sources.labels_words(task) else {"pooling": pooling}),
                    **arguments_of(function, block.options), "out": Inside(leaf),
                }  # fmt: skip
                yield Step(name, function, arguments, tuple(step.name for step in caches), (leaf,), seconds=10.0)
