"""Plots: rows in, Axes out. Nothing is shown or saved unless asked: see :func:`save`."""

from probekit.plots.differences import difference_panels, layer_differences
from probekit.plots.domains import divergence_by_size, domain_matrix, domain_panels, domain_terms, domain_tree
from probekit.plots.layers import layer_curve, layer_panels
from probekit.plots.mix import mix_panels, mix_weights
from probekit.plots.panels import WIDTHS
from probekit.plots.relation import relation_panels, transfer_matrix, transfer_panels
from probekit.plots.save import save
from probekit.plots.trajectory import trajectory, trajectory_panels

__all__ = [
    "WIDTHS",
    "difference_panels",
    "divergence_by_size",
    "domain_matrix",
    "domain_panels",
    "domain_terms",
    "domain_tree",
    "layer_curve",
    "layer_differences",
    "layer_panels",
    "mix_panels",
    "mix_weights",
    "relation_panels",
    "save",
    "trajectory",
    "trajectory_panels",
    "transfer_matrix",
    "transfer_panels",
]
