"""What a value may be stands in its annotation: one check serves Python, the command line, TOML and recipes.

    @dataclass(frozen=True, slots=True)
    class ProbeOptions(Checked):
        folds: Annotated[int, Ge(2)] = option(5, "Folds of train.")
        level: Share = option(0.95, "Coverage of the intervals.")

        def together(self) -> None:
            ...                     # what no annotation can say, such as two options that exclude each other

``ProbeOptions(folds="3")`` and ``probekit.probe(…, folds=1)`` raise UsageError in words. A single value, an array or
any other iterable is taken where a list is declared, and a text is split at its commas, as on the command line.
"""

from __future__ import annotations

import collections.abc as abc
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache
from inspect import isclass, isfunction
from itertools import islice
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from probekit.errors import UsageError, close_names


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a number; the parser of the command line and pydantic would check those of ``annotated_types``
    themselves, with other messages.
    """

    bound: float


class Ge(Bound):
    """At least this."""


class Gt(Bound):
    """Above this."""


class Le(Bound):
    """At most this."""


class Lt(Bound):
    """Below this."""


class Most(Bound):
    """At most this, since more could not be held or would take years; it is said only of larger numbers."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a message calls such values, instead of their bounds."""

    words: str


@dataclass(frozen=True, slots=True)
class MinLen:
    """At least so many values."""

    least: int


@dataclass(frozen=True, slots=True)
class OrZero:
    """At least ``least``, or 0 for ``none`` of them."""

    least: int
    none: str


@dataclass(frozen=True, slots=True)
class Into:
    """Converts a value, or raises UsageError."""

    convert: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Joined:
    """Several values stand in one text, with this between them."""

    by: str


@dataclass(frozen=True, slots=True)
class Written:
    """Beside the type of an argument that names an output: a file, or a folder.

    Attributes
    ----------
    rows : bool
        Whether it is that of the rows.
    inside : str
        The file of the rows, if it is a folder with them.
    always : bool
        Whether it is written even if it is not given.
    """

    rows: bool = False
    inside: str = ""
    always: bool = False


OR_VALUE = "or a value of probekit"
"""Beside a text, a value in memory that a recipe knows, such as a Task; the command line does not."""
WRITTEN = Written()
FILE = "on this machine"
"""Beside the type of an argument that names a file or folder, which a shell completes."""
File = Annotated[str | Path, FILE]
Out = Annotated[File, WRITTEN]
"""An output."""
MadeOut = Annotated[File, Written(always=True)]
"""One that is written even if it is not given."""
RunOut = Annotated[File, Written(inside="rows.parquet")]
"""The folder of a run, with its rows."""
Commas = Annotated[str, Joined(",")]
Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Size = Annotated[int, Ge(1), Most(1_000_000)]
"""Of something that is in memory at once."""
Threads = Annotated[int, Ge(1), Most(1024)]
Seed = Annotated[int, Ge(0), Le((1 << 32) - 1), Said(f"a seed, a whole number from 0 to {(1 << 32) - 1}")]
"""A seed that numpy's and torch's generators take."""
Draws = Annotated[int, Ge(0), Most(10_000)]
"""How often something is fitted again to labels that mean nothing."""
Share = Annotated[float, Gt(0), Lt(1)]
Part = Annotated[float, Ge(0), Lt(1)]
"""A share that may be nothing, such as dropout."""
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
MOST_DRAWS = 1_000_000
"""How often numbers that are there are drawn or permuted again, at most."""

LARGEST = (1 << 63) - 1
"""No number of anything is larger."""
MANIEST = 1_000_000
"""No list of arguments is longer."""
BOUNDS = {Most: operator.le, Ge: operator.ge, Gt: operator.gt, Le: operator.le, Lt: operator.lt}
MANY = (tuple, list, abc.Sequence, abc.Iterable, abc.Collection)


class Unfit(Exception):
    """A value does not fit a type; the message ends the sentence, ``near`` if its type would fit."""

    def __init__(self, message: str, *, near: bool = False) -> None:
        super().__init__(message)
        self.near = near


class TooLarge(Unfit):
    """A whole number that no computer counts to."""


