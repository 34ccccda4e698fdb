"""What each layer of a language model knows, how adaptation changes it, and how sure we are.

import probekit
train = probekit.cache_activations("bert-base-uncased", "sst2", "train")
dev = probekit.cache_activations("bert-base-uncased", "sst2", "dev")
result = probekit.probe(train, dev)
result.plot()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from probekit.version import VERSION as __version__  # noqa: F401

if TYPE_CHECKING:
    from probekit import explore, plots, report
    from probekit.activations import ActivationCache, cache_activations, inspect, verify
    from probekit.activations.certify import certify
    from probekit.activations.copying import copy_cache
    from probekit.activations.foreign.export import export
    from probekit.activations.foreign.importing import import_activations
    from probekit.adaptation.average import average
    from probekit.adaptation.evaluate import evaluate
    from probekit.adaptation.methods.merge import merge
    from probekit.adaptation.pretraining.pretrain import pretrain
    from probekit.adaptation.pretraining.pretrain_encoder import pretrain_encoder
    from probekit.adaptation.search.search import search
    from probekit.adaptation.train import train
    from probekit.analyses.choices import choices
    from probekit.analyses.comparison import compare, summary
    from probekit.analyses.domains import domains
    from probekit.analyses.edges import edges
    from probekit.analyses.ensemble import ensemble
    from probekit.analyses.geometry import geometry
    from probekit.analyses.glue import glue_score
    from probekit.analyses.guidelines import guidelines
    from probekit.analyses.mdl import mdl
    from probekit.analyses.mi import mi
    from probekit.analyses.movement import movement
    from probekit.analyses.new_task import new_task
    from probekit.analyses.pairs import pairs
    from probekit.analyses.places import places
    from probekit.analyses.probe import probe
    from probekit.analyses.scoreboard import scoreboard
    from probekit.analyses.shift import shift
    from probekit.analyses.similarity import similarity
    from probekit.analyses.streaming.stream import merge_streams, stream
    from probekit.analyses.structural import structural
    from probekit.analyses.transferability import transferability
    from probekit.demo import demo
    from probekit.domains.divergence import js_divergence
    from probekit.errors import ProbekitError
    from probekit.information import mutual_information
    from probekit.information.edge import edge
    from probekit.models import load_encoder
    from probekit.models.conversion import convert
    from probekit.models.new import new_encoder
    from probekit.models.sites.report import prove_sites
    from probekit.plots import plot
    from probekit.probes import LogisticPath, RidgePath
    from probekit.provenance.clean import clean
    from probekit.provenance.inventory import results
    from probekit.provenance.reproduce import reproduce
    from probekit.recipe import Recipe
    from probekit.rows import Result, read, read_rows, write_rows
    from probekit.studies.run import study
    from probekit.studies.suites.run import suite
    from probekit.tables import table
    from probekit.tasks import Example, Split, Task, load_task
    from probekit.tasks.check import check_task
    from probekit.tasks.write import write_tasks

__all__ = [
    "ActivationCache",
    "Example",
    "LogisticPath",
    "ProbekitError",
    "Recipe",
    "Result",
    "RidgePath",
    "Split",
    "Task",
    "average",
    "cache_activations",
    "certify",
    "check_task",
    "choices",
    "clean",
    "compare",
    "convert",
    "copy_cache",
    "demo",
    "domains",
    "edge",
    "edges",
    "ensemble",
    "evaluate",
    "explore",
    "export",
    "geometry",
    "glue_score",
    "guidelines",
    "import_activations",
    "inspect",
    "js_divergence",
    "load_encoder",
    "load_task",
    "mdl",
    "merge",
    "merge_streams",
    "mi",
    "movement",
    "mutual_information",
    "new_encoder",
    "new_task",
    "pairs",
    "places",
    "plot",
    "plots",
    "pretrain",
    "pretrain_encoder",
    "probe",
    "prove_sites",
    "read",
    "read_rows",
    "report",
    "reproduce",
    "results",
    "run",
    "scoreboard",
    "search",
    "shift",
    "similarity",
    "stream",
    "structural",
    "study",
    "suite",
    "summary",
    "table",
    "train",
    "transferability",
    "verify",
    "write_rows",
    "write_tasks",
]

_HOME = {
    "ActivationCache": "probekit.activations",
    "inspect": "probekit.activations",
    "verify": "probekit.activations",
    "copy_cache": "probekit.activations.copying",
    "js_divergence": "probekit.domains.divergence",
    "ProbekitError": "probekit.errors",
    "load_encoder": "probekit.models",
    "LogisticPath": "probekit.probes",
    "RidgePath": "probekit.probes",
    "glue_score": "probekit.analyses.glue",
    "edge": "probekit.information.edge",
    "mutual_information": "probekit.information",
    "Recipe": "probekit.recipe",
    "Result": "probekit.rows",
    "read": "probekit.rows",
    "read_rows": "probekit.rows",
    "clean": "probekit.provenance.clean",
    "reproduce": "probekit.provenance.reproduce",
    "results": "probekit.provenance.inventory",
    "write_rows": "probekit.rows",
    "merge_streams": "probekit.analyses.streaming.stream",
    "Example": "probekit.tasks",
    "Split": "probekit.tasks",
    "Task": "probekit.tasks",
    "check_task": "probekit.tasks.check",
    "new_task": "probekit.analyses.new_task",
    "load_task": "probekit.tasks",
    "write_tasks": "probekit.tasks.write",
}
"""The modules of public names that no recipe calls."""
PACKAGES = ("domains", "explore", "plots", "report", "similarity")
"""Public packages; those with the name of a public function can be called like it."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: ``import probekit`` imports neither torch nor pandas."""
    if name in PACKAGES:
        return import_module(f"probekit.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    from probekit.functions import FUNCTIONS, find

    if name in FUNCTIONS:
        return find(name)
    raise AttributeError(f"module 'probekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
