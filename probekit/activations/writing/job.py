"""From the names of a model and a task to a finished cache: reuse, resume, workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from probekit.activations.cache import ActivationCache
from probekit.activations.hdf5 import CACHE_FILE
from probekit.activations.manifest import MANIFEST
from probekit.activations.options import CacheOptions
from probekit.activations.writing.extract import run_blocks
from probekit.activations.writing.journal import Journal, journal_path, locked, partial_path
from probekit.activations.writing.leases import tidy
from probekit.activations.writing.loading import Loading, follow, leading, load, ranks_of
from probekit.activations.writing.partial import Partial, check_static, digest_blocks, finish, open_partial
from probekit.activations.writing.prepare import check_environment, difference, kept_sites, prepare
from probekit.activations.writing.request import Request, make_request, recipe_of, shard_size
from probekit.activations.writing.shards import work
from probekit.activations.writing.workers import run_workers
from probekit.constraint import Written
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
from probekit.files import DATA_CACHE
from probekit.models.encoder import Encoder
from probekit.public import public
from probekit.runtime import Progress, no_progress
from probekit.tasks.task import Task

log = logging.getLogger(__name__)
RANDOM = "random:"
"""Prefix of a model's name: the same architecture with random weights."""


@public(options=CacheOptions)
def cache_activations(
    model: str | Path | Encoder,
    task: str | Path | Task,
    split: str = "train",
    *,
    options: CacheOptions,
    out: Annotated[str | Path | None, Written(always=True)] = None,
    overwrite: bool = False,
    wait: Callable[[], None] | None = lambda: None,
    progress: Progress = no_progress,
) -> ActivationCache:
    """Run a model on a task and store every layer's activations.

    Run the same command again to open a finished cache at once, or to resume an interrupted one, which redoes at most
    one block per worker or thread. On the command line, a pattern caches all checkpoints of a training run, in the
    order of their steps; their rows name the run and the step.

    Parameters
    ----------
    model : str, path or Encoder
        A Hub id, or a local folder with config.json and safetensors; minilm for the model that the extra demo installs;
        random:MODEL for random weights, with the seed 0 or ``random_weights``; on the command line a pattern
        (``RUN/step-*``) for several checkpoints; BASE+ADAPTER for an adapter of peft; elmo:OPTIONS,WEIGHTS,
        skip-thoughts:FOLDER or vectors:FILE (word2vec, GloVe, fastText) for published files; in Python also a loaded
        encoder (in this process only).
    task : str, path or Task
        Name of a task (see ``probekit tasks``), or a TOML file; in Python also a task; or a file of texts, which is
        read a shard at a time: one a line (.txt), or JSON lines with the field text (.jsonl), also packed (.gz); "-"
        reads one of these from standard input, and keeps it in a file beside the cache until that is finished.
    split : str
        Split of the task.
    options : CacheOptions
        ``pooling``, ``tokens``, ``pairs``, ``dtype``, ``limit`` …; you can also pass them as keyword arguments.
        ``random_weights`` re-initialises the model with this seed [1]_. With ``stateful`` ELMo's state is carried from
        batch to batch, as in the original, in one process and one thread; after an interruption, it starts from the
        beginning.
    out : path, optional
        The file to write, or a folder (an existing one, or a name ending in "/") for files named
        TASK.SPLIT.MODEL.DIGEST.h5; by default data_cache/. With ``shard_size``, the folder of the shards (with a final
        "/", a folder for such folders). More than 100,000 texts that are read a shard at a time become a folder of
        shards of as many, unless ``out`` ends in .h5, or ``shard_size`` says otherwise.
    overwrite : bool
        Replace a cache that holds other activations.
    wait : callable, optional
        Called once before waiting if another process is writing the same cache; None raises CacheBusy instead.
    progress : callable
        Called with the progress.

    Returns
    -------
    ActivationCache
        The opened cache. Layer 0 is the input of block 1, layer l the residual stream after block l.

    Raises
    ------
    UsageError, DataError, ModelError
        If an argument is not valid, or data or model do not exist.
    TruncationError
        If a text is too long and ``on_truncate`` is "error".
    NonFiniteError
        If a layer holds NaN or infinity, unless ``allow_nonfinite``.
    CacheMismatch
        If the file holds other activations; see ``overwrite``.
    CacheError
        If the file cannot be written.

    References
    ----------
    .. [1] Peters, Ruder and Smith 2019, https://aclanthology.org/W19-4302/

    Examples
    --------
    >>> cache = probekit.cache_activations("bert-base-uncased", "sst2", "dev")  # doctest: +SKIP
    >>> cache.layer(3).shape, cache.labels.shape  # doctest: +SKIP
    ((872, 768), (872,))

    On the command line::

        probekit cache-activations --model bert-base-uncased --task sst2
        probekit cache-activations --model ./bert-of-mine --task mytask.toml --split dev --pooling mean,first
        probekit cache-activations --model gpt2 --task cola --data-dir ~/glue/CoLA --tokens --dtype bfloat16
        probekit cache-activations --model bert-base-uncased --task sst2 --random-weights 0
        probekit cache-activations --model gpt2 --task sst2 --sites attn_out,mlp_out,z --layers 4:12:2 --pooling last
        probekit cache-activations --model gpt2 --task sst2 --positions last:3 --tokens --pooling mean
        probekit cache-activations --model Qwen/Qwen3-0.6B --task chats.toml --positions roles:assistant
        probekit cache-activations --model gpt2 --task sst2 --limit 200 --generate max_new_tokens=32 --positions last
        probekit cache-activations --model RUN/step-* --task cola --split dev
        zcat corpus.jsonl.gz | probekit cache-activations --model gpt2 --task - --out data_cache/corpus
        probekit cache-activations --model elmo:options.json,weights.hdf5 --task cola
        probekit cache-activations --model gpt2 --task mytask.toml --shard-size 100000 --out data_cache/mytask
        probekit cache-activations --model gpt2 --task corpus.jsonl.gz --shard-size 100000 --out data_cache/corpus
        probekit cache-activations --model gpt2 --task my.toml --shard-size 9999 --backend dask --scheduler tcp://head:8786
        torchrun --nproc-per-node 4 -m probekit cache-activations --model gpt2 --task my.toml --shard-size 9999 --out my
        torchrun --nproc-per-node 8 -m probekit cache-activations --model ./llama-70b --task my.toml --tp-plan auto
    """
    if isinstance(model, str) and model.startswith(RANDOM):
        model = model.removeprefix(RANDOM)
        options = replace(options, random_weights=options.random_weights or 0)

    def request(read: str | Path | Task) -> Request:
        return _request(model, read, split, options, out, given=task)

    if task != "-":
        return _shared(request(task), overwrite=overwrite, wait=wait, progress=progress)
    from probekit.tasks.files.stream import stdin_task

    if options.backend == "dask":
        raise UsageError("--task - reads the standard input of this process, which no cluster sees; write a file.")
    ready: list[Loading | Encoder] = []

    def check(some: Task) -> None:
        asked = request(some)
        if isinstance(asked.model, Loading) and options.workers == 1:
            kept_sites(asked.want, encoder := load(asked.model))
            ready.append(encoder)

    inside = str(out).endswith(("/", os.sep))
    beside = DATA_CACHE if out is None else Path(out) if inside else Path(out).parent
    with stdin_task(beside, split, check) as read:
        asked = request(read)
        asked = replace(asked, model=ready[0]) if ready else asked
        return _shared(asked, overwrite=overwrite, wait=wait, progress=progress)


