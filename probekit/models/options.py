"""What may be chosen where published files are converted."""

from __future__ import annotations

from dataclasses import dataclass

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["ConvertOptions", "SkipThoughtsOptions"]

SPLITTINGS = ("treebank", "blanks")


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """How a converted model will read plain text."""

    words: str = option(
        "treebank", "How plain text is cut into words: treebank (as NLTK does), or blanks (cut already)."
    )

    def __post_init__(self) -> None:
        if self.words not in SPLITTINGS:
            raise UsageError(f"words is {self.words!r}; it is one of {', '.join(SPLITTINGS)}.")


@dataclass(frozen=True, slots=True)
class SkipThoughtsOptions:
    """What is for Skip-thoughts alone."""

    eos: bool = option(False, "Read an end-of-sentence after each sentence.")
    raw: bool = option(False, "Leave vectors as long as they are.")
    vectors: str | None = option(
        None, "word2vec or GloVe as text: words of it are added by linear regression.", metavar="FILE"
    )
