"""The public functions that recipes name: where they are, what they take, and values checked against that."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any

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
]


@dataclass(frozen=True, slots=True)
class Function:
    """A public function that can be run from a recipe.

    Attributes
    ----------
    place : str
        "module:name".
    writes : tuple of str
        The parameters that name what it writes. They are no part of what determines its numbers.
    rows : str
        Which of them names the rows that it leaves; "" where it leaves none.
    inside : str
        The file of the rows, where ``rows`` names a folder.
    always : tuple of str
        What it writes even where not asked to.
    """

    place: str
    writes: tuple[str, ...] = ("out",)
    rows: str = "out"
    inside: str = ""
    always: tuple[str, ...] = ()


FUNCTIONS: dict[str, Function] = {
    "cache_activations": Function("probekit.activations:cache_activations", rows="", always=("out",)),
    "certify": Function("probekit.activations.certify:certify", (), rows=""),
    "convert": Function("probekit.models.conversion:convert", rows=""),
    "probe": Function("probekit.analyses.probe:probe"),
    "mi": Function("probekit.analyses.information:mi"),
    "mdl": Function("probekit.analyses.mdl:mdl"),
    "compare": Function("probekit.analyses.comparison:compare"),
    "summary": Function("probekit.analyses.comparison:summary"),
    "domains": Function("probekit.analyses.domains:domains", ("out", "counts")),
    "train": Function("probekit.adaptation.train:train", ("out", "caches"), inside="rows.parquet", always=("caches",)),
    "evaluate": Function("probekit.adaptation.evaluate:evaluate", ("out", "caches"), always=("caches",)),
    "search": Function("probekit.adaptation.search.search:search", inside="rows.parquet"),
    "guidelines": Function("probekit.analyses.guidelines:guidelines"),
    "table": Function("probekit.tables:table", ("out", "rows_out"), "rows_out"),
    "plot": Function("probekit.plots:plot", rows=""),
    "report": Function("probekit.report:report", rows=""),
    "study": Function("probekit.studies.run:study", rows=""),
    "run": Function("probekit.studies.first_look:run", rows="", always=("out",)),
    "demo": Function("probekit.demo:demo", ("figures", "caches"), "figures", "layers.parquet", ("caches",)),
}
"""The closed table of what a recipe may name. The key is the public name: ``probekit.NAME`` and ``probekit NAME``."""

SILENT = ("progress", "wait", "watcher")
"""Parameters that are no part of a recipe."""

REPEATED: dict[str, tuple[str, ...]] = {
    "evaluate": ("task",),
    "plot": ("out", "summary", "names"),
    "report": ("figure", "text"),
    "study": ("model", "set_"),
}
"""Options that are given once for each value, not with commas."""


def find(name: str) -> Callable[..., Any]:
    """The public function of this name."""
    module, _, attribute = FUNCTIONS[name].place.partition(":")
    return typing.cast("Callable[..., Any]", getattr(import_module(module), attribute))


class _CallablePackage(ModuleType):
    """A package that is called like a public function, and can be called like it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return find(self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(find(self.__name__.rpartition(".")[2]))


def callable_package(name: str) -> None:
    """Let ``probekit.report(…)`` be the function although ``probekit.report`` is the package that holds it.

    Importing a package puts the module in the function's place; so the module takes calls.

    Parameters
    ----------
    name : str
        ``__name__`` of the package; its last part is a key of :data:`FUNCTIONS`.
    """
    sys.modules[name].__class__ = _CallablePackage


def parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a public function, its options among them."""
    return inspect.signature(find(name)).parameters


def is_numeric(known: Mapping[str, inspect.Parameter], name: str) -> bool:
    """Whether an argument has a part in the rows: all have but those that say how the work is done."""
    return name in known and name not in ("threads", "jobs", "workers", "device", "overwrite", "report_to")


def hints(name: str) -> dict[str, Any]:
    """The types that arguments are declared with, those of options among them."""
    function = find(name)
    bare = inspect.unwrap(function)
    told = {key: hint for key, hint in bare.__annotations__.items() if key != "return"}  # which may be imported late
    found = typing.get_type_hints(SimpleNamespace(__annotations__=told), vars(sys.modules[bare.__module__]))
    for kind in getattr(function, "options", {}).values():
        found |= typing.get_type_hints(kind)
    return found | {key: str | Path | None for key in parameters(name) if key == "out" and key not in found}


@lru_cache(maxsize=64)
def _adapters(name: str) -> dict[str, Any]:
    """What checks each argument, by parameter."""
    declared = hints(name)
    found = {}
    for key, p in parameters(name).items():
        if key not in SILENT:
            hint: Any = declared.get(key, Any)
            found[key] = _adapter(hint, many=p.kind is p.VAR_POSITIONAL)
    return found


def _adapter(hint: Any, *, many: bool) -> Any:
    """What checks one argument."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(arbitrary_types_allowed=True)
    own: Any = _checkable(hint)
    whole: Any = tuple.__class_getitem__((own, ...)) if many else own
    return TypeAdapter(whole, config=_config(own, config))


def _checkable(hint: Any) -> Any:
    """A type that values can be checked to be of: an object of a dataclass is one as it is, never made of a dict."""
    import pydantic

    instance: Any = pydantic.InstanceOf
    if typing.get_origin(hint) in (typing.Union, UnionType):
        members = [_checkable(one) for one in typing.get_args(hint) if not getattr(one, "_is_protocol", False)]
        return typing.Union[tuple(members)]  # noqa: UP007
    return instance[hint] if dataclasses.is_dataclass(hint) else hint


def _config(hint: Any, config: Any) -> Any:
    """pydantic takes no configuration for a type that has one of its own."""
    return None if dataclasses.is_dataclass(hint) else config


def takes_many(name: str, key: str) -> bool:
    """Whether an argument holds any number of values."""
    hint = hints(name).get(key)
    return any(
        typing.get_origin(h) is tuple and typing.get_args(h)[-1:] == (...,) for h in (hint, *typing.get_args(hint))
    )


def takes_commas(name: str, key: str) -> bool:
    """Whether texts hold several values of an argument, with commas."""
    return takes_many(name, key) and key not in REPEATED.get(name, ())


def typed(name: str, key: str, value: Any) -> Any:
    """A value as the type that an argument is declared with; UsageError where it is none."""
    from pydantic import ValidationError

    try:
        return _adapters(name)[key].validate_python(value)
    except ValidationError as error:
        shown = repr(value)
        shown = shown if len(shown) <= 100 else f"{shown[:100]} …"
        raise UsageError(f"{name}: {key} is {shown}; {error.errors()[0]['msg']}.") from None
