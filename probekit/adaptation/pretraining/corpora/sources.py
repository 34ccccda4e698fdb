"""Where the rows of a corpus come from: files in a folder, in the layout of their authors, or the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.tasks.datasets.sources import HUB_SPLITS, from_hub
from probekit.tasks.folders import plain

BATCH = 1000
"""Rows of a hub dataset that are read together."""


@dataclass(frozen=True)
class Folder:
    """A folder with the files of a corpus, or with such folders in it.

    Attributes
    ----------
    root : Path
        The folder.
    hint : str
        What the name of a subfolder with the corpus contains; case and punctuation are ignored.
    title : str
        The corpus, for messages.
    source : str
        Where its files can be had, for messages.
    """

    root: Path
    hint: str
    title: str
    source: str

    @cached_property
    def places(self) -> list[Path]:
        """The folders to search: subfolders with the hint in their names, the shortest name first, then the root."""
        if not self.root.is_dir():
            problem = "is a file, expected a folder" if self.root.exists() else "does not exist"
            raise DataError(f"{problem}. Give the folder with the files of {self.title}.", file=self.root)
        folders = [path for path in self.root.iterdir() if path.is_dir() and plain(self.hint) in plain(path.name)]
        return [*sorted(folders, key=lambda path: (len(path.name), path.name)), self.root]

    def files(self, *names: str) -> list[Path]:
        """The files that match the first of these names or patterns with a match, in the first folder with a match."""
        for place in self.places:
            for name in names:
                if found := sorted(path for path in place.glob(name) if path.is_file()):
                    return found
        return []

    def file(self, *names: str) -> Path | None:
        """The only file of this kind, or None.

        Raises
        ------
        DataError
            If several files match.
        """
        found = self.files(*names)
        if len(found) > 1:
            several = ", ".join(path.name for path in found)
            raise DataError(f"several files could be this part of {self.title}: {several}.", file=found[0].parent)
        return found[0] if found else None

    def splits(self, names: Mapping[str, Sequence[str]]) -> dict[str, Path]:
        """The file of each split that has one, by its names; raises DataError if none has."""
        files = {split: path for split, some in names.items() if (path := self.file(*some))}
        if not files:
            raise self.nothing(*(some[0] for some in names.values()))
        return files

    def nothing(self, *names: str) -> DataError:
        """The error that the folder has no file of the corpus."""
        expected = ", ".join(names)
        return DataError(f"has no file of {self.title}; expected {expected} (from {self.source}).", file=self.root)


@dataclass(frozen=True, slots=True)
class Hub:
    """A dataset of the Hugging Face hub with plain data files; none of its code is run.

    Attributes
    ----------
    repository : str
        Its id.
    config : str, optional
        Its configuration.
    revision : str, optional
        A branch or commit instead of the main branch.
    """

    repository: str
    config: str | None = None
    revision: str | None = None

    def load(self, title: str) -> Mapping[str, Any]:
        """Its splits (``datasets.Dataset``) under the names train, dev and test; the data stay on disk."""
        options = {} if self.revision is None else {"revision": self.revision}
        data = from_hub(title, self.repository, self.config, **options)
        return {split: data[theirs] for split, theirs in HUB_SPLITS.items() if theirs in data}


def cached_files(splits: Mapping[str, Any]) -> tuple[Path, ...]:
    """The local files of hub datasets."""
    return tuple(Path(file["filename"]) for data in splits.values() for file in data.cache_files)


def columns(data: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Columns of a hub dataset, read in batches.

    Raises
    ------
    DataError
        If a column is missing.
    """
    missing = [name for name in names if name not in data.column_names]
    if missing:
        there = ", ".join(map(repr, data.column_names))
        raise DataError(f"the hub's dataset has no column {missing[0]!r}; it has {there}.")
    for batch in data.select_columns(list(names)).iter(BATCH):
        yield from zip(*(batch[name] for name in names), strict=True)
