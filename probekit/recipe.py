"""Recipes: the name of a public function and its arguments, as a value to store, show and run again.

    result = probekit.probe("cola.train.h5", "cola.dev.h5", folds=3)
    result.recipe.words()       # ["probekit", "probe", "cola.train.h5", "cola.dev.h5", "--folds", "3"]
    result.recipe.run()         # the same again

A command line and the same call in a notebook create the same recipe, a step of a study holds one, an evidence card
stores one, and ``probekit reproduce`` runs one. A command line can be made from a recipe, but is never parsed back.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from probekit.errors import UsageError, did_you_mean
from probekit.former import FORMER, LATER, renamed
from probekit.functions import FUNCTIONS, REPEATED, SILENT, find, is_numeric, outputs, parameters, rows_of, typed

Json = Any
"""None, a bool, a number, a string, or lists and string-keyed dicts of these."""


def option(default: Any, help: str, **metadata: Any) -> Any:
    """A field of a frozen dataclass of options, with its help text.

    Parameters
    ----------
    default : object
        Default value.
    help : str
        A sentence for ``--help``, with the unit if there is one.
    **metadata
        Further metadata, such as ``metavar``; ``needs`` names those options, separated by blanks, with one of which
        alone this one has an effect: "penalty", or "method=lora|dora" for some of its values.
    """
    return field(default=default, metadata={"help": help, **metadata})


def as_typed(value: Json) -> str:
    """A value of an option as the command line takes it: (-1.0, 0.1) is "-1,0.1"."""
    return ",".join(map(_word, value if isinstance(value, list | tuple) else [value]))


_CURRENT: ContextVar[Recipe | None] = ContextVar("recipe", default=None)


def current() -> Recipe | None:
    """The recipe of the running public function; of the outermost one if they are nested."""
    return _CURRENT.get()


@contextmanager
def making(recipe: Recipe) -> Iterator[None]:
    """Make :func:`current` return this recipe inside the block."""
    token = _CURRENT.set(_CURRENT.get() or recipe)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True)
class Read:
    """An input of an analysis: its path, kind, and the digest of its content.

    Attributes
    ----------
    path : str
        The path as given.
    kind : str
        "cache", "rows", "predictions", "run", "data", "slices", "corpus" or "model".
    digest : str
        Digest of what determines the numbers: the ``spec_id`` of a cache, xxh3 of a file's bytes.
    about : mapping
        Further information: the spec of a cache, and the recipe that creates it.
    """

    path: str
    kind: str
    digest: str
    about: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {"path": self.path, "kind": self.kind, "digest": self.digest, **self.about}


@dataclass(frozen=True)
class Recipe:
    """A public function's name and its arguments.

    Attributes
    ----------
    function : str
        A key of :data:`FUNCTIONS`.
    arguments : mapping
        The arguments that differ from their defaults, as JSON.
    defaults : mapping
        The other arguments, with the values at the time: a later version may have other defaults.
    leaves : mapping
        Output paths, by parameter.
    """

    function: str
    arguments: Mapping[str, Json]
    defaults: Mapping[str, Json] = field(default_factory=dict)
    leaves: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, function: str, arguments: Mapping[str, Any]) -> Recipe:
        """The recipe of a call with these arguments, by name; raises UsageError for an unknown name."""
        known = parameters(function)
        given: dict[str, Json] = {}
        for name, value in arguments.items():
            if name in SILENT:
                continue
            if name not in known:
                said = f"{function} has no parameter {name!r}; {did_you_mean(name, known, most=2)}"
                raise UsageError(renamed(function, name) or said)
            try:
                given[name] = as_json(value)
            except RecursionError:
                raise UsageError(f"{name} is a list within itself, or within too many lists.") from None
        plain = {name: as_json(p.default) for name, p in known.items() if p.default is not p.empty}
        plain |= {name: [] for name, p in known.items() if p.kind is p.VAR_POSITIONAL}
        written = outputs(function)
        leaves = {name: value for name, value in given.items() if name in written and value is not None}
        complete = {
            name: given.get(name, plain.get(name)) for name in known if name not in written and name not in SILENT
        }
        changed = {name: value for name, value in complete.items() if name not in plain or value != plain[name]}
        return cls(function, changed, {name: value for name, value in complete.items() if name not in changed}, leaves)

    def to_json(self) -> dict[str, Json]:
        """The recipe as stored in a card."""
        return {name: getattr(self, name) for name in ("function", "arguments", "defaults", "leaves")}

    @classmethod
    def from_json(cls, data: Any) -> Recipe:
        """The inverse of :meth:`to_json`, also for untrusted input; raises UsageError for anything else.

        Arguments that had another name in earlier versions get their new one.
        """
        try:
            name, parts = str(data["function"]), [dict(data.get(k) or {}) for k in ("arguments", "defaults", "leaves")]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"this is not a recipe ({error!r}).") from None
        if name not in FUNCTIONS:
            raise UsageError(f"there is no function {name!r}; expected one of {', '.join(FUNCTIONS)}.")
        known, written, former = parameters(name), outputs(name), FORMER.get(name, {})
        parts = [{k if k in known else former.get(k, k): v for k, v in part.items()} for part in parts]
        for part, inside in zip(parts, (False, False, True), strict=True):
            for key in part:
                if key not in known or (key in written) != inside or key in SILENT:
                    named = ", ".join(k for k in known if k not in SILENT)
                    raise UsageError(f"{name} has no parameter {key!r}; it has {named}.")
        arguments, defaults, leaves = parts
        if defaults:  # it has all parameters of its time
            lacking = LATER.keys() & known.keys() - arguments.keys() - defaults.keys()
            defaults |= {key: LATER[key] for key in lacking}
        return cls(name, arguments, defaults, leaves)

    def call(self) -> Callable[..., Any]:
        """The function."""
        return find(self.function)

    def run(self, **more: Any) -> Any:
        """Call the function with these arguments, each checked against its declared type.

        Parameters
        ----------
        **more
            Further arguments, such as ``progress``, or another ``out``.

        Raises
        ------
        UsageError
            If an argument has the wrong type, or was a Python object that JSON cannot represent.
        """
        return bound_call(self.function, {**self.defaults, **self.arguments, **self.leaves}, more)

    def check(self) -> None:
        """Raise UsageError if the function would not accept these arguments; nothing is called."""
        arguments = {**self.defaults, **self.arguments, **self.leaves}
        for key, p in parameters(self.function).items():
            if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and key not in arguments and key not in SILENT:
                raise UsageError(f"{self.function} needs {key}.")
        check_arguments(self.function, arguments)

    def identity(self, reads: Iterable[str] = ()) -> str:
        """xxh3 of everything that determines the numbers: function, arguments and digests of inputs.

        Output paths, and how the computation runs (threads, workers, device), are left out. Arguments have their first
        names, so that an identity outlives a change of names.
        """
        import xxhash

        known = parameters(self.function)
        first = {new: old for old, new in FORMER.get(self.function, {}).items()}
        given = {k: v for k, v in {**self.defaults, **self.arguments}.items() if v != LATER.get(k, self)}
        numeric = {first.get(k, k): v for k, v in given.items() if is_numeric(known, k)}
        content = ["recipe/1", self.function, dict(sorted(numeric.items())), sorted(reads)]
        return xxhash.xxh3_128_hexdigest(json.dumps(content, ensure_ascii=False).encode())

    def words(self) -> list[str]:
        """The equivalent command line."""
        known = parameters(self.function)
        words = ["probekit", self.function.replace("_", "-")]
        arguments = {**self.arguments, **self.leaves}
        for name, p in known.items():
            if name in arguments and p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                value = arguments[name]
                words += [_word(v) for v in (value if isinstance(value, list) else [value])]
        for name, p in known.items():
            if name in arguments and p.kind not in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                words += _option(name, arguments[name], repeat=name in REPEATED.get(self.function, ()))
        return words

    @property
    def is_command(self) -> bool:
        """Whether the command line can be typed: an argument that is a value in memory has no words."""
        return not any(
            isinstance(one, dict) for v in self.arguments.values() for one in (v if isinstance(v, list) else [v])
        )

    def __str__(self) -> str:
        return shlex.join(self.words())

    __hash__ = None  # type: ignore[assignment]  # contains dicts


def _option(name: str, value: Json, *, repeat: bool) -> list[str]:
    flag = f"--{name.rstrip('_').replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{flag[2:]}"]
    many = value if isinstance(value, list) else [value]
    given = map(_word, many) if repeat else [",".join(map(_word, many))]
    return [w for word in given for w in ([f"{flag}={word}"] if word.startswith("-") else [flag, word])]


def _word(value: Json) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def as_json(value: Any) -> Json:
    """An argument as JSON: by name or path if it has one; an object that JSON cannot represent, by its type only."""
    if value is None or (isinstance(value, bool | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return as_json(value.value)
    if isinstance(value, str | Path):
        return str(value)
    if hasattr(value, "__recipe__"):
        return value.__recipe__()
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [as_json(v) for v in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist") and getattr(value, "size", 1) <= 64:
        return as_json(value.tolist())
    return {"object": f"{type(value).__module__}.{type(value).__qualname__}"}


def bound_call(name: str, arguments: Mapping[str, Json], more: Mapping[str, Any]) -> Any:
    """Call a public function with JSON arguments by name, checking each."""
    known = parameters(name)
    positional: list[Any] = []
    keyword: dict[str, Any] = dict(more)
    for key, p in known.items():
        if key not in arguments or key in more:
            continue
        value = _checked(name, key, arguments[key], _made(arguments[key]))
        if p.kind is p.VAR_POSITIONAL:
            positional += value
        elif p.kind is p.POSITIONAL_ONLY:
            positional.append(value)
        else:
            keyword[key] = value
    return find(name)(*positional, **keyword)


def check_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError if a public function would not accept these arguments; it is not called.

    Checks names and types, the options' dataclasses, and nested recipes.
    """
    known, values = parameters(name), {}
    for key, value in arguments.items():
        if key not in known or key in SILENT:
            named = [k for k in known if k not in SILENT]
            said = f"{name} has no parameter {key!r}; {did_you_mean(key, named, most=2)}"
            raise UsageError(renamed(name, key) or said)
        inner = list(nested(value))
        for recipe in inner:
            _inner(recipe).check()
        if not inner:
            values[key] = _checked(name, key, value, value)
    for kind in getattr(find(name), "options", {}).values():
        fields = {f.name for f in dataclasses.fields(kind)}
        kind(**{key: value for key, value in values.items() if key in fields})


