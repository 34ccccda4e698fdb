"""Examples from rows: texts, labels, words and tags, spans, conversations; each wrong cell is told with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from probekit.errors import Faults
from probekit.tasks.chat import as_chat, transcript
from probekit.tasks.chat import problem as chat_problem
from probekit.tasks.datasets.sources import examples, number
from probekit.tasks.files.columns import CHAT_COLUMNS, Rows
from probekit.tasks.files.entities import with_tags
from probekit.tasks.files.marked import place_among, place_of, place_of_part, with_places, wrong_place
from probekit.tasks.files.no_label import class_name, missing, without_label
from probekit.tasks.files.several import labels_of
from probekit.tasks.targets import problem
from probekit.tasks.task import Example, Label, Span, Split, Target, TaskKind

OTHERS = (TaskKind.RESPONSE_GENERATION, TaskKind.SPAN_LABELLING)
"""The tasks whose examples have no label that a column holds."""
EXPECTED = 'expected a list such as [{"span1": [0, 2], "label": "…"}]'


def one_split(split: str, part: Rows, kind: TaskKind, names: Sequence[str]) -> Split:
    """The examples of some rows of a split; raises one DataError that lists all errors."""
    rows = without_label(with_tags({split: part}), names or None, scores=kind is TaskKind.REGRESSION)
    return splits_of(rows, kind, names)[split]


def splits_of(
    rows: Mapping[str, Rows], kind: TaskKind, names: Sequence[str], unit: str | None = None
) -> dict[str, Split]:
    """The examples of each split; raises one DataError that lists the errors of all splits.

    Parameters
    ----------
    names : sequence of str
        Names of the classes by index.
    unit : str, optional
        "words" if targets count the words of texts.
    """
    faults, splits = Faults(), {}
    for split, part in rows.items():
        found = _examples(split, part, kind, names, unit, faults)
        if "targets" in part.columns and not faults.found:
            found = list(_with_targets(part, found, names, faults))
        splits[split] = Split(split, tuple(found))
    faults.check()
    return splits


def _examples(
    split: str, part: Rows, kind: TaskKind, names: Sequence[str], unit: str | None, faults: Faults
) -> list[Example]:
    ids = _ids(part, faults)
    texts, pairs = (_texts(part, role, faults) for role in ("text", "pair"))
    chats = _chats(part, faults) if "messages" in part.columns else None
    texts = texts if chats is None else [transcript(chat) for chat in chats]
    words = [tuple(w) for w in lists(part, "words", faults)] if "words" in part.columns else None
    if words is None and kind is TaskKind.SPAN_LABELLING and unit == "words":
        words = [_words(part, i, text, faults) for i, text in enumerate(texts)]
    labels: list[Label] | None = [0] * len(texts) if kind is TaskKind.RESPONSE_GENERATION else None
    if kind not in OTHERS:
        labels = _labels(part, kind, names, words, faults)
    choices = _choices(part, labels, faults) if kind is TaskKind.MULTIPLE_CHOICE else None
    if faults.found:
        return []
    return examples(
        split,
        texts or [" ".join(w) for w in words or ()],
        labels,
        pair=pairs,
        words=words,
        ids=ids,
        domain=_values(part, "domain"),
        group=_values(part, "groups"),
        spans=_spans(part, texts, pairs, faults) if kind not in OTHERS else None,
        choices=choices,
        chat=chats,
    )


def _texts(part: Rows, role: str, faults: Faults) -> list[str]:
    values = part.columns.get(role, [])
    for i, value in enumerate(values if not all(isinstance(value, str) for value in values) else ()):
        with faults:
            if not isinstance(value, str):
                what = "remove the row, or write a text" if value is None else "put it in quotation marks"
                raise part.error(i, role, f"expected a text, found {value!r}; {what}.")
    return values


def lists(part: Rows, role: str, faults: Faults, *, holes: bool = False) -> list[list[Any]]:
    """A column of lists: words, or (with ``holes``) tags, which may be missing."""
    values, text = part.columns[role], {str}
    for i, value in enumerate(values):
        plain = isinstance(value, list) and value and (holes or text.issuperset(map(type, value)))
        if plain or (holes and value is None):
            continue
        with faults:
            if not isinstance(value, list) or not (holes or all(isinstance(w, str) for w in value)):
                expected = "tags" if holes else "words"
                raise part.error(i, role, f"expected a list of {expected}, found {str(value)[:60]!r}.")
            if not value:
                raise part.error(i, role, "expected words, found an empty list.")
    return [value if isinstance(value, list) else [] for value in values]


def _labels(
    part: Rows, kind: TaskKind, names: Sequence[str], words: Sequence[tuple[str, ...]] | None, faults: Faults
) -> list[Label] | None:
    index = {name: i for i, name in enumerate(names)}
    out: list[Label] = []
    if words is not None:
        if "tags" not in part.columns:
            return None
        for i, tags in enumerate(lists(part, "tags", faults, holes=True)):
            with faults:
                if tags and len(tags) != len(words[i]):
                    raise part.error(i, "tags", f"found {len(tags)} tags for {len(words[i])} words.")
                try:
                    found = tuple([index[tag] for tag in tags])
                except (KeyError, TypeError):  # one is missing, is no text, or is none of them
                    found = tuple(-1 if missing(t) else _index(part, i, "tags", t, index) for t in tags)
                out.append(found or None)
        return out
    if "label" not in part.columns:
        return None
    if kind.several:
        return labels_of(part, kind, names, faults)
    with suppress(KeyError, TypeError):  # mostly, all are names of classes
        return [index[value] for value in part.columns["label"]]
    for i, value in enumerate(part.columns["label"]):
        with faults:
            if missing(value):
                out.append(None)
            elif kind is TaskKind.REGRESSION:
                score = None if isinstance(value, bool) else number(str(value))
                if score is None:
                    raise part.error(i, "label", f"expected a number, found {value!r}.")
                out.append(score)
            else:
                out.append(_index(part, i, "label", value, index))
    return out


def _index(part: Rows, i: int, role: str, value: Any, index: Mapping[str, int]) -> int:
    if isinstance(value, list | dict | bytes):
        raise part.error(i, role, f"expected one label, found {str(value)[:60]!r}.")
    if class_name(value) not in index:
        names = ", ".join(map(repr, index))
        hint = "correct it, or list it in the task file (labels = [...])"
        raise part.error(i, role, f"{class_name(value)!r} is not one of the labels {names}; {hint}.")
    return index[class_name(value)]


def _ids(part: Rows, faults: Faults) -> list[str] | None:
    """The ids as strings; one that occurs twice is a fault that names both lines."""
    if "id" not in part.columns:
        return None
    first: dict[str, int] = {}
    for i, value in enumerate(part.columns["id"]):
        with faults:
            if missing(value):
                raise part.error(i, "id", "expected an id, found an empty cell.")
            if str(value) in first:
                before = part.lines[first[str(value)]]
                raise part.error(
                    i, "id", f"the id {str(value)!r} is already that of line {before}; ids must be unique."
                )
            first[str(value)] = i
    return list(first)


def _values(part: Rows, role: str) -> list[str | None]:
    """A column of names, with None for empty cells."""
    return [None if missing(value) else str(value) for value in part.columns.get(role, ())]


def _words(part: Rows, i: int, text: Any, faults: Faults) -> tuple[str, ...]:
    """The words of a text that spans count; a text without any is a fault."""
    words = tuple(text.split()) if isinstance(text, str) else ("",)  # what is no text is a fault already
    with faults:
        if not words:
            raise part.error(i, "text", "expected a text with words, whose spans have labels; found none.")
    return words


def _spans(part: Rows, texts: Sequence[str], pairs: Sequence[str], faults: Faults) -> list[tuple[Span, ...]] | None:
    """The spans of each row, in its text and then in the second one; () for none, None if the data have none."""
    found: list[tuple[Span, ...]] = [()] * len(part.lines)
    for role, some in (("span", texts), ("pair_span", pairs)):
        given = with_places(part.columns.get(role, ()))
        if f"{role} 1" in part.columns:
            given = [list(ends) for ends in zip(part.columns[f"{role} 1"], part.columns[f"{role} 2"], strict=True)]
        for i, (value, text) in enumerate(zip(given, some, strict=bool(given))):
            with faults:
                place = _span(part, i, role if role in part.columns else f"{role} 1", value, text)
                found[i] += () if place is None else (Span(*place, second=role == "pair_span"),)
    told = {error.line for error in faults.found}
    for i, spans in enumerate(found if any(role.startswith("pair_span") for role in part.columns) else ()):
        with faults:
            if len(spans) == 1 and part.lines[i] not in told:
                raise part.error(i, "span", "one of the two texts has a span, the other has none; give both, or none.")
    return found if any(role.startswith("span") for role in part.columns) else None


def _span(part: Rows, i: int, role: str, given: Any, text: str) -> tuple[int, int] | None:
    """The characters of a span, from a part of the text, or from its first character and the one after its last."""
    if missing(given) or (isinstance(given, list) and all(map(missing, given))):
        return None
    if isinstance(given, str):
        of_word = any(name.startswith("pair_span") for name in part.columns)  # in another form, too
        place = (of_word and place_of(given, text)) or place_of_part(given, text)
        if not place:
            raise part.error(
                i,
                role,
                f"{given[:60]!r} occurs {text.count(given)} times in the text; expected once. "
                "Give [first character, the one after its last] in its place (as a text: 4-9).",
            )
        return place
    place = place_among((given[0], given[1])) if isinstance(given, list) and len(given) == 2 else None
    if place is None:
        expected = "expected a part of the text, or its first character and the one after its last"
        raise part.error(i, role, f"{expected}, such as [4, 7]; found {str(given)[:60]!r}.")
    if wrong := wrong_place(text, *place):
        raise part.error(i, role, wrong)
    return place


def _choices(part: Rows, labels: Sequence[Label] | None, faults: Faults) -> list[tuple[str, ...]]:
    """The texts to choose from, at least two, of which the label is one; empty cells at the end are left out."""
    if "choices" in part.columns:
        rows = lists(part, "choices", faults)
    else:
        columns = [values for role, values in part.columns.items() if role.startswith("choice ")]
        rows = [[v for v in row if not missing(v)] for row in zip(*columns, strict=True)]
    for i, row in enumerate(rows):
        with faults:
            label = labels[i] if labels else None
            if len(row) < 2 or not all(isinstance(text, str) and text for text in row):
                raise part.error(i, "choice", f"expected two or more texts to choose from, found {str(row)[:60]}.")
            if isinstance(label, int) and label >= len(row):
                raise part.error(i, "label", f"the right choice is number {label}, from 0, but there are {len(row)}.")
    return [tuple(row) for row in rows]


def _chats(part: Rows, faults: Faults) -> list[str]:
    """The conversations of a split, as examples store them; each wrong one is a fault at its line."""
    tools, variables = (part.columns.get(name, [None] * len(part.lines)) for name in CHAT_COLUMNS)
    found = []
    for i, messages in enumerate(part.columns["messages"]):
        chat = as_chat([])
        with faults:
            if wrong := chat_problem(messages):
                raise part.error(i, "messages", f"{wrong}.")
            _check(part, i, "tools", tools[i], list, "a list of descriptions")
            _check(part, i, "chat_template_kwargs", variables[i], dict, "an object with variables of the template")
            chat = as_chat(messages, tools[i], variables[i])
        found.append(chat)
    return found


def _check(part: Rows, i: int, name: str, value: Any, kind: type, expected: str) -> None:
    if not isinstance(value, kind | None):
        raise part.error(i, name, f"expected {expected}, found {str(value)[:60]!r}.")


def span_labels(rows: Mapping[str, Rows]) -> tuple[str, ...]:
    """All labels of the targets, sorted."""
    labels = {label for part in rows.values() for targets in part.columns["targets"] for label in _labels_in(targets)}
    return tuple(sorted(labels))


def _labels_in(targets: Any) -> Iterator[str]:
    for target in targets if isinstance(targets, list) else ():
        label = target.get("label") if isinstance(target, dict) else None
        yield from map(str, label if isinstance(label, list) else [] if label is None else [label])


def _with_targets(part: Rows, examples: Sequence[Example], names: Sequence[str], faults: Faults) -> Iterator[Example]:
    """The examples of a split with their targets; each wrong one is a fault at its line."""
    index, shape = {name: i for i, name in enumerate(names)}, None
    for i, (e, given) in enumerate(zip(examples, part.columns["targets"], strict=True)):
        with faults:
            if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
                raise part.error(i, "targets", f"{EXPECTED}, found {str(given)[:60]!r}.")
            targets = tuple(_target(part, i, one, index) for one in given)
            found = replace(e, targets=targets)
            if wrong := problem(found):
                raise part.error(i, "targets", f"{wrong}.")
            for target in targets:
                if target.label is None and shape is not None and shape[1]:
                    raise part.error(i, "targets", "a target has no label; write [] if none of several labels holds.")
                now = len(target.spans), isinstance(target.label, tuple)
                shape = shape or (now if target.label is not None else None)
                if target.label is not None and now != shape:
                    message = "all targets need as many spans, and all either one label or a list of labels; this one "
                    raise part.error(i, "targets", f"{message}differs from the first.")
            yield found


def _target(part: Rows, i: int, given: Mapping[str, Any], index: Mapping[str, int]) -> Target:
    bounds = [given[name] for name in ("span1", "span2") if given.get(name) is not None]
    whole = all(isinstance(b, list) and len(b) == 2 and all(type(n) is int for n in b) for b in bounds)
    if not bounds or not whole:
        raise part.error(i, "targets", f"{EXPECTED}, found {str(given)[:60]!r}.")
    label = given.get("label")
    many = label if isinstance(label, list) else [] if label is None else [label]
    if unknown := [one for one in many if str(one) not in index]:
        raise part.error(i, "targets", f"{unknown[0]!r} is not one of the labels {', '.join(map(repr, index))}.")
    numbers = tuple(sorted(index[str(one)] for one in many))
    of_list = numbers if isinstance(label, list) else None
    return Target(tuple(Span(*b) for b in bounds), of_list if label is None or of_list is not None else numbers[0])
