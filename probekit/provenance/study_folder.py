"""The folder of a study: its title, its steps, and the recipe of each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.files import read_json, slug
from probekit.provenance.old_cards import recipe_of_words
from probekit.recipe import Recipe


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A study's record of a finished step.

    Attributes
    ----------
    step : str
        Its name.
    left : tuple[str, ...]
        Its files, relative to the study's folder.
    recipe : Recipe | None
        The call, if it can be read.
    """

    step: str
    left: tuple[str, ...]
    recipe: Recipe | None


def _records(study: Path) -> dict[str, StepRecord]:
    """The records of a study's steps, by file name; empty for any other folder."""
    found = {}
    for file in sorted((study / "steps").glob("*.json")):
        try:
            content = read_json(file)
            found[file.stem] = StepRecord(str(content["step"]), tuple(dict(content["left"])), _recipe(content))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not written by a study
    return found


def _recipe(content: Mapping[str, Any]) -> Recipe | None:
    """The recipe of a record; of one of an earlier version from its command."""
    try:
        if "recipe" in content:
            return Recipe.from_json(content["recipe"])
        return recipe_of_words([str(word) for word in content["command"]])
    except UsageError:
        return None


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The folder of a study; empty for any other folder.

    Attributes
    ----------
    path : Path
        Path of the folder.
    title : str
        Title of the study.
    steps : tuple[str, ...]
        Names of all steps.
    records : Mapping[str, StepRecord]
        Records of finished steps, by file name.
    """

    path: Path
    title: str
    steps: tuple[str, ...]
    records: Mapping[str, StepRecord]

    @classmethod
    def read(cls, path: Path) -> StudyFolder:
        """Read the folder at ``path``."""
        path = path.absolute()
        try:
            content = read_json(path / "study.json")
            title, steps = str(content["title"]), tuple(str(step["step"]) for step in content["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            title, steps = "", ()
        return cls(path, title, steps, _records(path))

    def maker_of(self, leaf: str) -> Recipe | None:
        """The recipe of the step that made a file; None without a record.

        Paths in the study's folder follow the folder to where it is now.
        """
        for record in self.records.values():
            if leaf in record.left and record.recipe:
                return _moved(record.recipe, leaf, self.path)
        return None

    def part_of(self, path: Path) -> Path | None:
        """The part of the study that a file belongs to, a folder or a file; None for files that no study has made."""
        leaf = path.absolute().relative_to(self.path)
        if leaf.as_posix() in ("study.json", ".lock"):
            return (
                path.with_name("study.json") if self.title else path if leaf.name == ".lock" and self.records else None
            )
        names = [*self.records, *map(slug, self.steps)]
        names_of_files = {f"steps/{name}.json" for name in self.records}
        names_of_files |= {f"logs/{name}.log" for name in names} | {f"steps/{name}.begun" for name in names}
        names_of_files.update(left for record in self.records.values() for left in record.left)
        depth = len(leaf.parts) - 1
        return [path, *path.parents][depth] if leaf.as_posix() in names_of_files else None


def maker_of(path: Path) -> Recipe | None:
    """The recipe of the study's step that made ``STUDY/caches/NAME.h5``; None without a record."""
    path = path.absolute()
    return StudyFolder.read(path.parent.parent).maker_of(f"{path.parent.name}/{path.name}")


def _moved(recipe: Recipe, leaf: str, study: Path) -> Recipe:
    """A recipe whose paths in the study's folder are those of today."""
    out = next((str(p).removesuffix(leaf) for p in recipe.leaves.values() if str(p).endswith(f"/{leaf}")), None)
    if not out:
        return recipe

    def here(value: Any) -> Any:
        if isinstance(value, list):
            return [here(v) for v in value]
        return f"{study}/{value.removeprefix(out)}" if isinstance(value, str) and value.startswith(out) else value

    arguments, leaves = ({key: here(v) for key, v in part.items()} for part in (recipe.arguments, recipe.leaves))
    return replace(recipe, arguments=arguments, leaves=leaves)
