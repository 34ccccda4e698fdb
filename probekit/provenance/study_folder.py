"""What the folder of a study says of itself: its title, its steps, and by which recipe each file was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.files import read_json, slug
from probekit.provenance.old_cards import recipe_of_words
from probekit.recipe import Recipe

__all__ = ["StepRecord", "StudyFolder", "maker_of"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What a study notes of a step that it has done.

    Attributes
    ----------
    step : str
        Its name.
    left : tuple[str, ...]
        Its files, relative to the study's folder.
    recipe : Recipe | None
        What was run, where it can be read.
    """

    step: str
    left: tuple[str, ...]
    recipe: Recipe | None


def _records(study: Path) -> dict[str, StepRecord]:
    """What a study notes of its steps, by the names of the files; none of any other folder."""
    found = {}
    for file in sorted((study / "steps").glob("*.json")):
        try:
            told = read_json(file)
            found[file.stem] = StepRecord(str(told["step"]), tuple(dict(told["left"])), _recipe(told))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not of a study
    return found


def _recipe(told: Mapping[str, Any]) -> Recipe | None:
    """The recipe of a record; of one of an earlier version from its command."""
    try:
        if "recipe" in told:
            return Recipe.from_json(told["recipe"])
        return recipe_of_words([str(word) for word in told["command"]])
    except UsageError:
        return None


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """What the folder of a study says; empty of any other folder.

    Attributes
    ----------
    path : Path
        Of the folder.
    title : str
        Of the study.
    steps : tuple[str, ...]
        Names of all.
    records : Mapping[str, StepRecord]
        Of those done, by their files' names.
    """

    path: Path
    title: str
    steps: tuple[str, ...]
    records: Mapping[str, StepRecord]

    @classmethod
    def read(cls, path: Path) -> StudyFolder:
        """What lies at ``path``."""
        path = path.absolute()
        try:
            told = read_json(path / "study.json")
            title, steps = str(told["title"]), tuple(str(step["step"]) for step in told["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            title, steps = "", ()
        return cls(path, title, steps, _records(path))

    def maker_of(self, leaf: str) -> Recipe | None:
        """The recipe of the step that made a file; None where none is noted.

        What it names in the study's folder is named where that is now.
        """
        for record in self.records.values():
            if leaf in record.left and record.recipe:
                return _moved(record.recipe, leaf, self.path)
        return None

    def part_of(self, path: Path) -> Path | None:
        """The part of the study that a file is: a folder of it, or a file; None of what no study has made."""
        leaf = path.absolute().relative_to(self.path)
        if leaf.as_posix() in ("study.json", ".lock"):
            return (
                path.with_name("study.json") if self.title else path if leaf.name == ".lock" and self.records else None
            )
        names = [*self.records, *map(slug, self.steps)]
        own = {*(f"steps/{name}.json" for name in self.records), *(f"logs/{name}.log" for name in names)}
        own.update(left for record in self.records.values() for left in record.left)
        depth = len(leaf.parts) - 1
        return [path, *path.parents][depth] if leaf.as_posix() in own else None


def maker_of(path: Path) -> Recipe | None:
    """The recipe of the study's step that made ``STUDY/caches/NAME.h5``; None where none is noted."""
    path = path.absolute()
    return StudyFolder.read(path.parent.parent).maker_of(f"{path.parent.name}/{path.name}")


def _moved(recipe: Recipe, leaf: str, study: Path) -> Recipe:
    """A recipe with the places in the study's folder where they are now."""
    out = next((str(p).removesuffix(leaf) for p in recipe.leaves.values() if str(p).endswith(f"/{leaf}")), None)
    if not out:
        return recipe

    def here(value: Any) -> Any:
        if isinstance(value, list):
            return [here(v) for v in value]
        return f"{study}/{value.removeprefix(out)}" if isinstance(value, str) and value.startswith(out) else value

    arguments, leaves = ({key: here(v) for key, v in part.items()} for part in (recipe.arguments, recipe.leaves))
    return replace(recipe, arguments=arguments, leaves=leaves)
