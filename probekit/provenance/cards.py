"""Evidence cards, read without trusting them: the recipe on a card, and the same recipe writing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from probekit.errors import DataError, UsageError
from probekit.files import read_json
from probekit.functions import FUNCTIONS
from probekit.models.identity import CARD
from probekit.provenance.old_cards import recipe_of_command
from probekit.recipe import Read, Recipe
from probekit.rows import card_path
from probekit.rows.card import old_card_path

__all__ = ["Card", "elsewhere", "read_any_card", "unread"]

LARGEST = 1 << 26
"""Bytes of a card; a larger one is none."""

READS: Mapping[str, tuple[str, ...]] = {
    "compare": ("first", "second"),
    "summary": ("first", "more"),
    "guidelines": ("runs",),
    "evaluate": ("run", "cache", "data_dir"),
    "table": ("rows",),
    "domains": ("data_dir",),
    "train": ("data_dir",),
    "search": ("data_dir",),
}
"""By function the parameters that name files which must be there, beside caches, of which the card tells more."""

DROPPED = ("report_to", "overwrite")
"""Parameters that tell others of the work, or replace what is there; they have no part in the numbers."""


@dataclass(frozen=True, slots=True)
class Card:
    """An evidence card, its values as they stand there.

    Attributes
    ----------
    told : mapping
        Its JSON.
    path, rows : Path
        The card, and the rows that it is of.
    recipe : Recipe
        What made the rows.
    old : bool
        Whether it was written before version 0.2.
    """

    told: Mapping[str, Any]
    path: Path
    rows: Path
    recipe: Recipe
    old: bool

    def reads(self) -> Iterator[Read]:
        """What the rows were made of. Raises DataError where that cannot be read."""
        told = [{"kind": "cache", "digest": c["spec_id"], **c} for c in self._list("caches")]
        try:
            for one in (*self._list("reads"), *told):
                about = {k: v for k, v in one.items() if k not in ("path", "kind", "digest", "spec_id")}
                if not isinstance(about.get("spec", {}), dict):
                    raise TypeError("spec")
                yield Read(str(one["path"]), str(one["kind"]), str(one["digest"]), about)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"what it says of what was read cannot be read ({error!r}).", file=self.path) from None

    def _list(self, key: str) -> list[Any]:
        found = self.told.get(key)
        if found is not None and not isinstance(found, list):
            raise DataError(f"what it says of {key} is no list.", file=self.path)
        for one in found or ():
            if not isinstance(one, dict) or (key == "caches" and "spec_id" not in one):
                raise DataError(f"what it says of {key} cannot be read: {one!r}.", file=self.path)
        return found or []


def read_any_card(path: str | Path) -> Card:
    """A card; given by itself, by its rows, or by the card or the folder of a run.

    Raises
    ------
    DataError
        Where there is no such card, or it is none.
    UsageError
        Where its recipe is none that this version runs.
    """
    path = Path(path)
    if path.is_dir() or path.name == CARD:
        path = (path if path.is_dir() else path.parent) / "rows.parquet"
    places = [path] if path.suffix == ".json" else [card_path(path), old_card_path(path)]
    place = next((p for p in places if p.is_file()), places[0])
    if not place.is_file():
        raise DataError("there is no such evidence card; probekit writes one beside the rows (--out).", file=place)
    if place.stat().st_size > LARGEST:
        raise DataError(f"this is no evidence card: it is larger than {LARGEST:,} bytes.", file=place)
    try:
        told = read_json(place)
        name, old = Path(told["rows"]["file"]).name, "recipe" not in told
        made = told["command"] if old else told["recipe"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"this is no evidence card of rows ({error!r}).", file=place) from None
    if not (place.parent / name).is_file():
        raise DataError(f"the rows {name} that the card is of are not beside it.", file=place)
    recipe = recipe_of_command(made) if old else Recipe.from_json(made)
    return Card(told, place, place.parent / name, recipe, old)


def elsewhere(recipe: Recipe, scratch: Path, folder: Path) -> tuple[Recipe, Path]:
    """The recipe with all that it writes below ``scratch``, and where its rows will be.

    Parameters
    ----------
    recipe : Recipe
        Of a card, perhaps a stranger's.
    scratch : Path
        A folder of ours.
    folder : Path
        The one that relative paths in the recipe are below.

    Raises
    ------
    UsageError
        For a function that leaves no rows, or arguments that it does not take.
    """
    function = FUNCTIONS[recipe.function]
    if not function.rows:
        kept = sorted(name for name, one in FUNCTIONS.items() if one.rows)
        raise UsageError(f"probekit {recipe.function} is not run again; what is: {', '.join(kept)}.")
    told = {**recipe.defaults, **recipe.arguments}
    always = () if told.get("regime") == "fine-tune" else function.always  # which reads no caches, and takes no place
    leaves = {key: _turned(recipe, key, scratch, folder) for key in (function.rows, *recipe.leaves, *always)}
    rows = Path(leaves[function.rows])
    if not function.inside and rows.suffix not in (".parquet", ".csv"):
        raise UsageError(f"the card's recipe writes no rows ({function.rows} is {recipe.leaves.get(function.rows)!r}).")
    own = {key: value for key, value in recipe.arguments.items() if key not in DROPPED}
    rest = {key: value for key, value in recipe.defaults.items() if key not in DROPPED}
    safe = replace(recipe, arguments=own, defaults=rest, leaves=leaves)
    safe.check()
    return safe, rows / function.inside if function.inside else rows


def _turned(recipe: Recipe, key: str, scratch: Path, folder: Path) -> str:
    """Where something is written instead: under the same name, which rows may tell."""
    told = recipe.leaves.get(key)
    try:
        if told is not None and not isinstance(told, str):
            raise TypeError(told)
        name = (folder / told).resolve().name if told else ""
    except (TypeError, ValueError, OSError):
        raise UsageError(f"the card's recipe writes {key} to {told!r}, which is no path.") from None
    return str(scratch / key / (name or key))


def unread(recipe: Recipe, folder: Path) -> list[str]:
    """What the function reads and is not there, in words; caches aside, of which the card tells more."""
    found = []
    for key in READS.get(recipe.function, ()):
        value = recipe.arguments.get(key)
        for word in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(word, str):
                continue  # a nested recipe
            path = folder / Path(word).expanduser()
            if not (path.exists() or (has_magic(word) and glob(str(path)))):  # noqa: PTH207 (absolute, too)
                found.append(f"there is no {word} in {folder}, which {recipe.function} reads")
    return found
