"""Labels of the words of a Universal Dependencies treebank as spans and pairs of spans: relations, features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import examples
from probekit.tasks.datasets.ud import domain_of, treebank_files
from probekit.tasks.files.readers import Sentence, in_documents, read_conllu
from probekit.tasks.task import Span, Target, Task, TaskKind
from probekit.tasks.treebank import not_a_tree

__all__ = ["LOADERS", "features", "relations"]

RELATIONS = Dataset(
    "ud-relations",
    "Universal Dependencies, the relation of each word to its head (sizes: English EWT)",
    TaskKind.SPAN_LABELLING,
    {"train": 12544, "dev": 2001, "test": 2077},
    ("accuracy", "macro-f1"),
    "Nivre et al. 2020, https://universaldependencies.org",
    "of each treebank; English EWT: CC BY-SA 4.0",
    (
        *("acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop"),
        *("csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list"),
        *("mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "vocative"),
        "xcomp",
    ),
    shown="UD relations",
)
FEATURES = Dataset(
    "ud-features",
    "Universal Dependencies, the morphological features of each word (sizes: English EWT)",
    TaskKind.SPAN_LABELLING,
    {"train": 12544, "dev": 2001, "test": 2077},
    ("micro-f1",),
    "Nivre et al. 2020, https://universaldependencies.org",
    "of each treebank; English EWT: CC BY-SA 4.0",
    shown="UD features",
)


Sentences = Mapping[str, tuple[Path, list[Sentence]]]


def relations(root: str | Path | None = None, treebank: str | None = None) -> Task:
    """The universal relation (without subtype) of each word to its head; the targets are (word, head).

    The root has no head and is left out. Files: as for ``ud``. Raises DataError for a sentence that is no tree.
    """
    name, files = _sentences(RELATIONS, root, treebank)
    known = {relation: i for i, relation in enumerate(RELATIONS.label_names)}
    targets = {split: [_to_heads(s, path, known) for s in found] for split, (path, found) in files.items()}
    return _task(RELATIONS, name, files, targets)


def features(root: str | Path | None = None, treebank: str | None = None) -> Task:
    """The features of each word, such as Number=Sing; the labels are those of train. Files: as for ``ud``."""
    name, files = _sentences(FEATURES, root, treebank)
    first = files["train" if "train" in files else min(files)][1]
    names = tuple(sorted({feature for s in first for cell in s.column(5) for feature in _features(cell)}))
    known = {feature: i for i, feature in enumerate(names)}

    def of(s: Sentence) -> tuple[Target, ...]:
        labels = (tuple(sorted(known[f] for f in _features(cell) if f in known)) for cell in s.column(5))
        return tuple(Target((Span(i, i + 1),), label) for i, label in enumerate(labels))

    targets = {split: [of(s) for s in found] for split, (_, found) in files.items()}
    return _task(replace(FEATURES, label_names=names), name, files, targets)


LOADERS = {RELATIONS: relations, FEATURES: features}


def _to_heads(s: Sentence, path: Path, known: Mapping[str, int]) -> tuple[Target, ...]:
    found = []
    for i, (head, relation) in enumerate(zip(s.column(6), s.column(7), strict=True)):
        name = relation.partition(":")[0]
        if not head.isdecimal() or int(head) > len(s.rows) or int(head) == i + 1:
            message = f"word {i + 1} of the sentence that begins here has the head {head!r}; expected another, 0 to "
            raise DataError(f"{message}{len(s.rows)}.", file=path, line=s.line, column="HEAD")
        if int(head) and name not in known:
            message = f"word {i + 1} of the sentence that begins here has the relation {relation!r}, not one of "
            raise DataError(f"{message}the {len(known)} universal ones.", file=path, line=s.line, column="DEPREL")
        if int(head):
            found.append(Target((Span(i, i + 1), Span(int(head) - 1, int(head))), known[name]))
    if wrong := not_a_tree([int(head) for head in s.column(6)]):
        message = f"the sentence that begins here is not a tree; it has {wrong}. Mend it, or take it out of the file."
        raise DataError(message, file=path, line=s.line, column="HEAD")
    return tuple(found)


def _features(cell: str) -> list[str]:
    return [] if cell == "_" else cell.split("|")


def _sentences(dataset: Dataset, root: str | Path | None, treebank: str | None) -> tuple[str, Sentences]:
    if root is None:
        raise DataError(
            f"{dataset.name} is read from a folder: give the one with TREEBANK-ud-train.conllu (--data-dir, or "
            "data_dir in Python), from https://universaldependencies.org."
        )
    name, files = treebank_files(root, treebank, "conllu", "a UD treebank")
    return name, {split: (path, in_documents(read_conllu(path), path)) for split, path in files.items()}


def _task(
    dataset: Dataset, treebank: str, files: Sentences, targets: Mapping[str, Sequence[tuple[Target, ...]]]
) -> Task:
    splits = {
        split: examples(
            split,
            [s.comments.get("text") or " ".join(s.column(1)) for s in found],
            words=[s.column(1) for s in found],
            ids=[s.comments.get("sent_id", "") for s in found],
            domains=[domain_of(s.comments, treebank) for s in found],
            groups=[s.document or None for s in found],
            targets=targets[split],
        )
        for split, (_, found) in files.items()
    }
    return dataset.task(splits, name=f"{dataset.name}:{treebank}")
