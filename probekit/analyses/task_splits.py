"""The splits of labelled data: those that exist, and those drawn from train by group and class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.tasks.check import FEW_GROUPS
from probekit.tasks.datasets.sources import HUB_SPLITS, from_hub
from probekit.tasks.files.group_column import missing
from probekit.tasks.files.raw import Raw, read_any
from probekit.tasks.files.roles import Guess
from probekit.tasks.files.split_names import by_split, files_by_split
from probekit.tasks.task import Example, TaskKind

log = logger(__name__)
MIN_ROWS = 20
"""No split is drawn from fewer rows."""


@dataclass(frozen=True)
class Part:
    """A split: its rows, where they come from, and whether its file stays as it is."""

    raw: Raw
    note: str
    stays: bool
    hub: str = ""

    def place(self, base: Path) -> str:
        """The path of the file as written in the task file: relative if it is below the task file's folder."""
        if self.hub:
            return self.hub
        path = self.raw.path.resolve()
        return str(path.relative_to(base.resolve())) if path.is_relative_to(base.resolve()) else str(path)


def splits_of(data: Sequence[str], column: str | None = None) -> tuple[dict[str, Part], dict[str, Any]]:
    """The splits of the data, and the keys of the task file for reading them.

    Parameters
    ----------
    data : sequence of str
        A file, a folder or a data set of the hub; or the files of several splits.
    column : str, optional
        The column that names the split of each row, or "none" for none.
    """
    if data[0].startswith("hub:"):
        return _of_hub(*data[0].removeprefix("hub:").partition(":")[::2])
    files = files_by_split(data)
    raws = {split: read_any(file) for split, file in files.items()}
    keys = dict(raws["train"].keys)
    stays = all(raw.as_it_is and raw.keys == keys for raw in raws.values())
    if list(raws) == ["train"]:
        name, rows = by_split(raws["train"], column)
        if rows:
            return {split: _of_column(raws["train"], name, some) for split, some in rows.items()}, keys
    beside = len(data) == 1 and len(files) > 1 and Path(data[0]).is_file()
    given = Path(data[0]).name
    notes = {
        split: f"{raw.path.name}: {raw.how}{f'; found beside {given}' if beside and raw.path.name != given else ''}"
        for split, raw in raws.items()
    }
    return {split: Part(raw, notes[split], stays) for split, raw in raws.items()}, keys


def _of_column(raw: Raw, column: str, rows: Sequence[int]) -> Part:
    """The rows of a split that a column names, without this column."""
    columns = {name: [values[i] for i in rows] for name, values in raw.columns.items() if name != column}
    note = f"{len(rows):,} rows of {raw.path.name}, by its column {column!r}"
    return Part(replace(raw, columns=columns), note, stays=False)


def _of_hub(repository: str, config: str) -> tuple[dict[str, Part], dict[str, Any]]:
    found = from_hub("the data set", repository, config or None)
    parts = {}
    for split, theirs in HUB_SPLITS.items():
        if theirs in found:
            columns = {name: found[theirs][name] for name in found[theirs].column_names}
            for name, feature in found[theirs].features.items():
                if names := getattr(feature, "names", None):
                    columns[name] = [names[v] if v is not None and v >= 0 else None for v in columns[name]]
            raw = Raw(Path(repository), {name: list(values) for name, values in columns.items()}, "the hub's")
            parts[split] = Part(raw, f"the hub's {theirs}", stays=True, hub=theirs)
    if "train" not in parts:
        raise UsageError(f"{repository} has no split train; it has {', '.join(found)}.")
    return parts, {"hub": repository} | ({"config": config} if config else {})


def draw(splits: Mapping[str, Part], first: Guess, shares: Mapping[str, float], seed: int) -> dict[str, Part]:
    """The splits, and those of ``shares`` that they lack, drawn from train with these shares of it."""
    found, left = dict(splits), 1.0
    for split, part in shares.items():
        if part and split not in found:
            found = _drawn(found, first, split, part, left, seed)
            left -= part
    return found


