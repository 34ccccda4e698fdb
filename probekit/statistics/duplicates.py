"""Examples that are not independent: equal texts, pairs that share a sentence, near copies.

Texts are given as numbers of words or word pieces. Near copies are found by MinHash in bands (Broder 1997; Leskovec,
Rajaraman & Ullman 2020, Mining of Massive Datasets, sections 3.3 and 3.4) over words and pairs of neighbouring words,
and every candidate pair is verified by the Jaccard similarity of its sets. Words with which all texts begin and end,
as those of a chat template, are left out: they would make all texts similar. Time and memory grow linearly with the
number of words, and the result is deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xxhash

from probekit.runtime import Progress, no_progress

NEAR = 0.5
"""Minimum Jaccard similarity of near copies: six words with one difference have 8 / 14; unrelated texts about .02."""
ALIKE = 0.15
"""Minimum median similarity within a domain of templates; it must also be twice that of other examples."""
LEAST_WORDS = 4
"""For shorter texts, only equal ones count."""
FRAMED = 20
"""Among fewer distinct texts, words with which all of them begin and end are compared like all others."""
BANDS, ROWS = 30, 4  # a similarity of .5 is found with probability .86, of .6 with .98; one of .1 with .003
SLACK = 0.15  # more than three standard errors of the similarity that 120 hashes estimate
MOST_SHARE, MOST_ROWS = 0.1, 50
"""A found group has at most this fraction of the examples, or this number; further links are left out and counted."""
BLOCK = 1 << 21  # numbers hashed at once
EDGES = 1 << 15  # pairs verified at once
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\W぀-ヿ㐀-鿿]+")
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Numbered(Protocol):
    """Texts as numbers of words or pieces: text i is ``values[start[i] : start[i] + length[i]]``."""

    @property
    def values(self) -> np.ndarray: ...
    @property
    def start(self) -> np.ndarray: ...
    @property
    def length(self) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class TextNumbers:
    """Concatenated texts as numbers."""

    values: np.ndarray
    start: np.ndarray
    length: np.ndarray


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of examples that belong together, and the reasons.

    Attributes
    ----------
    of : np.ndarray
        int32 (n,), numbered in the order of their first example; an independent example is a group of one.
    equal, shared, near : int
        Numbers of examples that are equal to an earlier one (ignoring case and punctuation), share a sentence with an
        earlier one, or are a near copy of another one.
    domain : int
        Number of examples in domains that were joined because their texts follow a template.
    apart : int
        Number of links that were left out because a group would have become too large.
    """

    of: np.ndarray
    equal: int = 0
    shared: int = 0
    near: int = 0
    domain: int = 0
    apart: int = 0

    @property
    def count(self) -> int:
        """The number of groups, including those with one example."""
        return int(self.of.max(initial=-1)) + 1

    @property
    def together(self) -> int:
        """Number of examples in groups with more than one example."""
        size = np.bincount(self.of)
        return int(size[size > 1].sum())

    @property
    def largest(self) -> int:
        """Size of the largest group."""
        return int(np.bincount(self.of, minlength=1).max())


def text_numbers(texts: Sequence[str]) -> TextNumbers:
    """The words of texts as numbers, ignoring case and punctuation; a text without words is one number."""
    known: dict[str, int] = {}
    flat: list[int] = []
    length = np.empty(len(texts), dtype=np.int64)
    for i, text in enumerate(texts):
        words = _WORD.findall(text.lower()) or [text]
        length[i] = len(words)
        for word in words:
            code = known.get(word)
            if code is None:
                code = known[word] = xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
            flat.append(code)
    return TextNumbers(np.array(flat, dtype=np.uint64).view(np.int64), np.cumsum(length) - length, length)


