"""The sentence tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.sentences.balance import Draft, balanced
from probekit.tasks.sentences.makers import (
    Made,
    Sentences,
    bigram_shift,
    coordination_inversion,
    odd_man_out,
    of_label,
    sentence_length,
    top_constituents,
    tree_depth,
    word_content,
)
from probekit.tasks.sentences.parse import Parse
from probekit.tasks.sentences.source import find_treebank, parses
from probekit.tasks.task import Example, Split, Task, TaskKind

SHORTEST, LONGEST = 5, 28
"""Words of a sentence, with punctuation."""


_NUMBER = "number in a feature (Number=Sing, Plur) or a Penn tag (NN, NNS), that is the"
_TENSE = "a tense: the feature Tense of a finite verb, or the Penn tags VBD, VBP and VBZ (XPOS)"
SENTENCE_TASKS: dict[str, Callable[[Sentences, int], Made]] = {
    "sentence-length": sentence_length,
    "word-content": word_content,
    "tree-depth": tree_depth,
    "top-constituents": top_constituents,
    "bigram-shift": bigram_shift,
    "past-present": of_label("tense", ("PAST", "PRES"), _TENSE),
    "subj-number": of_label("subject", ("NN", "NNS"), f"a noun with {_NUMBER} subject of the main clause"),
    "obj-number": of_label("object", ("NN", "NNS"), f"a noun with {_NUMBER} object of the main clause"),
    "odd-man-out": odd_man_out,
    "coordination-inversion": coordination_inversion,
}
"""The ten tasks, from sentences by split and a seed to drafts and labels; the names are those after ``senteval-``."""
TARGETS = {"past-present": "tense", "subj-number": "subject", "obj-number": "object"}
"""The attribute of the parse whose word decides the label."""


def sentence_task(name: str, root: str | Path, treebank: str | None = None, *, seed: int = 0) -> Task:
    """One of the ten sentence tasks of Conneau et al. 2018, made from a treebank.

    Parameters
    ----------
    name : str
        One of :data:`SENTENCE_TASKS`.
    root : path
        Folder of the treebank, or with it in a subfolder; see :func:`find_treebank`.
    treebank : str, optional
        Which one, if there are several.
    seed : int, default 0
        Of what is drawn: the sentences, and how they are changed. The same seed and files give the same task.

    Returns
    -------
    Task
        Sentences of 5 to 28 words, joined by spaces; labels are balanced in each split. A sentence is in one split
        only, once, as it is or changed. Documents are groups.

    Raises
    ------
    DataError
        If there is no treebank, it lacks what the task needs, or it has too few sentences of a label.

    Examples
    --------
    >>> sentence_task("tree-depth", "UD_English-EWT")  # doctest: +SKIP
    """
    found = find_treebank(root, treebank, brackets=name == "top-constituents")
    sentences = _distinct(parses(found))
    title = f"treebank:{name}:{found[0]}"
    place = found[1][0][1].parent
    try:
        drafts, labels = SENTENCE_TASKS[name](sentences, seed)
        made = balanced(drafts, labels, title, seed)
    except DataError as error:
        raise DataError(str(error), file=place) from None
    return Task(
        name=title,
        kind=TaskKind.CLASSIFICATION,
        splits={split: _split(split, some, made.labels) for split, some in made.drafts.items()},
        label_names=made.labels,
        metrics=("accuracy",),
        source=f"made from the treebank {found[0]}, after Conneau et al. 2018",
        licence="of the treebank",
        notes=(*made.notes, *_recurring(made.drafts, TARGETS.get(name, ""))),
    )


def _distinct(sentences: Mapping[str, Sequence[Parse]]) -> dict[str, list[Parse]]:
    """The sentences of 5 to 28 words, each text once in all splits: in train, if it is there."""
    if not sentences.get("train"):
        raise DataError("the treebank has no sentences for train.")
    seen: set[str] = set()
    kept: dict[str, list[Parse]] = {}
    for split, some in sentences.items():
        kept[split] = []
        for parse in some:
            if SHORTEST <= len(parse) <= LONGEST and (key := parse.key) not in seen:
                seen.add(key)
                kept[split].append(parse)
    return kept


def _split(name: str, drafts: Sequence[Draft], labels: Sequence[str]) -> Split:
    index = {label: i for i, label in enumerate(labels)}
    ids = [draft.source.id for draft in drafts]
    unique = len(set(ids)) == len(ids)
    examples = (
        Example(
            draft.source.id if unique else f"{name}-{i}",
            " ".join(draft.words),
            index[draft.label],
            domain=draft.source.domain or None,
            group=draft.source.document or None,
        )
        for i, draft in enumerate(drafts)
    )
    return Split(name, tuple(examples))


def _recurring(kept: Mapping[str, Sequence[Draft]], target: str) -> list[str]:
    """How many examples have a word that decides a label of train, too; the paper's tasks have none."""
    if not target:
        return []
    known = {getattr(draft.source, target)[1] for draft in kept["train"]}
    return [
        f"{split}: the word that decides the label of {sum(getattr(d.source, target)[1] in known for d in some):,} of "
        f"{len(some):,} examples decides one in train, too."
        for split, some in kept.items()
        if split != "train"
    ]
