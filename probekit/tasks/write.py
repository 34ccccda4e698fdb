"""Tasks as text files in the layout of SentEval's probing tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probekit.calls import checked
from probekit.constraint import File
from probekit.errors import DataError, UsageError
from probekit.files import FileKind, check_folder, slug, whole
from probekit.tasks.load import load_task, treebank_task
from probekit.tasks.task import Task, TaskKind

PARTS = {"train": "tr", "dev": "va", "test": "te"}
NEW = FileKind("a file that is not there yet", lambda path: False)


@checked
def write_tasks(
    tasks: Sequence[str] | str, /, *, out: File, data_dir: str | Path | None = None, seed: int = 0
) -> list[Path]:
    """Write tasks of sentences as files in SentEval's layout: tr, va or te, the label and the sentence in each line.

    No existing file is replaced.

    Parameters
    ----------
    tasks : str, or sequence of str
        Classification tasks of sentences, such as treebank:tree-depth.
    out : path
        The folder; treebank:tree-depth becomes tree_depth.txt there, which the task senteval-tree-depth reads. The name
        of any other task becomes that of its file.
    data_dir : path, optional
        Folder of the tasks' files.
    seed : int, default 0
        Random seed of what is drawn from a treebank; other tasks draw nothing.

    Returns
    -------
    list of Path
        One file for each task. A file that has the same content already is left as it is.

    Raises
    ------
    UsageError
        If a task is of another kind, or another file is where one is to be written; then none is written.
    DataError
        If a task cannot be read, or a sentence has a tab or a line end.

    Examples
    --------
    >>> import tempfile
    >>> (path,) = write_tasks("grammar:acceptability", out=tempfile.mkdtemp())
    >>> path.name
    'grammar-acceptability.txt'

    On the command line::

        probekit tasks write treebank:tree-depth --data-dir UD_English-EWT --out probing
        probekit tasks write treebank:past-present treebank:bigram-shift --data-dir UD_German-GSD --out probing
    """
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    if not names:
        raise UsageError("no task is given; name one or several, such as treebank:tree-depth.")
    folder, contents = Path(out), dict[Path, str]()
    for name in names:
        base, _, part = name.partition(":")
        if seed and base != "treebank":
            raise UsageError(f"{name} draws nothing, so it takes no seed; leave it out.")
        task = treebank_task(part, data_dir, seed) if base == "treebank" else load_task(name, data_dir)
        path = folder / _file(name)
        if path in contents:
            raise UsageError(f"{path} would be written twice; name each task once, and treebanks in other folders.")
        contents[path] = _lines(task)
    check_folder(folder)
    waiting = {path: text for path, text in contents.items() if not _is_written(path, text)}
    for path in waiting:
        NEW.check(path)
    for path, text in waiting.items():
        with whole(path, NEW) as new:
            new.write_text(text, encoding="utf-8", newline="")
    return list(contents)


def _file(name: str) -> str:
    base, _, part = name.partition(":")
    if base == "treebank" or name.startswith("senteval-"):
        sentences = part.partition(":")[0] if base == "treebank" else name.removeprefix("senteval-")
        return f"{sentences.replace('-', '_')}.txt"
    return f"{slug(name)}.txt"


def _lines(task: Task) -> str:
    if task.kind is not TaskKind.CLASSIFICATION or any(split.paired for split in task.splits.values()):
        raise UsageError(f"{task.name} is not a classification of single sentences, which the layout is for.")
    lines = []
    for split, part in PARTS.items():
        for e in task.splits.get(split, ()):
            if e.label is None:
                continue
            if {"\t", "\n", "\r"} & set(e.text):
                raise DataError(f"{task.name}: the sentence {e.id!r} of {split} has a tab or a line end.")
            lines.append(f"{part}\t{task.label_names[int(e.label)]}\t{e.text}\n")  # type: ignore[arg-type]
    if not lines:
        has = ", ".join(task.splits)
        raise UsageError(f"{task.name} has no labelled sentences in train, dev or test; its splits are {has}.")
    return "".join(lines)


def _is_written(path: Path, text: str) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == text.encode()