class Checked:
    """A frozen dataclass whose values are checked against their annotations, and converted, when it is created.

    After that, an option that has no effect without another one (``needs`` of :func:`~probekit.recipe.option`) is
    refused, and ``together`` of each class is called, those of base classes first; it may be left out.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        kind: Any = type(self)
        hints = _hints(kind)
        for f in fields(self):  # type: ignore[arg-type]
            if (value := getattr(self, f.name)) is not f.default:
                object.__setattr__(self, f.name, check(f.name, hints[f.name], value))
        for f in fields(self):  # type: ignore[arg-type]
            if "needs" in f.metadata and (value := getattr(self, f.name)) != f.default:
                _check_needed(self, f.name, value, f.metadata["needs"].split())
        for base in reversed(kind.__mro__):
            if "together" in vars(base):
                vars(base)["together"](self)


def _check_needed(options: Any, name: str, value: Any, needed: Sequence[str]) -> None:
    """Raise UsageError if none of the options holds with which alone this one has an effect."""
    pairs = [(key, values.split("|") if values else []) for key, _, values in (one.partition("=") for one in needed)]
    if not any(str(getattr(options, key)) in values if values else getattr(options, key) for key, values in pairs):
        what = " or ".join(f"{key} {' or '.join(values)}".strip() for key, values in pairs)
        shown = os.fspath(value) if isinstance(value, os.PathLike) else _shown(value)
        raise UsageError(f"{name} is {shown}, which has an effect only with {what}; give that, too, or leave it out.")


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def check(name: str, hint: Any, value: Any, *, commas: bool = True) -> Any:
    """A value converted to a type.

    Parameters
    ----------
    name
        The argument, for the message.
    hint
        The type, perhaps with bounds of this module.
    value
        Anything.
    commas
        Whether a text is split at its commas where a list is declared.

    Raises
    ------
    UsageError
        If it does not fit.

    Examples
    --------
    >>> check("folds", Annotated[int, Ge(2)], 5), check("penalties", tuple[Positive, ...], 0.1)
    (5, (0.1,))
    >>> check("folds", Annotated[int, Ge(2)], 1)
    Traceback (most recent call last):
    probekit.errors.UsageError: folds is 1; it must be 2 or more.
    >>> check("folds", int | None, "3")
    Traceback (most recent call last):
    probekit.errors.UsageError: folds is '3'; it must be a whole number.
    """
    try:
        return _fit(hint, value, commas)
    except Unfit as unfit:
        raise UsageError(f"{name} is {_shown(value)}; {unfit}") from None


def _fit(hint: Any, value: Any, commas: bool) -> Any:
    """The value as this type; raises Unfit."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin is Annotated:
        if OR_VALUE in hint.__metadata__ and hasattr(value, "__recipe__"):
            return value
        joined = next((rule for rule in hint.__metadata__ if isinstance(rule, Joined)), None)
        if joined and isinstance(value, Iterable) and not isinstance(value, str):
            return joined.by.join(map(str, _many(tuple[int | str, ...], value, commas=False)))
        try:
            return _bounded(hint, _fit(args[0], value, commas))
        except TooLarge:
            rules = [rule for rule in hint.__metadata__ if type(rule) in (Most, Le, Lt)]
            if not rules:
                raise
            raise Unfit(_wanted(hint, rules[0]), near=True) from None
    if origin in (Union, UnionType):
        return _one_of(args, value, commas)
    if origin is Literal:
        return _member(value, args)
    if origin in MANY:
        return _many(hint, value, commas)
    kind = origin or hint
    if kind in SIMPLE:
        return SIMPLE[kind](value)
    if isclass(kind) and issubclass(kind, Enum):
        return value if isinstance(value, kind) else _enum(kind, value)
    if getattr(kind, "_is_protocol", False):
        if not isclass(value) and all(hasattr(value, name) for name in _methods(kind)):
            return value
    elif isclass(kind) and isinstance(value, kind):
        return value
    raise Unfit(f"it must be {described(hint)}.")


@lru_cache(maxsize=64)
def _methods(protocol: Any) -> tuple[str, ...]:
    """The methods that a protocol wants."""
    return tuple(
        name
        for kind in protocol.__mro__
        for name, one in vars(kind).items()
        if isfunction(one) and name not in ("__init__", "__subclasshook__")
    )


def _one_of(hints: Sequence[Any], value: Any, commas: bool) -> Any:
    """The value as the first type that it fits; its own type comes first, but a text that can be a list becomes one."""
    many = [hint for hint in hints if get_origin(plain(hint)) in MANY]
    first = [hint for hint in many if get_origin(plain(hint)) is tuple and Path not in hints]  # a path may have commas
    own = [hint for hint in hints if hint is type(value)]
    tried = dict.fromkeys((*first, *own, *hints) if isinstance(value, str) else (*own, *hints))
    unfit = []
    for hint in tried:
        try:
            return _fit(hint, value, commas)
        except Unfit as error:
            unfit.append(error.with_traceback(None))  # else the caller's frame, and all it holds, lives in a cycle
    near = [error for error in unfit if error.near]
    raise near[0] if near else Unfit(f"it must be {described(Union[tuple(hints)])}.")  # noqa: UP007


