"""Common parts of sections: a study with its sources, names of runs and files, steps with errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from probekit.adaptation.options import Regime
from probekit.errors import ProbekitError
from probekit.files import slug
from probekit.studies.file import Study, Train
from probekit.studies.sources import Sources
from probekit.studies.steps import Step

__all__ = ["Plan", "guarded", "rows_of", "run_name", "task_name"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A study and its sources."""

    study: Study
    sources: Sources

    def models(self, block: Train) -> list[str]:
        """The models of a section, by name."""
        return block.models or list(self.study.models)


def task_name(task: str) -> str:
    """The name of a task in file names."""
    return slug(Path(task).name.replace(".toml", ""))


def run_name(plan: Plan, block: Train, task: str, model: str, regime: Regime, seed: int) -> str:
    """The name of a run: task, model (if there are several), variant, regime and seed."""
    which = [slug(model)] if len(plan.study.models) > 1 else []
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
