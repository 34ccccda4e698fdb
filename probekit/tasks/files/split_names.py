"""Which rows and files are train, dev and test: by a column, by the names of files, or as they are told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from probekit.errors import DataError, UsageError
from probekit.tasks.files.description import SUFFIXES
from probekit.tasks.files.group_column import NAMES
from probekit.tasks.files.raw import Raw

SPLITS = NAMES["split_names"]


def files_by_split(data: Sequence[str]) -> dict[str, Path]:
    """The files of each split: of a folder, of one file and what stands beside it, or of several files.

    Parameters
    ----------
    data : sequence of str
        A folder or a file; or several files, whose names say their splits unless they are written SPLIT=FILE.

    Raises
    ------
    DataError
        If no file, or more than one, is that of a split.
    UsageError
        If the name of one of several files says no split.
    """
    if len(data) == 1 and Path(data[0]).is_dir():
        every = [path for path in Path(data[0]).iterdir() if not path.name.startswith(".")]
        known = [path for path in every if path.suffix.lower() in SUFFIXES]
        return _by_name(known if any("train" in splits_named(path.stem) for path in known) else every, Path(data[0]))
    if len(data) == 1 and _told(data[0])[0] is None:
        return _siblings(Path(data[0]))
    found: dict[str, Path] = {}
    for one in data:
        split, path = _told(one)
        names = [split] if split else splits_named(path.stem)
        if len(names) != 1:
            raise UsageError(f"{one} does not say which split it is; write train={one}, dev={one} or test={one}.")
        if names[0] in found:
            raise UsageError(f"both {found[names[0]]} and {path} are given as the {names[0]} split; give one.")
        found[names[0]] = path
    if "train" not in found:
        raise UsageError(f"{' and '.join(map(str, found.values()))} have no training file among them; give it, too.")
    return _in_order(found)


def _told(one: str) -> tuple[str | None, Path]:
    """The split and the file of SPLIT=FILE, or no split and the file."""
    split, equals, path = one.partition("=")
    names = splits_named(split) if equals and not Path(one).exists() else []
    return (names[0], Path(path)) if len(names) == 1 and _of_a_split(split) else (None, Path(one))


def _siblings(path: Path) -> dict[str, Path]:
    """A file of a split with those of the other splits beside it, if there are any; otherwise the file as train."""
    if len(splits_named(path.stem)) != 1 or not path.is_file():
        return {"train": path}
    beside = [
        other
        for other in path.parent.iterdir()
        if other.suffix == path.suffix and without_split(other.stem) == without_split(path.stem)
    ]
    if not any("train" in splits_named(other.stem) for other in beside):
        return {"train": path}
    return _by_name(beside, path.parent)


def without_split(stem: str) -> str:
    """The name of a file without the word for its split: "reviews" of reviews_train and Reviews-dev, "" of train."""
    words = re.findall(r"[^\W_]+", stem.lower())
    return " ".join(word for word in words if word not in itertools.chain(*SPLITS.values()))


def _by_name(files: Iterable[Path], folder: Path) -> dict[str, Path]:
    """The file of each split by its name; raises DataError if there is no train, or more than one file of a split."""
    found: dict[str, list[Path]] = {}
    for path in sorted(files):
        for split in splits_named(path.stem) if path.is_file() else ():
            found.setdefault(split, []).append(path)
    if twice := next((split for split, paths in found.items() if len(paths) > 1), None):
        several = ", ".join(path.name for path in found[twice])
        raise DataError(
            f"several files could be the {twice} split: {several}. Give the folder of one data set, or the files "
            "themselves: probekit tasks new train=FILE dev=FILE.",
            file=folder,
        )
    if "train" not in found:
        there = [path.name for path in sorted(folder.iterdir())[:8]]
        data = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]
        here = f"{', '.join(there[:-1])} and {there[-1]}" if there[1:] else "".join(there) or "nothing"
        one = f" (probekit tasks new {data[0]})" if data else ""
        suffix = data[0].suffix if data else ".csv"
        raise DataError(
            f"there is no training file; the folder holds {here}. Name the training file train{suffix}, or give one "
            f"file{one}, which is then split into train, dev and test.",
            file=folder,
        )
    return _in_order({split: paths[0] for split, paths in found.items()})


def _in_order(files: dict[str, Path]) -> dict[str, Path]:
    return {split: files[split] for split in SPLITS if split in files}


def splits_named(text: str) -> list[str]:
    """The splits that a text names, such as that of a file or a cell: "Validation", "my_train_2"."""
    words = set(re.split(r"[^a-z]+", text.lower()))
    return [split for split, names in SPLITS.items() if words & set(names)]


_SHORT = {"tr": ["train"], "va": ["dev"], "te": ["test"]} | {
    name: [split] for split, names in SPLITS.items() for name in names
}
"""What a cell may say of a split, and nothing else."""


def _of_a_split(cell: str) -> bool:
    """Whether a cell says nothing but the name of a split, unlike "train station"."""
    words = set(re.findall(r"[^\W\d_]+", cell.lower()))
    return words <= {"split", "set", "data", *itertools.chain(*SPLITS.values())}


def by_split(raw: Raw, given: str | None = None) -> tuple[str, dict[str, list[int]]]:
    """The column that names the split of each row, and the rows of each; "" and no splits if there is none.

    Parameters
    ----------
    given : str, optional
        The column, or "none" for none, instead of one that is called like a split.

    Raises
    ------
    DataError
        If the column names splits, but not of each row, or no rows of train; if two columns name different splits.
    """
    lower = {name.lower(): name for name in raw.columns}
    names = [given] if given else [lower[known] for known in NAMES["splits"] if known in lower]
    if raw.keys.get("header") is False and not given:
        names = [name for name, cells in raw.columns.items() if _SHORT.keys() >= set(cells)]
    found = {} if given == "none" else {name: rows for name in names if (rows := _rows_of(raw, name))}
    first = next(iter(found), "")
    if other := next((name for name, rows in found.items() if rows != found[first]), None):
        raise DataError(
            f"both {first!r} and {other!r} name the split of each row, and they differ. Say which is right: "
            f"--columns split={first} or split={other}; split=none draws a split.",
            file=raw.path,
        )
    if given and given != "none" and not first:
        raise DataError(f"the column {given!r} names no splits such as train and dev.", file=raw.path)
    return first, found.get(first, {})


def _rows_of(raw: Raw, name: str) -> dict[str, list[int]]:
    """The rows of each split that a column names; {} if it names none."""
    rows: dict[str, list[int]] = {}
    for i, value in enumerate(raw.columns[name]):
        rows.setdefault(str(value), []).append(i)
    of = {value: _SHORT.get(value) or (splits_named(value) if _of_a_split(value) else []) for value in rows}
    if not any(of.values()) or len(raw) < 2:
        return {}
    if wrong := next((value for value, splits in of.items() if len(splits) != 1), None):
        raise DataError(
            f"the column {name!r} names the split of each row, but {wrong!r} ({len(rows[wrong]):,} rows) is none "
            f"of {', '.join(SPLITS)}; correct it, remove these rows, or rename the column.",
            file=raw.path,
        )
    found: dict[str, list[int]] = {split: [] for split in SPLITS}
    for value, (split,) in of.items():
        found[split] += rows[value]
    if not found["train"]:
        raise DataError(
            f"the column {name!r} names the split of each row, and no row is of train; add rows, or draw "
            "splits without it: --columns split=none.",
            file=raw.path,
        )
    return {split: sorted(some) for split, some in found.items() if some}
