"""The maps: jupyter-scatter's widgets, with the points and colours of a scene."""

from __future__ import annotations

from typing import Any

import jscatter
import numpy as np
import pandas as pd

from probekit.explore.colours import Colour

HEIGHT = 320
TRANSITION = 150
"""Milliseconds in which points move from layer to layer."""
LONGEST = 300
"""Characters of a text in a tooltip."""
BUTTONS = ["pan_zoom", "lasso", "lasso_type", "lasso_brush_size", "divider", "full_screen", "download", "reset"]


def points(xy: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The points as a map reads them: float32 (n, 4), the position and the place in the palette."""
    found = np.zeros((len(xy), 4), np.float32)
    found[:, :2], found[:, 2] = xy, codes
    return found


def appearance(colour: Colour, *, dark: bool) -> dict[str, Any]:
    """The traits of a map that depend on the palette and the paper."""
    paper, ink = (
        ([0.067, 0.067, 0.067, 1.0], [1.0, 1.0, 1.0, 1.0]) if dark else ([1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    )
    palette = [[*(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)), 1.0] for c in colour.palette]
    return {
        "color": palette, "background_color": paper, "color_hover": ink, "color_selected": ink,
        "lasso_color": ink, "reticle_color": [*ink[:3], 0.15], "tooltip_color": [0.2, 0.2, 0.2, 1.0] if dark else paper,
    }  # fmt: skip


def height(width: int) -> int:
    """The height of a map of this width with its buttons: no higher than wide, so that all points are visible."""
    return max(160, min(HEIGHT, width - 44)) if width else HEIGHT


def new_map(texts: list[str], view_sync: str) -> Any:
    """A jupyter-scatter widget for ``len(texts)`` points, all at the centre; its view moves with others of its name."""
    n = len(texts)
    short = [text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in texts]
    data = pd.DataFrame({"x": np.zeros(n), "y": np.zeros(n), "text": short})
    opacity: dict[str, Any] = {"opacity": 0.7} if n < 2000 else {"opacity_by": "density"}  # points show through
    scatter = jscatter.Scatter(
        data=data, x="x", y="y", height=HEIGHT, axes=False, x_scale=(-1, 1), y_scale=(-1, 1),
        size=6 if n < 2000 else 4 if n < 20_000 else 2, opacity_unselected=0.15, **opacity,
        tooltip=True, tooltip_properties=[], tooltip_preview="text", tooltip_histograms=False,
        options={"pointSizeSelected": 2, "pointOutlineWidth": 2, "height": "auto"},
        transition_points_duration=TRANSITION,
    )  # fmt: skip
    widget = scatter.show(buttons=BUTTONS)
    with widget.hold_sync():
        widget.color_by, widget.color_scale, widget.color_domain = "valueA", "categorical", {}
        widget.view_sync = view_sync
        widget.x_domain = widget.y_domain = [-1.0, 1.0]
        widget.selection = np.zeros(0, np.uint32)
    return widget
