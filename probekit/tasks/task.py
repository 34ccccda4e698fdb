"""Tasks as values: frozen, comparable, free of any tokenizer or model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from textwrap import shorten
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
import xxhash

from probekit.display import facts_html
from probekit.errors import UsageError, did_you_mean

Label = int | float | tuple[int, ...] | tuple[float, ...] | None

RESPONSES = ("response",)
"""The label names of a task of responses; an example with the label 0 has one, its ``pair``."""
RESPONSE_METRICS = ("perplexity", "chrf", "distinct-1", "distinct-2")

SEVERAL = "; "
"""Separates the domains of an example that has several."""


def domains_of(domain: str | None) -> tuple[str, ...]:
    """The domains that a text names.

    Examples
    --------
    >>> domains_of("logic; knowledge"), domains_of(None)
    (('logic', 'knowledge'), ())
    """
    return tuple(domain.split(SEVERAL)) if domain else ()


class TaskKind(StrEnum):
    """The prediction target: a class, a number, one class per word, an answer, one of several texts, or a new text.

    SPAN_LABELLING has a class, or several, for each of the :class:`Target` s of an example: spans, or pairs of spans.
    MULTI_LABEL has any number of labels for a text, MULTI_OUTPUT several numbers.
    """

    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    SEQUENCE_LABELLING = "sequence-labelling"
    SPAN_LABELLING = "span-labelling"
    QUESTION_ANSWERING = "question-answering"
    MULTIPLE_CHOICE = "multiple-choice"
    RESPONSE_GENERATION = "response-generation"
    MULTI_LABEL = "multi-label"
    MULTI_OUTPUT = "multi-output"

    @property
    def cacheable(self) -> bool:
        """Whether each example has vectors that a cache can store beside its label."""
        return self not in (TaskKind.QUESTION_ANSWERING, TaskKind.MULTIPLE_CHOICE, TaskKind.RESPONSE_GENERATION)

    @property
    def several(self) -> bool:
        """Whether a text has several labels or numbers, each with a name."""
        return self in (TaskKind.MULTI_LABEL, TaskKind.MULTI_OUTPUT)


def check_one_label(name: str, kind: str) -> None:
    """Raise UsageError if texts of a task have several labels or numbers, which only probes and trainings read."""
    if TaskKind(kind).several:
        what = "numbers" if kind == TaskKind.MULTI_OUTPUT else "labels"
        raise UsageError(
            f"a text of {name} has several {what}, which only probekit probe and probekit train read. To use one of "
            'them, write its column in the task file: label = "COLUMN".'
        )


class Span(NamedTuple):
    """Part of an example: characters, or words if the example has ``words``, from ``start`` up to ``end``.

    Attributes
    ----------
    start, end : int
        The first character (word), from 0, and the one after the last.
    second : bool, default False
        Whether the span is in ``pair``, not in ``text``.
    """

    start: int
    end: int
    second: bool = False


class Target(NamedTuple):
    """One or two spans of an example, and what is to be predicted about them.

    Attributes
    ----------
    spans : tuple[Span, ...]
        A span, or a pair of spans, such as a word and its head; every target of a task has as many.
    label : int | tuple[int, ...] | None
        The index of the class; if several labels can hold at once, the indices of those that do, in order (() if none
        does); None if unlabelled.
    """

    spans: tuple[Span, ...]
    label: int | tuple[int, ...] | None = None


_DIGESTED = ("id", "text", "label", "pair", "words", "domain")
"""The fields that every digest of an example includes, in order."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example: a sentence, a pair of sentences, or a sentence given as words.

    Attributes
    ----------
    id : str
        Unique within its split.
    text : str
        The (first) sentence. For token-labelled examples: the original sentence if the source has it, otherwise the
        words joined by spaces.
    label : Label, optional
        Class index, number, one class index per word (same length as ``words``), the indices of the labels that hold,
        in order, several numbers, or None if unlabelled.
    pair : str, optional
        The second sentence, or None.
    words : tuple[str, ...], optional
        The words of a token-labelled example, or None.
    domain : str, optional
        Where the text comes from (MNLI genre, treebank section), or None. Several are separated by "; ".
    group : str, optional
        The unit it shares with other examples so that they are not independent (premise, document, template), or None.
        Examples of one group are shuffled, held out and resampled together.
    before, after : tuple[str, ...], default ()
        Context words around ``words`` that an encoder reads too; :func:`probekit.tasks.context.in_context` adds them.
    spans : tuple[Span, ...], default ()
        What the label is about: the word in each of two sentences, or the right answers to the question ``text`` in the
        context ``pair``. The label of a question is the index of "answer" or "no answer" in the task's label names.
    choices : tuple[str, ...], default ()
        The texts to choose from; the label is the index of the right one.
    targets : tuple[Target, ...], default ()
        The spans and pairs of spans to classify, of a span-labelling task.
    chat : str, default ""
        A conversation, which ``text`` shows (see :mod:`probekit.tasks.chat`): caches read it through the model's chat
        template.
    """

    id: str
    text: str
    label: Label = None
    pair: str | None = None
    words: tuple[str, ...] | None = None
    domain: str | None = None
    group: str | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    choices: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    chat: str = ""

    @property
    def answers(self) -> tuple[str, ...]:
        """The texts of the spans."""
        return tuple(((self.pair or "") if span.second else self.text)[span.start : span.end] for span in self.spans)


class Examples(tuple[Example, ...]):
    """Examples in order; the repr shows their number and the first one."""

    __slots__ = ()

    @overload
    def __getitem__(self, i: SupportsIndex, /) -> Example: ...
    @overload
    def __getitem__(self, i: slice, /) -> Examples: ...
    def __getitem__(self, i: SupportsIndex | slice, /) -> Example | Examples:
        return Examples(super().__getitem__(i)) if isinstance(i, slice) else super().__getitem__(i)

    def __repr__(self) -> str:
        return f"<{len(self)} examples{f', the first {shorten(self[0].text, 60)!r}' if self else ''}>"


@dataclass(frozen=True, slots=True)
class Split:
    """The examples of one split, in the order of their source."""

    name: str
    examples: tuple[Example, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "examples", Examples(self.examples))

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def _repr_html_(self) -> str:
        words = [len(e.text.split()) + len((e.pair or "").split()) for e in self]
        labelled = sum(e.label is not None for e in self)
        domains = {e.domain for e in self} - {None}
        first = {f"example {e.id}": " | ".join(filter(None, (e.text, e.pair))) for e in self[:3]}
        facts: dict[str, object] = {
            "examples": f"{len(self):,} {'pairs' if self.paired else 'texts'}, {labelled:,} labelled",
            "words": f"{min(words)} to {max(words)}, median {np.median(words):g}" if words else "",
            "domains": f"{len(domains)}: {', '.join(sorted(map(str, domains)))}" if domains else "",
        }
        return facts_html(f"Split {self.name}", facts | first)

    @overload
    def __getitem__(self, i: int) -> Example: ...
    @overload
    def __getitem__(self, i: slice) -> Examples: ...
    def __getitem__(self, i: int | slice) -> Example | Examples:
        return self.examples[i]  # type: ignore[return-value]  # a slice of Examples is Examples

    @property
    def paired(self) -> bool:
        """Whether the examples are pairs of sentences."""
        return bool(self.examples) and self.examples[0].pair is not None

    def digest(self) -> str:
        """xxh3 digest (32 hex digits) of everything in the split: ids, texts, words, labels, domains, order.

        Caches store it. A field added to examples in a later version enters the digest only where it is set, so the
        digests of data without it do not change.
        """
        state = xxhash.xxh3_128()
        later_fields = [f for f in (fields(self.examples[0]) if self.examples else ()) if f.name not in _DIGESTED]
        for e in self.examples:
            state_fields: tuple[Any, ...] = tuple(getattr(e, name) for name in _DIGESTED)
            state_fields += tuple((f.name, value) for f in later_fields if (value := getattr(e, f.name)) != f.default)
            state.update(repr(state_fields).encode("utf-8", "surrogatepass"))
            state.update(b"\n")
        return state.hexdigest()

    def sample(self, limit: int | None, seed: int = 0) -> Split:
        """At most ``limit`` examples (None: all), drawn at random with this seed, in their original order.

        Examples whose ids are their group and a name ("17:good" and "17:bad" of the group "17", the sentences of a
        minimal pair) are parts of one thing: if all are, in groups of one size above 1, whole groups are drawn.

        Raises
        ------
        UsageError
            If not even one such group fits.
        """
        if limit is None or limit >= len(self):
            return self
        rng = np.random.default_rng(seed)
        together = self._group_of_each()
        if together is not None:
            size = len(self) // len(groups := np.unique(together))
            if limit < size:
                raise UsageError(f"the limit is {limit}, but {size} examples stay together; give {size} or more.")
            drawn = np.flatnonzero(np.isin(together, rng.permutation(groups)[: limit // size]))
        else:
            drawn = rng.choice(len(self), limit, replace=False)
        return Split(self.name, tuple(self.examples[i] for i in np.sort(drawn)))

    def _group_of_each(self) -> np.ndarray | None:
        """The group of each example, (n,), if all ids begin with theirs and all groups have one size, above 1."""
        if not all(e.group is not None and e.id.startswith(f"{e.group}:") for e in self):
            return None
        _, of, size = np.unique([e.group for e in self], return_inverse=True, return_counts=True)
        return of if size.min() == size.max() > 1 else None


@dataclass(frozen=True)
class Task:
    """A task: splits of examples, and the meaning of their labels.

    Attributes
    ----------
    name : str
        The name used on the command line.
    label_names : tuple[str, ...], default ()
        Names of the classes (or word tags, or several numbers) by index; empty for regression.
    metrics : tuple[str, ...], default ('accuracy',)
        Names of metrics in :mod:`probekit.metrics`; the first is the task's primary metric.
    source, licence : str, default ''
        Origin of the data, and their terms of use.
    """

    name: str
    kind: TaskKind
    splits: Mapping[str, Split]
    label_names: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    source: str = ""
    licence: str = ""
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", MappingProxyType(dict(self.splits)))
        if self.kind not in list(TaskKind):
            raise UsageError(f"kind is {self.kind!r}; {did_you_mean(str(self.kind), list(TaskKind))}")
        object.__setattr__(self, "kind", TaskKind(self.kind))

    def __repr__(self) -> str:
        return f"Task({self.name!r}: {self.kind}, {self._sizes()}{f', {self._classes()}' if self.label_names else ''})"

    def __recipe__(self) -> dict[str, str]:
        """As an argument in a recipe: that it was an object. Its texts belong into no card and no cache."""
        return {"object": "probekit.tasks.task.Task"}

    def _repr_html_(self) -> str:
        summary = {"kind": self.kind, "examples": self._sizes(), "labels": self._classes() if self.label_names else ""}
        details = {"metrics": ", ".join(self.metrics), "source": self.source, "licence": self.licence}
        return facts_html(f"Task {self.name}", summary | details | {"notes": " ".join(self.notes)})

    def _sizes(self) -> str:
        return " + ".join(f"{len(split)} {name}" for name, split in self.splits.items()) or "no examples"

    def _classes(self) -> str:
        names = [*self.label_names[:6], *(["…"] if len(self.label_names) > 6 else [])]
        return f"{len(self.label_names)} classes: {', '.join(names)}"

    def split(self, name: str) -> Split:
        """The split called ``name``; raises UsageError that lists the splits if there is none."""
        if name not in self.splits:
            raise UsageError(f"{self.name} has no split {name!r}; it has {', '.join(self.splits)}.")
        return self.splits[name]

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains of the texts, sorted; empty if the data do not name them."""
        found = {e.domain for split in self.splits.values() for e in split}
        return tuple(sorted({name for domain in found for name in domains_of(domain)}))

    def of_domain(self, domain: str) -> Task:
        """The examples from one domain, as a separate task called "TASK:DOMAIN"; splits without any are left out.

        Raises
        ------
        UsageError
            If the domain is unknown; the message lists the domains.
        """
        if domain not in self.domains:
            known = f"it has {', '.join(self.domains)}" if self.domains else "its examples have no domains"
            raise UsageError(f"{self.name} has no domain {domain!r}; {known}.")
        parts = {
            name: Split(name, tuple(e for e in s if domain in domains_of(e.domain))) for name, s in self.splits.items()
        }
        return replace(self, name=f"{self.name}:{domain}", splits={n: s for n, s in parts.items() if len(s)})

    def labels(self, split: str) -> np.ndarray:
        """Labels of a split, shape (n,): int64 with -1 for unlabelled, or float64 with NaN.

        For a sequence-labelling task: one int64 per word, the sentences concatenated. For a span-labelling task: one
        int64 per target, or, if several labels can hold at once, bool (targets, label names). For a multi-label task
        int8 (n, label names), 1 if the label holds, -1 for unlabelled; for several numbers float64 (n, label names).
        """
        examples: Sequence[Example] = self.split(split).examples
        if self.kind is TaskKind.REGRESSION:
            return np.array([np.nan if e.label is None else e.label for e in examples], dtype=np.float64)
        if self.kind is TaskKind.SEQUENCE_LABELLING:
            tags = [e.label if isinstance(e.label, tuple) else (-1,) * len(e.words or ()) for e in examples]
            return np.array([t for sentence in tags for t in sentence], dtype=np.int64)
        if self.kind.several:
            return self._several([e.label for e in examples])
        if self.kind is TaskKind.SPAN_LABELLING:
            return self._target_labels([t.label for e in examples for t in e.targets])
        return np.array([-1 if e.label is None else e.label for e in examples], dtype=np.int64)

    def _several(self, labels: Sequence[Label]) -> np.ndarray:
        numbers, names = self.kind is TaskKind.MULTI_OUTPUT, len(self.label_names)
        out = np.full((len(labels), names), np.nan) if numbers else np.full((len(labels), names), -1, dtype=np.int8)
        for row, label in zip(out, labels, strict=True):
            if isinstance(label, tuple) and numbers:
                row[:] = label
            elif isinstance(label, tuple):
                row[:] = 0
                row[np.array(label, dtype=np.int64)] = 1
        return out

    @property
    def several_labels(self) -> bool:
        """Whether several labels of a span, or none, can hold at once."""
        found = (t.label for split in self.splits.values() for e in split for t in e.targets)
        return isinstance(next((label for label in found if label is not None), None), tuple)

    def _target_labels(self, labels: Sequence[int | tuple[int, ...] | None]) -> np.ndarray:
        if not self.several_labels:
            return np.array([-1 if label is None else label for label in labels], dtype=np.int64)
        holds = np.zeros((len(labels), len(self.label_names)), dtype=bool)
        for i, label in enumerate(labels):
            holds[i, list(label if isinstance(label, tuple) else ())] = True
        return holds
