"""Pairs of clauses from text without parses, by patterns of strings.

A clause is taken to begin with a word that often begins one: a personal pronoun (I, he, there …), and after because,
if, when and though also an article, a possessive or a name. Three patterns, in this order, one pair from a sentence:

- in the middle: ``FIRST, marker SECOND``. A comma or semicolon is required before and, but, so and though.
- at the beginning, with a comma inside: ``Marker SECOND, FIRST`` (because, if, when, before, though).
- at the beginning: ``Marker SECOND`` (and, but, so), where the first clause is the previous sentence of the document.

Clauses in the middle end at a semicolon or colon. Both clauses need a word that looks like a finite verb. ``even if``,
``as if``, ``see if`` and the like are not markers. Without a parse some pairs are wrong: use parses where you have
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probekit.adaptation.pretraining.corpora.clauses import row
from probekit.adaptation.pretraining.corpora.kinds import Row, Rows

__all__ = ["clause_pair", "clauses_of_sentences"]

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
