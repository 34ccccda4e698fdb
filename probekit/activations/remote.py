"""Caches in object stores (``s3://``, ``gs://``, ``memory://`` …), through fsspec: whole shards, fetched when needed.

A cache at a URL has a folder here, with its manifest and the URL; a shard is fetched when it is first read, and is
compared with the manifest like every other. The folder's name holds the manifest's digest, so that another cache at the
same URL has another folder.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

from probekit.activations.hdf5 import CACHE_FILE
from probekit.activations.manifest import MANIFEST, MANIFEST_FILE
from probekit.addresses import address_of, filesystem
from probekit.files import DATA_CACHE, FileKind, slug, whole

SOURCE = ".source"
"""The file in a folder with the address that its missing shards are fetched from."""
REMOTE = DATA_CACHE / "remote"
"""Where the folders of caches at an address are."""
LONGEST = 4096
"""Bytes of an address."""


def _is_source(path: Path) -> bool:
    return address_of(path.read_text()) == path.read_text()


_SOURCE_FILE = FileKind("the URL of a cache", _is_source)


def local(url: str | Path) -> Path:
    """The file or folder here that stands for a cache at a URL; of a folder, only the manifest is fetched."""
    url = address_of(url)
    with filesystem(url) as (fs, path):
        if fs.isfile(path):
            mark = xxhash.xxh3_64_hexdigest(f"{url} {fs.checksum(path)}".encode())
            here = REMOTE / f"{Path(_name(url)).stem}.{mark}.h5"
            if not here.exists():
                with whole(here, CACHE_FILE) as new:
                    fs.get_file(path, str(new))
            return here
        manifest = fs.cat_file(f"{path}/{MANIFEST}")
    folder = REMOTE / _folder_name(url, manifest)
    for part, content, kind in ((SOURCE, url.encode(), _SOURCE_FILE), (MANIFEST, manifest, MANIFEST_FILE)):
        if not (folder / part).exists():
            with whole(folder / part, kind) as new:
                new.write_bytes(content)
    return folder


def _name(url: str) -> str:
    return slug(url.rpartition("/")[2])


def _folder_name(url: str, manifest: bytes) -> str:
    return f"{_name(url)}.{xxhash.xxh3_64_hexdigest(url.encode() + manifest)}"


def source_of(folder: Path) -> str | None:
    """The URL that a folder's missing shards are fetched from; None for a folder that probekit did not make for one.

    Whoever passes on a folder could put the file in it. So it counts only below ``data_cache/remote``, in a folder
    whose name is the digest of the URL and the manifest.
    """
    file, here = folder / SOURCE, folder.resolve()
    if here.parent != REMOTE.resolve() or file.is_symlink() or not file.is_file() or file.stat().st_size > LONGEST:
        return None
    try:
        url = file.read_bytes().decode()
    except UnicodeDecodeError:
        return None
    return url if here.name == _folder_name(url, (folder / MANIFEST).read_bytes()) else None


def not_followed(folder: Path) -> str:
    """What to add to an error about a missing shard: that a file .source is there, and why it is not followed."""
    if not (folder / SOURCE).exists() or source_of(folder) is not None:
        return ""
    return f" ({SOURCE} in this folder is not followed: probekit did not make the folder for a URL)"


def fetch(folder: Path, file: str) -> None:
    """Fetch a shard that is missing in a folder, if the folder stands for a URL; it appears whole."""
    if (folder / file).exists() or (url := source_of(folder)) is None:
        return
    with filesystem(url) as (fs, path), whole(folder / file, CACHE_FILE) as new:
        fs.get_file(f"{path}/{file}", str(new))
