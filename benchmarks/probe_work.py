"""What both sides of ``probes.py`` are given, the same features and labels, and how they are timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measures import cpu_seconds, memory

ENOUGH = 10.0  # seconds after which nothing is repeated
Found = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is measured, ``what`` by name, on the features and labels in the folder ``data``; models go to ``out``."""

    what: str
    data: str = ""
    out: str = ""
    repeats: int = 3
    more: dict[str, Any] = field(default_factory=dict)


def synthetic(folder: Path, n: int, d: int, classes: int) -> None:
    """Ill-conditioned features and labels that a linear probe finds in part.

    Two classes: about .8 of the labels can be told from the features. More: a mean for each class, as many rows of
    each as TREC's coarse (6) classes have, or a tail as long as that of its fine ones (50).
    """
    rng = np.random.default_rng(0)
    strength = np.logspace(0, -2.5 if classes == 2 else -1.5, d)
    z = rng.standard_normal((n, d), dtype=np.float32)
    if classes == 2:
        w = rng.standard_normal(d) * np.sqrt(strength)  # the weak directions tell something, too
        logits = (z @ (w / np.linalg.norm(w)).astype(np.float32)) * 2.1
        y = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    else:
        share = np.array([1250, 1223, 1162, 896, 835, 86.0]) if classes == 6 else np.geomspace(962, 4, classes)
        count = np.maximum(2, n * share / share.sum()).astype(int)
        count[0] += n - count.sum()
        y = rng.permutation(np.repeat(np.arange(classes), count))
        z += 8 * (rng.standard_normal((classes, d)) / np.sqrt(d)).astype(np.float32)[y]
    mixing = rng.standard_normal((d, d)).astype(np.float32) * strength.astype(np.float32)[:, None]
    save(folder, z @ mixing, y)


UPOS = [0.17, 0.137, 0.11, 0.09, 0.086, 0.08, 0.065, 0.06, 0.06, 0.05, 0.04, 0.033, 0.02, 0.02, 0.007, 0.006, 0.004]
"""Shares of the 17 universal parts of speech, about those of English texts."""


def tagged(folder: Path, n: int, d: int) -> None:
    """Vectors of n words: of their type (Zipf's law), of their tag, and noise; 12 make a sentence."""
    rng, shares = np.random.default_rng(5), np.array(UPOS) / sum(UPOS)
    types = np.searchsorted(np.cumsum(1 / np.arange(1, 6001)), rng.random(n) * np.sum(1 / np.arange(1, 6001)))
    tag_of = rng.choice(len(UPOS), size=6000, p=shares)
    y = np.where(rng.random(n) < 0.12, rng.choice(len(UPOS), size=n, p=shares), tag_of[types])
    own, tag = (rng.standard_normal((m, d), dtype=np.float32) for m in (6000, len(UPOS)))
    z = 0.7 * own[types] + 0.35 * tag[y] + rng.standard_normal((n, d), dtype=np.float32)
    mixing = rng.standard_normal((d, d)) * np.logspace(0, -1.5, d)[:, None]
    save(folder, z @ mixing.astype(np.float32), y)
    np.save(folder / "types.npy", types)
    np.save(folder / "sentences.npy", np.arange(n) // 12)


def from_cache(folder: Path, path: Path, layer: str | None, most: int) -> str:
    """The pooled vectors and labels of a layer, the middle one by default: nine rows in ten, as when C is chosen."""
    from probekit import ActivationCache

    with ActivationCache(path) as cache:
        layer = layer or str(cache.layers[len(cache.layers) // 2])
        labels = np.asarray(cache.labels)
        rows = np.flatnonzero(labels >= 0)
        rows = rows[np.random.default_rng(0).permutation(len(rows)) % 10 > 0][:most]
        y = np.unique(labels[rows], return_inverse=True)[1]
        save(folder, np.array(cache.layer(layer)[rows], dtype=np.float32), y)
    return layer


def save(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Standardised float32 features and class indices; features that hardly vary are zero."""
    mean, sd = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-5 * np.abs(mean))
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", ((x - mean.astype(np.float32)) * scale.astype(np.float32)))
    np.save(folder / "y.npy", y.astype(np.int64))


def features(job: Job, dtype: str | None = None) -> np.ndarray:
    """A memory map of float32; an array where a dtype is named."""
    x = np.load(Path(job.data) / "x.npy", mmap_mode="r")
    return x if dtype is None else np.array(x, dtype=dtype)


def label_sets(job: Job, targets: int) -> np.ndarray:
    """Gold and its shufflings, int64 (targets, n)."""
    y, rng = np.load(Path(job.data) / "y.npy"), np.random.default_rng(1)
    return np.stack([y, *(rng.permutation(y) for _ in range(targets - 1))])


def numbers(job: Job, targets: int) -> np.ndarray:
    """Values that the features tell in part, and shufflings of them, float64 (targets, n)."""
    x, rng = features(job), np.random.default_rng(2)
    y = (x @ rng.standard_normal(x.shape[1]).astype(np.float32)).astype(np.float64)
    y += y.std() * rng.standard_normal(len(y))
    return np.stack([y, *(rng.permutation(y) for _ in range(targets - 1))])


def start_memory() -> float:
    """MB in use; the peak counts from here."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def timed(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    """What it returns; wall and CPU seconds."""
    wall, cpu = time.perf_counter(), sum(cpu_seconds())
    result = work()
    return result, [time.perf_counter() - wall, sum(cpu_seconds()) - cpu]


def repeated(job: Job, work: Callable[[int], Any], loaded: float) -> tuple[Any, Found]:
    """Seconds of each of some runs of ``work(turn)``, and the peak MB above what was loaded."""
    times: list[list[float]] = []
    while len(times) < job.repeats and sum(t[0] for t in times) < ENOUGH:
        result, seconds = timed(partial(work, len(times)))
        times.append(seconds)
    return result, {"times": times, "peak": memory("VmHWM") - loaded}
