"""Dependency trees of a treebank, as values: words, tags, features, heads and relations of each sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from probekit.errors import DataError, Faults
from probekit.tasks.files.readers import Sentence, in_documents, read_conllu

ABSENT = "_"
"""An empty cell of a CoNLL-U file."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A sentence with its dependency tree; words are numbered from 1, as heads are.

    Attributes
    ----------
    id : str
        Its ``# sent_id``, or ``<split>-<row>`` with rows from 0, as the examples of the task ``ud`` are called.
    words : tuple[str, ...]
    lemmas, upos, xpos : tuple[str, ...]
        One per word; "_" where the file has none.
    feats : tuple[str, ...]
        Morphological features of each word, such as "Number=Sing|Person=3"; "_" for none. See :meth:`feature`.
    heads : tuple[int, ...]
        The number of each word's head; 0 for the root. There is one root and no cycle.
    deprels : tuple[str, ...]
        The relation of each word to its head, such as "nsubj:pass".
    text : str
        The sentence as written, or the words joined by spaces.
    document : str, default ''
        The document it belongs to; "" if documents are not marked.
    line : int, default 0
        The line (from 1) of the file on which its words begin.
    """

    id: str
    words: tuple[str, ...]
    lemmas: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    feats: tuple[str, ...]
    heads: tuple[int, ...]
    deprels: tuple[str, ...]
    text: str
    document: str = ""
    line: int = 0

    def __len__(self) -> int:
        return len(self.words)

    @property
    def root(self) -> int:
        """The index (from 0) of the root."""
        return self.heads.index(0)

    @property
    def relations(self) -> tuple[str, ...]:
        """The universal relations, without subtypes: "nsubj" of "nsubj:pass"."""
        return tuple(deprel.partition(":")[0] for deprel in self.deprels)

    def written(self, changed: Mapping[int, str] = MappingProxyType({})) -> str:
        """The sentence as written, with other forms of some words, by index (from 0).

        If the words do not occur in the text in their order, they are joined by spaces.
        """
        parts, at = [], 0
        for i, word in enumerate(self.words):
            start = self.text.find(word, at)
            if start < 0:
                return " ".join(changed.get(j, other) for j, other in enumerate(self.words))
            parts += [self.text[at:start], changed.get(i, word)]
            at = start + len(word)
        return "".join([*parts, self.text[at:]])

    def children(self, word: int) -> tuple[int, ...]:
        """The indices (from 0) of the words whose head is the word with this index, in order."""
        return tuple(i for i, head in enumerate(self.heads) if head == word + 1)

    def feature(self, word: int, name: str) -> str:
        """A morphological feature of the word with this index (from 0), such as "Sing" for "Number"; "" for none."""
        pairs = (pair.partition("=") for pair in self.feats[word].split("|"))
        return next((value for key, _, value in pairs if key == name), "")


def read_trees(path: str | Path, split: str = "") -> list[Tree]:
    """The trees of a CoNLL-U file, in order; multiword tokens (``8-9``) and empty nodes (``8.1``) are left out.

    Parameters
    ----------
    path : path
        The file; one whose name ends in ``.gz`` is unpacked.
    split : str, default ''
        The split that sentences without a (unique) ``# sent_id`` are called after; by default the file's name.

    Returns
    -------
    list of Tree
        One per sentence, in the order of the file.

    Raises
    ------
    DataError
        If a sentence is not a tree: a head that is no number or beyond the sentence, no root, two roots, or a cycle.
        The message names the file, the line on which the sentence begins, and the words. Several are listed together.

    Examples
    --------
    >>> tree = read_trees("en_ewt-ud-dev.conllu")[0]  # doctest: +SKIP
    >>> tree.words[tree.root], tree.feature(tree.root, "Tense")  # doctest: +SKIP
    """
    path, faults = Path(path), Faults()
    sentences = in_documents(read_conllu(path), path)
    given = [s.comments.get("sent_id", "") for s in sentences]
    if len(set(given)) < len(given) or "" in given:
        given = [f"{split or path.stem}-{i}" for i in range(len(sentences))]
    trees = []
    for name, sentence in zip(given, sentences, strict=True):
        with faults:
            trees.append(_tree(name, sentence, path))
    faults.check()
    return trees


def not_a_tree(heads: Sequence[int]) -> str:
    """What is wrong with the heads of a sentence, as the end of a message; "" if they form a tree.

    Parameters
    ----------
    heads : sequence of int
        The number (from 1) of each word's head; 0 for the root.

    Examples
    --------
    >>> not_a_tree([2, 0, 2]), not_a_tree([0, 0])
    ('', 'two roots (words 1 and 2), expected one')
    >>> not_a_tree([0, 3, 2])
    'a cycle: word 2 -> 3 -> 2'
    """
    n = len(heads)
    for i, head in enumerate(heads, start=1):
        if not 0 <= head <= n:
            return f"the head {head} of word {i}, expected a word from 1 to {n}, or 0 for the root"
    roots = [i for i, head in enumerate(heads, start=1) if head == 0]
    if len(roots) > 1:
        many = "two" if len(roots) == 2 else str(len(roots))
        return f"{many} roots (words {', '.join(map(str, roots[:-1]))} and {roots[-1]}), expected one"
    seen = [0] * (n + 1)  # the walk that first came to a word
    for start in range(1, n + 1):
        word = start
        while word and not seen[word]:
            seen[word] = start
            word = heads[word - 1]
        if word and seen[word] == start:
            cycle = [word]
            while (word := heads[word - 1]) != cycle[0]:
                cycle.append(word)
            return f"a cycle: word {' -> '.join(map(str, [*cycle, cycle[0]]))}"
    return "" if roots else "no root (no word with the head 0), expected one"


def _tree(name: str, s: Sentence, path: Path) -> Tree:
    _, words, lemmas, upos, xpos, feats, given, deprels = (s.column(i) for i in range(8))
    for i, head in enumerate(given, start=1):
        if not head.isdecimal():
            absent = " The treebank has no trees." if head == ABSENT else ""
            message = f"the sentence {name!r} that begins here has the head {head!r} of word {i}, expected a number."
            raise DataError(message + absent, file=path, line=s.line, column="HEAD")
    heads = tuple(map(int, given))
    if wrong := not_a_tree(heads):
        message = f"the sentence {name!r} that begins here is not a tree; it has {wrong}."
        raise DataError(message, file=path, line=s.line, column="HEAD")
    text = s.comments.get("text") or " ".join(words)
    return Tree(name, words, lemmas, upos, xpos, feats, heads, deprels, text, s.document, s.line)
