"""Options of how texts longer than the model are read, and of answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["Long", "ReadingOptions"]


class Long(StrEnum):
    """How a text with more pieces than the model reads is classified (Sun et al. 2019, section 5.3.1)."""

    TRUNCATE = "truncate"
    HEAD_TAIL = "head-tail"  # its first and last pieces, 128 + 382 of 510
    WINDOWS = "windows"  # the mean of the logits of overlapping windows
    HIERARCHICAL = "hierarchical"  # the mean or maximum of the windows' vectors, before the head


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Long texts and answers."""

    long: Long = option(
        Long.TRUNCATE,
        "Fine-tuning on single texts longer than the model: truncate, head-tail (the first quarter and the last three "
        "quarters of what fits), windows (mean of the logits of overlapping windows) or hierarchical (the head reads "
        "the mean or maximum of the windows' vectors).",
    )
    overlap: int | None = option(
        None, "Pieces that neighbouring windows share, for --long windows, hierarchical and questions (default: 128)."
    )
    window_pooling: str = option("mean", "--long hierarchical: mean or max of the windows' vectors.")
    answer_length: int | None = option(None, "Questions: the most pieces of an answer (default: 30).")

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "long", Long(self.long))
        except ValueError:
            raise UsageError(f"long is {self.long!r}; it must be one of {', '.join(Long)}.") from None
        if self.overlap is not None and self.overlap < 0:
            raise UsageError(f"overlap is {self.overlap}; it must be 0 or more.")
        if self.answer_length is not None and self.answer_length < 1:
            raise UsageError(f"answer_length is {self.answer_length}; it must be 1 or more.")
        if self.window_pooling not in ("mean", "max"):
            raise UsageError(f"window_pooling is {self.window_pooling!r}; it must be mean or max.")
        if self.window_pooling != "mean" and self.long is not Long.HIERARCHICAL:
            raise UsageError(f"window_pooling is for --long hierarchical; long is {self.long}.")
