"""How values show themselves: in a notebook small and escaped, in a terminal without what it would obey."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

__all__ = ["facts_html", "shown"]

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Escapes and other controls, but for tab and the end of a line; what turns the direction of writing."""


def shown(text: object) -> str:
    r"""A text with what a terminal would obey, and what is no character, written out.

    Labels, names and paths come from files of others: shown as they are they could move the cursor, rename the window,
    or show another text than they hold. Files keep them as they are.

    Examples
    --------
    >>> shown("good\x1b[2Jbad")
    'good\\x1b[2Jbad'
    """
    told = _OBEYED.sub(lambda found: ascii(found[0])[1:-1], str(text))
    return told.encode("utf-8", "backslashreplace").decode()


def facts_html(title: str, facts: Mapping[str, object], *, longest: int = 200) -> str:
    """A small table: one line a fact, long ones cut, empty ones left out.

    Parameters
    ----------
    title
        What the value is.
    facts
        What there is to say of it, by name.
    longest
        Characters of a fact that are shown.

    Returns
    -------
    str
        HTML without scripts, styles, addresses or times of its own.

    Examples
    --------
    >>> facts_html("Task", {"name": "a < b", "notes": ""})
    '<table><caption>Task</caption><tr><th>name</th><td>a &lt; b</td></tr></table>'
    """
    told = {name: str(fact) for name, fact in facts.items() if str(fact)}
    cut = {name: fact if len(fact) <= longest else fact[: longest - 1] + "…" for name, fact in told.items()}
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in cut.items())
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
