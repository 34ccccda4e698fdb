"""What may be chosen of an activation cache."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.recipe import check_least, option
from probekit.tasks.context import Context

__all__ = ["GROUPS", "NO_POOLING", "CacheOptions", "CertifyOptions"]

NO_POOLING = ("none",)
GROUPS = ("auto", "none", "domain")
"""How the examples of a cache are grouped: as declared or found, not at all, by domain."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Which examples are read, how the model reads them, what is kept of it, and how the work is done."""

    data_dir: str | None = option(None, "Folder with the task's files; the hub without it.")
    pooling: tuple[str, ...] | None = option(
        None,
        "One or several of mean, mean-all, first, last, max, with commas; or none. Without it mean (of Skip-thoughts "
        "last).",
    )
    tokens: bool | None = option(None, "Keep the vector of every token as well; without it for tasks that label words.")
    token_level: str | None = option(
        None,
        "Tokens are piece, word-pieces (without special ones), word-first (first piece) or word-mean. "
        "Without it word-first for tasks that label words, piece with --tokens.",
    )
    context: str = option("none", "Of labelled words: none, or document, the sentences around as far as there is room.")
    pairs: str = option("auto", "Sentence pairs: joint (one sequence), separate (two), or auto: joint where possible.")
    dtype: str = option("float32", "The model computes in float32, float16 or bfloat16.")
    store: str | None = option(None, "Numbers in the file; as --dtype without it.")
    layers: tuple[str, ...] | None = option(None, "Layers to keep, such as 0,6,12; all without it.")
    limit: int | None = option(None, "Only N examples, drawn at random.", metavar="N")
    data_seed: int = option(0, "Of that draw.", metavar="SEED")
    random_weights: int | None = option(None, "Control: the same architecture, re-initialised.", metavar="SEED")
    workers: int = option(1, "Processes that share the work.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of a hub model.")
    model_name: str | None = option(None, "Name in tables and file names.")
    max_length: int | None = option(None, "Most pieces of a sequence.")
    stateful: bool = option(False, "ELMo: carry the LSTMs' state from batch to batch, as the original does.")
    batch_size: int | None = option(None, "Examples in a batch with --stateful; 64 without it.")
    on_truncate: str = option("keep", "Texts that are too long: keep (cut, count) or error.")
    batch_tokens: int | None = option(None, "Pieces in a batch.")
    allow_nonfinite: bool = option(False, "Keep NaN and infinity.")
    compress: bool = option(False, "Pack the vectors with zstd (slower to read).")
    compile: bool = option(False, "Use torch.compile.")

    def __post_init__(self) -> None:
        told = self.pooling.split(",") if isinstance(self.pooling, str) else self.pooling
        if told is not None:
            names = tuple(str(name).strip() for name in told)
            object.__setattr__(self, "pooling", names or NO_POOLING)
        if self.layers is not None:
            told = self.layers.split(",") if isinstance(self.layers, str) else self.layers
            object.__setattr__(self, "layers", tuple(str(layer).strip() for layer in told))
            if not self.layers:
                raise UsageError("no layer was asked for; leave --layers out to keep all.")
        if not isinstance(self.tokens, bool | None):
            raise UsageError(f"tokens is {self.tokens!r}; give tokens=True, and token_level={str(self.tokens)!r}.")
        if self.batch_size is not None and not self.stateful:
            raise UsageError(
                "--batch-size is for --stateful, whose numbers depend on it; else batches are told by --batch-tokens."
            )
        _one_of("on_truncate", self.on_truncate, "keep", "error")
        _one_of("pairs", self.pairs, "auto", "joint", "separate")
        _one_of("context", self.context, *Context)
        if self.context != Context.NONE and self.tokens and self.token_level in (None, "piece"):
            raise UsageError("the pieces of a context are not kept; with --context give --token-level word-pieces.")
        check_least(self, data_seed=0, workers=1, limit=1, batch_tokens=1, batch_size=1)

    @property
    def carried(self) -> int:
        """Sentences in a batch whose state the next one begins with; 0 where none is carried on."""
        return (self.batch_size or 64) if self.stateful else 0


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """How the model is loaded that a certificate is of."""

    dtype: str = option("float32", "float32, float16 or bfloat16.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Revision of the model on the hub.")
    random_weights: int | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")


def _one_of(name: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; it is {', '.join(choices[:-1])} or {choices[-1]}.")
