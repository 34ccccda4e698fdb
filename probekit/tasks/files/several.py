"""Several labels a text, or several numbers: from columns, from a column of lists or objects, from separated cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probekit.errors import DataError, Faults, did_you_mean
from probekit.tasks.datasets.sources import number
from probekit.tasks.files.columns import Rows
from probekit.tasks.files.description import TaskFile
from probekit.tasks.files.no_label import class_name, missing
from probekit.tasks.task import Label, TaskKind

HOLDS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}
"""What a cell says of whether a label holds, in upper or lower case."""


def joined(spec: TaskFile, part: Rows) -> Rows:
    """Rows with one column of labels: an object by name where there are several columns, a list where cells are split.

    An example whose cells are all empty has no label.
    """
    columns = dict(part.columns)
    if isinstance(spec.label, list):
        names, values = names_of_columns(spec), [columns.pop(role, []) for role in roles(spec)]
        if not all(values):
            return part.with_columns(columns)
        cells = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        columns["label"] = [None if all(map(missing, row.values())) else row for row in cells]
        own = dict(zip(names, roles(spec), strict=True))
        return replace(part, columns=columns, names={**part.names, **{n: part.names[r] for n, r in own.items()}})
    if spec.separator and "label" in columns:
        columns["label"] = [v if missing(v) else _split(v, spec.separator) for v in columns["label"]]
    return part.with_columns(columns)


def roles(spec: TaskFile) -> list[str]:
    """The roles of several columns of labels."""
    return [f"label {i}" for i in range(1, 1 + len(spec.label))] if isinstance(spec.label, list) else []


def names_of_columns(spec: TaskFile) -> list[str]:
    """The names of the labels that have a column each: those of ``labels``, or the columns'."""
    assert isinstance(spec.label, list)
    return [str(name) for name in spec.labels or spec.label]


def _split(cell: Any, separator: str) -> list[str]:
    return [one for one in (part.strip() for part in class_name(cell).split(separator)) if one]


def kind_of(spec: TaskFile, rows: Mapping[str, Rows]) -> TaskKind | None:
    """The kind of task if texts have several labels or numbers; None if they have one."""
    values = (v for part in rows.values() for v in part.columns.get("label", ()) if not missing(v))
    asked = spec.type in (TaskKind.MULTI_LABEL, TaskKind.MULTI_OUTPUT)
    if not (asked or isinstance(spec.label, list) or isinstance(next(values, None), list | dict)):
        return None
    if asked:
        return TaskKind(spec.type or "")
    return TaskKind.MULTI_OUTPUT if spec.type == TaskKind.REGRESSION else TaskKind.MULTI_LABEL


def label_names(spec: TaskFile, kind: TaskKind, rows: Mapping[str, Rows]) -> tuple[str, ...]:
    """The names of the labels: those listed, those of columns or objects in their order, or all in the data, sorted."""
    if isinstance(spec.label, list):
        return tuple(names_of_columns(spec))
    if spec.labels is not None:
        return tuple(map(str, spec.labels))
    if listed := next((part.class_names for part in rows.values() if part.class_names), ()):
        return listed
    values = [v for part in rows.values() for v in part.columns.get("label", ())]
    if keys := dict.fromkeys(name for v in values if isinstance(v, dict) for name in v):
        return tuple(keys)
    if kind is TaskKind.MULTI_OUTPUT:
        return tuple(str(i) for i in range(1, 1 + max((len(v) for v in values if isinstance(v, list)), default=0)))
    found = {class_name(one) for v in values if isinstance(v, list) for one in v if not isinstance(one, list | dict)}
    return tuple(sorted(found))


def labels_of(part: Rows, kind: TaskKind, names: Sequence[str], faults: Faults) -> list[Label]:
    """The labels of each row: the indices of those that hold, in order, or the numbers; None where there are none."""
    index = {name: i for i, name in enumerate(names)}
    out: list[Label] = []
    for i, value in enumerate(part.columns["label"]):
        found: Label = None
        with faults:
            if isinstance(value, dict):
                found = _of_object(part, i, value, kind, index)
            elif isinstance(value, list) and kind is TaskKind.MULTI_OUTPUT:
                if len(value) != len(names):
                    raise part.error(
                        i, "label", f"found {len(value)} numbers, expected {len(names)}: {_listed(names)}."
                    )
                found = tuple(_number(part, i, "label", one) for one in value)
            elif isinstance(value, list):
                found = tuple(sorted({_known(part, i, one, index) for one in value}))
            elif not missing(value):
                raise part.error(i, "label", f"expected a list of labels, found {str(value)[:60]!r}.")
        out.append(found)
    return out


def _of_object(part: Rows, i: int, value: Mapping[str, Any], kind: TaskKind, index: Mapping[str, int]) -> Label:
    for name in value:
        _known(part, i, name, index)
    if lacking := [name for name in index if missing(value.get(name))]:
        raise _at(part, i, lacking[0], f"there is no value for {lacking[0]!r}; give all labels of an example, or none.")
    if kind is TaskKind.MULTI_OUTPUT:
        return tuple(_number(part, i, name, value[name]) for name in index)
    return tuple(k for name, k in index.items() if _holds(part, i, name, value[name]))


def _at(part: Rows, i: int, name: str, message: str) -> DataError:
    return part.error(i, name if name in part.names else "label", message)


def _known(part: Rows, i: int, value: Any, index: Mapping[str, int]) -> int:
    if isinstance(value, list | dict | bytes) or missing(value):
        raise part.error(i, "label", f"expected a list of labels, found {str(value)[:60]!r} in it.")
    if class_name(value) not in index:
        hint = did_you_mean(class_name(value), index, most=3, show=repr)
        raise part.error(i, "label", f"{class_name(value)!r} is not one of the labels; {hint}")
    return index[class_name(value)]


def _holds(part: Rows, i: int, name: str, value: Any) -> bool:
    found = HOLDS.get(class_name(value).strip().lower())
    if found is None:
        of = "" if name in part.names else f"{name}: "
        numbers = (
            ' If these are numbers to predict, write type = "regression".' if number(str(value)) is not None else ""
        )
        raise _at(part, i, name, f"{of}expected 1 or 0 (true or false, yes or no), found {value!r}.{numbers}")
    return found


def _number(part: Rows, i: int, name: str, value: Any) -> float:
    found = None if isinstance(value, bool) else number(str(value))
    if found is None:
        raise _at(part, i, name, f"expected a number, found {value!r}.")
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + ", …" * (len(names) > 5)


def notes_of(kind: TaskKind, rows: Mapping[str, Rows], names: Sequence[str]) -> Iterator[str]:
    """What a user should know about the labels."""
    yield f"{'Numbers' if kind is TaskKind.MULTI_OUTPUT else 'Labels'} found: {', '.join(names)}."
    for split, part in rows.items():
        if "label" not in part.columns:
            yield f"{split} has no labels."
