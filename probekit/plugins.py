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

import ast
import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from probekit.former import explained
from probekit.toml import read_toml

log = logging.getLogger(__name__)


def load(place: str) -> Any:
    """What "module" or "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


@cache
def named(group: str) -> Mapping[str, str]:
    """What each name of a group stands for. Nothing is imported, and nobody takes a name of ours."""
    theirs = [entry for entry in entry_points(group=group) if not _ours(entry.value)]
    found = sorted([*theirs, *_own(group)], key=lambda entry: (_ours(entry.value), entry.name))
    names = {entry.name: entry.value for entry in found}
    for entry in found:
        taken = _ours(names.get(entry.name, "")) or (group == "probekit.analyses" and entry.name in public())
        if taken and not _ours(entry.value):
            log.warning("%s: %s of %s is left out: probekit has this name.", group, entry.name, entry.value)
            if names[entry.name] == entry.value:
                del names[entry.name]
    return names


def _own(group: str) -> list[EntryPoint]:
    """Our entries: of a clone those that its files declare now, which it may have pulled since it was installed."""
    if declared := _declared():
        return [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()]
    return [entry for entry in entry_points(group=group) if _ours(entry.value)]


@cache
def _declared() -> Mapping[str, Mapping[str, str]]:
    """The entry points by group in the ``pyproject.toml`` of a clone; none where probekit is installed as a wheel."""
    place = Path(__file__).parents[1] / "pyproject.toml"
    project = read_toml(place)[0].get("project", {}) if place.is_file() else {}
    found: Mapping[str, Mapping[str, str]] = project["entry-points"] if project.get("name") == "probekit-lm" else {}
    return found


def listed(package: str) -> Mapping[str, str]:
    """The names of a package's ``__init__.pyi``, each with the module that it is imported from; "" for submodules."""
    place = Path(__file__).parent.joinpath(*package.split(".")[1:], "__init__.pyi")
    tree = ast.parse(place.read_text(encoding="utf-8")) if place.exists() else ast.Module([], [])
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{package}.{node.module}" if node.module else "" for node in imports for alias in node.names}


def groups() -> list[str]:
    """The packages that ``probekit`` lists, which group its names."""
    return [name for name, module in listed("probekit").items() if not module]


@cache
def public() -> Mapping[str, str]:
    """The public names, each with the module that defines it, which the list of its group says."""
    named = {name: module for name, module in listed("probekit").items() if module}
    of_groups = {module: listed(module) for module in {*named.values()}}
    return {name: of_groups[module].get(name, module) for name, module in named.items()}


@cache
def added(group: str, kind: type = object, value: str = "") -> Mapping[str, Any]:
    """What a group's entries name, or the ``value`` of each module.

    One of another package that cannot be imported, or that is not of the kind, is left out with a warning.
    """
    values = {}
    for name, place in named(group).items():
        try:
            found = load(f"{place}:{value}" if value else place)
            if not isinstance(found, kind):
                raise TypeError(f"it is {type(found).__name__}, expected {kind.__name__}")
            if (own := getattr(found, "name", name)) != name:
                raise TypeError(f"it calls itself {own}")
            values[name] = found
        except Exception as error:
            if _ours(place):
                raise
            log.warning("%s: %s of %s is left out: %s", group, name, place, explained(error))
    return values


def _ours(place: str) -> bool:
    return place.startswith("probekit.")
