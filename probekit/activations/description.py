"""A readable description of a cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from probekit.errors import CacheMismatch
from probekit.files import in_words
from probekit.rows.schema import called

MOST = 12
"""Labels that are named."""


def check_same(first: Any, second: Any, names: Iterable[str]) -> None:
    """Raise CacheMismatch if two open caches differ in one of these keys of their specs."""
    for name in names:
        one, two = first.spec.get(name), second.spec.get(name)
        if one != two:
            what = f"{name} is {one!r} in the first and {two!r} in the second"
            if name == "task":
                what = f"the task is {one} in the first and {two} in the second"
            elif name == "random_weights":
                weights = [
                    "the trained weights" if seed is None else f"random weights (seed {seed})" for seed in (one, two)
                ]
                what = f"the first was made with {weights[0]} of {first.spec['model']}, the second with {weights[1]}"
            elif name == "weights_digest":
                models = [str(cache.spec["model"]) for cache in (first, second)]
                other = models[1] if models[0] != models[1] else "other weights of that name"
                what = f"the first was made with {models[0]}, the second with {other}"
            raise CacheMismatch(
                f"{first.path} and {second.path} do not belong together: {what}. Give two caches of the same task and "
                "model."
            )


def model_of(cache: Any) -> str:
    """The name of a cache's model, as that of its rows: "minilm, random weights", "minilm, fine-tuned, run mrpc"."""
    s, trained = cache.spec, cache.origin
    random, untrained = s.get("random_weights"), trained.get("untrained")
    checkpoint = s.get("checkpoint") or (f"untrained, seed {untrained}" if untrained is not None else "")
    checkpoint = checkpoint if random is None else f"random-{random}"
    return called({**s, "checkpoint": checkpoint, "regime": trained.get("regime", ""), "representation": ""})


def describe(cache: Any) -> dict[str, str]:
    """The contents of an open :class:`~probekit.activations.cache.ActivationCache`, by name."""
    s, counts = cache.spec, cache.spec["counts"]
    trained, computed, distinct = cache.origin, s["environment"].get("path"), dict.fromkeys(cache.widths)
    facts = {
        "task": f"{s['task']} {s['split']} ({s['kind']}, metrics {', '.join(s['metrics'])})",
        "model": model_of(cache),
        "base": str(s.get("base", "")),
        "adapters": ", ".join(s.get("adapters", ())),
        "doubts": "; ".join(s.get("doubts", ())),
        "quantised": str(s.get("quantised", "")),
        "trained on": ", ".join(str(trained[k]) for k in ("trained_on", "regime", "head", "variant") if trained.get(k)),
        "examples": f"{len(cache):,} ({counts['unique']:,} distinct texts, {counts['pieces']:,} pieces, "
        f"{counts['truncated']:,} truncated, {counts['empty']:,} without content)",
        "groups": _groups(cache),
        "layers": ", ".join(cache.layers),
        "width": ", ".join(map(str, distinct if len(distinct) == 1 or "sites" in s else cache.widths)),
        "pooling": ", ".join(cache.poolings) or "none",
        "tokens": str(s["tokens"] or "none"),
        "positions": str(s.get("positions", "")),
        "generated": _generated(cache) if "generate" in s else "",
        "pairs": str(s["pairs"] or "single sentences"),
        "computed in": f"{s.get('dtype')} on {s.get('device')} ({computed})",
        "stored as": str(s["store"]),
        "state": f"carried over, batches of {s['stateful']} examples" if "stateful" in s else "",
        "labels": _labels(cache),
        "not read": unread(cache),
        "shards": f"{s['shards']:,}, of up to {s['shard_size']:,} examples" if "shards" in s else "",
        "size": in_words(cache.nbytes),
        "spec_id": cache.spec_id,
        "created": "{} by probekit {}".format(*(cache.attributes.get(name, "?") for name in ("created", "probekit"))),
        "certificate": str(s["certificate"]["verdict"]),
    }
    return {name: fact for name, fact in facts.items() if fact}


