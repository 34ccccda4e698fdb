"""How long caching takes, and how much memory, if only low layers are kept: the model stops after the last of them.

    python benchmarks/early_exit.py                              a random Llama of 24 blocks, width 512: three minutes
    python benchmarks/early_exit.py --blocks 4 --texts 8 --rounds 1    does everything run?

Each cache is made in a process of its own, on one thread. The CPU seconds are those of `cache_activations` with a model
that is loaded; the ways take turns, and the median is shown. Memory is the process's peak, with the model. The last
column compares the vectors with those of the whole run, bit by bit.
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

ONE = """
import json, resource, sys, time
import torch
from probekit import cache_activations
from probekit.models import load_encoder
model, task, layers, out = sys.argv[1:]
torch.set_num_threads(1)
encoder = load_encoder(model, device="cpu")
begin = time.process_time()
cache_activations(encoder, task, "train", layers=layers or None, out=out, overwrite=True)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([time.process_time() - begin, peak]))
"""


def config(blocks: int) -> dict[str, object]:
    """A Llama without weights."""
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8, "num_hidden_layers": blocks}
    return {"model_type": "llama", **sizes}


def texts(count: int, words: int = 40) -> str:
    """A task of texts of so many words, as JSON lines."""
    known = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"]
    rng = np.random.default_rng(0)
    return "\n".join(
        json.dumps({"text": " ".join(rng.choice(known, size=words)), "label": i % 2}) for i in range(count)
    )


def cached(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of a cache that is made in a process of its own."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", ONE, *arguments], capture_output=True, text=True, check=True, env=env)
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ways = {"all": "", **{str(k): str(k) for k in sorted({args.blocks // 8, args.blocks // 4, args.blocks // 2})}}
    with tempfile.TemporaryDirectory() as work:
        model, task = (
            new_encoder(config(args.blocks), Path(work) / "model", tokenizer="minilm"),
            Path(work) / "task.jsonl",
        )
        task.write_text(texts(args.texts))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, layers in ways.items():
                found[name].append(cached(str(model), str(task), layers, f"{work}/{name}.h5"))
        whole = ActivationCache(Path(work) / "all.h5")
        print("| `--layers` | CPU seconds | of all | peak memory, MB | the same bits |\n|---|---|---|---|---|")
        for name, runs in found.items():
            cache = ActivationCache(Path(work) / f"{name}.h5")
            same = all(np.array_equal(cache.layer(layer), whole.layer(layer)) for layer in cache.layers)
            ratio = median(one / every for (one, _), (every, _) in zip(runs, found["all"], strict=True))
            seconds, peak = median(run[0] for run in runs), median(run[1] for run in runs)
            print(f"| {name} | {seconds:.1f} | {ratio:.2f} | {peak:,.0f} | {'yes' if same else 'NO'} |")


if __name__ == "__main__":
    main()
