"""From a model's name and a task's to a finished cache: identity, reuse, resume, workers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from probekit import files
from probekit.activations.cache import ActivationCache
from probekit.activations.pooling import TokenLevel, poolings
from probekit.activations.writing.extract import run_blocks
from probekit.activations.writing.journal import Journal, journal_path, locked, partial_path
from probekit.activations.writing.partial import Partial, check_static, digest_blocks, finish, open_partial
from probekit.activations.writing.plan import Block
from probekit.activations.writing.prepare import check_environment, difference, prepare
from probekit.activations.writing.workers import Loading, load, run_workers
from probekit.errors import (
    CacheBusy,
    CacheCorrupt,
    CacheError,
    CacheIncomplete,
    CacheMismatch,
    NonFiniteError,
    TruncationError,
    UsageError,
)
from probekit.models.conversion import default_pooling, reads_apart
from probekit.models.encoder import Encoder
from probekit.runtime import Dtype, Progress, no_progress
from probekit.tasks.task import Task

__all__ = ["cache_activations"]

log = logging.getLogger(__name__)

IDENTITY = ("revision", "weights_digest", "tokenizer_digest", "random_weights", "dtype", "device", "cut_at")
"""What determines an encoder's numbers, beside its name; ``Encoder.spec`` holds each of them."""

TRAINED = ("checkpoint", "step")
"""Further names of a model, where it is a checkpoint; like its name they are part of the spec_id."""


