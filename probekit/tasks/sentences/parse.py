"""What the sentence tasks ask of a sentence, whatever the kind of its tree."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash


@dataclass(frozen=True, slots=True)
class Clauses:
    """Two coordinated clauses: words ``0`` to ``first``, the link (", and"), words ``second`` to ``end``, and a mark.

    Attributes
    ----------
    first, second, end : int
        Indices of words, from 0; the ends are the first words outside.
    keeps_capital : bool
        Whether the first word of the sentence is written with a capital everywhere (a name, I).
    """

    first: int
    second: int
    end: int
    keeps_capital: bool


@dataclass(frozen=True, slots=True)
class Parse:
    """A sentence and what its tree says.

    Attributes
    ----------
    id : str
    words : tuple[str, ...]
    tags : tuple[str, ...]
        For each noun and full verb a tag that exchangeable words share ("NNS", "VBD"); "" for other words.
    depth : int
        Edges from the root to the deepest word.
    top : str
        The constituents below the sentence, joined by "_"; "" if unknown.
    tense, subject, object : tuple[str, str] | None
        The class ("PAST" or "PRES"; "NN" or "NNS") and the word, in lower case: of the verb of the main clause, of its
        subject, and of its direct object. None if there is none.
    clauses : Clauses | None
        Of a sentence of two coordinated clauses.
    document, domain : str, default ''
    """

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    depth: int
    top: str = ""
    tense: tuple[str, str] | None = None
    subject: tuple[str, str] | None = None
    object: tuple[str, str] | None = None
    clauses: Clauses | None = None
    document: str = ""
    domain: str = ""

    def __len__(self) -> int:
        return len(self.words)

    @property
    def key(self) -> str:
        """What sentences have in common that differ in capitals alone."""
        return " ".join(self.words).casefold()

    def drawn(self, seed: int, purpose: str = "") -> int:
        """A number from 0 to 2**64 - 1 that depends on the words, the seed and the purpose alone.

        The sentences with the least numbers are drawn: tasks of one treebank share most of theirs, and a sentence more
        or less changes little.
        """
        return xxhash.xxh3_64_intdigest(f"{seed}\t{purpose}\t{self.key}".encode("utf-8", "surrogatepass"))


def is_word(token: str) -> bool:
    """Whether a token has a letter or a digit."""
    return any(c.isalnum() for c in token)


def keeps_capital(word: str, *, name: bool) -> bool:
    """Whether the first word of a sentence is written with a capital elsewhere, too: a name, I, NASA.

    Examples
    --------
    >>> keeps_capital("The", name=False), keeps_capital("NASA", name=False)
    (False, True)
    """
    return name or word == "I" or any(c.isupper() for c in word[1:])