def _drawn(
    splits: Mapping[str, Part], first: Guess, split: str, part: float, left: float, seed: int
) -> dict[str, Part]:
    """Add a split drawn from train: whole groups, stratified by class; part, left : shares of all rows"""
    from sklearn.model_selection import train_test_split

    train = splits["train"].raw
    if len(train) < MIN_ROWS:
        return dict(splits)
    group, how = _groups(train, first)
    if group.max() + 1 < MIN_ROWS:
        otherwise = " If the rows of a group are independent, give --groups none." if "groups" in first.roles else ""
        raise UsageError(
            f"{train.path} has {len(train):,} rows in {group.max() + 1} groups ({how}), too few to draw {split} from; "
            f"give --{split} 0, or a folder with a file for each split.{otherwise}"
        )
    strata = _strata(train, first, group)
    part /= left
    if round(part * len(strata)) <= strata.max():
        strata = np.zeros_like(strata)
    taken = train_test_split(np.arange(len(strata)), test_size=part, random_state=seed, stratify=strata)[1]
    drawn, groups = np.isin(group, taken), len(strata)
    share = math.ceil(100 * left * FEW_GROUPS / groups) / 100
    if "groups" in first.roles and len(taken) < FEW_GROUPS:
        enough = f"; --{split} {share:g} gives at least {FEW_GROUPS}" if share <= 0.5 * left else ""
        log.warning("%s has %s of %s groups%s.", split, len(taken), groups, enough)

    def some(rows: np.ndarray) -> Part:
        columns = {name: [values[i] for i in rows] for name, values in train.columns.items()}
        note = f"{len(rows):,} rows of {train.path.name}, drawn with seed {seed}: {how}"
        return Part(replace(train, columns=columns), note, stays=False)

    others = {name: Part(one.raw, one.note, stays=False) for name, one in splits.items()}
    return {**others, "train": some(np.flatnonzero(~drawn)), split: some(np.flatnonzero(drawn))}


def _groups(train: Raw, first: Guess) -> tuple[np.ndarray, str]:
    """The group of each row, numbered from 0, and how the groups were found."""
    if "groups" in first.roles:
        values = [f"={i}" if missing(v) else f":{v}" for i, v in enumerate(train.columns[first.roles["groups"]])]
        return np.unique(values, return_inverse=True)[1], f"whole groups of {first.roles['groups']!r}"

    def column(role: str) -> Sequence[Any]:
        return train.columns[first.roles[role]] if role in first.roles else [None] * len(train)

    words = [tuple(map(str, w)) if w else None for w in column("words")]
    shown = column("messages" if "messages" in first.roles else "text")
    texts = [" ".join(w) if w else str(t or "") for w, t in zip(words, shown, strict=True)]
    pairs = [None if p is None else str(p) for p in column("pair")]
    examples = [Example(str(i), t, pair=p) for i, (t, p) in enumerate(zip(texts, pairs, strict=True))]
    stored, _ = stored_groups(examples, TaskKind.CLASSIFICATION)
    if not stored:
        return np.arange(len(train)), "no groups: all texts are distinct"
    return stored["/groups"].astype(np.int64), "equal texts, shared sentences and near copies together"


def _strata(train: Raw, first: Guess, group: np.ndarray) -> np.ndarray:
    """The stratum of each group: the class of its first row; classes of a single group are merged."""
    start = np.unique(group, return_index=True)[1]
    if not first.classes or "label" not in first.roles:
        return np.zeros(len(start), dtype=np.int64)
    labels = np.array([str(v) for v in train.columns[first.roles["label"]]])[start]
    code, count = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    rare = count < 2
    if rare.any():
        code = np.where(rare[code], int(count.argmax()), code)
    return np.unique(code, return_inverse=True)[1]