def cache_activations(
    model: str | Path | Encoder,
    task: str | Path | Task,
    split: str = "train",
    *,
    data_dir: str | Path | None = None,
    pooling: str | Sequence[str] | None = None,
    tokens: str | bool | None = None,
    pairs: str = "auto",
    dtype: str = "float32",
    store: str | None = None,
    device: str = "auto",
    random_weights: int | None = None,
    revision: str | None = None,
    model_name: str | None = None,
    max_length: int | None = None,
    stateful: int = 0,
    limit: int | None = None,
    on_truncate: str = "keep",
    allow_nonfinite: bool = False,
    compress: bool = False,
    compile: bool = False,
    batch_tokens: int | None = None,
    workers: int = 1,
    out: str | Path | None = None,
    overwrite: bool = False,
    wait: Callable[[], None] | None = lambda: None,
    progress: Progress = no_progress,
) -> ActivationCache:
    """Run a model over a split of a task and keep every layer's activations in an HDF5 file.

    A cache of the same job that is there already is opened at once; one that was interrupted is taken up where it
    stopped, redoing at most one block a worker, or a lane where one process runs several.

    model : hub id, local folder, or a loaded Encoder (then in this process only)
    task : name of a task, a TOML file, or a Task; split, data_dir, limit : which of its examples
    pooling : any of mean, mean-all, first, last, max; empty for none. None takes the mean, of Skip-thoughts the last,
        which is its sentence vector
    tokens : keep token vectors too: "piece" (or True), "word-first" or "word-mean"
    pairs : "joint" (one sequence) or "separate" (two, stored side by side); "auto" is joint, but separate of ELMo and
        Skip-thoughts, which read one sentence at a time
    dtype : what the model computes in, a loaded encoder's own; store : what is stored, the same by default
    model_name : its name in tables and file names; by default the hub id or the folder's name, or of a checkpoint of
        training the name of the pretrained model, beside which the run and the step are kept
    random_weights : seed of a re-initialisation of the model, the control of Peters, Ruder & Smith (2019)
    stateful : of ELMo, 0 to begin every sentence with an empty state, or the number of examples in a batch whose state
        the next batch begins with, as in the original; then in one process and one thread, and from the start again
        after an interruption
    on_truncate : "keep" counts the texts that the model cannot read whole, "error" refuses them
    out : the file, or a folder (there already, or ending in "/") for a file of the default name; data_cache/ for None
    wait : called once where another process is writing the same cache, before waiting for it; None raises CacheBusy
    Raises UsageError, DataError, ModelError, TruncationError, NonFiniteError, CacheMismatch (the file holds something
    else; see ``overwrite``), CacheError (disk).
    """
    from probekit.tasks import load_task

    _check(on_truncate, pairs, workers=workers, limit=limit, batch_tokens=batch_tokens)
    task = task if isinstance(task, Task) else load_task(str(task), data_dir=data_dir)
    kind = _kind(model, revision)
    part = task.split(split).head(limit)
    if not len(part):
        raise UsageError(f"{task.name} {split} has no examples; there is nothing to run.")
    dtype = _choice(Dtype, dtype if isinstance(model, (str, Path)) else model.spec["dtype"], "dtype")
    want = {
        "task": task.name,
        "split": split,
        "data_digest": digest({"examples": part.digest(), "labels": list(task.label_names)}),
        "n": len(part),
        "kind": str(task.kind),
        "pairs": (pairs := _pairs(pairs, kind)) if part.paired else None,
        "sentences": 2 if part.paired and pairs == "separate" else 1,
        "pooling": [str(p) for p in poolings(default_pooling(kind) if pooling is None else pooling)],
        "tokens": _level(tokens),
        "store": _choice(Dtype, store or dtype, "store"),
    }
    if not want["pooling"] and not want["tokens"]:
        raise UsageError("nothing to store: give a --pooling, --tokens, or both.")
    loading: Loading | None = None
    if isinstance(model, (str, Path)):
        from probekit.models.identity import identify
        from probekit.runtime import resolve_device

        where = resolve_device(device)
        loading = Loading(str(model), revision, dtype, where, random_weights, max_length, compile, stateful)
        want |= identify(model, revision=revision, random_weights=random_weights, name=model_name)
        want |= {"dtype": dtype, "device": where.partition(":")[0], "cut_at": max_length}
    else:
        if workers > 1:
            raise UsageError("several workers each load the model; give its name or folder, not a loaded encoder.")
        if max_length is not None or stateful:
            name = "max_length" if max_length is not None else "stateful"
            raise UsageError(f"a loaded encoder has that already; give {name} to load_encoder.")
        stateful = int(model.spec.get("stateful", 0))
        want |= {"model": model_name or model.name, **{key: model.spec[key] for key in IDENTITY}}
        want |= {key: model.spec[key] for key in TRAINED if key in model.spec}
    if stateful:
        if workers > 1:
            raise UsageError("a state goes from batch to batch in one process; leave --workers or --stateful out.")
        want["stateful"] = stateful
    spec_id = digest(want)
    path = _path(out, want, spec_id)

    accepts: dict[str, Any] = {"on_truncate": on_truncate, "allow_nonfinite": allow_nonfinite}
    if not overwrite and (cache := _reuse(path, spec_id, want)) is not None:
        _accept(path, cache.spec, **accepts)
        if journal_path(path).exists():
            _tidy(path, spec_id)
        return cache
    with locked(path, wait=wait) as fd:
        if not overwrite and (cache := _reuse(path, spec_id, want)) is not None:
            journal_path(path).unlink()
            _accept(path, cache.spec, **accepts)
            return cache
        try:
            encoder = None if isinstance(model, (str, Path)) else model
            if not partial_path(path).exists() or (overwrite and not _unfinished(path, spec_id, Journal(fd))):
                encoder = encoder or load(loading)
                prepare(path, task, part, want, spec_id, encoder, Journal(fd), progress=progress, **accepts)
            partial = open_partial(path)
            done = _resume(partial, spec_id, want, Journal(fd), progress)
            _accept(partial.file, partial.spec, **accepts)
            todo = [b for b in range(len(partial.blocks)) if b not in done]
            if stateful and todo:  # what comes later depends on a state that is not kept
                todo = list(range(len(partial.blocks)))
            how: dict[str, Any] = {"batch_tokens": batch_tokens, "allow_nonfinite": allow_nonfinite}
            how["on_batch"] = _Meter(partial, [partial.blocks[b] for b in todo], progress)
            if todo and workers > 1 and loading:
                encoder = None  # the workers have their own
                run_workers(path, loading, todo, workers, fd, **how)
            elif todo:
                encoder = encoder or load(loading)
                check_environment(partial, encoder)
                run_blocks(partial, encoder, todo, Journal(fd), **how)
            finish(path, partial, Journal(fd).read(), compress=compress)
        except BaseException:
            if not partial_path(path).exists():  # nothing to go on from: leave nothing behind
                journal_path(path).unlink(missing_ok=True)
            raise
    return ActivationCache(path)


def _path(out: str | Path | None, want: Mapping[str, Any], spec_id: str) -> Path:
    """The file: ``out``, or the default name, in ``out`` where that is a folder."""
    if out is not None and not (Path(out).is_dir() or str(out).endswith(("/", os.sep))):
        return Path(out)
    names = [want["model"], *((want["checkpoint"], "step", str(want["step"])) if "step" in want else ())]
    return files.cache_path(want["task"], want["split"], "-".join(names), spec_id, Path(out or files.DATA_CACHE))


def _check(on_truncate: str, pairs: str, **counts: int | None) -> None:
    if on_truncate not in ("keep", "error"):
        raise UsageError(f"on_truncate is {on_truncate!r}; it is keep or error.")
    if pairs not in ("auto", "joint", "separate"):
        raise UsageError(f"pairs is {pairs!r}; it is auto, joint or separate.")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be 1 or more.")


def _kind(model: str | Path | Encoder, revision: str | None) -> str:
    """The model type."""
    if isinstance(model, (str, Path)):
        from probekit.models.find import resolve_model
        from probekit.models.folder import model_type

        return model_type(resolve_model(model, revision))
    return str(model.spec.get("model_type", ""))


