"""Contents and irregularities of a task: counts, lengths, duplicates, leaks between splits."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from probekit.calls import checked
from probekit.grid import Grid, to_html, to_markdown
from probekit.tasks.chat import role_counts
from probekit.tasks.load import load_task
from probekit.tasks.task import Example, Label, Split, Task, TaskKind

LONG = 350
"""About as many words as fit into 512 word pieces."""
NAMED = 5
"""Empty texts that a warning names."""
FEW_GROUPS = 12
"""With fewer groups, tests are weak."""
MANY_DOMAINS = 20
"""With as many domains, a domain may be a document or an author."""
SHOWN = 3
"""Groups that a warning names."""
UNBALANCED = 0.9
"""Share of the most frequent class from which accuracy says little."""
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
        Examples without words; ``empty_ids`` names the first ones.
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
    group_in_train : int | None
        Examples whose group occurs in train, if the data declare groups.
    shared_groups : tuple[str, ...]
        Those groups, in the order of the split.
    targets : int | None
        Number of spans and pairs of spans to classify, for span labelling.
    messages : Mapping[str, int]
        Messages of each role, for conversations.
    numbers : Mapping[str, tuple[float, float, float]]
        The lowest, mean and highest of each of several numbers.
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
    group_in_train: int | None = None
    shared_groups: tuple[str, ...] = ()
    targets: int | None = None
    messages: Mapping[str, int] = field(default_factory=dict)
    numbers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    empty_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task in numbers, one :class:`SplitReport` per split; ``print`` shows a table, and so do notebooks."""

    task: Task
    splits: tuple[SplitReport, ...]

    @property
    def title(self) -> str:
        """What the task is, in a line."""
        unit = "sentence pairs" if any(split.paired for split in self.task.splits.values()) else "sentences"
        return f"{self.task.name}: {self.task.kind} of {unit}, measured by {', '.join(self.task.metrics)}"

    def grid(self) -> Grid:
        """The counts, one column a split."""
        from probekit.tasks.counts import counts

        return counts(self)

    def __str__(self) -> str:
        return "\n".join([self.title, "", to_markdown(self.grid()), *(f"Warning: {one}" for one in self.warnings)])

    def _repr_html_(self) -> str:
        warnings = "".join(f"<p><b>Warning:</b> {escape(one)}</p>" for one in self.warnings)
        return f"<p><b>{escape(self.title)}</b></p>{to_html(self.grid())}{warnings}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why a probe of this task shows little: no labels, classes missing from train, truncated texts."""
        train = next((s for s in self.splits if s.name == "train"), None)
        found = [warning for split in self.splits for warning in self._of_split(split, train)]
        if train is not None and sum(n > 0 for n in train.labels.values()) == 1:
            found.append("train: all labels are the same; there is nothing to learn.")
        return tuple(found)

    def _of_split(self, s: SplitReport, train: SplitReport | None) -> Iterator[str]:
        """The warnings about one split."""
        if s.examples and not s.labelled:
            yield f"{s.name}: no example has a label; you cannot fit or evaluate a probe on it."
        yield from _unlabelled(s, self.task)
        known = {} if train is None else train.labels
        if lacking := [f"{name} ({n:,})" for name, n in s.labels.items() if known and n and not known.get(name)]:
            yield f"{s.name}: train has no example of {', '.join(lacking)}; no probe can learn them."
        if s.name != "train":
            yield from _unbalanced(s, self.task)
            yield from _few_groups(s)
            yield from _shared_groups(s)
        if s.name == "train" and s.groups is not None and s.groups < 20:
            yield f"train: {s.groups} groups; mutual information needs at least 20 groups in its split."
        if s.empty:
            more = ", …" * (s.empty > len(s.empty_ids))
            which = ", ".join(s.empty_ids) + more
            yield f"{s.name}: {s.empty:,} texts are empty ({which}); no model can tell them apart."
        if s.long:
            yield (
                f"{s.name}: {s.long:,} examples have more than {LONG} words, the longest {s.longest:,}; models that "
                "read 512 word pieces truncate them."
            )


