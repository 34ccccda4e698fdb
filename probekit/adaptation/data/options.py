"""Options of how texts longer than the model are read, and of answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from probekit.constraint import Checked, Count, Natural
from probekit.recipe import option

TOKENS = 40
"""Pieces of a generated response, if no other number is given."""


class DecodingKind(StrEnum):
    """How responses are generated."""

    GREEDY = "greedy"  # the most likely piece at each step
    SAMPLE = "sample"  # drawn from the softmax


class Long(StrEnum):
    """How a text with more pieces than the model reads is classified (Sun et al. 2019, section 5.3.1)."""

    TRUNCATE = "truncate"
    HEAD_TAIL = "head-tail"  # its first and last pieces, 128 + 382 of 510
    WINDOWS = "windows"  # the mean of the logits of overlapping windows
    HIERARCHICAL = "hierarchical"  # the mean or maximum of the windows' vectors, before the head


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Checked):
    """Long texts and answers."""

    long: Long = option(
        Long.TRUNCATE,
        "Fine-tuning on single texts longer than the model: truncate, head-tail (the first quarter and the last three "
        "quarters of what fits), windows (mean of the logits of overlapping windows) or hierarchical (the head reads "
        "the mean or maximum of the windows' vectors).",
    )
    overlap: Natural | None = option(
        None, "Pieces that neighbouring windows share, for --long windows, hierarchical and questions (default: 128)."
    )
    window_pooling: Literal["mean", "max"] = option(
        "mean", "--long hierarchical: mean or max of the windows' vectors.", needs="long=hierarchical"
    )
    answer_length: Count | None = option(None, "Questions: the most pieces of an answer (default: 30).")

    decoding: DecodingKind | None = option(
        None, "Responses: greedy (the most likely piece) or sample (drawn with --seed; default: greedy)."
    )
    max_new_tokens: Count | None = option(None, "Responses: the most pieces of a generated one (default: 40).")
