"""Your own text: files of sentences, pairs of files whose lines correspond, and the share that is held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np
import xxhash

from probekit.adaptation.pretraining.corpora.kinds import Corpus, CorpusKind, Row, Rows
from probekit.errors import DataError
from probekit.files import stream_lines

HELD_OUT = 20
"""One unit in this many is held out where a corpus has no official dev split."""


def aligned(source: Path, target: Path, read: Callable[[Path], Iterator[str]] = stream_lines) -> Iterator[Row]:
    """The pairs of lines of two files whose lines correspond; pairs with an empty line are left out.

    Raises
    ------
    DataError
        If one file has more lines than the other, with its first line that has no counterpart.
    """
    for number, (first, second) in enumerate(zip_longest(read(source), read(target)), start=1):
        if first is None or second is None:
            longer, shorter = (target, source) if first is None else (source, target)
            message = f"this line has no counterpart: {shorter} has only {number - 1:,} lines. Each line of one file "
            raise DataError(f"{message}must translate the same line of the other.", file=longer, line=number)
        if first.strip() and second.strip():
            yield first.strip(), second.strip()


def is_held_out(index: int, units: int, seed: int) -> bool:
    """Whether a unit (a document, passage, conversation or pair) belongs to the held-out share.

    One unit of each :data:`HELD_OUT` consecutive ones is held out, chosen by a hash of the seed.

    Parameters
    ----------
    index : int
        The place of the unit, from 0.
    units : int
        Number of units, if it is smaller than :data:`HELD_OUT`; one of them is then held out.
    """
    size = min(units, HELD_OUT)
    return index % size == xxhash.xxh3_64_intdigest(f"{seed}:{index // size}".encode()) % size


def count_up_to(items: Iterable[object], most: int) -> int:
    """The number of items, or ``most`` if there are at least as many; no more than these are read."""
    count = 0
    for count, _ in enumerate(items, start=1):
        if count == most:
            break
    return count


T = TypeVar("T")


PASSAGE = 50
"""Sentences of a passage, the unit that is held out from files with fewer than 20 documents."""


def sentence_file(path: Path, *, seed: int = 0) -> Corpus:
    """A text file with a sentence in each line, in document order; empty lines separate documents.

    One document in 20 is the split ``dev``, chosen by a hash of the seed. In a file with fewer than 20 documents, one
    passage of 50 sentences in 20 is held out instead (or one of all, if there are fewer passages).

    Raises
    ------
    DataError
        If the file cannot be read, or has too little text to hold out a part.
    """
    return Corpus(str(path), CorpusKind.SENTENCES, divided(partial(_documents, path), path, seed), (path,))


def parallel_files(source: Path, target: Path, *, name: str = "", seed: int = 0) -> Corpus:
    """Two text files whose lines translate each other; one pair of lines in 20 is the split ``dev``, with its copies.

    Raises
    ------
    DataError
        If a file cannot be read, or there are fewer than two pairs. Files of unequal length raise it when the rows
        are read.
    """
    splits = held_out_pairs(partial(aligned, source, target), source, seed)
    return Corpus(name or f"{source}+{target}", CorpusKind.PAIRS, splits, (source, target))


def held_out_pairs(pairs: Rows, path: Path, seed: int) -> dict[str, Rows]:
    """The splits ``train`` and ``dev`` of pairs without an official dev split, which share no pair.

    One in 20 different pairs is held out, with all its copies. Each stream reads the file twice; a hash of each pair is
    kept in memory.
    """
    units = check_units(count_up_to(_different(pairs()), HELD_OUT), path, "different pairs")
    return {split: partial(_pairs_of_split, pairs, split == "dev", units, seed) for split in ("train", "dev")}


def _pairs_of_split(pairs: Rows, held_out: bool, count: int, seed: int) -> Iterator[Row]:
    hashes = np.fromiter((_hash(pair) for pair in pairs()), np.uint64)
    _, first, copy_of = np.unique(hashes, return_index=True, return_inverse=True)
    unit = np.argsort(np.argsort(first))[copy_of]  # different pairs, numbered as they occur
    return (pair for pair, i in zip(pairs(), unit.tolist(), strict=True) if is_held_out(i, count, seed) == held_out)


def _different(pairs: Iterable[Row]) -> Iterator[Row]:
    seen = set()
    for pair in pairs:
        if (key := _hash(pair)) not in seen:
            seen.add(key)
            yield pair


def _hash(pair: Row) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(pair).encode())


def part_of(units: Callable[[], Iterator[T]], held_out: bool, count: int, seed: int) -> Iterator[T]:
    """The held-out units, or all others."""
    return (unit for i, unit in enumerate(units()) if is_held_out(i, count, seed) == held_out)


def check_units(count: int, path: Path, what: str) -> int:
    """``count``; raises DataError if there are fewer than two units, of which one could be held out."""
    if count < 2:
        raise DataError(
            f"number of {what}: {count}; at least 2 are needed, because one is held out as dev. Add text.", file=path
        )
    return count


def _documents(path: Path) -> Iterator[Iterator[str]]:
    """The documents of a file, each an iterator over its sentences, to be read before the next one."""
    rest = (line.strip() for line in stream_lines(path))
    for first in rest:
        if first:
            document = chain([first], iter(partial(next, rest, ""), ""))
            yield document
            for _ in document:
                pass


def divided(documents: Callable[[], Iterator[Iterable[str]]], path: Path, seed: int) -> dict[str, Rows]:
    """The splits ``train`` and ``dev`` of a corpus without an official dev split, by documents or passages."""
    by_documents = count_up_to(documents(), HELD_OUT) == HELD_OUT
    if by_documents:
        units = HELD_OUT
    else:
        passages = (passage for document in documents() for passage in _passages(document))
        sizes = [len(passage) for passage in islice(passages, HELD_OUT)]
        units = len(sizes)
        if units < 2:
            raise DataError(
                f"number of sentences: {sum(sizes)}; at least {PASSAGE + 1} in a document, or two documents, are "
                f"needed, because a document, or a passage of {PASSAGE} sentences, is held out as dev. Add text.",
                file=path,
            )
    return {s: partial(_sentences, documents, by_documents, s == "dev", units, seed) for s in ("train", "dev")}


def _passages(document: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(document)
    while passage := list(islice(rest, PASSAGE)):
        yield passage


def _sentences(
    documents: Callable[[], Iterator[Iterable[str]]], by_documents: bool, held_out: bool, units: int, seed: int
) -> Iterator[Row]:
    """The sentences of one split, with ``("",)`` wherever two of them are not neighbours in the text."""
    index, begun = 0, False
    for document in documents():
        gap = begun
        for unit in (document,) if by_documents else _passages(document):
            if is_held_out(index, units, seed) == held_out:
                for sentence in unit:
                    if gap:
                        yield ("",)
                    gap, begun = False, True
                    yield (sentence,)
            else:
                gap = begun
            index += 1
