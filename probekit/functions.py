"""The public functions that recipes may call: their modules, parameters, and checks of argument values."""

from __future__ import annotations

import inspect
import sys
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from probekit.analysis import load, modules
from probekit.constraint import Written, check, plain
from probekit.errors import UsageError
from probekit.heads import Names, head, hint
from probekit.plugins import public

MODULES = {**public(), "explore": "probekit.explore.build", "report": "probekit.report.build", **modules()}
"""The module of each public function, by name."""
FUNCTIONS: dict[str, str] = {
    name: MODULES[name]
    for name in (
        "cache_activations", "certify", "export", "import_activations", "import_probe", "prove_sites", "convert",
        "new_encoder", "suite", "train", "pretrain", "pretrain_encoder", "evaluate",
        "search", "merge", "average", "table", "plot", "report", "explore", "study", "run", "demo",
        *modules(),
    )
}  # fmt: skip
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


def place_of(name: str) -> str:
    """Where the public function with this name is: "module:name"."""
    return f"{FUNCTIONS.get(name) or MODULES[name]}:{name}"


def find(name: str) -> Callable[..., Any]:
    """The public function with this name."""
    return typing.cast("Callable[..., Any]", load(place_of(name)))


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


@lru_cache(maxsize=128)
def _outputs(place: str) -> Mapping[str, Written]:
    """The marks of the function "module:name"; that of an ``out`` that :func:`probekit.public.public` adds, too."""
    function = head(place)
    bare = inspect.unwrap(function)
    declared = {name: hint(function, name) for name in bare.__annotations__ if name not in (*SILENT, "return")}
    for kind in getattr(function, "options", {}).values():
        declared |= typing.get_type_hints(kind, include_extras=True)
    implicit = "out" in inspect.signature(function).parameters and "out" not in declared
    found = {"out": Written(rows=True)} if implicit else {}
    for name, kind in declared.items():
        marks = [mark for one in (kind, *typing.get_args(kind)) for mark in getattr(one, "__metadata__", ())]
        if mark := next((mark for mark in marks if isinstance(mark, Written)), None):
            found[name] = mark
    return found


def outputs(name: str) -> Mapping[str, Written]:
    """The parameters of a public function that name what it writes. They do not affect its numbers."""
    return _outputs(place_of(name))


def rows_of(name: str) -> tuple[str, str]:
    """The parameter that names the output rows, and their file if it is a folder; "" if there are none."""
    return next(((key, mark.inside) for key, mark in outputs(name).items() if mark.rows or mark.inside), ("", ""))


def is_numeric(known: Mapping[str, inspect.Parameter], name: str) -> bool:
    """Whether an argument can affect the rows: all except those that control how the computation runs."""
    running = ("threads", "jobs", "workers", "device", "overwrite", "report_to", "patience", "backend", "scheduler")
    return name in known and name not in running


def hints(name: str) -> dict[str, Any]:
    """The declared types of a public function's arguments, including options."""
    return types_of(find(name))


@lru_cache(maxsize=128)
def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The declared types of a function's arguments with their bounds, including options."""
    bare = inspect.unwrap(function)
    annotations = {
        key: hint for key, hint in bare.__annotations__.items() if key != "return"
    }  # a late import may define it
    where = vars(sys.modules[bare.__module__])
    names = ChainMap(where, Names(bare.__module__))
    found = typing.get_type_hints(SimpleNamespace(__annotations__=annotations), where, names, include_extras=True)
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
