"""The manifest of finished shards, made from the shards alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from probekit.activations.checked import CheckedFile
from probekit.activations.hdf5 import datasets
from probekit.activations.manifest import Manifest, ShardFile, shard_name
from probekit.activations.writing.prepare import difference
from probekit.activations.writing.request import Request
from probekit.errors import CacheError, CacheMismatch
from probekit.files import parse_json

OWN = ("/blocks", "/pieces/blocks")
"""Datasets that each shard has for itself."""
GROUPS = ("/groups", "/group_names")
"""Datasets that are joined only if groups are declared: those that were found hold within a shard."""


def make_manifest(folder: Path, request: Request, count: int) -> str:
    """The text of the manifest of the shards 0 … count - 1.

    Raises
    ------
    CacheMismatch
        If shards were computed in different environments, or another job has replaced some meanwhile.
    """
    shards: list[ShardFile] = []
    specs: list[dict[str, Any]] = []
    known: dict[str, dict[str, Any]] = {}
    first: dict[str, Any] = {}
    for k in range(count):
        path = folder / shard_name(k)
        checked = _opened(path)
        try:
            attributes, spec = dict(checked.attrs), _spec(checked, request, k)
            own = _datasets(checked, declared='"declared"' in attributes.get("groups", ""))
        finally:
            checked.close()
        first = first or attributes
        if specs and spec["environment"] != specs[0]["environment"]:
            changes = difference(specs[0]["environment"], spec["environment"])
            raise CacheMismatch(
                f"{path} was computed in another environment than {shard_name(0)}: {changes}. Remove the shards of one "
                "of them, and run the command again."
            )
        for name, about in own.items():
            known[name] = _wider(known.get(name), about)
        tokens = max((about["rows"] for name, about in own.items() if name.startswith("/tokens/")), default=0)
        begin = int(spec["shard"]["first"])
        shards.append(
            ShardFile(
                path.name,
                begin,
                begin + int(spec["n"]),
                tokens,
                checked.size,
                spec["spec_id"],
                f"{checked.digest:016x}",
            )
        )
        specs.append({key: spec[key] for key in ("counts", "environment")} | ({} if specs else {"all": spec}))
    whole = {key: value for key, value in specs[0]["all"].items() if key != "shard"} | dict(request.want)
    counts = {key: sum(spec["counts"][key] for spec in specs) for key in specs[0]["counts"]}
    whole |= {"spec_id": request.spec_id, "shards": count, "counts": counts, "n": shards[-1].last}
    kept: dict[str, Any] = {k: str(first[k]) for k in ("created", "probekit", "origin", "recipe") if k in first}
    if "/groups" in known:
        kept["groups"] = json.dumps({"made": "declared"})
    plain = {name: {k: v for k, v in about.items() if k != "rows"} for name, about in sorted(known.items())}
    return Manifest(whole, kept, plain, tuple(shards)).to_json()


def repeated_ids(folder: Path, count: int) -> int:
    """How many rows of the shards 0 … count - 1 have the id of another row, by 64-bit digests of the ids."""
    digests = []
    for k in range(count):
        checked = CheckedFile(folder / shard_name(k))
        try:
            ids = checked.values("/ids").tolist()
        finally:
            checked.close()
        digests.append(np.array([xxhash.xxh3_64_intdigest(one) for one in ids], dtype=np.uint64))
    every = np.concatenate(digests)
    return len(every) - len(np.unique(every))


def spec_of(path: Path, request: Request, k: int) -> dict[str, Any]:
    """The spec of the finished shard ``k`` of a job.

    Raises
    ------
    CacheError
        If there is no such file: CacheCorrupt for one that is damaged, CacheMismatch for a shard of another job.
    """
    checked = _opened(path)
    try:
        return _spec(checked, request, k)
    finally:
        checked.close()


def _opened(path: Path) -> CheckedFile:
    if not path.exists():
        raise CacheError(
            f"{path} was removed while this cache was made, perhaps by another job with --overwrite. Run the same "
            "command again, which makes what is missing, or choose another --out."
        )
    return CheckedFile(path)


def _spec(checked: CheckedFile, request: Request, k: int) -> dict[str, Any]:
    spec: dict[str, Any] = parse_json(checked.attrs["spec"])
    if wrong := _of_another_job(spec, request, k):
        raise CacheMismatch(f"{checked.path} is a shard of another job: {wrong}.")
    return spec


def _of_another_job(spec: Mapping[str, Any], request: Request, k: int) -> str:
    """How a shard's spec differs from that of shard ``k`` of this job; "" if it is this one."""
    shard = dict(spec.get("shard", {}))
    if shard.get("of") == request.spec_id:
        return "" if shard["number"] == k else f"it holds the rows of {shard_name(shard['number'])}"
    plain = {key: value for key, value in request.want.items() if key not in ("n", "data_digest")}
    if all(spec.get(key) == value for key, value in plain.items()):
        return "the data have changed"
    return difference(spec, plain)


def _datasets(checked: CheckedFile, *, declared: bool) -> dict[str, dict[str, Any]]:
    """The datasets of a shard: dtype, shape of a row, rows, whether they hold bfloat16."""
    return {
        name: {
            "dtype": ds.dtype.str,
            "shape": list(ds.shape[1:]),
            "encoded": ds.attrs.get("encoding") == "bfloat16",
            "rows": int(ds.shape[0]),
        }
        for name, ds in datasets(checked.f)
        if name not in OWN and (declared or name not in GROUPS)
    }


def _wider(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """What both shards' datasets fit into: the longest strings, the most dimensions."""
    if old is None or len(new["shape"]) > len(old["shape"]) or (not old["rows"] and new["rows"]):
        return dict(new)
    if len(new["shape"]) == len(old["shape"]) and new["dtype"].startswith("|S") and new["rows"]:
        widest = max(int(about["dtype"][2:]) for about in (old, new))
        return {**old, "dtype": f"|S{widest}"}
    return dict(old)