def _bounded(hint: Any, value: Any) -> Any:
    """The value, converted and within the bounds of an annotation; None passes."""
    for rule in hint.__metadata__:
        if isinstance(rule, Into) and value is not None:
            value = rule.convert(value)
        if isinstance(rule, OrZero) and isinstance(value, int) and 0 != value < rule.least:
            raise Unfit(f"it must be {rule.least} or more, or 0 for {rule.none}.", near=True)
        if isinstance(rule, MinLen) and value is not None and len(value) < rule.least:
            raise Unfit(f"name {described(get_args(plain(hint))[0])}, one or more.", near=True)
        holds = BOUNDS.get(type(rule))
        if holds is not None and isinstance(value, int | float) and not holds(value, rule.bound):
            raise Unfit(_wanted(hint, rule), near=True)
    return value


def _many(hint: Any, value: Any, commas: bool) -> tuple[Any, ...]:
    """A list, or one value in its place, as a tuple."""
    items = get_args(hint)
    if value is None:
        raise Unfit(f"it must be {described(hint)}.")
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")] if commas and value else [value] if value else []
    elif type(value).__module__.partition(".")[0] in ("numpy", "pandas") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping) and items[0] is str:
        value = [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, list | tuple) and items[0] is str:  # pairs of names may stand in lists of their own
        value = [one for part in value for one in (part if isinstance(part, list | tuple) else [part])]
    single = not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | os.PathLike)
    value = [value] if single else _listed(value)
    if len(items) > 1 and items[1] is not Ellipsis:
        if not isinstance(value, Sequence) or len(value) != len(items):
            raise Unfit(f"it must be {described(hint)}.")
        return tuple(_fit(item, one, commas) for item, one in zip(items, value, strict=True))
    return tuple(_item(items[0], one, alone=len(value) == 1) for one in value)


def _listed(values: Iterable[Any]) -> list[Any]:
    """The values, of which an iterator may have without end."""
    try:
        found = list(islice(values, MANIEST + 1))
    except Exception:  # of a stranger's object
        raise Unfit("it cannot be listed.") from None
    if len(found) > MANIEST:
        raise Unfit(f"it has more than {MANIEST:,} values.", near=True)
    return found


def _item(hint: Any, value: Any, *, alone: bool) -> Any:
    """One of several values."""
    try:
        return _fit(hint, value, commas=False)
    except Unfit as unfit:
        raise unfit if alone else Unfit(f"{_shown(value)} does not fit: {unfit}", near=unfit.near) from None


def _whole(value: Any) -> int:
    """A whole number, also one of numpy's, or a number such as 3.0."""
    if not isinstance(value, bool | str) and type(value).__name__ not in ("bool_", "bool"):
        number = value.item() if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1 else value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, int) and not isinstance(number, bool):
            if abs(number) > LARGEST:
                raise TooLarge(f"it must be at most {LARGEST:,}." if number > 0 else "it is too small.", near=True)
            return int(number)
    raise Unfit("it must be a whole number.")


def _real(value: Any) -> float:
    """A finite number, also one of numpy's."""
    number = value.item() if type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1 else value
    if isinstance(number, int | float) and not isinstance(number, bool):
        try:
            if isfinite(number):
                return float(number)
        except OverflowError:
            pass
        raise Unfit("it must be a finite number.", near=True)
    raise Unfit("it must be a number.")


def _text(value: Any) -> str:
    """A text; a path is one, too."""
    if isinstance(value, str) and not isinstance(value, Enum):
        if "\0" in value:
            raise Unfit("no text here contains a NUL character.", near=True)
        _encoded(value)
        return value if type(value) is str else str(value)
    if isinstance(value, Enum) and isinstance(value.value, str):
        return value.value
    if isinstance(value, os.PathLike):
        return str(_path(value))
    raise Unfit("it must be a text.")


