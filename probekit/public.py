"""Public functions: they accept options as keyword arguments, and their results store the recipe."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import Any

from probekit.calls import bind, documented, fields_of, fitting, flattened, split, spread
from probekit.errors import UsageError
from probekit.functions import REPEATED, rows_of
from probekit.notes import collected
from probekit.progress import is_given, reported
from probekit.recipe import Recipe, making
from probekit.rows.files import check_out
from probekit.rows.result import Result


def public(
    name: str | None = None, /, *, saves: bool = True, faster: str = "", **options: type
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function public: it accepts options as keyword arguments, and its result stores the recipe.

    ::

        @public(options=ProbeOptions)
        def probe(*caches, options, progress=no_progress) -> Result: ...

        probe("a.h5", "b.h5", folds=3, out="rows.parquet")      # or options=ProbeOptions(folds=3)

    Parameters
    ----------
    name : str, optional
        Name in :data:`FUNCTIONS`; by default the function's name.
    saves : bool
        Whether its result is saved.
    faster : str
        What makes long work faster, as an argument in Python: "controls=0". Its progress says so.
    **options : type
        For each parameter, the frozen dataclass whose fields become keyword arguments.

    Notes
    -----
    A function that returns a :class:`probekit.rows.Result` and has no parameter ``out`` gets one; the result is saved
    there.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        called = name or function.__name__
        signature = inspect.signature(function)
        returns = getattr(signature.return_annotation, "__name__", signature.return_annotation)
        gets_out = saves and returns == "Result" and "out" not in signature.parameters
        flat = flattened(signature, options, saves=gets_out)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = bind(called, flat, args, spread(kwargs, options))
            of_options = {k for kind in options.values() for k in fields_of(kind)} - set(REPEATED.get(called, ()))
            own = {k: v for k, v in bound.arguments.items() if k not in of_options}  # options check themselves
            bound.arguments |= fitting(call, called, flat, own)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            groups = {part: kind(**{k: arguments[k] for k in fields_of(kind)}) for part, kind in options.items()}
            arguments |= {k: getattr(groups[part], k) for part, kind in options.items() for k in fields_of(kind)}
            recipe = Recipe.of(called, arguments)
            out = arguments.get("out") if gets_out else None
            rows, inside = rows_of(called)
            if rows and not inside and arguments[rows] is not None:
                check_out(Path(arguments[rows]), recipe.arguments)
            began = monotonic()
            taken = {k for kind in options.values() for k in fields_of(kind)} | ({"out"} if gets_out else set())
            passed = {k: v for k, v in bound.arguments.items() if k not in taken}
            positional, keyword = split(signature, passed)
            with collected() as notes, making(recipe), reported(keyword, "" if is_given(faster, arguments) else faster):
                result = function(*positional, **keyword, **groups)
            return _finish(result, recipe, out, monotonic() - began, notes)

        call.__doc__ = documented(function.__doc__ or "", flat, options)
        vars(call).update(__signature__=flat, options=options, faster=faster)
        return call

    return decorate


def _finish(result: Any, recipe: Recipe, out: Any, seconds: float, notes: Sequence[str]) -> Any:
    if not isinstance(result, Result):
        return result
    from probekit.metrics import metric

    for known in result.rows["metric"].unique():
        try:
            metric(known)
        except UsageError as error:
            raise UsageError(f"{error} A package names its own among the entry points probekit.metrics.") from None
    result = dataclasses.replace(
        result,
        recipe=recipe,
        seconds={recipe.function: seconds, **result.seconds},
        notes=tuple(dict.fromkeys((*result.notes, *notes))),
    )
    return result if out is None else result.save(out)
