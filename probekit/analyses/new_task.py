"""Task files for your own data: guessed columns and splits, with a reason for each guess."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from probekit.analyses.task_splits import Part, draw, splits_of
from probekit.analyses.tidy_rows import tidied
from probekit.calls import checked
from probekit.constraint import File
from probekit.errors import DataError, UsageError
from probekit.files import FileKind, check_folder, slug, whole
from probekit.notes import logger
from probekit.tasks.check import UNBALANCED, metrics_of_unbalanced
from probekit.tasks.files.group_column import missing
from probekit.tasks.files.guess import guess
from probekit.tasks.files.roles import Doubt, Guess
from probekit.tasks.files.split_names import without_split
from probekit.tasks.files.squad import as_squad
from probekit.tasks.folders import plain
from probekit.tasks.load import DATASETS, load_task
from probekit.tasks.task import TaskKind

log = logger(__name__)
NEW = FileKind("a file that is not there yet", lambda path: False)
"""Task files are edited by hand, so an existing one is never replaced."""
MAX_LISTED = 12
"""Most classes that a comment in the task file lists."""


@checked
def new_task(
    *data: File,
    out: File | None = None,
    dev: float = 0.1,
    test: float = 0.0,
    seed: int = 0,
    groups: str | None = None,
    columns: tuple[str, ...] = (),
) -> Path:
    """Write a task file for your data: guess the format, columns and splits, and give the reason for each guess.

    Your files stay where they are. If a split has to be drawn, labels be spelled alike or the format converted, the
    rows are written as JSON lines next to the task file. No existing file is replaced, and none is left if it fails.

    Parameters
    ----------
    *data : str or path
        A file (.csv, .tsv, .txt, .jsonl, .json, .parquet, .conll, .conllu), a folder with a file for each split (train,
        dev or validation, test), or hub:REPO or hub:REPO:CONFIG, a data set on the Hugging Face hub. Beside one file of
        a split, such as train.csv, those of the others are found; several files name their splits, or are written
        dev=FILE.
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
    columns : sequence of str
        ROLE=COLUMN for what you know: text, pair, label, id, domain, words, tags, messages, entities, span, pair_span
        or split; ROLE=none if there is none. A guess that is not sure is a question on a terminal, otherwise a note.

    Returns
    -------
    Path
        The task file; :func:`probekit.check_task` and :func:`probekit.load_task` read it.

    Raises
    ------
    DataError
        If a file cannot be read (the message names the line), no column holds text, or all labels are the same.
    UsageError
        If a file already exists, the shares leave nothing to train on, or there is no such column.

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
        probekit tasks new train=pilot.csv dev=held-out.csv --columns label=stars
        probekit tasks new chats.jsonl --groups conversation --dev 0.2
        probekit tasks new hub:stanfordnlp/sst2
    """
    if not data:
        raise UsageError("new_task needs the data: a file, a folder, or hub:REPO.")
    if not (0 <= dev < 1 and 0 <= test < 1 and dev + test < 1):
        raise UsageError(f"dev and test must be shares of train, from 0 to a sum below 1, not {dev:g} and {test:g}.")
    given = [str(one) for one in data]
    splits, keys, first = _guessed(given, groups, columns)
    task_file = Path(f"{_name(given, splits)}.toml") if out is None else Path(out)
    if task_file.suffix != ".toml":
        raise UsageError(f"a task file must end in .toml; {task_file} does not.")
    check_folder(task_file.parent)
    for doubt in first.doubts:
        log.warning("%s: %s. Choose with --columns %s=COLUMN.", given[0], doubt, doubt.role)
    yours = splits
    splits, first, remarks = tidied(splits, first)
    for remark in remarks:
        log.warning("%s: %s", given[0], remark)
    _check_classes(given[0], first)
    splits = draw(splits, first, {"test": test, "dev": dev}, seed)
    files = _files(task_file, splits, first)
    _check_absent([task_file, *(task_file.parent / files[split] for split, one in splits.items() if not one.stays)])
    kept = all(one.stays for one in splits.values())
    texts = {task_file.parent / files[split]: _rows(one, first) for split, one in splits.items() if not one.stays}
    lines = _text(" ".join(given), task_file, splits, files, first, keys if kept else {}, kept=kept)
    texts[task_file] = "\n".join([lines[0], *(f"# {remark}" for remark in remarks), *lines[1:]]) + "\n"
    _write_all(texts, task_file, first, partial(_error_in_yours, task_file.name, yours, first, keys))
    return task_file


def _guessed(
    data: Sequence[str], groups: str | None, columns: Sequence[str]
) -> tuple[dict[str, Part], dict[str, Any], Guess]:
    """The splits of the data, the keys of a task file that reads them, and the guess."""
    column = next((one.partition("=")[2] for one in columns if one.startswith("split=")), None)
    splits, keys = splits_of(data, column)
    return splits, keys, guess(splits["train"].raw, groups, [one for one in columns if not one.startswith("split=")])


def doubts(*data: str | Path, groups: str | None = None, columns: Sequence[str] = ()) -> tuple[Doubt, ...]:
    """The guesses of :func:`new_task` about data that are not sure; nothing is written."""
    return _guessed([str(one) for one in data], groups, columns)[2].doubts


def _check_classes(data: str, first: Guess) -> None:
    """Raise DataError if all labels of train are the same."""
    if len(first.classes) == 1 and first.kind is TaskKind.CLASSIFICATION:
        ((name, count),) = first.classes.items()
        raise DataError(
            f"all {count:,} labels of train are {name!r}, and a task needs two classes. Add rows of another class, or "
            "name another column: --columns label=COLUMN, or label=none if no text has a label.",
            file=data,
            column=first.roles["label"],
        )


def _files(task_file: Path, splits: Mapping[str, Part], first: Guess) -> dict[str, str]:
    """The file of each split as the task file names it: its present one, or a new one next to the task file."""
    end = "json" if first.kind is TaskKind.QUESTION_ANSWERING else "jsonl"
    return {
        split: one.place(task_file.parent) if one.stays else task_file.with_suffix(f".{split}.{end}").name
        for split, one in splits.items()
    }


def _check_absent(places: list[Path]) -> None:
    """Raise UsageError if one of the files to write exists."""
    if there := [str(place) for place in places if place.exists() or place.is_symlink()]:
        many, it = ("already exist and are", "them") if len(there) > 1 else ("already exists and is", "it")
        use = f"To use what is there, give {there[0]} as the task. " if there[0].endswith(".toml") else ""
        raise UsageError(f"{', '.join(there)} {many} not replaced; move {it}, or give another out. {use}".strip())


def _rows(part: Part, first: Guess) -> str:
    """The rows of a split as JSON lines; questions in the format of SQuAD."""
    columns = part.raw.columns
    if first.kind is TaskKind.QUESTION_ANSWERING:
        return json.dumps(as_squad(columns, first.roles), ensure_ascii=False) + "\n"
    records = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)


def _name(data: Sequence[str], splits: Mapping[str, Part]) -> str:
    """The name of the data: of the file or folder, without the word for its split if there are several."""
    text = data[0].removeprefix("hub:")
    if data[0].startswith("hub:"):
        return text.split(":")[0].split("/")[-1] or "task"
    path = splits["train"].raw.path.resolve() if len(data) > 1 else Path(text).resolve()
    files = {one.raw.path for one in splits.values()}
    if len(files) == 1 or path.is_dir():
        return path.stem or "task"
    return "-".join(without_split(path.stem).split()) or path.parent.name or "task"


def _error_in_yours(name: str, splits: Mapping[str, Part], first: Guess, keys: Mapping[str, Any]) -> DataError | None:
    """What is wrong with the files that were given, with their lines; None if a task file cannot read them."""
    places = list(dict.fromkeys(part.raw.path.resolve() for part in splits.values()))
    if not all(part.raw.as_it_is and not part.hub for part in splits.values()):
        return None
    files = {split: str(place) for split, place in zip(splits, places, strict=False)}
    with TemporaryDirectory() as folder:
        task_file = Path(folder, name)
        lines = _text("", task_file, splits, files, first, keys, kept=True)
        task_file.write_text("\n".join(lines), encoding="utf-8")
        try:
            load_task(str(task_file))
        except DataError as error:
            return error
    return None


def _write_all(
    texts: Mapping[Path, str], task_file: Path, first: Guess, error_in_yours: Callable[[], DataError | None]
) -> None:
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
        what = error_in_yours() or f"{error} Lines count the rows as they would be written."
        raise DataError(
            f"{what} No file is left. Correct the data; or, if the guess is wrong ({guessed}), write {task_file} "
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
) -> list[str]:
    """The lines of the task file, with a comment on each guess."""
    lines = [
        f"# Guessed from {data}. Check and correct the guesses, then run: probekit tasks check {task_file.name}",
        _named(task_file.stem),
        f'type = "{first.kind}"{_remark(_kind(first))}',
    ]
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    by_number = kept and keys.get("header") is False
    told = first.kind is not TaskKind.QUESTION_ANSWERING and (splits["train"].raw.named or not kept)
    for role, column in first.roles.items() if told else ():
        shown = json.dumps(column, ensure_ascii=False)
        lines.append(f"{role} = {shown.replace(chr(34), '') if by_number else shown}{_remark(first.why[role])}")
    lines += [f"{key} = {json.dumps(value)}" for key, value in first.keys.items()]
    if first.kind is TaskKind.CLASSIFICATION and _count_up(first.classes):
        lines.append("# ordered = true  # if these classes have an order, as stars have; metrics then know it")
    lines += _metrics(splits, first)
    labelled = first.kind in (TaskKind.SEQUENCE_LABELLING, TaskKind.QUESTION_ANSWERING)
    if not labelled and "label" not in first.roles:
        lines.append("label = false  # no column looks like a label; write its name here")
    lines += [f"# Not sure: {doubt}." for doubt in first.doubts if doubt.role != "groups"]
    used = {name for column in first.roles.values() for name in (column if isinstance(column, list) else [column])}
    others = [name for name in splits["train"].raw.columns if name not in used]
    if others and told:
        lines.append(f"# Not used: {', '.join(others)}.")
    if "groups" not in first.roles and told:
        lines.append('# groups = "…"  # column that groups rows (document, author, premise)')
        if first.repeated:
            listed = ", ".join(f"{name} ({count:,} values)" for name, count in first.repeated.items())
            lines.append(f"# Repeated values: {listed}. If such rows depend on each other, use --groups COLUMN.")
    lines += ["", "[splits]"]
    lines += [
        f"{split} = {json.dumps(files[split], ensure_ascii=False)}{_remark(splits[split].note)}" for split in files
    ]
    return lines


def _count_up(classes: Mapping[str, int]) -> bool:
    """Whether classes are three whole numbers or more, one after the other."""
    numbers = sorted(int(name) for name in classes if name.isdecimal())
    return len(numbers) == len(classes) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _named(stem: str) -> str:
    """The line with the task's name: not that of a published data set, as which figures would show it."""
    if plain(stem) not in map(plain, DATASETS):
        return f"name = {json.dumps(stem, ensure_ascii=False)}"
    return f'name = "own-{slug(stem)}"{_remark(f"{stem} is a published data set, which probekit knows by this name")}'


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
