"""The manifest of a cache in shards: which files there are, which rows of the task each holds, and their digests.

A cache may be a folder: ``shard-00000.h5``, ``shard-00001.h5`` …, each an ordinary cache of the next rows of the task,
and ``manifest.json``. The manifest is made from the shards alone, so whoever makes it writes the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from probekit.activations.spec import check_dataset, check_spec, is_count
from probekit.errors import CacheCorrupt, CacheIncomplete, CacheMismatch
from probekit.files import MARK, FileKind, is_sealed, parse_json, read_json, seal

FORMAT = "probekit-shards/1"
MANIFEST = "manifest.json"
BEGUN = ".manifest"
"""The manifest of a copy that has begun: its shards are of that cache."""


def shard_name(number: int) -> str:
    """The name of a shard, counted from 0."""
    return f"shard-{number:05d}.h5"


def shards_in(folder: Path) -> dict[int, Path]:
    """The shards in a folder by number, in order."""
    found = {int(m[1]): p for p in folder.iterdir() if (m := re.fullmatch(r"shard-(\d{5,})\.h5", p.name))}
    return dict(sorted(found.items()))


def is_shard_folder(path: Path) -> bool:
    """Whether a folder holds a cache in shards, finished or not."""
    return path.is_dir() and ((path / MANIFEST).is_file() or any(path.glob("shard-*.h5")))


def _is_manifest(path: Path) -> bool:
    return read_json(path).get("format") == FORMAT


MANIFEST_FILE = FileKind(
    "the manifest of an activation cache", _is_manifest, "remove it: the manifest is made from the shards"
)


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard, as the manifest describes it.

    Attributes
    ----------
    file : str
        Its name in the folder.
    first, last : int
        It holds the rows ``first`` … ``last - 1`` of the task.
    tokens : int
        Rows of its ``/tokens``.
    nbytes : int
        The size of the file.
    spec_id, xxh3 : str
        Its ``spec_id``; and the digest of its structure, which covers the digests of all its datasets.
    """

    file: str
    first: int
    last: int
    tokens: int
    nbytes: int
    spec_id: str
    xxh3: str


@dataclass(frozen=True)
class Manifest:
    """The contents of ``manifest.json``.

    Attributes
    ----------
    spec : Mapping[str, Any]
        The spec of the whole cache.
    attributes : Mapping[str, Any]
        The attributes that a single file would have: ``created``, ``probekit``, ``origin``, ``recipe``, ``groups``.
    datasets : Mapping[str, Any]
        By name, what every shard's dataset has: ``dtype``, ``shape`` (of a row), ``encoded`` (bfloat16 as uint16).
    shards : tuple[ShardFile, ...]
        The shards in the order of their rows.
    """

    spec: Mapping[str, Any]
    attributes: Mapping[str, Any]
    datasets: Mapping[str, Any]
    shards: tuple[ShardFile, ...]

    def to_json(self) -> str:
        """The text of the file, with the digest of its own bytes."""
        content = {"format": FORMAT, **asdict(self), "seal": MARK}
        return seal((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()).decode()

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises
        ------
        CacheIncomplete
            If there is none yet.
        CacheMismatch
            If it has another format, or there are two.
        CacheCorrupt
            If its bytes were changed, or its shards do not follow one another.
        """
        path = folder / MANIFEST
        several = sorted(p.name for p in folder.glob("manifest*.json"))
        if len(several) > 1:
            raise CacheMismatch(
                f"{folder} has {len(several)} manifests ({', '.join(several)}); keep that of this cache, as {MANIFEST}."
            )
        if not path.is_file():
            raise CacheIncomplete(
                f"{folder} is unfinished: it has {len(shards_in(folder))} shards and no {MANIFEST}. Run the same "
                "probekit cache-activations command again to finish it."
            )
        try:
            content = parse_json(path.read_bytes())
            if (found := content["format"]) != FORMAT:
                raise CacheMismatch(f"{path} is of format {found!r}; this version reads {FORMAT!r}.")
            manifest = cls(
                content["spec"],
                content["attributes"],
                content["datasets"],
                tuple(ShardFile(**shard) for shard in content["shards"]),
            )
            check_spec(manifest.spec)
            if not isinstance(manifest.attributes, dict):
                raise ValueError("its attributes are not an object")
            _check_shards(manifest.shards)
            for name, about in manifest.datasets.items():
                check_dataset(name, about)
            intact = is_sealed(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CacheCorrupt(f"{path} cannot be read ({error!r}); {AGAIN}.") from error
        if not intact:
            raise CacheCorrupt(f"{path} was changed after it was written; {AGAIN}.")
        return manifest


def _check_shards(shards: Sequence[ShardFile]) -> None:
    """Raise ValueError unless shards have their own names, and their rows follow one another."""
    first = 0
    for k, shard in enumerate(shards):
        if not all(map(is_count, (shard.first, shard.last, shard.tokens, shard.nbytes))):
            raise ValueError(f"{shard.file!r} has numbers that no shard has")
        if (shard.file, shard.first) != (shard_name(k), first) or shard.last <= first:
            raise ValueError(f"{shard.file!r} is not the next shard")
        first = shard.last
    if not shards:
        raise ValueError("it names no shards")


AGAIN = (
    "remove it, and run the same probekit cache-activations command again: it is made from the shards, which are kept"
)
