"""Copy a cache between folders and object stores: whole shards, each checked, the manifest last."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from probekit.activations.cache import ActivationCache
from probekit.activations.hdf5 import CACHE_FILE
from probekit.activations.inspection import verify
from probekit.activations.manifest import BEGUN, MANIFEST, MANIFEST_FILE, Manifest, is_shard_folder
from probekit.activations.remote import fetch, local
from probekit.addresses import address_of, filesystem, is_address
from probekit.calls import checked
from probekit.errors import CacheCorrupt, CacheError, UsageError
from probekit.files import remove_unfinished, whole
from probekit.runtime import Progress, no_progress


@checked
def copy_cache(cache: str | Path, out: str | Path, /, *, progress: Progress = no_progress) -> str:
    """Copy a cache, file or folder, between folders and object stores.

    Every byte is compared with its digests before it is copied. The manifest of a folder is written last, so what was
    copied only in part is no cache; copy it again to continue. s3:// needs the package s3fs, gs:// gcsfs.

    Parameters
    ----------
    cache : path or URL
        A finished cache: a file, a folder, or a URL.
    out : path or URL
        Where to copy it: a file for a file, a folder for a folder.

    Returns
    -------
    str
        ``out``.

    Raises
    ------
    CacheError
        If the cache is damaged, or the store cannot be read or written.
    UsageError
        If something else is at ``out``, or the store's package is not installed.

    Examples
    --------
    >>> probekit.copy_cache("data_cache/cola", "s3://bucket/cola")  # doctest: +SKIP
    's3://bucket/cola'

    On the command line::

        probekit copy-cache data_cache/corpus s3://bucket/corpus
        probekit copy-cache s3://bucket/corpus data_cache/corpus
    """
    source = local(cache) if is_address(cache) else Path(cache)
    with ActivationCache(source):
        pass
    target: _Store = _Url(address_of(out)) if is_address(out) else _Folder(Path(out))
    if not is_shard_folder(source):
        _check(source)
        target.put(source, "")
        return str(out)
    text, shards = (source / MANIFEST).read_bytes(), Manifest.read(source).shards
    there, begun = (target.read(name) for name in (MANIFEST, BEGUN))
    if there not in (None, text):
        raise UsageError(f"{out} holds another cache; choose another place.")
    if there is None and begun != text:
        if begun is None and any(target.size(shard.file) is not None for shard in shards):
            raise UsageError(f"{out} holds shards of another cache, perhaps an unfinished one; choose another place.")
        begun = None
        target.put(source / MANIFEST, BEGUN)
    for k, shard in enumerate(shards):
        progress("copying", k, len(shards))
        if target.size(shard.file) == shard.nbytes and text in (there, begun):
            continue  # a shard appears whole
        fetch(source, shard.file)
        _check(source / shard.file)
        target.put(source / shard.file, shard.file)
        if (size := target.size(shard.file)) != shard.nbytes:
            raise CacheError(f"{out}/{shard.file} has {size} bytes after it was copied, expected {shard.nbytes:,}.")
    target.put(source / MANIFEST, MANIFEST)
    target.remove(BEGUN)
    progress("copying", len(shards), len(shards))
    return str(out)


def _check(file: Path) -> None:
    verdict = verify(file)
    if not verdict.ok:
        raise CacheCorrupt(f"{file} is damaged ({verdict.problems[0]}), so nothing of it is copied.")


class _Folder:
    """A place on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        path = self.path / name
        return path.read_bytes() if path.is_file() else None

    def size(self, name: str) -> int | None:
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def put(self, file: Path, name: str) -> None:
        with whole(self.path / name, MANIFEST_FILE if name in (MANIFEST, BEGUN) else CACHE_FILE) as new:
            shutil.copyfile(file, new)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
        remove_unfinished(self.path, lambda _: True)


class _Url:
    """A place in an object store, where a file appears whole."""

    def __init__(self, url: str) -> None:
        self.url = url

    def read(self, name: str) -> bytes | None:
        with filesystem(self.url) as (fs, path):
            if fs.isfile(path):
                raise UsageError(f"{self.url} exists, and nothing is replaced there; choose another place.")
            if not fs.isfile(f"{path}/{name}"):
                return None
            content: Any = fs.cat_file(f"{path}/{name}")
            return bytes(content)

    def size(self, name: str) -> int | None:
        with filesystem(self.url) as (fs, path):
            return int(fs.size(f"{path}/{name}")) if fs.isfile(f"{path}/{name}") else None

    def put(self, file: Path, name: str) -> None:
        with filesystem(self.url) as (fs, path):
            to = f"{path}/{name}".rstrip("/")
            if not name and fs.exists(to):
                raise UsageError(f"{self.url} exists, and nothing is replaced there; choose another place.")
            if "file" in fs.protocol:  # stores have no folders
                fs.makedirs(to.rpartition("/")[0], exist_ok=True)
            fs.put_file(str(file), to)

    def remove(self, name: str) -> None:
        with filesystem(self.url) as (fs, path):
            if fs.isfile(f"{path}/{name}"):
                fs.rm_file(f"{path}/{name}")


_Store = _Folder | _Url
