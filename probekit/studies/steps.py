"""A step of a study: a recipe, with what it needs and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from probekit.recipe import Recipe

__all__ = ["Inside", "Outside", "Step"]


NAMES = ("model_name",)
"""Arguments that no number depends on, but the names in rows."""


@dataclass(frozen=True, slots=True)
class Inside:
    """As an argument of a step: a file or folder of the study, relative to the study's own folder."""

    leaf: str


@dataclass(frozen=True, slots=True)
class Outside:
    """As an argument of a step: a thing from outside, known by the digest of its content, wherever it is."""

    place: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a public function.

    Attributes
    ----------
    name : str
        Of its record and its log.
    function : str
        A key of :data:`probekit.recipe.FUNCTIONS`; "" of a step with an ``error``.
    arguments : mapping
        By parameter; :class:`Inside` and :class:`Outside` stand for files, in lists, too.
    needs : tuple of str
        Names of the steps that must be done before.
    leaves : tuple of str
        Files, relative to the study's folder.
    work, seconds : float
        Floating-point operations, roughly, and seconds of other work.
    space : float
        Bytes of caches, roughly, that are not among ``leaves``.
    between : bool
        Whether what it leaves is for other steps alone, and may be gone once these are done.
    partly : bool
        Whether it is done without those of its needs that failed, as long as one is there.
    error : str
        Why it cannot be done, where that is known already.
    """

    name: str
    function: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    work: float = 0.0
    seconds: float = 3.0
    space: float = 0.0
    between: bool = False
    partly: bool = False
    error: str = ""

    def lost(self, broken: Collection[str]) -> str | None:
        """One of its needs that is among ``broken`` and without which it cannot be done."""
        lacking = [name for name in self.needs if name in broken]
        enough = self.partly and len(lacking) < len(self.needs)
        return lacking[0] if lacking and not enough else None

    def recipe(self, out: Path, without: Collection[str] = (), *, absolute: bool = False) -> Recipe:
        """What is run, in the study's folder ``out``.

        Parameters
        ----------
        out : Path
            The study's folder.
        without : collection of str
            Files of the study that are not there, which it is done without.
        absolute : bool
            Name all that is there by its absolute path, for a process that works in another folder.
        """
        gone = {*without, *(str(Path(path).parent) for path in without if path.startswith("runs/"))}

        def place(one: Inside | Outside) -> str:
            if isinstance(one, Inside):
                path = out / one.leaf
                return str(path.absolute() if absolute else path)
            there = absolute and Path(one.place).exists()
            return str(Path(one.place).absolute()) if there else one.place

        return Recipe.of(self.function, {key: _filled(v, place, gone) for key, v in self.arguments.items()})

    def digest(self, done: Mapping[str, str]) -> str:
        """xxh3 of what determines the result, wherever the study lies; ``done`` are the digests of what it needs."""
        needs = [done[name] for name in self.needs]
        if not self.function:
            return xxhash.xxh3_128_hexdigest(json.dumps([self.name, needs]).encode())

        def known(one: Inside | Outside) -> str:
            return f"study:{one.leaf}" if isinstance(one, Inside) else one.digest

        told = {key: _filled(value, known) for key, value in self.arguments.items()}
        names = [f"{key} {told[key]}" for key in NAMES if told.get(key)]
        return Recipe.of(self.function, told).identity([*needs, *names])


def _filled(value: Any, place: Callable[[Inside | Outside], str], gone: Collection[str] = ()) -> Any:
    """An argument with text in the place of what stands for files, without the files of the study that are gone."""
    if isinstance(value, Inside | Outside):
        return place(value)
    if isinstance(value, list | tuple):
        return [_filled(v, place, gone) for v in value if not (isinstance(v, Inside) and v.leaf in gone)]
    if isinstance(value, Mapping):
        return {key: _filled(v, place, gone) for key, v in value.items()}
    return value
