"""Semantic proto-roles: which properties an argument has in the event of its predicate (SPR1 and SPR2).

A property holds if its mean response is at least 4 of 5; where it does not apply, a response counts as 1 (Rudinger et
al. 2018, https://aclanthology.org/D18-1114).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.propbank import argument_span, treebank_sentences, word_span, words_of
from probekit.tasks.datasets.sources import examples, locate
from probekit.tasks.files.readers import Table, read_tsv
from probekit.tasks.targets import problem
from probekit.tasks.task import Example, Span, Target, Task, TaskKind

__all__ = ["LOADERS", "spr1", "spr2"]

SPR1 = Dataset(
    "spr1",
    "Semantic proto-roles 1: the properties of an argument in the Penn Treebank",
    TaskKind.SPAN_LABELLING,
    {"train": 0, "dev": 0, "test": 0},
    ("micro-f1",),
    "Reisinger et al. 2015, http://decomp.io/projects/semantic-proto-roles/",
    "MIT; the sentences: LDC",
    (
        *("awareness", "change_of_location", "change_of_state", "changes_possession", "created", "destroyed"),
        *("existed_after", "existed_before", "existed_during", "exists_as_physical", "instigation"),
        *("location_of_event", "makes_physical_contact", "manipulated_by_another", "predicate_changed_argument"),
        *("sentient", "stationary", "volition"),
    ),
    folder="spr1",
    shown="SPR1",
)
SPR2 = Dataset(
    "spr2",
    "Semantic proto-roles 2: the properties of an argument (sizes: sentences)",
    TaskKind.SPAN_LABELLING,
    {"train": 2195, "dev": 305, "test": 276},
    ("micro-f1",),
    "White et al. 2016, http://decomp.io/projects/semantic-proto-roles/",
    "CC BY-SA 4.0",
    (
        *("awareness", "change_of_location", "change_of_possession", "change_of_state", "change_of_state_continuous"),
        *("existed_after", "existed_before", "existed_during", "instigation", "partitive", "sentient", "volition"),
        *("was_for_benefit", "was_used"),
    ),
    folder="spr2",
    shown="SPR2",
)
LEAST = 4.0
"""The lowest mean response with which a property holds."""
RESPONSES = tuple("12345")
PLACE = re.compile(r"\d+:\d+([,*;]\d+:\d+)*")
"""A place in a tree of the Penn Treebank: TERMINAL:HEIGHT."""
Key = tuple[str, str]
"""A sentence: its split, and its name there."""


def spr2(root: str | Path | None = None) -> Task:
    """Pairs (predicate, argument) with the properties that hold, several at once.

    Files: ``protoroles_eng_ud1.2*.tsv`` of the release, and ``sentences.tsv`` with the columns ``split``, ``sentnum``
    (the number of the sentence in the split of UD English 1.2, as in Sentence.ID) and ``tokens`` (its words, separated
    by blanks): the release has no text. Sentences of one document are not grouped, since the files do not name it.
    """
    if root is None:
        raise DataError(
            "spr2 is read from a folder: give the one with protoroles_eng_ud1.2_11082016.tsv (--data-dir, or data_dir "
            f"in Python), from {SPR2.source.rpartition(' ')[2]}, and sentences.tsv."
        )
    names = {"annotations": ("protoroles_eng_ud1.2*.tsv",), "sentences": ("sentences.tsv",)}
    files = locate(root, names, folder="spr2", what="SPR2")
    for name, patterns in names.items():
        if name not in files:
            raise DataError(f"has no {patterns[0]}, which SPR2 needs.", file=root)
    words = _sentences(files["sentences"])
    rows = read_tsv(files["annotations"])
    columns = [
        rows.column(name) for name in ("Split", "Sentence.ID", "Pred.Token", "Arg.Tokens.Begin", "Arg.Tokens.End")
    ]
    found = _Responses(SPR2, rows)
    for i, (split, sentence, *bounds) in enumerate(zip(*columns, strict=True)):
        if not all(b.isdecimal() for b in bounds):
            message = f"found the positions {', '.join(bounds)}, expected whole numbers."
            raise DataError(message, file=rows.path, line=rows.lines[i])
        predicate, begin, end = map(int, bounds)
        found.add(i, (split, sentence.rpartition(" ")[2]), (Span(predicate, predicate + 1), Span(begin, end + 1)))
    splits, without = found.splits(words)
    notes = [f"{without} annotated sentences have no text in sentences.tsv, and are left out."] if without else []
    return SPR2.task(splits, notes)


def spr1(root: str | Path | None = None) -> Task:
    """Pairs (predicate, argument) of the Wall Street Journal with the properties that hold, several at once.

    Files: ``protoroles_eng_pb*.tsv`` of the release, and the trees of the Penn Treebank (``wsj_*.mrg``, there or in
    subfolders): the release has no text. Sentences without a tree are left out, and so are arguments that are traces
    or whose parts are not next to each other. Sentences of one document are a group.
    """
    if root is None:
        raise DataError(
            "spr1 is read from a folder: give the one with protoroles_eng_pb_08302015.tsv (--data-dir, or data_dir in "
            f"Python), from {SPR1.source.rpartition(' ')[2]}, and the trees of the Penn Treebank (wsj_*.mrg)."
        )
    files = locate(root, {"annotations": ("protoroles_eng_pb*.tsv",)}, folder="spr1", what="SPR1")
    rows = read_tsv(files["annotations"])
    sentences = rows.column("Sentence.ID")
    trees = treebank_sentences(Path(root), {sentence.partition("_")[0] for sentence in sentences})
    columns = [rows.column(name) for name in ("Split", "Pred.Token", "Arg.Pos")]
    found, lost = _Responses(SPR1, rows), set[tuple[str, ...]]()
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
    return SPR1.task(splits, notes)


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
                groups=[group(name) for _, name in keys] if group else None,
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


LOADERS = {SPR1: spr1, SPR2: spr2}


def _sentences(path: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    table = read_tsv(path)
    columns = (table.column(name) for name in ("split", "sentnum", "tokens"))
    return {(split, number): tuple(tokens.split(" ")) for split, number, tokens in zip(*columns, strict=True)}
