"""Paired comparisons of probes: fine-tuned with pretrained layers, trained with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import Compare
from probekit.studies.sections.layers import analysis_name, poolings_of
from probekit.studies.sections.names import Plan
from probekit.studies.steps import Inside, Step

__all__ = ["compare_steps"]


def compare_steps(plan: Plan, block: Compare) -> Iterator[Step]:
    """A comparison for each task, model and pooling that a section probes with both kinds of weights."""
    first, second = block.of
    probes = [probe for probe in plan.study.probe if {first, second} <= set(probe.of)]
    tasks = block.tasks or list(dict.fromkeys(task for probe in probes for task in probe.tasks))
    lacking = [task for task in tasks if not any(task in probe.tasks for probe in probes)]
    if lacking or not tasks:
        which = f"on {lacking[0]} " if lacking else ""
        raise UsageError(f'[[compare]] needs a section [[probe]] {which}with of = ["{first}", "{second}"].')
    for probe in probes:
        for task, model in product([task for task in tasks if task in probe.tasks], plan.models(probe)):
            for pooling in poolings_of(plan, probe, task):
                needs = tuple(analysis_name(probe, task, model, of, pooling) for of in block.of)
                which = needs[0].removeprefix("probe ").replace(first, f"{first}-{second}")
                name = f"compare {which}{f'.{slug(block.name)}' if block.name else ''}"
                leaf = f"rows/{slug(name)}.parquet"
                sides = [Inside(f"rows/{slug(need)}.parquet") for need in needs]
                arguments = {
                    "first": sides[0], "second": sides[1], **({"against": "random"} if second == "random" else {}),
                    **arguments_of("compare", block.options), "out": Inside(leaf),
                }  # fmt: skip
                yield Step(name, "compare", arguments, needs, (leaf,), seconds=20.0)
