"""What two processes find that share tiny models: OUT MODEL…; process 0 writes OUT/found.json and OUT/MODEL.npz.

Run in two processes (see processes.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from builders import word_task

import probekit
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites import proof
from probekit.models.sites.report import prove_sites
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.ranks import Ranks

HOW = {"device": "cpu", "tp_plan": "auto"}
BATCH = Batch(np.arange(3, 12), np.zeros(9, np.uint8), np.array([9]))


def sites_of(folder: Path, out: Path) -> dict[str, object]:
    """Every proven site of a batch, joined, and what each process holds."""
    encoder = load_encoder(folder, **HOW)
    report = prove_sites(encoder)
    names = sorted({line.site for line in report.lines if not line.refusal and line.site != "attn_probs"})
    held = [p.to_local() if hasattr(p, "to_local") else p for p in encoder.model.parameters()]
    encoder = load_encoder(folder, **HOW, sites=names)
    rows = all_layers(encoder, BATCH)
    if not encoder.ranks.rank:
        np.savez(out / f"{folder.name}.npz", **{str(s): x.numpy() for s, x in zip(encoder.sites, rows, strict=True)})
    return {
        "weights": sum(p.numel() for p in held), "path": encoder.spec["path"], "size": encoder.spec["tp_size"],
        "slices": sorted({site.name for site in encoder.slices}), "passed": report.passed,
        "refused": {line.site: line.refusal for line in report.lines if line.refusal and not line.lacking},
    }  # fmt: skip


def planted(folder: Path) -> dict[str, dict[str, str]]:
    """The refusals when slices are handed out, and when they are joined in the wrong order."""
    found, right, joined = {}, proof.slices_of, Ranks.joined
    proof.slices_of = lambda *arguments: {}
    report = prove_sites(load_encoder(folder, **HOW))
    found["a slice"] = {line.site: line.refusal for line in report.lines if line.refusal and not line.lacking}
    proof.slices_of = right
    Ranks.joined = lambda *arguments: joined(*arguments).flip(-1)
    report = prove_sites(load_encoder(folder, **HOW))
    found["another order"] = {line.site: line.refusal for line in report.lines if line.refusal and not line.lacking}
    Ranks.joined = joined
    return found


def told(work) -> str:
    """The message of the error that ``work`` raises; "" without one."""
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def caches(folder: Path, out: Path) -> dict[str, str]:
    """Caches of files and shards, one after an error in the middle; what each attempt said."""
    said, task = {}, word_task(sizes={"train": 90})
    said["file"] = told(lambda: probekit.cache_activations(folder, task, out=out / "one.h5", tokens=True, **HOW))
    said["again"] = told(lambda: probekit.cache_activations(folder, task, out=out / "one.h5", tokens=True, **HOW))
    said["other"] = told(lambda: probekit.cache_activations(folder, task, out=out / "one.h5", **HOW))
    said["early"] = told(lambda: probekit.cache_activations(folder, task, out=out / "early.h5", layers="1", **HOW))
    encoder = load_encoder(folder, **HOW, sites="z,mlp_act,resid_post")
    encode, calls = encoder.encode, []

    def stumbling(batch, sink, edit=None, **more):
        def give(i, rows):
            calls.append(i)
            if len(calls) == 30:
                raise ValueError("the sink is full")
            sink(i, rows)

        encode(batch, give, edit, **more)

    encoder.encode = stumbling
    shards = {"out": out / "shards", "shard_size": 40, "batch_tokens": 64}
    said["stumbled"] = told(lambda: probekit.cache_activations(encoder, task, **shards))
    encoder.encode = encode
    said["resumed"] = told(lambda: probekit.cache_activations(encoder, task, **shards))
    return said


if __name__ == "__main__":
    out, *folders = map(Path, sys.argv[1:])
    found = {folder.name: sites_of(folder, out) for folder in folders}
    found["planted"] = planted(folders[0])
    found["caches"] = caches(folders[0], out)
    (out / f"found{os.environ['RANK']}.json").write_text(json.dumps(found))
