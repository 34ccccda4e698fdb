"""A scene: the points that an explorer shows, for one or more models, and the questions that it can answer."""

from __future__ import annotations

from probekit.analyses.exploration.agreement import gained_and_lost
from probekit.analyses.exploration.attention import attention
from probekit.analyses.exploration.data import SceneData, Side
from probekit.analyses.exploration.export import to_parquet, to_projector
from probekit.analyses.exploration.neighbours import neighbours
from probekit.analyses.exploration.selection import compare_selection, examples, write_task
from probekit.analyses.exploration.strips import token_strip
from probekit.analyses.exploration.units import rank_units, unit_view
from probekit.projection import Map

__all__ = ["Map", "Scene", "Side"]


class Scene(SceneData):
    """What an explorer shows, and the functions that answer questions about it."""

    neighbours = neighbours
    gained_and_lost = gained_and_lost
    token_strip = token_strip
    attention = attention
    unit = unit_view
    rank_units = rank_units
    examples = examples
    compare_selection = compare_selection
    write_task = write_task
    to_parquet = to_parquet
    to_projector = to_projector
