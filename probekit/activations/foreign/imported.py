"""Activations of another program as an encoder that reads them from their file; their texts and labels as a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.activations.foreign.source import Array, Source
from probekit.errors import DataError
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens
from probekit.runtime import Dtype
from probekit.sites import Site
from probekit.tasks.files.guess import read_any
from probekit.tasks.task import Example, Split, Task, TaskKind

if TYPE_CHECKING:
    import torch


class ImportedEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) whose hidden states are in a file.

    A text is its pieces as numbers: "101 7592 102". Texts with the same pieces have the vectors of the first.

    Attributes
    ----------
    source : Source
        The file.
    pieces : list of np.ndarray
        int64 (t,), the pieces of each text.
    decode : callable
        The text of pieces, without special ones.
    """

    mixed_lengths, batch_tokens, stateful = True, 4096, 0

    def __init__(
        self,
        source: Source,
        arrays: Sequence[tuple[Array, Site]],
        pieces: list[np.ndarray],
        special: Sequence[int],
        spec: dict[str, Any],
        truncated: np.ndarray,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self.decode = decode
        self.source, self.arrays, self.pieces = source, [array for array, _ in arrays], pieces
        self.sites = tuple(site for _, site in arrays)
        self.special = np.array(sorted(special), dtype=np.int64)
        self.first = {ids.tobytes(): i for i, ids in reversed(list(enumerate(pieces)))}
        self.cut = {ids.tobytes() for ids, cut in zip(pieces, truncated, strict=True) if cut}
        self.name, self.versions = str(spec["model"]), dict[str, Any]()
        self.max_length = max(map(len, pieces))
        i = next(i for i, ids in enumerate(pieces) if len(ids))
        self.widths: tuple[int, ...] = ()
        self.widths = tuple(self.rows(k, i).shape[1] for k in range(len(arrays)))
        self.spec = spec | {"layers": [*map(str, self.sites)], "max_length": self.max_length}

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """The pieces of each text; each that is not special counts as a word."""
        ids = [np.array(str(text).split(), dtype=np.int64) for text in texts]
        length = np.array([len(part) for part in ids], dtype=np.int64)
        flat = np.concatenate([*ids, np.empty(0, np.int64)])
        special = np.isin(flat, self.special)
        words = np.concatenate([np.cumsum(~np.isin(part, self.special)) - 1 for part in ids] or [flat])
        nothing = np.zeros(len(flat), dtype=np.int32)
        cut = np.array([part.tobytes() in self.cut for part in ids], dtype=bool)
        return Tokens(
            flat.astype(np.int32), length, special, nothing.astype(np.uint8),
            np.where(special, -1, words).astype(np.int32), nothing, nothing, cut,
        )  # fmt: skip

    def readable(self, examples: Sequence[Example]) -> list[Example]:
        """Examples with the texts that their pieces stand for, if these have any text."""
        texts = (self.decode([*map(int, example.text.split())]).strip() for example in examples)
        return [replace(e, text=text or e.text) for e, text in zip(examples, texts, strict=True)]

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Read the vectors of a batch; raises DataError if a text has more or fewer than pieces."""
        import torch

        stops = np.cumsum(batch.length)[:-1]
        texts = [self.first[ids.tobytes()] for ids in np.split(np.asarray(batch.token_ids, dtype=np.int64), stops)]
        for k in range(len(self.arrays)):
            sink(k, torch.cat([self.rows(k, i) for i in texts]))

    def rows(self, k: int, i: int) -> torch.Tensor:
        """The vectors of text i in array k, (t, width)."""
        import torch

        array, pieces = self.arrays[k], len(self.pieces[i])
        rows = array.views[0].rows(i)
        if self.source.texts:
            rows = rows[:pieces]
        if array.views[0].axes or len(rows) != pieces:
            what = f"its axes are {array.views[0].axes}" if array.views[0].axes else f"it has {len(rows)} positions"
            raise DataError(
                f"{array.name}, text {i}: {what}, for {pieces} pieces; probekit certify --against says what it is.",
                file=self.source.path,
            )
        if not rows.shape[1] or (self.widths and rows.shape[1] != self.widths[k]):
            wanted = f"those before have {self.widths[k]}" if self.widths else "wanted one or more"
            raise DataError(f"{array.name}, text {i}: {rows.shape[1]} columns; {wanted}.", file=self.source.path)
        return rows.to(torch.float32) if rows.dtype == torch.float64 else rows.contiguous()


def check_copies(encoder: ImportedEncoder) -> dict[str, Any]:
    """How far texts with the same pieces are from the first of them, whose vectors are kept; {} if none differ.

    Raises
    ------
    DataError
        If they differ by more than rounding.
    """
    import torch

    from probekit.models.sites.errors import vector_error
    from probekit.models.transformers.encoder import TOLERANCE

    differ, worst = set[int](), 0.0
    for i, ids in enumerate(encoder.pieces):
        if (first := encoder.first[ids.tobytes()]) == i or not len(ids):
            continue
        for k, array in enumerate(encoder.arrays):
            one, other = encoder.rows(k, first), encoder.rows(k, i)
            if torch.equal(one, other):
                continue
            error = vector_error(other, one)
            differ.add(i)
            worst = max(worst, error)
            if error > TOLERANCE[Dtype(encoder.spec["dtype"])]:
                raise DataError(
                    f"{array.name}: texts {first} and {i} have the same pieces, but vectors {error:.1e} apart.",
                    file=encoder.source.path,
                )
    return {"copies": {"texts": len(differ), "relative": worst}} if differ else {}


def imported_task(
    name: str, split: str, encoder: ImportedEncoder, labels: str | None, label_names: Sequence[str] | None
) -> Task:
    """The texts, as pieces, with the labels of a table if there is one.

    Raises
    ------
    DataError
        If the table has no column ``label``, or other rows than there are texts.
    """
    texts = [" ".join(map(str, ids.tolist())) for ids in encoder.pieces]
    ids = [*map(str, encoder.source.names)] or [*map(str, range(len(texts)))]
    if labels is None:
        examples = tuple(Example(i, text) for i, text in zip(ids, texts, strict=True))
        return Task(name, TaskKind.CLASSIFICATION, {split: Split(split, examples)}, tuple(label_names or ()))
    columns = _columns(Path(labels), ids)
    given = [None if value is None or str(value).strip() == "" else str(value).strip() for value in columns["label"]]
    groups = [None if value is None else str(value) for value in columns.get("group", [None] * len(ids))]
    kind, names = _kind(given, label_names)
    if unknown := sorted({value for value in given if value is not None and names and value not in names}):
        raise DataError(f"the label {unknown[0]!r} is none of {', '.join(names)}.", file=labels, column="label")
    numbers: list[Any] = [
        None if value is None else names.index(value) if kind is TaskKind.CLASSIFICATION else float(value)
        for value in given
    ]
    examples = tuple(Example(*row[:3], group=row[3]) for row in zip(ids, texts, numbers, groups, strict=True))
    metrics = ("accuracy", "macro-f1") if kind is TaskKind.CLASSIFICATION else ("pearson", "spearman")
    return Task(name, kind, {split: Split(split, examples)}, names, metrics)


def _columns(path: Path, ids: Sequence[str]) -> dict[str, list[Any]]:
    """The columns of the table of labels, in the order of the texts."""
    columns = read_any(path).columns
    if "label" not in columns:
        raise DataError(f"has no column label; it has {', '.join(columns)}.", file=path)
    if "id" not in columns:
        if len(columns["label"]) != len(ids):
            raise DataError(f"has {len(columns['label'])} rows for {len(ids)} texts, and no column id.", file=path)
        return columns
    rows = {str(value): i for i, value in enumerate(columns["id"])}
    if missing := [i for i in ids if i not in rows]:
        raise DataError(f"has no row with the id {missing[0]!r} ({len(missing)} of {len(ids)} are missing).", file=path)
    return {name: [values[rows[i]] for i in ids] for name, values in columns.items()}


def _kind(given: Sequence[str | None], names: Sequence[str] | None) -> tuple[TaskKind, tuple[str, ...]]:
    """Whether labels are classes or numbers, and the classes in order: numbers by size, words by the alphabet."""
    distinct = {value for value in given if value is not None}
    if names is not None:
        return TaskKind.CLASSIFICATION, tuple(map(str, names))
    if all(_is_whole(value) for value in distinct):
        return TaskKind.CLASSIFICATION, tuple(sorted(distinct, key=int))
    try:
        return (TaskKind.REGRESSION, ()) if [float(value) for value in distinct] else (TaskKind.CLASSIFICATION, ())
    except ValueError:
        return TaskKind.CLASSIFICATION, tuple(sorted(distinct))


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()
