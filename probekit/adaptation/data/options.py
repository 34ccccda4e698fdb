"""Options of how texts longer than the model are read, and of answers."""

from dataclasses import dataclass
from enum import StrEnum

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["TOKENS", "DecodingKind", "Long", "ReadingOptions"]

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

    decoding: DecodingKind | None = option(
        None, "Responses: greedy (the most likely piece) or sample (drawn with --seed; default: greedy)."
    )
    max_new_tokens: int | None = option(None, "Responses: the most pieces of a generated one (default: 40).")

    def __post_init__(self) -> None:
        if self.decoding is not None:
            try:
                object.__setattr__(self, "decoding", DecodingKind(self.decoding))
            except ValueError:
                raise UsageError(f"decoding is {self.decoding!r}; it must be greedy or sample.") from None
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {self.max_new_tokens}; it must be 1 or more.")
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