def _request(
    model: str | Path | Encoder, task: str | Path | Task, split: str, options: CacheOptions, out: str | Path | None,
    *, given: str | Path | Task,
) -> Request:  # fmt: skip
    """The request, of a file or of shards; its recipe names the task as it was ``given``.

    Raises UsageError, DataError or ModelError if it cannot be met.
    """
    loaded = task_of(task, split, options)
    if (size := shard_size(loaded, split, options, out)) != options.shard_size:
        options = replace(options, shard_size=size)
    return make_request(model, loaded, split, options, out, recipe_of(model, given, split, options, out))


def _shared(
    request: Request, *, overwrite: bool, wait: Callable[[], None] | None, progress: Progress
) -> ActivationCache:
    """The finished cache of a request, whose model other processes may share."""
    if (ranks := ranks_of(request.model)) is None:
        return _cache(request, overwrite=overwrite, wait=wait, progress=progress)
    if ranks.rank:
        follow(ranks, request.model)
        return ActivationCache(request.path)
    with leading(ranks):
        return _cache(request, overwrite=overwrite, wait=wait, progress=progress)


def task_of(task: str | Path | Task, split: str, options: Any) -> Task:
    """The task, read whole or as a stream, by ``options.stream`` and ``options.data_dir``."""
    from probekit.tasks import load_task
    from probekit.tasks.files.stream import is_stream, stream_task

    if isinstance(task, Task):
        return task
    if options.stream or is_stream(str(task)):
        return stream_task(task, options.data_dir, split=split)
    return load_task(str(task), data_dir=options.data_dir)


