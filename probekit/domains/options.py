"""Options for counting the terms of texts and comparing their distributions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NoReturn

from probekit.constraint import MOST_DRAWS, Checked, Count, Ge, Into, Most, OrZero, Seed
from probekit.errors import UsageError
from probekit.recipe import option

PROXY = "proxy-a-distance"
Pairs = Annotated[tuple[str, ...], Into(lambda names: tuple(",".join(names).split(",")) if names else ())]
"""Names of two domains, one after the other, of as many pairs as there are; commas may join them."""


class Measure(StrEnum):
    """Measures of two term distributions p, q over the same v terms; m = (p + q) / 2.

    js-divergence : (KL(p‖m) + KL(q‖m)) / 2 in bits, 0 … 1 (Lin 1991, equation 4.1)
    js-divergence-nats : the same in nats, 0 … ln 2; js-distance : its square root in bits, 0 … 1, which is a metric
        (Endres & Schindelin 2003)
    js-similarity : 1 - the divergence in nats, which learn-to-select-data calls Jensen-Shannon divergence. Its commit
        72fcac3 uses KL(p‖m) twice; commit 82430f7, which is followed here, uses both terms.
    kl : KL(p‖q) = Σ p ln p/q in nats (Kullback & Leibler 1951), after mixing both with a little of the uniform one
    renyi : ln Σ p^α q^(1 - α) / (α - 1) in nats, α = 0.99 (Rényi 1961); infinite without common terms
    bhattacharyya : -ln Σ √(p q) in nats (Bhattacharyya 1943); infinite without common terms
    cosine : 1 - p·q / |p||q|, 0 … 1; euclidean : |p - q|; variational : Σ |p - q|, 0 … 2
    vocabulary-overlap : share of the terms of either domain that occur in both (Jaccard), 0 … 1; like js-similarity,
        and unlike all others, it is large for similar domains
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
"""All measures of two domains."""


class DocumentUnit(StrEnum):
    """The unit of a text file that counts as a document."""

    PARAGRAPH = "paragraph"  # lines up to a blank one
    LINE = "line"
    FILE = "file"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"document is {value!r}; it must be one of {', '.join(cls)}.")


class Tokenization(StrEnum):
    """How text is split into terms."""

    WORD = "word"  # runs of letters, digits, marks and connecting punctuation such as _ (Unicode L, N, M, Pc)
    WHITESPACE = "whitespace"  # runs of characters between white space

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UsageError(f"tokenizer is {value!r}; it must be one of {', '.join(cls)}, or a function.")


@dataclass(frozen=True, slots=True)
class CountOptions(Checked):
    """How texts become terms. None stands for the setting of a file of counts, or for the default in the help."""

    tokenizer: str | None = option(
        None,
        "word (Unicode letters, digits, marks and _), whitespace, or a Hugging Face tokenizer: a folder, a "
        "tokenizer.json or a hub id, whose tokens are not changed (default: word).",
    )
    cased: bool | None = option(None, "Do not lower-case the terms.")
    document: DocumentUnit | None = option(
        None, "Unit of text files that is resampled for the intervals: paragraph, line or file (default: paragraph)."
    )
    field: str = option("text", "Field with the text, in JSON lines and hub data sets.")
    blocks: Annotated[int, Ge(2)] | None = option(
        None, "Largest number of blocks into which the documents of a domain are divided, 2 or more (default: 1000)."
    )


@dataclass(frozen=True, slots=True)
class DivergenceOptions(Checked):
    """Measures of term distributions, and how their uncertainty is estimated.

    Raises
    ------
    UsageError
        For an unknown measure and a number out of range.
    """

    measure: tuple[str, ...] = option(
        (Measure.JS.value,),
        "Measures, separated by commas: js-divergence, js-divergence-nats, js-distance, js-similarity, kl, renyi, "
        "bhattacharyya, cosine, euclidean, variational, vocabulary-overlap, proxy-a-distance. kl, renyi and "
        "bhattacharyya are in nats; kl first mixes each distribution with .001 of the uniform one; renyi has order "
        ".99.",
    )
    vocabulary: Count = option(10_000, "Number of terms: the most frequent in all domains together.")
    min_count: Count = option(1, "Smallest count of a term in all domains together.")
    stop_words: str | None = option(None, "File of terms to leave out, one per line.")
    resamples: Annotated[int, OrZero(100, "none"), Most(MOST_DRAWS)] = option(
        1000,
        "Resamples of the documents for the intervals: 100 or more; 0 for none. js-… measures use a jackknife instead, "
        "whatever the number.",
    )
    draws: Annotated[int, OrZero(19, "none"), Most(MOST_DRAWS)] = option(
        199, "Draws of the null distribution, two samples of one population: 19 or more; 0 for none."
    )
    seed: Seed = option(0, "Seed for all random draws.")
    explain: Annotated[tuple[str, ...], Into(lambda given: tuple(",".join(given).split(",")) if given else ())] = (
        option(
            (), "Two domains A,B: list the terms that contribute to their divergence. Repeat it, or add pairs: A,B,C,D."
        )
    )
    top: Count = option(20, "Number of terms that explain lists.")
    sizes: bool = option(
        False, "Also measure the divergence on parts of the documents, which shows the effect of corpus size."
    )

    def together(self) -> None:
        if not self.measure or (unknown := [word for word in self.measure if word not in MEASURES]):
            raise UsageError(
                f"unknown measure {(unknown if self.measure else [''])[0]!r}; it must be one of {', '.join(MEASURES)}."
            )
        if len(self.explain) % 2 or any(a == b or not (a and b) for a, b in self.pairs):
            raise UsageError(f"explain must be two different domains A,B, not {','.join(self.explain)!r}.")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of domains to explain."""
        return list(zip(self.explain[::2], self.explain[1::2], strict=True))
