"""Conversations as a model reads them: its own chat template, and the role of every character.

Roles are found by comparing renders: a text inside a message is replaced by a marker, and the two renders show where it
is. No family's markup is known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from probekit.errors import ModelError, UsageError, first_line

MARK = "probekitmark"
DAY = {"%Y-%m-%d": "2024-07-26", "%d": "26", "%b": "Jul", "%B": "July", "%m": "07", "%Y": "2024", "%y": "24"}
DAY |= {"%A": "Friday", "%a": "Fri", "%H": "00", "%M": "00", "%S": "00"}
"""The date that templates are told, so that a render does not depend on the day; Llama 3's templates have this one."""
_REPLACED = "".join(f"|replace({name!r}, {value!r})" for name, value in DAY.items())
NOW = f"{{% macro strftime_now(form) %}}{{{{ form{_REPLACED} }}}}{{% endmacro %}}"
"""Put before a template that asks for the date."""

THINK = re.compile(r"<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
"""Thinking that is written inside a content."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""The fields of a message that hold thinking apart from its content."""


@dataclass(frozen=True, slots=True)
class Part:
    """Characters of a rendered conversation that come from a message.

    Attributes
    ----------
    start, end : int
        The first, and the one after the last.
    role : str
        "system", "user", "assistant", "thinking" or "tool".
    message : int
        The message, from 0.
    origin : int
        The character of its content that is at ``start``; -1 if it is no part of the content as it stands there.
    """

    start: int
    end: int
    role: str
    message: int
    origin: int = -1


@dataclass(frozen=True, slots=True)
class Chat:
    """A rendered conversation.

    Attributes
    ----------
    text : str
        What the model reads.
    parts : tuple of Part
        The parts of it that come from messages, in order; the rest is the template's.
    left_out : tuple of str
        The roles of texts that the template leaves out, such as thinking of earlier turns.
    """

    text: str
    parts: tuple[Part, ...]
    left_out: tuple[str, ...] = ()

    def place(self, message: int, start: int, end: int) -> tuple[int, int] | None:
        """Where characters of a message's content are in the text; None if they are not all there, in one piece."""
        of = [p for p in self.parts if p.message == message and p.origin >= 0]
        first = next((p for p in of if p.origin <= start < p.origin + p.end - p.start), None)
        last = next((p for p in of if p.origin < end <= p.origin + p.end - p.start), None)
        if first is None or last is None:
            return None
        return first.start + start - first.origin, last.start + end - last.origin


@dataclass(frozen=True, slots=True)
class _Field:
    """A text inside a message: characters ``start`` up to ``end`` of the string at ``path``."""

    message: int
    path: tuple[Any, ...]
    start: int
    end: int
    role: str
    string: str
    call: int = -1

    def put(self, messages: list[Any], text: str) -> list[Any]:
        """The messages with another text in its place."""
        return _replaced(
            messages, (self.message, *self.path), self.string[: self.start] + text + self.string[self.end :]
        )


class ChatTemplate:
    """A model's chat template.

    Parameters
    ----------
    tokenizer : Any
        The transformers tokenizer.
    name : str
        The model's name, for messages.
    template : str, optional
        A Jinja template instead of the tokenizer's own.
    """

    def __init__(self, tokenizer: Any, name: str, template: str | None = None) -> None:
        self.tokenizer, self.name, self.template = tokenizer, name, template

    def digest(self) -> str:
        """32 hex digits of the template."""
        return xxhash.xxh3_128_hexdigest(repr(self.template or self.tokenizer.chat_template).encode())

    def read(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, variables: Mapping[str, Any], roles: Mapping[str, str]
    ) -> Chat:
        """Render a conversation, with the prompt for an answer unless the assistant has the last word.

        Parameters
        ----------
        messages : sequence of mapping
            The messages.
        tools : list or None
            Descriptions of tools.
        variables : mapping
            Further variables of the template; they overrule ``add_generation_prompt`` and the date.
        roles : mapping
            "system", "user", "assistant" or "tool" for each role of a message.

        Raises
        ------
        UsageError
            If the template refuses the conversation, or treats a message so that its text cannot be found.
        """
        given = [dict(message) for message in messages]
        prompt: dict[str, Any] = {"add_generation_prompt": roles[given[-1]["role"]] != "assistant"}
        prompt |= variables

        def render(of: list[Any]) -> str:
            return self._render(of, tools, prompt)

        whole, fields = render(given), _fields(given, roles)
        found = _all_at_once(render, given, fields, whole)
        if found is None:
            found = [self._places(render, given, field, whole) for field in fields]
        parts = [_part(field, a, b, whole) for field, places in zip(fields, found, strict=True) for a, b in places]
        left_out = [field.role for field, at in zip(fields, found, strict=True) if not at and field.call < 0]
        return Chat(whole, tuple(_calls(parts, fields, found)), tuple(left_out))

    def _render(self, messages: list[Any], tools: Any, variables: Mapping[str, Any]) -> str:
        try:
            template = self.tokenizer.get_chat_template(self.template, tools)
            template = NOW + template if "strftime_now" in template else template
            text = self.tokenizer.apply_chat_template(
                messages, tools=tools, chat_template=template, tokenize=False, **variables
            )
        except Exception as error:  # Jinja's errors, those that a template raises, and TypeErrors inside it
            raise UsageError(f"the chat template of {self.name} cannot render it: {first_line(error)}") from error
        return str(text)

    def _places(self, render: Any, messages: list[Any], field: _Field, whole: str) -> list[tuple[int, int]]:
        """Where one field is in the render, once or several times; nowhere if the template leaves it out."""
        changed = render(field.put(messages, MARK))
        parts = changed.split(MARK)
        if (found := _fitted(parts, whole)) is not None:
            return found
        if changed == whole:
            return []
        text = field.string[field.start : field.end]  # what it says decides what the template does: only add to it
        core = text.strip()
        middle = text.index(core) + len(core) // 2
        changed = render(field.put(messages, text[:middle] + MARK + text[middle:]))
        parts = changed.split(MARK)
        if changed == whole:
            return []
        if "".join(parts) != whole:
            raise UsageError(
                f"the chat template of {self.name} depends on what message {field.message + 1} says, so that its text "
                "cannot be found in the render."
            )
        found, at = [], 0
        for part in parts[:-1]:
            at += len(part)
            a = at - len(core) // 2
            if whole[a : a + len(core)] == core:
                found.append((a, a + len(core)))
        if len(found) < len(parts) - 1:
            raise UsageError(
                f"the chat template of {self.name} rewrites what message {field.message + 1} says, so that its text "
                "cannot be found in the render."
            )
        return found


def load_template(folder: Path, name: str, file: str | Path | None = None) -> ChatTemplate:
    """The chat template of a model folder, or the Jinja template in ``file``.

    Raises
    ------
    ModelError
        If the model has none.
    UsageError
        If the file cannot be read.
    """
    from probekit.models.transformers.tokens import load_tokenizer

    tokenizer = load_tokenizer(folder)
    if file is not None:
        try:
            return ChatTemplate(tokenizer, name, Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--chat-template {file} cannot be read: {first_line(error)}.") from error
    if not tokenizer.chat_template:
        raise ModelError(
            f"{name} has no chat template, which conversations need: its tokenizer has none. Give a Jinja file with "
            "--chat-template FILE, such as the chat_template.jinja of the model that it was tuned from."
        )
    return ChatTemplate(tokenizer, name)


def _fields(messages: Sequence[Mapping[str, Any]], roles: Mapping[str, str]) -> list[_Field]:
    """The texts of all messages, without those of white space only."""
    found: list[_Field] = []
    for i, message in enumerate(messages):
        role, content = roles[message["role"]], message.get("content") or ""
        found += [_Field(i, (name,), 0, len(message[name]), "thinking", message[name])
                  for name in THOUGHTS if isinstance(message.get(name), str)]  # fmt: skip
        end = 0
        for match in THINK.finditer(content) if role == "assistant" else ():
            found.append(_Field(i, ("content",), end, match.start(), role, content))
            found.append(_Field(i, ("content",), *match.span(2), "thinking", content))
            end = match.end()
        found.append(_Field(i, ("content",), end, len(content), role, content))
        calls = message.get("tool_calls")
        for k, call in enumerate(calls if isinstance(calls, list) else ()):
            leaves = _leaves(call, ("tool_calls", k))
            found += [_Field(i, path, 0, len(text), "tool", text, k) for path, text in leaves if path[2:] != ("type",)]
    return [field for field in found if field.string[field.start : field.end].strip()]


def _leaves(value: Any, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], str]]:
    """The strings in nested lists and dicts, with the keys that lead to them."""
    if isinstance(value, str):
        return [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, item in items for leaf in _leaves(item, (*path, key))]


