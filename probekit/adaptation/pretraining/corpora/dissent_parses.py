"""Pairs of clauses from dependency parses (DisSent; Nie et al. 2019), by the rules of jiant's authors.

Their rules (scripts/dissent/dissent_corpus_maker.py) are written for Stanford dependencies; here they are those of
Universal Dependencies 2:

- because, if, when, before, though, so: a ``mark`` or ``advmod`` of an ``advcl``. The second clause is the ``advcl``,
  the first one what is left of the clause that it modifies.
- and, but: a ``cc`` of a ``conj`` (Stanford's ``cc`` belongs to the first conjunct). The clauses are the conjunct
  before the marker, and the one after it.
- A marker at the beginning of a sentence that has no first clause in it: the first clause is the previous sentence of
  the document.

Both clauses need a subject, and are runs of neighbouring words around their heads. Beside these, and more strictly
than theirs: ``so`` may also mark a ``parataxis`` after its clause; clauses inside relative clauses, clauses that begin
with who, which or what, and clauses that lose their subject, object or auxiliary are left out; and
:func:`~probekit.adaptation.pretraining.corpora.clauses.row` limits their length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probekit.adaptation.pretraining.corpora.clauses import MARKERS, row
from probekit.adaptation.pretraining.corpora.kinds import Row
from probekit.tasks.files.readers import Sentence

__all__ = ["Parse", "clause_pairs"]

SUBORDINATING = frozenset(MARKERS) - {"and", "but"}
SUBJECTS = ("nsubj", "csubj")
COMPLEMENTS = (*SUBJECTS, "obj", "iobj", "ccomp", "xcomp", "aux", "cop")
RELATIVE = {"who", "whom", "whose", "which", "what"}
ROOT = -1


@dataclass(frozen=True, slots=True)
class Parse:
    """A sentence with its dependencies.

    Attributes
    ----------
    text : str
        The sentence.
    words : tuple of str
        Its words in small letters.
    heads : tuple of int
        The place of the head of each word, from 0; -1 is the root's.
    relations : tuple of str
        The relation of each word to its head, without subtype.
    begins, ends : tuple of int
        The characters of each word in the text.
    """

    text: str
    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, sentence: Sentence) -> Parse:
        """The parse of a CoNLL-U sentence; its text is its ``# text``, or its words with blanks between them."""
        forms = sentence.column(1)
        text = sentence.comments.get("text", "")
        places = _places(forms, text)
        if places is None:
            text = " ".join(forms)
            places = _places(forms, text) or []
        heads = tuple(int(head) - 1 if head.isdecimal() else ROOT for head in sentence.column(6))
        relations = tuple(relation.partition(":")[0] for relation in sentence.column(7))
        begins, ends = zip(*places, strict=True)
        return cls(text, tuple(map(str.lower, forms)), heads, relations, begins, ends)

    def children(self, head: int, *relations: str) -> list[int]:
        """The words with this head and one of these relations."""
        return [i for i, h in enumerate(self.heads) if h == head and self.relations[i] in relations]

    def subject(self, head: int) -> int | None:
        """The subject of a clause, by its head."""
        return next(iter(self.children(head, *SUBJECTS)), None)

    @property
    def has_subject(self) -> bool:
        """Whether the main clause has a subject."""
        return any(self.subject(i) is not None for i, head in enumerate(self.heads) if head == ROOT)

    def run(self, head: int, without: Iterable[int]) -> tuple[int, int]:
        """First and last word of the run of descendants around a head, without some words and what depends on them."""
        outside = set(without)
        inside = [self._is_below(i, head, outside) for i in range(len(self.words))]
        first = last = head
        while first > 0 and inside[first - 1]:
            first -= 1
        while last + 1 < len(inside) and inside[last + 1]:
            last += 1
        while first < head and self.heads[first] == head and self.relations[first] in ("mark", "cc", "punct"):
            first += 1
        return first, last

    def _is_below(self, word: int, head: int, outside: set[int]) -> bool:
        for _ in self.words:  # no longer than a sentence, even if the heads form a circle
            if word in outside or word == ROOT:
                return False
            if word == head:
                return True
            word = self.heads[word]
        return False

    def piece(self, first: int, last: int) -> str:
        """The text from one word to another."""
        return self.text[self.begins[first] : self.ends[last]]


def _places(forms: Iterable[str], text: str) -> list[tuple[int, int]] | None:
    """Where the words are in the text, or None if one is not there."""
    at, places = 0, []
    for form in forms:
        while at < len(text) and text[at].isspace():
            at += 1
        if not text.startswith(form, at):
            return None
        places.append((at, at + len(form)))
        at += len(form)
    return places


def clause_pairs(parse: Parse, previous: str = "") -> Iterator[Row]:
    """The pairs of clauses of a sentence: (first, second, marker).

    Parameters
    ----------
    parse : Parse
        The sentence.
    previous : str, default ''
        The sentence before it in the same document, for a marker at the beginning.
    """
    blank = parse.text.endswith((" .", " ?", " !"))
    for at, word in enumerate(parse.words):
        if word not in MARKERS:
            continue
        found = None
        if word in SUBORDINATING and parse.relations[at] in ("mark", "advmod"):
            found = _subordinate(parse, at)
        elif word in ("and", "but") and parse.relations[at] == "cc":
            found = _coordinate(parse, at)
        if found is None and at == 0 and previous:
            found = _initial(parse, at, previous)
        if found and (pair := row(*found, word, blank=blank)):
            yield pair


def _subordinate(parse: Parse, at: int) -> tuple[str, str] | None:
    clause = parse.heads[at]
    main = parse.heads[clause]
    relations = ("advcl", "parataxis") if parse.words[at] == "so" and main < at else ("advcl",)
    if main == ROOT or parse.relations[clause] not in relations or parse.relations[main] == "acl":
        return None
    return _pair(parse, main, clause, at)


def _coordinate(parse: Parse, at: int) -> tuple[str, str] | None:
    clause = parse.heads[at]
    if parse.relations[clause] != "conj" or parse.relations[parse.heads[clause]] == "acl":
        return None
    first = parse.heads[clause]
    between = [i for i in parse.children(first, "conj") if i < at and parse.subject(i) is not None]
    return _pair(parse, max([first, *between]), clause, at)


def _pair(parse: Parse, main: int, clause: int, at: int) -> tuple[str, str] | None:
    """The two clauses, if both have their subject and are whole."""
    pieces = []
    for head, other in ((main, clause), (clause, main)):
        first, last = parse.run(head, (other, at))
        needed = [i for i in parse.children(head, *COMPLEMENTS) if i not in (clause, main)]
        if parse.subject(head) is None or any(not first <= i <= last for i in needed):
            return None
        if parse.words[first] in RELATIVE:
            return None
        pieces.append(parse.piece(first, last))
    return pieces[0], pieces[1]


def _initial(parse: Parse, at: int, previous: str) -> tuple[str, str] | None:
    if not parse.has_subject or parse.heads[at] == ROOT or parse.relations[parse.heads[at]] != "root":
        return None
    return previous, parse.piece(1, len(parse.words) - 1)
