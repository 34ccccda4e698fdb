"""The pieces of a job that are pooled and stored, by the roles and spans that its data give."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from probekit.activations.positions import ROLES, Known, Positions
from probekit.activations.writing.request import Request
from probekit.errors import UsageError
from probekit.models.chat import Chat
from probekit.models.encoder import Rendered, Text
from probekit.runtime import Progress
from probekit.tasks.chat import ROLES as SPEAKERS
from probekit.tasks.chat import contents, conversation
from probekit.tasks.targets import reads_words, targets_of
from probekit.tasks.task import Example, Span, Split, TaskKind

__all__ = ["check_chosen", "check_positions", "known_spans", "read_chats"]

log = logging.getLogger(__name__)
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


def read_chats(request: Request, *, progress: Progress) -> tuple[list[Text], list[Known] | None]:
    """The conversations as the model's chat template renders them, with the roles and spans of their characters.

    Raises
    ------
    UsageError
        If the template does not render one.
    """
    assert request.template is not None
    texts, known, total = list[Text](), list[Known](), len(request.part)
    left_out = Counter[str]()
    for i, e in enumerate(request.part):
        if i % 256 == 0:
            progress("rendering", i, total)
        if not e.chat:
            raise UsageError(
                f"{request.task.name}: example {e.id!r} is no conversation, as others are; cache it apart."
            )
        try:
            chat = request.template.read(*conversation(e.chat), SPEAKERS)
        except UsageError as error:
            raise UsageError(f"{request.task.name}, example {e.id!r}: {error}") from error
        parts = tuple((part.start, part.end, ROLES.index(part.role)) for part in chat.parts)
        known.append(Known(parts, tuple(_placed(e, chat)), chat=True))
        texts.append(Rendered(chat.text))
        left_out.update(set(chat.left_out))
    progress("rendering", total, total)
    if left_out:
        listed = ", ".join(f"{role} of {count:,}" for role, count in sorted(left_out.items()))
        log.warning("The chat template leaves out texts of %s of %s conversations.", listed, f"{total:,}")
    return texts, known


def _placed(e: Example, chat: Chat) -> Iterator[Span]:
    """The spans of a conversation's transcript in the rendered text; not those that the template leaves out."""
    for span in e.spans:
        for message, (a, b) in enumerate(contents(e.chat)):
            if a <= span.start < span.end <= b and (at := chat.place(message, span.start - a, span.end - a)):
                yield Span(*at)


def check_positions(request: Request, known: Sequence[Known]) -> None:
    """Raise UsageError if the data lack what the positions name: spans, or roles of conversations."""
    positions, task = Positions.parse(request.want.get("positions")), request.task.name
    if positions is None:
        return
    if positions.name == "span" and not any(of.spans for of in known):
        raise UsageError(
            f"{task} has no spans, which --positions span needs: its labels are of whole texts. A task file can name "
            'a column of them (span = "COLUMN", or type = "span-labelling").'
        )
    if positions.name == "roles" and CHAT & set(positions.roles) and not any(of.chat for of in known):
        raise UsageError(
            f"{task} has no roles, which --positions {positions} needs: its examples are texts, not conversations."
        )


def check_chosen(request: Request, none: np.ndarray, cut: np.ndarray) -> None:
    """Raise UsageError if an example has no such piece and NaN is not allowed.

    Parameters
    ----------
    none, cut : np.ndarray
        Bool (slots,), whether a text has no piece at the positions; bool (n,), whether an example was truncated.
    """
    without = none.reshape(len(cut), -1).any(1)
    if without.any() and not request.options.allow_nonfinite:
        first = int(np.argmax(without))
        raise UsageError(
            f"{int(without.sum()):,} of {len(cut):,} examples of {request.task.name} have no piece at --positions "
            f"{request.want['positions']}; the first is {request.part[first].id!r}."
            f"{' Its text is truncated.' if cut[first] else ''} Choose other positions, remove these examples, or "
            "store NaN for them with --allow-nonfinite."
        )
