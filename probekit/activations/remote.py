"""Caches in object stores (``s3://``, ``gs://``, ``memory://`` …), through fsspec: whole shards, fetched when needed.

A cache at a URL has a folder here, with its manifest and the URL; a shard is fetched when it is first read, and is
compared with the manifest like every other. The folder's name holds the manifest's digest, so that another cache at the
same URL has another folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from probekit.activations.hdf5 import CACHE_FILE
from probekit.activations.manifest import MANIFEST, MANIFEST_FILE
from probekit.errors import CacheError, UsageError
from probekit.files import DATA_CACHE, FileKind, slug, whole

__all__ = ["SOURCE", "fetch", "filesystem", "is_url", "local", "url_of"]

SOURCE = ".source"
"""The file in a folder with the URL that its missing shards are fetched from."""
_SOURCE_FILE = FileKind("the URL of a cache", lambda path: is_url(path.read_text()))


def url_of(path: str | Path) -> str:
    """A URL as it was given, also where a Path has taken away one of its slashes."""
    return re.sub(r"^([a-z][a-z0-9+.-]+):/+", r"\1://", str(path)).rstrip("/")


def is_url(path: str | Path) -> bool:
    """Whether a path is a URL that names a store.

    Examples
    --------
    >>> is_url("s3://bucket/cola"), is_url(Path("memory://cola")), is_url("cola.h5"), is_url("C:/cola.h5")
    (True, True, False, False)
    """
    return re.match(r"[a-z][a-z0-9+.-]+:/", str(path)) is not None and not Path(path).exists()


@contextmanager
def filesystem(url: str) -> Iterator[tuple[Any, str]]:
    """The ``fsspec`` file system of a URL, and the path in it; errors of the store as CacheError.

    Raises
    ------
    UsageError
        If the scheme is unknown, or its package is not installed.
    CacheError
        If something is missing in the store, or the store cannot be reached.
    """
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url} cannot be opened: {error}.") from error
    try:
        yield fs, path.rstrip("/")
    except FileNotFoundError as error:
        raise CacheError(f"{url} does not exist, or lacks {error}.") from error
    except OSError as error:
        raise CacheError(f"{url} cannot be read or written: {error}.") from error


def local(url: str | Path, root: Path | None = None) -> Path:
    """The file or folder here that stands for a cache at a URL; of a folder, only the manifest is fetched.

    Parameters
    ----------
    root : Path, optional
        By default ``data_cache/remote``.
    """
    url, root = url_of(url), root or DATA_CACHE / "remote"
    name = slug(url.rpartition("/")[2])
    with filesystem(url) as (fs, path):
        if fs.isfile(path):
            mark = xxhash.xxh3_64_hexdigest(f"{url} {fs.checksum(path)}".encode())
            here = root / f"{Path(name).stem}.{mark}.h5"
            if not here.exists():
                with whole(here, CACHE_FILE) as new:
                    fs.get_file(path, str(new))
            return here
        manifest = fs.cat_file(f"{path}/{MANIFEST}")
    folder = root / f"{name}.{xxhash.xxh3_64_hexdigest(url.encode() + manifest)}"
    for part, content, kind in ((SOURCE, url.encode(), _SOURCE_FILE), (MANIFEST, manifest, MANIFEST_FILE)):
        if not (folder / part).exists():
            with whole(folder / part, kind) as new:
                new.write_bytes(content)
    return folder


def fetch(folder: Path, file: str) -> None:
    """Fetch a shard that is missing in a folder, if the folder stands for a URL; it appears whole."""
    if (folder / file).exists() or not (folder / SOURCE).is_file():
        return
    url = (folder / SOURCE).read_text()
    with filesystem(url) as (fs, path), whole(folder / file, CACHE_FILE) as new:
        fs.get_file(f"{path}/{file}", str(new))
