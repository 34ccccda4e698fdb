"""A step of a study: a recipe, with the steps it needs and the files it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from probekit.files import is_path
from probekit.recipe import Recipe
from probekit.tasks.union import JOIN

NAMES = ("model_name",)
"""Arguments that affect only the names in rows, not the numbers."""


@dataclass(frozen=True, slots=True)
class Inside:
    """As an argument of a step: a file or folder of the study, relative to the study's folder."""

    leaf: str


@dataclass(frozen=True, slots=True)
class Outside:
    """As an argument of a step: an external input, identified by the digest of its content, not by its path."""

    place: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a public function.

    Attributes
    ----------
    name : str
        Name of its record and its log.
    function : str
        A key of :data:`probekit.recipe.FUNCTIONS`; "" for a step with an ``error``.
    arguments : mapping
        By parameter; :class:`Inside` and :class:`Outside` represent files, also in lists.
    needs : tuple of str
        Names of the steps that must be done first.
    leaves : tuple of str
        Files, relative to the study's folder.
    work, seconds : float
        Approximate floating-point operations, and seconds of other work.
    space : float
        Approximate bytes of the caches that it writes.
    between : bool
        Whether only other steps need its files, which may be deleted once these are done.
    scratch : str
        Folder, relative to the study's folder, of caches that no other step needs; deleted once the step is done.
    partly : bool
        Whether it runs without failed steps that it needs, as long as one of them succeeded.
    together : tuple of tuples of str
        With ``partly``: the needed steps that are used together or not at all (default: each by itself).
    inputs : tuple of str
        With ``partly``: the parameters of the files of those steps, in their order; the last one has all that remain.
    error : str
        The reason why it cannot run, if already known.
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
    scratch: str = ""
    partly: bool = False
    together: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = ()
    error: str = ""

    def lost(self, broken: Collection[str]) -> str | None:
        """A step among ``broken`` without which this one cannot run."""
        lacking = [name for name in self.needs if name in broken]
        return lacking[0] if lacking and len(self.unused(broken)) == len(self.needs) else None

    def unused(self, broken: Collection[str]) -> list[str]:
        """The needed steps that are not used without those in ``broken``, including these."""
        each = tuple((name,) for name in self.needs)
        groups = (self.together or each) if self.partly else (self.needs,)
        used = {name for group in groups if not {*group} & {*broken} for name in group}
        return [name for name in self.needs if name not in used]

    def recipe(self, out: Path, without: Collection[str] = (), *, absolute: bool = False) -> Recipe:
        """The recipe to run in the study's folder ``out``.

        Parameters
        ----------
        out : Path
            The study's folder.
        without : collection of str
            Missing files of the study to leave out.
        absolute : bool
            Use absolute paths, for a process with another working directory.
        """
        gone = {*without, *(str(Path(path).parent) for path in without if path.startswith("runs/"))}

        def place(one: Inside | Outside) -> str:
            if isinstance(one, Inside):
                path = out / one.leaf
                return str(path.absolute() if absolute else path)
            return _absolute(one.place) if absolute else one.place

        given = dict(self.arguments)
        if without and self.inputs:
            *first, rest = self.inputs
            left = [one for one in (*(given[name] for name in first), *given[rest]) if one.leaf not in gone]
            given |= {**dict(zip(first, left, strict=False)), rest: left[len(first) :]}
        return Recipe.of(self.function, {key: _filled(v, place, gone) for key, v in given.items()})

    def digest(self, done: Mapping[str, str]) -> str:
        """xxh3 of what determines the result, independent of the study's path; ``done``: digests of needed steps."""
        needs = [done[name] for name in self.needs]
        if not self.function:
            return xxhash.xxh3_128_hexdigest(json.dumps([self.name, needs]).encode())

        def known(one: Inside | Outside) -> str:
            return f"study:{one.leaf}" if isinstance(one, Inside) else one.digest

        arguments = {key: _filled(value, known) for key, value in self.arguments.items()}
        names = [f"{key} {arguments[key]}" for key in NAMES if arguments.get(key)]
        return Recipe.of(self.function, arguments).identity([*needs, *names])


def _absolute(place: str) -> str:
    """A place with absolute paths, also of task files among several tasks, or with a domain.

    Examples
    --------
    >>> _absolute("cola"), _absolute("no_such.toml+cola")
    ('cola', 'no_such.toml+cola')
    """
    if is_path(place):
        return str(Path(place).absolute())
    if JOIN in place:
        return JOIN.join(map(_absolute, place.split(JOIN)))
    file, ending, domain = place.partition(".toml:")
    return f"{_absolute(f'{file}.toml')}:{domain}" if ending else place


def _filled(value: Any, place: Callable[[Inside | Outside], str], gone: Collection[str] = ()) -> Any:
    """An argument with files replaced by text, without the missing files of the study."""
    if isinstance(value, Inside | Outside):
        return place(value)
    if isinstance(value, list | tuple):
        return [_filled(v, place, gone) for v in value if not (isinstance(v, Inside) and v.leaf in gone)]
    if isinstance(value, Mapping):
        return {key: _filled(v, place, gone) for key, v in value.items()}
    return value
