"""Build a scene from caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.grouping import cached_groups
from probekit.analyses.exploration.points import Points, TokenTable, find_points
from probekit.analyses.exploration.predictions import rows_of_sides
from probekit.analyses.exploration.scene import Scene, Side
from probekit.analyses.exploration.sources import Sources, matched_layers, matched_train
from probekit.analyses.exploration.texts import Texts, find_texts, surfaces
from probekit.analyses.matching import by_step
from probekit.analyses.vectors import columns_of, open_caches
from probekit.display import shown_model
from probekit.errors import UsageError
from probekit.projection import clusters as clusters_of
from probekit.projection import project
from probekit.rows import Result
from probekit.rows.schema import states
from probekit.runtime import Progress, blas_thread, no_progress
from probekit.tasks.load import load_task, shown_task
from probekit.tasks.task import Task

Cache = str | Path | ActivationCache


def scene(
    a: Cache,
    b: Cache | None = None,
    *more: Cache,
    rows: str | Path | Result | Sequence[str | Path | Result] | None = None,
    train: Cache | Sequence[Cache] | None = None,
    projection: str | Sequence[str] = "pca",
    layers: Sequence[int | str] | str | None = None,
    unit: str | None = None,
    pooling: str | None = None,
    clusters: str | None = None,
    task: str | Path | Task | None = None,
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
    rows : path, Result or sequence, optional
        Files of ``probekit probe`` (and ``mi``, ``mdl``) for these caches: the predictions of each layer's probe, and
        curves with their controls.
    train : path, ActivationCache or sequence, optional
        Caches of the training split, one for each model in any order: for "lda" maps, logits of tokens, and ranking
        units.
    projection : str or sequence of str
        "pca", "tsne", "umap", "lda" (directions that separate the labels, fitted on ``train``); several give several
        maps.
    layers : sequence, optional
        Layers to show, by name or number; by default all. Models of different depth are matched by relative depth.
    unit : str, optional
        A point is an example ("examples", the default), a labelled word ("words", the default for tasks that label
        words) or a token ("tokens").
    pooling : str, optional
        Pooling of sentence vectors; by default the first one in the first cache.
    clusters : str, optional
        "kmeans" or "hdbscan": clusters of the vectors of each layer.
    task : str, Path or Task, optional
        Where the texts are, if not where they were when the caches were made: a name, a TOML file, or a Task.
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
        If the caches hold different tasks or splits, share fewer than four points, or the rows belong to other caches.
    CacheMismatch
        If a training cache belongs to none of the models.
    """
    with ExitStack() as stack:
        caches = open_caches([a, *([] if b is None else [b]), *more], stack)
        caches = tuple(by_step(caches))
        points = find_points(caches, unit, max_points, seed)
        shown, notes = matched_layers(caches, layers)
        given = [train] if isinstance(train, Cache) else list(train or ())
        fitted, seen = matched_train(caches, open_caches(given, stack))
        pooling = _pooling(caches, points.unit, pooling)
        sources = Sources(caches, fitted, points, shown, pooling, stack)
        found, missing = rows_of_sides(rows, sources)
        given_task = load_task(str(task)) if isinstance(task, str | Path) else task
        texts, text_note = find_texts(caches[0], given_task)
        methods = (projection,) if isinstance(projection, str) else tuple(projection)
        vectors = [sources.side_layers(s) for s in range(len(caches))]
        training = [sources.trained(s) for s in range(len(caches))] if "lda" in methods else None
        maps = {m: project(vectors, m, train=training, seed=seed, progress=progress) for m in methods}
        sides = []
        for s, name in enumerate(_names(caches)):
            grouped = None if clusters is None else _clusters(vectors[s], clusters, seed)
            side_maps = {method: of[s] for method, of in maps.items()}
            step = caches[s].spec.get("step")
            sides.append(
                Side(name, shown[s], step, side_maps, found[s].prediction, found[s].confidence, found[s].curve, grouped)
            )
        facts = _facts(caches, points)
        notes = [
            *points.notes,
            *notes,
            *missing,
            *seen,
            *_constant(sides),
            *filter(None, [text_note]),
            *_reading(caches, sides),
        ]
        return Scene(
            **facts,
            texts=_texts(texts, points, caches[0]),
            sides=tuple(sides),
            movement=_movement(sources),
            notes=tuple(notes),
            sources=replace(sources, stack=stack.pop_all()),
        )


