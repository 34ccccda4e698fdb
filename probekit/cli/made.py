"""Commands made of public functions: their arguments, their help and their examples are the function's own."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from probekit.analysis import Analysis, Reads, analyses
from probekit.calls import fields_of, spread
from probekit.cli.show import saved, say
from probekit.constraint import FILE, MANY, plain
from probekit.functions import FUNCTIONS, SILENT, find, outputs, place_of
from probekit.grid import Format
from probekit.heads import head, hint

P = inspect.Parameter
OUT = (
    "Write the rows (.parquet or .csv), with an evidence card (.json), and the predictions on each example, if it has "
    "any (.examples.parquet), next to them."
)


def __getattr__(name: str) -> Made:
    """The command of the analysis or function with this name: "probekit.cli.made:NAME"."""
    if name not in FUNCTIONS:
        raise AttributeError(name)
    return Made(name, partial(show, analyses()[name]) if name in analyses() else say)


@dataclass(frozen=True, slots=True)
class Made:
    """A command made of a public function: it has the function's arguments, options and docstring.

    Attributes
    ----------
    name : str
        The function's name.
    then : callable
        What is done with the result: it prints, and may return an exit status. Its keyword-only parameters are
        arguments of the command, and those that the function lacks further options, described in its docstring.
    instead : bool
        Whether ``then`` gets the arguments, and does the work as well.
    """

    name: str
    then: Callable[..., Any]
    instead: bool = False

    def command(self) -> Callable[..., Any]:
        """The command, with the signature and the docstring that the parser reads."""
        function, then = head(place_of(self.name)), getattr(self.then, "func", self.then)
        known = _arguments(function)
        names = {p.name for p in known}
        taken = [p for p in inspect.signature(then).parameters.values() if p.kind in (P.KEYWORD_ONLY, P.VAR_POSITIONAL)]
        further = [p for p in taken if p.name not in names]
        further = [_option(p, eval(p.annotation, vars(sys.modules[then.__module__]))) for p in further]
        signature = inspect.Signature(sorted([*known, *further], key=lambda p: p.kind))

        def run(*arguments: Any, **more: Any) -> Any:
            given = signature.bind(*arguments, **more)
            given.apply_defaults()
            of_function = {name: value for name, value in given.kwargs.items() if name in names}
            if self.instead:
                return self.then(*given.args, **given.kwargs)
            result = work(self.name, *_expanded(self.name, given.args), **of_function)
            return self.then(result, **{p.name: given.arguments[p.name] for p in taken})

        vars(run)["__signature__"] = signature
        run.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
        options: dict[str, type] = getattr(function, "options", {})
        described = [name for name in signature.parameters if name not in options]
        typed = [p.name for p in signature.parameters.values() if p.kind is P.KEYWORD_ONLY and p.name not in options]
        typed += [name for kind in options.values() for name in fields_of(kind)]
        run.__doc__ = help_of(inspect.unwrap(function).__doc__ or "", described, typed, then.__doc__ or "")
        return run


def made(name: str = "", *, instead: bool = False) -> Callable[[Callable[..., Any]], Made]:
    """Make a command of what follows its work; without a name, that of the function is the command's."""
    return lambda then: Made(name or then.__name__, then, instead)


def work(name: str, /, *arguments: Any, **options: Any) -> Any:
    """What the public function with this name returns, with a progress bar if it tells of its progress."""
    from probekit.progress import display, is_given

    function = find(name)
    if "progress" not in inspect.signature(function).parameters:
        return function(*arguments, **options)
    faster: str = getattr(function, "faster", "")
    given = spread(options, getattr(function, "options", {}))
    words = "" if not faster or is_given(faster, given) else f"--{faster.replace('=', ' ')}"
    with display(words.replace("_", "-").removesuffix(" True")) as progress:
        return function(*arguments, progress=progress, **options)


def show(analysis: Analysis, result: Any, *, format_: Format = Format.TEXT) -> None:
    """The tables of a result, the lines below each, its sentences, and where it was saved.

    Parameters
    ----------
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    """
    from probekit.cli.terminal import tables_as

    with tables_as(format_):
        show_tables(result)
        saved(result)
        for place in (result.recipe.leaves.get(key) for key in outputs(analysis.name) if key != "out"):
            if place is not None:
                say(place)


def show_tables(result: Any) -> None:
    """The tables of a result, and the lines below each."""
    from probekit.cli.terminal import show_table

    for grid, notes in result.grids():
        if grid is not None:
            show_table(grid)
        for note in notes:
            say(note)


