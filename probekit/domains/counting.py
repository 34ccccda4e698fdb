"""Counting the terms of one domain, document by document, in memory that does not grow with the text.

Documents are divided into a limited number of blocks by a seeded hash of their words, so that equal documents, which
are not independent evidence, share a block (short documents, and those cut in reading, are divided by number and file).
A block is thus a random sample of the domain's documents, from which intervals are computed. If there are fewer
documents than blocks, each is a separate block. All terms are counted, because the vocabulary is known only after all
domains are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xxhash

from probekit.domains import _term_kernels
from probekit.domains.corpora import Corpus
from probekit.domains.options import DocumentUnit, Tokenization
from probekit.domains.scanning import FORM, Bytes, Strings, Tokenize
from probekit.errors import DataError, UsageError
from probekit.runtime import Progress, no_progress

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DENSE = 1 << 25
"""Size of the dense table of counts, for the terms that occur first, which are most occurrences."""

FEWEST_TERMS = 5
"""Shorter documents ("Yes.") are equal by chance."""

PAIRS = 1 << 22
"""Most other pairs of block and term; if there are more, the rarest terms are dropped."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of each term in each block of a domain.

    Attributes
    ----------
    terms : tuple[str, ...]
        V distinct terms, sorted.
    matrix : csr_array
        int64 (blocks, v), sparse.
    deals : np.ndarray | None
        uint64 (blocks,), hashes that will determine the block of each document if there are more documents than blocks;
        None once there are.
    documents, tokens : int
        Numbers of documents with at least one token, and of tokens.
    pruned : int
        Tokens of terms that were dropped to limit memory. A term that occurs more than ``bound`` times in the domain is
        in the counts, short by at most ``bound`` (if terms are lower-cased, for each spelling); both are usually 0.
    settings : dict[str, str | int]
        Settings that must agree between counts that are merged or compared.
    """

    name: str
    terms: tuple[str, ...]
    matrix: csr_array
    deals: np.ndarray | None
    documents: int
    tokens: int
    pruned: int
    bound: int
    settings: dict[str, str | int]


def count(
    name: str,
    corpus: Corpus,
    *,
    tokenizer: Tokenization | str | Tokenize = Tokenization.WORD,
    lower: bool = True,
    unit: DocumentUnit | str = DocumentUnit.PARAGRAPH,
    blocks: int = 1000,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Counts:
    """Count the terms of the domain ``name`` in one pass over ``corpus``.

    Parameters
    ----------
    name : str
        Name of the domain.
    corpus : Corpus
        Text of the domain.
    tokenizer : Tokenization, str or callable
        How text is split into terms.
    lower : bool
        Whether terms are lower-cased. Terms from a callable are not changed; others are in Unicode's normal form C (a
        letter and its accent are one character if there is such a character).
    unit : DocumentUnit or str
        The unit of text files that counts as a document.
    blocks, seed : int
        Largest number of blocks, and the seed that assigns documents to them.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Counts
        The counts of all terms; if there are too many, the rarest are dropped (see ``Counts.pruned``).

    Raises
    ------
    DataError
        If the corpus has no term, or cannot be read.
    """
    unit = DocumentUnit(unit)
    if blocks < 1:
        raise UsageError(f"blocks is {blocks}; it must be 1 or more.")
    scanner = Strings(tokenizer) if callable(tokenizer) else Bytes(Tokenization(tokenizer))
    called = getattr(tokenizer, "__name__", "function") if callable(tokenizer) else str(tokenizer)
    lower = lower and not callable(tokenizer)
    form = "" if callable(tokenizer) else FORM
    settings = {
        "tokenizer": called, "form": form, "lower": int(lower), "unit": str(unit), "blocks": blocks, "seed": seed
    }  # fmt: skip
    table = _Table(blocks)
    deals: list[np.ndarray] | None = []
    documents = tokens = pruned = bound = base = 0
    source = None
    for piece in _ahead(_pieces(corpus, scanner, unit)):
        if piece.source != source:
            source, base = piece.source, documents
        ids = scanner.number(piece.words)
        dealt = _deal(source, np.arange(piece.before, piece.last + 1), seed)
        _by_words(dealt, piece, scanner.codes(piece.words), seed)
        documents = base + piece.last + 1
        if deals is not None:
            deals.append(dealt[1:])
            if documents > blocks:
                earlier = np.concatenate(deals)
                rows, words, numbers = table.items()
                table = _Table(blocks)
                table.put(block_of(earlier[rows], blocks), words, numbers)
                deals = None
        rows = np.arange(base + piece.before, documents) if deals is not None else block_of(dealt, blocks)
        table.put(rows[piece.documents], ids)
        if table.used > PAIRS:
            table, lost, most = _prune(table, scanner, PAIRS // 2)
            pruned, bound = pruned + lost, bound + most
        tokens += len(ids)
        progress(name, piece.read >> 20, max(corpus.size, piece.read) >> 20, MB=piece.read / 1e6)
    if not tokens:
        raise DataError(f"the domain {name!r} is empty: its text contains no term.")
    all_deals = None if deals is None else np.concatenate(deals)
    terms, matrix = _matrix(table, scanner.terms(), blocks if deals is None else documents, lower=lower)
    return Counts(name, terms, matrix, all_deals, documents, tokens, pruned, bound, settings)


def _by_words(dealt: np.ndarray, piece: _Piece, codes: np.ndarray, seed: int) -> None:
    """Assign documents that lie entirely within a piece by the hashes of their words, in any order."""
    begins = np.flatnonzero(np.diff(piece.documents, prepend=-1))
    if not len(begins):
        return
    length = np.diff(begins, append=len(codes))
    each = _mixed(codes ^ np.uint64(xxhash.xxh3_64_intdigest(b"words", seed)))
    words, at = np.add.reduceat(each, begins), piece.documents[begins]
    whole = (length >= FEWEST_TERMS) & (at > 0) & (at < len(dealt) - 1)
    dealt[at[whole]] = _mixed(words[whole])


def _deal(source: str, numbers: np.ndarray, seed: int) -> np.ndarray:
    """Pseudorandom uint64 for each document number (int64) in ``source`` (Steele et al. 2014, splitmix64)."""
    x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(xxhash.xxh3_64_intdigest(source.encode(), seed))
    return _mixed(x)


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def block_of(deals: np.ndarray, blocks: int) -> np.ndarray:
    """The block, int64, of documents with these hashes."""
    return (deals % np.uint64(blocks)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Piece:
    """The words of a chunk, in the representation of the scanner.

    before, last : numbers of the source's last document before the chunk, which may continue in it, and in the chunk;
        -1 for none; documents : int32 (words,), relative to ``before``; read : bytes of the corpus up to here
    """

    source: str
    before: int
    last: int
    words: Any
    documents: np.ndarray
    read: int


def _pieces(corpus: Corpus, scanner: Bytes | Strings, unit: DocumentUnit) -> Iterator[_Piece]:
    source, place = None, np.zeros(3, dtype=np.int64)
    for chunk in corpus.chunks:
        if chunk.source != source:
            source, place[:] = chunk.source, (-1, 0, 1)
        before = int(place[0])
        words, documents = scanner.cut(chunk, unit, place)
        yield _Piece(chunk.source, before, int(place[0]), words, documents, chunk.read)


T = TypeVar("T")


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; another thread prepares the next item while one is processed."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


class _Table:
    """Counts by block and word: an array for the words that occur first, a hash table of pairs for the others."""

    def __init__(self, blocks: int) -> None:
        self.dense = np.zeros((blocks, max(DENSE // blocks, 1)), dtype=np.int32)
        self.used = 0
        self._open(1 << 12)

    def _open(self, slots: int) -> None:
        self.keys, self.values = np.full(slots, -1, dtype=np.int64), np.zeros(slots, dtype=np.int64)

    def put(self, rows: np.ndarray, words: np.ndarray, numbers: np.ndarray | None = None) -> None:
        """Add 1, or ``numbers``, to the counts of ``words`` in ``rows``, all of shape (n,)."""
        beyond = int(np.count_nonzero(words >= self.dense.shape[1]))
        if 2 * (self.used + beyond) > len(self.keys):
            held = self.keys >= 0
            keys, values = self.keys[held], self.values[held]
            self._open(1 << (4 * (self.used + beyond) - 1).bit_length())
            _term_kernels.refill(keys, values, self.keys, self.values)
        one = np.ones(1, dtype=np.int64)
        how = (one, 0) if numbers is None else (numbers, 1)
        self.used += _term_kernels.add(rows, words, *how, self.dense, self.keys, self.values)

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and word, int32, and count, int64, in the hash table."""
        held = self.keys >= 0
        keys = self.keys[held]
        return (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32), self.values[held]

    def items(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and word, int32, and count, int64, of all counts that are not 0."""
        rows, words = np.nonzero(self.dense)
        dense = rows.astype(np.int32), words.astype(np.int32), self.dense[rows, words].astype(np.int64)
        first, second, third = (np.concatenate([dense[k], pairs]) for k, pairs in enumerate(self.pairs()))
        return first, second, third


def _prune(table: _Table, scanner: Bytes | Strings, pairs: int) -> tuple[_Table, int, int]:
    """Drop the rarest terms, so that the others take at most ``pairs``.

    Returns the table, the number of dropped tokens, and the count of the most frequent dropped term.
    """
    rows, words, numbers = table.items()
    totals = np.bincount(words, weights=numbers).astype(np.int64)
    order = np.argsort(-totals, kind="stable")
    blocks, columns = table.dense.shape
    beyond = np.cumsum(np.bincount(words)[order][columns:])
    kept = columns + int(np.searchsorted(beyond, pairs, side="right"))
    bound = int(totals[order[kept]]) if kept < len(order) else 0
    order = order[totals[order] > bound]
    number = np.full(len(totals), -1, dtype=np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    stays = number[words] >= 0
    scanner.keep(order)
    smaller = _Table(blocks)
    smaller.put(rows[stays], number[words[stays]], numbers[stays])
    return smaller, int(numbers[~stays].sum()), bound


def _matrix(table: _Table, terms: list[str], blocks: int, *, lower: bool) -> tuple[tuple[str, ...], csr_array]:
    """Terms, sorted and, if ``lower``, lower-cased, and the counts as a sparse matrix (blocks, terms)."""
    from scipy.sparse import csr_array

    terms = [term.lower() for term in terms] if lower else terms
    names = tuple(sorted(set(terms)))
    at = {name: i for i, name in enumerate(names)}
    columns = np.fromiter((at[term] for term in terms), np.int32, len(terms))
    dense, shape = table.dense[:blocks], (blocks, len(names))
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    indices, counts = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1], dtype=np.int64)
    for row, (start, end) in zip(dense, pairwise(ends), strict=True):
        words = np.flatnonzero(row)
        indices[start:end], counts[start:end] = columns[words], row[words]
    matrix = csr_array((counts, indices, ends), shape=shape)
    if table.used:
        rows, words, numbers = table.pairs()
        matrix = matrix + csr_array((numbers, (rows, columns[words])), shape=shape)
    matrix.sum_duplicates()
    return names, matrix
