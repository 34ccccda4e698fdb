"""A small task with repeated texts, an empty one and lengths all over, for the tests of caches."""

from __future__ import annotations

import numpy as np

from probekit.tasks.task import Example, Split, Task, TaskKind

WORDS = (
    "the a cat dog bird child sleeps runs sees small old red not very and never often house garden in good bad".split()
)


def sentences(n: int, seed: int = 0, longest: int = 30) -> list[str]:
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, longest))) for _ in range(n)]
    for i in range(5, n, 7):
        texts[i] = texts[i - 5]  # repeated texts, across blocks too
    texts[n // 3] = texts[n - 1]
    return texts


def toy_task(n: int = 60, *, empty: bool = True) -> Task:
    texts = sentences(n)
    if empty:
        texts[2] = texts[9] = ""
    examples = tuple(Example(f"é{i}", text, label=i % 3 if i != 4 else None) for i, text in enumerate(texts))
    return Task("toy", TaskKind.CLASSIFICATION, {"train": Split("train", examples)}, ("a", "b", "c"), ("accuracy",))


def toy_pairs(n: int = 40) -> Task:
    first, second = sentences(n, 1), sentences(n, 2)
    examples = tuple(
        Example(str(i), a, i / n, pair=b, domain="x" if i % 2 else "y")
        for i, (a, b) in enumerate(zip(first, second, strict=True))
    )
    return Task("toy-pairs", TaskKind.REGRESSION, {"train": Split("train", examples)}, (), ("pearson",))


def toy_tags(n: int = 30) -> Task:
    rng = np.random.default_rng(3)
    examples = []
    for i, text in enumerate(sentences(n, 3)):
        words = tuple(text.split())
        examples.append(Example(str(i), text, tuple(int(t) for t in rng.integers(0, 3, len(words))), words=words))
    return Task(
        "toy-tags",
        TaskKind.SEQUENCE_LABELLING,
        {"train": Split("train", tuple(examples))},
        ("O", "B-X", "I-X"),
        ("span-f1",),
    )
