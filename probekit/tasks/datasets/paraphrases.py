"""What Quora's own file and PAWS-X have beside the keys of their files."""

from __future__ import annotations

from pathlib import Path

from probekit.tasks.datasets.published import read
from probekit.tasks.files.description import Dataset
from probekit.tasks.task import Task


def quora(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """Pairs with an empty question are left out, and counted."""
    splits, notes = read(d, root)
    for split, some in splits.items():
        splits[split] = tuple(e for e in some if e.text.strip() and (e.pair or "").strip())
        if left := len(some) - len(splits[split]):
            notes.append(f"{left} pairs of {split} with an empty question are left out.")
    return d.task(splits, notes)


def of_language(d: Dataset, root: str | Path | None, part: str | None = None) -> Task:
    """The files, or the configuration of the hub, of one language: English if none is named."""
    part = part or "en"
    splits, notes = read(d.model_copy(update={"config": part}), root, part)
    return d.task(splits, notes, name=f"{d.name}:{part}")
