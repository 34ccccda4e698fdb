"""Conversations: what is checked when they are read, and how they are shown as one text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
}
"""The roles that messages may have, and what they are counted as."""

EXPECTED = 'expected a list of messages such as [{"role": "user", "content": "…"}]'


def problem(messages: Any) -> str:
    """What is wrong with a list of messages; "" if nothing is.

    Examples
    --------
    >>> problem([{"role": "bot", "content": "Hello."}])
    "message 1 has the role 'bot'; expected one of system, developer, user, assistant, model, tool, function, ipython"
    >>> problem([{"role": ["user"], "content": "Hello."}]).partition(";")[0]
    "message 1 has the role ['user']"
    """
    if not isinstance(messages, list) or not messages:
        return f"{EXPECTED}, found {str(messages)[:60]!r}"
    for i, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or "role" not in message:
            return f"{EXPECTED}; message {i} is {str(message)[:60]!r}"
        if not isinstance(message["role"], str) or message["role"] not in ROLES:
            return f"message {i} has the role {message['role']!r}; expected one of {', '.join(ROLES)}"
        content = message.get("content")
        if isinstance(content, list):
            if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
                return f"message {i} has content that is not text; probekit reads texts only"
        elif not isinstance(content, str | None):
            return f"message {i} has the content {str(content)[:60]!r}; expected a text"
        if content is None and not any(message.get(name) for name in message if name != "role"):
            return f"message {i} has no content"
    return ""


SPEAKERS = {
    "human": "user", "user": "user", "prompter": "user", "question": "user", "instruction": "user",
    "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
    "answer": "assistant", "system": "system", "developer": "system", "tool": "tool", "function": "tool",
}  # fmt: skip
"""What other layouts call the one who speaks, and the role of a message."""
LAYOUTS = (("role", "content"), ("from", "value"), ("role", "text"), ("speaker", "text"), ("role", "value"))
"""The keys of the one who speaks and of the text, in lists of messages."""


def messages_of(turns: Sequence[Any]) -> list[dict[str, Any]] | None:
    """A conversation in another layout as messages with role and content; None if it is none.

    A list of texts with several words each is a conversation in which user and assistant take turns.

    Examples
    --------
    >>> messages_of([{"from": "human", "value": "Hi."}])
    [{'role': 'user', 'content': 'Hi.'}]
    >>> messages_of(["How are you?", "I am well."])[1]
    {'role': 'assistant', 'content': 'I am well.'}
    """
    if not problem(turns):
        return list(turns)
    if turns and all(isinstance(turn, str) and turn.strip() for turn in turns):
        several = sum(len(turn.split()) for turn in turns) > 2 * len(turns)
        roles = ("user", "assistant")
        return [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)] if several else None
    for who, what in LAYOUTS:
        if turns and all(isinstance(t, dict) and isinstance(t.get(what), str) and t.get(who) for t in turns):
            names = [SPEAKERS.get(str(turn[who]).lower()) for turn in turns]
            if None not in names:
                return [{"role": name, "content": turn[what]} for name, turn in zip(names, turns, strict=True)]
    return None


def as_chat(
    messages: Sequence[Mapping[str, Any]], tools: Any = None, variables: Mapping[str, Any] | None = None
) -> str:
    """A conversation as an example stores it: JSON of all that a chat template reads.

    Parameters
    ----------
    messages : sequence of mapping
        The messages. A content that is a list of texts becomes their concatenation, and empty fields are left out.
    tools : list, optional
        The descriptions of tools.
    variables : mapping, optional
        Further variables of the template.
    """
    stored = [{key: _content(key, value) for key, value in m.items() if value is not None} for m in messages]
    given = {"messages": stored, "tools": tools or None, "variables": dict(variables or {}) or None}
    return json.dumps({key: value for key, value in given.items() if value is not None}, ensure_ascii=False)


def _content(key: str, value: Any) -> Any:
    return "".join(part["text"] for part in value) if key == "content" and isinstance(value, list) else value


def conversation(chat: str) -> tuple[list[dict[str, Any]], Any, dict[str, Any]]:
    """The messages, tools and variables of a stored conversation."""
    stored = json.loads(chat)
    return stored["messages"], stored.get("tools"), stored.get("variables", {})


def transcript(chat: str) -> str:
    """A conversation as one text, for people and for methods that read words: "ROLE: CONTENT", message by message.

    Examples
    --------
    >>> transcript(as_chat([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]))
    'user: Hi.\\nassistant: Hello.'
    """
    return "\n".join(f"{m['role']}: {m.get('content') or ''}" for m in conversation(chat)[0])


def contents(chat: str) -> list[tuple[int, int]]:
    """The characters of each message's content in the :func:`transcript`: the first, and the one after the last."""
    messages = conversation(chat)[0]
    sizes = [(len(m["role"]) + 2, len(m.get("content") or "")) for m in messages]
    starts = accumulate((a + b + 1 for a, b in sizes[:-1]), initial=0)
    return [(start + before, start + before + size) for start, (before, size) in zip(starts, sizes, strict=True)]


def role_counts(chats: Sequence[str]) -> dict[str, int]:
    """The number of messages of each role, as the data call it, most frequent first."""
    return dict(Counter(m["role"] for chat in chats for m in conversation(chat)[0]).most_common())