def metrics_of_unbalanced(classes: int) -> tuple[str, ...]:
    """The metrics, the main one first, of a classification in which one class is far more frequent than the others."""
    return ("matthews", "macro-f1", "accuracy") if classes == 2 else ("macro-f1", "matthews", "accuracy")


def _unlabelled(s: SplitReport, task: Task) -> Iterator[str]:
    """Of several labels: whether empty cells may stand for texts without a label."""
    some = task.kind is TaskKind.MULTI_LABEL and 0 < s.labelled < s.examples
    if some and all(e.label != () for e in task.split(s.name)):
        yield (
            f"{s.name}: unlabelled, left out: {s.examples - s.labelled:,}; and no example is said to have no label. If "
            "an empty cell means that no label holds, give columns of 1 and 0, or lists such as []."
        )


def _unbalanced(s: SplitReport, task: Task) -> Iterator[str]:
    """Where the main metric is accuracy, and a constant prediction is nearly as good as any."""
    if task.kind is not TaskKind.CLASSIFICATION or task.metrics[:1] != ("accuracy",) or not s.labels:
        return
    name, count = max(s.labels.items(), key=lambda item: item[1])
    if UNBALANCED * s.labelled <= count < s.labelled:
        better = metrics_of_unbalanced(len(task.label_names))[0]
        yield (
            f"{s.name}: {100 * count / s.labelled:.0f} % of the labels are {name}, so always predicting it has "
            f'that accuracy. Choose another main metric: metrics = ["{better}", "accuracy"] in the task file, '
            f"or probe --metrics {better},accuracy."
        )


def _few_groups(s: SplitReport) -> Iterator[str]:
    if s.groups is not None and s.groups < FEW_GROUPS:
        yield (
            f"{s.name}: {s.examples:,} examples in {s.groups} groups; intervals need at least 5 groups, and tests are "
            f"weak below {FEW_GROUPS}."
        )


def _shared_groups(s: SplitReport) -> Iterator[str]:
    """Groups, or domains that may be groups, in both train and the split."""
    if s.shared_groups:
        named = ", ".join(s.shared_groups[:SHOWN]) + " …" * (len(s.shared_groups) > SHOWN)
        yield (
            f"{s.name}: {s.group_in_train or 0:,} of {s.examples:,} examples are in groups that also occur in train "
            f"({len(s.shared_groups):,}: {named}); results on them say less about new groups. Move each group to one "
            "split: probekit tasks new DATA --groups COLUMN draws whole groups from one file. If different groups "
            "have the same name, rename them."
        )
    elif s.groups is None and s.domain_in_train and len(s.domains) >= MANY_DOMAINS:
        yield (
            f"{s.name}: {s.domain_in_train:,} of {s.examples:,} examples are from domains that also occur in train, "
            f"and there are {len(s.domains):,} domains. If a domain is a document or an author, its examples depend on "
            'each other: name the column as groups (groups = "…"), and move each group to one split.'
        )


@checked
def check_task(task: str | Path | Task, /, data_dir: str | Path | None = None) -> TaskReport:
    """Load a task and count its examples, labels, lengths, duplicates and overlap with train.

    It takes a second or two for 100,000 examples.

    Parameters
    ----------
    task : str, path or Task
        A TOML file that describes your data, or the name of a task; in Python also the task itself.
    data_dir : path, optional
        Folder of the task's files.

    Returns
    -------
    TaskReport
        Counts, labels, lengths, duplicates and overlap with train, one :class:`SplitReport` per split.

    Examples
    --------
    >>> check_task("grammar:acceptability").splits[1].in_train
    0

    On the command line::

        probekit tasks check mine.toml
    """
    task = task if isinstance(task, Task) else load_task(str(task), data_dir)
    train = _Known.of(task.splits["train"]) if "train" in task.splits else None
    return TaskReport(task, tuple(_check(task, s, None if s.name == "train" else train) for s in task.splits.values()))


@dataclass(frozen=True, slots=True)
class _Known:
    """What occurs in train."""

    texts: Set[tuple[object, ...]]
    domains: Set[str]
    groups: Set[str]

    @classmethod
    def of(cls, train: Split) -> _Known:
        texts = {_text(e) for e in train}
        return cls(texts, {e.domain for e in train if e.domain}, {e.group for e in train if e.group})


