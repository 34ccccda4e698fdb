"""Options for loading a model, for the conversion of published model files, and for the proof of a model's sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from probekit.constraint import Checked, Count, Natural, Seed
from probekit.errors import UsageError
from probekit.recipe import option
from probekit.runtime import Dtype, DtypeName


class Packing(StrEnum):
    """How sequences share a forward pass; they are never padded."""

    AUTO = "auto"  # packed if the architecture is known and the self-check agrees, grouped otherwise
    PACKED = "packed"  # all in one row, attention within each
    GROUPED = "grouped"  # only sequences of the same length together


@dataclass(frozen=True, slots=True)
class LoadOptions(Checked):
    """How to load a model."""

    dtype: Dtype = option(Dtype.FLOAT32, "Precision of the model: float32, float16 or bfloat16.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    random_weights: Seed | None = option(
        None, "Re-initialise the model with this seed instead of reading its weights (a control)."
    )
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    max_length: Count | None = option(None, "Truncate sequences to fewer pieces than the model can read.")
    packing: Packing = option(
        Packing.AUTO,
        "How sequences share a forward pass: auto takes the fast path (packed) if the architecture is known and a "
        "self-check agrees with the model's own forward pass, one sequence at a time; else grouped, by length.",
    )
    onednn: bool = option(True, "On a CPU, prepack the weights of linear layers for oneDNN if it is available.")
    compile: bool = option(
        False, "Run each block through ``torch.compile`` (and not oneDNN); the last bits then depend on the batch."
    )
    batch_tokens: Count | None = option(None, "Number of pieces in a batch; None takes a fast default.")
    stateful: Natural = option(
        0,
        "For ELMo: 0 begins each sentence with an empty state. Another number is the size of batches that carry their "
        "state over to the next batch, as in the original.",
    )
    decoder: bool = option(
        False,
        "Of an encoder-decoder, read the decoder instead of the encoder: both read the text, the decoder one piece "
        "later (see :class:`~probekit.models.transformers.stock.TextDecoder`).",
    )
    sites: Sequence[str] | str | None = option(
        None, "Read these proven sites instead of the residual stream: ``resid_post,attn_out,z``."
    )
    blocks: Sequence[int | str] | str | None = option(None, "The blocks of the sites, from 0: ``0,4-6``; None for all.")
    attention: Literal["eager", "sdpa"] | None = option(
        None,
        "The attention code of transformers, for texts of one length at a time, instead of probekit's own for packed "
        "texts.",
    )
    quantise: Literal["8bit", "4bit"] | None = option(
        None, "Round the weights of the blocks' linear layers with bitsandbytes, as in training with quantise."
    )
    last: Natural | None = option(
        None,
        "The last layer that is wanted of a transformer: the weights of later blocks are not read, where that is "
        "possible, and ``encode`` hands out no later layer.",
    )
    device_map: str | Mapping[str, Any] | None = option(
        None,
        "Spread a transformers model that is larger than one GPU over several, as transformers does it: auto, or a "
        "device for each module. Hidden states are handed out on the first one.",
    )
    tp_plan: str | None = option(
        None,
        "auto: each of the processes that torchrun started reads a slice of every weight (tensor parallelism, by the "
        "plan of transformers). All of them must load the model, and enter every pass, at once.",
    )

    def together(self) -> None:
        if self.tp_plan not in (None, "auto"):
            raise UsageError(f"tp_plan is {self.tp_plan!r}; expected auto, the plan of transformers.")
        if self.tp_plan is not None and (self.device_map is not None or self.compile):
            raise UsageError("tp_plan does not go with device_map or compile; leave one out.")
        if self.attention is not None and self.packing is Packing.PACKED:
            raise UsageError("packed texts have probekit's own attention code; leave out attention or packing.")
        if self.last is not None and self.sites is not None:
            raise UsageError("last is the number of a layer; of sites, the whole model is read. Leave one out.")
        if self.blocks is not None and self.sites is None:
            raise UsageError("blocks are those of sites; give sites, such as attn_out.")


@dataclass(frozen=True, slots=True)
class ScorerOptions(Checked):
    """How to load a language model that scores texts."""

    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    dtype: DtypeName = option("float32", "Precision of the model's weights: float32, float16 or bfloat16.")
    random_weights: Seed | None = option(
        None, "Control: draw the weights at random with this seed instead of the trained ones."
    )
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    batch_tokens: Count = option(4096, "Pieces that the model reads at once.")


SPLITTINGS = ("treebank", "blanks")


@dataclass(frozen=True, slots=True)
class ConvertOptions(Checked):
    """How a converted model splits plain text into words."""

    words: str = option(
        "treebank",
        "How to split plain text into words: treebank (like NLTK), or blanks (already tokenized, at spaces).",
    )

    def together(self) -> None:
        if self.words not in SPLITTINGS:
            raise UsageError(f"words is {self.words!r}; expected one of {', '.join(SPLITTINGS)}.")


@dataclass(frozen=True, slots=True)
class SkipThoughtsOptions(Checked):
    """Options for Skip-thoughts only."""

    eos: bool = option(False, "Append the end-of-sentence token to each sentence.")
    raw: bool = option(False, "Do not scale vectors to length 1.")
    vectors: str | None = option(
        None,
        "Word vectors as text (word2vec or GloVe); words that the dictionary lacks are added by linear regression.",
        metavar="FILE",
    )


@dataclass(frozen=True, slots=True)
class SiteOptions(Checked):
    """How to load the model whose sites are proven."""

    dtype: DtypeName = option("float32", "float32, float16 or bfloat16 (fp32, fp16, bf16).")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    random_weights: Seed | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")
    decoder: bool = option(
        False, "Of an encoder-decoder (T5, BART): the decoder, which reads the text one piece later than the encoder."
    )
