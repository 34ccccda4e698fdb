"""The figure of lengths: curves by layer."""

from collections.abc import Iterator
from typing import Any

from probekit.plots import FigureKind, layer_panels


def caption(rows: Any, options: Any, look: Any) -> Iterator[str]:
    """What the figure shows, after its first sentence."""
    yield "Each point is the mean over examples; bands are intervals for a single layer."


FIGURE = FigureKind(
    head="Length of the vectors of each layer.", draw=layer_panels, caption=caption, metric="Measure to plot."
)
