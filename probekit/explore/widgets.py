"""The panels around the maps: each widget is one hand-written ES module in ``static``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets as t

STATIC = Path(__file__).parent / "static"
STYLE = (STATIC / "explore.css").read_text(encoding="utf-8")


def _module(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")


def _integer(first: int) -> Any:
    return t.Int(first).tag(sync=True)


def _text(first: str = "") -> Any:
    return t.Unicode(first).tag(sync=True)


def _list() -> Any:
    return t.List().tag(sync=True)


def _bytes() -> Any:
    """Arrays as they are in memory: the browser sends a memoryview."""
    return t.Bytes().tag(sync=True, from_json=lambda value, _: bytes(value))


class Controls(anywidget.AnyWidget):
    """Layer, step, projection and colour, with the legend.

    ``dark`` and ``still`` are what the browser sees and what its reader asks for: dark paper, less motion.
    """

    _esm, _css = _module("controls"), STYLE
    title = _text()
    layers, layer = _list(), _integer(0)
    steps, step = _list(), _integer(1)
    methods, method = _list(), _text()
    colours, colour = _list(), _text()
    legend = t.Dict().tag(sync=True)
    dark = t.Bool(default_value=False).tag(sync=True)
    still = t.Bool(default_value=False).tag(sync=True)


class Notes(anywidget.AnyWidget):
    """What must be known of the data and the models."""

    _esm, _css = _module("notes"), STYLE
    notes = _list()


class Caption(anywidget.AnyWidget):
    """What a map shows, in words; ``width`` is what the browser gives the map, in pixels."""

    _esm, _css = _module("caption"), STYLE
    name, text, note, width = _text(), _text(), _text(), _integer(0)


class Curve(anywidget.AnyWidget):
    """Curves over layers, and the table of gained and lost examples.

    ``outcomes`` holds a byte for each further side, layer and example: see :func:`probekit.explore.colours.outcomes`.
    """

    _esm, _css = _module("curve"), STYLE
    panels, sides, tests, missing = _list(), _list(), _list(), _text()
    layers, layer, step = _list(), _integer(0), _integer(1)
    outcomes, n = _bytes(), _integer(0)
    selected, origin = _bytes(), _list()


class Example(anywidget.AnyWidget):
    """One example. It asks "example", "find", "strip" and "attention"."""

    _esm, _css = _module("example"), STYLE
    layers, layer, step = _list(), _integer(0), _integer(1)
    example, n = _integer(-1), _integer(0)
    kinds, unit = _list(), _text("Example")
    attends = t.Bool(default_value=False).tag(sync=True)


class Units(anywidget.AnyWidget):
    """One unit of a layer. It asks "unit"."""

    _esm, _css = _module("units"), STYLE
    sides, layers, layer, step = _list(), _list(), _integer(0), _integer(1)
    example = _integer(-1)


class SelectionPanel(anywidget.AnyWidget):
    """The selected examples. It asks "selection" and "compare".

    ``origin`` is the text, layer and step of the cell of the table that selected them; empty for other selections.
    """

    _esm, _css = _module("selection"), STYLE
    n, hint, start = _integer(0), _text(), _text()
    layer, step = _integer(0), _integer(1)
    selected, example, origin = _bytes(), _integer(-1), _list()


PANELS: dict[str, Callable[..., Any]] = {
    "controls": Controls, "left": Caption, "right": Caption, "curve": Curve, "example": Example, "units": Units,
    "selection": SelectionPanel, "notes": Notes,
}  # fmt: skip
"""The panels of a view, by name."""
