"""Common parts of sections: a study with its sources, its models, names of runs and files, steps with errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from probekit.adaptation.options import Regime
from probekit.errors import ProbekitError
from probekit.files import slug
from probekit.studies.schema import OfCaches, Pretrain, Probe, Study, Train
from probekit.studies.sources import ModelSize, Sources, configured_size
from probekit.studies.steps import Inside, Step


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a section."""

    plan: Plan
    block: Train
    model: str
    task: str
    regime: Regime
    seed: int

    @property
    def name(self) -> str:
        """Task, model (if there are several), variant, regime and seed."""
        study = self.plan.study
        which = [slug(self.model)] if study.pretrain or len(study.models) > 1 else []
        which += [slug(self.block.name)] if self.block.name else []
        return ".".join([task_name(self.task), *which, self.regime, str(self.seed)])

    @property
    def folder(self) -> Inside:
        """Where it is."""
        return Inside(f"runs/{self.name}")


@dataclass(frozen=True, slots=True)
class Plan:
    """A study and its sources."""

    study: Study
    sources: Sources

    def models(self, block: Train | Probe | OfCaches) -> list[str]:
        """The models and encoders of a section, by name."""
        return block.models or [*self.study.models, *(name for one in self.study.pretrain for name in one.on)]

    def pretraining(self, model: str) -> Pretrain | None:
        """The section that makes an encoder; None for a model that exists."""
        return next((block for block in self.study.pretrain if model in block.on), None)

    def runs(self, block: Train) -> Iterator[Run]:
        """The runs of a section; on an encoder of the study they have the seeds of its pretraining."""
        for model in self.models(block):
            made = self.pretraining(model)
            for task, regime, seed in product(block.tasks, block.regimes, (made or block).seeds):
                yield Run(self, block, model, task, regime, seed)

    def encoder(self, block: Pretrain) -> str:
        """The name of the untrained encoder of a section."""
        return block.encoder or next(iter(self.study.encoders))

    def model(self, model: str, seed: int) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The arguments for a model, and the step that makes it; of an encoder of the study, the one with this seed."""
        made = self.pretraining(model)
        if made is None:
            return self.sources.model_arguments(model), ()
        name = pretraining_name(model, seed) if made.on[model] else encoder_name(self.encoder(made), seed)
        folder, step = (f"runs/{name}", name) if made.on[model] else (f"encoders/{name}", f"encoder {name}")
        return {"model": Inside(folder), "model_name": model}, (step,)

    def size(self, model: str) -> ModelSize:
        """The size of a model; of an encoder of the study, according to its configuration."""
        made = self.pretraining(model)
        return self.sources.size(model) if made is None else configured_size(self.study.encoders[self.encoder(made)])


def pretraining_name(model: str, seed: int) -> str:
    """The name of the run that pretrains an encoder."""
    return f"pretrain.{slug(model)}.{seed}"


def encoder_name(encoder: str, seed: int) -> str:
    """The name of an untrained encoder."""
    return f"{slug(encoder)}.{seed}"


def task_name(task: str) -> str:
    """The name of a task in file names."""
    return slug(Path(task).name.replace(".toml", ""))


def rows_leaf(name: str) -> str:
    """The file with the rows of a step."""
    return f"rows/{slug(name)}.parquet"


def leaves_of(name: str) -> tuple[str, str]:
    """The files with the rows and the predictions of a step."""
    return rows_leaf(name), f"rows/{slug(name)}.examples.parquet"


def rows_of(step: Step) -> list[str]:
    """The row files of a step."""
    return [path for path in step.leaves if path.endswith(".parquet") and not path.endswith(".examples.parquet")]


def guarded(name: str, leaves: Sequence[str], make: Callable[[], Step]) -> Step:
    """The step, or a step with the error that prevents it."""
    try:
        return make()
    except (ProbekitError, OSError) as error:
        return Step(name, leaves=tuple(leaves), error=" ".join(str(error).split()))
