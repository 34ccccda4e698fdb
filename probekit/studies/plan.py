"""From a study to its steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from probekit.activations.pooling import Pooling
from probekit.adaptation.options import PLAIN, REGIME_DEFAULTS, Regime
from probekit.errors import ProbekitError, UsageError
from probekit.files import slug
from probekit.studies.digests import corpus_digest, model_digest, model_size, task_reader
from probekit.studies.file import Domains, Figure, Information, Probe, Study, Table, Train
from probekit.studies.steps import OUT, Step
from probekit.tables.papers import published
from probekit.tasks import load_task, task_folders
from probekit.tasks.task import TaskKind

__all__ = ["study_steps"]


def study_steps(study: Study, data_dir: str | Path | None = None) -> list[Step]:
    """The steps of a study, each after those that it needs.

    data_dir : folder of the tasks' folders; from the hub without it
    A task or model that cannot be read spoils its own steps only: they hold the error. Raises UsageError where two
    steps would go by one name, or something is asked for that the study does not have.
    """
    plan = _Plan(study, None if data_dir is None else Path(data_dir))
    steps = [
        *(step for block in study.train for step in plan.train(block)),
        *(step for block in study.probe for step in plan.layers(block)),
        *(step for block in study.mi for step in plan.layers(block)),
        *(step for block in study.domains for step in plan.domains(block)),
        *(plan.guidelines(name) for name in plan.compared()),
    ]
    measured = _unique(steps)
    tables = [plan.table(table, measured) for table in study.table]
    figures = [plan.figure(figure, [*measured, *tables]) for figure in study.figure]
    last = _unique([*measured, *tables, *figures])
    words = ("report", OUT, "-o", f"{OUT}/report.html", "--title", study.title)
    needs = tuple(step.name for step in last if _rows(step) or step in figures)
    return [*last, Step("report", words, needs, ("report.html",), partly=True)]


def _unique(steps: Iterable[Step]) -> list[Step]:
    """Each step once: several analyses read one cache. By the files' names, which leave out what files do not bear."""
    unique: dict[str, Step] = {}
    for step in steps:
        if (other := unique.setdefault(slug(step.name), step)) != step:
            what = repr(step.name) if other.name == step.name else f"{other.name!r} and {step.name!r}"
            raise UsageError(f"the study has two different steps called {what}; give sections, models or tasks names.")
    return list(unique.values())


def _rows(step: Step) -> list[str]:
    return [path for path in step.leaves if path.endswith(".parquet") and not path.endswith(".examples.parquet")]


