"""Build a scene from caches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.grouping import cached_groups
from probekit.analyses.exploration.points import Points, find_points
from probekit.analyses.exploration.scene import Scene, Side
from probekit.analyses.exploration.sources import Sources, matched_layers, opened
from probekit.analyses.vectors import columns_of
from probekit.display import shown_model
from probekit.projection import project
from probekit.runtime import Progress, no_progress
from probekit.tasks.load import shown_task

__all__ = ["scene"]

Cache = str | Path | ActivationCache


def scene(
    a: Cache,
    b: Cache | None = None,
    *more: Cache,
    projection: str | Sequence[str] = "pca",
    layers: Sequence[int | str] | str | None = None,
    unit: str | None = None,
    pooling: str | None = None,
    max_points: int | None = 20_000,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Scene:
    """The layers of one model, or of several side by side, as maps of the same points.

    Parameters
    ----------
    a : path or ActivationCache
        The cache of the reference, such as the pretrained model.
    b, *more : path or ActivationCache
        Caches of the same split from other models, checkpoints, seeds or random weights. They may hold the examples in
        another order and lack some: examples are linked by id. Three or more caches are shown in the order of their
        training steps.
    projection : str or sequence of str
        "pca", "tsne", "umap", "lda"; several give several maps.
    layers : sequence, optional
        Layers to show, by name or number; by default all. Models of different depth are matched by relative depth.
    unit : str, optional
        A point is an example ("examples", the default), a labelled word ("words", the default for tasks that label
        words) or a token ("tokens").
    pooling : str, optional
        Pooling of sentence vectors; by default the first one in the first cache.
    max_points : int, optional
        If there are more points, this many are drawn at random.
    seed : int
        Seed of everything that is drawn.
    progress : callable
        Receives the progress of the work.

    Returns
    -------
    Scene
        Close it when done, or use it in a ``with`` statement.

    Raises
    ------
    UsageError
        If the caches hold different tasks or splits, or share fewer than four points.
    """
    with ExitStack() as stack:
        caches = opened([a, *([] if b is None else [b]), *more], stack)
        caches = _by_step(caches)
        points = find_points(caches, unit, max_points, seed)
        shown, notes = matched_layers(caches, layers)
        pooling = pooling or (caches[0].poolings[0] if points.unit == "examples" else None)
        sources = Sources(caches, (), points, shown, pooling, stack)
        methods = (projection,) if isinstance(projection, str) else tuple(projection)
        sides = [sources.side_layers(s) for s in range(len(caches))]
        maps = {method: project(sides, method, seed=seed, progress=progress) for method in methods}
        movement = _movement(sources)
        return Scene(
            **_facts(caches, points),
            sides=tuple(
                Side(
                    name=name,
                    layers=shown[s],
                    step=caches[s].spec.get("step"),
                    maps={method: found[s] for method, found in maps.items()},
                )
                for s, name in enumerate(_names(caches))
            ),
            movement=movement,
            notes=(*points.notes, *notes),
            sources=Sources(caches, (), points, shown, pooling, stack.pop_all()),
        )


def _by_step(caches: tuple[ActivationCache, ...]) -> tuple[ActivationCache, ...]:
    """The first cache, then the others in the order of their steps if all have one."""
    rest = caches[1:]
    if len(rest) > 1 and all(cache.spec.get("step") is not None for cache in rest):
        rest = tuple(sorted(rest, key=lambda cache: cache.spec["step"]))
    return (caches[0], *rest)


def _facts(caches: Sequence[ActivationCache], points: Points) -> dict[str, Any]:
    """The fields of a scene that do not depend on vectors."""
    first, spec = caches[0], caches[0].spec
    groups = cached_groups(first).of
    if groups is None and points.position is not None:
        groups = np.arange(len(first))
    pieces = sum((text.length for text in first.pieces), np.zeros(len(first), dtype=np.int64))
    domains = first.domains
    return {
        "title": f"{shown_task(spec['task'])} {spec['split']}: {' · '.join(_names(caches))}",
        "task": spec["task"],
        "split": spec["split"],
        "ids": points.ids,
        "texts": None,
        "labels": points.labels,
        "label_names": tuple(spec["label_names"]),
        "domains": None if domains is None else domains[points.example].astype(str),
        "groups": None if groups is None else groups[points.example],
        "lengths": pieces[points.example],
        "tokens_unit": points.unit != "examples",
    }


def _names(caches: Sequence[ActivationCache]) -> list[str]:
    """A short name for each side; caches of equal names are told apart by their file."""
    names = []
    for cache in caches:
        columns = columns_of(cache, "")
        random, step = columns["random_weights"], columns["step"]
        parts = [shown_model(str(columns["model"]))]
        parts += [f"random weights {random}"] if random is not None else [columns["checkpoint"]]
        parts += [f"step {step:,}"] if step is not None else []
        names.append(", ".join(filter(None, parts)))
    if len(set(names)) < len(names):
        names = [f"{name} ({cache.path.stem})" for name, cache in zip(names, caches, strict=True)]
    return names


def _movement(sources: Sources) -> np.ndarray | None:
    """How far each point's vector is from that of the first side, relative to its norm."""
    if len(sources.caches) < 2:
        return None
    found = []
    for side in range(1, len(sources.caches)):
        for layer in range(len(sources.layers[0])):
            one, two = sources.vectors(0, layer), sources.vectors(side, layer)
            if one.shape != two.shape:
                return None
            found.append(relative_distance(one, two))
    return np.array(found).reshape(len(sources.caches) - 1, len(sources.layers[0]), -1)


def relative_distance(one: Any, two: Any) -> np.ndarray:
    """|two - one| / |one| of each row, float32 (n,); NaN where ``one`` is zero."""
    found = np.empty(one.shape[0], dtype=np.float32)
    for start in range(0, len(found), 4096):
        x, y = (np.asarray(v[start : start + 4096], dtype=np.float64) for v in (one, two))
        norm = np.linalg.norm(x, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[start : start + 4096] = np.where(norm > 0, np.linalg.norm(y - x, axis=1) / norm, np.nan)
    return found
