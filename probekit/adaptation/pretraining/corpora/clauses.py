"""What all pairs of clauses have in common: the eight markers of DisSent, and the form of a clause."""

from __future__ import annotations

import re

from probekit.adaptation.pretraining.corpora.kinds import Row

__all__ = ["FEWEST", "MARKERS", "MOST", "as_sentence", "row"]

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
