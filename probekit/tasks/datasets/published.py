"""Data sets that are installed: a TOML file each, in this folder or in that of another package.

They are read as the task files of users are. The entry points ``probekit.tasks`` name the packages; ``listed.txt`` in a
package's folder names its files, in the order of lists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.plugins import named
from probekit.tasks.datasets.sources import locate, number
from probekit.tasks.files.columns import Rows, hub_rows, read_rows
from probekit.tasks.files.description import Dataset, Format, read_keys
from probekit.tasks.files.examples import splits_of
from probekit.tasks.folders import plain
from probekit.tasks.task import RESPONSE_METRICS, RESPONSES, SEVERAL, Example, Target, Task, TaskKind

log = logging.getLogger(__name__)
GROUP = "probekit.tasks"
HERE = Path(__file__).parent
Read = tuple[dict[str, tuple[Example, ...]], list[str]]
"""The examples of each split, and notes on what is left out."""


class Datasets(Mapping[str, Dataset]):
    """The data sets by name, in the order in which they are listed; each file is read when it is asked for."""

    def __getitem__(self, name: str) -> Dataset:
        if name not in _folders():
            raise KeyError(name)
        return dataset(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_folders())

    def __len__(self) -> int:
        return len(_folders())


@cache
def _folders() -> Mapping[str, Path]:
    """The folder of each data set's file. Nobody takes a name of ours; a package without a list is left out."""
    folders = dict.fromkeys((HERE / "listed.txt").read_text(encoding="utf-8").split(), HERE)
    taken = {plain(name): name for name in folders}
    for package in named(GROUP).values():
        try:
            spec = find_spec(package)
            [place] = (spec and spec.submodule_search_locations) or [""]
            names = (Path(place) / "listed.txt").read_text(encoding="utf-8").split()
        except Exception as error:  # of the package's own modules
            log.warning("%s: %s is left out: %s", GROUP, package, error)
            continue
        for name in names if Path(place) != HERE else ():
            if plain(name) in taken:
                log.warning("%s: %s of %s is left out: there is %s.", GROUP, name, package, taken[plain(name)])
            folders.setdefault(taken.setdefault(plain(name), name), Path(place))
    return folders


def _file(name: str) -> Path:
    return _folders()[name] / f"{name}.toml"


@cache
def dataset(name: str) -> Dataset:
    """What is known of a data set before it is loaded."""
    found = read_keys(_file(name), Dataset)
    given: dict[str, Any] = {"name": name}
    if found.kind is TaskKind.RESPONSE_GENERATION:
        given |= {"labels": list(RESPONSES), "metrics": list(RESPONSE_METRICS)}
    return found.model_copy(update=given)


def files_of(d: Dataset, root: str | Path | None, part: str | None = None) -> dict[str, Path]:
    """The files of a data set in a folder, by split; those of another package may stand beside its TOML file.

    Raises
    ------
    DataError
        If ``root`` is None, or has none of the files; the message lists their names.
    """
    first, place = next(iter(d.files.values()))[0], _folders()[str(d.name)]
    if root is None and place != HERE:
        root = place
    if root is None:
        first = first.replace("PART", "TREEBANK")
        raise DataError(
            f"{d.name} is read from a folder: give the one with {first} (--data-dir, or data_dir in Python), from "
            f"{d.source.rpartition(' ')[2]}{d.also}."
        )
    names = {split: [name.replace("PART", part or "*") for name in some] for split, some in d.files.items()}
    return locate(root, names, folder="" if "PART" in first else d.folder or str(d.name), what=str(d.name))


def read(d: Dataset, root: str | Path | None, part: str | None = None) -> Read:
    """The examples of each split of a data set whose files its keys describe, from a folder or the hub's copy."""
    if root is None and d.hub:
        return examples_in(d, rows_of_hub(d)), []
    rows = rows_in(d, files_of(d, root, part))
    notes = [f"{split}: {some.left_out}" for split, some in rows.items() if some.left_out]
    return examples_in(d, rows), notes


def rows_in(d: Dataset, files: Mapping[str, Path]) -> dict[str, Rows]:
    """The rows of the files of a data set, by split."""
    return {split: read_rows(_file(str(d.name)), d.of(split), path) for split, path in files.items()}


def rows_of_hub(d: Dataset, **options: Any) -> dict[str, Rows]:
    """The rows of each split of the hub's copy."""
    if d.revision:
        options["revision"] = d.revision
    return hub_rows(str(d.name), d.of("hub"), **options)


def published(d: Dataset, root: str | Path | None = None, part: str | None = None) -> Task:
    """The task of a data set whose files its keys describe."""
    return d.task(*read(d, root, part))


