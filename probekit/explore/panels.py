"""What the panels of a view hold for a scene: the same values in a notebook and in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from probekit.explore.colours import Colour, outcomes
from probekit.explore.curves import panels
from probekit.explore.places import METHODS, caption, methods
from probekit.explore.questions import STRIPS, mcnemar

if TYPE_CHECKING:
    from probekit.analyses.exploration.scene import Scene

__all__ = ["captions", "first_state", "values"]

NO_CURVE = "No curves: give the rows of probekit probe (and mi) for these models to see them here."
LASSO, CELL = "Draw a lasso on a map (its button is left of the map)", ", or click a number in the table"
HINT = 'In Python: view.selection.ids, .examples, .compare() and .write_task("task.toml").'


def first_state(scene: Scene, colours: Sequence[Colour]) -> dict[str, Any]:
    """What a view shows when it opens: the middle layer, the first and the last side."""
    return {
        "layer": len(scene.layers) // 2,
        "step": len(scene.sides) - 1,
        "method": methods(scene)[0],
        "colour": colours[0].name,
        "selected": b"",
        "example": -1,
    }


def values(scene: Scene, colours: Sequence[Colour]) -> dict[str, dict[str, Any]]:
    """The traits of each panel that do not change."""
    names, n, layers = [side.name for side in scene.sides], len(scene.ids), list(scene.sides[0].layers)
    together = outcomes(scene)
    unit = "tokens" if scene.tokens_unit else "examples"
    tests = [[mcnemar(scene, step, layer) for layer in range(len(layers))] for step in range(1, len(together) + 1)]
    return {
        "controls": {
            "title": f"{scene.title} ({n:,} {unit})",
            "layers": layers,
            "steps": names,
            "methods": [[name, METHODS.get(name, name)] for name in methods(scene)],
            "colours": [[colour.name, colour.title] for colour in colours],
            "notes": list(scene.notes),
        },
        "curve": {
            "layers": layers, "sides": names, "n": n, "panels": panels(scene), "missing": NO_CURVE,
            "outcomes": together.tobytes(), "tests": tests,
        },
        "example": {
            "n": n, "layers": layers, "kinds": [list(kind) for kind in STRIPS.items()],
            "unit": "Token" if scene.tokens_unit else "Example",
            "attends": scene.sources is not None and scene.texts is not None,
        },
        "units": {"layers": layers, "sides": names},
        "selection": {"n": n, "hint": HINT, "start": LASSO + CELL * bool(len(together)) + "."},
    }  # fmt: skip


def captions(scene: Scene, side: int, method: str, layer: int) -> dict[str, str]:
    """The traits of the caption of a side's map; a note that the left map has is not said again."""
    shown = scene.sides[side]
    note = shown.maps[method].note
    again = side > 0 and note == scene.sides[0].maps[method].note
    return {"name": shown.name, "text": caption(scene, side, method, layer), "note": "" if again else note}
