"""The pieces of a job that are pooled and stored, by the roles and spans that its data give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from probekit.activations.positions import ROLES, Known, Positions
from probekit.errors import UsageError
from probekit.models.chat import Chat, ChatTemplate
from probekit.models.encoder import Rendered, Text
from probekit.notes import logger
from probekit.runtime import Progress, no_progress
from probekit.tasks.chat import ROLES as SPEAKERS
from probekit.tasks.chat import contents, conversation
from probekit.tasks.targets import reads_words, targets_of
from probekit.tasks.task import Example, Span, TaskKind

log = logger(__name__, by_input=True)
CHAT = frozenset(ROLES) - {"text", "special", "generated"}
"""The roles that only conversations have."""


def known_spans(examples: Iterable[Example], kind: TaskKind, pairs: str | None) -> list[Known]:
    """The spans of each sequence; one sequence an example, or two for pairs that are read separately."""
    return [of for e in examples for of in _known(e, kind, pairs)]


def _known(e: Example, kind: TaskKind, pairs: str | None) -> Iterator[Known]:
    spans = tuple(dict.fromkeys([*e.spans, *(span for target in targets_of(e, kind) for span in target.spans)]))
    words = e.words is not None and reads_words(e, kind)
    if pairs != "separate":
        yield Known(spans=spans, words=words)
        return
    for second in (False, True):
        yield Known(spans=tuple(Span(*span[:2]) for span in spans if span.second == second))


def read_chats(
    examples: Sequence[Example], template: ChatTemplate, task: str, *, progress: Progress = no_progress
) -> tuple[list[Text], list[Known], Counter[str]]:
    """The conversations as the model's chat template renders them, with the roles and spans of their characters.

    Returns
    -------
    tuple[list[Text], list[Known], Counter[str]]
        The texts, what is known of each, and in how many of them the template leaves out texts of a role.

    Raises
    ------
    UsageError
        If the template does not render one; the message names the task and the example.
    """
    texts, known, total = list[Text](), list[Known](), len(examples)
    left_out = Counter[str]()
    for i, e in enumerate(examples):
        if i % 256 == 0:
            progress("rendering", i, total)
        if not e.chat:
            raise UsageError(f"{task}: example {e.id!r} is no conversation, as others are; read it apart.")
        try:
            chat = template.read(*conversation(e.chat), SPEAKERS)
        except UsageError as error:
            raise UsageError(f"{task}, example {e.id!r}: {error}") from error
        parts = tuple((part.start, part.end, ROLES.index(part.role)) for part in chat.parts)
        known.append(Known(parts, tuple(_placed(e, chat)), chat=True))
        texts.append(Rendered(chat.text))
        left_out.update(set(chat.left_out))
    progress("rendering", total, total)
    return texts, known, left_out


def tell_left_out(left_out: Mapping[str, int], total: int) -> None:
    """Warn of texts that the chat template leaves out, by role, in ``total`` conversations."""
    if left_out:
        listed = ", ".join(f"{role} of {count:,}" for role, count in sorted(left_out.items()))
        log.warning("The chat template leaves out texts of %s of %s conversations.", listed, f"{total:,}")


def _placed(e: Example, chat: Chat) -> Iterator[Span]:
    """The spans of a conversation's transcript in the rendered text; not those that the template leaves out."""
    for span in e.spans:
        for message, (a, b) in enumerate(contents(e.chat)):
            if a <= span.start < span.end <= b and (at := chat.place(message, span.start - a, span.end - a)):
                yield Span(*at)


def check_positions(positions: Positions | None, task: str, known: Sequence[Known]) -> None:
    """Raise UsageError if the data of a task lack what the positions name: spans, or roles of conversations."""
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


def check_chosen(
    positions: str, task: str, examples: Sequence[Example], without: np.ndarray, cut: np.ndarray, otherwise: str
) -> None:
    """Raise UsageError if an example has no piece at the positions.

    Parameters
    ----------
    without, cut : np.ndarray
        Bool (n,), whether an example has no such piece; whether it was truncated.
    otherwise : str
        What to do besides choosing other positions and removing examples.
    """
    if without.any():
        first = int(np.argmax(without))
        raise UsageError(
            f"{int(without.sum()):,} of {len(cut):,} examples of {task} have no piece at --positions "
            f"{positions}; the first is {examples[first].id!r}."
            f"{' Its text is truncated.' if cut[first] else ''} Choose other positions, remove these examples, or "
            f"{otherwise}."
        )
