"""Common parts of sections: a study with its sources, its models, names of runs and files, steps with errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probekit.adaptation.options import Regime
from probekit.errors import ProbekitError
from probekit.files import slug
from probekit.studies.schema import OfCaches, Pretrain, Probe, Study, Train
from probekit.studies.sources import ModelSize, Sources, configured_size
from probekit.studies.steps import Inside, Step


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

    def seeds(self, block: Train, model: str) -> list[int]:
        """The seeds of a section's runs on a model: those of its pretraining, if it is an encoder of the study."""
        made = self.pretraining(model)
        return block.seeds if made is None else made.seeds

    def encoder(self, block: Pretrain) -> str:
        """The name of the untrained encoder of a section."""
        return block.encoder or next(iter(self.study.encoders))

    def model_arguments(self, model: str, seed: int) -> dict[str, Any]:
        """The arguments for a model; of an encoder of the study, the one with this seed."""
        made = self.pretraining(model)
        if made is None:
            return self.sources.model_arguments(model)
        if made.on[model]:
            return {"model": Inside(f"runs/{pretraining_name(model, seed)}"), "model_name": model}
        return {"model": Inside(f"encoders/{encoder_name(self.encoder(made), seed)}"), "model_name": model}

    def needs(self, model: str, seed: int) -> tuple[str, ...]:
        """The step that makes a model."""
        made = self.pretraining(model)
        if made is None:
            return ()
        if made.on[model]:
            return (pretraining_name(model, seed),)
        return (f"encoder {encoder_name(self.encoder(made), seed)}",)

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


def run_name(plan: Plan, block: Train, task: str, model: str, regime: Regime, seed: int) -> str:
    """The name of a run: task, model (if there are several), variant, regime and seed."""
    which = [slug(model)] if plan.study.pretrain or len(plan.study.models) > 1 else []
    which += [slug(block.name)] if block.name else []
    return ".".join([task_name(task), *which, regime, str(seed)])


def rows_of(step: Step) -> list[str]:
    """The row files of a step."""
    return [path for path in step.leaves if path.endswith(".parquet") and not path.endswith(".examples.parquet")]


def guarded(name: str, leaves: Sequence[str], make: Callable[[], Step]) -> Step:
    """The step, or a step with the error that prevents it."""
    try:
        return make()
    except (ProbekitError, OSError) as error:
        return Step(name, leaves=tuple(leaves), error=" ".join(str(error).split()))