def _cache(
    request: Request, *, overwrite: bool, wait: Callable[[], None] | None, progress: Progress
) -> ActivationCache:
    """The finished cache of a request: opened, resumed, or made."""
    options = request.options
    if not overwrite and (cache := _reuse(request)) is not None:
        _tidy(request)
        return cache
    if options.shard_size is not None:
        work(request, _write, overwrite=overwrite, wait=wait, progress=progress)
        return ActivationCache(request.path)
    CACHE_FILE.check(request.path)
    with locked(request.path, wait=wait) as fd:
        if not overwrite and (cache := _reuse(request)) is not None:
            journal_path(request.path).unlink()
            return cache
        try:
            _write(request, fd, overwrite=overwrite, progress=progress)
        except BaseException:
            if not partial_path(request.path).exists():  # nothing to resume: leave no files
                journal_path(request.path).unlink(missing_ok=True)
            raise
    return ActivationCache(request.path)


def _write(request: Request, fd: int, *, overwrite: bool, progress: Progress) -> None:
    """Run the missing blocks of a cache, whose journal is ``fd``, and rename it to its final name."""
    path, spec_id, journal = request.path, request.spec_id, Journal(fd)
    loading = request.model if isinstance(request.model, Loading) else None
    encoder = None if isinstance(request.model, Loading) else request.model
    if not partial_path(path).exists() or (overwrite and not _unfinished(path, spec_id, journal)):
        encoder = encoder or load(loading)
        prepare(request, encoder, journal, progress=progress)
    partial = open_partial(path)
    done = _resume(partial, spec_id, request.want, journal, progress)
    _accept(partial.file, partial.spec, request.options)
    todo = [b for b in range(len(partial.blocks)) if b not in done]
    if request.stateful and todo:  # later blocks depend on a state that is not stored
        todo = list(range(len(partial.blocks)))
    options = request.options
    arguments: dict[str, Any] = {"batch_tokens": options.batch_tokens, "allow_nonfinite": options.allow_nonfinite}
    arguments["on_batch"] = _Meter(partial, todo, progress)
    if todo and options.workers > 1 and loading:
        encoder = None  # the workers have their own
        run_workers(path, loading, todo, options.workers, fd, **arguments)
    elif todo:
        encoder = encoder or load(loading)
        check_environment(partial, encoder)
        run_blocks(partial, encoder, todo, journal, **arguments)
    finish(path, partial, Journal(fd).read(), compress=options.compress)


