"""What a corpus is: streams of rows, by split; and pairs of neighbouring sentences of any corpus of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

from probekit.errors import UsageError

Row = tuple[str, ...]
Rows = Callable[[], Iterator[Row]]
"""A function that starts a stream of rows from its beginning."""


class CorpusKind(StrEnum):
    """What a row of a corpus is."""

    SENTENCES = "sentences"
    """``(text,)`` in document order, with ``("",)`` between documents."""
    PAIRS = "pairs"
    """``(source, target)``: a translation, a reply, the next sentence."""
    CLAUSES = "clauses"
    """``(first, second, marker)``: two clauses and the discourse marker between them."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text to pretrain on, which is read when its rows are needed.

    Attributes
    ----------
    name : str
        The name by which it was loaded.
    kind : CorpusKind
        What a row is.
    splits : Mapping[str, Rows]
        Functions by split (``train``, ``dev``, ``test``); each call starts a new stream of rows.
    files : tuple of Path
        The files that the rows come from; for a corpus from the Hugging Face hub, those of the local copy.
    """

    name: str
    kind: CorpusKind
    splits: Mapping[str, Rows]
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """A corpus before it is loaded.

    Attributes
    ----------
    kind : CorpusKind
        What a row is.
    title : str
        A readable title.
    load : Callable
        ``load(data_dir, seed) -> Corpus``; ``data_dir`` None loads from the Hugging Face hub.
    """

    kind: CorpusKind
    title: str
    load: Callable[[Path | None, int], Corpus]


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
