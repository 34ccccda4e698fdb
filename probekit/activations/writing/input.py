"""What the model reads: the texts of a job, what is known of them, and their pieces, some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probekit.activations.positions import Known, Marks, Positions, mark
from probekit.activations.writing.chosen import known_spans, read_chats, tell_left_out
from probekit.activations.writing.pieces import Pieces, columns, permuted
from probekit.activations.writing.plan import Plan, unique_texts
from probekit.activations.writing.request import Request
from probekit.activations.writing.written import Written
from probekit.errors import UsageError
from probekit.models.chat import ChatTemplate
from probekit.models.encoder import Encoder, Text, Tokens
from probekit.notes import logger
from probekit.runtime import Progress, no_progress
from probekit.tasks.targets import reads_words
from probekit.tasks.task import Example, Split, Task, TaskKind

log = logger(__name__, by_input=True)
TEXTS, CHARACTERS = 4096, 1 << 20
"""The largest number of texts, and about that of characters, that are tokenised at a time."""


@dataclass(frozen=True, slots=True)
class Input:
    """What the model reads: s distinct texts in the order of their first occurrence.

    Attributes
    ----------
    want : Mapping[str, Any]
        The part of the spec that determines the numbers.
    texts, pieces
        The texts and their pieces.
    known : sequence of Known, optional
        What is known of each text, if roles or positions are stored.
    written : Written, optional
        What the model wrote to continue them.
    """

    want: Mapping[str, Any]
    texts: Sequence[Text]
    pieces: Pieces
    known: Sequence[Known] | None
    written: Written | None

    @property
    def length(self) -> np.ndarray:
        """int64 (s,), pieces of each text, and of what the model wrote after it and read."""
        return self.pieces.length if self.written is None else self.pieces.length + self.written.more

    def read(self, first: int, last: int) -> tuple[Tokens, Marks | None]:
        """The pieces of the texts ``first`` … ``last - 1``, and their marks."""
        tokens, prompt = self.pieces.tokens(first, last), None
        if self.written is not None:
            tokens, prompt = self.written.after(tokens, first), self.written.prompt[first:last]
        if self.known is None:
            return tokens, None
        positions, joint = Positions.parse(self.want.get("positions")), self.want["pairs"] == "joint"
        return tokens, mark(tokens, self.known[first:last], positions, joint=joint, prompt=prompt)

    def columns(self) -> dict[str, np.dtype]:
        """The datasets that :meth:`blocks` gives, and their dtypes."""
        tokens, marks = self.read(0, 0)
        return {name: a.dtype for name, a in columns(tokens, self.want["tokens"], marks)[0].items()}

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each text: int64 (s,), its rows of ``/tokens``; bool (s,), whether it has no piece to pool."""
        rows, none = np.zeros(len(self.texts), dtype=np.int64), np.zeros(len(self.texts), dtype=bool)
        for first, last in self.pieces.parts():
            tokens, marks = self.read(first, last)
            none[first:last] = without_pieces(tokens, marks)
            rows[first:last] = columns(tokens, self.want["tokens"], marks)[1]
        return rows, none

    def blocks(self, plan: Plan) -> Iterator[dict[str, np.ndarray]]:
        """What the cache stores of the pieces of each block, in the order in which they run."""
        for b in plan.blocks:
            tokens, marks = self.read(b.first, b.last)
            tokens, at = permuted(tokens, plan.order[b.first : b.last] - b.first)
            yield columns(tokens, self.want["tokens"], None if marks is None else marks.at(at))[0]


def without_pieces(tokens: Tokens, marks: Marks | None) -> np.ndarray:
    """Bool (s,), which texts have no piece to pool."""
    pooled = tokens.special == 0 if marks is None or marks.chosen is None else marks.chosen
    before, stop = np.append(0, np.cumsum(pooled)), np.cumsum(tokens.length)
    return np.asarray(before[stop] == before[stop - tokens.length])


