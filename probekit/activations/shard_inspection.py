"""The check of a cache in shards: every shard that the manifest names, and what it does not name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from probekit.activations.checked import CheckedFile
from probekit.activations.manifest import Manifest, ShardFile, shards_in
from probekit.activations.remote import fetch, not_followed
from probekit.errors import CacheError
from probekit.runtime import Progress

__all__ = ["shard_problems"]


def shard_problems(folder: Path, verify: Callable[[Path], Any], progress: Progress) -> tuple[tuple[str, ...], int, int]:
    """Problems in plain words, each with the shard's name; the number of digests compared, and of bytes read.

    Parameters
    ----------
    verify : callable
        Checks one file: :func:`probekit.activations.inspection.verify`.

    Raises
    ------
    CacheError
        If there is no manifest, there are two, or it was changed.
    """
    shards = Manifest.read(folder).shards
    problems, digests, nbytes = [], 1, 0
    for k, told in enumerate(shards):
        progress("verifying", k, len(shards))
        path = folder / told.file
        fetch(folder, told.file)
        if not path.is_file():
            problems.append(f"{told.file} (rows {told.first} to {told.last - 1}) is missing{not_followed(folder)}")
            continue
        try:
            if other := _other_file(path, told):
                problems.append(f"{told.file}: {other}")
                continue
            verdict = verify(path)
        except CacheError as error:
            problems.append(f"{told.file}: {str(error).removeprefix(f'{path}: ')}")
            continue
        problems += [f"{told.file}: {problem}" for problem in verdict.problems]
        digests, nbytes = digests + verdict.digests, nbytes + verdict.nbytes
    named = {told.file for told in shards}
    problems += [f"{p.name} is not in the manifest" for p in shards_in(folder).values() if p.name not in named]
    progress("verifying", len(shards), len(shards))
    return tuple(problems), digests, nbytes


def _other_file(path: Path, told: ShardFile) -> str:
    """How a shard differs from the one of the manifest, as far as its structure tells; "" if it does not."""
    size = path.stat().st_size
    if size < told.nbytes:
        return f"it is truncated: {size:,} of {told.nbytes:,} bytes"
    checked = CheckedFile(path)
    try:
        if (spec_id := str(checked.attrs["spec_id"])) != told.spec_id:
            return f"it is a shard of another job (spec_id {spec_id}, expected {told.spec_id})"
        return "" if f"{checked.digest:016x}" == told.xxh3 else "it was written at another time than the manifest says"
    finally:
        checked.close()
