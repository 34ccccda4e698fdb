"""From a model's name and a task's to a finished cache: identity, reuse, resume, workers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probekit import paths
from probekit.activations.cache import ActivationCache
from probekit.activations.extract import run_blocks
from probekit.activations.partial import (
    Journal,
    Partial,
    Stream,
    attributes,
    create,
    digest_blocks,
    finish,
    journal_path,
    locked,
    open_partial,
    partial_path,
)
from probekit.activations.plan import make_plan, unique_texts
from probekit.activations.pooling import TokenLevel, poolings, word_segments
from probekit.errors import (
    CacheBusy,
    CacheCorrupt,
    CacheError,
    CacheIncomplete,
    CacheMismatch,
    TruncationError,
    UsageError,
)
from probekit.models.encoder import Encoder, Text, Tokens
from probekit.runtime import Dtype, Progress, no_progress
from probekit.tasks.task import Example, Kind, Split, Task

__all__ = ["Loading", "cache_activations", "load"]

log = logging.getLogger(__name__)

IDENTITY = ("revision", "weights_digest", "tokenizer_digest", "random_weights", "dtype", "device", "cut_at")
"""What determines an encoder's numbers, beside its name; ``Encoder.spec`` holds each of them."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How a model is loaded: everything that a worker needs to load the same one."""

    model: str
    revision: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    random_weights: int | None = None
    max_length: int | None = None
    compile: bool = False


def load(loading: Loading) -> Encoder:
    """The encoder that ``loading`` describes."""
    from probekit.models import load_encoder

    how = {key: value for key, value in asdict(loading).items() if value is not None}
    return load_encoder(how.pop("model"), **how)


