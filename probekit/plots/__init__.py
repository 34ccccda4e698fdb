"""Plots: rows in, Axes out. Nothing is shown, and nothing is saved except with :func:`save`.

``adaptation_rows``, ``board_values``, ``curve_rows``, ``difference_rows``, ``domain_values``, ``expected_values``,
``mix_rows``, ``relation_rows``, ``score_rows``, ``shift_values``, ``similarity_values``, ``trajectory_grids`` and
``transfer_values`` return the drawn values as tables.
"""

from probekit.plots.adaptation import adaptation_panels
from probekit.plots.adapted import adaptation_rows
from probekit.plots.differences import difference_panels, difference_rows, layer_differences
from probekit.plots.domains import (
    divergence_by_size,
    domain_matrix,
    domain_panels,
    domain_terms,
    domain_tree,
    domain_values,
)
from probekit.plots.expected import expected_panels, expected_values
from probekit.plots.figure import plot
from probekit.plots.gains import gain_panels, gain_rows
from probekit.plots.layer_map import layer_map, map_panels, map_points
from probekit.plots.layers import curve_rows, layer_curve, layer_panels
from probekit.plots.learning import learning_panels, learning_rows
from probekit.plots.mix import mix_panels, mix_rows, mix_weights
from probekit.plots.movement import geometry_panels, movement_panels
from probekit.plots.options import WIDTHS, PlotOptions
from probekit.plots.relation import relation_panels, relation_rows
from probekit.plots.save import save
from probekit.plots.scoreboard import board_panels, board_values
from probekit.plots.scores import score_panels, score_rows
from probekit.plots.shift import shift_panels, shift_values
from probekit.plots.similarity import (
    similarity_matrix,
    similarity_panels,
    similarity_tree,
    similarity_trees,
    similarity_values,
)
from probekit.plots.trajectory import trajectory, trajectory_grids, trajectory_panels
from probekit.plots.transfer import transfer_matrix, transfer_panels, transfer_rows, transfer_values

__all__ = [
    "WIDTHS",
    "PlotOptions",
    "adaptation_panels",
    "adaptation_rows",
    "board_panels",
    "board_values",
    "curve_rows",
    "difference_panels",
    "difference_rows",
    "divergence_by_size",
    "domain_matrix",
    "domain_panels",
    "domain_terms",
    "domain_tree",
    "domain_values",
    "expected_panels",
    "expected_values",
    "gain_panels",
    "gain_rows",
    "geometry_panels",
    "layer_curve",
    "layer_differences",
    "layer_map",
    "layer_panels",
    "learning_panels",
    "learning_rows",
    "map_panels",
    "map_points",
    "mix_panels",
    "mix_rows",
    "mix_weights",
    "movement_panels",
    "plot",
    "relation_panels",
    "relation_rows",
    "save",
    "score_panels",
    "score_rows",
    "shift_panels",
    "shift_values",
    "similarity_matrix",
    "similarity_panels",
    "similarity_tree",
    "similarity_trees",
    "similarity_values",
    "trajectory",
    "trajectory_grids",
    "trajectory_panels",
    "transfer_matrix",
    "transfer_panels",
    "transfer_rows",
    "transfer_values",
]
