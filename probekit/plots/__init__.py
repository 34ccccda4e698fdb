"""Plots: rows in, Axes out. Nothing is shown or saved unless asked: see :func:`save`."""

from probekit.plots.differences import difference_panels, layer_differences
from probekit.plots.layers import layer_curve, layer_panels
from probekit.plots.save import save
from probekit.plots.trajectory import trajectory, trajectory_panels

__all__ = [
    "difference_panels",
    "layer_curve",
    "layer_differences",
    "layer_panels",
    "save",
    "trajectory",
    "trajectory_panels",
]
