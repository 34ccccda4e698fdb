"""Options for the conversion of published model files, and for the proof of a model's sites."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.recipe import option
from probekit.runtime import dtype_name

__all__ = ["ConvertOptions", "SiteOptions", "SkipThoughtsOptions"]

SPLITTINGS = ("treebank", "blanks")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """How a converted model splits plain text into words."""

    words: str = option(
        "treebank",
        "How to split plain text into words: treebank (like NLTK), or blanks (already tokenized, at spaces).",
    )

    def __post_init__(self) -> None:
        if self.words not in SPLITTINGS:
            raise UsageError(f"words is {self.words!r}; expected one of {', '.join(SPLITTINGS)}.")


@dataclass(frozen=True, slots=True)
class SkipThoughtsOptions:
    """Options for Skip-thoughts only."""

    eos: bool = option(False, "Append the end-of-sentence token to each sentence.")
    raw: bool = option(False, "Do not scale vectors to length 1.")
    vectors: str | None = option(
        None,
        "Word vectors as text (word2vec or GloVe); words that the dictionary lacks are added by linear regression.",
        metavar="FILE",
    )


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """How to load the model whose sites are proven."""

    dtype: str = option("float32", "float32, float16 or bfloat16 (fp32, fp16, bf16).")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    random_weights: int | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")
    decoder: bool = option(
        False, "Of an encoder-decoder (T5, BART): the decoder, which reads the text one piece later than the encoder."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