@dataclass(slots=True)
class _Plan:
    study: Study
    data_dir: Path | None

    # what comes from outside

    def task(self, name: str, *splits: str | None, limit: int | None = None) -> tuple[list[str], dict[str, str], float]:
        """The words that name a task, their digests, and its pieces, roughly, of the first ``limit`` examples."""
        folder = self._folder(name)
        words = ["--task", name, *(["--data-dir", str(folder)] if folder else [])]
        read = task_reader(name, str(folder) if folder else None)
        found = {split: read(split) for split in dict.fromkeys(splits) if split}
        digests = {str(folder): ""} if folder else {}
        digests[name] = f"{name} {json.dumps({split: digest for split, (digest, _) in found.items()})}"
        return words, digests, sum(float(sum(pieces[:limit])) for _, pieces in found.values())

    def _folder(self, task: str) -> Path | None:
        base = task.split(":", 1)[0]
        if self.data_dir is None or base == "grammar" or ".toml" in task:
            return None
        if named := self.study.data.get(task, self.study.data.get(base)):
            return self.data_dir / named
        return task_folders(base, self.data_dir)[0]

    def model(self, name: str, *, seed: int | None = None) -> tuple[list[str], dict[str, str]]:
        """The words that name a model, and their digests."""
        where = self.study.models[name]
        words = ["--model", where, "--model-name", name]
        return words + ([] if seed is None else ["--random-weights", str(seed)]), {where: model_digest(where)}

    def models(self, block: Train) -> list[str]:
        """The models of a section, by name."""
        return block.models or list(self.study.models)

    # steps

    def train(self, block: Train) -> Iterator[Step]:
        for model, task, regime, seed in product(self.models(block), block.tasks, block.regimes, block.seeds):
            name = self._run(block, task, model, regime, seed)
            options = block.of_regime(regime)
            files = ("probekit.json", "rows.parquet", "head.safetensors", f"{slug(block.dev)}.examples.parquet")
            leaves: tuple[str, ...] = tuple(f"runs/{name}/{file}" for file in files)
            make = partial(self._train, name, leaves, block, task, model, regime, seed, options)
            yield self._guarded(name, leaves, make)
            others = [other for other in block.tasks if other != task]
            if block.transfer and others:
                leaves = (f"rows/transfer.{name}.parquet",)
                make = partial(self._transfer, name, leaves, block, model, regime, others)
                yield self._guarded(f"transfer {name}", leaves, make)

    def _train(
        self,
        name: str,
        leaves: tuple[str, ...],
        block: Train,
        task: str,
        model: str,
        regime: Regime,
        seed: int,
        options: Mapping[str, Any],
    ) -> Step:
        what, data, _ = self.task(task, block.train, block.dev, block.test)
        who, weights = self.model(model)
        train, dev = self.task(task, block.train, limit=block.limit)[2], self.task(task, block.dev)[2]
        words = ["train", *what, *who, "--train", block.train, "--dev", block.dev, "--regime", regime]
        words += ["--test", block.test] if block.test else []
        words += ["--limit", str(block.limit)] if block.limit else []
        words += [*_flags(options), "--seed", str(seed), "--out", f"{OUT}/runs/{name}"]
        words += ["--caches", f"{OUT}/caches"] if regime is Regime.FEATURE_EXTRACTION else []
        epochs = options.get("epochs") or REGIME_DEFAULTS[regime]["epochs"]
        size, width, layers = model_size(self.study.models[model])
        space = 0.0
        if regime is Regime.FINE_TUNE:
            work = size * (6 * train * epochs + 2 * dev * (epochs + 1))
        else:
            hidden = options.get("hidden_size") or 300
            light = options.get("head") in PLAIN
            head = 0 if light else 8 * hidden * (width + hidden) + 24 * hidden**2
            space = 0.0 if light or seed != block.seeds[0] else (train + dev) * layers * width * 4  # seeds share them
            work = 2 * size * (train + dev) + head * (6 * train * epochs + 2 * dev * (epochs + 1))
        return Step(name, tuple(words), (), leaves, data | weights, work, space=space)

    def _run(self, block: Train, task: str, model: str, regime: Regime, seed: int) -> str:
        """The name of a run: of its task, model (where there are several), variant, regime and seed."""
        which = [slug(model)] if len(self.study.models) > 1 else []
        which += [slug(block.name)] if block.name else []
        return ".".join([_file(task), *which, regime, str(seed)])

    def compared(self) -> list[str]:
        """The variants of which both regimes are trained."""
        return list(dict.fromkeys(block.name for block in self.study.train if set(block.regimes) == set(Regime)))

    def guidelines(self, variant: str) -> Step:
        """Paired comparison of the regimes, of all tasks together."""
        runs = [
            self._run(block, task, model, regime, seed)
            for block in self.study.train
            if block.name == variant and set(block.regimes) == set(Regime)
            for task, model, regime, seed in product(block.tasks, self.models(block), block.regimes, block.seeds)
        ]
        name = f"guidelines {variant}".strip()
        rows = f"rows/{slug(name)}.parquet"
        words = ("guidelines", *(f"{OUT}/runs/{run}" for run in runs), "--out", f"{OUT}/{rows}")
        return Step(name, words, tuple(runs), (rows,), seconds=20.0, partly=True)

    def _transfer(
        self, name: str, leaves: tuple[str, ...], block: Train, model: str, regime: Regime, others: Sequence[str]
    ) -> Step:
        reads: dict[str, str] = {}
        words, pieces = ["evaluate", f"{OUT}/runs/{name}"], 0.0
        there: list[str] = []
        for other in others:
            try:
                what, data, more = self.task(other, block.dev)
            except (ProbekitError, OSError):
                continue  # its own training tells why
            there.append(other)
            words += what[:2]
            reads |= data
            pieces += more
        if not there:
            raise UsageError("none of the other tasks can be read.")
        if len(found := {self._folder(other) for other in there}) > 1:
            raise UsageError(f"what is evaluated on other tasks finds them in one folder, not in {len(found)}.")
        words += self.task(there[0])[0][2:]
        words += ["--split", block.dev]
        if regime is Regime.FEATURE_EXTRACTION:
            where, weights = self.study.models[model], self.model(model)[1]
            words += ["--model", where, "--caches", f"{OUT}/caches"]
            reads |= weights
        words += ["--out", f"{OUT}/{leaves[0]}"]
        work = 2 * model_size(self.study.models[model])[0] * pieces
        return Step(f"transfer {name}", tuple(words), (name,), leaves, reads, work)

    def layers(self, block: Probe | Information) -> Iterator[Step]:
        """Caches, and what is asked of their layers."""
        command = "probe" if isinstance(block, Probe) else "mi"
        for task, model, of in product(block.tasks, self.study.models, block.of):
            weights = list(self._weights(block, task, model, of))
            words = self._words(task)
            for pooling in block.poolings or [Pooling.FIRST if words else Pooling.MEAN]:
                if words and pooling not in (Pooling.FIRST, Pooling.MEAN):
                    raise UsageError(f"{task} labels words, whose pieces are read as first or mean, not {pooling}.")
                caches = [
                    self._cache(block, task, split, model, run, seed, pooling if words else "")
                    for run, seed in weights
                    for split in block.splits
                ]
                yield from caches
                which = [_file(task), slug(model), of, *([slug(block.name)] if block.name else []), pooling]
                name = f"{command} {'.'.join(which)}"
                rows = f"rows/{slug(name)}.parquet"
                leaves = (rows, rows.replace(".parquet", ".examples.parquet")) if command == "probe" else (rows,)
                told = [command, *(f"{OUT}/{step.leaves[0]}" for step in caches)]
                told += [*([] if words else ["--pooling", pooling]), *_flags(block.options), "--out", f"{OUT}/{rows}"]
                needs = tuple(step.name for step in caches)
                yield Step(name, tuple(told), needs, leaves, seconds=10.0 if command == "probe" else 20.0)

    def _words(self, task: str) -> bool:
        """Whether the words of a task are labelled; not of one that cannot be read, whose caches tell why."""
        folder = self._folder(task)
        try:
            return load_task(task, folder).kind is TaskKind.SEQUENCE_LABELLING
        except (ProbekitError, OSError):
            return False

    def _weights(
        self, block: Probe | Information, task: str, model: str, of: str
    ) -> Iterator[tuple[str | None, int | None]]:
        """Run and seed of random weights: a run of each seed, random weights of each, or neither."""
        if of == "pretrained":
            yield None, None
        elif of == "random":
            yield from ((None, seed) for seed in block.seeds)
        else:
            found = [
                (self._run(train, task, model, Regime.FINE_TUNE, seed), None)
                for train in self.study.train
                if task in train.tasks and Regime.FINE_TUNE in train.regimes and model in self.models(train)
                for seed in train.seeds
            ]
            if not found:
                raise UsageError(f"the study fine-tunes nothing on {task}, whose fine-tuned layers it asks for.")
            yield from found

    def _cache(
        self,
        block: Probe | Information,
        task: str,
        split: str,
        model: str,
        run: str | None,
        seed: int | None,
        of_words: str,
    ) -> Step:
        """A cache of a run's, pretrained or random weights: of texts with all their poolings, or of words."""
        which = run or f"{_file(task)}.{slug(model)}" + ("" if seed is None else f".random-{seed}")
        limit = block.limit if isinstance(block, Information) or split == block.train else None
        name = f"cache {which}.{slug(split)}" + (f".first-{limit}" if limit else "")
        name += f".word-{of_words}" if of_words else ""
        path = f"caches/{slug(name.removeprefix('cache '))}.h5"

        def make() -> Step:
            what, data, pieces = self.task(task, split, limit=limit)
            who, weights = self.model(model, seed=seed)
            who, weights = (["--model", f"{OUT}/runs/{run}"], {}) if run else (who, weights)
            words = ["cache-activations", *who, *what, "--split", split]
            words += ["--tokens", "--token-level", f"word-{of_words}"] if of_words else []
            words += [] if of_words else ["--pooling", ",".join(self._poolings(task))]
            words += ["--limit", str(limit)] if limit else []
            work = 2 * model_size(self.study.models[model])[0] * pieces
            return Step(
                name, (*words, "--out", f"{OUT}/{path}"), (run,) if run else (), (path,), data | weights, work, 4.0,
                between=True,
            )  # fmt: skip

        return self._guarded(name, (path,), make)

    def _poolings(self, task: str) -> list[str]:
        """All poolings that any section wants of a task's caches, which then hold them side by side."""
        blocks: Iterable[Probe | Information] = (*self.study.probe, *self.study.mi)
        return sorted({pooling for b in blocks if task in b.tasks for pooling in b.poolings or [Pooling.MEAN]})

    def domains(self, block: Domains) -> Iterator[Step]:
        name = f"domains {_file(block.task)}"
        rows = f"rows/{slug(name)}.parquet"

        def make() -> Step:
            base = self.data_dir or Path()
            places = {
                called: place if place.startswith("hub:") else str(base / place)
                for called, place in block.corpora.items()
            }
            what, data, _ = self.task(block.task, *_splits(block, self._folder(block.task)))
            words = ["domains", *(f"{called}={place}" for called, place in places.items()), *what]
            words += ["--split", block.split] if block.split else []
            reads = {f"{called}={place}": f"{called}={corpus_digest(place)}" for called, place in places.items()}
            words += [*_flags(block.options), "--out", f"{OUT}/{rows}"]
            return Step(name, tuple(words), (), (rows,), data | reads, 0.0, 15.0)

        yield self._guarded(name, (rows,), make)

    def table(self, table: Table, steps: Sequence[Step]) -> Step:
        name = table.name or table.kind
        rows, needs = [path for s in steps for path in _rows(s)], tuple(s.name for s in steps if _rows(s))
        leaves = (f"tables/{slug(name)}.md", f"rows/table-{slug(name)}.parquet")
        words = ["table", table.kind, *(f"{OUT}/{path}" for path in rows), *_flags(table.options)]
        if table.published:
            published(table.published)  # that there is none is told now, not after all the work
            words += ["--published", table.published]
        words += ["--out", f"{OUT}/{leaves[0]}", "--rows", f"{OUT}/{leaves[1]}"]
        return Step(f"table {name}", tuple(words), needs, leaves, partly=True)

    def figure(self, figure: Figure, steps: Sequence[Step]) -> Step:
        name = figure.name or figure.kind
        start = {"train": "runs/"}.get(figure.rows, f"rows/{figure.rows}")
        found = [(step, path) for step in steps for path in _rows(step) if path.startswith(start)]
        if not found:
            raise UsageError(f"the figure {name} is of the rows of {figure.rows}, and the study makes none.")
        leaves = tuple(f"figures/{slug(name)}.{kind}" for kind in ("svg", "pdf", "png"))
        words = ["plot", figure.kind, *(f"{OUT}/{path}" for _, path in found), *_flags(figure.options)]
        words += [word for path in leaves for word in ("--out", f"{OUT}/{path}")]
        return Step(f"figure {name}", tuple(words), tuple(dict.fromkeys(s.name for s, _ in found)), leaves, partly=True)

    @staticmethod
    def _guarded(name: str, leaves: Sequence[str], make: Callable[[], Step]) -> Step:
        """The step, or one that holds why it cannot be made."""
        try:
            return make()
        except (ProbekitError, OSError) as error:
            return Step(name, (), (), tuple(leaves), error=" ".join(str(error).split()))


def _file(task: str) -> str:
    """A task in names of files."""
    return slug(Path(task).name.replace(".toml", ""))


def _flags(options: Mapping[str, Any]) -> list[str]:
    """Options as words: ``{learning_rate = 1e-4, mix = true}`` is ``--learning-rate 0.0001 --mix``."""
    words: list[str] = []
    for key, value in options.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else [f"--no-{flag[2:]}"] if key == "group" else []
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return words


def _splits(block: Domains, folder: Path | None) -> list[str]:
    return block.split.split(",") if block.split else list(load_task(block.task, folder).splits)
