"""What it costs to watch a model with probes while it writes: CPU seconds beside the same generation without them.

    python benchmarks/watching.py                      a random Llama of 12 blocks, width 512: two minutes
    python benchmarks/watching.py --blocks 2 --width 64 --rounds 1      does everything run?

Both ways take turns in one process on one thread; ratios are those of each round, and their median is shown.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import process_time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from probekit.monitors import Alarm, Probe
from probekit.probes.kept import Weights


def probes_of(count: int, width: int, blocks: int) -> list[Probe]:
    """Probes of random directions, spread over the layers."""
    rng, found = np.random.default_rng(0), []
    for k in range(count):
        arrays = {"mean": rng.standard_normal(width), "weight": rng.standard_normal((1, width)), "bias": np.zeros(1)}
        card = {"layer": str(1 + k % blocks), "estimator": "logistic", "kind": "classification", "classes": ["a", "b"]}
        weights = Weights("linear", {name: array.astype(np.float32) for name, array in arrays.items()})
        found.append(Probe(weights, card | {"encoder": {"model": "random"}, "train": {"task": "none"}}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": args.width, "intermediate_size": 3 * args.width, "num_attention_heads": 8}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=args.blocks, vocab_size=4000)).eval()
    model.generation_config.eos_token_id = None
    how = {"max_new_tokens": args.new, "do_sample": False, "pad_token_id": 0}
    print("| texts | probes | CPU seconds without | with | ratio |\n|---|---|---|---|---|")
    for texts in (1, 8):
        ids = torch.randint(5, 4000, (texts, 32), generator=torch.Generator().manual_seed(1))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        for count in (1, 8):
            probes, times = probes_of(count, args.width, args.blocks), []
            alarm = Alarm("rolling:10", 1e9)
            model.generate(**inputs, **how)
            for _ in range(args.rounds):
                begin = process_time()
                model.generate(**inputs, **how)
                middle = process_time()
                with probes[0].attach(model, *probes[1:], alarm=alarm) as watch:
                    model.generate(**inputs, **how, stopping_criteria=[watch])
                times.append((middle - begin, process_time() - middle))
            without, watched = (median(part) for part in zip(*times, strict=True))
            ratio = median(b / a for a, b in times)
            print(f"| {texts} | {count} | {without:.2f} | {watched:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
