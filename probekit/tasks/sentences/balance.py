"""Balanced labels: as many examples of each label, and of each stratum of length, in each split."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from probekit.errors import DataError
from probekit.tasks.sentences.parse import Parse

LEAST_IN_TRAIN = 20
"""Examples that a label needs in train."""
LEAST = 5
"""Examples that a label needs in another split."""
MANY_IN_TRAIN, MANY = 50, 8
"""Examples that a label needs in train and in another split, where the number of labels is a choice."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A possible example.

    Attributes
    ----------
    source : Parse
        The sentence of the treebank.
    label : str
    words : tuple[str, ...]
        The sentence of the example: the words of the source, or those words changed.
    stratum : hashable, default None
        What must not tell labels apart: within each stratum, the labels get equally many examples.
    """

    source: Parse
    label: str
    words: tuple[str, ...]
    stratum: Hashable = None


Drafts = Mapping[str, Sequence[Draft]]
"""Drafts by split."""


Tally = Mapping[str, Mapping[Hashable, Counter[str]]]
"""The number of drafts of each label, by split and stratum."""


def tally(drafts: Drafts) -> Tally:
    """The number of drafts of each label, by split and stratum."""
    counts: dict[str, dict[Hashable, Counter[str]]] = {split: defaultdict(Counter) for split in drafts}
    for split, some in drafts.items():
        for draft in some:
            counts[split][draft.stratum][draft.label] += 1
    return counts


def sizes(counts: Tally, labels: Iterable[str]) -> dict[str, int]:
    """The examples that each of the labels can have in each split, all of them equally many."""
    wanted = tuple(labels)
    return {split: sum(min(n[label] for label in wanted) for n in strata.values()) for split, strata in counts.items()}


def worth(counts: Tally, labels: Sequence[str]) -> tuple[int, int]:
    """How good a choice of labels is: the number of labels, if each has many balanced examples; then the examples.

    The rarest label limits all, so each further label costs examples. Many are 50 in train and 8 in every other split.
    """
    found = sizes(counts, labels)
    many = all(n >= (MANY_IN_TRAIN if split == "train" else MANY) for split, n in found.items())
    return len(labels) if many else 0, len(labels) * found["train"]


@dataclass(frozen=True, slots=True)
class Balanced:
    """Drafts of each split, as many of each label, in the order of the treebank; and what was left out."""

    drafts: dict[str, list[Draft]]
    labels: tuple[str, ...]
    notes: tuple[str, ...]


def balanced(drafts: Drafts, labels: Sequence[str], what: str, seed: int) -> Balanced:
    """For each split as many examples of each label as possible.

    Within a stratum and label, the sentences are drawn by :meth:`Parse.drawn`. Labels that are too rare in train are
    left out, and then other splits in which one is too rare; notes say which.

    Raises
    ------
    DataError
        If there are fewer than two labels, or too few examples of one of them in train; the message states the counts.
    """
    counts = Counter(draft.label for draft in drafts["train"])
    shown = ", ".join(f"{label} {counts[label]:,}" for label in labels) or "no labels"
    rare = [label for label in labels if counts[label] < LEAST_IN_TRAIN]
    labels = tuple(label for label in labels if label not in rare)
    found = sizes(tally(drafts), labels) if labels else {}
    if len(labels) < 2 or found["train"] < LEAST_IN_TRAIN:
        raise DataError(
            f"{what} needs at least two labels with {LEAST_IN_TRAIN} sentences of 5 to 28 words each in train; the "
            f"treebank has {shown}."
        )
    left_out = ", ".join(f"{label} ({counts[label]})" for label in rare)
    kept, notes = {}, [f"Too rare in train, and left out: {left_out}."] if rare else []
    for split, some in drafts.items():
        if split != "train" and found[split] < LEAST:
            notes.append(f"{split} is left out: a label has only {found[split]} sentences there.")
            continue
        kept[split] = _drawn(some, labels, seed)
    return Balanced(kept, labels, tuple(notes))


def _drawn(drafts: Sequence[Draft], labels: Sequence[str], seed: int) -> list[Draft]:
    cells: dict[Hashable, dict[str, list[Draft]]] = defaultdict(lambda: {label: [] for label in labels})
    for draft in drafts:
        if draft.label in labels:
            cells[draft.stratum][draft.label].append(draft)
    chosen = set()
    for cell in cells.values():
        n = min(map(len, cell.values()))
        for some in cell.values():
            chosen |= {id(draft) for draft in sorted(some, key=lambda draft: draft.source.drawn(seed))[:n]}
    return [draft for draft in drafts if id(draft) in chosen]
