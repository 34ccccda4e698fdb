"""Scenes that are made up: what the tests of the explorer share."""

from functools import cache

import numpy as np

from probekit.analyses.exploration.scene import Scene, Side
from probekit.projection import Map
from probekit.rows import make_rows

SCRIPT = "<script>alert(1)</script>"
HARD = ("<b>bold</b> " + SCRIPT, "שלום עולם, مرحبا", "👩‍👩‍👧 emoji 🎉", "long " * 2000)
"""Texts that must stay texts: markup, right to left, emoji, 10,000 characters."""


def row(layer, value, **change):
    base = {"analysis": "probe", "task": "t", "split": "dev", "model": "m", "layer": layer, "site": "resid_post"}
    base |= {"representation": "mean", "estimator": "logistic", "target": "gold", "metric": "accuracy", "n": 100}
    return base | {"value": value, "ci_low": value - 0.05, "ci_high": value + 0.05} | change


def curve(values, model):
    noise = {"target": "shuffled", "ci_low": 0.45, "ci_high": 0.55}
    gold = [row(i, v, model=model) for i, v in enumerate(values)]
    floors = {"site": "", "ci_low": None, "ci_high": None, "model": model}
    gold += [
        row(None, 0.52, **floors, representation="none", estimator="majority"),
        row(None, 0.57, **floors, representation="bag-of-pieces"),
        row(None, 0.51, **floors, representation="length"),
    ]
    return make_rows([*gold, *(row(i, 0.5, model=model, **noise) for i in range(len(values)))])


def a_map(xy, method):
    layers = len(xy)
    explained = np.tile([0.3, 0.2], (layers, 1)) if method == "pca" else None
    note = {"pca": "Exact.", "tsne": "Distances between clusters mean nothing here."}[method]
    return Map(method, xy.astype(np.float32), explained, np.ones(layers), *np.full((2, layers), 0.9), 100, note)


@cache
def a_scene(n=120, layers=4, sides=2, *, methods=("pca", "tsne"), seed=0, texts=True, classes=2):
    """Classes that part more from layer to layer, and more on the further sides."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    base = rng.normal(size=(layers, n, 2))
    found = []
    for side in range(sides):
        away = np.stack([np.cos(2 * np.pi * labels / classes), np.sin(2 * np.pi * labels / classes)], axis=1)
        xy = base + (side + 1) * np.arange(layers)[:, None, None] * away
        right = rng.random((layers, n)) < np.linspace(0.5, 0.7 + 0.2 * min(side, 1), layers)[:, None]
        prediction = np.where(right, labels, (labels + 1) % classes)
        confidence = rng.uniform(0.5, 1, size=(layers, n)).astype(np.float32)
        name = "pretrained" if not side else f"step {10 * side}"
        maps = {method: a_map(xy[:, ::-1] if method == "tsne" else xy, method) for method in methods}
        rows = curve(right.mean(axis=1).tolist(), name)
        found.append(Side(name, tuple(map(str, range(layers))), 10 * side, maps, prediction, confidence, rows))
    words = [(f"sentence number {i}",) for i in range(n)]
    for i, text in enumerate(HARD):
        words[i] = (text,)
    return Scene(
        title=f"Toy {SCRIPT}", task="toy", split="dev", ids=np.array([f"e{i}" for i in range(n)]),
        texts=words if texts else None, labels=labels, label_names=("no", "yes", "maybe", SCRIPT)[:classes],
        domains=None, groups=None, lengths=rng.integers(3, 40, size=n), tokens_unit=False, sides=tuple(found),
        movement=rng.random((sides - 1, layers, n)).astype(np.float32) if sides > 1 else None,
        notes=("120 of 130 ids agree.",),
    )  # fmt: skip
