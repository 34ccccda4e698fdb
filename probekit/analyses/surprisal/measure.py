"""The surprisal of words and pieces by a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from probekit.activations.writing.job import task_of
from probekit.activations.writing.request import origin_of
from probekit.analyses.surprisal import Context, SurprisalOptions, Unit
from probekit.analyses.vectors import model_columns, read_of_model
from probekit.errors import DataError, UsageError
from probekit.models.options import ScorerOptions
from probekit.models.scoring import Score, load_scorer
from probekit.models.scoring.surprisal import Pieces, Window, predicted
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.runtime import Progress
from probekit.tasks.files.stream import StreamedSplit, is_stream
from probekit.tasks.task import Example, Task

FIELDS = {"id": "id", "groups": "document"}
"""Fields of JSON lines that name the texts and their documents, by what a task file calls them."""


def measure(
    model: str | Path,
    data: tuple[str | Path | Task, str | None, str | Path | None],
    model_name: str | None,
    loading: ScorerOptions,
    options: SurprisalOptions,
    progress: Progress,
) -> Result:
    """The rows of :func:`probekit.surprisal`; ``data`` are the task, the split and the folder."""
    name, split, examples = _examples(*data)
    units = [*_units(examples, options)]
    scorer = load_scorer(model, options=loading)
    score = Score.LOG_PROBABILITY if scorer.causal else Score(options.score)
    window = Window(start=not options.no_start, size=options.window, stride=options.stride)
    found = predicted(
        scorer, [unit.text for unit in units], score, window, spaces=options.space_after, progress=progress
    )
    spec = scorer.spec if model_name is None else {**scorer.spec, "model": model_name}
    about = {
        "analysis": "surprisal", "task": name, "split": split, "target": "gold", "draw": None, "layer": None,
        **model_columns(spec, origin_of(model, loading)), "representation": "lm-head", "estimator": str(score),
        "metric": options.unit.metric, "n": 1,
    }  # fmt: skip
    scale = -1 / np.log(2) if options.unit is Unit.BITS else -1.0
    rows = [
        row for unit, its in zip(units, found, strict=True) for row in _rows(unit, its, scale, pieces=options.pieces)
    ]
    if not rows:
        raise DataError(f"{name}: the texts have no words.")
    reads = (Read(name, "data", ""), read_of_model(model, scorer.spec))
    return Result(make_rows({**about, **row} for row in rows), (), reads=reads)


def _examples(
    task: str | Path | Task, split: str | None, data_dir: str | Path | None
) -> tuple[str, str, Sequence[Example]]:
    """The name of the task, that of the split, and its examples."""
    streamed = not isinstance(task, Task) and is_stream(str(task))
    wanted = "train" if split is None and streamed else split
    loaded = task_of(task, wanted or "", SimpleNamespace(stream=False, data_dir=data_dir))
    if wanted is None and len(loaded.splits) > 1:
        raise UsageError(f"{loaded.name} has the splits {', '.join(loaded.splits)}; name one of them.")
    found: Any = loaded.split(wanted or next(iter(loaded.splits)))
    if isinstance(found, StreamedSplit) and streamed:
        fields = {field for _, record in found.records.read(0, 1) for field in record}
        named = {role: field for role, field in FIELDS.items() if field in fields}
        found = replace(found, spec=found.spec.model_copy(update=named))
    if found.paired:
        raise UsageError(f"{loaded.name} has pairs of texts; surprisal reads single ones.")
    return loaded.name, found.name, [*found]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What is read as one text: examples one after the other, each with the character of the text it begins at."""

    text: str
    parts: tuple[tuple[int, Example], ...]


def _units(examples: Sequence[Example], options: SurprisalOptions) -> Iterator[_Unit]:
    """Each example, or each document, with what stands before it."""
    numbers = dict[str, int]()
    of = [
        numbers.setdefault(e.group if options.context is Context.DOCUMENT and e.group is not None else f"\0{i}", i)
        for i, e in enumerate(examples)
    ]
    if options.context is Context.DOCUMENT and all(e.group is None for e in examples):
        raise UsageError(
            "the texts have no documents: a task file says with groups = COLUMN which texts belong to one (see "
            "docs/task-files.md)."
        )
    order = sorted(range(len(examples)), key=lambda i: (of[i], i))
    for _, some in groupby(order, key=of.__getitem__):
        text, parts = f"{options.prefix} " if options.prefix else "", list[tuple[int, Example]]()
        for i in some:
            text += " " if parts else ""
            parts.append((len(text), examples[i]))
            text += examples[i].text
        yield _Unit(text, tuple(parts))


def _rows(unit: _Unit, found: Pieces, scale: float, *, pieces: bool) -> Iterator[Mapping[str, Any]]:
    """The rows of the words of each example, in their order, each with those of its pieces."""
    places = [match.span() for match in re.finditer(r"\S+", unit.text)]
    nats = np.append(found.words(), np.full(len(places), np.nan))
    count = np.bincount(found.word[found.word >= 0], minlength=len(places))
    first = np.searchsorted(found.word, np.arange(len(places) + 1))
    at = 0
    while at < len(places) and places[at][0] < unit.parts[0][0]:
        at += 1  # the prefix
    for begin, example in unit.parts:
        for index, match in enumerate(re.finditer(r"\S+", example.text)):
            about = {"example": example.id, "word_index": index}
            yield about | {
                "level": "word", "text": match[0], "char_start": match.start(), "char_end": match.end(),
                "pieces": int(count[at]), "value": scale * nats[at],
            }  # fmt: skip
            for k in range(first[at], first[at + 1]) if pieces else ():
                start, end = int(found.start[k]), int(found.end[k])
                yield about | {
                    "level": "piece", "text": unit.text[start:end], "char_start": max(0, start - begin),
                    "char_end": max(0, end - begin), "pieces": 1, "value": scale * found.nats[k],
                }  # fmt: skip
            at += 1
