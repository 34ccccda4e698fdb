"""The column of targets in a user's data: spans, pairs of spans, and their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probekit.errors import Faults
from probekit.tasks.files.columns import Rows
from probekit.tasks.targets import problem
from probekit.tasks.task import Example, Span, Target

__all__ = ["span_labels", "with_targets"]

EXPECTED = 'expected a list such as [{"span1": [0, 2], "label": "…"}]'


def span_labels(rows: Mapping[str, Rows]) -> tuple[str, ...]:
    """All labels of the targets, sorted."""
    labels = {label for part in rows.values() for targets in part.columns["targets"] for label in _labels_in(targets)}
    return tuple(sorted(labels))


def _labels_in(targets: Any) -> Iterator[str]:
    for target in targets if isinstance(targets, list) else ():
        label = target.get("label") if isinstance(target, dict) else None
        yield from map(str, label if isinstance(label, list) else [] if label is None else [label])


def with_targets(part: Rows, examples: Sequence[Example], names: Sequence[str], faults: Faults) -> Iterator[Example]:
    """The examples of a split with their targets; each wrong one is a fault at its line."""
    index, shape = {name: i for i, name in enumerate(names)}, None
    for i, (e, given) in enumerate(zip(examples, part.columns["targets"], strict=True)):
        with faults:
            if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
                raise part.error(i, "targets", f"{EXPECTED}, found {str(given)[:60]!r}.")
            targets = tuple(_target(part, i, one, index) for one in given)
            found = replace(e, targets=targets)
            if wrong := problem(found):
                raise part.error(i, "targets", f"{wrong}.")
            for target in targets:
                if target.label is None and shape is not None and shape[1]:
                    raise part.error(i, "targets", "a target has no label; write [] if none of several labels holds.")
                now = len(target.spans), isinstance(target.label, tuple)
                shape = shape or (now if target.label is not None else None)
                if target.label is not None and now != shape:
                    message = "all targets need as many spans, and all either one label or a list of labels; this one "
                    raise part.error(i, "targets", f"{message}differs from the first.")
            yield found


def _target(part: Rows, i: int, given: Mapping[str, Any], index: Mapping[str, int]) -> Target:
    bounds = [given[name] for name in ("span1", "span2") if given.get(name) is not None]
    whole = all(isinstance(b, list) and len(b) == 2 and all(type(n) is int for n in b) for b in bounds)
    if not bounds or not whole:
        raise part.error(i, "targets", f"{EXPECTED}, found {str(given)[:60]!r}.")
    label = given.get("label")
    many = label if isinstance(label, list) else [] if label is None else [label]
    if unknown := [one for one in many if str(one) not in index]:
        raise part.error(i, "targets", f"{unknown[0]!r} is not one of the labels {', '.join(map(repr, index))}.")
    numbers = tuple(sorted(index[str(one)] for one in many))
    of_list = numbers if isinstance(label, list) else None
    return Target(tuple(Span(*b) for b in bounds), of_list if label is None or of_list is not None else numbers[0])