def _expanded(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with patterns replaced by the files, or pairs of files, that they match."""
    from probekit.cli.patterns import expand, expand_pairs

    reads = analyses()[name].reads if name in analyses() else Reads.OTHER
    if reads in (Reads.PAIRS, Reads.REFERENCE_PAIRS):
        return tuple(expand_pairs(arguments))
    return tuple(path for one in arguments for path in expand(one)) if reads is Reads.RESULTS else arguments


def _arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a public function on a command line, where each that may be named in a call is an option."""
    options: dict[str, type] = getattr(function, "options", {})
    declared = inspect.signature(inspect.unwrap(function)).parameters
    known = [_argument(function, p) for p in declared.values() if p.name not in SILENT and p.name not in options]
    for name, kind in options.items():
        vars(kind)["__init__"].__annotations__ = get_type_hints(kind, include_extras=True)  # also those of base classes
        known.append(P(name, P.KEYWORD_ONLY, default=kind(), annotation=Annotated[kind, Parameter(name="*")]))
    if "out" in inspect.signature(function).parameters and "out" not in declared:
        known.append(_option(P("out", P.KEYWORD_ONLY, default=None), Path | None))
    known.sort(key=lambda p: (p.kind, [*declared].index(p.name) if p.name in declared else len(declared)))
    return known


def _argument(function: Callable[..., Any], p: inspect.Parameter) -> inspect.Parameter:
    """One of them."""
    kind = P.KEYWORD_ONLY if p.kind is P.POSITIONAL_OR_KEYWORD else p.kind
    return _option(p.replace(kind=kind), _typed(hint(function, p.name)))


def _option(p: inspect.Parameter, declared: Any) -> inspect.Parameter:
    """A parameter with its type; -o stands for --out."""
    if p.name == "out" and p.kind is P.KEYWORD_ONLY:
        declared = Annotated[declared, Parameter(name=("--out", "-o"))]
    return p.replace(annotation=declared)


def _typed(declared: Any) -> Any:
    """The type of an argument on a command line: a file, a list or a text where one is taken beside objects."""
    kinds = _kinds(declared if _is_file(declared) else plain(declared))
    items = [get_args(kind)[0] for kind in kinds if get_origin(kind) in MANY]
    if any(map(_is_file, items)):
        found: Any = tuple[Path, ...]
    elif any(map(_is_file, kinds)):
        found = Path
    elif items:
        found = tuple[str if Path in _kinds(items[0]) else items[0], ...]  # type: ignore[misc]
    else:
        found = str if str in kinds else declared
    return found | None if NoneType in (*kinds, *_kinds(plain(declared))) else found


def _is_file(kind: Any) -> bool:
    return FILE in getattr(kind, "__metadata__", ())


def _kinds(declared: Any) -> tuple[Any, ...]:
    """The alternatives of a type."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def help_of(doc: str, names: Collection[str] = (), typed: Collection[str] = (), more: str = "") -> str:
    """A numpydoc docstring as the help of a command: what it says first, its command lines, and its arguments.

    Parameters
    ----------
    doc : str
        The docstring.
    names : collection of str
        The arguments that are described.
    typed : collection of str
        The options, which the text names as they are typed.
    more : str
        A docstring that describes further arguments.
    """
    sections = _sections(inspect.cleandoc(doc))
    examples = sections.get("Examples", "").partition("On the command line::")[2].split("\n")
    examples = [line for line in examples if line.strip()]
    lines = [sections[""], "", "For example:" * bool(examples), ""]
    lines += [f"    {line.strip()}\n" for line in examples]
    lines += ["Parameters", "----------"]
    about = {"out": OUT}
    for described in (sections, _sections(inspect.cleandoc(more))):
        about |= dict(_entries(described.get("Parameters", "")))
    lines += [f"{name}\n    {about[name]}" for name in names if name in about]
    return _plain("\n".join(lines), typed)


def _sections(doc: str) -> dict[str, str]:
    """The sections of a numpydoc docstring by title; what stands before the first by ""."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", doc, flags=re.MULTILINE)
    return {"": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def _entries(section: str) -> Iterator[tuple[str, str]]:
    """The names and descriptions of a section of parameters."""
    for entry in re.split(r"^(?=\S)", section.strip("\n"), flags=re.MULTILINE):
        head, _, text = entry.partition("\n")
        for name in head.partition(" :")[0].split(", "):
            yield name.lstrip("*"), " ".join(text.split())


def _plain(text: str, options: Collection[str]) -> str:
    """Text without the marks of reStructuredText, and options as they are typed."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("::\n", ":\n")
    named = "|".join(name.strip("_") for name in options)
    text = re.sub(rf"``({named})(?:=([^`]+))?``", _typed_option, text)
    return text.replace("``", "`")


def _typed_option(found: re.Match[str]) -> str:
    """An option as it is typed: ``tokens=True`` is --tokens, ``controls=0`` is --controls 0."""
    name, value = found[1].replace("_", "-"), (found[2] or "True").strip("\"'")
    return {"True": f"--{name}", "False": f"--no-{name}"}.get(value, f"--{name} {value}")
