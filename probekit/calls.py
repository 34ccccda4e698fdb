"""How public functions are called: every argument is checked and converted by its declared type, options by name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from textwrap import wrap
from typing import Any, TypeVar, cast, get_type_hints

from probekit.constraint import check, spelled
from probekit.errors import UsageError, did_you_mean
from probekit.former import renamed
from probekit.functions import REPEATED, SILENT, types_of
from probekit.progress import HELP, reported
from probekit.recipe import as_json

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F) -> F:
    """Let a function without options and recipe check its arguments as all others do."""
    return cast("F", keywords()(function))


def keywords(**options: type) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let a function take the fields of its options as keyword arguments, as :func:`public` does; no recipe is made."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        flat = flattened(inspect.signature(function), options, saves=False)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            bound = bind(function.__name__, flat, args, spread(kwargs, options))
            bound.arguments = fitting(call, function.__name__, flat, bound.arguments)
            bound.apply_defaults()
            given = dict(bound.arguments)
            groups = {part: kind(**{k: given.pop(k) for k in fields_of(kind)}) for part, kind in options.items()}
            positional, keyword = split(flat, given)
            with reported(keyword):
                return function(*positional, **keyword, **groups)

        call.__doc__ = documented(function.__doc__ or "", flat, options)
        vars(call).update(__signature__=flat, options=options)
        return call

    return decorate


def documented(doc: str, flat: inspect.Signature, options: Mapping[str, type]) -> str:
    """A numpydoc docstring with each option among the parameters, described by its help."""
    lines = inspect.cleandoc(doc).split("\n")
    if "Parameters" not in lines:
        return doc
    start = lines.index("Parameters") + 2
    heads = [i for i in range(start, len(lines) - 1) if re.fullmatch("-{4,}", lines[i + 1])]
    end = heads[0] if heads else len(lines)
    entries: list[list[str]] = []
    for line in lines[start:end]:
        if line and not line.startswith(" "):
            entries.append([line])
        elif line:
            entries[-1].append(line)
    entries = [entry for entry in entries if entry[0].partition(" :")[0] not in options]
    for kind in options.values():
        entries += [_entry(f, flat) for f in dataclasses.fields(kind)]
    if "out" in flat.parameters and not any(entry[0].startswith("out") for entry in entries):
        entries.append(["out : path, optional", "    File for the result: ``ROWS.parquet`` or ``ROWS.csv``."])
    for entry in entries:
        if entry[0].startswith("progress :"):
            entry[:] = ["progress : callable or bool, optional", *(f"    {line}" for line in wrap(HELP, 110))]
    order = {name: i for i, name in enumerate(flat.parameters)}
    entries.sort(key=lambda entry: order.get(re.split(r"[ ,]", entry[0].lstrip("*"))[0], len(order)))
    documented = [line for entry in entries for line in entry]
    return "\n".join([*lines[:start], *documented, *([""] if heads else []), *lines[end:]])


def _entry(f: dataclasses.Field[Any], flat: inspect.Signature) -> list[str]:
    """An option in numpydoc format; its help names options as in Python: ``shard_size`` for --shard-size."""
    p = flat.parameters[f.name]
    names = "|".join(sorted((name.strip("_").replace("_", "-") for name in flat.parameters), key=len, reverse=True))
    text = f.metadata.get("help", "")
    text = re.sub(rf"(?<![\w-])--({names})(?![\w-])", lambda found: f"``{found[1].replace('-', '_')}``", text)
    kind = str(p.annotation).removesuffix(" | None")
    default = "optional" if p.default is None else "" if p.default is p.empty else f"default {as_json(p.default)!r}"
    return [f"{f.name} : {', '.join(filter(None, (kind, default)))}", f"    {text}"]


def fields_of(kind: type) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def flattened(signature: inspect.Signature, options: Mapping[str, type], *, saves: bool) -> inspect.Signature:
    """The function's signature, with its options replaced by their fields."""
    P = inspect.Parameter
    found = [p for p in signature.parameters.values() if p.name not in options and p.kind is not P.VAR_KEYWORD]
    for kind in options.values():
        hints = get_type_hints(kind, include_extras=True)
        for f in dataclasses.fields(kind):
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            default = P.empty if default is dataclasses.MISSING else default
            found.append(P(f.name, P.KEYWORD_ONLY, default=default, annotation=spelled(hints[f.name])))
    if saves:
        found.append(P("out", P.KEYWORD_ONLY, default=None, annotation="str | Path | None"))
    return signature.replace(parameters=sorted(found, key=lambda p: p.kind))


def spread(kwargs: Mapping[str, Any], options: Mapping[str, type]) -> dict[str, Any]:
    """Keyword arguments with ``options=ProbeOptions(…)`` replaced by its fields."""
    given: dict[str, Any] = {}
    for key, value in kwargs.items():
        if key in options and isinstance(value, options[key]):
            given |= {k: getattr(value, k) for k in fields_of(options[key])}
        else:
            given[key] = value
    return given


def bind(called: str, flat: inspect.Signature, args: Sequence[Any], given: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call by name; those that have no name in a call may be named: ``probe(train=…, dev=…)``.

    Raises UsageError for unknown, missing and surplus ones.
    """
    P, known = inspect.Parameter, flat.parameters
    for name in given:
        if name not in known:
            said = f"{called} has no parameter {name!r}; {did_you_mean(name, known, most=2)}"
            raise UsageError(renamed(called, name) or said)
    places = [p for p in known.values() if p.kind in (P.POSITIONAL_ONLY, P.VAR_POSITIONAL)]
    named = {p.name: given[p.name] for p in places if p.name in given}
    places_given, rest = list(args), {name: value for name, value in given.items() if name not in named}
    for i, p in enumerate(places):
        if p.name in named and p.kind is P.POSITIONAL_ONLY and i == len(places_given):
            places_given.append(named.pop(p.name))
        elif p.name in named and p.kind is P.VAR_POSITIONAL and i == len(places_given):
            more = named.pop(p.name)
            places_given += more if isinstance(more, list | tuple) else [more]
    try:
        if named:
            raise TypeError(f"{next(iter(named))} is given twice, or one before it is missing")
        return flat.bind(*places_given, **rest)
    except TypeError as error:
        usage = ", ".join(f"*{p.name}" if p.kind is P.VAR_POSITIONAL else p.name for p in places)
        raise UsageError(f"{called}: {error}; call it as {called}({usage}{', ' * bool(usage)}…).") from None


def fitting(
    function: Callable[..., Any], called: str, flat: inspect.Signature, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments, each checked and converted by its declared type."""
    hints, repeated, found = types_of(function), REPEATED.get(called, ()), dict(given)
    for name, value in given.items():
        p = flat.parameters[name]
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            values = value[0] if len(value) == 1 and isinstance(value[0], list | tuple) else value
            found[name] = tuple(check(name, hints.get(name, Any), one) for one in values)
        elif value is not p.default and name not in SILENT and p.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = check(name, hints.get(name, Any), value, commas=name not in repeated)
    return found


def split(signature: inspect.Signature, passed: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for the original function."""
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for key, value in passed.items():
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional += value
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            keyword[key] = value
        else:
            positional.append(value)
    return positional, keyword
