"""Caches, and the analyses of their layers: diagnostic classifiers and mutual information."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from probekit.activations.pooling import Pooling, TokenLevel
from probekit.adaptation.options import Regime
from probekit.analysis import Reads, analyses
from probekit.errors import UsageError
from probekit.files import slug
from probekit.functions import parameters
from probekit.studies.file import arguments_of
from probekit.studies.schema import OfCaches, Probe, Runs, Train
from probekit.studies.sections.names import Plan, guarded, leaves_of, rows_leaf, task_name
from probekit.studies.steps import Inside, Step
from probekit.tasks.task import TaskKind

Block = Probe | OfCaches
SPAN = "span"
"""In place of a pooling: the pieces of the spans that labels are about."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Pretrained weights, or those of a run, of one of its checkpoints, or random ones."""

    run: str = ""
    step: int | None = None
    seed: int | None = None
    learned: str = ""  # the task of the run

    @property
    def folder(self) -> str:
        return f"runs/{self.run}" + ("" if self.step is None else f"/step-{self.step}")

    def name(self, task: str, model: str) -> str:
        """In names of caches."""
        if self.run:
            elsewhere = "" if self.learned == task else f".on-{task_name(task)}"
            return self.run + ("" if self.step is None else f".step-{self.step}") + elsewhere
        return f"{task_name(task)}.{slug(model)}" + ("" if self.seed is None else f".random-{self.seed}")


def layer_steps(plan: Plan, block: Block) -> Iterator[Step]:
    """The caches that a section reads, and its analyses, each after its caches."""
    kinds = [block.of] if block.together else [[of] for of in block.of]
    for task, model, some in product(block.tasks, plan.models(block), kinds):
        for pooling in poolings_of(plan, block, task):
            caches = [c for of in some for c in cache_steps(plan, block, task, model, of, pooling, block.splits)]
            yield from caches
            error = plan.sources.unfit(task, *block.splits) if isinstance(block, Probe) else ""
            options = vectors_of(plan, task, pooling) | arguments_of(block.function, block.options)
            if analyses()[block.function].reads is Reads.CACHE:
                for cache in caches:
                    kind = [cache.name.removeprefix("cache "), *([slug(block.name)] if block.name else []), pooling]
                    yield analysis_step(block.function, f"{block.function} {'.'.join(kind)}", [cache], options)
            else:
                name = analysis_name(block, task, model, some[0], pooling)
                yield analysis_step(block.function, name, caches, options, error)


def analysis_step(function: str, name: str, caches: list[Step], options: Mapping[str, Any], error: str = "") -> Step:
    """The step that analyses caches, with pairs of train and dev one after another; or why it cannot."""
    reads = analyses()[function].reads
    pairs = reads is Reads.PAIRS
    leaves = leaves_of(name) if pairs else (rows_leaf(name),)
    if error:
        return Step(name, leaves=leaves, error=error)
    needs, read = tuple(step.name for step in caches), [Inside(step.leaves[0]) for step in caches]
    given: dict[str, Any] = {"train": read[0], "dev": read[1], "more": read[2:]} if pairs else {"caches": read}
    if reads is Reads.CACHE:
        given = {next(iter(parameters(function))): read[0]}
    return Step(
        name, function, {**given, **options, "out": Inside(leaves[0])}, needs, leaves,
        seconds=analyses()[function].in_suites or 20.0, partly=True,
        together=tuple(zip(needs[::2], needs[1::2], strict=True)) if pairs else (),
        inputs=("train", "dev", "more") if pairs else (),
    )  # fmt: skip


def cache_steps(
    plan: Plan,
    block: Block,
    task: str,
    model: str,
    of: str,
    pooling: str,
    splits: Iterable[str],
    runs: Runs | None = None,
) -> list[Step]:
    """The caches of one kind of weights that a section reads; of runs only those that ``runs`` selects, too."""
    words = plan.sources.labels_words(task)
    if words and pooling not in (Pooling.FIRST, Pooling.MEAN):
        raise UsageError(f"{task} labels words; the pooling of their pieces must be first or mean, not {pooling}.")
    level = SPAN if pooling == SPAN else f"word-{pooling}" if words else ""
    return [
        _cache(plan, block, task, split, model, weights, level)
        for weights in _weights(plan, block, task, model, of)
        if runs is None or weights in {*_weights(plan, block, task, model, of, runs)}
        for split in splits
    ]


def poolings_of(plan: Plan, block: Block, task: str) -> list[str]:
    """The poolings of a section for a task; by default those of what its labels are about: texts, words or spans."""
    if plan.sources.labels_spans(task):
        return [*block.poolings] or [SPAN]
    return [*block.poolings] or [Pooling.FIRST if plan.sources.labels_words(task) else Pooling.MEAN]


def vectors_of(plan: Plan, task: str, pooling: str) -> dict[str, Any]:
    """The options of an analysis that say which vectors of a cache it reads."""
    if pooling == SPAN:
        return {"span": "mean"}
    return {} if plan.sources.labels_words(task) else {"pooling": pooling}


def analysis_name(block: Block, task: str, model: str, of: str, pooling: str) -> str:
    """The name of the step that analyses one kind of weights."""
    which = [task_name(task), slug(model), of, *([slug(block.name)] if block.name else []), pooling]
    return f"{block.function} {'.'.join(which)}"