def _reuse(request: Request) -> ActivationCache | None:
    """The finished cache of this request, None if there is no file; raises CacheMismatch for anything else."""
    if not (path := request.path).exists() or ("shard_size" in request.want and not (path / MANIFEST).exists()):
        return None
    try:
        cache = ActivationCache(path)
    except CacheMismatch as error:
        raise CacheMismatch(f"{error} It exists already and is not overwritten; choose another --out.") from None
    except (CacheIncomplete, CacheCorrupt) as error:
        if "shard_size" in request.want:  # what is missing is made
            return None
        raise type(error)(f"{error} Or choose another --out.") from None
    if cache.spec_id == request.spec_id:
        _accept(path, cache.spec, request.options)
        return cache
    cache.close()
    changes = difference(cache.spec, request.want)
    raise CacheMismatch(f"{path} holds other activations: {changes}. {_OTHERWISE}")


_OTHERWISE = "Give another --out, or replace the file with --overwrite."


def _accept(path: Path, spec: Mapping[str, Any], options: CacheOptions) -> None:
    """Refuse a cache that was created with laxer options than requested now."""
    if options.on_truncate == "error" and (cut := spec["counts"]["truncated"]):
        raise TruncationError(
            f"{path}: {cut} of {spec['n']} texts were truncated. Use --on-truncate keep to accept that."
        )
    if spec.get("allow_nonfinite") and not options.allow_nonfinite:
        raise NonFiniteError(
            f"{path} was created with --allow-nonfinite and may hold NaN or infinity; use the same option to accept "
            "that, or choose another --out."
        )


def _unfinished(path: Path, spec_id: str, journal: Journal) -> bool:
    """Whether there is an unfinished cache of this job that can be continued."""
    try:
        partial = open_partial(path)
    except CacheError:
        return False
    journal.read()
    return partial.spec["spec_id"] == spec_id and not check_static(partial, journal.structure)


def _tidy(request: Request) -> None:
    """Remove files of a process that was killed after the cache was complete, unless another process uses them."""
    path = request.path
    if request.options.shard_size is not None:
        with suppress(OSError):  # a folder that may only be read
            tidy(path)
        return
    if not journal_path(path).exists():
        return
    with suppress(CacheBusy), locked(path, wait=None) as fd:
        if not partial_path(path).exists() or _unfinished(path, request.spec_id, Journal(fd)):
            partial_path(path).unlink(missing_ok=True)
            journal_path(path).unlink()


def _resume(
    partial: Partial, spec_id: str, want: Mapping[str, Any], journal: Journal, progress: Progress
) -> dict[int, list[int]]:
    """The complete blocks of an unfinished cache, by number; their bytes are read and compared."""
    if partial.spec["spec_id"] != spec_id:
        raise CacheMismatch(
            f"{partial.file} is the unfinished cache of another job: {difference(partial.spec, want)}. " + _OTHERWISE
        )
    noted = journal.read()
    if problem := check_static(partial, journal.structure):
        raise CacheCorrupt(f"{partial.file}: {problem}; start again with --overwrite.")
    good: dict[int, list[int]] = {}
    for k, (b, digests) in enumerate(noted.items()):
        progress("checking", k, len(noted))
        if b < len(partial.blocks) and digest_blocks(partial, b) == digests:
            good[b] = digests
        else:
            log.warning("%s: block %d does not match its journal; it is run again.", partial.file, b)
    if len(good) < len(noted):
        journal.clear(journal.structure)
        for b, digests in good.items():
            journal.append(b, digests)
    return good


class _Meter:
    """Counts the sequences and pieces that the model has read, and reports progress."""

    def __init__(self, partial: Partial, blocks: Sequence[int], progress: Progress) -> None:
        self.total = int(np.diff(partial.piece_start)[list(blocks)].sum())
        self.before = int(partial.piece_start[-1]) - self.total
        self.progress, self.sequences, self.pieces = progress, 0, 0
        progress("model", self.before, self.before + self.total, examples=0, tokens=0)

    def __call__(self, sequences: int, pieces: int) -> None:
        self.sequences += sequences
        self.pieces += pieces
        self.progress(
            "model", self.before + self.pieces, self.before + self.total, examples=self.sequences, tokens=self.pieces
        )
