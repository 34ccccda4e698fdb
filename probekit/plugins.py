"""What installed packages add to probekit: the entry points of a group, ours and strangers' through the same door.

======================= ============================================================================================
group                   what an entry names
======================= ============================================================================================
``probekit.analyses``   the module with ``ANALYSIS`` and the public function (:mod:`probekit.analysis`)
``probekit.tasks``      a package with TOML files and their list (:mod:`probekit.tasks.datasets.published`)
``probekit.encoders``   "module:VALUE", a :class:`probekit.models.kinds.Kind` for the model type of this name
``probekit.metrics``    "module:VALUE", a :class:`probekit.metrics.Metric` of this name
``probekit.figures``    "module:VALUE", a :class:`probekit.plots.FigureKind`
``probekit.objectives`` "module:function", what :mod:`probekit.adaptation.pretraining.objectives` asks for
======================= ============================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

log = logging.getLogger(__name__)


def load(place: str) -> Any:
    """What "module" or "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


@cache
def named(group: str) -> Mapping[str, str]:
    """What each name of a group stands for. Nothing is imported, and nobody takes a name of ours."""
    found = sorted(entry_points(group=group), key=lambda entry: (_ours(entry.value), entry.name))
    names = {entry.name: entry.value for entry in found}
    for entry in found:
        if _ours(names[entry.name]) and not _ours(entry.value):
            log.warning("%s: %s of %s is left out: probekit has this name.", group, entry.name, entry.value)
    return names


@cache
def added(group: str, value: str = "") -> Mapping[str, Any]:
    """What a group's entries name, or the ``value`` of each module.

    One of another package that cannot be imported is left out with a warning.
    """
    values = {}
    for name, place in named(group).items():
        try:
            values[name] = load(f"{place}:{value}" if value else place)
        except Exception as error:
            if _ours(place):
                raise
            log.warning("%s: %s of %s is left out: %s", group, name, place, error)
    return values


def _ours(place: str) -> bool:
    return place.startswith("probekit.")