def _pairs(asked: str, kind: str) -> str:
    """How the sentences of pairs are read by a model of this type."""
    if asked == "joint" and reads_apart(kind):
        raise UsageError(f"{kind} reads one sentence at a time; leave --pairs out, or give --pairs separate.")
    return ("separate" if reads_apart(kind) else "joint") if asked == "auto" else asked


def digest(want: Mapping[str, Any]) -> str:
    """The spec_id: 32 hex digits of SHA-256 over what determines the numbers, as canonical JSON."""
    return hashlib.sha256(json.dumps(want, sort_keys=True).encode()).hexdigest()[:32]


def _choice(kind: Any, value: str, name: str) -> str:
    try:
        return str(kind(str(value)))
    except ValueError:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(kind)}.") from None


def _level(tokens: str | bool | None) -> str | None:
    if tokens is None or tokens is False:
        return None
    return _choice(TokenLevel, "piece" if tokens is True else tokens, "tokens")


def _reuse(path: Path, spec_id: str, want: Mapping[str, Any]) -> ActivationCache | None:
    """The finished cache of this very job, None where there is no file; raises CacheMismatch for anything else."""
    if not path.exists():
        return None
    try:
        cache = ActivationCache(path)
    except CacheMismatch as error:
        raise CacheMismatch(f"{error} Give another --out.") from None
    except (CacheIncomplete, CacheCorrupt) as error:
        raise type(error)(f"{error} Or give another --out.") from None
    if cache.spec_id == spec_id:
        return cache
    cache.close()
    raise CacheMismatch(f"{path} holds other activations than asked for: {difference(cache.spec, want)}. " + _OTHERWISE)


_OTHERWISE = "Give another --out, or --overwrite."


def _accept(path: Path, spec: Mapping[str, Any], *, on_truncate: str, allow_nonfinite: bool) -> None:
    """Refuse a cache that was made under laxer terms than are asked for now."""
    if on_truncate == "error" and (cut := spec["counts"]["truncated"]):
        raise TruncationError(
            f"{path}: {cut} of {spec['n']} texts were cut off. Use --on-truncate keep to accept that."
        )
    if spec.get("allow_nonfinite") and not allow_nonfinite:
        raise NonFiniteError(
            f"{path} was made with --allow-nonfinite and may hold NaN or infinity; accept that with the same option, "
            "or give another --out."
        )


def _unfinished(path: Path, spec_id: str, journal: Journal) -> bool:
    """Whether there is an unfinished cache of this very job, one that can be gone on with."""
    try:
        partial = open_partial(path)
    except CacheError:
        return False
    journal.read()
    return partial.spec["spec_id"] == spec_id and not check_static(partial, journal.structure)


def _tidy(path: Path, spec_id: str) -> None:
    """Remove what a process left that was killed after the cache was whole, unless another is at work on it."""
    with suppress(CacheBusy), locked(path, wait=None) as fd:
        if not partial_path(path).exists() or _unfinished(path, spec_id, Journal(fd)):
            partial_path(path).unlink(missing_ok=True)
            journal_path(path).unlink()


def _resume(
    partial: Partial, spec_id: str, want: Mapping[str, Any], journal: Journal, progress: Progress
) -> dict[int, list[int]]:
    """The blocks of an unfinished cache that are whole, by number; the bytes are read and compared."""
    if partial.spec["spec_id"] != spec_id:
        raise CacheMismatch(
            f"{partial.file} is the unfinished cache of another job: {difference(partial.spec, want)}. " + _OTHERWISE
        )
    noted = journal.read()
    if problem := check_static(partial, journal.structure):
        raise CacheCorrupt(f"{partial.file}: {problem}; begin again with --overwrite.")
    good: dict[int, list[int]] = {}
    for k, (b, digests) in enumerate(noted.items()):
        progress("checking", k, len(noted))
        if b < len(partial.blocks) and digest_blocks(partial, b) == digests:
            good[b] = digests
        else:
            log.warning("%s: block %d is not what its journal says; it is run again.", partial.file, b)
    if len(good) < len(noted):
        journal.clear(journal.structure)
        for b, digests in good.items():
            journal.append(b, digests)
    return good


class _Meter:
    """Adds up what goes through the model and tells the progress."""

    def __init__(self, partial: Partial, blocks: Sequence[Block], progress: Progress) -> None:
        self.total = sum(int(partial.piece[b.last] - partial.piece[b.first]) for b in blocks)
        self.before = int(partial.piece[-1]) - self.total
        self.progress, self.sequences, self.pieces = progress, 0, 0
        progress("model", self.before, self.before + self.total, examples=0, tokens=0)

    def __call__(self, sequences: int, pieces: int) -> None:
        self.sequences += sequences
        self.pieces += pieces
        self.progress(
            "model", self.before + self.pieces, self.before + self.total, examples=self.sequences, tokens=self.pieces
        )
