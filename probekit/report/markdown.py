"""Markdown as safe HTML: no raw HTML, no remote images, no inline styles."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from probekit.errors import DataError
from probekit.files import without_mark

LARGEST = 3
"""The largest heading level of a text, below that of a section."""


def markdown(words: str) -> Markup:
    """Headings, paragraphs, lists, tables, code and emphasis as HTML; everything else stays text.

    Tables sort and scroll like those of the page; links are followed only on a click.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    tokens = parser.parse(words)
    for token in tokens:
        _tame(token)
    html = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", '<div class="scroll" tabindex="0" role="region" aria-label="table"><table>')
    return Markup(html.replace("</table>", "</table></div>"))  # html is off, so the text contains no markup


def _tame(token: Token) -> None:
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(6, int(token.tag[1]) + LARGEST - 1)}"
    if "right" in str(token.attrs.pop("style", "")):  # the page's policy forbids style attributes
        token.attrs["class"] = "n"


def text(path: Path) -> str:
    """The contents of a file; raises DataError if there is no file, or if it is not UTF-8."""
    try:
        return without_mark(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("this text file does not exist.", file=path) from None
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8 text ({error}).", file=path) from None
