"""How texts become terms, and how their distributions are compared: one declaration for Python and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from probekit.errors import UsageError
from probekit.recipe import option

__all__ = ["MEASURES", "PROXY", "CountOptions", "DivergenceOptions", "DocumentUnit", "Measure", "Tokenization"]

PROXY = "proxy-a-distance"


class Measure(StrEnum):
    """What can be measured of a pair of term distributions p, q over the same v terms; m = (p + q) / 2.

    js-divergence : (KL(p‖m) + KL(q‖m)) / 2 in bits, 0 … 1 (Lin 1991, equation 4.1)
    js-divergence-nats : the same in nats, 0 … ln 2; js-distance : the root of it in bits, 0 … 1, which is a metric
        (Endres & Schindelin 2003)
    js-similarity : 1 - the divergence in nats, what learn-to-select-data calls Jensen-Shannon divergence. Its commit
        72fcac3 takes KL(p‖m) twice; commit 82430f7, which is meant here, takes both.
    kl : KL(p‖q) = Σ p ln p/q in nats (Kullback & Leibler 1951), of distributions mixed with a little of the uniform one
    renyi : ln Σ p^α q^(1 - α) / (α - 1) in nats, α = 0.99 (Rényi 1961); infinite without common terms
    bhattacharyya : -ln Σ √(p q) in nats (Bhattacharyya 1943); infinite without common terms
    cosine : 1 - p·q / |p||q|, 0 … 1; euclidean : |p - q|; variational : Σ |p - q|, 0 … 2
    vocabulary-overlap : of the terms that occur in either, the share that occurs in both (Jaccard), 0 … 1; with
        js-similarity the only one that is large where domains are alike
    """

    JS = "js-divergence"
    JS_NATS = "js-divergence-nats"
    JS_DISTANCE = "js-distance"
    JS_SIMILARITY = "js-similarity"
    KL = "kl"
    RENYI = "renyi"
    BHATTACHARYYA = "bhattacharyya"
    COSINE = "cosine"
    EUCLIDEAN = "euclidean"
    VARIATIONAL = "variational"
    OVERLAP = "vocabulary-overlap"


MEASURES = (*map(str, Measure), PROXY)
"""What can be measured of two domains."""


class DocumentUnit(StrEnum):
    """What a document of a text file is."""

    PARAGRAPH = "paragraph"  # lines up to a blank one
    LINE = "line"
    FILE = "file"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"a document is {value!r}; it is one of {', '.join(cls)}.")


class Tokenization(StrEnum):
    """How text is cut into terms."""

    WORD = "word"  # runs of letters, digits, marks and connecting punctuation such as _ (Unicode L, N, M, Pc)
    WHITESPACE = "whitespace"  # what stands between white space

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"terms are told by {value!r}; it is one of {', '.join(cls)}, or a function.")


@dataclass(frozen=True, slots=True)
class CountOptions:
    """How texts become terms. What is None is as a file of counts was made, or else the default that the help names."""

    tokenizer: str | None = option(
        None,
        "word (Unicode letters, digits, marks and _), whitespace, or a Hugging Face tokenizer: a folder, a "
        "tokenizer.json or a hub id, whose terms are taken as they come; word without it.",
    )
    cased: bool | None = option(None, "Do not lower-case the terms.")
    document: DocumentUnit | None = option(
        None,
        "What is drawn again for the intervals, of files of text: paragraph, line or file; paragraph without it.",
    )
    field: str = option("text", "The text in JSON lines and hub data sets.")
    blocks: int | None = option(
        None, "That the documents of a domain are dealt to at most, 2 or more; 1000 without it."
    )

    def __post_init__(self) -> None:
        if self.document is not None:
            object.__setattr__(self, "document", DocumentUnit(self.document))
        if self.blocks is not None and self.blocks < 2:
            raise UsageError(f"documents are dealt to 2 blocks or more, not to {self.blocks}.")


@dataclass(frozen=True, slots=True)
class DivergenceOptions:
    """What is measured of term distributions, and how sure it is.

    Raises
    ------
    UsageError
        For an unknown measure and a number out of range.
    """

    measure: tuple[str, ...] = option(
        (Measure.JS.value,),
        "With commas: js-divergence, js-divergence-nats, js-distance, js-similarity, kl, renyi, bhattacharyya, "
        "cosine, euclidean, variational, vocabulary-overlap, proxy-a-distance. kl, renyi and bhattacharyya are in "
        "nats; kl is of distributions mixed with .001 of the uniform one, renyi of order .99.",
    )
    vocabulary: int = option(10_000, "The most frequent terms of all domains together.")
    min_count: int = option(1, "Of a term, in all domains together.")
    stop_words: str | None = option(None, "A file of terms, one a line, that are left out.")
    resamples: int = option(
        1000,
        "Of the documents, for the intervals: 100 or more; 0 for none. Those of js-… are a jackknife, of any number.",
    )
    draws: int = option(199, "Of what sampling alone gives: 19 or more; 0 for none.")
    seed: int = option(0, "Of all that is drawn.")
    explain: tuple[str, ...] = option(
        (), "Two domains A,B: the terms that make up their divergence. May be repeated, or go on: A,B,C,D."
    )
    top: int = option(20, "Terms that explain tells.")
    sizes: bool = option(False, "The divergence of parts of the documents, too: the effect of corpus size.")

    def __post_init__(self) -> None:
        for name in ("measure", "explain"):
            given = getattr(self, name)
            words = given.split(",") if isinstance(given, str) else [w for v in given for w in _flat(v)]
            object.__setattr__(self, name, tuple(word.strip() for word in words))
        if not self.measure or (unknown := [word for word in self.measure if word not in MEASURES]):
            raise UsageError(
                f"there is no measure {(unknown if self.measure else [''])[0]!r}; there are {', '.join(MEASURES)}."
            )
        if len(self.explain) % 2 or any(a == b or not (a and b) for a, b in self.pairs):
            raise UsageError(f"explain {','.join(self.explain)!r}: two domains A,B are wanted.")
        if 0 < self.draws < 19 or 0 < self.resamples < 100:
            raise UsageError(
                f"{self.draws} draws and {self.resamples} resamples: fewer than 19 draws and 100 resamples say nothing "
                "of the ends of 95 %; give more, or 0 for none."
            )
        if min(self.draws, self.resamples, self.seed) < 0 or min(self.vocabulary, self.min_count, self.top) < 1:
            raise UsageError(
                "draws, resamples and a seed are 0 or more, a vocabulary, a least count and top are 1 or more."
            )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of domains to explain."""
        return list(zip(self.explain[::2], self.explain[1::2], strict=True))


def _flat(value: str | tuple[str, ...] | list[str]) -> list[str]:
    """ "A,B" and ("A", "B") as words."""
    return value.split(",") if isinstance(value, str) else list(value)
