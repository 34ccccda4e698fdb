"""The state of a pass: one file with sums, sample and position, which can be resumed and merged."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probekit.activations.writing.prepare import difference
from probekit.calls import checked
from probekit.errors import DataError, UsageError
from probekit.files import FileKind, whole
from probekit.statistics.moments import LayerMoments, Layout
from probekit.statistics.streams import Reservoir

FORMAT = "probekit-stream/1"
COUNTED = ("examples", "rows", "unlabelled", "left_out", "truncated", "pieces")


@dataclass(eq=False, slots=True)
class State:
    """What a pass knows so far.

    Attributes
    ----------
    spec : Mapping[str, Any]
        What determines the numbers: model, data, layers, folds …
    parts : tuple of (int, int)
        The parts of the data, such as (1, 4), the first of four.
    chunks : int
        Chunks of the data up to which this part's are in the sums.
    complete : bool
        Whether all of the parts' chunks are.
    sums, sample : LayerMoments, Reservoir
        Of the rows.
    seen : np.ndarray
        Bool (dev examples,): which texts of dev the data contain.
    counts : dict[str, int]
        Numbers of examples, of labelled and unlabelled rows, of texts or spans without a row because no piece of them
        is read, of truncated texts, and of word pieces read.
    """

    spec: Mapping[str, Any]
    parts: tuple[tuple[int, int], ...]
    sums: LayerMoments
    sample: Reservoir
    seen: np.ndarray
    chunks: int = 0
    complete: bool = False
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))

    def save(self, path: Path) -> None:
        """Write the file, which replaces the last one only when it is whole."""
        header = {
            "format": FORMAT, "spec": dict(self.spec), "parts": self.parts, "chunks": self.chunks,
            "complete": self.complete, "counts": self.counts,
        }  # fmt: skip
        arrays = {f"sums/{name}": value for name, value in self.sums.arrays.items()}
        arrays |= {f"sample/{name}": value for name, value in self.sample.columns.items()}
        with whole(path, STATE_FILE) as new, new.open("wb") as file:
            np.savez(file, header=_as_bytes(header), seen=self.seen, **arrays)  # type: ignore[arg-type]


def layout_of(spec: Mapping[str, Any]) -> Layout:
    """What is summed, from a spec."""
    return Layout(
        tuple(spec["layers"]), tuple(spec["widths"]), spec["columns"], spec["folds"], spec["bins"], spec["across"]
    )


def _as_bytes(header: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)


def _header(file: Any) -> dict[str, Any]:
    found = json.loads(bytes(file["header"]))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError("its format is another one")
    return found


def is_state(path: Path) -> bool:
    """Whether a file is a state of ``probekit stream``."""
    try:
        with np.load(path) as file:
            return bool(_header(file))
    except Exception:  # of zip, of zlib, of NumPy's headers
        return False


STATE_FILE = FileKind("the state of a stream", is_state, "give the state another name")


def read_state(path: str | Path) -> State:
    """Read a state; raises DataError if there is none, or if a byte of it has changed."""
    path = Path(path)
    if not path.is_file():
        raise DataError("does not exist; expected a state of probekit stream (--state).", file=path)
    try:
        with np.load(path) as file:
            header, arrays = _header(file), {name: file[name] for name in file.files if name != "header"}
        layout = layout_of(header["spec"])
        sums = {name.removeprefix("sums/"): value for name, value in arrays.items() if name.startswith("sums/")}
        if {name: value.shape for name, value in sums.items()} != layout.shapes():
            raise ValueError("its arrays do not fit")
        sample = {name.removeprefix("sample/"): value for name, value in arrays.items() if name.startswith("sample/")}
        return State(
            header["spec"], tuple((i, n) for i, n in header["parts"]), LayerMoments(layout, sums),
            Reservoir(header["spec"]["sample"], sample), arrays["seen"], header["chunks"], header["complete"],
            dict.fromkeys(COUNTED, 0) | header["counts"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"is not a whole state of probekit stream ({error}); start it again.", file=path) from error


def check_same(name: Path | str, state: State, spec: Mapping[str, Any]) -> None:
    """Raise UsageError if a state is of another job."""
    want = json.loads(json.dumps(dict(spec)))
    if dict(state.spec) != want:
        want = dict.fromkeys(state.spec) | want
        raise UsageError(
            f"{name} is the state of another job: {difference(state.spec, want)}. Give another --state, or the options "
            "that it was made with."
        )


def check_ids(sample: Reservoir) -> None:
    """Raise UsageError if two rows of a sample have one id, without a list of all ids in memory.

    The sample holds the rows whose ids have the smallest hashes, so of an id that occurs twice both or none.
    """
    same = int((np.diff(sample.columns.get("priority", np.empty(0))) == 0).sum())
    if same:
        raise UsageError(
            f"{same:,} of the {len(sample):,} rows of the sample have the id of another row. Ids must be unique in the "
            "whole stream; name another column as id, or none."
        )


def _check_ends(names: Sequence[str], states: Sequence[State]) -> None:
    """Raise UsageError if all parts are there, and do not end together: the stream had another length for one."""
    size, total, of = states[0].spec["chunk"], sum(state.counts["examples"] for state in states), states[0].parts[0][1]
    if sum(len(state.parts) for state in states) < of:
        return
    for name, state in zip(names, states, strict=True):
        chunks = [c for i, _ in state.parts for c in range(i - 1, -(-total // size), of)]
        expected = sum(min(size, total - c * size) for c in chunks)
        if state.counts["examples"] != expected:
            raise UsageError(
                f"the parts do not end together: {name} has {state.counts['examples']:,} examples, but {expected:,} of "
                f"the {total:,} of all parts are its share. The data had another length when one was read; read them "
                "all again."
            )


def merged(states: Sequence[State], names: Sequence[str] | None = None) -> State:
    """One state of several parts of the same data.

    Raises
    ------
    UsageError
        If they are of different jobs, not complete, of overlapping parts, or of data whose length or ids do not fit.
    """
    names = names or [f"state {i + 1}" for i in range(len(states))]
    if not states:
        raise UsageError("there are no states to merge.")
    first = states[0]
    for name, state in zip(names, states, strict=True):
        check_same(name, state, first.spec)
        if not state.complete:
            raise UsageError(f"{name} is not complete; run its command again, which resumes it, and merge then.")
    parts = [part for state in states for part in state.parts]
    if len({n for _, n in parts}) > 1 or len(set(parts)) < len(parts):
        shown = ", ".join(f"{i}/{n}" for i, n in parts)
        raise UsageError(f"the states are of the parts {shown}; each part of one division may be there once.")
    _check_ends(names, states)
    sums, sample, seen, counts = first.sums, first.sample, first.seen, first.counts
    for other in states[1:]:
        sums, sample, seen = sums.plus(other.sums), sample.plus(other.sample), seen | other.seen
        counts = {name: counts[name] + other.counts[name] for name in counts}
    check_ids(sample)
    chunks = max(state.chunks for state in states)
    return State(first.spec, tuple(sorted(parts)), sums, sample, seen, chunks, complete=True, counts=counts)


@checked
def merge_streams(*states: str | Path) -> State:
    """The state of several parts of one stream; the order does not matter.

    Parameters
    ----------
    *states : path
        Finished states of :func:`stream`, of different parts.

    Returns
    -------
    State
        Sums, sample and counts of all of them; ``.save(path)`` writes it.

    Raises
    ------
    UsageError
        For states of different jobs or overlapping parts.
    """
    return merged([read_state(one) for one in states], [str(one) for one in states])
