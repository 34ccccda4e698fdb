"""Texts as a pass without a file reads them: their pieces, those that are chosen, and the rows that they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probekit.activations.label_sets import target_arrays
from probekit.activations.pooling import TokenLevel
from probekit.activations.positions import Marks, Positions, mark
from probekit.activations.ragged import second_pieces
from probekit.activations.targets import TokenRows, span_rows
from probekit.activations.writing.chosen import check_chosen, check_positions
from probekit.activations.writing.input import distinct, read_examples, without_pieces
from probekit.activations.writing.pieces import columns
from probekit.errors import UsageError
from probekit.models.chat import ChatTemplate
from probekit.models.encoder import Encoder, Tokens
from probekit.sites import Site
from probekit.tasks.targets import targets_of
from probekit.tasks.task import Example, Task


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of texts.

    Attributes
    ----------
    task : Task
        The task; its examples are read elsewhere.
    pooling : str or None
        The pooling, for labels of texts.
    level : str or None
        The unit of rows, for labels of words and spans; see :class:`~probekit.activations.pooling.TokenLevel`.
    pairs : str or None
        "joint" or "separate" for pairs of sentences.
    sites : tuple of (Site, int)
        The sites and their widths, in the order of the model.
    positions : Positions, optional
        The pieces that are pooled; None for all.
    template : ChatTemplate, optional
        For conversations.
    spans : int
        For labels of spans, whose level is CHOSEN: the spans of a target.
    leave_out : bool
        Whether examples without a piece at the positions have no row; otherwise they are an error.
    """

    task: Task
    pooling: str | None
    level: str | None
    pairs: str | None
    sites: tuple[tuple[Site, int], ...]
    positions: Positions | None = None
    template: ChatTemplate | None = None
    spans: int = 1
    leave_out: bool = False

    @property
    def sentences(self) -> int:
        """Sequences of an example."""
        return 2 if self.pairs == "separate" else 1


@dataclass(frozen=True, eq=False, slots=True)
class Texts:
    """The s distinct texts of n examples.

    Attributes
    ----------
    tokens, marks : Tokens, Marks
        Their pieces, and which of them are chosen; None for all.
    of_slot : np.ndarray
        int64 (slots,), the text in each slot.
    cut, without : np.ndarray
        Bool (n,), whether an example was truncated; whether it has no chosen piece.
    left_out : Counter[str]
        The number of conversations in which the chat template leaves out texts of a role.
    """

    tokens: Tokens
    marks: Marks | None
    of_slot: np.ndarray
    cut: np.ndarray
    without: np.ndarray
    left_out: Counter[str]


def texts_read(encoder: Encoder, examples: Sequence[Example], reading: Reading) -> Texts:
    """The texts of some examples.

    Raises
    ------
    UsageError
        If an example has no piece at the positions and is not to be left out, or is another kind of text than others.
    """
    positions, task = reading.positions, reading.task
    texts, known, left_out = read_examples(examples, task, reading.pairs, reading.template, asked=positions is not None)
    texts, known, of_slot = distinct(texts, known)
    tokens, marks = encoder.tokenize(texts), None
    cut, without = tokens.truncated[of_slot].reshape(len(examples), -1).any(1), np.zeros(len(examples), dtype=bool)
    if positions is not None and known is not None:
        marks = mark(tokens, known, positions, joint=reading.pairs == "joint")
        if reading.level is None:
            without = without_pieces(tokens, marks)[of_slot].reshape(len(examples), -1).any(1)
            if not reading.leave_out:
                check_positions(positions, task.name, known)
                check_chosen(str(positions), task.name, examples, without, cut, "leave them out with --leave-out")
    return Texts(tokens, marks, of_slot, cut, without, left_out)


def units_read(encoder: Encoder, examples: Sequence[Example], reading: Reading) -> np.ndarray:
    """Bool (units,), which examples, words or targets have a row; the tokenizer tells it, without the model."""
    texts = texts_read(encoder, examples, reading)
    if reading.level is None:
        return ~texts.without
    if reading.level == TokenLevel.CHOSEN:
        return span_places(texts, examples, reading)[2]
    return np.ones(int(columns(texts.tokens, reading.level)[1][texts.of_slot].sum()), dtype=bool)


def span_places(
    texts: Texts, examples: Sequence[Example], reading: Reading
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first and last row of the spans of each target, int64 (m, spans), and whether they were read, bool (m,).

    Rows are the chosen pieces of all slots, in order.

    Raises
    ------
    UsageError
        If a target has another number of spans than is read, or several labels.
    """
    for e in examples:
        for target in targets_of(e, reading.task.kind):
            if len(target.spans) != reading.spans or isinstance(target.label, tuple):
                has = "several labels" if isinstance(target.label, tuple) else f"{len(target.spans)} spans"
                raise UsageError(
                    f"{reading.task.name}: a target of example {e.id!r} has {has}; those of the first texts have one "
                    f"label of {reading.spans}. All splits need the same."
                )
    tokens, marks, n = texts.tokens, texts.marks, len(examples)
    assert marks is not None
    arrays, rows = columns(tokens, reading.level, marks)
    at, count = of_slots(rows, texts.of_slot)
    second = np.zeros(len(marks.position), dtype=bool)
    if reading.pairs == "joint":
        second = second_pieces(tokens.length, tokens.special, tokens.type_ids, tokens.char_start)
    shape = (n,) if reading.sentences == 1 else (n, 2)
    names = "word_index", "char_start", "char_end"
    word, char_start, char_end = (arrays[f"/index/{name}"][at].astype(np.int64) for name in names)
    start, length = (a.reshape(shape) for a in (np.cumsum(count) - count, count))
    held = TokenRows(start, length, word, char_start, char_end, second[marks.chosen][at], texts.cut)
    of = target_arrays(examples, reading.task.kind, np.empty(0))
    if not len(of["example"]):
        none = np.empty((0, reading.spans), dtype=np.int64)
        return none, none, np.empty(0, dtype=bool)
    return span_rows(held, of["example"], of["spans"], of["second"], of["in_words"])


def of_slots(rows: np.ndarray, of_slot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the texts in all slots, in order, int64; and the number of rows of each slot."""
    start, count = (np.cumsum(rows) - rows)[of_slot], rows[of_slot]
    return np.arange(int(count.sum())) + np.repeat(start - (np.cumsum(count) - count), count), count
