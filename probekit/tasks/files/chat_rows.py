"""The column of conversations in a user's data."""

from __future__ import annotations

from typing import Any

from probekit.errors import Faults
from probekit.tasks.chat import as_chat, problem
from probekit.tasks.files.columns import CHAT_COLUMNS, Rows

__all__ = ["read_chats"]


def read_chats(part: Rows, faults: Faults) -> list[str]:
    """The conversations of a split, as examples store them; each wrong one is a fault at its line."""
    tools, variables = (part.columns.get(name, [None] * len(part.lines)) for name in CHAT_COLUMNS)
    found = []
    for i, messages in enumerate(part.columns["messages"]):
        chat = as_chat([])
        with faults:
            if wrong := problem(messages):
                raise part.error(i, "messages", f"{wrong}.")
            _check(part, i, "tools", tools[i], list, "a list of descriptions")
            _check(part, i, "chat_template_kwargs", variables[i], dict, "an object with variables of the template")
            chat = as_chat(messages, tools[i], variables[i])
        found.append(chat)
    return found


def _check(part: Rows, i: int, name: str, value: Any, kind: type, expected: str) -> None:
    if not isinstance(value, kind | None):
        raise part.error(i, name, f"expected {expected}, found {str(value)[:60]!r}.")
