"""Toy data that the tests of several rooms share: tasks in words with their caches, classes of signal and noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from probekit.rows.card import environment
from probekit.tasks.task import Example, Split, Task, TaskKind

SIZES = {"train": 160, "dev": 80}
NAMES = {"sequence-labelling": ("O", "B-CAT"), "regression": ()}
METRICS = {"sequence-labelling": ("span-f1", "token-accuracy"), "regression": ("pearson",)}


MADE: dict[str, bytes] = {}
"""The files of :func:`word_caches`."""


def word_task(kind: str = "classification", sizes: Mapping[str, int] = SIZES, *, first: bool = False) -> Task:
    """Sentences of five words; what a layer that sees words knows of them.

    kind : "classification": is "good" in the sentence; "sequence-labelling": is this word a cat; "regression": how
        often is "good" in it; "pairs": do both sentences have it, or neither
    first : whether the first sentence of each split is labelled, too
    """
    from tiny import WORDS  # imports torch

    rng = np.random.default_rng(0)
    plain = [w for w in WORDS if w.isalpha() and w not in ("good", "cat")]

    def sentence(good: int) -> list[str]:
        words = [str(word) for word in rng.choice(plain, size=5)]
        for at in rng.permutation(5)[:good]:
            words[at] = "good"
        return words

    def example(i: int) -> Example:
        if kind == "sequence-labelling":
            words = tuple(str(word) for word in rng.choice(["cat", *plain[:3]], size=5))
            return Example(str(i), " ".join(words), tuple(int(w == "cat") for w in words), words=words)
        if kind == "pairs":
            a, b = rng.integers(2, size=2)
            return Example(str(i), " ".join(sentence(a)), int(a == b), pair=" ".join(sentence(b)))
        good = int(rng.integers(5 if kind == "regression" else 2))
        label = float(good) if kind == "regression" else good
        return Example(str(i), " ".join(sentence(good)), label if i or first else None)

    splits = {name: Split(name, tuple(example(i) for i in range(n))) for name, n in sizes.items()}
    real = TaskKind.CLASSIFICATION if kind == "pairs" else TaskKind(kind)
    return Task(kind, real, splits, NAMES.get(kind, ("no", "yes")), METRICS.get(kind, ("accuracy", "f1")))


def word_caches(
    folder: Path, model: Path, kind: str = "classification", *, name: str = "", sizes: Mapping[str, int] = SIZES,
    **how: Any,
) -> tuple[Path, ...]:  # fmt: skip
    """The caches of all splits of a :func:`word_task`, below ``name``; equal ones are made once a session."""
    from probekit.activations import cache_activations

    task = word_task(kind, sizes)
    if kind == "sequence-labelling":
        how = {"pooling": "none", "tokens": True, "token_level": "word-first"} | how
    paths = [folder / f"{name or kind}.{split}.h5" for split in sizes]
    for split, path in zip(sizes, paths, strict=True):
        key = repr((str(model), kind, sizes, split, how))
        if key in MADE:
            path.write_bytes(MADE[key])
            continue
        cache_activations(model, task, split, out=path, **how).close()
        if path.is_file():  # not a folder of shards
            MADE[key] = path.read_bytes()
    return tuple(paths)


def chat_model(folder: Path) -> Path:
    """A tiny GPT-2 with room for a conversation and ChatML's template."""
    import tiny
    from chat_templates import CHATML

    model: Path = tiny.tiny_model("gpt2", folder, n_positions=256)
    settings = json.loads((model / "tokenizer_config.json").read_text()) | {"model_max_length": 256}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    (model / "chat_template.jinja").write_text(CHATML)
    return model


def signal_and_noise(
    n: int, d: int, classes: int, *, signal: float, seed: int = 0, noise: str = "normal"
) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Vectors (n, d), float32, labels that their first dimensions tell but for noise, and the generator of both."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    return x, (signal * x[:, :classes] + getattr(rng, noise)(size=(n, classes))).argmax(1), rng


def old_card(command: str = "probekit mi a.h5") -> dict[str, Any]:
    """An evidence card as versions before 0.2 wrote it, but for what is said of the rows."""
    told = {key: value for key, value in environment().items() if key != "machine"}
    known: dict[str, Any] = {"caches": [], "arguments": {}, "seeds": {}, "durations": {}}
    return {**known, "command": command, **told, "created": "2026-11-22T04:49:44+00:00"}
