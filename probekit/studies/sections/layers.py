"""Caches, and what is asked of each of their layers: diagnostic classifiers, mutual information."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import Regime
from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import Information, Probe, arguments_of
from probekit.studies.sections.names import Plan, guarded, run_name, task_name
from probekit.studies.steps import Inside, Step

__all__ = ["layer_steps"]

Block = Probe | Information


def layer_steps(plan: Plan, block: Block) -> Iterator[Step]:
    """The caches that a section reads, and its analyses, each after its caches."""
    function = "probe" if isinstance(block, Probe) else "mi"
    for task, model, of in product(block.tasks, plan.study.models, block.of):
        weights = list(_weights(plan, block, task, model, of))
        words = plan.sources.labels_words(task)
        for pooling in block.poolings or [Pooling.FIRST if words else Pooling.MEAN]:
            if words and pooling not in (Pooling.FIRST, Pooling.MEAN):
                raise UsageError(f"{task} labels words, whose pieces are read as first or mean, not {pooling}.")
            level = f"word-{pooling}" if words else ""
            caches = [
                _cache(plan, block, task, split, model, run, seed, level)
                for run, seed in weights
                for split in block.splits
            ]
            yield from caches
            which = [task_name(task), slug(model), of, *([slug(block.name)] if block.name else []), pooling]
            yield _analysis(block, function, f"{function} {'.'.join(which)}", caches, "" if words else pooling)


def _analysis(block: Block, function: str, name: str, caches: list[Step], pooling: str) -> Step:
    rows = f"rows/{slug(name)}.parquet"
    read = [Inside(step.leaves[0]) for step in caches]
    named = {"train": read[0], "dev": read[1], "more": read[2:]} if function == "probe" else {"caches": read}
    told = {**named, **({"pooling": pooling} if pooling else {}), **arguments_of(function, block.options)}
    leaves = (rows, rows.replace(".parquet", ".examples.parquet")) if function == "probe" else (rows,)
    needs, seconds = tuple(step.name for step in caches), 10.0 if function == "probe" else 20.0
    return Step(name, function, {**told, "out": Inside(rows)}, needs, leaves, seconds=seconds)


def _weights(plan: Plan, block: Block, task: str, model: str, of: str) -> Iterator[tuple[str | None, int | None]]:
    """Run and seed of random weights: a run of each seed, random weights of each, or neither."""
    if of == "pretrained":
        yield None, None
    elif of == "random":
        yield from ((None, seed) for seed in block.seeds)
    else:
        found = [
            (run_name(plan, train, task, model, Regime.FINE_TUNE, seed), None)
            for train in plan.study.train
            if task in train.tasks and Regime.FINE_TUNE in train.regimes and model in plan.models(train)
            for seed in train.seeds
        ]
        if not found:
            raise UsageError(f"the study fine-tunes nothing on {task}, whose fine-tuned layers it asks for.")
        yield from found


def _cache(
    plan: Plan, block: Block, task: str, split: str, model: str, run: str | None, seed: int | None, level: str
) -> Step:
    """A cache of a run's, pretrained or random weights: of texts with all their poolings, or of words."""
    which = run or f"{task_name(task)}.{slug(model)}" + ("" if seed is None else f".random-{seed}")
    limit = block.limit if isinstance(block, Information) or split == block.train else None
    name = f"cache {which}.{slug(split)}" + (f".limit-{limit}" if limit else "") + (f".{level}" if level else "")
    leaf = f"caches/{slug(name.removeprefix('cache '))}.h5"

    def make() -> Step:
        sources = plan.sources
        told = {**sources.task_arguments(task, split), **sources.model_arguments(model), "split": split}
        told |= {"model": Inside(f"runs/{run}")} if run else {"random_weights": seed}
        told |= {"tokens": True, "token_level": level} if level else {"pooling": _poolings(plan, task)}
        if run:
            del told["model_name"]
        work = 2 * sources.size(model).weights * sources.pieces(task, split, limit)
        told |= {"limit": limit, **({"data_seed": block.data_seed} if limit else {}), "out": Inside(leaf)}
        return Step(name, "cache_activations", told, (run,) if run else (), (leaf,), work, 4.0, between=True)

    return guarded(name, (leaf,), partial(make))


def _poolings(plan: Plan, task: str) -> list[str]:
    """All poolings that any section wants of a task's caches, which then hold them side by side."""
    blocks: Iterable[Block] = (*plan.study.probe, *plan.study.mi)
    return sorted({pooling for b in blocks if task in b.tasks for pooling in b.poolings or [Pooling.MEAN]})
