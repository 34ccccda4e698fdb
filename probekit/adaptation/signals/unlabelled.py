"""Text without labels, read as the examples of a task, in batches that seed, step and part determine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.data.text import TextData
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.runs.predictions import on_device
from probekit.errors import DataError, UsageError
from probekit.files import stream_lines
from probekit.tasks import load_task
from probekit.tasks.task import Example, Split, Task

OF_TEXTS = 0x74657874
"""Makes the draws of texts differ from others with the same seed."""
UNLABELLED = "unlabelled"


def read_unlabelled(options: TrainOptions, task: Task, train: Split) -> Split:
    """The unlabelled examples that the options name.

    Raises
    ------
    UsageError
        For a task without such a split, and single sentences for a task of pairs, or the reverse.
    DataError
        For a file without text.
    """
    name = str(options.unlabelled)
    spec = TaskSpec.of_task(task, train.name)
    if spec.tags:
        raise UsageError(f"{task.name} labels words; unlabelled text is for tasks that label whole texts.")
    if Path(name).is_file():
        if spec.paired:
            raise UsageError(f"{task.name} has pairs of sentences, {name} single lines; give TASK:SPLIT with pairs.")
        texts = [line.strip() for line in stream_lines(Path(name))]
        examples = tuple(Example(f"{UNLABELLED}-{i}", text) for i, text in enumerate(texts) if text)
        if not examples:
            raise DataError(f"{name} has no text.")
        return Split(UNLABELLED, examples)
    source, colon, part = name.rpartition(":")
    if not colon:
        raise UsageError(f"unlabelled is {name!r}, which is neither a file nor a TASK:SPLIT such as {task.name}:test.")
    other = task if source == task.name else load_task(source, data_dir=options.data_dir)
    split = other.split(part)
    if split.paired != spec.paired:
        kinds = ("single sentences", "pairs of sentences")
        raise UsageError(f"{name} has {kinds[split.paired]}, {task.name} {kinds[spec.paired]}; give the same.")
    if not len(split):
        raise DataError(f"{name} has no examples.")
    return Split(UNLABELLED, tuple(Example(f"{UNLABELLED}-{e.id}", e.text, pair=e.pair) for e in split))


class Unlabelled:
    """Unlabelled examples as batches for a learner.

    Attributes
    ----------
    split : Split
        The examples.
    data : TextData
        The same as word pieces.
    size : int
        Examples in a batch.
    seed : int
        Seed of the batches.
    """

    def __init__(self, task: Task, split: Split, like: TextData, size: int, seed: int) -> None:
        self.task = replace(task, splits={UNLABELLED: split})
        self.split, self.reader, self.apart = split, like.tokenizer, len(like.sequences) == 2
        self.data = TextData(self.task, split, self.reader, apart=self.apart)
        self.size, self.seed = min(size, len(split)), seed

    def draw(self, step: int, part: int = 0) -> np.random.Generator:
        """The generator of a step and, if an update has several batches, of the one with this number."""
        return np.random.default_rng((self.seed, OF_TEXTS, step, part))

    def rows(self, draw: np.random.Generator) -> list[int]:
        """The numbers of the examples of a batch, which are all different."""
        return [int(i) for i in draw.choice(len(self.split), self.size, replace=False)]

    def batch(self, rows: list[int], device: Any) -> Mapping[str, Any]:
        """``first`` and, for separately encoded pairs, ``second``."""
        return _inputs(self.data, rows, device)

    def without_words(self, rows: list[int], draw: np.random.Generator, share: float, device: Any) -> Mapping[str, Any]:
        """The same without some words: each is left out with probability ``share``, but for one that always remains."""
        noised = tuple(
            replace(e, text=_lack(e.text, draw, share), pair=None if e.pair is None else _lack(e.pair, draw, share))
            for e in (self.split.examples[i] for i in rows)
        )
        data = TextData(self.task, Split(UNLABELLED, noised), self.reader, apart=self.apart)
        return _inputs(data, list(range(len(rows))), device)


def _inputs(data: TextData, rows: list[int], device: Any) -> Mapping[str, Any]:
    batch = on_device(device, data.__getitems__(rows))
    return {name: batch[name] for name in ("first", "second") if name in batch}


def _lack(text: str, draw: np.random.Generator, share: float) -> str:
    """A text without some of its words."""
    words = text.split()
    kept = draw.random(len(words)) >= share
    if len(words):
        kept[draw.integers(len(words))] = True
    return " ".join(word for word, stays in zip(words, kept, strict=True) if stays)
