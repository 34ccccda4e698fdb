"""The pass over the data: a chunk of texts through the model, its vectors into the sums, and no vector kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from probekit.activations.pooling import TokenLevel
from probekit.activations.writing.chosen import tell_left_out
from probekit.activations.writing.chunk import Chunk, read_chunk
from probekit.activations.writing.reading import Reading
from probekit.activations.writing.request import count_of
from probekit.analyses.options import PairVector, SpanVector
from probekit.analyses.stream.state import State, check_ids, layout_of
from probekit.analyses.vectors import pair_features
from probekit.errors import UsageError
from probekit.models.encoder import Encoder
from probekit.probes.spans import span_vectors
from probekit.runtime import Progress, blas_thread
from probekit.statistics.moments import LayerMoments
from probekit.statistics.streams import Reservoir, uniform
from probekit.tasks.targets import targets_of
from probekit.tasks.task import Example, TaskKind

CENTRED = 256  # examples at the start of the data whose means are the centres of the sums of every part


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """The data and the model of a pass.

    Attributes
    ----------
    part : Split or StreamedSplit
        The examples.
    dev_keys : np.ndarray
        uint64 (dev examples,), digests of their texts.
    span : SpanVector, optional
        How the pieces of a span become one vector.
    span_pair : PairVector
        What is read of the vectors of a pair of spans.
    """

    encoder: Encoder
    reading: Reading
    part: Any
    spec: Mapping[str, Any]
    dev_keys: np.ndarray
    batch_tokens: int | None
    span: SpanVector | None = None
    span_pair: PairVector = PairVector.COMPARED


@dataclass(frozen=True, eq=False, slots=True)
class Marks:
    """What decides where a row goes, (rows,) each; a row without a label has y NaN and fold -1."""

    y: np.ndarray
    fold: np.ndarray
    bin: np.ndarray
    unit: np.ndarray
    priority: np.ndarray


def _keys(texts: Sequence[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(t.encode("utf-8", "surrogatepass")) for t in texts], dtype=np.uint64)


def text_keys(examples: Sequence[Example]) -> np.ndarray:
    """uint64 (n,), digests of the texts of examples."""
    return _keys([f"{e.text if e.words is None else ' '.join(e.words)}\0{e.pair or ''}" for e in examples])


def units_of(examples: Sequence[Example], reading: Reading) -> np.ndarray:
    """int64 (n,), the units of each example that may have a label: itself, its words, or its targets."""
    kind = reading.task.kind
    if kind is TaskKind.SEQUENCE_LABELLING:
        return np.array([len(e.words or ()) for e in examples], dtype=np.int64)
    if reading.level == TokenLevel.CHOSEN:
        return np.array([len(targets_of(e, kind)) for e in examples], dtype=np.int64)
    return np.ones(len(examples), dtype=np.int64)


def labels_of(examples: Sequence[Example], reading: Reading) -> np.ndarray:
    """The label of each unit, float64, NaN without one."""
    kind, tags = reading.task.kind, list[Any]()
    if kind is TaskKind.SEQUENCE_LABELLING:
        tags = [t for e in examples for t in (e.label if isinstance(e.label, tuple) else (-1,) * len(e.words or ()))]
    elif reading.level == TokenLevel.CHOSEN:
        tags = [target.label for e in examples for target in targets_of(e, kind)]
    else:
        tags = [e.label for e in examples]
    y = np.array([np.nan if t is None else t for t in tags], dtype=np.float64)
    return y if kind is TaskKind.REGRESSION else np.where(y < 0, np.nan, y)


def marks_of(examples: Sequence[Example], reading: Reading, read: np.ndarray, spec: Mapping[str, Any]) -> Marks:
    """The marks of all rows; ``read`` is bool (units,), the units that have a row.

    Examples of a group, or with equal texts, share a fold and a bin. Nothing depends on the order of the data.
    """
    units, y = units_of(examples, reading), labels_of(examples, reading)
    if len(y) != len(read):
        raise UsageError(f"the model reads {len(read):,} words, but {len(y):,} are labelled.")
    named = np.array([e.group is not None for e in examples])
    unit = np.where(named, _keys([f"group {e.group}" for e in examples]), text_keys(examples))
    row = _keys([f"{e.id}\0{k}" for e, count in zip(examples, units.tolist(), strict=True) for k in range(count)])
    row, unit, y = row[read], np.repeat(unit, units)[read], y[read]
    of_bin = unit if reading.level is None else row

    def number(key: np.ndarray, use: int) -> np.ndarray:
        return np.asarray(uniform(key, 0, 1, [spec["seed"], use])[0])

    fold = (number(unit, 1) * spec["folds"]).astype(np.int64)
    bins = (number(of_bin, 2) * spec["bins"]).astype(np.int64)
    return Marks(y, np.where(np.isnan(y), -1, fold), bins, unit, number(row, 3))


def read(source: Source, examples: Sequence[Example]) -> Chunk:
    """The vectors of some examples: of separately read pairs [u; v; |u - v|; u * v], and of spans."""
    chunk = read_chunk(source.encoder, examples, source.reading, batch_tokens=source.batch_tokens)
    if chunk.places is not None:
        mean = source.span is SpanVector.MEAN
        vectors = [np.asarray(span_vectors(x, *chunk.places, mean=mean)) for x in chunk.vectors]
        compared = chunk.places[0].shape[1] == 2 and source.span_pair is PairVector.COMPARED
        return replace(chunk, vectors=[pair_features(x) for x in vectors] if compared else vectors)
    if source.reading.pairs != "separate":
        return chunk
    return replace(chunk, vectors=[pair_features(x) for x in chunk.vectors])


def begun(source: Source, part: tuple[int, int]) -> State:
    """The state before the first chunk: the sums are about means of the first texts, the same for every part."""
    spec = source.spec
    head = source.part[0:CENTRED]
    if not len(head):
        raise UsageError(f"{spec['task']} {spec['split']} has no examples; choose another split.")
    vectors = read(source, head).vectors
    if not len(vectors[0]):
        what = "spans that the model reads" if source.span else f"a piece at --positions {source.reading.positions}"
        raise UsageError(f"none of the first {len(head):,} texts of {spec['task']} {spec['split']} has {what}.")
    centres = [x.mean(0, dtype=np.float64) for x in vectors]
    sums = LayerMoments.empty(layout_of(spec), centres)
    return State(spec, (part,), sums, Reservoir(spec["sample"]), np.zeros(len(source.dev_keys), dtype=bool))


def run(state: State, source: Source, path: Path | None, save_every: int, progress: Progress) -> None:
    """Read the missing chunks of a part, and write the state after every ``save_every`` of them and at the end.

    The sums of a chunk are added by a thread while the model reads the next one, in the order of the data.
    """
    [(which, of)], size, count = state.parts, state.spec["chunk"], count_of(source.part)
    last = None if count is None else -(-count // size)
    examples_read, pieces, left_out = state.counts["examples"], state.counts["pieces"], Counter[str]()
    before = examples_read
    waiting: Future[None] | None = None
    own, c = 0, state.chunks + (which - 1 - state.chunks) % of
    if count is None:
        _check_length(state, source, c)
    with blas_thread(), ThreadPoolExecutor(1, "probekit-sums") as adder:
        while last is None or c < last:
            examples = source.part[c * size : (c + 1) * size]
            if not len(examples):
                break
            chunk = read(source, examples)
            left_out.update(chunk.left_out)
            if waiting is not None:
                waiting.result()
                own += 1
                if path is not None and own % save_every == 0:
                    state.save(path)
            c += of
            waiting = adder.submit(_add, state, source, examples, chunk, c - of + 1)
            examples_read, pieces = examples_read + len(examples), pieces + chunk.pieces
            progress("model", examples_read, (count or 0) // of, examples=examples_read, tokens=pieces)
        if waiting is not None:
            waiting.result()
    tell_left_out(left_out, examples_read - before)
    state.complete = True
    if path is not None:
        state.save(path)


def _check_length(state: State, source: Source, c: int) -> None:
    """Raise UsageError if a stream of unknown length, whose next chunk is ``c``, has lost what was read before."""
    [(which, of)], size = state.parts, state.spec["chunk"]
    before = (c - (which - 1)) // of  # chunks
    last = (c - of) * size + state.counts["examples"] - (before - 1) * size - 1
    if before and not len(source.part[last : last + 1]):
        raise UsageError(
            f"{state.spec['task']} {state.spec['split']} has no example {last + 1:,} any more, which was read before "
            "the interruption. The data have shrunk: begin again with another --state."
        )


def _add(state: State, source: Source, examples: Sequence[Example], chunk: Chunk, chunks: int) -> None:
    """Add a chunk to the state, which then has all of this part up to ``chunks``."""
    spec = source.spec
    marks = marks_of(examples, source.reading, chunk.read, spec)
    known = marks.fold >= 0
    if spec["columns"] > 1:
        y = (np.nan_to_num(marks.y, nan=-1)[:, None] == np.arange(spec["columns"])).astype(np.float64)
    else:
        y = np.nan_to_num(marks.y)[:, None]
    state.sums.add(chunk.vectors, y, marks.fold, marks.bin)
    rows = {"priority": marks.priority, "y": marks.y, "fold": marks.fold, "bin": marks.bin, "unit": marks.unit}
    rows |= {f"x/{name}": x for name, x in zip(spec["layers"], chunk.vectors, strict=True)}
    kept = known if spec["labelled"] else np.ones(len(known), dtype=bool)
    state.sample.add({name: value[kept] for name, value in rows.items()})
    check_ids(state.sample)
    state.seen |= np.isin(source.dev_keys, text_keys(examples))
    added = {
        "examples": len(examples), "rows": int(known.sum()), "unlabelled": int((~known).sum()),
        "left_out": int((~chunk.read).sum()), "truncated": int(chunk.truncated.sum()), "pieces": chunk.pieces,
    }  # fmt: skip
    state.counts = {name: n + added[name] for name, n in state.counts.items()}
    state.chunks = chunks
