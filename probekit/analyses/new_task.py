"""Task files for your own data: guessed columns and splits, with a reason for each guess."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probekit.analyses.task_splits import Part, draw, splits_of
from probekit.calls import checked
from probekit.constraint import File
from probekit.errors import DataError, UsageError
from probekit.files import FileKind, check_folder, whole
from probekit.tasks.check import UNBALANCED, metrics_of_unbalanced
from probekit.tasks.files.group_column import missing
from probekit.tasks.files.guess import Guess, guess
from probekit.tasks.load import load_task
from probekit.tasks.task import TaskKind

NEW = FileKind("a file that is not there yet", lambda path: False)
"""Task files are edited by hand, so an existing one is never replaced."""
MAX_LISTED = 12
"""Most classes that a comment in the task file lists."""


@checked
def new_task(
    data: str | Path,
    /,
    *,
    out: File | None = None,
    dev: float = 0.1,
    test: float = 0.0,
    seed: int = 0,
    groups: str | None = None,
) -> Path:
    """Write a task file for your data: guess the format, columns and splits, and give the reason for each guess.

    Your files stay where they are. If a split has to be drawn or the format converted, the rows are written as JSON
    lines next to the task file. No existing file is replaced.

    Parameters
    ----------
    data : str or path
        A file (.csv, .tsv, .txt, .jsonl, .json, .parquet, .conll, .conllu), a folder with a file for each split (train,
        dev or validation, test), or hub:REPO or hub:REPO:CONFIG, a data set on the Hugging Face hub.
    out : path, optional
        The task file to write, whose name is the task's; by default the name of the data with .toml, in the current
        folder.
    dev : float
        Share of train to hold out as dev if the data have no dev split, neither as a file nor by a column split; 0 for
        none. Groups stay whole (from the group column, otherwise equal texts, shared sentences and near copies), and
        classes keep their proportions.
    test : float
        The same for test.
    seed : int
        Random seed of the drawn splits.
    groups : str, optional
        Column of the groups of rows that depend on each other (dialogue, document, author), or none; by default guessed
        from the names and values of the columns.

    Returns
    -------
    Path
        The task file; :func:`probekit.check_task` and :func:`probekit.load_task` read it.

    Raises
    ------
    DataError
        If a file cannot be read (the message names the line), or no column holds text.
    UsageError
        If a file already exists, the shares leave nothing to train on, or there is no such column of groups.

    Examples
    --------
    >>> import tempfile
    >>> from probekit import check_task
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f'"film {i} is {"good" if i % 2 else "bad"}, {i * i}";{i % 2};u{i // 4}' for i in range(200)]
    >>> _ = (folder / "films.csv").write_text("review;liked;user\\n" + "\\n".join(rows))
    >>> task = new_task(folder / "films.csv", out=folder / "films.toml")
    >>> sorted(path.name for path in folder.iterdir())
    ['films.csv', 'films.dev.jsonl', 'films.toml', 'films.train.jsonl']
    >>> check_task(task).splits[1].groups
    5

    On the command line::

        probekit tasks new reviews.csv
        probekit tasks new data/ --out mine.toml
        probekit tasks new chats.jsonl --groups conversation --dev 0.2
        probekit tasks new hub:stanfordnlp/sst2
    """
    if not (0 <= dev < 1 and 0 <= test < 1 and dev + test < 1):
        raise UsageError(f"dev and test must be shares of train, from 0 to a sum below 1, not {dev:g} and {test:g}.")
    task_file = Path(f"{_name(data)}.toml") if out is None else Path(out)
    if task_file.suffix != ".toml":
        raise UsageError(f"a task file must end in .toml; {task_file} does not.")
    check_folder(task_file.parent)
    splits, header = splits_of(str(data))
    first = guess(splits["train"].raw, groups)
    splits = draw(splits, first, {"test": test, "dev": dev}, seed)
    files = _files(task_file, splits)
    _check_absent([task_file, *(task_file.parent / files[split] for split, one in splits.items() if not one.stays)])
    kept = all(one.stays for one in splits.values())
    texts = {task_file.parent / files[split]: _json_lines(one) for split, one in splits.items() if not one.stays}
    texts[task_file] = _text(str(data), task_file, splits, files, first, header if kept else {}, kept=kept)
    _write_all(texts, task_file, first)
    return task_file


def _files(task_file: Path, splits: Mapping[str, Part]) -> dict[str, str]:
    """The file of each split as the task file names it: its present one, or a new one next to the task file."""
    return {
        split: one.place(task_file.parent) if one.stays else task_file.with_suffix(f".{split}.jsonl").name
        for split, one in splits.items()
    }


def _check_absent(places: list[Path]) -> None:
    """Raise UsageError if one of the files to write exists."""
    if there := [str(place) for place in places if place.exists() or place.is_symlink()]:
        many, it = ("already exist and are", "them") if len(there) > 1 else ("already exists and is", "it")
        raise UsageError(f"{', '.join(there)} {many} not replaced; move {it}, or give another --out.")


def _json_lines(part: Part) -> str:
    """The rows of a split as JSON lines."""
    columns = part.raw.columns
    records = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)


def _name(data: str | Path) -> str:
    text = str(data).removeprefix("hub:")
    return (text.split(":")[0].split("/")[-1] if str(data).startswith("hub:") else Path(text).resolve().stem) or "task"


def _write_all(texts: Mapping[Path, str], task_file: Path, first: Guess) -> None:
    """Write files that are not there yet; none stays if one cannot be written, or if the task cannot be read."""
    written: list[Path] = []
    try:
        for path, text in texts.items():
            with whole(path, NEW) as new:
                new.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
        load_task(str(task_file))
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if not isinstance(error, DataError):
            raise
        guessed = ", ".join(f"{role} = {column!r}" for role, column in first.roles.items())
        raise DataError(
            f"{error} No file is left. Correct the data; or, if the guess is wrong ({guessed}), write {task_file} "
            "yourself."
        ) from None


def _text(
    data: str,
    task_file: Path,
    splits: Mapping[str, Part],
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
    lines += _metrics(splits, first)
    if first.kind is not TaskKind.SEQUENCE_LABELLING and "label" not in first.roles:
        lines.append("label = false  # no column looks like a label; write its name here")
    others = [name for name in splits["train"].raw.columns if name not in first.roles.values()]
    if others:
        lines.append(f"# Not used: {', '.join(others)}.")
    if "groups" not in first.roles:
        lines.append('# groups = "…"  # column that groups rows (document, author, premise)')
        if first.repeated:
            listed = ", ".join(f"{name} ({count:,} values)" for name, count in first.repeated.items())
            lines.append(f"# Repeated values: {listed}. If such rows depend on each other, use --groups COLUMN.")
    lines += ["", "[splits]"]
    lines += [
        f"{split} = {json.dumps(files[split], ensure_ascii=False)}{_remark(splits[split].note)}" for split in files
    ]
    return "\n".join(lines) + "\n"


def _metrics(splits: Mapping[str, Part], first: Guess) -> list[str]:
    """The line of metrics that suit unbalanced classes, if those of dev (without dev: of train) are so."""
    if first.kind is not TaskKind.CLASSIFICATION or "label" not in first.roles:
        return []
    split = "dev" if "dev" in splits else "train"
    labels = [str(v) for v in splits[split].raw.columns.get(first.roles["label"], ()) if not missing(v)]
    name, count = max(Counter(labels).items(), key=lambda item: item[1], default=("", 0))
    if not UNBALANCED * len(labels) <= count < len(labels):
        return []
    share, metrics = count / len(labels), metrics_of_unbalanced(len(first.classes))
    why = f"{100 * share:.0f} % of {split} are {name}, so always predicting it has that accuracy"
    return [f"metrics = {json.dumps(metrics)}{_remark(why)}"]


def _remark(text: str) -> str:
    return f"  # {' '.join(text.split())}" if text else ""


def _kind(first: Guess) -> str:
    if first.kind is TaskKind.REGRESSION:
        return "labels are numbers, with fractions or many values"
    common = Counter(first.classes).most_common(MAX_LISTED)
    listed = ", ".join(f"{name} ({count:,})" for name, count in common)
    more = f" and {len(first.classes) - len(common):,} more" if len(first.classes) > len(common) else ""
    return f"{len(first.classes)} classes: {listed}{more}" if common else ""
