"""The head of a public function, read from its source: signature, options and docstring, without what its module needs.

The help of a command, and the check of its words, need no torch and no pandas, which most functions import.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, get_type_hints

from probekit.analysis import load


class Names(dict[str, Any]):
    """The names of a module by its source, each imported or computed when it is first asked for."""

    def __init__(self, module: str) -> None:
        super().__init__()
        spec = find_spec(module)
        assert spec is not None
        package = module if spec.submodule_search_locations else spec.parent or ""
        try:
            self.tree = ast.parse(Path(spec.origin or "").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # packed, or compiled only
            self.tree = ast.Module([], [])
        self.imported: dict[str, tuple[str, str]] = {}
        self.assigned: dict[str, ast.expr] = {}
        for node in _statements(self.tree):
            if isinstance(node, ast.ImportFrom):
                source = resolve_name("." * node.level + (node.module or ""), package)
                self.imported |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.assigned[node.targets[0].id] = node.value
            elif isinstance(node, ast.ClassDef):
                self.imported[node.name] = (module, node.name)

    def __missing__(self, name: str) -> Any:
        if name in self.imported:
            module, attribute = self.imported[name]
            self[name] = getattr(import_module(module), attribute)
        elif name in self.assigned:
            self[name] = eval(compile(ast.Expression(self.assigned[name]), name, "eval"), {}, self)
        else:
            raise KeyError(name)
        return self[name]

    def typed(self, annotation: str) -> Any:
        """A type as a command line knows it: where a text is taken, none of the objects beside it is imported."""
        words = set(re.findall(r"\w+", annotation))
        ours = {name for name in words & set(self.imported) if self.imported[name][0].startswith("probekit.")}
        objects = {name for name in ours if self.imported[name][0] != "probekit.constraint"}
        texts: dict[str, Any] = dict.fromkeys(objects, str) if words & {"str", "File"} else {}
        return eval(annotation, {}, ChainMap(texts, self))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module, also those for the type checker alone."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.If) else [node]


@lru_cache
def head(place: str) -> Callable[..., Any]:
    """The function "module:name" with an empty body; the function itself if no source has it."""
    module, _, name = place.partition(":")
    names = Names(module)
    defined = next((node for node in names.tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
    if defined is None:
        return load(place)
    defined.body = defined.body[:1]  # the docstring
    code = compile(ast.Module([defined], []), module, "exec", annotations.compiler_flag, dont_inherit=True)
    try:
        exec(code, {"__name__": module, "__names__": names}, names)
    except Exception:  # a default that is more than names and values
        return load(place)
    return names[name]


def hint(function: Callable[..., Any], name: str) -> Any:
    """The declared type of an argument of a head, as a command line knows it."""
    bare = inspect.unwrap(function)
    if "__names__" not in bare.__globals__:
        return get_type_hints(bare, include_extras=True)[name]
    names: Names = bare.__globals__["__names__"]
    try:
        return names.typed(bare.__annotations__[name])
    except Exception:  # an annotation that is more than imported names
        real = load(f"{bare.__globals__['__name__']}:{bare.__name__}")
        return get_type_hints(inspect.unwrap(real), include_extras=True)[name]