def _encoded(text: str) -> None:
    """Raise Unfit for half of a character, which no file can hold; a name of a file that is no UTF-8 is a text."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Unfit("it holds half of a character (a surrogate), which cannot be written.", near=True) from None


def _path(value: Any) -> Path:
    if isinstance(value, str | os.PathLike) and not isinstance(value, bytes):
        where = os.fspath(value)
        if isinstance(where, str):
            if "\0" in where:
                raise Unfit("no path contains a NUL character.", near=True)
            _encoded(where)
            return value if isinstance(value, Path) else Path(where)
    raise Unfit("it must be a path.")


def _truth(value: Any) -> bool:
    if isinstance(value, bool) or (type(value).__module__ == "numpy" and type(value).__name__ in ("bool_", "bool")):
        return bool(value)
    raise Unfit("it must be true or false.")


def _none(value: Any) -> None:
    if value is not None:
        raise Unfit("it must be left out.")


def _callable(value: Any) -> Any:
    if not callable(value):
        raise Unfit("it must be a function.")
    return value


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit("it must be a dict.")
    return value


SIMPLE: dict[Any, Any] = {
    int: _whole, float: _real, str: _text, bool: _truth, Path: _path, NoneType: _none, None: _none,
    abc.Callable: _callable, abc.Mapping: _mapping, dict: _mapping,
}  # fmt: skip
WORDS = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path", NoneType: "None",
    abc.Callable: "a function", abc.Mapping: "a dict", dict: "a dict",
}  # fmt: skip


def _member(value: Any, known: Sequence[Any]) -> Any:
    """The one of these values that this is."""
    text = value.value if isinstance(value, Enum) else value
    if isinstance(text, str) and text in known:
        return text
    if isinstance(text, str):
        close = close_names(text, map(str, known))
        raise Unfit(
            f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(map(str, known))}.", near=True
        )
    raise Unfit(f"it must be {_or(list(map(str, known)))}.")


def _enum(kind: Any, value: Any) -> Any:
    """The member of an enum; some have short names."""
    if isinstance(value, str | int):
        with suppress(ValueError):
            return kind(value)
    return kind(_member(value, [member.value for member in kind]))


def _wanted(hint: Any, rule: Any) -> str:
    """What a bound that does not hold wants."""
    words = _range([("le", rule.bound)]) if isinstance(rule, Most) else _said(hint) or _range(_rules(hint))
    return f"it must be {words}."


def _said(hint: Any) -> str:
    return next((rule.words for rule in hint.__metadata__ if isinstance(rule, Said)), "")


def _rules(hint: Any) -> list[tuple[str, float]]:
    """The bounds of an annotation, as names and numbers."""
    return [(type(rule).__name__.lower(), rule.bound) for rule in hint.__metadata__ if type(rule) in (Ge, Gt, Le, Lt)]


def _range(rules: Sequence[tuple[str, float]]) -> str:
    """Bounds in words: "2 or more", "from 0 to below 1"."""
    bounds = {name: f"{value:,}" if isinstance(value, int) else f"{value:g}" for name, value in rules}
    match sorted(bounds):
        case ["ge"]:
            return f"{bounds['ge']} or more"
        case ["gt"]:
            return f"above {bounds['gt']}"
        case ["gt", "lt"]:
            return f"between {bounds['gt']} and {bounds['lt']}"
        case ["ge", "le"]:
            return f"from {bounds['ge']} to {bounds['le']}"
        case ["ge", "lt"]:
            return f"from {bounds['ge']} to below {bounds['lt']}"
        case ["gt", "le"]:
            return f"above {bounds['gt']}, at most {bounds['le']}"
        case ["le"]:
            return f"at most {bounds['le']}"
    return f"below {bounds['lt']}"


def described(hint: Any) -> str:
    """A type in words, for the end of "it must be"."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        words, rules = described(args[0]), _rules(hint)
        if _said(hint):
            return _said(hint)
        return f"{words}{', ' if ',' in words else ' '}{_range(rules)}" if rules else words
    if origin in (Union, UnionType):
        members = [arg for arg in args if arg is not NoneType and not (arg is str and Path in args)]
        return _or(list(dict.fromkeys(map(described, members))))
    if origin is Literal:
        return _or(list(map(str, args)))
    if origin in MANY:
        if len(args) > 1 and args[1] is not Ellipsis:
            return f"{len(args)} values, {' and '.join(map(described, args))}"
        return f"{described(args[0])}, or several" if args else "a list"
    kind = origin or hint
    if kind in WORDS:
        return WORDS[kind]
    if isclass(kind) and issubclass(kind, Enum):
        return _or([str(member.value) for member in kind])
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _or(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _shown(value: Any) -> str:
    """A value in a message, at most 100 characters."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a number of {int(value.bit_length() * 0.30103) + 1:,} digits"
    try:
        if isinstance(value, Enum):
            value = value.value
        text = "empty" if isinstance(value, str | list | tuple) and not value else repr(value)
    except Exception:  # of a stranger's object, or of a list of numbers with thousands of digits
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 100 else f"{text[:100]} …"


def as_array(name: str, value: Any, dtype: Any = None) -> Any:
    """A value as numpy reads it; raises UsageError for what is no array, such as rows of several lengths."""
    import numpy as np

    try:
        if not hasattr(value, "__array__") and hasattr(value, "__len__") and len(value) > 1 << 31:
            raise OverflowError
        return np.asarray(value, dtype)
    except Exception:  # numpy raises ValueError, TypeError, OverflowError …, and what a stranger's object raises
        raise UsageError(f"{name} is {_shown(value)}; it must be an array of numbers.") from None


def plain(hint: Any) -> Any:
    """A type without its bounds."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def spelled(hint: Any) -> str:
    """A type as documentation writes it, without bounds and the names of modules."""
    hint = plain(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " | ".join(map(spelled, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if args:
        inner = ", ".join("..." if arg is Ellipsis else spelled(arg) for arg in args)
        return f"{getattr(origin, '__name__', origin)}[{inner}]"
    return "None" if hint is NoneType else getattr(hint, "__name__", str(hint))
