"""Contents and irregularities of a task: counts, lengths, duplicates, leaks between splits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Label, Split, Task, TaskKind

__all__ = ["FEW_GROUPS", "SplitReport", "TaskReport", "check_task"]

LONG = 350
"""About as many words as fit into 512 word pieces."""
FEW_GROUPS = 12
"""With fewer groups, tests are weak."""
BINS = (0, 5, 10, 20, 40, 80, 160)
"""Upper ends of the length histogram's bins, in words; the last bin is open."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """A split in numbers. A "text" is the sentence, or the pair, or the words.

    Attributes
    ----------
    examples, labelled : int
        Number of examples, and of those with a label.
    labels : Mapping[str, int]
        Examples (for sequence labelling: words) of each class, by name; empty for regression.
    scores : tuple[float, float, float] | None
        Lowest, mean and highest label of a regression task, or None.
    lengths : Mapping[str, int]
        Examples by number of words (separated by spaces; both sentences of a pair are counted).
    domains : Mapping[str, int]
        Examples by domain, if the data name domains.
    empty : int
        Examples without words.
    repeated : int
        Examples whose text occurred before in the split.
    duplicates : int
        Repeated examples whose label is that of an earlier one, too.
    conflicting : int
        Texts that occur with more than one label.
    in_train : int | None
        Examples whose text occurs in the split called train; None for train itself, or if there is no such split.
    domain_in_train : int | None
        Likewise, examples whose domain (genre, template) occurs in train.
    control : int
        Examples with a control character other than tab.
    longest, long : int
        Words in the longest example, and number of examples with more than 350 words, which most models truncate.
    groups : int | None
        Number of groups, if the data declare groups; an example without a group counts as one.
    """

    name: str
    examples: int
    labelled: int
    labels: Mapping[str, int]
    scores: tuple[float, float, float] | None
    lengths: Mapping[str, int]
    domains: Mapping[str, int]
    empty: int
    repeated: int
    duplicates: int
    conflicting: int
    in_train: int | None
    domain_in_train: int | None
    control: int
    longest: int = 0
    long: int = 0
    groups: int | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task in numbers, one :class:`SplitReport` per split."""

    task: Task
    splits: tuple[SplitReport, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why a probe of this task shows little: no labels, classes missing from train, truncated texts."""
        train = next((s for s in self.splits if s.name == "train"), None)
        found = []
        for s in self.splits:
            if s.examples and not s.labelled:
                found.append(f"{s.name}: no example has a label; you cannot fit or evaluate a probe on it.")
            known = {} if train is None else train.labels
            if lacking := [f"{name} ({n:,})" for name, n in s.labels.items() if known and n and not known.get(name)]:
                found.append(f"{s.name}: train has no example of {', '.join(lacking)}; no probe can learn them.")
            if s.name != "train" and s.groups is not None and s.groups < FEW_GROUPS:
                found.append(
                    f"{s.name}: {s.examples:,} examples in {s.groups} groups; intervals need at least 5 groups, and "
                    f"tests are weak below {FEW_GROUPS}."
                )
            if s.name == "train" and s.groups is not None and s.groups < 20:
                found.append(f"train: {s.groups} groups; mutual information needs at least 20 groups in its split.")
            if s.long:
                found.append(
                    f"{s.name}: {s.long:,} examples have more than {LONG} words, the longest {s.longest:,}; models "
                    "that read 512 word pieces truncate them."
                )
        if train is not None and sum(n > 0 for n in train.labels.values()) == 1:
            found.append("train: all labels are the same; there is nothing to learn.")
        return tuple(found)


def check_task(task: str | Path | Task, data_dir: str | Path | None = None) -> TaskReport:
    """Count everything in a task; takes a second or two for 100,000 examples.

    Parameters
    ----------
    task : str, path or Task
        Name of a task, a TOML file that describes data, or the task itself.
    data_dir : path, optional
        Folder with the task's files, as in :func:`probekit.load_task`.

    Returns
    -------
    TaskReport
        Counts, labels, lengths, duplicates and overlap with train, one :class:`SplitReport` per split.

    Examples
    --------
    >>> check_task("grammar:acceptability").splits[1].in_train
    0
    """
    task = task if isinstance(task, Task) else load_task(str(task), data_dir)
    train = task.splits.get("train")
    known = ({_text(e) for e in train}, {e.domain for e in train} - {None}) if train else None
    return TaskReport(task, tuple(_check(task, s, None if s.name == "train" else known) for s in task.splits.values()))


def _text(e: Example) -> tuple[object, ...]:
    return (e.words or e.text, e.pair)


def _check(task: Task, split: Split, train: tuple[set[tuple[object, ...]], set[str | None]] | None) -> SplitReport:
    """The report of one split; ``train`` holds the texts and the domains of train."""
    seen: dict[tuple[object, ...], set[Label]] = {}
    repeated = duplicates = 0
    for e in split:
        labels = seen.setdefault(_text(e), set())
        repeated += bool(labels)
        duplicates += e.label in labels
        labels.add(e.label)
    scores = [e.label for e in split if isinstance(e.label, int | float)] if task.kind is TaskKind.REGRESSION else []
    words = [_words(e) for e in split]
    lengths = Counter(map(_bin, words))
    return SplitReport(
        name=split.name,
        examples=len(split),
        labelled=sum(e.label is not None for e in split),
        labels={} if task.kind is TaskKind.REGRESSION else _classes(task, split),
        scores=(min(scores), statistics.fmean(scores), max(scores)) if scores else None,
        lengths={name: lengths[name] for name in map(_bin, (*BINS, BINS[-1] + 1)) if lengths[name]},
        domains=Counter(e.domain for e in split if e.domain is not None),
        empty=sum(not _words(e) for e in split),
        repeated=repeated,
        duplicates=duplicates,
        conflicting=sum(len(labels - {None}) > 1 for labels in seen.values()),
        in_train=None if train is None else sum(_text(e) in train[0] for e in split),
        domain_in_train=None if train is None else sum(e.domain in train[1] for e in split),
        control=sum(_has_control(e) for e in split),
        longest=max(words, default=0),
        long=sum(n > LONG for n in words),
        groups=len({e.group or f"={e.id}" for e in split}) if any(e.group for e in split) else None,
    )


def _classes(task: Task, split: Split) -> dict[str, int]:
    """How often each class occurs, in the order of the label names."""
    counts: Counter[int] = Counter()
    for e in split:
        counts.update(e.label if isinstance(e.label, tuple) else () if e.label is None else (int(e.label),))
    return {name: counts[i] for i, name in enumerate(task.label_names)} if counts else {}


def _words(e: Example) -> int:
    return len(e.words) if e.words is not None else len(e.text.split()) + len((e.pair or "").split())


def _bin(words: int) -> str:
    low = 0
    for high in BINS:
        if words <= high:
            return f"{low}-{high}" if high else "0"
        low = high + 1
    return f"{low}+"


def _has_control(e: Example) -> bool:
    text = e.text + (e.pair or "")
    return not text.isprintable() and any((c < " " and c != "\t") or "\x7f" <= c <= "\x9f" for c in text)
