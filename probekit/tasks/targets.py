"""Spans and pairs of spans to classify: what is wrong with them, and those of any task."""

from __future__ import annotations

from collections.abc import Iterator

from probekit.tasks.task import Example, Span, Target, Task, TaskKind


def reads_words(e: Example, kind: TaskKind) -> bool:
    """Whether an encoder reads the words of an example, not its text."""
    return kind is TaskKind.SEQUENCE_LABELLING or (kind is TaskKind.SPAN_LABELLING and e.words is not None)


def targets_of(e: Example, kind: TaskKind) -> tuple[Target, ...]:
    """The targets of an example: its own, each of its labelled words, or the spans that its label is about.

    Examples
    --------
    >>> targets_of(Example("0", "a b", (2, -1), words=("a", "b")), TaskKind.SEQUENCE_LABELLING)
    (Target(spans=(Span(start=0, end=1, second=False),), label=2),)
    """
    if kind is TaskKind.SPAN_LABELLING:
        return e.targets
    if kind is TaskKind.SEQUENCE_LABELLING:
        labels = e.label if isinstance(e.label, tuple) else ()
        return tuple(Target((Span(i, i + 1),), int(label)) for i, label in enumerate(labels) if label >= 0)
    return (Target(e.spans, e.label),) if e.spans and isinstance(e.label, int) else ()


def about_spans(task: Task) -> bool:
    """Whether labels are about spans: in a task of spans, or where each example marks two, as a word in two contexts.

    Examples
    --------
    >>> from probekit.tasks.task import Split
    >>> marked = Example("0", "a plan", 1, pair="We plan.", spans=(Span(2, 6), Span(3, 7, second=True)))
    >>> about_spans(Task("wic", TaskKind.CLASSIFICATION, {"dev": Split("dev", (marked,))}))
    True
    """
    examples = [e for split in task.splits.values() for e in split]
    return task.kind is TaskKind.SPAN_LABELLING or (bool(examples) and all(len(e.spans) == 2 for e in examples))


def bio_targets(tags: tuple[str, ...], index: dict[str, int]) -> Iterator[Target]:
    """The spans of IOB2 tags, such as B-NP I-NP O; an I- without its B- begins a span.

    Examples
    --------
    >>> [(t.spans[0][:2], t.label) for t in bio_targets(("B-NP", "I-NP", "O", "B-VP"), {"NP": 0, "VP": 1})]
    [((0, 2), 0), ((3, 4), 1)]
    """
    start, now = 0, ""
    for i, tag in enumerate((*tags, "O")):
        begins, kind = tag[:1], tag[2:]
        if now and (begins != "I" or kind != now):
            yield Target((Span(start, i),), index[now])
            now = ""
        if begins == "B" or (begins == "I" and not now):
            start, now = i, kind


def problem(e: Example) -> str:
    """What is wrong with the targets of an example; "" if nothing is.

    Examples
    --------
    >>> problem(Example("0", "a b", words=("a", "b"), targets=(Target((Span(1, 3),), 0),)))
    'a span covers words 1 to 3, but the sentence has 2 words'
    """
    unit = "characters" if e.words is None else "words"
    for target in e.targets:
        for span in target.spans:
            size = len((e.pair or "") if span.second else e.text) if e.words is None else len(e.words)
            if not 0 <= span.start < span.end:
                return f"a span covers {unit} {span.start} to {span.end}; it must cover at least one, from 0 on"
            if span.end > size:
                return f"a span covers {unit} {span.start} to {span.end}, but the sentence has {size} {unit}"
    return ""
