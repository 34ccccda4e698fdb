"""Positions: which pieces of a text are pooled and stored, and what is known of each piece (its role)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probekit.activations.ragged import second_pieces
from probekit.errors import UsageError, did_you_mean
from probekit.models.encoder import Tokens
from probekit.tasks.task import Span

ROLES = ("text", "special", "template", "system", "user", "assistant", "thinking", "tool", "generated")
"""Roles of pieces; caches store their numbers. A piece of plain text is "text" or, if the tokenizer added it,
"special"; a piece of a conversation has the role of its message, or "template" if the chat template wrote it;
"generated" is what the model wrote itself."""

TEXT, SPECIAL, TEMPLATE = (ROLES.index(name) for name in ("text", "special", "template"))
GENERATED = ROLES.index("generated")
NAMES = ("all", "first", "last", "special", "span", "answer", "roles")
EXPECTED = "expected all, first, last, last:N, special, span (or answer) or roles:ROLE,ROLE"


@dataclass(frozen=True, slots=True)
class Positions:
    """The pieces that are pooled and stored.

    Attributes
    ----------
    name : str
        "first", "last", "special", "span" or "roles".
    count : int
        For "last": as many pieces.
    roles : tuple of str
        For "roles": those of :data:`ROLES` that are chosen.

    Examples
    --------
    >>> str(Positions.parse("roles:user,assistant")), str(Positions.parse("answer")), Positions.parse("all")
    ('roles:assistant,user', 'span', None)
    """

    name: str
    count: int = 1
    roles: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> Positions | None:
        """The positions as written on a command line; None for all. Raises UsageError if they are no positions."""
        if text is None or text.strip() == "all":
            return None
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if name not in NAMES or (colon and name not in ("last", "roles")):
            raise UsageError(f"positions is {text!r}; {EXPECTED}.")
        if name == "roles":
            return cls(name, roles=_roles(rest))
        if colon and not (rest.strip().isdecimal() and int(rest)):
            raise UsageError(f"positions is {text!r}; expected last:N with N of 1 or more, such as last:5.")
        return cls("span" if name == "answer" else name, int(rest or 1))

    def __str__(self) -> str:
        if self.name == "roles":
            return f"roles:{','.join(self.roles)}"
        return self.name if self.count == 1 else f"{self.name}:{self.count}"


def _roles(text: str) -> tuple[str, ...]:
    roles = {role.strip() for role in text.split(",")} - {""}
    if unknown := sorted(roles - set(ROLES)):
        raise UsageError(f"there is no role {unknown[0]!r}; {did_you_mean(unknown[0], ROLES, most=3)}")
    if not roles:
        raise UsageError(f"positions names no role; expected roles:ROLE,ROLE with {', '.join(ROLES)}.")
    return tuple(sorted(roles))


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the characters of a sequence.

    Attributes
    ----------
    parts : tuple of (int, int, int)
        For a conversation: start, end and role (its number) of the characters that are not the template's.
    spans : tuple of Span
        The spans that are asked for: characters, or words.
    words : bool
        Whether they count words.
    chat : bool
        Whether it is a conversation.
    draw : str
        What seeds the pieces that a model draws to continue it; different for texts that are not to be shared.
    """

    parts: tuple[tuple[int, int, int], ...] = ()
    spans: tuple[Span, ...] = ()
    words: bool = False
    chat: bool = False
    draw: str = ""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a cache stores of each of t pieces.

    Attributes
    ----------
    role : np.ndarray
        uint8 (t,), the number of its role.
    position : np.ndarray
        int32 (t,), its number in its sequence, from 0.
    chosen : np.ndarray, optional
        Bool (t,), whether it is pooled and stored; None if all are.
    """

    role: np.ndarray
    position: np.ndarray
    chosen: np.ndarray | None = None

    def at(self, rows: np.ndarray) -> Marks:
        """Those of some pieces."""
        return Marks(self.role[rows], self.position[rows], None if self.chosen is None else self.chosen[rows])


def mark(
    tokens: Tokens,
    known: Sequence[Known],
    positions: Positions | None,
    *,
    joint: bool = False,
    prompt: np.ndarray | None = None,
) -> Marks:
    """The role and position of each piece, and whether it is chosen.

    Parameters
    ----------
    tokens : Tokens
        The pieces of s sequences.
    known : sequence of Known
        What is known of each, s.
    positions : Positions, optional
        The pieces to choose; None for all.
    joint : bool
        Whether a sequence holds two texts.
    prompt : np.ndarray, optional
        int64 (s,), the pieces of each that the model did not write; None for all.

    Returns
    -------
    Marks
        A span of which the model did not read all, because the text was truncated, chooses no piece.
    """
    stop = np.cumsum(tokens.length)
    start = stop - tokens.length
    position = (np.arange(len(tokens.token_ids)) - np.repeat(start, tokens.length)).astype(np.int32)
    role = np.where(tokens.special, SPECIAL, TEXT).astype(np.uint8)
    for of, a, b in zip(known, start, stop, strict=True):
        if of.chat:
            role[a:b] = TEMPLATE
        for first, last, number in of.parts:
            role[a:b][_covering(tokens, a, b, first, last)] = number
    prompt = tokens.length if prompt is None else prompt
    end = np.repeat(prompt, tokens.length)
    role[position >= end] = GENERATED
    marks = Marks(role, position)
    if positions is None:
        return marks
    if positions.name == "span":
        chosen = np.zeros(len(role), dtype=bool)
        second = second_pieces(tokens.length, tokens.special, tokens.type_ids, tokens.char_start) if joint else None
        for i, (a, b) in enumerate(zip(start, stop, strict=True)):
            for rows in _spans(tokens, known[i], a, b, second, bool(tokens.truncated[i])):
                chosen[a:b][rows] = True
    elif positions.name == "roles":
        chosen = np.isin(role, [ROLES.index(name) for name in positions.roles])
    elif positions.name == "special":
        chosen = tokens.special.astype(bool)
    elif positions.name == "first":
        chosen = position == 0
    else:  # of the prompt, not of what the model wrote
        chosen = (position < end) & (position >= end - positions.count)
    return replace(marks, chosen=chosen)


def _covering(tokens: Tokens, a: int, b: int, first: int, last: int) -> np.ndarray:
    """Bool (b - a,), the pieces from ``a`` up to ``b`` that cover characters from ``first`` up to ``last``."""
    covers: np.ndarray = (tokens.char_end[a:b] > first) & (tokens.char_start[a:b] < last)
    return covers


def _spans(tokens: Tokens, known: Known, a: int, b: int, second: np.ndarray | None, cut: bool) -> Iterator[np.ndarray]:
    """The pieces of each span of a sequence, bool (b - a,); none of a span that was not read to its end."""
    content = tokens.word_index[a:b] >= 0
    for span in known.spans:
        of_text = content if second is None else content & (second[a:b] == span.second)
        if known.words:
            ends, covers = tokens.word_index[a:b] + 1, (tokens.word_index[a:b] >= span.start)
            covers = covers & (ends <= span.end) & of_text
        else:
            ends, covers = tokens.char_end[a:b], _covering(tokens, a, b, span.start, span.end) & of_text
        if not cut or ends[of_text].max(initial=0) >= span.end:
            yield covers
