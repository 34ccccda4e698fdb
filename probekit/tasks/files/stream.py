"""Tasks that are read a part at a time, for data that do not fit into memory or whose length nobody knows.

A file of texts (``.txt``, a text a line; ``.jsonl``, with the field ``text``; also ``.gz``) is a task without labels. A
task file is read in parts if its splits are JSON lines or a data set of the hub, and if it says what the whole data
would otherwise tell: ``labels``, ``label = false``, or ``type = "regression"``.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from shutil import copyfileobj
from typing import Any, overload

import numpy as np
import xxhash

from probekit.errors import DataError, UsageError
from probekit.files import held, lock, machine
from probekit.metrics import unfit
from probekit.runtime import processes
from probekit.tasks.files.columns import record_columns, roles_of
from probekit.tasks.files.custom import default_metrics
from probekit.tasks.files.description import LATER, SUFFIXES, Format, TaskFile, read_task_file
from probekit.tasks.files.examples import one_split
from probekit.tasks.files.records import HubRecords, Records, scan
from probekit.tasks.task import Example, Examples, Split, Task, TaskKind

log = logging.getLogger(__name__)
PLAIN = (".txt", ".text")
NEXT = 10_000
"""Records that are read at a time when a whole split is read."""


def is_stream(name: str) -> bool:
    """Whether a task's name is a file of texts, which is read in parts.

    Examples
    --------
    >>> is_stream("wiki.jsonl"), is_stream("wiki.txt.gz"), is_stream("wiki.toml"), is_stream("sst2")
    (True, True, False, False)
    """
    return Path(name.removesuffix(".gz")).suffix.lower() in PLAIN or is_json_lines(name)


def is_json_lines(name: str) -> bool:
    """Whether a file's name is one of JSON lines, perhaps packed."""
    return SUFFIXES.get(Path(name.removesuffix(".gz")).suffix.lower()) is Format.JSON_LINES


