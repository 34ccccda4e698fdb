"""Semantic proto-roles: which properties an argument has in the event of its predicate (SPR1 and SPR2).

A property holds if its mean response is at least 4 of 5; where it does not apply, a response counts as 1 (Rudinger et
al. 2018, https://aclanthology.org/D18-1114).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from probekit.errors import DataError
from probekit.tasks.datasets.published import files_of
from probekit.tasks.datasets.sources import examples
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.readers import Table, read_tsv
from probekit.tasks.sentences.brackets import TRACE, Node, read_brackets
from probekit.tasks.targets import problem
from probekit.tasks.task import Example, Span, Target, Task

LEAST = 4.0
"""The lowest mean response with which a property holds."""
RESPONSES = tuple("12345")
PLACE = re.compile(r"\d+:\d+([,*;]\d+:\d+)*")
"""A place in a tree of the Penn Treebank: TERMINAL:HEIGHT."""
Key = tuple[str, str]
"""A sentence: its split, and its name there."""


def spr2(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Pairs (predicate, argument) with the properties that hold, several at once.

    Files: ``protoroles_eng_ud1.2*.tsv`` of the release, and ``sentences.tsv`` with the columns ``split``, ``sentnum``
    (the number of the sentence in the split of UD English 1.2, as in Sentence.ID) and ``tokens`` (its words, separated
    by blanks): the release has no text. Sentences of one document are not grouped, since the files do not name it.
    """
    files = files_of(d, root)
    for name, patterns in d.files.items():
        if name not in files:
            raise DataError(f"has no {patterns[0]}, which SPR2 needs.", file=root)
    words = _sentences(files["sentences"])
    rows = read_tsv(files["annotations"])
    columns = [
        rows.column(name) for name in ("Split", "Sentence.ID", "Pred.Token", "Arg.Tokens.Begin", "Arg.Tokens.End")
    ]
    found = _Responses(d, rows)
    for i, (split, sentence, *bounds) in enumerate(zip(*columns, strict=True)):
        if not all(b.isdecimal() for b in bounds):
            message = f"found the positions {', '.join(bounds)}, expected whole numbers."
            raise DataError(message, file=rows.path, line=rows.lines[i])
        predicate, begin, end = map(int, bounds)
        found.add(i, (split, sentence.rpartition(" ")[2]), (Span(predicate, predicate + 1), Span(begin, end + 1)))
    splits, without = found.splits(words)
    notes = [f"{without} annotated sentences have no text in sentences.tsv, and are left out."] if without else []
    return d.task(splits, notes)


def spr1(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Pairs (predicate, argument) of the Wall Street Journal with the properties that hold, several at once.

    Files: ``protoroles_eng_pb*.tsv`` of the release, and the trees of the Penn Treebank (``wsj_*.mrg``, there or in
    subfolders): the release has no text. Sentences without a tree are left out, and so are arguments that are traces
    or whose parts are not next to each other. Sentences of one document are a group.
    """
    files = files_of(d, root)
    rows = read_tsv(files["annotations"])
    sentences = rows.column("Sentence.ID")
    trees = treebank_sentences(Path(root or ""), {sentence.partition("_")[0] for sentence in sentences})
    columns = [rows.column(name) for name in ("Split", "Pred.Token", "Arg.Pos")]
    found, lost = _Responses(d, rows), set[tuple[str, ...]]()
    for i, (sentence, split, predicate, place) in enumerate(zip(sentences, *columns, strict=True)):
        if not (predicate.isdecimal() and PLACE.fullmatch(place)):
            message = f"found the positions {predicate} and {place!r}, expected such as 4 and '0:1'."
            raise DataError(message, file=rows.path, line=rows.lines[i])
        spans: tuple[Span | None, ...] = ()
        if tree := trees.get(sentence):
            spans = word_span(tree, int(predicate)), argument_span(tree, place)
            if None in spans:
                lost.add((sentence, predicate, place))
                continue
        found.add(i, (split, sentence), tuple(span for span in spans if span))
    words = {(split, name): words_of(trees[name]) for split, name in found.of if name in trees}
    splits, without = found.splits(words, group=lambda sentence: f"wsj_{sentence.partition('_')[0]}")
    notes = [f"{without} annotated sentences have no tree, and are left out."] if without else []
    if lost:
        notes.append(f"{len(lost)} arguments are traces or have parts apart from each other, and are left out.")
    return d.task(splits, notes)


class _Responses:
    """Responses of annotators by sentence (split, id), pair of spans and property."""

    def __init__(self, dataset: Dataset, rows: Table) -> None:
        self.dataset, self.rows = dataset, rows
        self.index = {name: i for i, name in enumerate(dataset.label_names)}
        names = ("Property", "Response", "Applicable")
        self.said = list(zip(*(rows.column(name) for name in names), strict=True))
        self.of: dict[Key, dict[tuple[Span, ...], dict[int, list[float]]]] = {}

    def add(self, row: int, sentence: Key, spans: tuple[Span, ...]) -> None:
        name, response, applies = self.said[row]
        if name not in self.index or response == "nan":
            return
        if response not in RESPONSES:
            message = f"found the response {response!r}, expected a whole number from 1 to 5."
            raise DataError(message, file=self.rows.path, line=self.rows.lines[row])
        given = self.of.setdefault(sentence, {}).setdefault(spans, {}).setdefault(self.index[name], [])
        given.append(float(response) if applies.lower() in ("yes", "true") else 1.0)

    def splits(
        self, words: Mapping[Key, tuple[str, ...]], group: Callable[[str], str] | None = None
    ) -> tuple[dict[str, list[Example]], int]:
        """The examples of each split, and the number of sentences without words, which are left out."""
        found = {}
        for split in ("train", "dev", "test"):
            keys = [key for key in self.of if key[0] == split and key in words]
            texts = [words[key] for key in keys]
            found[split] = examples(
                split, [" ".join(w) for w in texts], words=texts, ids=[name for _, name in keys],
                group=[group(name) for _, name in keys] if group else None,
                targets=[self._targets(key) for key in keys],
            )  # fmt: skip
            for e in found[split]:
                if wrong := problem(e):
                    raise DataError(f"sentence {e.id} of {split}: {wrong}.", file=self.rows.path)
        return {split: part for split, part in found.items() if part}, sum(key not in words for key in self.of)

    def _targets(self, sentence: Key) -> tuple[Target, ...]:
        return tuple(
            Target(spans, tuple(sorted(i for i, given in responses.items() if fmean(given) >= LEAST)))
            for spans, responses in sorted(
                self.of[sentence].items(), key=lambda one: [(s.start, s.end) for s in one[0]]
            )
        )


def _sentences(path: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    table = read_tsv(path)
    columns = (table.column(name) for name in ("split", "sentnum", "tokens"))
    return {(split, number): tuple(tokens.split(" ")) for split, number, tokens in zip(*columns, strict=True)}


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