def find_groups(
    parts: Sequence[Numbered],
    domains: np.ndarray | None = None,
    *,
    near: float = NEAR,
    frames: bool = True,
    progress: Progress = no_progress,
) -> Grouping:
    """Groups of examples that are linked, directly or through others.

    Two examples are linked if they are equal (pairs also in reverse order), if their pairs share a sentence, or if
    texts of the two are near copies. The strongest links come first; a link that would make a group larger than a tenth
    of the examples (and 50) is left out and counted.

    Parameters
    ----------
    parts : sequence of Numbered
        One for each text of an example.
    domains : np.ndarray, optional
        (n,), the domain of each example. All examples of a domain are linked if its texts follow a template.
    near : float
        Minimum Jaccard similarity of near copies.
    frames : bool
        Whether to leave out the words with which all texts of a part begin and end; False if order has no meaning.
    progress : callable
        Called with the number of distinct texts processed.
    """
    n = len(parts[0].start)
    unique, code = _distinct([_unframed(part) for part in parts] if frames else parts)
    whole = np.sort(code, axis=1)
    equal = _to_first(np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1) if n else np.zeros(0, np.int64))
    shared = equal[:0]
    if len(parts) > 1:  # the first sentences' links come first
        shared = np.tile(np.arange(n), len(parts))[_to_first(code.T.reshape(-1))]
        shared = shared[shared[:, 0] != shared[:, 1]]
    first = np.full(len(unique.start), n, dtype=np.int64)
    np.minimum.at(first, code, np.arange(n)[:, None])
    close = first[near_copies(unique, near, progress=progress)]
    close = close[close[:, 0] != close[:, 1]]
    pattern_links = _patterns(unique, code, domains)
    of, apart = _components(n, [equal, shared, close, pattern_links], max(MOST_ROWS, int(MOST_SHARE * n)))
    n_linked = [len(np.unique(edges[:, 1])) for edges in (equal, shared)]
    return Grouping(of, n_linked[0], n_linked[1], len(np.unique(close)), len(np.unique(pattern_links)), apart)


def related(train: Sequence[Numbered], dev: Sequence[Numbered]) -> np.ndarray:
    """Which examples of dev have a text that also occurs in train, or a near copy of one, bool (n_dev,)."""
    both = [
        TextNumbers(
            np.concatenate([a.values, b.values]),
            np.concatenate([a.start, b.start + len(a.values)]),
            np.concatenate([a.length, b.length]),
        )
        for a, b in zip(train, dev, strict=True)
    ]
    n = len(train[0].start)
    unique, code = _distinct([_unframed(part) for part in both])
    edges = near_copies(unique)
    of, _ = _components(len(unique.start), [edges], len(unique.start))
    component = of[code]
    found: np.ndarray = np.isin(component[n:], component[:n])
    return np.asarray(found.any(axis=1))


