"""A cache in shards: any number of workers in one folder, each of which claims a shard, makes it, and names it.

A shard is made by the code that makes a file (:mod:`probekit.activations.writing.job`), under a name of the worker's
own; a hard link to the final name ends it. Whoever finds all shards there writes the manifest. A worker that dies
costs one shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from probekit.activations.certify import quick_certificate
from probekit.activations.hdf5 import CACHE_FILE
from probekit.activations.manifest import MANIFEST, MANIFEST_FILE, is_shard_folder, shard_name, shards_in
from probekit.activations.writing.journal import locked, sync_folder, writing
from probekit.activations.writing.leases import Leases, linked, of_workers, private_name, tidy, unfinished
from probekit.activations.writing.loading import Loading, load
from probekit.activations.writing.prepare import difference, environment, kept_sites
from probekit.activations.writing.request import Request, count_of, data_digest, digest
from probekit.activations.writing.shard_manifest import make_manifest, repeated_ids, spec_of
from probekit.activations.writing.workers import LOOK, run_shard_workers
from probekit.errors import CacheCorrupt, CacheError, CacheMismatch, UsageError
from probekit.files import remove, write
from probekit.models.encoder import Encoder
from probekit.runtime import Progress, no_progress
from probekit.tasks.files.columns import roles_of
from probekit.tasks.files.stream import StreamedSplit
from probekit.tasks.task import Split

log = logging.getLogger(__name__)


def work(
    request: Request,
    write_cache: Callable[..., None],
    *,
    overwrite: bool,
    wait: Callable[[], None] | None,
    progress: Progress,
) -> None:
    """Make shards until all are there, then the manifest; other processes may do the same at the same time.

    Parameters
    ----------
    request : Request
        The whole cache; its path is the folder.
    write_cache : callable
        Makes one file: ``write_cache(request, fd, overwrite=…, progress=…)``.

    Raises
    ------
    CacheMismatch
        If the folder holds shards of another job, or shards that were computed in another environment.
    CacheError
        If a file cannot be written; finished shards are kept, and other workers go on.
    """
    folder, options = request.path, request.options
    _check_folder(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    worker = _Worker(request, Leases(folder, options.patience), write_cache, progress)
    if overwrite:
        worker.clear()
    worker.look()
    if worker.todo() and (options.workers > 1 or options.backend == "dask"):
        run_shard_workers(request, partial(_alone, write_cache=write_cache), worker.look)
    while todo := worker.todo():
        if not any(map(worker.make, todo)) and worker.todo():
            if wait is not None:
                wait()
                wait = None
            sleep(min(LOOK, options.patience))
        worker.look()
    assert worker.count is not None
    if not worker.count:
        raise UsageError(f"{request.task.name} {request.want['split']} has no examples; choose another split.")
    text = make_manifest(folder, request, worker.count)
    with writing(folder):
        if not (folder / MANIFEST).exists() or (folder / MANIFEST).read_text(encoding="utf-8") != text:
            write(folder / MANIFEST, text, MANIFEST_FILE)
            sync_folder(folder)
    tidy(folder)
    _check_ids(request, worker.count)


def _check_ids(request: Request, count: int) -> None:
    """Warn of ids that occur twice: a task that is read in parts is not checked as a whole before."""
    named = isinstance(request.part, StreamedSplit) and "id" in roles_of(request.part.spec)
    if named and (again := repeated_ids(request.path, count)):
        log.warning(
            "%s: %s rows have the id of a row in another shard. Ids must be unique: what pairs examples by their ids "
            "refuses these, or takes one for another. Name another column as id in the task file, or none.",
            request.path,
            f"{again:,}",
        )


def _alone(request: Request, write_cache: Callable[..., None]) -> None:
    """The work of one of several processes."""
    alone = replace(request, options=replace(request.options, workers=1, backend="loky", scheduler=None))
    work(alone, write_cache, overwrite=False, wait=None, progress=no_progress)


AHEAD = 64
"""Shards of a stream without known end that may be claimed beyond the last that is there: at most so many workers."""


class _Worker:
    """One worker: its model and the model's certificate, its leases, and the shards that it knows to be good."""

    def __init__(self, request: Request, leases: Leases, write_cache: Callable[..., None], progress: Progress) -> None:
        self.request, self.leases, self.write_cache, self.progress = request, leases, write_cache, progress
        self.folder = request.path
        self.size = int(request.want["shard_size"])
        self.rows = count_of(request.part)
        self.count = None if self.rows is None else -(-self.rows // self.size)
        self.done: dict[int, int] = {}
        self.encoder: Encoder | None = None if isinstance(request.model, Loading) else request.model
        self.certificate: dict[str, Any] | None = None
        self.meter = _Meter(self.rows, progress)

    def todo(self) -> list[int]:
        """The numbers of the shards that are not there; of a stream, until its end is known, some that may be."""
        end = max(self.done, default=0) + AHEAD if self.count is None else self.count
        return [k for k in range(end) if k not in self.done]

    def clear(self) -> None:
        """Remove the shards of other jobs, each under its lease: another worker may be replacing it at this moment."""
        while left := {k: path for k, path in shards_in(self.folder).items() if self._is_wrong(k, path)}:
            for k, path in left.items():
                with writing(self.folder), self.leases.claim(k) as mine:
                    if mine and self._is_wrong(k, path):
                        CACHE_FILE.check(path)
                        (self.folder / MANIFEST).unlink(missing_ok=True)
                        path.unlink()
            if not mine:
                sleep(min(LOOK, self.leases.patience))

    def _is_wrong(self, k: int, path: Path) -> bool:
        """Whether there is a shard ``k``, and it is damaged or of another job."""
        try:
            spec_of(path, self.request, k)
        except (CacheCorrupt, CacheMismatch):
            return True
        except CacheError:
            if path.exists():
                raise
        return False

    def look(self) -> None:
        """Check the shards that have appeared."""
        for k, path in shards_in(self.folder).items():
            if k in self.done:
                continue
            try:
                spec = spec_of(path, self.request, k)
            except (CacheCorrupt, CacheMismatch) as error:
                raise type(error)(
                    f"{error} Give another --out, remove the shard, or replace such shards with --overwrite."
                ) from error
            if self.encoder is not None:
                _check_environment(path, spec, self.encoder)
            self.done[k] = int(spec["n"])
            if self.count is None and self.done[k] < self.size:
                self.count = k + 1
        self.meter.others(sum(self.done.values()))

    def make(self, k: int) -> bool:
        """Make shard ``k`` if nobody else does; says whether there is something new to look at."""
        final = self.folder / shard_name(k)
        with writing(self.folder), self.leases.claim(k) as mine:
            if not mine:
                return final.exists()
            if final.exists():
                return True
            if self.encoder is None:
                self._load()
            try:
                self._make(k, final)
            except (CacheError, OSError) as error:
                if self.leases.holds(k):
                    raise
                log.warning("%s: another worker has taken this shard over (%s).", final, error)
        return True

    def _load(self) -> None:
        assert isinstance(self.request.model, Loading)
        self.encoder = load(self.request.model)
        for k in sorted(self.done)[:1]:
            path = self.folder / shard_name(k)
            _check_environment(path, spec_of(path, self.request, k), self.encoder)

    def _make(self, k: int, final: Path) -> None:
        """Write a shard under a name of this worker's own, and link it to its final name."""
        assert self.encoder is not None
        private = self.folder / private_name(k, self.leases.token)
        request = shard_request(self.request, k, self.encoder, private)
        if not len(request.part):
            self.count = k
            return
        if self.certificate is None:  # on texts that are the same for each worker, once
            kept = [site for site, _ in kept_sites(self.request.want, self.encoder)]
            self.certificate = quick_certificate(self.encoder, None, kept)
        request = replace(request, certificate=self.certificate)
        try:
            with locked(private, wait=None) as fd:
                self.write_cache(request, fd, overwrite=False, progress=self.meter.of(len(request.part)))
            if not linked(private, final):
                log.warning("%s was finished by another worker first; this copy is dropped.", final)
            sync_folder(self.folder)
        finally:
            for left in unfinished(self.folder, k, self.leases.token):
                remove(left)


def shard_request(request: Request, k: int, encoder: Encoder, path: Path) -> Request:
    """The request of shard ``k``, an ordinary cache of its rows."""
    first = k * int(request.want["shard_size"])
    part = Split(request.part.name, request.part[first : first + int(request.want["shard_size"])])
    want = {
        **request.want,
        "n": len(part),
        "data_digest": data_digest(part.digest(), request.task.label_names),
        "shard": {"of": request.spec_id, "number": k, "first": first},
    }
    return replace(request, part=part, model=encoder, want=want, spec_id=digest(want), path=path)


NFS = ".nfs"
"""How the names of files begin that NFS keeps while a process has them open."""


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds other things."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, and a cache in shards needs a folder of its own; choose another --out.")
    MANIFEST_FILE.check(folder / MANIFEST)
    if folder.is_dir() and not is_shard_folder(folder):
        others = [p.name for p in folder.iterdir() if not of_workers(p.name) and not p.name.startswith(NFS)]
        if others:
            raise UsageError(
                f"{folder} holds other files ({others[0]} …), and a cache in shards needs a folder of its own; choose "
                "another --out."
            )