def cache_activations(
    model: str | Path | Encoder,
    task: str | Path | Task,
    split: str = "train",
    *,
    data_dir: str | Path | None = None,
    pooling: str | Sequence[str] = ("mean",),
    tokens: str | bool | None = None,
    pairs: str = "joint",
    dtype: str = "float32",
    store: str | None = None,
    device: str = "auto",
    random_weights: int | None = None,
    revision: str | None = None,
    model_name: str | None = None,
    max_length: int | None = None,
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
    stopped, redoing at most one block a worker.

    model : hub id, local folder, or a loaded Encoder (then one worker, and no resume under another name)
    task : name of a task, a TOML file, or a Task; split, data_dir, limit : which of its examples
    pooling : any of mean, mean-all, first, last, max; empty for none
    tokens : keep token vectors too: "piece" (or True), "word-first" or "word-mean"
    pairs : "joint" (one sequence) or "separate" (two, stored side by side)
    dtype : what the model computes in; store : what is stored, the same by default
    model_name : its name in tables and file names; the hub id or the folder's name by default
    random_weights : seed of a re-initialisation of the model, the control of Peters, Ruder & Smith (2019)
    on_truncate : "keep" counts the texts that the model cannot read whole, "error" refuses them
    wait : called once where another process is writing the same cache, before waiting for it; None raises CacheBusy
    Raises UsageError, DataError, ModelError, TruncationError, NonFiniteError, CacheMismatch (the file holds something
    else; see ``overwrite``), CacheError (disk).
    """
    from probekit.tasks import load_task

    if on_truncate not in ("keep", "error"):
        raise UsageError(f"on_truncate is {on_truncate!r}; it is keep or error.")
    if pairs not in ("joint", "separate"):
        raise UsageError(f"pairs is {pairs!r}; it is joint or separate.")
    dtype = _choice(Dtype, dtype, "dtype")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be 1 or more.")
    if workers < 1:
        raise UsageError(f"workers is {workers}; it must be 1 or more.")
    task = task if isinstance(task, Task) else load_task(str(task), data_dir=data_dir)
    part = task.split(split).head(limit)
    if not len(part):
        raise UsageError(f"{task.name} {split} has no examples; there is nothing to run.")
    want = {
        "task": task.name,
        "split": split,
        "data_digest": part.digest(),
        "n": len(part),
        "kind": str(task.kind),
        "pairs": pairs if part.paired else None,
        "sentences": 2 if part.paired and pairs == "separate" else 1,
        "pooling": [str(p) for p in poolings(pooling)],
        "tokens": _level(tokens),
        "store": _choice(Dtype, store or dtype, "store"),
    }
    if not want["pooling"] and not want["tokens"]:
        raise UsageError("nothing to store: give a --pooling, --tokens, or both.")
    if isinstance(model, (str, Path)):
        from probekit.models.identity import identify
        from probekit.runtime import resolve_device

        loading = Loading(
            str(model), revision, dtype, resolve_device(device), random_weights,
            max_length, compile,
        )  # fmt: skip
        want |= {
            **identify(model, revision=revision, random_weights=random_weights, name=model_name),
            "dtype": loading.dtype,
            "device": loading.device.partition(":")[0],
            "cut_at": max_length,
        }
        loader: Callable[[], Encoder] = lambda: load(loading)  # noqa: E731
    else:
        if workers > 1:
            raise UsageError("several workers each load the model; give its name or folder, not a loaded encoder.")
        if max_length is not None:
            raise UsageError("a loaded encoder has its maximal length already; give max_length to load_encoder.")
        given = model
        want |= {"model": model_name or given.name, **{key: given.spec[key] for key in IDENTITY}}
        loader = lambda: given  # noqa: E731
    spec_id = digest(want)
    path = Path(out) if out is not None else paths.cache_path(task.name, split, str(want["model"]), spec_id)

    if not overwrite and (cache := _reuse(path, spec_id, want)) is not None:
        if journal_path(path).exists():
            _tidy(path, spec_id)
        return cache
    with locked(path, wait=wait) as fd:
        if not overwrite and (cache := _reuse(path, spec_id, want)) is not None:
            journal_path(path).unlink()
            return cache
        try:
            encoder = None
            if not partial_path(path).exists() or (overwrite and _unfinished_spec_id(path) != spec_id):
                encoder = loader()
                Journal(fd).clear()
                _begin(path, task, part, want, spec_id, encoder, on_truncate, progress)
            partial = open_partial(path)
            done = _resume(path, partial, spec_id, want, Journal(fd), progress)
            todo = [b for b in range(len(partial.blocks)) if b not in done]
            if todo and workers > 1:
                _spawn(path, loading, todo, workers, fd, batch_tokens, allow_nonfinite, partial, progress)
            elif todo:
                encoder = encoder or loader()
                _same_path(path, partial, encoder)
                run_blocks(
                    partial, encoder, todo, Journal(fd), batch_tokens=batch_tokens, allow_nonfinite=allow_nonfinite,
                    on_batch=_Meter(partial, todo, progress),
                )  # fmt: skip
            finish(path, partial, Journal(fd).read(), compress=compress)
        except BaseException:
            if not partial_path(path).exists():  # nothing to go on from: leave nothing behind
                journal_path(path).unlink(missing_ok=True)
            raise
    return ActivationCache(path)


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
        raise CacheMismatch(f"{error} Give another --out, or --overwrite.") from None
    except (CacheIncomplete, CacheCorrupt) as error:
        raise type(error)(f"{error} Or give another --out.") from None
    if cache.spec_id == spec_id:
        return cache
    cache.close()
    raise CacheMismatch(
        f"{path} holds other activations than asked for: {_difference(cache.spec, want)}. " + _OTHERWISE
    )


_OTHERWISE = "Give another --out, or --overwrite."


def _difference(old: Mapping[str, Any], want: Mapping[str, Any]) -> str:
    words = [f"{key} is {old.get(key)!r}, wanted {value!r}" for key, value in want.items() if old.get(key) != value]
    return "; ".join(words[:3]) or "its description differs"


def _unfinished_spec_id(path: Path) -> str | None:
    try:
        return str(open_partial(path).spec["spec_id"])
    except CacheError:
        return None


def _tidy(path: Path, spec_id: str) -> None:
    """Remove what a process left that was killed after the cache was whole, unless another is at work on it."""
    with suppress(CacheBusy), locked(path, wait=None):
        if not partial_path(path).exists() or _unfinished_spec_id(path) == spec_id:
            partial_path(path).unlink(missing_ok=True)
            journal_path(path).unlink()


def _resume(
    path: Path, partial: Partial, spec_id: str, want: Mapping[str, Any], journal: Journal, progress: Progress
) -> dict[int, list[int]]:
    """The blocks of an unfinished cache that are whole, by number; the bytes are read and compared."""
    if partial.spec["spec_id"] != spec_id:
        raise CacheMismatch(
            f"{partial.file} is the unfinished cache of another job: {_difference(partial.spec, want)}. " + _OTHERWISE
        )
    noted = journal.read()
    good = {}
    for k, (b, digests) in enumerate(noted.items()):
        progress("checking", k, len(noted))
        if b < len(partial.blocks) and digest_blocks(partial, b) == digests:
            good[b] = digests
        else:
            log.warning("%s: block %d is not what its journal says; it is run again.", partial.file, b)
    if len(good) < len(noted):
        journal.clear()
        for b, digests in good.items():
            journal.append(b, digests)
    return good


def _same_path(path: Path, partial: Partial, encoder: Encoder) -> None:
    """Refuse to go on with other software than the one that the file was begun with."""
    now, then = _environment(encoder), partial.spec["environment"]
    if now != then:
        raise CacheMismatch(f"{partial.file} was begun in another environment: {_difference(then, now)}. " + _OTHERWISE)


def _environment(encoder: Encoder) -> dict[str, Any]:
    told = {**encoder.spec, **encoder.versions}
    return {k: told[k] for k in sorted(told) if k not in ("model", "revision", "threads", "self_check")}


def _begin(
    path: Path, task: Task, part: Split, want: dict[str, Any], spec_id: str, encoder: Encoder, on_truncate: str,
    progress: Progress,
) -> None:  # fmt: skip
    """Tokenise, plan, and make the partial file."""
    from importlib.metadata import version

    from probekit.activations.certify import quick_certificate

    sentences = int(want["sentences"])
    texts, text_of_slot = unique_texts(_texts(part, task.kind, want["pairs"]))
    tokens = _tokenize(encoder, texts, progress)
    cut = tokens.truncated[text_of_slot].reshape(-1, sentences).any(1)
    if cut.any() and on_truncate == "error":
        first = part[int(np.argmax(cut))]
        raise TruncationError(
            f"{int(cut.sum())} of {len(part)} examples are longer than the {encoder.max_length} pieces that "
            f"{encoder.name} reads, example {first.id!r} first. Use --on-truncate keep to cut them off."
        )
    layers, width = encoder.layers, encoder.width
    itemsize = 4 if want["store"] == "float32" else 2
    plan = make_plan(tokens.length, text_of_slot, len(want["pooling"]) * len(layers) * width * itemsize)
    tokens = _permute(tokens, plan.order)
    row_to_unique = plan.row_to_unique.reshape(-1, sentences)
    row_to_unique = row_to_unique[:, 0] if sentences == 1 else row_to_unique
    static, links, token_start = _static(task, part, tokens, row_to_unique, plan.blocks, want["tokens"])
    static["/truncated"] = cut
    streams = [
        Stream(f"/pooled/{p}/{layer}", (len(part), sentences * width), pooled=True)
        for p in want["pooling"]
        for layer in layers
    ]
    streams += [
        Stream(f"/tokens/{layer}", (int(token_start[-1]), width), pooled=False)
        for layer in layers
        if want["tokens"] and token_start[-1]
    ]
    kept = (tokens.special == 0).astype(np.int64)
    content = np.add.reduceat(np.append(kept, 0), (np.cumsum(tokens.length) - tokens.length)) * (tokens.length > 0)
    spec = {
        **want,
        "spec_id": spec_id,
        "layers": list(layers),
        "width": width,
        "counts": {
            "sequences": len(text_of_slot),
            "unique": len(texts),
            "pieces": int(tokens.length.sum()),
            "truncated": int(cut.sum()),
            "empty": int((content == 0)[plan.row_to_unique].sum()),
        },
        "metrics": list(task.metrics),
        "source": task.source,
        "licence": task.licence,
        "reads_at_most": encoder.max_length,
        "environment": _environment(encoder),
        "certificate": quick_certificate(encoder, texts),
        "links": links,
    }
    create(
        path, attributes=attributes(spec, spec_id, version("probekit")), static=static, links=links, streams=streams,
        dtype=want["store"], blocks=plan.blocks, token_start=token_start,
    )  # fmt: skip


def _texts(part: Split, kind: Kind, pairs: str | None) -> list[Text]:
    """What the encoder reads, one or two a row."""

    def of(e: Example) -> tuple[Text, ...]:
        if kind is Kind.SEQUENCE_LABELLING:
            return ((tuple(e.words or ()),),)
        if e.pair is None:
            return (e.text,)
        return (e.text, e.pair) if pairs == "separate" else ((e.text, e.pair),)

    return [text for e in part for text in of(e)]


def _tokenize(encoder: Encoder, texts: Sequence[Text], progress: Progress, step: int = 4096) -> Tokens:
    """All texts' pieces, taken in steps so that the work shows."""
    parts = []
    for start in range(0, len(texts), step):
        progress("tokenising", start, len(texts))
        parts.append(encoder.tokenize(texts[start : start + step]))
    progress("tokenising", len(texts), len(texts))
    return Tokens(*(np.concatenate([getattr(p, f) for p in parts]) for f in Tokens.__dataclass_fields__))


def _permute(tokens: Tokens, order: np.ndarray) -> Tokens:
    """The same sequences in another order."""
    length = tokens.length.astype(np.int64)
    start = np.cumsum(length) - length
    rows = _ranges(start[order], length[order])
    by_piece = {
        f: getattr(tokens, f)[rows]
        for f in ("token_ids", "special", "type_ids", "word_index", "char_start", "char_end")
    }
    return Tokens(length=length[order], truncated=tokens.truncated[order], **by_piece)


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """int64: start[0], start[0] + 1, …, the ``length[i]`` numbers from each ``start[i]`` on."""
    return np.arange(int(length.sum())) + np.repeat(start - (np.cumsum(length) - length), length)


def _static(
    task: Task, part: Split, tokens: Tokens, row_to_unique: np.ndarray, blocks: Sequence[Any], level: str | None
) -> tuple[dict[str, np.ndarray], dict[str, str], np.ndarray]:
    """The datasets that are known beforehand, further names for some, and the blocks' bounds in token rows."""
    piece = np.concatenate([[0], np.cumsum(tokens.length)])
    by_piece = {
        "token_ids": tokens.token_ids.astype(np.int32),
        "word_index": tokens.word_index.astype(np.int32),
        "char_start": tokens.char_start.astype(np.int32),
        "char_end": tokens.char_end.astype(np.int32),
    }
    static = {
        "/ids": _strings([e.id for e in part]),
        "/label_names": _strings(task.label_names),
        "/pieces/length": tokens.length.astype(np.int32),
        "/pieces/type_ids": tokens.type_ids.astype(np.uint8),
        "/pieces/special": tokens.special.astype(np.uint8),
        **{f"/pieces/{name}": a for name, a in by_piece.items()},
        "/index/row_to_unique": row_to_unique,
    }
    if any(e.domain is not None for e in part):
        static["/domains"] = _strings([e.domain or "" for e in part])
    labels = Task(task.name, task.kind, {part.name: part}).labels(part.name)
    if task.kind is Kind.SEQUENCE_LABELLING:
        static |= {
            "/word_labels": labels,
            "/index/word_count": np.array([len(e.words or ()) for e in part], dtype=np.int64),
            "/labels": np.full(len(part), -1, dtype=np.int64),
        }
    else:
        static["/labels"] = labels
    links: dict[str, str] = {}
    token_start = np.zeros(len(blocks) + 1, dtype=np.int64)
    if level:
        length = tokens.length
        if level == TokenLevel.PIECE:
            links = {f"/index/{name}": f"/pieces/{name}" for name in by_piece}
        else:
            first, pieces = word_segments(length, tokens.word_index)
            last = first + pieces - 1
            static |= {f"/index/{name}": a[last if name == "char_end" else first] for name, a in by_piece.items()}
            length = np.diff(np.searchsorted(first, piece))
        start = np.cumsum(length) - length
        static |= {"/index/start": start[row_to_unique], "/index/length": length[row_to_unique].astype(np.int64)}
        token_start = np.array([*(start[b.first] for b in blocks), length.sum()], dtype=np.int64)
    static["/pieces/blocks"] = np.array(
        [
            (b.first, b.last, b.slot_first, b.slot_last, t, u)
            for b, t, u in zip(blocks, token_start, token_start[1:], strict=False)
        ],
        dtype=np.int64,
    )
    return static, links, token_start


def _strings(values: Sequence[str]) -> np.ndarray:
    """Strings as UTF-8 of one length, the kind that lies in a file in one piece."""
    encoded = [v.encode() for v in values]
    return np.array(encoded, dtype=f"S{max((len(v) for v in encoded), default=1) or 1}")


class _Meter:
    """Adds up what goes through the model and tells the progress."""

    def __init__(self, partial: Partial, todo: Sequence[int], progress: Progress) -> None:
        blocks = [partial.blocks[b] for b in todo]
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


def _spawn(
    path: Path, loading: Loading, todo: list[int], workers: int, fd: int, batch_tokens: int | None,
    allow_nonfinite: bool, partial: Partial, progress: Progress,
) -> None:  # fmt: skip
    """Run the blocks in processes of their own; they share the lock and the journal, and end when we end."""
    workers = min(workers, len(todo))
    threads = max(1, len(os.sched_getaffinity(0)) // workers) if hasattr(os, "sched_getaffinity") else 1
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    meter, failures, lock = _Meter(partial, todo, progress), [], threading.Lock()

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            with lock:
                if "error" in message:
                    failures.append(message)
                    for other in processes:
                        other.kill()
                else:
                    meter(message["sequences"], message["pieces"])

    processes: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:
        listeners = []
        for k in range(workers):
            job = {
                "out": str(path), "loading": asdict(loading), "todo": todo[k::workers], "fd": fd, "threads": threads,
                "batch_tokens": batch_tokens, "allow_nonfinite": allow_nonfinite,
            }  # fmt: skip
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "probekit.activations.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    pass_fds=(fd,),
                )
            )
            stack.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            processes.append(process)
            listeners.append(thread := threading.Thread(target=listen, args=(process,), daemon=True))
            thread.start()
        for thread in listeners:
            thread.join()
        codes = [process.wait() for process in processes]
    if failures:
        from probekit import errors

        kind = getattr(errors, failures[0]["error"], CacheError)
        raise kind(failures[0]["message"])
    if any(codes):
        raise CacheError(
            f"a worker ended with status {next(c for c in codes if c)} while writing {path}; out of memory, perhaps. "
            "What is finished is kept: run the same command again, with fewer --workers."
        )
