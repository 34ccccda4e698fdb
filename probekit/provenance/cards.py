"""Evidence cards, read without trusting them: the recipe on a card, and the same recipe writing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from probekit.errors import DataError, UsageError
from probekit.files import read_json
from probekit.functions import FUNCTIONS, outputs, rows_of
from probekit.models.identity import CARD
from probekit.provenance.old_cards import recipe_of_command
from probekit.recipe import Read, Recipe
from probekit.rows import card_path
from probekit.rows.card import old_card_path
from probekit.rows.files import SUFFIXES

LARGEST = 1 << 26
"""Bytes; a larger file is not a card."""

READS: Mapping[str, tuple[str, ...]] = {
    "compare": ("first", "second"),
    "summary": ("first", "more"),
    "guidelines": ("runs",),
    "ensemble": ("runs",),
    "average": ("runs",),
    "evaluate": ("run", "cache", "data_dir", "slices", "text"),
    "table": ("rows",),
    "angles": ("probes",),
    "apply": ("probe", "data_dir", "beside"),
    "import_probe": ("coefficients",),
    "domains": ("data_dir",),
    "train": ("data_dir", "slices"),
    "pretrain": ("text", "dev"),
    "pretrain_encoder": ("data_dir",),
    "search": ("data_dir",),
}
"""For each function, the parameters that name files which must exist; caches have records of their own in the card."""

DROPPED = ("report_to", "overwrite", "backend", "scheduler")
"""Parameters that report progress elsewhere, replace files or name other machines; they do not change the numbers."""


@dataclass(frozen=True, slots=True)
class Card:
    """An evidence card, its values unchanged.

    Attributes
    ----------
    content : mapping
        The JSON of the file.
    path, rows : Path
        The card, and the rows that it describes.
    recipe : Recipe
        The call that made the rows.
    old : bool
        Whether it was written before version 0.2.
    """

    content: Mapping[str, Any]
    path: Path
    rows: Path
    recipe: Recipe
    old: bool

    def reads(self) -> Iterator[Read]:
        """The files that the rows were made from. Raises DataError where the card's list cannot be read."""
        caches = [{"kind": "cache", "digest": c["spec_id"], **c} for c in self._list("caches")]
        try:
            for one in (*self._list("reads"), *caches):
                about = {k: v for k, v in one.items() if k not in ("path", "kind", "digest", "spec_id")}
                if not isinstance(about.get("spec", {}), dict):
                    raise TypeError("spec")
                yield Read(str(one["path"]), str(one["kind"]), str(one["digest"]), about)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"the list of files that were read is damaged ({error!r}).", file=self.path) from None

    def _list(self, key: str) -> list[Any]:
        found = self.content.get(key)
        if found is not None and not isinstance(found, list):
            raise DataError(f"{key} is not a list.", file=self.path)
        for one in found or ():
            if not isinstance(one, dict) or (key == "caches" and "spec_id" not in one):
                raise DataError(f"{key} has an entry that cannot be read: {one!r}.", file=self.path)
        return found or []


def read_any_card(path: str | Path) -> Card:
    """Read a card from its path, that of its rows, or the card or folder of a run.

    Raises
    ------
    DataError
        For a file that does not exist or is not a card.
    UsageError
        For a recipe that this version cannot run.
    """
    path = Path(path)
    if path.is_dir() or path.name == CARD:
        path = (path if path.is_dir() else path.parent) / "rows.parquet"
    places = [path] if path.suffix == ".json" else [card_path(path), old_card_path(path)]
    place = next((p for p in places if p.is_file()), places[0])
    if not place.is_file():
        rows = path if path.suffix != ".json" else path.with_suffix("")
        raise DataError(
            f"there is no such file, and reproduce needs it: it is the evidence card that probekit writes next to the "
            f"rows. If you moved it, give its path; otherwise run the command that made the rows again, with "
            f"--out {rows}.",
            file=place,
        )
    if place.stat().st_size > LARGEST:
        raise DataError(f"this is not an evidence card: it is larger than {LARGEST:,} bytes.", file=place)
    try:
        content = read_json(place)
        name, old = Path(content["rows"]["file"]).name, "recipe" not in content
        call = content["command"] if old else content["recipe"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"this is not an evidence card of rows ({error!r}).", file=place) from None
    if not (place.parent / name).is_file():
        raise DataError(f"the card describes {name}, which is not in the same folder.", file=place)
    recipe = recipe_of_command(call) if old else Recipe.from_json(call)
    return Card(content, place, place.parent / name, recipe, old)


def elsewhere(recipe: Recipe, scratch: Path, folder: Path) -> tuple[Recipe, Path]:
    """The recipe with all its outputs below ``scratch``, and the path of its rows there.

    Parameters
    ----------
    recipe : Recipe
        From a card, which may come from a stranger.
    scratch : Path
        A folder of ours.
    folder : Path
        The folder to which relative paths in the recipe refer.

    Raises
    ------
    UsageError
        For a function that writes no rows, or arguments that it does not take.
    """
    key_of_rows, inside = rows_of(recipe.function)
    if not key_of_rows:
        names = sorted(name for name in FUNCTIONS if rows_of(name)[0])
        raise UsageError(f"probekit {recipe.function} cannot be reproduced; these can: {', '.join(names)}.")
    given = {**recipe.defaults, **recipe.arguments}
    makes_none = given.get("regime") == "fine-tune" or given.get("cache")  # caches: it runs the encoder, or reads some
    always = [] if makes_none else [key for key, mark in outputs(recipe.function).items() if mark.always]
    leaves = {key: _turned(recipe, key, scratch, folder) for key in (key_of_rows, *recipe.leaves, *always)}
    rows = Path(leaves[key_of_rows])
    if not inside and rows.suffix not in SUFFIXES:
        raise UsageError(f"the card's recipe writes no rows ({key_of_rows} is {recipe.leaves.get(key_of_rows)!r}).")
    safe = writing(recipe, leaves)
    safe.check()
    return safe, rows / inside if inside else rows


def writing(recipe: Recipe, leaves: Mapping[str, Any]) -> Recipe:
    """The recipe with other outputs, and without what does not change its numbers but acts elsewhere."""
    parts = ({key: v for key, v in part.items() if key not in DROPPED} for part in (recipe.arguments, recipe.defaults))
    arguments, defaults = parts
    return replace(recipe, arguments=arguments, defaults=defaults, leaves=leaves)


def _turned(recipe: Recipe, key: str, scratch: Path, folder: Path) -> str:
    """The new place of an output, under the same name, because rows may hold the name."""
    output = recipe.leaves.get(key)
    try:
        if output is not None and not isinstance(output, str):
            raise TypeError(output)
        name = (folder / output).resolve().name if output else ""
    except (TypeError, ValueError, OSError):
        raise UsageError(f"the card's recipe writes {key} to {output!r}, which is not a path.") from None
    return str(scratch / key / (name or key))


def unread(recipe: Recipe, folder: Path) -> list[str]:
    """The files that a function reads and that do not exist, in words; caches are checked elsewhere."""
    found = []
    for key in READS.get(recipe.function, ()):
        value = recipe.arguments.get(key)
        for word in value if isinstance(value, list) else [] if value is None else [value]:
            if not isinstance(word, str):
                continue  # a nested recipe
            path = folder / Path(word).expanduser()
            if not (path.exists() or (has_magic(word) and glob(str(path)))):  # noqa: PTH207 (absolute, too)
                found.append(f"{recipe.function} reads {word}, which is not in {folder}")
    return found