def _pooling(caches: Sequence[ActivationCache], unit: str, pooling: str | None) -> str | None:
    """The pooling of examples, which all caches hold."""
    if unit != "examples":
        return None
    chosen = pooling or caches[0].poolings[0]
    for cache in caches:
        if chosen not in cache.poolings:
            raise UsageError(f"{cache.path} has no pooling {chosen!r}; it has {', '.join(cache.poolings) or 'none'}.")
    return chosen


def _clusters(layers: Sequence[Callable[[], Any]], method: str, seed: int) -> np.ndarray:
    points = layers[0]().shape[0]
    with blas_thread():
        return np.array([clusters_of(vectors(), method, count=min(6, points), seed=seed) for vectors in layers])


def _reading(caches: Sequence[ActivationCache], sides: Sequence[Side]) -> list[str]:
    """Notes on how to read movement and trustworthiness."""
    notes = []
    first = caches[0].spec
    for side, cache in zip(sides[1:], caches[1:], strict=True):
        if any(cache.spec.get(key) != first.get(key) for key in ("model", "random_weights")):
            notes.append(
                f"{side.name} was not trained from {sides[0].name}: their distance (movement) is not what training "
                "changed."
            )
    shown = next(iter(sides[0].maps.values()))
    if shown.compared < shown.xy.shape[1]:
        notes.append(
            f"Trustworthiness and continuity are computed on {shown.compared:,} of {shown.xy.shape[1]:,} points, drawn "
            "at random."
        )
    return notes


def _constant(sides: Sequence[Side]) -> list[str]:
    """A note for each layer whose vectors are all equal."""
    notes = []
    for side in sides:
        flat = np.logical_not(next(iter(side.maps.values())).xy.any(axis=(1, 2)))
        notes += [
            f"Layer {name} of {side.name}: all vectors are equal, so the map is a single point."
            for name, constant in zip(side.layers, flat.tolist(), strict=True)
            if constant
        ]
    return notes


def _texts(texts: Texts | None, points: Points, cache: ActivationCache) -> list[tuple[str, ...]] | None:
    """The text of each point; for tokens and words preceded by the token."""
    if texts is None:
        return None
    if points.position is None:
        return [texts[name] for name in points.ids.tolist()]
    names = [name.rpartition(":")[0] for name in points.ids.tolist()]
    if points.unit == "words":
        of_words = [texts[name][0].split(" ") for name in names]
        return [(words[k], *texts[name]) for words, k, name in zip(of_words, points.position, names, strict=True)]
    examples, first = np.unique(points.examples[0], return_index=True)
    strings = surfaces(TokenTable(cache), examples, [texts[names[i]] for i in first])
    tokens = dict(zip(examples.tolist(), strings, strict=True))
    places = zip(names, points.examples[0].tolist(), points.position.tolist(), strict=True)
    return [(tokens[example][k], *texts[name]) for name, example, k in places]


def _facts(caches: Sequence[ActivationCache], points: Points) -> dict[str, Any]:
    """The fields of a scene that do not depend on vectors."""
    first, spec = caches[0], caches[0].spec
    names = _names(caches)
    names = names if len(names) < 4 else [names[0], f"{len(names) - 1} checkpoints to {names[-1]}"]
    groups, example = cached_groups(first).of, points.examples[0]
    if groups is None and points.position is not None:
        groups = np.arange(len(first))
    pieces = sum((text.length for text in first.pieces), np.zeros(len(first), dtype=np.int64))
    domains = first.domains
    return {
        "title": f"{shown_task(spec['task'])} {spec['split']}: {' · '.join(names)}",
        "task": spec["task"],
        "split": spec["split"],
        "ids": points.ids,
        "labels": points.labels,
        "label_names": tuple(spec["label_names"]),
        "domains": None if domains is None else domains[example].astype(str),
        "groups": None if groups is None else groups[example],
        "lengths": pieces[example],
        "tokens_unit": points.unit != "examples",
    }


def _names(caches: Sequence[ActivationCache]) -> list[str]:
    """A short name for each side; a model beside its checkpoints is "pretrained"; equal names get their file's."""
    names = []
    all_columns = [columns_of(cache, "") for cache in caches]
    tuned = {c["model"] for c in all_columns if c["checkpoint"] and c["random_weights"] is None}
    for columns in all_columns:
        state = states(columns) or ["pretrained"] * (columns["model"] in tuned)
        names.append(", ".join([shown_model(str(columns["model"])), *state]))
    if len(set(names)) < len(names):
        names = [f"{name} ({cache.path.stem})" for name, cache in zip(names, caches, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} {i}" for i, name in enumerate(names, 1)]
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
