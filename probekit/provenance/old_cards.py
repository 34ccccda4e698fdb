"""Recipes of the version before 0.2, which kept command lines. The one place that reads a recipe out of words.

The words may come from a stranger: they are looked up in the table of public functions and their parameters, and
nothing is called.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

from probekit.errors import UsageError
from probekit.former import FORMER, LATER
from probekit.functions import FUNCTIONS, hints, parameters, rows_of, takes_commas, takes_many, typed
from probekit.recipe import Recipe

ASK = {"--help", "-h", "--version", "--install-completion", "--show-completion"}
GLOBAL = {"--verbose", "-v", "--debug"}


def recipe_of_command(command: Any) -> Recipe:
    """The recipe of a card's command line.

    Raises
    ------
    UsageError
        If the command is not one of probekit, or contains words that this version does not know.
    """
    if not isinstance(command, str) or not command.strip():
        raise UsageError("the card holds no command.")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the card's command cannot be read ({error}): {command!r}") from None
    return recipe_of_words(words)


def recipe_of_words(words: Sequence[str]) -> Recipe:
    """The recipe of ``probekit COMMAND …``; see :func:`recipe_of_command`."""
    program, *rest = words or [""]
    if program not in ("probekit", "__main__.py"):
        raise UsageError(
            f"the card's command is {shlex.join(words)!r}: the rows were made by a program, not by a command of "
            "probekit. Run that program again, and compare what it writes."
        )
    if ASK & set(rest):
        raise UsageError("the card's command asks for help, or for the version; it makes no rows.")
    while rest and rest[0] in GLOBAL:
        rest = rest[1:]
    name = rest[0].replace("-", "_") if rest else ""
    kept = {key for key in FUNCTIONS if rows_of(key)[0]}
    if name not in kept | {"cache_activations"}:
        known = ", ".join(sorted(kept))
        raise UsageError(f"probekit {rest[0] if rest else ''} cannot be reproduced; these can: {known}.")
    given = {key: _value(name, key, value) for key, value in _given(name, rest[1:]).items()}
    recipe = Recipe.of(name, given)
    before = {key: value for key, value in LATER.items() if key in recipe.defaults}
    return replace(recipe, defaults={**recipe.defaults, **before})


def _given(name: str, words: Sequence[str]) -> dict[str, Any]:
    """By parameter the texts that stand for it, True or False of a flag."""
    known, given, free, left = parameters(name), dict[str, Any](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            free += left
            break
        if not word.startswith("-") or word == "-":
            free.append(word)
            continue
        flag, equals, value = word.partition("=")
        key, switch = _parameter(name, flag, known)
        if isinstance(switch, bool):
            if equals:
                raise UsageError(f"{flag} takes no value, as the card's command has it: {word}.")
            given[key] = switch
            continue
        if not equals:
            if not left:
                raise UsageError(f"the card's command ends with {flag}, which takes a value.")
            value = left.pop(0)
        given.setdefault(key, []).append(value)
    return given | _arguments(name, known, free, given)


def _parameter(name: str, flag: str, known: Mapping[str, Any]) -> tuple[str, bool | None]:
    """The parameter of an option; True or False of a flag."""
    plain = flag.lstrip("-").replace("-", "_")
    key = FORMER.get(name, {}).get(plain, plain)
    for own, value in ((key, True), (key.removeprefix("no_"), False)):
        if own in known and hints(name).get(own) is bool:
            return own, value
    for own in (key, f"{key}_"):
        if own in known and (flag.startswith("--") or plain in FORMER.get(name, {})):
            return own, None
    raise UsageError(
        f"this version does not understand the card's command: no such option: {flag} of probekit {name}. Make the "
        "rows anew with the command of this version."
    )


def _arguments(name: str, known: Mapping[str, Any], free: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The words without a name, by parameter in their order."""
    kinds = inspect.Parameter
    found: dict[str, Any] = {}
    left = list(free)
    for key, p in known.items():
        if p.kind is kinds.VAR_POSITIONAL:
            found[key], left = left, []
        elif left and key not in given and p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            found[key] = [left.pop(0)]
    if left:
        raise UsageError(f"probekit {name} does not understand {shlex.join(left)}.")
    return found


def _value(name: str, key: str, value: Any) -> Any:
    """The value of an argument, of the type that it is declared with."""
    if isinstance(value, bool):
        return value
    if parameters(name)[key].kind is inspect.Parameter.VAR_POSITIONAL:
        return value
    if takes_many(name, key):
        commas = takes_commas(name, key)
        parts = [part.strip() for text in value for part in (text.split(",") if commas else [text])]
        return typed(name, key, [_number(name, key, part) for part in parts])
    return typed(name, key, _number(name, key, value[-1]))


def _number(name: str, key: str, text: str) -> Any:
    """The number that a word of a command line stands for, where the argument may be one."""
    kinds = _members(hints(name)[key])
    for kind in (int, float):
        if kind in kinds:
            with suppress(ValueError):
                return kind(text)
    return text


def _members(hint: Any) -> set[Any]:
    """A type and all types in it."""
    return {hint}.union(*(_members(part) for part in get_args(hint) if not isinstance(part, list)))
