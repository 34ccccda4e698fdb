"""Files that are not measurements: reports, figures, captions, tables, descriptions of tasks and of searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from probekit.errors import ProbekitError
from probekit.files import is_sealed, without_mark
from probekit.tasks.files.description import read_task_file

if TYPE_CHECKING:
    from probekit.provenance.inventory import Item

SEALED = {
    ".html": "report", ".md": "table", ".tex": "table", ".csv": "table", ".pdf": "figure", ".png": "figure",
    ".svg": "figure", ".eps": "figure", ".txt": "caption", ".toml": "search",
}  # fmt: skip
"""The kinds of file that carry a digest of their own, by suffix."""
LARGEST = 1 << 28
"""Bytes of a file that is read to see whether it is one of these."""


def with_documents(items: Iterable[Item]) -> Iterator[Item]:
    """The same items; unknown files that probekit wrote, task files and their data, with their kinds."""
    found = [_document(item) if item.kind == "unknown" else item for item in items]
    data = dict(pair for item in found if item.kind == "task file" for pair in _data_of(item.path))
    for item in found:
        if item.kind == "unknown" and (about := data.get(item.path.absolute())):
            yield replace(item, kind="data", about=about, why="it is yours")
        else:
            yield item


def _document(item: Item) -> Item:
    """An unknown file with its kind, where it is a document."""
    path, kind = item.path, SEALED.get(item.path.suffix)
    if item.size > LARGEST or not path.is_file():
        return item
    if path.suffix == ".toml":
        try:
            described = read_task_file(path)
        except (ProbekitError, OSError):
            pass
        else:
            about = f"of {len(described.splits)} files" if described.splits else f"of {described.hub}"
            return replace(item, kind="task file", about=about, task=described.name or path.stem, why="it is yours")
    try:
        if kind and is_sealed(path):
            return replace(item, kind=kind, why="results are left alone")
        if kind and path.suffix in (".html", ".md", ".tex", ".csv", ".txt", ".toml"):
            text = path.read_text(encoding="utf-8")
            if without_mark(text) != text:
                return replace(item, kind=kind, about="changed by hand", why="it is yours")
    except (OSError, ValueError):  # gone meanwhile, not for us to see, or no text
        pass
    return item


def _data_of(task_file: Path) -> Iterator[tuple[Path, str]]:
    """The files of the splits that a task file names, each with a description."""
    for split, name in read_task_file(task_file).splits.items():
        yield (task_file.parent / name).absolute(), f"{split} of {task_file.name}"
