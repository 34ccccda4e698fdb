"""Options of a study, checked when they are created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from probekit.activations.pooling import poolings
from probekit.constraint import Checked, Count, Threads
from probekit.errors import UsageError
from probekit.recipe import option
from probekit.runtime import DtypeName
from probekit.sites import LayerNames


@dataclass(frozen=True, slots=True)
class StudyOptions(Checked):
    """The models, data and values of a study."""

    model: tuple[str, ...] = option(
        (),
        "MODEL (a hub id or a folder), or NAME=MODEL to choose the name that tables show; may be repeated. It replaces "
        "the model that the file calls NAME; a new NAME, or MODEL without a name, replaces all models of the file.",
        metavar="NAME=MODEL",
    )
    data_dir: str | None = option(
        None,
        "Folder with one subfolder of files per task (default: the hub, for the tasks that it has).",
        metavar="FOLDER",
    )
    set_: tuple[str, ...] = option(
        (),
        "Replace a value of the file, such as train.0.seeds=[0,1,2] of a study, or limit=500 of a suite; may be "
        "repeated.",
        metavar="KEY=VALUE",
    )
    allow_remote: bool = option(
        False,
        "Open addresses (s3://bucket/cache) that the file names. Without it they are an error, since whoever wrote the "
        "file chose them.",
    )


@dataclass(frozen=True, slots=True)
class RunOptions(Checked):
    """The data of a first look, and how thorough it is."""

    data_dir: str | None = option(
        None, "Folder with the task's files, or with one subfolder per task (default: the hub).", metavar="FOLDER"
    )
    limit: Count | None = option(None, "Use N examples of train and N of dev, drawn at random.", metavar="N")
    pooling: tuple[str, ...] | None = option(
        None,
        "One or more poolings, separated by commas, each probed: mean, mean-all, first, last, max over the pieces of a "
        "text (default: mean); first or mean for labelled words (default: first). Leave it out for labels about spans, "
        "such as a word in two contexts: the mean of the pieces of each span is read.",
    )
    layers: LayerNames | None = option(None, "Layers to cache and analyse, such as 0,4-8,12 (default: all).")
    dtype: DtypeName = option("float32", "Precision of the model: float32, float16 or bfloat16 (fp32, fp16, bf16).")
    batch_tokens: Count | None = option(None, "Number of pieces in a batch of the model.")
    device: str = option("auto", "Where the model runs: auto, cpu, cuda, cuda:N or mps.")
    quick: bool = option(
        False,
        "Quick look: choose the penalty on one held-out part; no shuffled labels, bag and tf-idf of word pieces, "
        "random weights or mutual information.",
    )

    def together(self) -> None:
        if self.pooling is not None:
            object.__setattr__(self, "pooling", tuple(map(str, poolings(self.pooling))))

    @property
    def of_caches(self) -> dict[str, Any]:
        """The arguments of ``cache_activations`` that the run passes on."""
        return {name: getattr(self, name) for name in ("device", "dtype", "layers", "batch_tokens")}


@dataclass(frozen=True, slots=True)
class WorkerOptions(Checked):
    """Where the steps of a study run."""

    jobs: Threads = option(1, "Steps that run in parallel on this machine.")
    backend: Literal["loky", "dask"] = option("loky", "loky (this machine) or dask.")
    scheduler: str | None = option(None, "Address of the dask scheduler, with --backend dask, such as tcp://host:8786.")

    def together(self) -> None:
        if (self.backend == "dask") != (self.scheduler is not None):
            raise UsageError("--backend dask and --scheduler ADDRESS must be given together.")