def merged(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    """The finest groups that contain the groups of both, (n,); None if there are neither."""
    if first is None or second is None:
        return second if first is None else first
    n = len(first)
    links = [_to_first(np.unique(groups, return_inverse=True)[1].reshape(-1)) for groups in (first, second)]
    return _components(n, links, n)[0]


def near_copies(texts: TextNumbers, least: float = NEAR, *, progress: Progress = no_progress) -> np.ndarray:
    """Pairs of distinct texts that are near copies, int64 (e, 2): enough of them to connect similar texts."""
    enough = np.flatnonzero(texts.length >= LEAST_WORDS)
    signature = np.empty((len(enough), BANDS * ROWS), dtype=np.uint32)
    factor = np.random.default_rng(0).integers(1 << 62, size=BANDS * ROWS, dtype=np.uint64) * 2 + 1
    for a, b in _blocks(2 * texts.length[enough]):
        shingle, start = _shingles(texts, enough[a:b])
        for k, multiplier in enumerate(factor):
            signature[a:b, k] = np.minimum.reduceat(shingle * multiplier, start) >> np.uint64(32)
        progress("grouping", b, len(enough))
    found = [np.zeros(0, dtype=np.int64)]
    for band in range(0, BANDS * ROWS, ROWS):
        key = np.zeros(len(enough), dtype=np.uint64)
        for k in range(band, band + ROWS):
            key = _mixed(key * _ODD + signature[:, k])
        order = np.argsort(key, kind="stable")
        same = key[order[1:]] == key[order[:-1]]
        beside = np.stack([order[:-1][same], order[1:][same]], 1)
        lead = (
            np.maximum.accumulate(np.where(np.append(True, ~same), np.arange(len(order)), 0)) if len(order) else order
        )
        star = np.stack([order[lead], order], 1)[np.append(False, same)] if len(order) else beside
        pairs = np.unique(np.sort(np.concatenate([beside, star]), axis=1), axis=0)
        alike = np.concatenate(
            [(signature[p[:, 0]] == signature[p[:, 1]]).mean(1) for p in np.array_split(pairs, len(pairs) // EDGES + 1)]
        )
        pairs = pairs[alike >= least - SLACK]
        found.append(pairs[:, 0] * len(enough) + pairs[:, 1])
    edges = np.stack(np.divmod(np.unique(np.concatenate(found)), max(1, len(enough))), 1)
    verified = [part[_jaccard(texts, enough[part]) >= least] for part in np.array_split(edges, len(edges) // EDGES + 1)]
    return enough[np.concatenate(verified)]


def _patterns(texts: TextNumbers, code: np.ndarray, domains: np.ndarray | None) -> np.ndarray:
    """Links between the examples of each domain, int64 (e, 2), if they are similar and other examples are not."""
    none = np.zeros((0, 2), dtype=np.int64)
    if domains is None or len(domains) < 2:
        return none
    domain = np.unique(np.asarray(domains).astype(str), return_inverse=True)[1].reshape(-1)
    rng = np.random.default_rng(0)
    order = np.lexsort((rng.random(len(domain)), domain))
    beside = np.stack([order[:-1], order[1:]], 1)[domain[order[1:]] == domain[order[:-1]]]
    other = rng.permutation(len(domain))
    far = np.stack([np.arange(len(domain)), other], 1)[domain != domain[other]]
    if not len(beside) or not len(far):
        return none

    def alike(edges: np.ndarray) -> np.ndarray:
        parts = np.array_split(edges, len(edges) // EDGES + 1)
        sides = [np.concatenate([_jaccard(texts, side[part]) for part in parts]) for side in code.T]
        return np.mean(sides, axis=0)

    near, usual = alike(beside), float(np.median(alike(far)))
    of = domain[beside[:, 0]]  # sorted
    cuts = np.flatnonzero(np.diff(of, prepend=-1))
    middle = np.array([np.median(part) for part in np.split(near, cuts[1:])])
    return beside[np.repeat(middle >= max(ALIKE, 2 * usual), np.diff(cuts, append=len(of)))]


def _unframed(texts: Numbered) -> Numbered:
    """Texts without the words with which all of them begin and end; few texts as they are."""
    if len(texts.length) < FRAMED:
        return texts
    start, length = np.asarray(texts.start, dtype=np.int64), np.asarray(texts.length, dtype=np.int64)

    def shared(at: np.ndarray, step: int, most: int) -> int:
        k = 0
        while k < most and (texts.values[at + step * k] == texts.values[at[0] + step * k]).all():
            k += 1
        return k

    head = shared(start, 1, int(length.min()))
    tail = shared(start + length - 1, -1, int(length.min()) - head)
    if not head + tail or len(np.unique(_digests(texts))) < FRAMED:
        return texts
    return TextNumbers(np.asarray(texts.values), start + head, length - head - tail)


def _distinct(parts: Sequence[Numbered]) -> tuple[TextNumbers, np.ndarray]:
    """The distinct texts of all parts, and the index of each example's texts among them, int64 (n, parts)."""
    digest = np.stack([_digests(part) for part in parts], axis=1)
    _, at, code = np.unique(digest, return_index=True, return_inverse=True)
    row, part = np.divmod(at, len(parts))
    start = np.stack([p.start for p in parts], 1)[row, part]
    length = np.stack([p.length for p in parts], 1)[row, part]
    offset = np.cumsum([0, *(len(p.values) for p in parts)])[:-1]
    values = np.concatenate([p.values for p in parts])
    return TextNumbers(values, start + offset[part], length), code.reshape(digest.shape)


def _digests(texts: Numbered) -> np.ndarray:
    """A 64-bit digest of each text's sequence of numbers, uint64 (n,)."""
    length = np.asarray(texts.length, dtype=np.int64)
    out = np.empty(len(length), dtype=np.uint64)
    for a, b in _blocks(length):
        rows = _rows(texts, np.arange(a, b))
        end = np.cumsum(length[a:b])
        place = (np.arange(len(rows)) - np.repeat(end - length[a:b], length[a:b])).astype(np.uint64)
        each = _mixed(_mixed(texts.values[rows].astype(np.int64).view(np.uint64)) + place * _ODD)
        total = np.append(np.uint64(0), np.cumsum(each, dtype=np.uint64))
        out[a:b] = total[end] - total[end - length[a:b]] + length[a:b].astype(np.uint64) * _ODD
    return out


def _shingles(texts: TextNumbers, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words and pairs of adjacent words of some texts, uint64 (s,), and the start of each; 2 length - 1 per text."""
    length = texts.length[which]
    word = _mixed(texts.values[_rows(texts, which)].astype(np.int64).view(np.uint64))
    pair = _mixed(word * _ODD + np.append(word[1:], word[:1]))
    both = np.stack([word, pair], 1).reshape(-1)
    last = 2 * np.cumsum(length) - 1  # with the first word of the next text
    keep = np.ones(len(both), dtype=bool)
    keep[last[length > 0]] = False
    size = np.maximum(2 * length - 1, 0)
    return both[keep], np.cumsum(size) - size


def _jaccard(texts: TextNumbers, edges: np.ndarray) -> np.ndarray:
    """Jaccard similarity of the words and word pairs of two texts, (e,)."""
    sides = []
    for side in edges.T:
        shingle, _ = _shingles(texts, side)
        edge = np.repeat(np.arange(len(edges)), np.maximum(2 * texts.length[side] - 1, 0))
        key, at = np.unique(_mixed(shingle + edge.astype(np.uint64) * _ODD), return_index=True)
        sides.append((key, edge[at]))
    (a, edge_a), (b, edge_b) = sides
    both = np.bincount(edge_a[np.isin(a, b, assume_unique=True)], minlength=len(edges))
    either = np.bincount(edge_a, minlength=len(edges)) + np.bincount(edge_b, minlength=len(edges)) - both
    return both / np.maximum(either, 1)


def _to_first(code: np.ndarray) -> np.ndarray:
    """Links from each row with a repeated code to the first row with this code: int64 (e, 2)."""
    first = np.unique(code, return_index=True)[1]
    place = np.full(int(code.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[code[first]] = first
    again = np.flatnonzero(place[code] != np.arange(len(code)))
    return np.stack([place[code[again]], again], 1)


def _components(n: int, links: Sequence[np.ndarray], most: int) -> tuple[np.ndarray, int]:
    """Connected components, int32 (n,), of size at most ``most``; and the number of links left out for that."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate(links)
    graph = sparse.coo_matrix((np.ones(len(edges), dtype=bool), edges.T), shape=(n, n))
    of = connected_components(graph, directed=False)[1]
    apart = 0
    size = np.bincount(of, minlength=1)
    if size.max() > most:
        large = size[of[edges[:, 0]]] > most
        root, apart = _bounded(n, edges[large], most)
        of = np.unique(np.stack([of, root], 1), axis=0, return_inverse=True)[1].reshape(-1)
    _, first, code = np.unique(of, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[code.reshape(-1)], apart


def _bounded(n: int, edges: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Union-find over links in order, without groups larger than ``most``."""
    parent, size, apart = list(range(n)), [1] * n, 0
    for i, j in edges.tolist():
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        while parent[j] != j:
            parent[j] = j = parent[parent[j]]
        if i == j:
            continue
        if size[i] + size[j] > most:
            apart += 1
            continue
        i, j = min(i, j), max(i, j)
        parent[j], size[i] = i, size[i] + size[j]
    root = np.array(parent)
    while (root != root[root]).any():
        root = root[root]
    return root, apart


def _mixed(x: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of x, uint64 (splitmix64's finaliser)."""
    x = x + _ODD  # otherwise 0 would stay 0, the minimum for every multiplier
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _rows(texts: Numbered, which: np.ndarray) -> np.ndarray:
    """Indices in ``values`` of the numbers of some texts, concatenated."""
    length = np.asarray(texts.length, dtype=np.int64)[which]
    return np.arange(int(length.sum())) + np.repeat(texts.start[which] - (np.cumsum(length) - length), length)


def _blocks(length: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges a … b - 1 of texts with about as many numbers as are hashed at once."""
    ends = np.cumsum(length)
    at = 0
    while at < len(length):
        stop = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + BLOCK)))
        yield at, stop
        at = stop