def _text(e: Example) -> tuple[object, ...]:
    return (e.chat or e.words or e.text, e.pair, *e.choices)


def _check(task: Task, split: Split, train: _Known | None) -> SplitReport:
    """The report of one split; ``train`` is what it may share with train."""
    seen: dict[tuple[object, ...], set[Label]] = {}
    repeated = duplicates = 0
    for e in split:
        labels = seen.setdefault(_text(e), set())
        repeated += bool(labels)
        duplicates += e.label in labels
        labels.add(e.label)
    scores = [e.label for e in split if isinstance(e.label, int | float)] if task.kind is TaskKind.REGRESSION else []
    words, grouped = [_words(e) for e in split], any(e.group for e in split)
    shared = [e.group for e in split if train is not None and e.group in train.groups and e.group]
    lengths = Counter(map(_bin, words))
    return SplitReport(
        name=split.name,
        examples=len(split),
        labelled=sum(_labelled(e) for e in split),
        labels={} if task.kind in (TaskKind.REGRESSION, TaskKind.MULTI_OUTPUT) else _classes(task, split),
        scores=(min(scores), statistics.fmean(scores), max(scores)) if scores else None,
        lengths={name: lengths[name] for name in map(_bin, (*BINS, BINS[-1] + 1)) if lengths[name]},
        domains=Counter(e.domain for e in split if e.domain is not None),
        empty=len(empty := [e.id for e in split if not _words(e)]),
        empty_ids=tuple(empty[:NAMED]),
        repeated=repeated,
        duplicates=duplicates,
        conflicting=sum(len(labels - {None}) > 1 for labels in seen.values()),
        in_train=None if train is None else sum(_text(e) in train.texts for e in split),
        domain_in_train=None if train is None else sum(e.domain in train.domains for e in split),
        control=sum(_has_control(e) for e in split),
        longest=max(words, default=0),
        long=sum(n > LONG for n in words),
        groups=len({e.group or f"={e.id}" for e in split}) if grouped else None,
        group_in_train=len(shared) if grouped and train is not None else None,
        shared_groups=tuple(dict.fromkeys(shared)),
        targets=sum(len(e.targets) for e in split) if task.kind is TaskKind.SPAN_LABELLING else None,
        messages=role_counts([e.chat for e in split if e.chat]),
        numbers=_numbers(task, split) if task.kind is TaskKind.MULTI_OUTPUT else {},
    )


def _labelled(e: Example) -> bool:
    return e.label is not None or any(target.label is not None for target in e.targets)


def _classes(task: Task, split: Split) -> dict[str, int]:
    """How often each class occurs, in the order of the label names."""
    counts: Counter[int] = Counter()
    for label in (label for e in split for label in (e.label, *(target.label for target in e.targets))):
        counts.update(map(int, label) if isinstance(label, tuple) else () if label is None else (int(label),))
    return {name: counts[i] for i, name in enumerate(task.label_names)} if counts else {}


def _numbers(task: Task, split: Split) -> dict[str, tuple[float, float, float]]:
    """The lowest, mean and highest of each of several numbers."""
    known = [e.label for e in split if isinstance(e.label, tuple)]
    columns = zip(task.label_names, zip(*known, strict=True), strict=True) if known else ()
    return {name: (min(values), statistics.fmean(values), max(values)) for name, values in columns}


def _words(e: Example) -> int:
    if e.words is not None:
        return len(e.words)
    return sum(len(text.split()) for text in (e.text, e.pair or "", *e.choices))


def _bin(words: int) -> str:
    low = 0
    for high in BINS:
        if words <= high:
            return f"{low}-{high}" if high else "0"
        low = high + 1
    return f"{low}+"


def _has_control(e: Example) -> bool:
    text = e.text + (e.pair or "")
    text = text.replace("\n", " ") if e.chat else text
    return not text.isprintable() and any((c < " " and c != "\t") or "\x7f" <= c <= "\x9f" for c in text)
