"""Options of a study, checked when they are created."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.activations.pooling import poolings
from probekit.errors import UsageError
from probekit.recipe import check_least, option

__all__ = ["RunOptions", "StudyOptions", "WorkerOptions"]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The models, data and values of a study."""

    model: tuple[str, ...] = option(
        (), "Replace the models of the file by NAME=MODEL, a hub id or a folder; may be repeated.", metavar="NAME=MODEL"
    )
    data_dir: str | None = option(
        None, "Folder with one subfolder of files per task (default: the hub).", metavar="FOLDER"
    )
    set_: tuple[str, ...] = option(
        (), "Replace a value of the file, such as train.0.seeds=[0,1,2]; may be repeated.", metavar="KEY=VALUE"
    )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The data of a first look, and how thorough it is."""

    data_dir: str | None = option(
        None, "Folder with the task's files, or with one subfolder per task (default: the hub).", metavar="FOLDER"
    )
    limit: int | None = option(None, "Use N examples of train and N of dev, drawn at random.", metavar="N")
    pooling: str | None = option(
        None, "Pooling: mean, mean-all, first, last or max over the pieces of a text; first or mean for labelled words."
    )
    device: str = option("auto", "Where the model runs: auto, cpu, cuda, cuda:N or mps.")
    quick: bool = option(
        False, "Quick look: choose the penalty on one held-out part; no shuffled labels, no random weights."
    )

    def __post_init__(self) -> None:
        check_least(self, limit=1)
        if self.pooling is not None and len(poolings(self.pooling)) > 1:
            raise UsageError(f"a run has one pooling, not {self.pooling}; probekit cache-activations takes several.")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Where the steps of a study run."""

    jobs: int = option(1, "Steps that run in parallel on this machine.")
    backend: str = option("loky", "loky (this machine) or dask.")
    scheduler: str | None = option(None, "Address of the dask scheduler, with --backend dask, such as tcp://host:8786.")

    def __post_init__(self) -> None:
        if self.backend not in ("loky", "dask"):
            raise UsageError(f"--backend must be loky or dask, not {self.backend!r}.")
        if (self.backend == "dask") != (self.scheduler is not None):
            raise UsageError("--backend dask and --scheduler ADDRESS must be given together.")
        check_least(self, jobs=1)
