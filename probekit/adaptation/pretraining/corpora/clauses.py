"""Pairs of clauses (DisSent; Nie et al. 2019): from dependency parses, and from text without parses by patterns.

For parses, the rules of jiant's authors (scripts/dissent/dissent_corpus_maker.py) are written for Stanford
dependencies; here they are those of Universal Dependencies 2:

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

Without parses, a clause is taken to begin with a word that often begins one: a personal pronoun (I, he, there …), and
after because, if, when and though also an article, a possessive or a name. Three patterns, in this order, one pair from
a sentence:

- in the middle: ``FIRST, marker SECOND``. A comma or semicolon is required before and, but, so and though.
- at the beginning, with a comma inside: ``Marker SECOND, FIRST`` (because, if, when, before, though).
- at the beginning: ``Marker SECOND`` (and, but, so), where the first clause is the previous sentence of the document.

Clauses in the middle end at a semicolon or colon. Both clauses need a word that looks like a finite verb. ``even if``,
``as if``, ``see if`` and the like are not markers. Some pairs are wrong: use parses where you have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probekit.adaptation.pretraining.corpora.kinds import Row, Rows
from probekit.tasks.files.readers import Sentence

MARKERS = ("and", "because", "but", "if", "when", "before", "though", "so")
"""The markers of jiant's authors: the five of Nie et al. (2019, their smallest set) and before, though, so."""

FEWEST, MOST = 3, 50
"""Number of words of a clause."""

OUTER = re.compile(r"^(?:[^\w\s]\s|[,.;:?!…—–\-\s])+|(?:\s[^\w\s]|[,.;:?!…—–\-\s])+$")
QUOTES = ('"', "``", "''", "“", "”")
PAIRED = ("()", "[]", "“”")


def as_sentence(clause: str, *, blank: bool = False) -> str:
    """A clause as a sentence: without punctuation around it, with a capital letter and a full stop.

    jiant's authors do so too, since punctuation and capital letters would give the order of the clauses away.

    Parameters
    ----------
    blank : bool, default False
        Whether a blank is before the full stop, as in text of separate words.

    Examples
    --------
    >>> as_sentence(", the dog slept ;")
    'The dog slept.'
    """
    text = OUTER.sub("", clause.strip())
    for quote in QUOTES:
        if text.count(quote) == 1 and (text.startswith(quote) or text.endswith(quote)):
            text = OUTER.sub("", text.removeprefix(quote).removesuffix(quote).strip())
    return f"{text[:1].upper()}{text[1:]}{' ' * blank}." if text else ""


def row(first: str, second: str, marker: str, *, blank: bool = False) -> Row | None:
    """The row of two clauses, or None if one has fewer than 3 or more than 50 words, or half a pair of quotes."""
    clauses = [as_sentence(clause, blank=blank) for clause in (first, second)]
    for clause in clauses:
        words = [word for word in clause.split() if any(map(str.isalnum, word))]
        if not FEWEST <= len(words) <= MOST:
            return None
        if clause.count('"') % 2 or any(clause.count(pair[0]) != clause.count(pair[1]) for pair in PAIRED):
            return None
    return (*clauses, marker)


PRONOUN = r"(?:I|you|he|she|it|we|they|there|You|He|She|It|We|They|There)\b"
ARTICLE = r"(?:[Tt]he|[Aa]n?|[Tt]h(?:is|ese|ose)|[Mm]y|[Yy]our|[Hh]is|[Hh]er|[Ii]ts|[Oo]ur|[Tt]heir|[Nn]o|some|every)\b"
NAME = r"[A-Z][a-z]+\b"
BEGINS = rf"(?:{PRONOUN}|{ARTICLE}|{NAME})"
MIDDLE = re.compile(
    rf"(?P<comma>[,;]?)['’”\"]*\s(?:(?P<strict>and|but|so|before)\s(?={PRONOUN})|(?P<free>because|if|when|though)\s(?={BEGINS}))"
)
FRONTED = re.compile(
    rf"^(?P<marker>Because|If|When|Before|Though)\s(?P<second>{BEGINS}.*?)\s?,\s(?P<first>{BEGINS}.*)$"
)
INITIAL = re.compile(rf"^(?P<marker>And|But|So)\s?,?\s(?P<second>(?:{PRONOUN}|{ARTICLE}).*)$")
COMMA = {"and", "but", "so", "though"}
NOT_BEFORE = {"even", "as", "only", "just", "not", "what", "or", "and", "but", "than", "except", "especially", "long"}
ASKING = {"see", "wonder", "wondered", "know", "knew", "ask", "asked", "tell", "doubt", "doubted", "sure", "doubtful"}
VERB = re.compile(
    r"\b(?:am|is|are|was|were|be|have|has|had|do|does|did|will|would|can|could|shall|should|may|might|must|cannot|said|"
    r"went|came|saw|knew|thought|made|took|found|gave|told|felt|left|began|got|became|kept|brought|stood|sat|ran|held|"
    r"heard|slept|let|put|set|lost|met|led|won|wrote|spoke|fell|grew|rose|sent|fought|bought|broke|drew|drove|spent|say|says|"
    r"know|think|want|need|see|seem|seems|like|love|go|goes|come|comes|get|gets|make|makes|take|takes|give|find|mean|"
    r"\w{2,}ed)\b|['’](?:s|re|ve|ll|d|m)\b|n['’]t\b"
)


def clause_pair(sentence: str, previous: str = "") -> Row | None:
    """The pair of clauses of a sentence as (first, second, marker), or None.

    Parameters
    ----------
    sentence : str
        A sentence, of separate words or not.
    previous : str, default ''
        The sentence before it in the same document.

    Examples
    --------
    >>> clause_pair("The dog had barked all night, but we slept well.")
    ('The dog had barked all night.', 'We slept well.', 'but')
    >>> clause_pair("When the door opened , she looked up .")
    ('She looked up .', 'The door opened .', 'when')
    >>> clause_pair("But nobody came.", "We waited for an hour.") is None
    True
    >>> clause_pair("But he never came.", "We waited for an hour.")
    ('We waited for an hour.', 'He never came.', 'but')
    """
    blank = sentence.endswith((" .", " ?", " !"))
    for found in (*_middle(sentence), *_beginning(sentence, previous)):
        first, second, marker = found
        if VERB.search(first) and VERB.search(second) and (pair := row(first, second, marker, blank=blank)):
            return pair
    return None


def _middle(sentence: str) -> Iterator[Row]:
    for match in MIDDLE.finditer(sentence):
        marker = match["strict"] or match["free"]
        before = sentence[: match.start()].split()
        comma = match["comma"] or before[-1:] in ([","], [";"])
        if not before or (marker == "if" and before[-1].lower() in ASKING):
            continue
        if (comma or marker not in COMMA) and before[-1].lower() not in NOT_BEFORE:
            first, second = re.split(r"[;:]", " ".join(before).rstrip(";: "))[-1], sentence[match.end() :]
            yield first, re.split(r"[;:]", second)[0], marker


def _beginning(sentence: str, previous: str) -> Iterator[Row]:
    if match := FRONTED.match(sentence):
        yield match["first"], match["second"], match["marker"].lower()
    elif previous and (match := INITIAL.match(sentence)):
        yield previous, match["second"], match["marker"].lower()


def clauses_of_sentences(sentences: Rows) -> Iterator[Row]:
    """The pairs of clauses of a corpus of sentences in document order."""
    previous = ""
    for (sentence,) in sentences():
        if sentence and (pair := clause_pair(sentence, previous)):
            yield pair
        previous = sentence


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
