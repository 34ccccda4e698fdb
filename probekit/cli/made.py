"""Commands made of public functions: their arguments, their help and their examples are the function's own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from probekit.analysis import Analysis, Reads, analyses, load
from probekit.functions import SILENT, find, types_of, writes
from probekit.grid import Format
from probekit.recipe import Recipe

__all__ = ["command", "help_of", "show"]

P = inspect.Parameter
FORMAT = "Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error."
OUT = (
    "Write the rows (.parquet or .csv), with an evidence card (.json), and the predictions on each example, if it has "
    "any (.examples.parquet), next to them."
)


def __getattr__(name: str) -> Callable[..., None]:
    """The command of the analysis with this name: "probekit.cli.made:NAME"."""
    if name not in analyses():
        raise AttributeError(name)
    return command(analyses()[name])


def command(analysis: Analysis) -> Callable[..., None]:
    """The command of an analysis: it runs its function with a progress bar, and shows its tables and sentences."""
    function = find(analysis.name)
    known, hints = inspect.signature(inspect.unwrap(function)).parameters, types_of(function, objects=False)
    options: dict[str, type] = vars(function)["options"]

    def run(*arguments: Any, format_: Format = Format.TEXT, **more: Any) -> None:
        from probekit.cli.patterns import expand_pairs
        from probekit.cli.progress import bar
        from probekit.cli.terminal import tables_as

        if analysis.reads is Reads.PAIRS:
            arguments = tuple(expand_pairs(arguments))
        with bar() as progress:
            result = function(*arguments, **({"progress": progress} if "progress" in known else {}), **more)
        with tables_as(format_):
            show(analysis, result)

    parameters = [
        _of_options(p.name, options[p.name]) if p.name in options else p.replace(annotation=_typed(hints[p.name]))
        for p in known.values()
        if p.name not in SILENT
    ]
    parameters += [P("format_", P.KEYWORD_ONLY, default=Format.TEXT, annotation=Format)]
    parameters += [P("out", P.KEYWORD_ONLY, default=None, annotation=Path | None)] if "out" not in known else []
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = help_of(inspect.unwrap(function).__doc__ or "", [p.name for p in parameters], [*options])
    return run


def show(analysis: Analysis, result: Any) -> None:
    """The tables of a result, the lines below each, its sentences, and where it was saved."""
    from probekit.cli.show import saved, say
    from probekit.cli.terminal import show_table

    recipe: Recipe = result.recipe
    view = load(analysis.view) if analysis.view else lambda rows, options: ()
    for grid, notes in view(result.rows, {**recipe.defaults, **recipe.arguments}):
        if grid is not None:
            show_table(grid)
        for note in notes:
            say(note)
    saved(result)
    for place in (recipe.leaves.get(key) for key in writes(analysis.name) if key != "out"):
        if place is not None:
            say(place)


def _of_options(name: str, kind: type) -> inspect.Parameter:
    """Options as one parameter; the types of fields of base classes are those that their own modules name."""
    vars(kind)["__init__"].__annotations__ = get_type_hints(kind, include_extras=True)
    return P(name, P.KEYWORD_ONLY, default=kind(), annotation=Annotated[kind, Parameter(name="*")])


def _typed(hint: Any) -> Any:
    """The type of an argument on a command line, which knows no objects: a list or a text where one is taken."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in (*(kind for kind in kinds if get_origin(kind) is tuple), *(kind for kind in kinds if kind is str)):
        return kind | None if type(None) in kinds else kind
    return hint


def help_of(doc: str, names: Collection[str] = (), options: Collection[str] = ()) -> str:
    """A numpydoc docstring as the help of a command: what it says first, its command lines, and its arguments."""
    sections = _sections(inspect.cleandoc(doc))
    examples = [line for line in sections.get("Examples", "").split("\n") if re.match("    ?probekit ", line)]
    lines = [_plain(sections[""]), "", "Examples:" * bool(examples), ""]
    lines += [f"    {line.strip()}\n" for line in examples]
    lines += ["Parameters", "----------"]
    about = dict(_entries(sections.get("Parameters", "")))
    about |= {"format_": FORMAT} | ({} if "out" in about else {"out": OUT})
    lines += [f"{name}\n    {_plain(about[name])}" for name in names if name in about and name not in options]
    return "\n".join(lines)


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


def _plain(text: str) -> str:
    """Text without the marks of reStructuredText."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
