"""How values show themselves in a notebook: a title and a few facts, small, escaped, the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["facts_html"]


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
