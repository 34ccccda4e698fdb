"""COPA and WiC, two tasks of SuperGLUE (Wang et al. 2019, https://arxiv.org/abs/1905.00537)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from probekit.errors import DataError
from probekit.tasks.datasets.dataset import Dataset
from probekit.tasks.datasets.sources import HUB_SPLITS, from_hub, locate
from probekit.tasks.files.readers import read_json_lines
from probekit.tasks.task import Example, Label, Span, Task, TaskKind

__all__ = ["LOADERS", "copa", "wic"]

HUB = "aps/super_glue"
FILES = {"train": ("train.jsonl", "train_text.jsonl"), "dev": ("val.jsonl", "dev.jsonl"), "test": ("test.jsonl",)}

COPA = Dataset(
    "copa",
    "Choice of Plausible Alternatives: the cause or the effect of an event, of two sentences",
    TaskKind.MULTIPLE_CHOICE,
    {"train": 400, "dev": 100, "test": 500},
    ("accuracy",),
    "Roemmele, Bejan and Gordon 2011, https://super.gluebenchmark.com/tasks",
    "BSD 2-clause",
    ("0", "1"),
    shown="COPA",
)
WIC = Dataset(
    "wic",
    "Word in context: does a word have the same meaning in two sentences",
    TaskKind.CLASSIFICATION,
    {"train": 5428, "dev": 638, "test": 1400},
    ("accuracy",),
    "Pilehvar and Camacho-Collados 2019, https://super.gluebenchmark.com/tasks",
    "CC BY-NC 4.0",
    ("false", "true"),
    shown="WiC",
)

QUESTIONS = {"cause": "What was the cause?", "effect": "What was the effect?"}


def copa(root: str | Path | None = None) -> Task:
    """COPA: which of two sentences is the cause, or the effect, of the premise.

    The text is the premise followed by "What was the cause?" or "What was the effect?"; the domain is cause or effect.
    Files: train.jsonl, val.jsonl (dev) and test.jsonl of SuperGLUE, whose test split has no labels.
    """
    splits = {}
    for split, rows in _records(COPA, root):
        splits[split] = [_choice(split, *row) for row in rows]
    return COPA.task(splits)


def wic(root: str | Path | None = None) -> Task:
    """WiC: 1 if a word has the same meaning in both sentences; its place in each is in ``spans``.

    Files: train.jsonl, val.jsonl (dev) and test.jsonl of SuperGLUE, whose test split has no labels. In files without
    the characters of the word (start1, end1 …) it is found as the only word of the sentence with its beginning; other
    rows are left out, and counted in a note. The domain is the part of speech if the file names it.
    """
    splits, notes = {}, []
    for split, rows in _records(WIC, root):
        found = [_word_in_context(split, *row) for row in rows]
        splits[split] = [one for one in found if one is not None]
        if left := len(found) - len(splits[split]):
            notes.append(f"{left} of {len(found)} rows of {split} do not say where the word is, and are left out.")
    return WIC.task(splits, notes)


LOADERS = {COPA: copa, WIC: wic}

Row = tuple[Path | str, int, Mapping[str, Any]]


def _records(dataset: Dataset, root: str | Path | None) -> Iterator[tuple[str, list[Row]]]:
    if root is None:
        data = from_hub(dataset.name, HUB, dataset.name, revision="refs/convert/parquet")
        for split, theirs in HUB_SPLITS.items():
            yield split, [(f"{HUB} ({theirs})", i, row) for i, row in enumerate(data[theirs], start=1)]
        return
    for split, path in locate(root, FILES, folder=dataset.name, what=dataset.shown).items():
        yield split, [(path, line, record) for line, record in read_json_lines(path)]


def _choice(split: str, path: Path | str, line: int, row: Mapping[str, Any]) -> Example:
    premise, *choices = (_text(path, line, row, key) for key in ("premise", "choice1", "choice2"))
    asked = row.get("question")
    if asked not in QUESTIONS:
        raise DataError(f"found {asked!r}, expected cause or effect.", file=path, line=line, column="question")
    name = f"{split}-{row.get('idx', line - 1)}"
    text = f"{premise} {QUESTIONS[str(asked)]}"
    return Example(name, text, _label(path, line, row), domain=str(asked), choices=tuple(choices))


def _word_in_context(split: str, path: Path | str, line: int, row: Mapping[str, Any]) -> Example | None:
    word, first, second = (_text(path, line, row, key) for key in ("word", "sentence1", "sentence2"))
    spans = []
    for number, sentence in enumerate((first, second), start=1):
        ends = row.get(f"start{number}"), row.get(f"end{number}")
        place = _found(word, sentence) if ends == (None, None) else ends
        if place is None:
            return None
        start, end = place
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(sentence)):
            message = f"{word!r} is at characters {start} to {end}, but the sentence has {len(sentence)}."
            raise DataError(message, file=path, line=line, column=f"sentence{number}")
        spans.append(Span(start, end, second=number == 2))
    name, domain = f"{split}-{row.get('idx', line - 1)}", {"N": "noun", "V": "verb"}.get(str(row.get("pos")))
    label = _label(path, line, row)
    return Example(name, first, label, pair=second, domain=domain, spans=tuple(spans))


def _found(word: str, sentence: str) -> tuple[int, int] | None:
    """The characters of the only word that is ``word`` or, if none is, that begins like it."""
    words = list(re.finditer(r"\w+(?:-\w+)*", sentence))
    beginning = word.lower()[: max(3, len(word) - 2)]
    for fits in (word.lower().__eq__, lambda w: w.startswith(beginning)):
        found = [match.span() for match in words if fits(match.group().lower())]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _text(path: Path | str, line: int, row: Mapping[str, Any], key: str) -> str:
    if not isinstance(row.get(key), str):
        raise DataError(f"found {row.get(key)!r}, expected a text.", file=path, line=line, column=key)
    return str(row[key])


LABELS: dict[str, Label] = {"0": 0, "1": 1, "false": 0, "true": 1, "none": None, "-1": None}


def _label(path: Path | str, line: int, row: Mapping[str, Any]) -> Label:
    given = str(row.get("label")).lower()
    if given not in LABELS:
        raise DataError(f"found {row.get('label')!r}, expected 0 or 1.", file=path, line=line, column="label")
    return LABELS[given]