@dataclass(frozen=True)
class StreamedSplit:
    """A split whose examples are read from their source when they are asked for; used like a Split.

    Attributes
    ----------
    chosen : np.ndarray, optional
        int64, the numbers of the records that are examples; None for all.
    """

    name: str
    spec: TaskFile
    kind: TaskKind
    label_names: tuple[str, ...]
    records: Records
    chosen: np.ndarray | None = field(default=None, compare=False)

    @property
    def count(self) -> int | None:
        """Number of examples; None if only reading to the end tells it."""
        return self.records.count if self.chosen is None else len(self.chosen)

    def __len__(self) -> int:
        if self.count is None:
            raise UsageError(f"the number of examples of {self.records.file} is known only when all have been read.")
        return self.count

    def __iter__(self) -> Iterator[Example]:
        first = 0
        while part := self[first : first + NEXT]:
            yield from part
            first += NEXT

    @overload
    def __getitem__(self, at: int) -> Example: ...
    @overload
    def __getitem__(self, at: slice) -> Examples: ...
    def __getitem__(self, at: int | slice) -> Example | Examples:
        if isinstance(at, int):
            return self[at : at + 1][0]
        first, last = int(at.start or 0), int(at.stop) if at.stop is not None else len(self)
        if self.chosen is None:
            return Examples(self._examples(first, last))
        found: list[Example] = []
        wanted = self.chosen[first:last]
        for window in np.unique(wanted // NEXT).tolist():  # a sparse draw is not read whole
            some = wanted[wanted // NEXT == window].tolist()
            read = self._examples(some[0], some[-1] + 1)
            found += [read[k - some[0]] for k in some]
        return Examples(found)

    def _examples(self, first: int, last: int) -> tuple[Example, ...]:
        records = self.records.read(first, last)
        if not records:
            return ()
        part = record_columns(self.records.file, records, {r: str(c) for r, c in roles_of(self.spec).items()})
        ids = part.columns.get("id") or [f"{self.name}-{k}" for k in range(first, first + len(records))]
        columns = {**part.columns, "id": ids}
        if self.label_names and "label" in columns and isinstance(self.records, HubRecords):
            names = self.label_names
            columns["label"] = [names[v] if isinstance(v, int) and 0 <= v < len(names) else v for v in columns["label"]]
        return one_split(self.name, part.with_columns(columns), self.kind, self.label_names).examples

    @property
    def paired(self) -> bool:
        """Whether the examples are pairs of sentences."""
        return self.spec.pair is not None

    def digest(self) -> str:
        """Digest of the source, and of what is read of it."""
        spec = self.spec.model_dump(exclude={"splits", "source", "licence", "metrics"})
        read = {k: v for k, v in spec.items() if v is not None or k not in LATER} | {"kind": str(self.kind)}
        sampled = None if self.chosen is None else xxhash.xxh3_128_hexdigest(self.chosen.tobytes())
        content = repr((self.name, self.records.identity, sorted(read.items()), self.label_names, sampled))
        return xxhash.xxh3_128_hexdigest(content.encode())

    def sample(self, limit: int | None, seed: int = 0) -> StreamedSplit:
        """At most ``limit`` examples, each drawn by itself; raises UsageError for an unknown length."""
        if limit is None or limit >= len(self):
            return self
        drawn = np.sort(np.random.default_rng(seed).choice(len(self), limit, replace=False))
        return StreamedSplit(self.name, self.spec, self.kind, self.label_names, self.records, drawn)

    def whole(self) -> Split:
        """All examples in memory; raises DataError for an id that occurs twice."""
        examples = tuple(self)
        [(found, times)] = Counter(e.id for e in examples).most_common(1) or [("", 0)]
        if times > 1:
            raise DataError(f"the id {found!r} occurs {times:,} times; ids must be unique.", file=self.records.file)
        return Split(self.name, examples)


def stream_task(name: str | Path, data_dir: str | Path | None = None, *, split: str = "train") -> Task:
    """The task of a file of texts, or of a task file, whose splits are read in parts.

    Parameters
    ----------
    split : str, default "train"
        The split that is needed: the others are not opened. A file of texts has this one.

    Raises
    ------
    DataError
        If the task file does not say what reading in parts needs.
    """
    path = Path(name)
    if not is_stream(str(name)):
        return _described(path, Path(data_dir) if data_dir is not None else path.parent, split)
    file = Path(data_dir) / path if data_dir is not None else path
    spec = TaskFile(splits={split: file.name}, label=False)
    plain = Path(str(file).removesuffix(".gz")).suffix.lower() in PLAIN
    part: Any = StreamedSplit(split, spec, TaskKind.CLASSIFICATION, (), scan(file, plain=plain))
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    return Task(stem, TaskKind.CLASSIFICATION, {split: part}, (), ("accuracy",), path.name)


@contextmanager
def stdin_task(folder: Path, split: str = "train", check: Callable[[Task], object] = id) -> Iterator[Task]:
    """The task "stdin" of the texts on standard input: JSON lines if the first begins with "{", or a text a line.

    Their number is known only at the end, and they are read more than once: during the block they are in a hidden file
    in ``folder``. What a killed process of this machine has left there is removed.

    Parameters
    ----------
    check : callable
        Called with the task of the first texts, before the others are read; it raises an error if the job cannot work.

    Raises
    ------
    UsageError
        If standard input is a terminal, holds no text, or several processes would share it.
    DataError
        If it is neither, or the folder cannot be written.
    """
    if processes()[1] > 1:
        raise UsageError(
            "--task - reads standard input, which the processes of torchrun would share out; write the "
            "texts to a file first: zcat FILE > corpus.jsonl"
        )
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--task - reads texts from standard input; pipe them into the command: zcat FILE | probekit …")
    source = sys.stdin.buffer
    start = source.read(1 << 16) + source.readline()
    if not start.strip():
        raise UsageError("--task - reads texts from standard input, which holds none.")
    suffix = ".jsonl" if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") else ".txt"
    path = folder / f"{_kept_here()}{token_hex(8)}{suffix}"

    def task() -> Task:
        return replace(stream_task(path, split=split), name="stdin", source="standard input")

    with ExitStack() as stack:
        with _keeping(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _remove_left(folder)
            fd = stack.enter_context(lock(path, UsageError(f"{path} is in use.")))
            file = stack.enter_context(open(fd, "ab", closefd=False))
            stack.callback(path.unlink, missing_ok=True)
            file.write(start)
            file.flush()
        try:
            check(task())
            with _keeping(folder):
                copyfileobj(source, file, 1 << 20)
                file.flush()
            yield task()
        except DataError as error:  # it names the hidden file
            what = str(error).replace(str(path), "standard input", 1)
            why = 'It was read as JSON lines, because it begins with "{"; save plain texts as FILE.txt.'
            raise DataError(f"{what} {why}" if suffix == ".jsonl" else what) from None


def _kept_here() -> str:
    """How the names of files begin that hold standard input of processes on this machine, since it was started."""
    return f".stdin-{xxhash.xxh3_64_hexdigest(machine().encode())}-"


def _remove_left(folder: Path) -> None:
    """Remove standard input of killed processes; their locks tell, but perhaps not on another machine."""
    for path in folder.glob(".stdin-*"):
        if not re.fullmatch(r"\.stdin-[0-9a-f]{16}-[0-9a-f]{16}\.(jsonl|txt)", path.name):
            continue
        if not (machine() and path.name.startswith(_kept_here())):
            log.warning("%s holds the standard input of a run that may still go on elsewhere; remove it if not.", path)
            continue
        with held(path) as alive:
            if not alive:
                path.unlink(missing_ok=True)


@contextmanager
def _keeping(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be kept in {folder}: {error.strerror or error}.", file="standard input") from error


def _described(path: Path, base: Path, split: str) -> Task:
    spec = read_task_file(path)
    kind = TaskKind(
        spec.type or (TaskKind.SEQUENCE_LABELLING if spec.words or spec.entities else TaskKind.CLASSIFICATION)
    )
    if kind not in (TaskKind.CLASSIFICATION, TaskKind.REGRESSION, TaskKind.SEQUENCE_LABELLING):
        raise DataError(f'type = "{kind}" is read whole; leave out --stream.', file=path)
    if isinstance(spec.label, list) or spec.separator:
        raise DataError("several labels of a text are read whole; leave out --stream.", file=path)
    if split not in (known := spec.splits or {split: split}):
        raise UsageError(f"{path} has no split {split!r}; it has {', '.join(known)}.")
    records = _records(path, spec, base, known[split])
    names = tuple(map(str, spec.labels or ()))
    if not names and isinstance(records, HubRecords) and isinstance(spec.label, str):
        names = records.names(spec.label)
    if not names and kind is not TaskKind.REGRESSION and spec.label is not False:
        raise DataError(
            'the labels of data that are read in parts must be known before: write labels = ["…", "…"], '
            'label = false, or type = "regression".',
            file=path,
        )
    metrics = tuple(spec.metrics or default_metrics(kind, names, ordered=spec.ordered))
    if wrong := unfit(metrics, kind):
        raise DataError(wrong, file=path)
    part: Any = StreamedSplit(split, spec, kind, names, records)
    splits: Mapping[str, Any] = {split: part}
    return Task(
        spec.name or path.stem, kind, splits, names, metrics, spec.source or spec.hub or path.name, spec.licence
    )


def _records(path: Path, spec: TaskFile, base: Path, name: str) -> Records:
    if spec.hub:
        return HubRecords(path, spec.hub, spec.config, name)
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    kind = Format(spec.format) if spec.format else SUFFIXES.get(suffix)
    if kind is not Format.JSON_LINES:
        raise DataError(
            f"{name} is read whole: only JSON lines (.jsonl, .jsonl.gz) and data sets of the hub are read in parts. "
            "Leave out --stream, or convert the file.",
            file=path,
        )
    return scan(base / name, plain=False)
