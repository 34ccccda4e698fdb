"""Plots: rows in, Axes out. Nothing is shown or saved unless asked: see :func:`save`."""

from probekit.plots.layers import layer_curve, layer_panels
from probekit.plots.save import save

__all__ = ["layer_curve", "layer_panels", "save"]
