"""Labels of a user's data that mean that there is none: empty cells, and words and numbers that stand for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probekit.tasks.datasets.sources import number
from probekit.tasks.files.columns import Rows

WORDS = ("nan", "null", "none", "na", "n/a", "<na>", "#n/a")
"""What tables write for a missing number, in upper or lower case."""
NUMBERS = ("-1", "-100")
"""What the hub writes for a hidden label, and PyTorch for one to ignore."""


def missing(value: Any) -> bool:
    """Whether a cell is empty: nothing, null or NaN."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def class_name(value: Any) -> str:
    """A label as the name of a class."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def names_of_none(labels: Iterable[Counter[str]], listed: Sequence[str] | None, *, scores: bool) -> set[str]:
    """The names among the labels that mean that there is no label.

    A name that may mean so is a class like any other, unless classes are listed without it; or other splits have
    labels, and lack it, and it fills a split; or all other labels are numbers (of -1: the classes 0, 1, 2 …, none of
    which is nearly as rare as it, unless it is more frequent than all of them together).

    Parameters
    ----------
    labels : Iterable[Counter[str]]
        How often each name occurs, for each split.
    listed : Sequence[str], optional
        The names of the classes, if they are known.
    scores : bool
        Whether the labels are numbers to predict.

    Examples
    --------
    >>> names_of_none([Counter(pos=3, neg=2, null=2)], None, scores=False)
    set()
    >>> sorted(names_of_none([Counter({"0": 3, "1": 2, "null": 2}), Counter({"-1": 4})], None, scores=False))
    ['-1', 'null']
    """
    labels = list(labels)
    splits = [set(split) for split in labels if split]
    every = set().union(*splits)
    doubtful = {name for name in every if name in NUMBERS or name.strip().lower() in WORDS}
    if listed is not None:
        return doubtful - set(listed)
    others = every - doubtful
    found = {n for n in doubtful if others and all(split == {n} for split in splits if n in split)}
    amounts = [number(name) for name in others]
    if None not in amounts and (others or scores or len(doubtful) == 1):
        found |= doubtful - set(NUMBERS)
    if not scores and others and all(x is not None and x == int(x) for x in amounts):
        count_up = sorted(amounts) == list(range(len(amounts))) and len(amounts) > 2  # type: ignore[type-var]
        found |= doubtful & set(NUMBERS if count_up and _unlike_the_others(labels, others) else NUMBERS[1:])
    return found


def _unlike_the_others(labels: Iterable[Counter[str]], others: Iterable[str]) -> bool:
    """Whether -1 is much rarer than each other class, as where annotators disagreed, or the label of most examples."""
    count = sum(labels, Counter[str]())
    hidden, known = count[NUMBERS[0]], [count[name] for name in others]
    return 5 * hidden < min(known) or hidden > sum(known)


def without_label(rows: Mapping[str, Rows], listed: Sequence[str] | None, *, scores: bool) -> dict[str, Rows]:
    """The rows of each split with None for labels and tags that are none, and notes that count them.

    Parameters
    ----------
    listed, scores : Sequence[str] or None, bool
        As for :func:`names_of_none`.
    """
    found: dict[str, Rows] = dict(rows)
    for role in ("label", "tags"):
        counts = {s: _counted(part.columns[role], role) for s, part in rows.items() if role in part.columns}
        none = names_of_none(counts.values(), listed, scores=scores)
        kept = Counter[str]() if listed is not None or scores else sum(counts.values(), Counter[str]())
        for split in counts:
            found[split] = _cleared(found[split], role, lambda value, none=none: class_name(value) in none)  # type: ignore[misc]
        notes = [
            f"{name!r} ({count:,}) is a class like the others. If it means that there is no label, leave such cells "
            "empty, or list the classes without it (labels = [...])."
            for name, count in kept.items()
            if name not in none and (name in NUMBERS or name.strip().lower() in set(WORDS) - {"none"})
        ]
        notes += [
            f"{name!r} stands in the data as a text and as a number or truth value; both are one class."
            for name in sorted(() if scores else _of_two_kinds(part.columns.get(role, ()) for part in rows.values()))
        ]
        for split in list(counts)[:1]:
            found[split] = replace(found[split], notes=(*found[split].notes, *notes))
    return found


def _counted(values: Sequence[Any], role: str) -> Counter[str]:
    """How often each name of a class occurs; of tags only those that are numbers may mean that there is none."""
    if role == "label":
        return Counter(class_name(v) for v in values if not missing(v))
    return Counter(class_name(tag) for tags in values if isinstance(tags, list) for tag in tags if not missing(tag))


def _of_two_kinds(columns: Iterable[Sequence[Any]]) -> set[str]:
    """The names of classes that stand there as texts and as something else, such as "1" and 1."""
    kinds: dict[str, set[bool]] = {}
    for column in columns:
        for value in column:
            for one in value if isinstance(value, list) else (value,):
                if not missing(one):
                    kinds.setdefault(class_name(one), set()).add(isinstance(one, str))
    return {name for name, both in kinds.items() if len(both) > 1}


def _cleared(part: Rows, role: str, is_none: Callable[[Any], bool]) -> Rows:
    """The rows with None for labels (tags) that are none, and a note that counts them."""
    found = Counter[str]()

    def clear(value: Any) -> Any:
        if not missing(value) and not is_none(value):
            return value
        found[repr(value) if value else "empty"] += 1
        return None

    values = part.columns[role]
    if role == "label":
        kept = [clear(v) for v in values]
    else:
        kept = [[clear(tag) for tag in tags] if isinstance(tags, list) else tags for tags in values]
    if not found:
        return part
    counts = ", ".join(f"{count:,} {name}" for name, count in found.most_common())
    total = len(values) if role == "label" else sum(len(tags) for tags in values if isinstance(tags, list))
    what = "examples without a label" if role == "label" else "words without a tag"
    note = f"{found.total():,} of {total:,} {what} ({counts}); they are left out."
    return replace(part, columns={**part.columns, role: kept}, notes=(*part.notes, note))
