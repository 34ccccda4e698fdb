"""Tasks that a tiny model learns in seconds: one word decides, however the examples are put."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tiny import WORDS

from probekit.tasks.task import Example, Split, Task, TaskKind

PLAIN = [w for w in WORDS if w.isalpha() and w not in ("good", "bad", "cat", "dog")]
SHORT: dict[str, Any] = {"epochs": 2, "batch_size": 8, "device": "cpu"}


def sentence(rng: np.random.Generator, word: str | None, longest: int = 9) -> str:
    """Plain words, and ``word`` at a random place among them."""
    words = list(rng.choice(PLAIN, size=rng.integers(1, longest)))
    return " ".join(words if word is None else [*words[: len(words) // 2], word, *words[len(words) // 2 :]])


def praise(train: int = 40, dev: int = 21, seed: int = 0) -> Task:
    """Is it good or bad?"""

    def make(i: int, rng: np.random.Generator) -> Example:
        return Example(str(i), sentence(rng, ("bad", "good")[i % 2]), i % 2)

    return _task("praise", TaskKind.CLASSIFICATION, make, ("bad", "good"), ("accuracy", "matthews"), train, dev, seed)


def count(train: int = 40, dev: int = 21) -> Task:
    """How many times is it good?"""

    def make(i: int, rng: np.random.Generator) -> Example:
        return Example(str(i), sentence(rng, " ".join(["good"] * (i % 4)) or None), float(i % 4))

    return _task("count", TaskKind.REGRESSION, make, (), ("pearson", "spearman"), train, dev)


def pairs(train: int = 40, dev: int = 21) -> Task:
    """Do both sentences say the same?"""

    def make(i: int, rng: np.random.Generator) -> Example:
        a, b = int(rng.integers(2)), int(rng.integers(2))
        first, second = (sentence(rng, ("bad", "good")[x]) for x in (a, b))
        return Example(str(i), first, int(a == b), pair=second)

    return _task("pairs", TaskKind.CLASSIFICATION, make, ("no", "yes"), ("accuracy", "f1"), train, dev)


def tags(train: int = 40, dev: int = 21) -> Task:
    """Which words are animals? A dog after a cat belongs to it."""

    def make(i: int, rng: np.random.Generator) -> Example:
        words = tuple(rng.choice(["cat", "dog", *PLAIN[:4]], size=rng.integers(1, 7)))
        names = []
        for word in words:
            inside = word == "dog" and names and names[-1] > 0
            names.append(2 if inside else 1 if word in ("cat", "dog") else 0)
        return Example(str(i), " ".join(words), tuple(names), words=words)

    return _task(
        "tags", TaskKind.SEQUENCE_LABELLING, make, ("O", "B-X", "I-X"), ("span-f1", "token-accuracy"), train, dev
    )


def animals(train: int = 40, dev: int = 21) -> Task:
    """Which of three words does it have?"""

    def make(i: int, rng: np.random.Generator) -> Example:
        held = tuple(int(k) for k in np.flatnonzero(rng.random(3) < (0.5, 0.4, 0.2)))
        words = [("good", "cat", "dog")[k] for k in held]
        return Example(str(i), sentence(rng, " ".join(words) or None), held)

    names = ("praise", "cat", "dog")
    return _task("animals", TaskKind.MULTI_LABEL, make, names, ("micro-f1", "macro-f1"), train, dev)


def amounts(train: int = 40, dev: int = 21) -> Task:
    """How many times is it good, and how long is it?"""

    def make(i: int, rng: np.random.Generator) -> Example:
        text = sentence(rng, " ".join(["good"] * (i % 4)) or None)
        return Example(str(i), text, (float(i % 4), len(text.split()) / 4))

    return _task("amounts", TaskKind.MULTI_OUTPUT, make, ("good", "length"), ("pearson", "rmse"), train, dev)


def _task(
    name: str,
    kind: TaskKind,
    make: Any,
    names: tuple[str, ...],
    metrics: tuple[str, ...],
    train: int,
    dev: int,
    seed: int = 0,
) -> Task:
    rng = np.random.default_rng(seed)
    sizes = {"train": train, "dev": dev, "test": 13}
    splits = {split: Split(split, tuple(make(i, rng) for i in range(n))) for split, n in sizes.items()}
    return Task(name, kind, splits, names, metrics)


def weights(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a run's folder, by file and name."""
    return {f"{file.name}:{k}": v for file in sorted(folder.glob("*.safetensors")) for k, v in load_file(file).items()}


def same_weights(a: Path, b: Path) -> bool:
    """Whether two folders hold the same tensors, bit by bit."""
    one, two = weights(a), weights(b)
    return bool(one) and one.keys() == two.keys() and all(one[k].tobytes() == two[k].tobytes() for k in one)


class Stop(Exception):
    """What ends a run before its end."""


def stopping(at: int | None) -> Callable[..., None]:
    """Progress that ends a run when it reports ``at`` updates."""

    def progress(stage: str, done: int, total: int, /, **rates: float) -> None:
        if stage == "training" and done == at:
            raise Stop

    return progress
