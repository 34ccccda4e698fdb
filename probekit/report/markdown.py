"""Markdown as HTML that cannot do anything: no raw HTML, no pictures from elsewhere, no inline styles."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from probekit.errors import DataError
from probekit.files import without_mark

__all__ = ["markdown", "text"]

LARGEST = 3
"""Of headings: those of a text stand under a section's own."""


def markdown(words: str) -> Markup:
    """Headings, paragraphs, lists, tables, code and emphasis as HTML; whatever else there is stays text.

    Tables become those of the page, which sort and scroll; a link is followed only by who clicks on it.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(words)
    for token in tokens:
        _tame(token)
    html = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>')
    return Markup(html.replace("</table>", "</table></div>"))  # html is off: nothing of the text is markup


def _tame(token: Token) -> None:
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(6, int(token.tag[1]) + LARGEST - 1)}"
    if "right" in str(token.attrs.pop("style", "")):  # style attributes are forbidden by the page's own policy
        token.attrs["class"] = "n"


def text(path: Path) -> str:
    """What stands in a file; raises DataError where there is none, and where it is no UTF-8."""
    try:
        return without_mark(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("there is no such text.", file=path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"wanted is UTF-8 text ({error}).", file=path) from None
