"""Text in figures: its width, and line breaks."""

from __future__ import annotations

import textwrap
from functools import lru_cache

__all__ = ["inches", "wrapped"]


@lru_cache(maxsize=4096)
def inches(words: str, size: float, weight: str = "normal") -> float:
    """An upper bound of the widest line; letters in bitmaps are up to a tenth wider than drawn ones."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(weight=weight)
    plain = (line.replace("$", r"\$") for line in words.splitlines())  # a name is no mathematics
    widths = (TextPath((0, 0), line, size, font).get_extents().width for line in plain)
    return 1.1 * max(widths, default=0.0) / 72


def wrapped(words: str, room: float, size: float, weight: str = "normal") -> str:
    """Wrap text to ``room`` inches, at commas, or else at spaces and dashes."""
    parts, lines = words.split(", "), [""]
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if lines[-1] and inches(f"{lines[-1]} {piece}", size, weight) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".lstrip()
    for i, line in enumerate(lines):
        if (wide := inches(line, size, weight)) > room:
            fits = max(4, int(len(line) * room / wide) - 1)
            lines[i] = "\n".join(textwrap.wrap(line, fits))
    return "\n".join(lines)
