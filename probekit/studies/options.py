"""How a study is run: frozen values, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.activations.pooling import Pooling
from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["RunOptions", "StudyOptions", "WorkerOptions"]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """What a study is of."""

    model: tuple[str, ...] = option(
        (), "Instead of the file's: NAME=MODEL, hub id or folder; may be repeated.", metavar="NAME=MODEL"
    )
    data_dir: str | None = option(
        None, "Folder with a folder for each task's files; the hub without it.", metavar="FOLDER"
    )
    set_: tuple[str, ...] = option(
        (), "Replace a value of the file, such as train.0.seeds=[0,1,2]; may be repeated.", metavar="KEY=VALUE"
    )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a first look is of, and how thorough it is."""

    data_dir: str | None = option(
        None, "Folder of the task's files, or with a folder for each task; the hub without it.", metavar="FOLDER"
    )
    limit: int | None = option(None, "Learn from N examples of train, drawn at random.", metavar="N")
    pooling: str | None = option(
        None, "mean, mean-all, first, last or max of the pieces of a text; first or mean of each labelled word."
    )
    device: str = option("auto", "Where the model runs: auto, cpu, cuda, cuda:N or mps.")
    quick: bool = option(
        False, "A quick look: the penalty chosen on one held-out part, no shuffled labels, no random weights."
    )

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit is {self.limit}; it must be 1 or more.")
        if self.pooling is not None and self.pooling not in list(Pooling):
            raise UsageError(f"pooling is one of {', '.join(Pooling)}, not {self.pooling!r}.")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Where its steps run."""

    jobs: int = option(1, "Steps at a time on this machine.")
    backend: str = option("loky", "loky (this machine) or dask.")
    scheduler: str | None = option(None, "With --backend dask: its address, such as tcp://host:8786.")

    def __post_init__(self) -> None:
        if self.backend not in ("loky", "dask"):
            raise UsageError(f"--backend is loky or dask, not {self.backend!r}.")
        if (self.backend == "dask") != (self.scheduler is not None):
            raise UsageError("--backend dask and --scheduler ADDRESS belong together.")
        if self.jobs < 1:
            raise UsageError(f"--jobs is {self.jobs}; it must be 1 or more.")
