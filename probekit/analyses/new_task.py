"""Task files for your own data: guessed columns, splits drawn by group and class, a reason for each guess."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.grouping import stored_groups
from probekit.errors import UsageError
from probekit.files import FileKind, check_folder, whole
from probekit.tasks.check import FEW_GROUPS
from probekit.tasks.datasets.sources import HUB_SPLITS, from_hub
from probekit.tasks.files.description import SUFFIXES, Format
from probekit.tasks.files.guess import Guess, Raw, guess, read_any, split_files
from probekit.tasks.task import Example, TaskKind

__all__ = ["new_task"]

log = logging.getLogger(__name__)
NEW = FileKind("a file that is not there yet", lambda path: False)
"""Task files are edited by hand, so an existing one is never replaced."""
MIN_ROWS = 20
"""No split is drawn from fewer rows."""
MAX_LISTED = 12
"""Most classes that a comment in the task file lists."""


def new_task(
    data: str | Path,
    /,
    *,
    out: str | Path | None = None,
    dev: float = 0.1,
    test: float = 0.0,
    seed: int = 0,
) -> Path:
    """Write a task file for labelled data: formats, columns and splits are guessed, with a comment on each guess.

    Parameters
    ----------
    data : str or path
        A file (.csv, .tsv, .txt, .jsonl, .json, .parquet, .conll, .conllu), a folder with a file for each split
        (train, dev or validation, test), or ``hub:REPO`` or ``hub:REPO:CONFIG``, a data set on the Hugging Face hub.
    out : path, optional
        The task file, whose name is the task's (default: the name of the data with the suffix .toml, in the current
        folder). Existing files are not replaced.
    dev, test : float
        Shares of train to hold out if the data have no such split; 0 for none. Whole groups are drawn (from the group
        column, otherwise equal texts, shared sentences and near copies), stratified by class.
    seed : int
        Seed of the random split.

    Returns
    -------
    Path
        The task file; :func:`probekit.check_task` and :func:`probekit.load_task` read it.

    Raises
    ------
    DataError
        If a file cannot be read (the message names the line), or no column holds text.
    UsageError
        If a file already exists, or the shares leave nothing to train on.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f'"a {"good" if i % 2 else "bad"} film, number {i}";{i % 2}' for i in range(200)]
    >>> _ = (folder / "films.csv").write_text("review;liked\\n" + "\\n".join(rows))
    >>> task = new_task(folder / "films.csv", out=folder / "films.toml")
    >>> sorted(path.name for path in folder.iterdir())
    ['films.csv', 'films.dev.jsonl', 'films.toml', 'films.train.jsonl']
    """
    if not (0 <= dev < 1 and 0 <= test < 1 and dev + test < 1):
        raise UsageError(f"dev and test must be shares of train, from 0 to a sum below 1, not {dev:g} and {test:g}.")
    name = _name(data)
    task_file = Path(f"{name}.toml") if out is None else Path(out)
    if task_file.suffix != ".toml":
        raise UsageError(f"a task file must end in .toml; {task_file} does not.")
    check_folder(task_file.parent)
    splits, header = _splits(str(data))
    first = guess(splits["train"].raw)
    left = 1.0
    for split, part in (("test", test), ("dev", dev)):
        if part and split not in splits:
            splits = _drawn(splits, first, split, part, left, seed)
            left -= part
    places = [task_file, *(task_file.with_suffix(f".{split}.jsonl") for split, one in splits.items() if not one.stays)]
    if there := [str(place) for place in places if place.exists() or place.is_symlink()]:
        many, it = ("already exist and are", "them") if len(there) > 1 else ("already exists and is", "it")
        raise UsageError(f"{', '.join(there)} {many} not replaced; move {it}, or give another --out.")
    files = {}
    for split, one in splits.items():
        if one.stays:
            files[split] = one.place(task_file.parent)
            continue
        path = task_file.with_suffix(f".{split}.jsonl")
        records = (dict(zip(one.raw.columns, row, strict=True)) for row in zip(*one.raw.columns.values(), strict=True))
        _write(path, "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records))
        files[split] = path.name
    kept = all(one.stays for one in splits.values())
    _write(task_file, _text(str(data), task_file, splits, files, first, header if kept else {}, kept=kept))
    return task_file


@dataclass(frozen=True)
class _Part:
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


def _name(data: str | Path) -> str:
    text = str(data).removeprefix("hub:")
    return (text.split(":")[0].split("/")[-1] if str(data).startswith("hub:") else Path(text).resolve().stem) or "task"


def _splits(data: str) -> tuple[dict[str, _Part], dict[str, Any]]:
    """The splits of the data, and the keys of the task file for reading them."""
    if data.startswith("hub:"):
        return _of_hub(*data.removeprefix("hub:").partition(":")[::2])
    path = Path(data)
    files = split_files(path) if path.is_dir() else {"train": path}
    raws = {split: read_any(file) for split, file in files.items()}
    stays = all(raw.as_it_is and raw.header == raws["train"].header for raw in raws.values())
    keys: dict[str, Any] = {} if raws["train"].header else {"header": False}
    if not raws["train"].named and SUFFIXES[files["train"].suffix.lower()] is Format.TSV:
        keys["format"] = str(Format.CONLL)
    return {split: _Part(raw, f"{raw.path.name}: {raw.how}", stays) for split, raw in raws.items()}, keys


def _of_hub(repository: str, config: str) -> tuple[dict[str, _Part], dict[str, Any]]:
    found = from_hub("the data set", repository, config or None)
    parts = {}
    for split, theirs in HUB_SPLITS.items():
        if theirs in found:
            columns = {name: found[theirs][name] for name in found[theirs].column_names}
            for name, feature in found[theirs].features.items():
                if names := getattr(feature, "names", None):
                    columns[name] = [names[v] if v is not None and v >= 0 else None for v in columns[name]]
            raw = Raw(Path(repository), {name: list(values) for name, values in columns.items()}, "the hub's")
            parts[split] = _Part(raw, f"the hub's {theirs}", stays=True, hub=theirs)
    if "train" not in parts:
        raise UsageError(f"{repository} has no split train; it has {', '.join(found)}.")
    return parts, {"hub": repository} | ({"config": config} if config else {})


def _drawn(
    splits: Mapping[str, _Part], first: Guess, split: str, part: float, left: float, seed: int
) -> dict[str, _Part]:
    """Add a split drawn from train: whole groups, stratified by class; part, left : shares of all rows"""
    from sklearn.model_selection import train_test_split

    train = splits["train"].raw
    if len(train) < MIN_ROWS:
        return dict(splits)
    group, how = _groups(train, first)
    if group.max() + 1 < MIN_ROWS:
        raise UsageError(
            f"{train.path} has {len(train):,} rows in {group.max() + 1} groups ({how}), too few to draw {split} from; "
            "give --dev 0, or a folder with a file for each split."
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

    def some(rows: np.ndarray) -> _Part:
        columns = {name: [values[i] for i in rows] for name, values in train.columns.items()}
        note = f"{len(rows):,} rows of {train.path.name}, drawn with seed {seed}: {how}"
        return _Part(Raw(train.path, columns, train.how, header=train.header), note, stays=False)

    others = {name: _Part(one.raw, one.note, stays=False) for name, one in splits.items()}
    return {**others, "train": some(np.flatnonzero(~drawn)), split: some(np.flatnonzero(drawn))}


def _groups(train: Raw, first: Guess) -> tuple[np.ndarray, str]:
    """The group of each row, numbered from 0, and how the groups were found."""
    if "groups" in first.roles:
        values = [str(v) for v in train.columns[first.roles["groups"]]]
        return np.unique(values, return_inverse=True)[1], f"whole groups of {first.roles['groups']!r}"

    def column(role: str) -> Sequence[Any]:
        return train.columns[first.roles[role]] if role in first.roles else [None] * len(train)

    words = [tuple(map(str, w)) if w else None for w in column("words")]
    texts = [" ".join(w) if w else str(t or "") for w, t in zip(words, column("text"), strict=True)]
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


def _write(path: Path, text: str) -> None:
    with whole(path, NEW) as new:
        new.write_text(text, encoding="utf-8", newline="\n")


def _text(
    data: str,
    task_file: Path,
    splits: Mapping[str, _Part],
    files: Mapping[str, str],
    first: Guess,
    keys: Mapping[str, Any],
    *,
    kept: bool,
) -> str:
    """The text of the task file, with a comment on each guess."""
    lines = [
        f"# Guessed from {data}. Check and correct the guesses, then run: probekit tasks check {task_file.name}",
        f"name = {json.dumps(task_file.stem, ensure_ascii=False)}",
        f'type = "{first.kind}"{_remark(_kind(first))}',
    ]
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    by_number = kept and keys.get("header") is False
    for role, column in first.roles.items() if splits["train"].raw.named or not kept else ():
        lines.append(
            f"{role} = {column if by_number else json.dumps(column, ensure_ascii=False)}{_remark(first.why[role])}"
        )
    if first.kind is not TaskKind.SEQUENCE_LABELLING and "label" not in first.roles:
        lines.append("label = false  # no column looks like a label; write its name here")
    others = [name for name in splits["train"].raw.columns if name not in first.roles.values()]
    if others:
        lines.append(f"# Not used: {', '.join(others)}.")
    if "groups" not in first.roles:
        lines.append('# groups = "…"  # column that groups rows (document, author, premise)')
    lines += ["", "[splits]"]
    lines += [
        f"{split} = {json.dumps(files[split], ensure_ascii=False)}{_remark(splits[split].note)}" for split in files
    ]
    return "\n".join(lines) + "\n"


def _remark(text: str) -> str:
    return f"  # {' '.join(text.split())}" if text else ""


def _kind(first: Guess) -> str:
    if first.kind is TaskKind.REGRESSION:
        return "labels are numbers, with fractions or many values"
    common = Counter(first.classes).most_common(MAX_LISTED)
    listed = ", ".join(f"{name} ({count:,})" for name, count in common)
    more = f" and {len(first.classes) - len(common):,} more" if len(first.classes) > len(common) else ""
    return f"{len(first.classes)} classes: {listed}{more}" if common else ""
