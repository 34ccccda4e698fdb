"""The public functions that recipes may call: their modules, parameters, and checks of argument values."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from probekit.analysis import modules
from probekit.constraint import WRITTEN, check, plain
from probekit.errors import UsageError

__all__ = [
    "FUNCTIONS",
    "REPEATED",
    "SILENT",
    "Function",
    "callable_package",
    "find",
    "hints",
    "is_numeric",
    "parameters",
    "takes_commas",
    "takes_many",
    "typed",
    "types_of",
    "writes",
]


@dataclass(frozen=True, slots=True)
class Function:
    """A public function that a recipe can call.

    Attributes
    ----------
    place : str
        "module:name".
    writes : tuple of str
        The parameters that name output files, besides those marked :data:`WRITTEN`. They do not affect its numbers.
    rows : str
        The one of them that names the output rows; "" if it writes none.
    inside : str
        The file of the rows, if ``rows`` names a folder.
    always : tuple of str
        The ones that it writes even if they are not given.
    """

    place: str
    writes: tuple[str, ...] = ("out",)
    rows: str = "out"
    inside: str = ""
    always: tuple[str, ...] = ()


FUNCTIONS: dict[str, Function] = {
    "cache_activations": Function("probekit.activations:cache_activations", rows="", always=("out",)),
    "certify": Function("probekit.activations.certify:certify", (), rows=""),
    "export": Function("probekit.activations.foreign.export:export", rows=""),
    "import_activations": Function(
        "probekit.activations.foreign.importing:import_activations", rows="", always=("out",)
    ),
    "prove_sites": Function("probekit.models.sites.report:prove_sites", (), rows=""),
    "convert": Function("probekit.models.conversion:convert", rows=""),
    "new_encoder": Function("probekit.models.new:new_encoder", rows="", always=("out",)),
    "scoreboard": Function("probekit.analyses.scoreboard:scoreboard"),
    "suite": Function("probekit.studies.suites.run:suite", rows=""),
    "train": Function("probekit.adaptation.train:train", ("out", "caches"), inside="rows.parquet", always=("caches",)),
    "pretrain": Function("probekit.adaptation.pretraining.pretrain:pretrain", inside="rows.parquet"),
    "pretrain_encoder": Function(
        "probekit.adaptation.pretraining.pretrain_encoder:pretrain_encoder", inside="rows.parquet"
    ),
    "evaluate": Function("probekit.adaptation.evaluate:evaluate", ("out", "caches"), always=("caches",)),
    "search": Function("probekit.adaptation.search.search:search", inside="rows.parquet"),
    "ensemble": Function("probekit.analyses.ensemble:ensemble"),
    "merge": Function("probekit.adaptation.methods.merge:merge", rows="", always=("out",)),
    "average": Function("probekit.adaptation.average:average", inside="rows.parquet"),
    "table": Function("probekit.tables:table", ("out", "rows_out"), "rows_out"),
    "plot": Function("probekit.plots:plot", rows=""),
    "report": Function("probekit.report:report", rows=""),
    "explore": Function("probekit.explore.build:explore", (), rows=""),
    "study": Function("probekit.studies.run:study", rows=""),
    "run": Function("probekit.studies.first_look:run", rows="", always=("out",)),
    "demo": Function("probekit.demo:demo", ("figures", "caches"), "figures", "layers.parquet", ("caches",)),
    **{name: Function(f"{module}:{name}") for name, module in modules().items()},
}
"""All functions that a recipe may call. The key is the public name: ``probekit.NAME`` and ``probekit NAME``."""

SILENT = ("progress", "wait", "watcher")
"""Parameters that recipes leave out."""

REPEATED: dict[str, tuple[str, ...]] = {
    "evaluate": ("task",),
    "scoreboard": ("groups",),
    "suite": ("model", "set_"),
    "plot": ("out", "summary", "names", "models", "variants"),
    "report": ("figure", "explore", "text"),
    "study": ("model", "set_"),
    "table": ("models", "variants"),
}
"""Options that are repeated for several values, instead of commas."""


def find(name: str) -> Callable[..., Any]:
    """The public function with this name."""
    module, _, attribute = FUNCTIONS[name].place.partition(":")
    return typing.cast("Callable[..., Any]", getattr(import_module(module), attribute))


class _CallablePackage(ModuleType):
    """A package with the name of a public function, which can be called like the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return find(self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(find(self.__name__.rpartition(".")[2]))


def callable_package(name: str) -> None:
    """Make ``probekit.report(…)`` call the function although ``probekit.report`` is a package.

    Importing a package puts the module in the function's place, so the module accepts calls.

    Parameters
    ----------
    name : str
        ``__name__`` of the package; its last part is a key of :data:`FUNCTIONS`.
    """
    sys.modules[name].__class__ = _CallablePackage


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a public function, including its options."""
    return inspect.signature(find(name)).parameters


def writes(name: str) -> tuple[str, ...]:
    """The parameters of a public function that name output files."""
    marked = (key for key, hint in hints(name).items() if WRITTEN in getattr(hint, "__metadata__", ()))
    return *FUNCTIONS[name].writes, *marked


def is_numeric(known: Mapping[str, inspect.Parameter], name: str) -> bool:
    """Whether an argument can affect the rows: all except those that control how the computation runs."""
    running = ("threads", "jobs", "workers", "device", "overwrite", "report_to", "patience", "backend", "scheduler")
    return name in known and name not in running


def hints(name: str) -> dict[str, Any]:
    """The declared types of a public function's arguments, including options."""
    return types_of(find(name))


class _Public(dict[str, Any]):
    """The public names, for annotations of modules that import the heavy ones only for the type checker."""

    def __missing__(self, name: str) -> Any:
        if name not in sys.modules["probekit"].__all__:
            raise KeyError(name)
        return getattr(sys.modules["probekit"], name)


class _Texts(_Public):
    """The same, for the command line, which takes texts where Python also takes objects: nothing is imported."""

    def __missing__(self, name: str) -> Any:
        return str if name in sys.modules["probekit"].__all__ else super().__missing__(name)


@lru_cache(maxsize=128)
def types_of(function: Callable[..., Any], *, objects: bool = True) -> dict[str, Any]:
    """The declared types of a function's arguments with their bounds, including options.

    Without ``objects`` those that a command line can give.
    """
    bare = inspect.unwrap(function)
    annotations = {
        key: hint for key, hint in bare.__annotations__.items() if key != "return"
    }  # a late import may define it
    where = vars(sys.modules[bare.__module__])
    found = typing.get_type_hints(
        SimpleNamespace(__annotations__=annotations), where, _Public() if objects else _Texts(), include_extras=True
    )
    for kind in getattr(function, "options", {}).values():
        found |= typing.get_type_hints(kind, include_extras=True)
    known = inspect.signature(function).parameters
    return found | {key: str | Path | None for key in known if key == "out" and key not in found}


def takes_many(name: str, key: str) -> bool:
    """Whether an argument takes any number of values."""
    hint = plain(hints(name).get(key))
    return any(
        typing.get_origin(h) is tuple and typing.get_args(h)[-1:] == (...,)
        for h in map(plain, (hint, *typing.get_args(hint)))
    )


def takes_commas(name: str, key: str) -> bool:
    """Whether an argument takes several values separated by commas."""
    return takes_many(name, key) and key not in REPEATED.get(name, ())


def typed(name: str, key: str, value: Any) -> Any:
    """A value converted to the declared type of an argument; raises UsageError if it does not fit."""
    hint = hints(name).get(key, Any)
    if parameters(name)[key].kind is inspect.Parameter.VAR_POSITIONAL:
        if not isinstance(value, list | tuple):
            raise UsageError(f"{key} is {value!r}; it must be a list.")
        return tuple(check(key, hint, one) for one in value)
    return check(key, hint, value, commas=key not in REPEATED.get(name, ()))