def tokenised(encoder: Encoder, texts: Sequence[Text], progress: Progress) -> Iterator[Tokens]:
    """The pieces of texts, some texts at a time.

    At the end, it warns of texts that begin with the piece that the tokenizer puts before each, as a chat template's
    <s>.
    """
    doubled = start = 0
    while start < len(texts):
        progress("tokenising", start, len(texts))
        stop, size = start, 0
        while stop < min(start + TEXTS, len(texts)) and size < CHARACTERS:
            size += _characters(texts[stop])
            stop += 1
        tokens = encoder.tokenize(texts[start:stop])
        first = (np.cumsum(tokens.length) - tokens.length)[tokens.length > 1]
        ids, added = tokens.token_ids, tokens.special
        doubled += int(np.count_nonzero(added[first] & ~added[first + 1] & (ids[first] == ids[first + 1])))
        yield tokens
        start = stop
    progress("tokenising", len(texts), len(texts))
    if doubled:
        log.warning(
            "%s of %s texts begin with the special token that the tokenizer adds itself, so the model reads it twice. "
            "Remove it from the texts (chat templates write it).",
            f"{doubled:,}",
            f"{len(texts):,}",
        )


def _characters(text: Any) -> int:
    """The length of a text, of a pair, or of words."""
    return len(text) if isinstance(text, str) else sum(map(_characters, text))


def read_texts(request: Request, progress: Progress) -> tuple[list[Text], list[Known] | None, np.ndarray]:
    """The distinct texts, what is known of each, if that is asked for, and int64 (slots,), the text in each slot.

    A stateful encoder reads each text, also one that it has read before.
    """
    texts, known = _read(request, progress)
    if request.stateful:
        return texts, known, np.arange(len(texts))
    return distinct(texts, known)


def _read(request: Request, progress: Progress) -> tuple[list[Text], list[Known] | None]:
    """The encoder's input, one or two texts per row, and what is known of each, if that is asked for."""
    want, part = request.want, request.part
    texts, known, left_out = read_examples(
        part, request.task, want["pairs"], request.template,
        asked="positions" in want or "generate" in want, progress=progress,
    )  # fmt: skip
    tell_left_out(left_out, len(part))
    if known is None and not want.get("tokens") and any(e.spans for e in part):
        log.warning(
            "%s marks words in its texts, but these vectors are of whole texts. For the vectors of the words: "
            "--positions span --tokens, then probe --span mean.",
            request.task.name,
        )
    if known is not None and "temperature" in want.get("generate", ""):  # equal texts are continued in different ways
        known = [replace(of, draw=e.id) for of, e in zip(known, part, strict=True)]
    return texts, known


def read_examples(
    examples: Sequence[Example], task: Task, pairs: str | None, template: ChatTemplate | None, *, asked: bool,
    progress: Progress = no_progress,
) -> tuple[list[Text], list[Known] | None, Counter[str]]:  # fmt: skip
    """The encoder's input, one or two texts per example; what is known of each; and what a chat template leaves out.

    Of plain texts, it is known only if that is ``asked`` for.
    """
    if template is not None:
        return read_chats(examples, template, task.name, progress=progress)
    texts = texts_of(examples, task.kind, pairs)
    return texts, known_spans(examples, task.kind, pairs) if asked else None, Counter()


def as_read(request: Request, known: Sequence[Known] | None, text_of_slot: np.ndarray) -> Split:
    """The examples, with the spans of conversations in characters of the rendered text."""
    if request.template is None or known is None:
        return request.part
    placed = [replace(e, spans=known[k].spans) for e, k in zip(request.part, text_of_slot.tolist(), strict=True)]
    return Split(request.part.name, tuple(placed))


def texts_of(examples: Iterable[Example], kind: TaskKind, pairs: str | None) -> list[Text]:
    """The encoder's input, one or two texts per row."""

    def of(e: Example) -> tuple[Text, ...]:
        if e.chat:
            raise UsageError(f"example {e.id!r} is a conversation, and the first one is none; read it apart.")
        if reads_words(e, kind):
            words = tuple(e.words or ())
            return ((e.before, words, e.after) if e.before or e.after else (words,),)
        if e.pair is None:
            return (e.text,)
        return (e.text, e.pair) if pairs == "separate" else ((e.text, e.pair),)

    return [text for e in examples for text in of(e)]


def distinct(texts: list[Text], known: list[Known] | None) -> tuple[list[Text], list[Known] | None, np.ndarray]:
    """The distinct texts, with what is known of them, and int64 (n,) the index of each text among them."""
    if known is None:
        texts, text_of_slot = unique_texts(texts)
        return texts, None, text_of_slot
    both, text_of_slot = unique_texts([*zip(texts, known, strict=True)])
    return [text for text, _ in both], [of for _, of in both], text_of_slot
