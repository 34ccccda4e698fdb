"""Options of pretraining."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option
from probekit.runtime import Dtype

__all__ = ["PRETRAIN", "LanguageModelling", "PretrainOptions"]

PRETRAIN = "pretrain"
"""The regime of these runs in cards and rows."""


class LanguageModelling(StrEnum):
    """What a language model predicts."""

    CAUSAL = "causal-lm"
    MASKED = "masked-lm"


_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "context": (lambda n: n >= 8, "8 or more"),
    "batch_size": (lambda n: n >= 1, "1 or more"),
    "evaluate_every": (lambda n: n >= 1, "1 or more"),
    "validation": (lambda x: 0 < x < 1, "a share between 0 and 1"),
    "epochs": (lambda x: 0 < x <= 1e6, "a number above 0, at most a million"),
    "learning_rate": (lambda x: 0 < x < inf, "a number above 0"),
    "warmup": (lambda x: 0 <= x < 1, "a share from 0 to below 1"),
    "weight_decay": (lambda x: 0 <= x < inf, "0 or more"),
    "max_grad_norm": (lambda x: 0 <= x < inf, "0 or more"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainOptions:
    """All options of ``probekit pretrain`` except the text and the folder."""

    objective: LanguageModelling = option(
        LanguageModelling.CAUSAL, "causal-lm (each piece from those before it) or masked-lm (pieces that are hidden)."
    )
    config: str | None = option(
        None,
        "Size of the model: gpt2-mini, bert-mini, or a config.json of transformers (default: gpt2-mini, bert-mini for "
        "masked-lm).",
        metavar="NAME|FILE",
    )
    tokenizer: str = option(
        "train:8000", "train:N trains byte-level BPE with N pieces on the text; else the folder or hub id of a model."
    )
    dev: tuple[Path, ...] | None = option(
        None, "Held-out text files, separated by commas (default: the last part of each text).", metavar="FILES"
    )
    validation: float = option(0.05, "Without dev: share of the lines of each text that is held out, at its end.")
    context: int = option(256, "Pieces in a sequence.")
    batch_size: int = option(16, "Sequences in a batch.")
    epochs: float = option(1.0, "Passes over the text.")
    learning_rate: float = option(1e-3, "Highest learning rate; it falls to a tenth as a cosine.")
    warmup: float = option(0.05, "Warm-up, as a share of all steps.")
    weight_decay: float = option(0.1, "Weight decay, not applied to biases and norms.")
    max_grad_norm: float = option(1.0, "Norm at which gradients are clipped; 0 for no clipping.")
    dtype: Dtype = option(Dtype.FLOAT32, "float32, or mixed precision in bfloat16.")
    evaluate_every: int = option(500, "Steps between evaluations, after each of which an interrupted run resumes.")
    save_at: str = option("", "Checkpoints to save: steps such as 10,20,50, or log-spaced.")
    seed: int = option(0, "Seed of initial weights, order, masks and dropout.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    run_name: str | None = option(None, "Name of the model in tables (default: the name of its folder).")
    overwrite: bool = option(False, "Replace another run in the folder.")

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "objective", LanguageModelling(self.objective))
        except ValueError:
            raise UsageError(
                f"objective is {self.objective!r}; {did_you_mean(str(self.objective), LanguageModelling)}"
            ) from None
        try:
            object.__setattr__(self, "dtype", Dtype(self.dtype))
        except ValueError:
            raise UsageError(f"dtype is {self.dtype!r}; expected float32 or bfloat16.") from None
        if self.dtype is Dtype.FLOAT16:
            raise UsageError("dtype is float16, whose range is too small here; choose bfloat16 or float32.")
        for name, (valid, expected) in _RANGES.items():
            if not valid(value := getattr(self, name)):  # also for NaN
                raise UsageError(f"{name} is {value}; expected {expected}.")

    @property
    def config_name(self) -> str:
        """The configuration, or the default for the objective."""
        return self.config or ("gpt2-mini" if self.objective is LanguageModelling.CAUSAL else "bert-mini")

    def numbers(self) -> dict[str, Any]:
        """What determines the weights besides text, configuration and tokenizer."""
        names = {f.name for f in fields(self)} - {
            "config", "tokenizer", "dev", "device", "run_name", "overwrite", "save_at"
        }  # fmt: skip
        numbers = {name: value for name, value in asdict(self).items() if name in names}
        return numbers | ({} if self.dev is None else {"validation": None})
