"""How long loading and caching take, and how much memory, if only low layers are kept.

    python benchmarks/early_exit.py                              a random Llama of 24 blocks, width 1024: five minutes
    python benchmarks/early_exit.py --blocks 4 --texts 8 --rounds 1    does everything run?

The model reads the weights of the blocks up to the last layer that is kept and of one more, and stops after that layer.
Each cache is made in a process of its own, on one thread. CPU seconds are those of loading, whose digests read all
files, and of `cache_activations`; the ways take turns, and the median is shown. Memory is the process's peak. The last
column compares the vectors and the description with those of a model that is loaded whole.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from probekit import ActivationCache
from probekit.models.new import new_encoder

ONE = r"""
import json, re, sys, time
from pathlib import Path
import torch
from probekit import cache_activations
from probekit.models import load_encoder
model, task, layers, out, *whole = sys.argv[1:]
torch.set_num_threads(1)
begin = time.process_time()
encoder = load_encoder(model, device="cpu", last=int(layers) if layers and not whole else None)
loaded = time.process_time()
cache_activations(encoder, task, "train", layers=layers or None, out=out, overwrite=True)
peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024  # not the parent's
print(json.dumps([loaded - begin, time.process_time() - loaded, peak]))
"""


def config(blocks: int, width: int) -> dict[str, object]:
    """A Llama without weights."""
    sizes = {"hidden_size": width, "intermediate_size": 43 * width // 16, "num_attention_heads": width // 64}
    return {"model_type": "llama", **sizes, "num_hidden_layers": blocks}


def texts(count: int, words: int = 40) -> str:
    """A task of texts of so many words, as JSON lines."""
    known = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"]
    rng = np.random.default_rng(0)
    return "\n".join(
        json.dumps({"text": " ".join(rng.choice(known, size=words)), "label": i % 2}) for i in range(count)
    )


def cached(*arguments: str) -> tuple[float, float, float]:
    """CPU seconds of loading and caching, and peak memory in MB, of a cache that is made in a process of its own."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", ONE, *arguments], capture_output=True, text=True, check=True, env=env)
    loading, seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return loading, seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ways = {"all": "", **{str(k): str(k) for k in sorted({args.blocks // 8, args.blocks // 4, args.blocks // 2})}}
    with tempfile.TemporaryDirectory() as work:
        sizes = config(args.blocks, args.width)
        model, task = new_encoder(sizes, Path(work) / "model", tokenizer="minilm"), Path(work) / "task.jsonl"
        task.write_text(texts(args.texts))
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, layers in ways.items():
                found[name].append(cached(str(model), str(task), layers, f"{work}/{name}.h5"))
        print(
            "| `--layers` | loading, CPU s | caching, CPU s | of all | peak memory, MB | the same |\n"
            + "|---" * 6
            + "|"
        )
        for name, runs in found.items():
            whole = f"{work}/whole-{name}.h5"
            cached(str(model), str(task), ways[name], whole, "whole")
            with ActivationCache(Path(work) / f"{name}.h5") as cache, ActivationCache(whole) as other:
                same = cache.spec == other.spec and cache.spec_id == other.spec_id
                same &= all(np.array_equal(cache.layer(layer), other.layer(layer)) for layer in cache.layers)
            ratio = median(one[1] / every[1] for one, every in zip(runs, found["all"], strict=True))
            loading, seconds, peak = (median(column) for column in zip(*runs, strict=True))
            cells = [f"{loading:.1f}", f"{seconds:.1f}", f"{ratio:.2f}", f"{peak:,.0f}", "yes" if same else "NO"]
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
