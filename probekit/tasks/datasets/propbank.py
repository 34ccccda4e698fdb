"""Arguments of PropBank: places in a tree of the Penn Treebank, as spans of words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.sentences.brackets import TRACE, Node, read_brackets
from probekit.tasks.task import Span

__all__ = ["argument_span", "treebank_sentences", "word_span", "words_of"]


def treebank_sentences(root: Path, documents: Collection[str]) -> dict[str, Node]:
    """The trees of documents of the Wall Street Journal, with their traces, by "FILE_SENTENCE" ("0003_5", from 0).

    Parameters
    ----------
    root : Path
        Folder with wsj_*.mrg files, as of the Penn Treebank (also in subfolders such as wsj/00), or files whose lines
        are ``wsj_0003.mrg TAB NUMBER TAB TREE``.
    documents : collection of str
        The numbers of the documents, such as "0003"; others are skipped.

    Raises
    ------
    DataError
        If there are no such files, or brackets are not balanced.
    """
    files = sorted(path for floor in ("", "*/", "*/*/", "*/*/*/") for path in root.glob(f"{floor}wsj_*.mrg"))
    if not files:
        raise DataError(
            "has no wsj_*.mrg, there or in subfolders: the sentences of SPR1 are in the trees of the Penn Treebank "
            "(LDC99T42; NLTK has a twentieth of it). Put them there.", file=root,
        )  # fmt: skip
    found: dict[str, Node] = {}
    for path in files:
        if (own := re.fullmatch(r"wsj_(\d{4})", path.stem)) and own[1] not in documents:
            continue
        numbers: Counter[str] = Counter()
        for document, _, tree in read_brackets(path, traces=True):
            number = re.sub(r"\D", "", Path(document or path.name).stem)
            if number in documents:
                found.setdefault(f"{number}_{numbers[number]}", tree)
            numbers[number] += 1
    return found


def words_of(tree: Node) -> tuple[str, ...]:
    """The words of a sentence, without traces."""
    return tuple(leaf.word for leaf in tree.leaves if leaf.label != TRACE)


def word_span(tree: Node, terminal: int) -> Span | None:
    """The word at a terminal (traces count); None for a trace, or beyond the sentence."""
    return _span(tree, terminal, terminal + 1) if terminal < len(tree.leaves) else None


def argument_span(tree: Node, place: str) -> Span | None:
    """The words of an argument, without traces.

    Parameters
    ----------
    place : str
        "TERMINAL:HEIGHT", the constituent so many levels above the tag of a terminal; several are joined by commas,
        and by * or ; where they are a chain of traces.

    Returns
    -------
    Span or None
        None if there is no such place, if it has only traces, or if its parts are not next to each other.

    Examples
    --------
    >>> ann = Node("NP", (Node("NNP", word="Ann"),))
    >>> argument_span(Node("S", (ann, Node("VBZ", word="sings"))), "0:1")
    Span(start=0, end=1, second=False)
    """
    spans = []
    for part in re.split(r"[,*;]", place):
        terminal, height = map(int, part.split(":"))
        bounds = _constituent(tree, terminal, height)
        if bounds is None:
            return None
        if span := _span(tree, *bounds):
            spans.append(span)
    spans.sort(key=lambda span: span.start)
    if not spans or any(a.end != b.start for a, b in pairwise(spans)):
        return None
    return Span(spans[0].start, spans[-1].end)


def _constituent(tree: Node, terminal: int, height: int) -> tuple[int, int] | None:
    """The first terminal of a constituent and the one after its last; None if there is no such constituent."""
    path, node, begin = [], tree, 0
    while True:
        path.append((begin, begin + len(node.leaves)))
        if not begin <= terminal < path[-1][1]:
            return None
        if node.word:
            break
        for child in node.children:
            if terminal < begin + len(child.leaves):
                node = child
                break
            begin += len(child.leaves)
    return path[-1 - height] if height < len(path) else None


def _span(tree: Node, begin: int, end: int) -> Span | None:
    """Terminals as words, without traces; None if they are all traces."""
    real = [leaf.label != TRACE for leaf in tree.leaves]
    return Span(sum(real[:begin]), sum(real[:end])) if any(real[begin:end]) else None
