"""What fusing steps of a model's blocks gains on a CPU: the packed forward pass with and without, beside its products.

    python benchmarks/fused.py --model minilm --model FOLDER … [--rows 600] [--rounds 12]

The three take turns batch by batch on one thread; ratios are of CPU seconds, medians over the batches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cache import real_texts
from torch.profiler import ProfilerActivity, profile

from probekit.activations.writing.plan import batches
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.transformers import encoder as loading
from probekit.models.transformers.onednn import PrepackedLinear


def packed(encoder: Any, texts: list[str]) -> list[Batch]:
    """The texts sorted by length, in the encoder's batches."""
    tokens = encoder.tokenize(texts)
    order, start = np.argsort(tokens.length, kind="stable"), np.cumsum(tokens.length) - tokens.length
    found = []
    for part in batches(tokens.length[order], encoder.batch_tokens, mixed=encoder.mixed_lengths):
        rows = np.concatenate([np.arange(start[i], start[i] + tokens.length[i]) for i in order[part]])
        found.append(Batch(tokens.token_ids[rows], tokens.type_ids[rows], tokens.length[order[part]]))
    return found


def seconds(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def compare(model: str, texts: list[str], rounds: int) -> None:
    new, fuse = load_encoder(model, device="cpu"), loading.fuse
    loading.fuse = lambda model, run: False
    old = load_encoder(model, device="cpu")
    loading.fuse = fuse
    layers = [m for name, m in old.model.named_modules() if isinstance(m, PrepackedLinear) and "pooler" not in name]
    inputs = {m.in_features: torch.randn(old.batch_tokens, m.in_features) for m in layers}
    given, off = packed(new, texts), 0.0
    for batch in given:
        states = [loading.all_layers(encoder, batch) for encoder in (new, old)]
        off = max(off, loading.relative_error(*states))

    def products(rows: int) -> None:
        with torch.inference_mode():
            for layer in layers:
                layer(inputs[layer.in_features][:rows])

    ratios = []
    for turn in range(rounds):
        for k, batch in enumerate(given):
            ways = {
                "products": lambda: products(len(batch.token_ids)),  # noqa: B023  called in this turn
                "old": lambda: old.encode(batch, lambda i, hidden: None),  # noqa: B023  as above
                "new": lambda: new.encode(batch, lambda i, hidden: None),  # noqa: B023  as above
            }
            order = list(ways) if (turn + k) % 2 else list(ways)[::-1]
            took = {way: seconds(ways[way]) for way in order}
            ratios.append((took["products"] / took["old"], took["products"] / took["new"], took["old"] / took["new"]))
    before, after, gain = np.median(ratios, 0)
    error = 1.25 * np.std(ratios, 0)[2] / len(ratios) ** 0.5
    pieces = sum(len(batch.token_ids) for batch in given)
    print(f"{model}, {pieces:,} pieces: {before:.3f} of the products' speed before, {after:.3f} fused;")
    print(f"  {gain:.3f} times as fast (± {error:.3f}); largest difference of a vector {off:.1e}")
    for name, encoder in (("before", old), ("fused", new)):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for batch in given:
                encoder.encode(batch, lambda i, hidden: None)
        parts = sorted(seen.key_averages(), key=lambda x: -x.self_cpu_time_total)
        whole = sum(x.self_cpu_time_total for x in parts)
        print(f"  {name}: " + ", ".join(f"{x.key} {x.self_cpu_time_total / whole:.1%}" for x in parts[:9]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", action="append", help="folder of a model; may be repeated (default: MiniLM)")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    texts = [text for text in real_texts(4 * args.rows) if isinstance(text, str)][: args.rows]
    for model in args.model or ["minilm"]:
        compare(model, texts, args.rounds)


if __name__ == "__main__":
    main()