def nested(value: Json) -> Iterator[Json]:
    """The recipes in an argument, in place of results."""
    if isinstance(value, dict) and set(value) == {"recipe"}:
        yield value["recipe"]
    elif isinstance(value, list):
        for item in value:
            yield from nested(item)


def _checked(name: str, key: str, source: Json, value: Any) -> Any:
    """The value of an argument, converted to its declared type."""
    if (lost := _object_in(source)) is not None:
        raise UsageError(
            f"{key} of {name} was a Python object ({lost}), which a recipe cannot represent; save it to a file and "
            "pass its path."
        )
    return typed(name, key, value)


def _object_in(value: Json) -> str | None:
    if isinstance(value, dict):
        return (
            value["object"] if set(value) == {"object"} else next(filter(None, map(_object_in, value.values())), None)
        )
    return next(filter(None, map(_object_in, value)), None) if isinstance(value, list) else None


def _made(value: Json) -> Any:
    """The results of nested recipes (for results without a file). They write nothing."""
    if isinstance(value, dict) and set(value) == {"recipe"}:
        return _inner(value["recipe"]).run()
    return [_made(v) for v in value] if isinstance(value, list) else value


def _inner(data: Json) -> Recipe:
    """A recipe in place of a result; it writes nothing."""
    inner = Recipe.from_json(data)
    always = any(mark.always for mark in outputs(inner.function).values())
    if rows_of(inner.function) != ("out", "") or always:
        raise UsageError(f"{inner.function} does not return a result that another function accepts.")
    return dataclasses.replace(inner, leaves={})