def _weights(plan: Plan, block: Block, task: str, model: str, of: str, runs: Runs | None = None) -> Iterator[Weights]:
    """The weights of one kind: a run per seed, its checkpoints, random weights per seed, or the pretrained ones."""
    if of == "pretrained":
        yield Weights()
    elif of == "random":
        yield from (Weights(seed=seed) for seed in block.seeds)
    else:
        chosen, tasks = runs or block, dict.fromkeys(other for train in plan.study.train for other in train.tasks)
        others = [other for other in tasks if other != task]
        learned = {"own": [task], "others": others, "all": [task, *others]}[chosen.trained_on]
        found = [
            Weights(run.name, step, learned=trained)
            for train in plan.study.train
            if not chosen.variants or train.name in chosen.variants
            for trained in learned
            for run in plan.runs(train)
            if (run.model, run.task, run.regime) == (model, trained, Regime.FINE_TUNE)
            if not chosen.run_seeds or run.seed in chosen.run_seeds
            for step in (_saved(train) if of == "checkpoints" else (None,))
        ]
        if not found:
            raise UsageError(
                f"the study has no fine-tuning run on {' or '.join(learned) or 'another task'}"
                f"{_which(chosen)}, whose layers a section needs; add it to [[train]]."
            )
        yield from found


def _which(runs: Runs) -> str:
    """The variants and seeds that a section asks for, in words."""
    seeds = f"seed {' or '.join(map(str, runs.run_seeds))}" if runs.run_seeds else ""
    kinds = [f"variant {' or '.join(runs.variants)}" if runs.variants else "", seeds]
    return f" with {' and '.join(filter(None, kinds))}" if any(kinds) else ""


def _saved(train: Train) -> list[int]:
    """The steps at which a section saves checkpoints."""
    save_at = str(arguments_of("train", train.of_regime(Regime.FINE_TUNE)).get("save_at", ""))
    try:
        return sorted(map(int, save_at.split(",")))
    except ValueError:
        raise UsageError(
            f'a section of "checkpoints" needs their steps, but save_at is {save_at!r}; write '
            'fine-tune = { save_at = "0,10,100" } in [[train]].'
        ) from None


def _cache(plan: Plan, block: Block, task: str, split: str, model: str, weights: Weights, level: str) -> Step:
    """A cache for the weights of a run, pretrained or random weights: texts with all poolings, or words."""
    limit = block.limit_dev if isinstance(block, Probe) and split == block.dev else block.limit
    part = Part([task], split, limit, block.data_seed)
    stores: dict[str, Any] = {"pooling": _poolings(plan, task)}
    if level == SPAN:  # of a task of spans, an example may have none
        chosen = {} if plan.sources.task(task).kind is TaskKind.SPAN_LABELLING else {"positions": SPAN}
        stores = {"tokens": True, "token_level": TokenLevel.PIECE, **chosen}
    elif level:
        stores = {"tokens": True, "token_level": level}
    called = weights.name(task, model)
    return cache_step(plan, called, part, model, weights, stores, lambda: plan.sources.task_arguments(task, split))


class Part(NamedTuple):
    """The examples of a cache."""

    tasks: list[str]
    split: str
    limit: int | None
    data_seed: int


def cache_step(
    plan: Plan,
    called: str,
    part: Part,
    model: str,
    weights: Weights,
    stores: Mapping[str, Any],
    of_task: Callable[[], Mapping[str, Any]],
) -> Step:
    """A cache of a part of some tasks, or why it cannot be made.

    Parameters
    ----------
    called : str
        The beginning of its name.
    stores : mapping
        Which vectors it stores: its ``pooling``, or ``tokens`` and perhaps their ``token_level``.
    of_task : callable
        Returns the arguments for the tasks.
    """
    tasks, split, limit, data_seed = part
    which = called, slug(split), f"limit-{limit}" if limit else "", stores.get("token_level", "")
    name = f"cache {'.'.join(filter(None, which))}"
    leaf = f"caches/{slug(name.removeprefix('cache '))}.h5"

    def make() -> Step:
        sources, encoder = plan.sources, plan.pretraining(model)
        seed = encoder.seeds[0] if encoder else 0
        given = of_task()
        of_model, needs = plan.model(model, seed)
        if weights.run:
            of_model, needs = {"model": Inside(weights.folder)}, (weights.run,)
        arguments = {**given, **of_model, "split": split, "random_weights": weights.seed, **stores}
        size, pieces = plan.size(model), sum(sources.pieces(task, split, limit) for task in tasks)
        texts = sum(sources.examples(task, split, limit) for task in tasks)
        vectors = pieces if "tokens" in stores else texts * len(stores["pooling"])
        work, space = 2 * size.weights * pieces, vectors * size.layers * size.width * 4
        arguments |= {"limit": limit, **({"data_seed": data_seed} if limit else {}), "out": Inside(leaf)}
        arguments |= arguments_of("cache_activations", plan.study.caches)
        return Step(name, "cache_activations", arguments, needs, (leaf,), work, 4.0, space, between=True)

    return guarded(name, (leaf,), make)


def _poolings(plan: Plan, task: str) -> list[str]:
    """All poolings of a task that any section needs, which its caches hold together."""
    return sorted({pooling for b in plan.study.layered if task in b.tasks for pooling in b.poolings or [Pooling.MEAN]})
