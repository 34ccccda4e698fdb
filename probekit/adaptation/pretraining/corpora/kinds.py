"""What a corpus is: streams of rows, by split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["Corpus", "CorpusEntry", "CorpusKind", "Row", "Rows"]

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
