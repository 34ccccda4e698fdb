"""Options for the import of activations."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.constraint import Checked, Natural, Seed
from probekit.recipe import option
from probekit.runtime import DtypeName


@dataclass(frozen=True, slots=True)
class ImportOptions(Checked):
    """What imported activations are, what the cache holds of them, and how they are certified first."""

    layers: tuple[str, ...] | None = option(
        None,
        "The layers in vLLM's files, or of one array hidden_states, in ascending order: 1,2,3,4. Default: those that "
        "the certification finds.",
    )
    labels: str | None = option(
        None,
        "A table (CSV, TSV, JSON Lines, Parquet) with a column label, and perhaps id and group; without id, its rows "
        "are the texts in order.",
        metavar="FILE",
    )
    label_names: tuple[str, ...] | None = option(
        None, "The classes in the order of their numbers; default: those of --labels, sorted."
    )
    task: str | None = option(None, "Name of the task; by default that of the file.")
    split: str = option("train", "Name of the split.")
    pooling: tuple[str, ...] = option(
        ("mean",), "One or more of mean, mean-all, first, last, max, separated by commas, or none."
    )
    pooled_only: bool = option(False, "Leave out the vectors of pieces.")
    certify: Natural = option(
        8, "How many texts are recomputed before; 0 imports the numbers as they are.", metavar="N"
    )
    dtype: DtypeName = option("float32", "Precision of the model that recomputes them: float32, float16 or bfloat16.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    random_weights: Seed | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")
