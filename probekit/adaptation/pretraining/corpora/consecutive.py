"""Sentences with the sentences that follow them, from any corpus of sentences in document order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice, pairwise

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusKind, Row, Rows
from probekit.errors import UsageError

__all__ = ["check_kind", "consecutive_sentences"]

LOOK_AHEAD = 10_000


def consecutive_sentences(corpus: Corpus, name: str) -> Corpus:
    """Pairs of a sentence and the next one of the same document (SkipThought; Kiros et al. 2015, Tang et al. 2017).

    Raises
    ------
    UsageError
        If the corpus has no sentences, or no document with two of them.

    Examples
    --------
    >>> sentences = Corpus("toy", CorpusKind.SENTENCES, {"train": lambda: iter([("a",), ("b",), ("",), ("c",)])})
    >>> list(consecutive_sentences(sentences, "skip-thought:toy").splits["train"]())
    [('a', 'b')]
    """
    check_kind(corpus, name)
    rows: dict[str, Rows] = {split: partial(_pairs, sentences) for split, sentences in corpus.splits.items()}
    if "train" in corpus.splits:
        start = islice(corpus.splits["train"](), LOOK_AHEAD)
        if not any(first[0] and second[0] for first, second in pairwise(start)):
            raise UsageError(
                f"{name}: no two sentences of {corpus.name} are neighbours in a document; choose a corpus of documents."
            )
    return Corpus(name, CorpusKind.PAIRS, rows, corpus.files)


def check_kind(corpus: Corpus, name: str) -> None:
    """Raise UsageError unless the corpus has sentences in document order."""
    if corpus.kind is not CorpusKind.SENTENCES:
        raise UsageError(f"{name} needs sentences in document order, and {corpus.name} has {corpus.kind}.")


def _pairs(sentences: Rows) -> Iterator[Row]:
    for (first,), (second,) in pairwise(sentences()):
        if first and second:
            yield first, second
