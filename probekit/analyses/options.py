"""Options that several analyses share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from probekit.constraint import Checked
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option
from probekit.sites import Layers


class SpanVector(StrEnum):
    """How the pieces of a span become a vector."""

    ENDS = "ends"  # the first and the last piece, side by side
    MEAN = "mean"


class PairVector(StrEnum):
    """What is read of the vectors u and v of a pair of spans."""

    COMPARED = "compared"  # [u; v; |u - v|; u * v]
    SIDES = "sides"  # [u; v]


@dataclass(frozen=True, slots=True)
class VectorOptions(Checked):
    """Which vectors of a cache are analysed."""

    pooling: str | None = option(
        None,
        "How the pieces of a text become one vector: a pooling that the cache has, such as mean or last (default: its "
        "first). Leave it out for tasks about words and spans, and for edges and structural, which read words and "
        "spans in their own way.",
    )
    span: SpanVector | None = option(
        None,
        "For tasks about spans (phrases, or pairs of words): how the pieces of a span become one vector. ends: its "
        "first and last piece, side by side (the default of such tasks); mean: the mean of its pieces. Leave it out "
        "for other tasks, and for edges (which trains its own vector) and structural (which reads means of words).",
    )
    span_pair: PairVector = option(
        PairVector.COMPARED,
        "Of pairs of words or spans, what is read of their vectors u and v. compared: [u; v; abs(u - v); u * v], as of "
        "pairs of texts that are read separately; sides: [u; v]. Leave it out for edges, which reads sides.",
    )
    layers: Layers | None = option(
        None, "Layers to analyse, separated by commas: 0,4-6,final_norm; -1 is the last (default: all)."
    )
    through: str | None = option(
        None,
        "Read the features of a sparse dictionary in place of the vectors: sae:FOLDER, a folder of SAELens or sparsify "
        "(cfg.json and safetensors). The layer is the one that the dictionary belongs to.",
    )
    groups: str = option(
        "auto",
        "How examples are grouped; a group is shuffled, held out and resampled as a whole: auto (groups that the task "
        "declares, otherwise equal texts, shared sentences of pairs and near copies), domain, a column of the data of "
        "your task file, or none. Except with none, examples with equal vectors share a group. Words are always "
        "grouped at least by sentence.",
    )

    @property
    def dictionary(self) -> Path | None:
        """The folder of ``through``."""
        return None if self.through is None else Path(self.through.partition(":")[2]).expanduser()

    def together(self) -> None:
        if self.through is not None and not re.fullmatch("sae:.+", self.through, re.DOTALL):
            raise UsageError(
                f"through is {self.through!r}; expected sae:FOLDER, such as sae:gpt2/blocks.8.hook_resid_pre."
            )
        if self.pooling is not None and "," in self.pooling:
            first = self.pooling.partition(",")[0]
            raise UsageError(
                f"an analysis has one pooling, not {self.pooling}. Run it once for each, with --pooling {first} and "
                "another --out; then plot layers draws the rows of both, and compare tests their difference."
            )


def in_order(names: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Some of the known names, in their order."""
    if not names:
        raise UsageError(f"measures is empty; name one or more of {', '.join(known)}.")
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"unknown {what} {unknown[0]!r}; {did_you_mean(unknown[0], known)}")
    return tuple(name for name in known if name in names)
