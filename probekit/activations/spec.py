"""What the description of a cache must hold, so that whoever reads it need not doubt it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

STORES = ("float32", "float16", "bfloat16")
LARGEST = 1 << 48
"""No cache has as many rows, columns or bytes."""


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0 to what a cache can hold."""
    return type(value) is int and 0 <= value < LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_counts(value: Any) -> bool:
    names = ("unique", "pieces", "truncated", "empty")
    return isinstance(value, dict) and all(is_count(value.get(name)) for name in names)


EXPECTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("task", "split", "model", "kind"), ("a text", _is_text)),
    **dict.fromkeys(("n", "width"), ("a whole number", is_count)),
    **dict.fromkeys(("layers", "pooling", "metrics"), ("a list of texts", _is_texts)),
    **dict.fromkeys(("tokens", "pairs"), ("a text or nothing", lambda value: not value or _is_text(value))),
    "sentences": ("1 or 2", lambda value: type(value) is int and value in (1, 2)),
    "store": (f"one of {', '.join(STORES)}", lambda value: value in STORES),
    "counts": ("numbers of unique, pieces, truncated and empty", _is_counts),
    "certificate": ("a verdict", lambda value: isinstance(value, dict) and _is_text(value.get("verdict"))),
    "environment": ("names and values", lambda value: isinstance(value, dict)),
}
OPTIONAL: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("step", "shards", "shard_size", "stateful"), ("a whole number", is_count)),
    "checkpoint": ("a text or nothing", lambda value: value is None or _is_text(value)),
    "doubts": ("a list of texts", _is_texts),
    "links": ("names of datasets", _is_texts_by_name),
    "widths": ("whole numbers", lambda value: not value or (isinstance(value, list) and all(map(is_count, value)))),
}


def check_spec(spec: Any) -> None:
    """Raise KeyError or ValueError for the first value of a spec that no cache of probekit has."""
    if not isinstance(spec, dict):
        raise ValueError("spec is not an object")
    if lacking := EXPECTED.keys() - spec.keys():
        raise KeyError(f"no {', '.join(sorted(lacking))} in spec")
    for name, (wanted, valid) in {**EXPECTED, **OPTIONAL}.items():
        if name in spec and not valid(spec[name]):
            raise ValueError(f"{name} is {spec[name]!r:.60}; expected {wanted}")


def check_dataset(name: str, about: Any) -> None:
    """Raise ValueError if what a manifest says of a dataset is not ``dtype``, ``shape`` and ``encoded``."""
    import numpy as np

    shape = about["shape"]
    if not (isinstance(shape, list) and all(map(is_count, shape)) and isinstance(about["encoded"], bool)):
        raise ValueError(f"{name} has the shape {shape!r:.60}")
    if np.dtype(about["dtype"]).hasobject:
        raise ValueError(f"{name} holds Python objects")
