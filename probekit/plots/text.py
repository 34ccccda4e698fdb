"""Words of figures: how wide they are, and in which lines they fit."""

from __future__ import annotations

import textwrap

__all__ = ["inches", "wrapped"]


def inches(words: str, size: float, weight: str = "normal") -> float:
    """How wide the widest line is at most; letters of bitmaps are up to a tenth wider than drawn ones."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(weight=weight)
    widths = (TextPath((0, 0), line, size, font).get_extents().width for line in words.splitlines())
    return 1.1 * max(widths, default=0.0) / 72


def wrapped(words: str, room: float, size: float) -> str:
    """In as few lines as fit into ``room`` inches, parted at commas, or else where there is a space or a dash."""
    parts, lines = words.split(", "), [""]
    for i, part in enumerate(parts):
        piece = part + ("," if i + 1 < len(parts) else "")
        if lines[-1] and inches(f"{lines[-1]} {piece}", size) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {piece}".lstrip()
    for i, line in enumerate(lines):
        if inches(line, size) > room:
            fits = max(4, int(len(line) * room / inches(line, size)) - 1)
            lines[i] = "\n".join(textwrap.wrap(line, fits))
    return "\n".join(lines)
