"""The pieces of a job that are pooled and stored, by the roles and spans that its data give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from probekit.activations.positions import ROLES, Known, Marks, Positions, mark
from probekit.activations.writing.request import Request
from probekit.errors import UsageError
from probekit.models.encoder import Tokens
from probekit.tasks.targets import reads_words, targets_of
from probekit.tasks.task import Example, Span, Split, TaskKind

__all__ = ["known_spans", "marked"]

CHAT = frozenset(ROLES) - {"text", "special", "generated"}
"""The roles that only conversations have."""


def known_spans(part: Split, kind: TaskKind, pairs: str | None) -> list[Known]:
    """The spans of each sequence; one sequence an example, or two for pairs that are read separately."""
    return [of for e in part for of in _known(e, kind, pairs)]


def _known(e: Example, kind: TaskKind, pairs: str | None) -> Iterator[Known]:
    spans = tuple(dict.fromkeys([*e.spans, *(span for target in targets_of(e, kind) for span in target.spans)]))
    words = e.words is not None and reads_words(e, kind)
    if pairs != "separate":
        yield Known(spans=spans, words=words)
        return
    for second in (False, True):
        yield Known(spans=tuple(Span(*span[:2]) for span in spans if span.second == second))


def marked(request: Request, tokens: Tokens, known: Sequence[Known], text_of_slot: np.ndarray) -> Marks:
    """The marks of all pieces.

    Raises
    ------
    UsageError
        If the data lack what the positions name, or if an example has no such piece and NaN is not allowed.
    """
    want, examples = request.want, request.part.examples
    positions = Positions.parse(want.get("positions"))
    if positions is None:
        return mark(tokens, known, None)
    task = request.task.name
    if positions.name == "span" and not any(of.spans for of in known):
        raise UsageError(
            f"{task} has no spans, which --positions span needs: its labels are of whole texts. A task file can name "
            'a column of them (span = "COLUMN", or type = "span-labelling").'
        )
    if positions.name == "roles" and CHAT & set(positions.roles) and not any(of.chat for of in known):
        raise UsageError(
            f"{task} has no roles, which --positions {positions} needs: its examples are texts, not conversations."
        )
    marks = mark(tokens, known, positions, joint=want["pairs"] == "joint")
    assert marks.chosen is not None
    stop = np.cumsum(tokens.length)
    before = np.concatenate([[0], np.cumsum(marks.chosen)])
    none = (before[stop] == before[stop - tokens.length])[text_of_slot].reshape(len(examples), -1).any(1)
    if none.any() and not request.options.allow_nonfinite:
        first = int(np.argmax(none))
        cut = (
            " Its text is truncated." if tokens.truncated[text_of_slot.reshape(len(examples), -1)[first]].any() else ""
        )
        raise UsageError(
            f"{int(none.sum()):,} of {len(none):,} examples of {task} have no piece at --positions {positions}; the "
            f"first is {examples[first].id!r}.{cut} Choose other positions, remove these examples, or store NaN for "
            "them with --allow-nonfinite."
        )
    return marks
