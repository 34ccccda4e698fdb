"""Options of pretraining."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from probekit.constraint import (
    Checked,
    Commas,
    Count,
    Ge,
    Gt,
    Most,
    Natural,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Size,
)
from probekit.errors import UsageError
from probekit.metrics import Metric
from probekit.recipe import option
from probekit.runtime import Dtype

PRETRAIN = "pretrain"
"""The regime of these runs in cards and rows."""


def description(task: str, head: str) -> dict[str, Any]:
    """What the card of a pretraining says of its task."""
    return {"task": task, "head": {"head": head, "pooling": None}, "splits": ["train", "dev"], "regime": PRETRAIN}


NEW_RATE, CONTINUED_RATE = 1e-3, 1e-4
"""Default learning rates of a new model, and of one that is trained further."""

if TYPE_CHECKING:  # None may be passed; an instance always holds a number
    Rate = float
else:
    Rate = float | None


class LanguageModelling(StrEnum):
    """What a language model predicts."""

    CAUSAL_LM = "causal-lm"  # the command line reads the names
    MASKED_LM = "masked-lm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainOptions(Checked):
    """All options of ``probekit pretrain`` except the text and the folder."""

    model: str | None = option(
        None,
        "Continue the training of this model, a folder or hub id, with its tokenizer and its language-model head "
        "(default: a new model).",
    )
    objective: LanguageModelling = option(
        LanguageModelling.CAUSAL_LM,
        "causal-lm (each piece from those before it) or masked-lm (pieces that are hidden).",
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
    validation: Share = option(0.05, "Without dev: share of the lines of each text that is held out, at its end.")
    context: Annotated[int, Ge(8), Most(1_000_000)] = option(256, "Pieces in a sequence.")
    batch_size: Size = option(16, "Sequences in a batch.")
    epochs: Annotated[float, Gt(0), Most(1_000_000)] = option(1.0, "Passes over the text.")
    learning_rate: Rate = option(
        None, "Highest learning rate; it falls to a tenth as a cosine (default: 1e-3; 1e-4 with --model)."
    )
    warmup: Part = option(0.05, "Warm-up, as a share of all steps.")
    weight_decay: NotNegative = option(0.1, "Weight decay, not applied to biases and norms.")
    max_grad_norm: NotNegative = option(1.0, "Norm at which gradients are clipped; 0 for no clipping.")
    dtype: Dtype = option(Dtype.FLOAT32, "float32, or mixed precision in bfloat16.")
    evaluate_every: Count = option(500, "Steps between evaluations, after each of which an interrupted run resumes.")
    save_at: Commas = option("", "Checkpoints to save: steps such as 10,20,50, or log-spaced.")
    seed: Seed = option(0, "Seed of initial weights, order, masks and dropout.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    run_name: str | None = option(None, "Name of the model in tables (default: the name of its folder).")
    overwrite: bool = option(False, "Replace another run in the folder.")

    def together(self) -> None:
        if self.dtype is Dtype.FLOAT16:
            raise UsageError("dtype is float16, whose range is too small here; choose bfloat16 or float32.")
        if self.learning_rate is None:
            object.__setattr__(self, "learning_rate", NEW_RATE if self.model is None else CONTINUED_RATE)
        if self.model is not None:
            for name in ("config", "tokenizer"):
                if getattr(self, name) != getattr(PretrainOptions(), name):
                    raise UsageError(f"{self.model} has its own {name}; leave out --{name}, or --model.")

    @property
    def config_name(self) -> str:
        """The configuration, or the default for the objective."""
        return self.config or ("gpt2-mini" if self.objective is LanguageModelling.CAUSAL_LM else "bert-mini")

    def numbers(self) -> dict[str, Any]:
        """What determines the weights besides text, configuration and tokenizer."""
        names = {f.name for f in fields(self)} - {
            "model", "config", "tokenizer", "dev", "device", "run_name", "overwrite", "save_at"
        }  # fmt: skip
        numbers = {name: value for name, value in asdict(self).items() if name in names}
        return numbers | ({} if self.dev is None else {"validation": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions(Checked):
    """All options of ``probekit pretrain-encoder`` except the encoder, the objectives and the folder.

    The defaults are those of Bowman et al. (2018, section 4), except ``steps``: the paper has no last step.
    """

    steps: Count = option(100_000, "Largest number of steps, of all objectives together.")
    sampling: str = option(
        "power-0.75",
        "How the objective of a step is drawn, from the numbers of training examples n: uniform, proportional, "
        "log-proportional, power-0.75 (n to this power), capped-16384, or weights such as 2,1.",
    )
    scaling: str = option("uniform", "What losses are multiplied by: the same names, divided by the largest.")
    batch_size: Annotated[int, Ge(2), Most(1_000_000)] = option(32, "Examples in a batch.")
    accumulation: Size = option(1, "Batches of a step, each of which may have another objective.")
    learning_rate: Positive | None = option(
        None, "Learning rate of AMSGrad (default: 0.001 if a metric is a perplexity, otherwise 0.0001)."
    )
    evaluate_every: Count = option(1000, "Steps between validations, for each objective of the mixture.")
    patience: Count = option(20, "Validations without improvement after which training ends.")
    max_grad_norm: NotNegative = option(5.0, "Norm at which gradients are clipped; 0 for no clipping.")
    max_length: Annotated[int, Ge(3), Most(1_000_000)] = option(
        40, "Pieces that are read of a text; output words of a target."
    )
    outputs: Annotated[int, Ge(4), Most(10_000_000)] = option(
        20_000, "Output words of language models and decoders; others are unknown."
    )
    output_pieces: bool = option(
        False, "Decoders write pieces (byte-level BPE, trained on the targets) instead of words."
    )
    attention: tuple[str, ...] = option(
        ("all",),
        "Objectives whose decoders attend to all states of the encoder, separated by commas: by kind (skip-thought) or "
        "with their corpus (skip-thought:books.txt); all or none.",
    )
    hidden_size: Size = option(512, "Hidden layer of the classifiers.")
    dropout: Part = option(0.2, "Dropout of the classifiers; the encoder has its own.")
    limit: Count | None = option(None, "Train on only N examples of each objective.", metavar="N")
    dev_limit: Count | None = option(None, "Validate on only N examples of each objective.", metavar="N")
    data_dir: Path | None = option(None, "Folder with the files of corpora and tasks, in subfolders.")
    data_seed: Natural = option(
        0, "Seed of the examples that limits draw, of noise, and of held-out text.", metavar="SEED"
    )
    seed: Seed = option(0, "Seed of heads, order, mixture and dropout.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    run_name: str | None = option(None, "Name of the model in tables (default: the name of its folder).")
    overwrite: bool = option(False, "Replace another run in the folder.")

    def attends(self, objective: str) -> bool:
        """Whether the decoder of an objective attends to the encoder's states."""
        return not {"all", objective, objective.partition(":")[0]}.isdisjoint(self.attention)

    def rate(self, metrics: Iterable[Metric]) -> float:
        """The learning rate, or the default for objectives with these metrics."""
        generates = any(metric.better == "lower" for metric in metrics)
        return self.learning_rate or (1e-3 if generates else 1e-4)

    def numbers(self) -> dict[str, Any]:
        """What determines the weights besides encoder, objectives and data."""
        left = {"data_dir", "device", "run_name", "overwrite"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left}
