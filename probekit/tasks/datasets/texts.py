"""Texts in files of their own kind: SICK, TREC, IMDb, SentEval's probing tasks, SQuAD, dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from probekit.errors import DataError
from probekit.files import read_lines
from probekit.tasks.datasets.published import divided, examples_in, files_of, published, rows_in
from probekit.tasks.datasets.sources import examples, from_hub, hub_columns, locate
from probekit.tasks.files.description import Dataset
from probekit.tasks.files.squad import question, read_squad
from probekit.tasks.folders import task_folders
from probekit.tasks.task import Example, Task

Root = str | Path | None


def sick(d: Dataset, root: Root, part: str | None = None) -> Task:
    """SICK.txt has all splits; it is read if there is no file of one split."""
    if root is None:
        return published(d)
    files = files_of(d, root)
    if list(files) != ["all"]:
        files.pop("all", None)
        return d.task(examples_in(d, rows_in(d, files)))
    return d.task(divided(d, rows_in(d, files)["all"], {"TRAIN": "train", "TRIAL": "dev", "TEST": "test"}))


def trec(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Lines ``COARSE:fine question``."""
    if root is None:
        return published(d)
    return d.task({split: _questions(split, path, d) for split, path in files_of(d, root).items()})


def _questions(split: str, path: Path, d: Dataset) -> list[Example]:
    index = {name: i for i, name in enumerate(d.label_names)}
    texts, labels = [], []
    for line, text in enumerate(read_lines(path, fallback=d.encoding), start=1):
        fine, blank, asked = text.partition(" ")
        label = index.get(fine, index.get(fine.partition(":")[0]))
        if label is None or not blank:
            message = f"expected a class such as 'NUM:dist', a space and a question, found {text[:40]!r}."
            raise DataError(message, file=path, line=line)
        texts.append(asked)
        labels.append(label)
    return examples(split, texts, labels)


def imdb(d: Dataset, root: Root, part: str | None = None) -> Task:
    """A text file per review, in the folders pos and neg of train and test, and (unlabelled) in unsup of train."""
    if root is None:
        return published(d)
    places = [f for place in task_folders("aclimdb", Path(root)) for f in (place, place / "aclImdb")]
    home = next((f for f in places if any((f / split / "pos").is_dir() for split in ("train", "test"))), Path(root))
    splits = {}
    for split in ("train", "test"):
        found = [
            (f, label) for label, name in enumerate(("neg", "pos")) for f in sorted((home / split / name).glob("*.txt"))
        ]
        if found:
            texts = [" ".join(read_lines(file)) for file, _ in found]
            ids = [f"{file.parent.name}/{file.stem}" for file, _ in found]
            splits[split] = examples(split, texts, [label for _, label in found], ids=ids)
    if unlabelled := sorted((home / "train" / "unsup").glob("*.txt")):
        ids = [f"unsup/{file.stem}" for file in unlabelled]
        splits["unsup"] = examples("unsup", [" ".join(read_lines(file)) for file in unlabelled], ids=ids)
    if not splits:
        locate(root, d.files, what=str(d.name))  # raises DataError
    return d.task(splits)


PARTS = {"tr": "train", "va": "dev", "te": "test"}


def senteval(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Lines of tr, va or te, the class, and the sentence; the classes are those of the file, if none are known."""
    path, classes = files_of(d, root)["all"], d.label_names
    label = f"one of the classes {', '.join(classes)}" if classes else "a class"
    expected = f"expected tr, va or te, {label} and a sentence, separated by tabs"
    rows: dict[str, list[tuple[str, str]]] = {split: [] for split in PARTS.values()}
    for line, text in enumerate(read_lines(path), start=1):
        name, *cells = text.split("\t")
        known = len(cells) > 1 and (cells[0] in classes if classes else cells[0]) and cells[-1].strip()
        if name not in PARTS or not known:
            raise DataError(f"{expected}, found {text[:60]!r}.", file=path, line=line)
        rows[PARTS[name]].append((cells[0], cells[-1]))
    found = {label for some in rows.values() for label, _ in some}
    if not found:
        raise DataError(f"is empty; {expected}.", file=path)
    whole = all(label.isdecimal() for label in found)
    names = classes or tuple(sorted(found, key=int if whole else str))
    splits = {
        split: examples(split, [sentence for _, sentence in some], [names.index(label) for label, _ in some])
        for split, some in rows.items()
        if some
    }
    return d.task(splits, labels=names)


def squad(d: Dataset, root: Root, part: str | None = None) -> Task:
    """Questions whose answer is a part of a paragraph, or (SQuAD 2.0) not there."""
    splits: Mapping[str, Sequence[Example]]
    if root is None:
        data = from_hub(str(d.name), str(d.hub))
        splits = {
            split: _hub_questions(str(d.hub), data[theirs]) for split, theirs in d.splits.items() if theirs in data
        }
    else:
        splits = {split: read_squad(path) for split, path in files_of(d, root).items()}
    for split, found in splits.items():
        unanswered = next((e.id for e in found if e.label == 1), None)
        if unanswered is not None and len(d.label_names) == 1:
            raise DataError(
                f"squad {split}: question {unanswered} has no answer, but all have one in SQuAD 1.1. Take squad2."
            )
    return d.task(splits)


def _hub_questions(repository: str, rows: object) -> list[Example]:
    columns = hub_columns(rows, "id", "title", "context", "question", "answers")
    return [
        question(repository, name, text, context, zip(given["text"], given["answer_start"], strict=True), title)
        for name, title, context, text, given in zip(*columns, strict=True)
    ]


def dailydialog(d: Dataset, root: Root, part: str | None = None) -> Task:
    """A dialogue per line, whose turns end with __eou__."""
    dialogues = {
        split: ([turn.strip() for turn in line.split("__eou__")] for line in read_lines(path))
        for split, path in files_of(d, root).items()
    }
    return d.task({split: _replies(split, some) for split, some in dialogues.items()})


def tweets(d: Dataset, root: Root, part: str | None = None) -> Task:
    """A tweet per line, with three or more empty lines between conversations."""
    dialogues: list[list[str]] = [[]]
    for line in map(str.strip, read_lines(files_of(d, root)["train"])):
        if line:
            dialogues[-1].append(line)
        elif dialogues[-1]:
            dialogues.append([])
    return d.task({"train": _replies("train", dialogues)})


def _replies(split: str, dialogues: Iterable[Sequence[str]]) -> list[Example]:
    """Each turn but the first as the response to the one before it; a dialogue is a group."""
    found = [(f"{i}", a, b) for i, turns in enumerate(dialogues) for a, b in pairwise(filter(None, turns))]
    groups, texts, pairs = (list(column) for column in zip(*found, strict=True))
    return examples(split, texts, [0] * len(texts), pair=pairs, group=groups)