def _check_environment(path: Path, spec: Mapping[str, Any], encoder: Encoder) -> None:
    """Refuse to add to shards that were computed in another environment: their last bits may differ."""
    now, then = environment(encoder), spec["environment"]
    if now != then:
        raise CacheMismatch(
            f"{path} was computed in another environment: {difference(then, now)}. Give the workers of a folder the "
            "same software and kind of device, or choose another --out."
        )


class _Meter:
    """The progress of the whole cache, in examples, and what this worker has read."""

    def __init__(self, total: int | None, progress: Progress) -> None:
        self.total, self.progress, self.done, self.looked = total, progress, 0, False
        self.examples = self.tokens = 0.0

    def others(self, done: int) -> None:
        """So many rows are finished, by whomever."""
        if done != self.done or not self.looked:
            self.progress("examples", done, self.total or done)
        self.done, self.looked = done, True

    def of(self, rows: int) -> Progress:
        """The progress of one shard of so many rows."""
        before = self.examples, self.tokens

        def show(stage: str, done: int, total: int, /, **rates: float) -> None:
            if stage != "model":
                self.progress(stage, done, total, **rates)
                return
            self.examples, self.tokens = (
                b + rates.get(x, 0) for b, x in zip(before, ("examples", "tokens"), strict=True)
            )
            now = self.done + rows * done // max(total, 1)
            self.progress("model", now, self.total or now + 1, examples=self.examples, tokens=self.tokens)

        return show