def _replaced(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """Nested lists and dicts with another string at a path."""
    if not path:
        return text
    items = dict(value) if isinstance(value, dict) else list(value)
    items[path[0]] = _replaced(items[path[0]], path[1:], text)
    return items


def _fitted(parts: list[str], whole: str) -> list[tuple[int, int]] | None:
    """Where one text stands between parts of a render, if the render is the parts with that text between them."""
    gaps = len(parts) - 1
    size, rest = divmod(len(whole) - sum(map(len, parts)), gaps) if gaps else (-1, 0)
    if rest or size < 0:
        return None
    text = whole[len(parts[0]) : len(parts[0]) + size]
    if text.join(parts) != whole:
        return None
    found, at = [], 0
    for part in parts[:-1]:
        at += len(part)
        found.append((at, at + size))
        at += size
    return found if text.strip() else []


def _all_at_once(
    render: Any, messages: list[Any], fields: Sequence[_Field], whole: str
) -> list[list[tuple[int, int]]] | None:
    """Where each field is, from one render with all of them replaced; None if that does not give the render back."""
    marked = messages
    for k, field in reversed([*enumerate(fields)]):  # from the last, so that characters before it stay in place
        current = marked[field.message]
        for key in field.path:
            current = current[key]
        text = current[: field.start] + f"{MARK}{k}x" + current[field.end :]
        marked = _replaced(marked, (field.message, *field.path), text)
    try:
        pieces = re.split(rf"{MARK}(\d+)x", render(marked))
    except UsageError:
        return None
    found: list[list[tuple[int, int]]] = [[] for _ in fields]
    if not whole.startswith(pieces[0]):
        return None
    at = len(pieces[0])
    for number, literal in zip(pieces[1::2], pieces[2::2], strict=True):
        field = fields[int(number)]
        text = field.string[field.start : field.end]
        ways = (text, text.strip(), text.lstrip(), text.rstrip())
        size = next((len(t) for t in ways if whole.startswith(t + literal, at)), None)
        if size is None:
            return None
        found[int(number)].append((at, at + size))
        at += size + len(literal)
    return found if at == len(whole) else None


def _part(field: _Field, a: int, b: int, whole: str) -> Part:
    """A field at its place, with the character of the content that is there."""
    text, there = field.string[field.start : field.end], whole[a:b]
    origin = -1
    if field.path == ("content",) and text.strip() == there.strip():
        origin = field.start + len(text) - len(text.lstrip()) - (len(there) - len(there.lstrip()))
    return Part(a, b, field.role, field.message, origin if origin >= 0 else -1)


def _calls(parts: list[Part], fields: Sequence[_Field], found: Sequence[Sequence[tuple[int, int]]]) -> list[Part]:
    """The parts, with one for each tool call: from the first to the last of its strings.

    A template may write a call, or a string of it, in several places (its name again before the tool's answer): each is
    a part of its own. Another begins where a string comes again, or where something else stands in between.
    """
    flat = [field for field, places in zip(fields, found, strict=True) for _ in places]
    made: list[Part] = []
    strings = set[tuple[Any, ...]]()
    last: tuple[int, int] | None = None
    for part, field in sorted(zip(parts, flat, strict=True), key=lambda pair: pair[0].start):
        call = (field.message, field.call) if field.call >= 0 else None
        if call is None or call != last or field.path in strings:
            made.append(part)
            strings = {field.path}
        else:
            made[-1] = Part(made[-1].start, part.end, "tool", part.message)
            strings.add(field.path)
        last = call
    return made
