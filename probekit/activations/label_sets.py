"""What a cache stores of a task beside vectors: ids, labels, domains, and the spans that labels are about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probekit.tasks.targets import targets_of
from probekit.tasks.task import Example, Split, Task, TaskKind


def stored_labels(task: Task, part: Split) -> dict[str, np.ndarray]:
    """The datasets of a cache that a task's examples determine, n of them, by name.

    ``/targets`` holds m spans or pairs of spans: ``example`` int64 (m,), ``spans`` int64 (m, 2 or 4), the start and
    the end of each in words (of an example that was read as words) or in characters, ``second`` bool (m, 1 or 2),
    whether a span is in the second text, ``in_words`` bool (m,), and ``labels``, int64 (m,), -1 if unlabelled, or bool
    (m, label names). ``/label_values`` holds several labels of texts, int8 (n, label names), 1 if the label holds, -1
    if unlabelled, or several numbers, float64; ``/labels`` is then -1.
    """
    only = Task(task.name, task.kind, {part.name: part}, task.label_names)
    labels = only.labels(part.name)
    found = {"/ids": strings([e.id for e in part]), "/label_names": strings(task.label_names)}
    if any(e.domain is not None for e in part):
        found["/domains"] = strings([e.domain or "" for e in part])
    if task.kind is TaskKind.SEQUENCE_LABELLING:
        count = np.array([len(e.words or ()) for e in part], dtype=np.int64)
        found |= {"/word_labels": labels, "/index/word_count": count}
    if any(e.targets or e.spans for e in part) and task.kind is not TaskKind.SEQUENCE_LABELLING:
        found |= {f"/targets/{name}": array for name, array in target_arrays([*part], task.kind, labels).items()}
    if task.kind.several:
        found["/label_values"] = labels
    with_text_labels = task.kind in (TaskKind.CLASSIFICATION, TaskKind.REGRESSION)
    found["/labels"] = labels if with_text_labels else np.full(len(part), -1, dtype=np.int64)
    return found


def target_arrays(examples: Sequence[Example], kind: TaskKind, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of ``/targets``, by name; ``labels`` are those of a task that labels spans."""
    of = [targets_of(e, kind) for e in examples]
    all_of = [target for targets in of for target in targets]
    many = max((len(target.spans) for target in all_of), default=1)
    spans = [[bound for span in target.spans for bound in span[:2]] for target in all_of]
    second = [[span.second for span in target.spans] for target in all_of]
    if kind is not TaskKind.SPAN_LABELLING:
        labels = np.array([target.label for target in all_of], dtype=np.int64)
    return {
        "example": np.repeat(np.arange(len(of)), [len(targets) for targets in of]),
        "spans": np.array(spans, dtype=np.int64).reshape(-1, 2 * many),
        "second": np.array(second, dtype=bool).reshape(-1, many),
        "in_words": np.array([e.words is not None for e, some in zip(examples, of, strict=True) for _ in some]),
        "labels": labels,
    }


def strings(values: Sequence[str]) -> np.ndarray:
    """Strings as UTF-8 of fixed length, which HDF5 stores contiguously."""
    encoded = [v.encode(errors="backslashreplace") for v in values]
    return np.array(encoded, dtype=f"S{max((len(v) for v in encoded), default=1) or 1}")