def unread(cache: Any) -> str:
    """How many labelled words of an open cache have no vector, and of which labels; "" if all have one.

    A label of whose words no vector is left is named as such.
    """
    if cache.spec["kind"] != "sequence-labelling" or not cache.spec["tokens"] or not len(lost := cache.unread_words):
        return ""
    read, names = cache.word_labels, cache.spec["label_names"]
    labels, counts = np.unique(lost, return_counts=True)
    some = [
        f"{names[i] if i < len(names) else i}: {n:,}{'' if (read == i).any() else ', which are all'}"
        for i, n in sorted(zip(labels.tolist(), counts.tolist(), strict=True), key=lambda pair: -pair[1])
    ]
    cut = ", or the text was truncated" if cache.truncated.any() else ""
    return (
        f"{len(lost):,} of {len(lost) + int((read >= 0).sum()):,} labelled words have no vector, since the tokenizer "
        f"leaves nothing of them{cut} ({'; '.join(some[:MOST])}{'; …' if len(some) > MOST else ''})"
    )


def without_content(cache: Any) -> str:
    """Which texts of an open cache have no word piece, and what they have as vectors; "" if there are none."""
    if not cache.spec.get("counts", {}).get("empty") or "positions" in cache.spec:
        return ""
    empty = cache.ids[np.sum([part.length for part in cache.pieces], axis=0) == 0]
    some = ", ".join(map(str, empty[:MOST])) + ", …" * (len(empty) > MOST)
    return f"{len(empty):,} of {len(cache):,} texts are empty and have zeros as vectors ({some})" if len(empty) else ""


def to_json(cache: Any) -> str:
    """The complete spec of an open cache, as JSON."""
    content = cache.spec | {"created": cache.attributes.get("created", "?")}
    content |= {"origin": cache.origin} if cache.origin else {}
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)


def _of_several(values: np.ndarray, names: Sequence[str]) -> str:
    """How often each label holds, or the mean of each number."""
    if values.dtype.kind == "f":
        known = values[~np.isnan(values).any(1)]
        parts = [f"{name}: mean {known[:, k].mean():.3f}" for k, name in enumerate(names)] if len(known) else []
        head = f"{len(names)} numbers of {len(known):,} texts"
    else:
        known = values[(values >= 0).all(1)]
        order = np.argsort(-known.sum(0), kind="stable")
        parts = [f"{names[k]}: {int((known[:, k] == 1).sum()):,}" for k in order]
        head = f"any of {len(names)} for {len(known):,} texts, {int((known.sum(1) == 0).sum()):,} with none"
    return f"{head}; {', '.join(parts[:MOST])}{', …' if len(parts) > MOST else ''}"


def _generated(cache: Any) -> str:
    """How much the model wrote."""
    length = cache.generated_pieces.length
    return (
        f"{int(length.sum()):,} pieces with {cache.spec['generate']}; the last one of each text has no vector, since "
        "the model did not read it"
    )


def _groups(cache: Any) -> str:
    """The number of stored groups, and where they come from."""
    if cache.groups is None:
        return ""
    return f"{len(np.unique(cache.groups)):,} ({cache.grouping.get('made', 'declared')})"


def _labels(cache: Any) -> str:
    if (values := cache.label_values) is not None:
        return _of_several(values, cache.spec["label_names"])
    if cache.spec["kind"] == "regression":
        y = cache.labels[~np.isnan(cache.labels)]
        return f"{len(y):,} numbers, {y.min():g} to {y.max():g}, mean {y.mean():.3f}" if len(y) else "none"
    y = cache.word_labels if cache.spec["kind"] == "sequence-labelling" and cache.spec["tokens"] else cache.labels
    names = cache.spec["label_names"]
    counts = [
        f"{names[i] if 0 <= i < len(names) else i}: {c:,}"
        for i, c in zip(*np.unique(y[y >= 0], return_counts=True), strict=True)
    ]
    return ", ".join(counts[:MOST]) + (", …" if len(counts) > MOST else "") or "none"