def examples_in(d: Dataset, rows: Mapping[str, Rows]) -> dict[str, tuple[Example, ...]]:
    """The examples of each split; raises DataError for a label that is none."""
    places = {split: split if isinstance(part.file, Path) else "hub" for split, part in rows.items()}
    return {split: _examples(d.of(places[split]), split, part) for split, part in rows.items()}


def divided(d: Dataset, rows: Rows, names: Mapping[str, str]) -> dict[str, list[Example]]:
    """The examples of a file of all splits, whose column ``split`` has one of these names."""
    splits: dict[str, list[Example]] = {split: [] for split in names.values()}
    for i, (name, e) in enumerate(zip(rows.columns["split"], examples_in(d, {"all": rows})["all"], strict=True)):
        if name not in names:
            raise rows.error(i, "split", f"label {name!r}, expected one of {', '.join(map(repr, names))}.")
        splits[names[name]].append(e if "id" in rows.columns else replace(e, id=f"row-{i}"))
    return splits


def with_targets(
    d: Dataset, rows: Mapping[str, Rows], of: Callable[[Rows, int], tuple[Target, ...]]
) -> dict[str, list[Example]]:
    """The examples of each split with the targets that ``of`` tells for a row by its number."""
    return {
        split: [replace(e, targets=of(rows[split], i)) for i, e in enumerate(some)]
        for split, some in examples_in(d, rows).items()
    }


def _examples(spec: Dataset, split: str, part: Rows) -> tuple[Example, ...]:
    columns, cells = dict(part.columns), spec.cells or list(spec.label_names)
    if set(part.class_names) - {*cells, spec.unlabelled}:
        column = spec.tags or spec.label
        raise DataError(f"the hub's column {column!r} has the classes {list(part.class_names)}, expected {cells}.")
    ids = list(map(str, columns.get("id", ())))
    if len(set(ids)) < len(ids) or "" in ids:
        del columns["id"]  # rows are numbered
    if spec.categories:
        marks = zip(*(columns[f"category {name}"] for name in spec.categories), strict=True)
        columns["domain"] = [
            SEVERAL.join(name for name, mark in zip(spec.categories, row, strict=True) if str(mark or "").strip())
            for row in marks
        ]
    if "label" in columns:
        columns["label"] = _labels(spec, part)
    if "tags" in columns and spec.kind is TaskKind.SEQUENCE_LABELLING:
        _check_tags(spec, part)
    return splits_of({split: part.with_columns(columns)}, spec.kind, spec.label_names)[split].examples


def _check_tags(spec: Dataset, part: Rows) -> None:
    """Raise DataError for a tag that is none, with its line where each word has one."""
    known = {*spec.label_names, None}
    for line, words, tags in zip(part.lines, part.columns["words"], part.columns["tags"], strict=True):
        if not known.issuperset(tags):
            k = next(k for k, tag in enumerate(tags) if tag not in known)
            message = f"found the tag {tags[k]!r} for word {k + 1} ({words[k]!r}), expected one of "
            line += k if spec.format == Format.CONLL else 0
            raise DataError(f"{message}{', '.join(spec.label_names)}.", file=part.file, line=line)


def _labels(spec: Dataset, part: Rows) -> list[Any]:
    """The labels of a file as names of classes, or as numbers; None where the hub has -1."""
    values, of_hub = part.columns["label"], not isinstance(part.file, Path)
    if spec.kind is TaskKind.REGRESSION:
        return [None if of_hub and value == -1 else _score(spec, part, i) for i, value in enumerate(values)]
    cells: dict[Any, str | None] = dict(zip(spec.cells or spec.label_names, spec.label_names, strict=True))
    known = cells | ({None: None, -1: None} if of_hub else {spec.unlabelled: None})
    values = [str(value).lower() if isinstance(value, bool) else value for value in values]
    try:
        return [known[value] for value in values]
    except (KeyError, TypeError):
        i = next(i for i, value in enumerate(values) if not isinstance(value, str) or value not in known)
        expected = ", ".join(map(repr, filter(None, known)))
        raise part.error(i, "label", f"label {values[i]!r}, expected one of {expected}.") from None


def _score(spec: Dataset, part: Rows, i: int) -> float:
    value, (low, high) = part.columns["label"][i], spec.between or (float("-inf"), float("inf"))
    found = number(str(value))
    if found is None or not low <= found <= high:
        raise part.error(i, "label", f"found {value!r}, expected a number from {low:g} to {high:g}.")
    return found if spec.decimals is None else round(found, spec.decimals)
