"""Where a dataset's rows come from, a local folder or the Hugging Face hub, and how rows become examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from pathlib import Path
from typing import Any

from probekit.addresses import check_data_card
from probekit.errors import DataError, UsageError
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Label

HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
PARQUET = "refs/convert/parquet"
"""The hub's Parquet copy of a repository that otherwise needs a loading script; probekit never runs such scripts."""


def locate(
    root: str | Path, candidates: Mapping[str, Sequence[str]], *, folder: str = "", what: str = ""
) -> dict[str, Path]:
    """Find the files of a dataset: for each key the first of its names (or patterns) that exists.

    Searches ``root``, then its subfolders with a name like ``folder``; see :func:`task_folders`.

    Raises
    ------
    DataError
        If ``root`` has none of the files; the message lists their names.
    """
    root = Path(root)
    if not root.is_dir():
        problem = "is a file, expected a folder" if root.exists() else "does not exist"
        raise DataError(
            f"{problem}. Give the folder with the files of {what or 'the dataset'}: {_names(candidates)}.", file=root
        )
    inside = [place for place in task_folders(folder, root) if place != root] if folder else []
    for place in (root, *inside):
        found: dict[str, Path] = {}
        for key, names in candidates.items():
            matches = next((m for name in names if (m := sorted(p for p in place.glob(name) if p.is_file()))), [])
            if len(matches) > 1:
                several = ", ".join(p.name for p in matches)
                raise DataError(f"several files could be the {key} split: {several}. Keep one.", file=place)
            if matches:
                found[key] = matches[0]
        if found:
            return found
    raise DataError(f"has no file of {what or 'the dataset'}; expected {_names(candidates)}.", file=root)


def _names(candidates: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(dict.fromkeys(name for names in candidates.values() for name in names))


def treebank_files(root: str | Path, treebank: str | None, suffix: str, what: str) -> tuple[str, dict[str, Path]]:
    """The treebank, and its files ``<treebank>-ud-<split>.<suffix>`` in the folder or a subfolder."""
    name = treebank or "*"
    names = {s: (f"{name}-ud-{s}.{suffix}", f"*/{name}-ud-{s}.{suffix}") for s in HUB_SPLITS}
    files = locate(root, names, what=what)
    return one_treebank(root, files), files


def one_treebank(root: str | Path, files: Mapping[str, Path]) -> str:
    """The treebank that files are of; raises DataError for files of several."""
    found = sorted({path.name.partition("-ud-")[0] for path in files.values()})
    if len(found) > 1:
        message = f"holds several treebanks ({', '.join(found)}); choose one, such as {found[0]}."
        raise DataError(message, file=root)
    return found[0]


def from_hub(what: str, repository: str, config: str | None = None, **options: Any) -> Any:
    """The ``datasets.DatasetDict`` of a hub repository with plain data files; none of its code is run.

    Raises
    ------
    DataError
        If the repository cannot be loaded; the message says what to do without a network.
    """
    import datasets

    check_data_card(repository, options.get("revision"))
    try:
        return datasets.load_dataset(repository, config, **options)
    except Exception as error:
        where = f"{repository}, {config}" if config else repository
        reason = " ".join(str(error).split()) or type(error).__name__
        if "OfflineModeIsEnabled" in reason:
            reason, cure = "HF_HUB_OFFLINE is set", "Unset HF_HUB_OFFLINE, or give"
        else:
            cure = "Without a network, give"
        raise DataError(
            f"{what} could not be loaded from the Hugging Face hub ({where}): {reason[:300].rstrip('.')}. "
            f"{cure} a local folder of data (--data-dir, or data_dir in Python), with the files of {what} in it or in "
            "a subfolder of that name."
        ) from error


def hub_columns(dataset: Any, *names: str) -> list[list[Any]]:
    """Columns of a ``datasets.Dataset`` as lists; raises DataError that lists the columns if one is missing."""
    missing = [name for name in names if name not in dataset.column_names]
    if missing:
        raise DataError(
            f"the hub's dataset has no column {missing[0]!r}; it has {', '.join(map(repr, dataset.column_names))}."
        )
    table = dataset.select_columns(list(names)).to_dict()
    return [table[name] for name in names]


def number(text: str) -> float | None:
    """A finite number, or None if the text is not one (``1_000`` is not)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def examples(
    split: str,
    texts: Sequence[str],
    labels: Sequence[Label] | None = None,
    *,
    ids: Sequence[str] | None = None,
    **others: Sequence[Any] | None,
) -> list[Example]:
    """One example per row; ids that are missing, empty or not unique become ``<split>-<row>``, with rows from 0.

    Parameters
    ----------
    **others : sequence, optional
        Other fields of :class:`Example`, one value per row; None or nothing for their default.
    """
    n, known = len(texts), fields(Example)
    assert others.keys() <= {field.name for field in known}
    if not ids or len(set(ids)) < n or "" in ids:
        ids = [f"{split}-{i}" for i in range(n)]
    given = {"id": ids, "text": texts, "label": labels, **others}
    for column in filter(None, given.values()):
        if len(column) != n:
            raise UsageError(f"there are {n} texts, but another column has {len(column)} values.")
    columns = (given.get(field.name) or repeat(field.default, n) for field in known)
    return [Example(*row) for row in zip(*columns, strict=True)]
