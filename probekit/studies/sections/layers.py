"""Caches, and the analyses of their layers: diagnostic classifiers and mutual information."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import Regime
from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import OfCaches, Probe, Runs, Train
from probekit.studies.sections.names import Plan, guarded, run_name, task_name
from probekit.studies.steps import Inside, Step

Block = Probe | OfCaches


@dataclass(frozen=True, slots=True)
class _Weights:
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
    for task, model, of in product(block.tasks, plan.models(block), block.of):
        for pooling in poolings_of(plan, block, task):
            words = plan.sources.labels_words(task)
            caches = cache_steps(plan, block, task, model, of, pooling, block.splits)
            yield from caches
            error = plan.sources.unfit(task, *block.splits) if isinstance(block, Probe) else ""
            name = analysis_name(block, task, model, of, pooling)
            step = _analysis(block, name, caches, "" if words else pooling)
            yield Step(step.name, leaves=step.leaves, error=error) if error else step


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
    level = f"word-{pooling}" if words else ""
    return [
        _cache(plan, block, task, split, model, weights, level)
        for weights in _weights(plan, block, task, model, of)
        if runs is None or weights in {*_weights(plan, block, task, model, of, runs)}
        for split in splits
    ]


def poolings_of(plan: Plan, block: Block, task: str) -> list[Pooling]:
    """The poolings of a section for a task."""
    return block.poolings or [Pooling.FIRST if plan.sources.labels_words(task) else Pooling.MEAN]


def analysis_name(block: Block, task: str, model: str, of: str, pooling: str) -> str:
    """The name of the step that analyses one kind of weights."""
    which = [task_name(task), slug(model), of, *([slug(block.name)] if block.name else []), pooling]
    return f"{block.function} {'.'.join(which)}"


def _analysis(block: Block, name: str, caches: list[Step], pooling: str) -> Step:
    function, probes = block.function, isinstance(block, Probe)
    rows = f"rows/{slug(name)}.parquet"
    read = [Inside(step.leaves[0]) for step in caches]
    inputs = {"train": read[0], "dev": read[1], "more": read[2:]} if probes else {"caches": read}
    arguments = {**inputs, **({"pooling": pooling} if pooling else {}), **arguments_of(function, block.options)}
    leaves = (rows, rows.replace(".parquet", ".examples.parquet")) if probes else (rows,)
    needs, seconds = tuple(step.name for step in caches), 10.0 if probes else 20.0
    together = tuple(zip(needs[::2], needs[1::2], strict=True)) if probes else ()
    return Step(
        name, function, {**arguments, "out": Inside(rows)}, needs, leaves, seconds=seconds, partly=True,
        together=together, inputs=("train", "dev", "more") if probes else (),
    )  # fmt: skip


def _weights(plan: Plan, block: Block, task: str, model: str, of: str, runs: Runs | None = None) -> Iterator[_Weights]:
    """The weights of one kind: a run per seed, its checkpoints, random weights per seed, or the pretrained ones."""
    if of == "pretrained":
        yield _Weights()
    elif of == "random":
        yield from (_Weights(seed=seed) for seed in block.seeds)
    else:
        chosen, tasks = runs or block, dict.fromkeys(other for train in plan.study.train for other in train.tasks)
        others = [other for other in tasks if other != task]
        learned = {"own": [task], "others": others, "all": [task, *others]}[chosen.trained_on]
        found = [
            _Weights(run_name(plan, train, trained, model, Regime.FINE_TUNE, seed), step, learned=trained)
            for train in plan.study.train
            if not chosen.variants or train.name in chosen.variants
            for trained in learned
            if trained in train.tasks and Regime.FINE_TUNE in train.regimes and model in plan.models(train)
            for seed in plan.seeds(train, model)
            if not chosen.run_seeds or seed in chosen.run_seeds
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


def _cache(plan: Plan, block: Block, task: str, split: str, model: str, weights: _Weights, level: str) -> Step:
    """A cache for the weights of a run, pretrained or random weights: texts with all poolings, or words."""
    limit = block.limit_dev if isinstance(block, Probe) and split == block.dev else block.limit
    name = (
        f"cache {weights.name(task, model)}.{slug(split)}"
        + (f".limit-{limit}" if limit else "")
        + (f".{level}" if level else "")
    )
    leaf = f"caches/{slug(name.removeprefix('cache '))}.h5"

    def make() -> Step:
        sources, encoder = plan.sources, plan.pretraining(model)
        seed = encoder.seeds[0] if encoder else 0
        arguments = {**sources.task_arguments(task, split), **plan.model_arguments(model, seed), "split": split}
        arguments |= {"model": Inside(weights.folder)} if weights.run else {"random_weights": weights.seed}
        arguments |= {"tokens": True, "token_level": level} if level else {"pooling": _poolings(plan, task)}
        if weights.run:
            del arguments["model_name"]
        size, pieces = plan.size(model), sources.pieces(task, split, limit)
        vectors = pieces if level else sources.examples(task, split, limit) * len(arguments["pooling"])
        work, space = 2 * size.weights * pieces, vectors * size.layers * size.width * 4
        arguments |= {"limit": limit, **({"data_seed": block.data_seed} if limit else {}), "out": Inside(leaf)}
        needs = (weights.run,) if weights.run else plan.needs(model, seed)
        return Step(name, "cache_activations", arguments, needs, (leaf,), work, 4.0, space, between=True)

    return guarded(name, (leaf,), partial(make))


def _poolings(plan: Plan, task: str) -> list[str]:
    """All poolings of a task that any section needs, which its caches hold together."""
    return sorted({pooling for b in plan.study.layered if task in b.tasks for pooling in b.poolings or [Pooling.MEAN]})
