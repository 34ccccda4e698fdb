"""Memory of each GPU that shares a model, from its config.json alone: no weights are read.

    python benchmarks/cards.py                             the shapes of Llama-2-70B
    python benchmarks/cards.py FOLDER/config.json          another decoder's
    python benchmarks/cards.py --measure                   bytes for each word piece of a batch, on this CPU: a minute

The weights are counted by shape: those that transformers' plan of tensor parallelism splits are divided by the number
of GPUs, the others are whole on each. With `--measure`, a Llama of two blocks reads batches of two sizes in processes
of their own; the difference of their peaks, divided by the pieces, is what a piece costs while one GPU computes alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, LlamaConfig

from probekit.models.new import new_encoder

LLAMA = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8}
PIECE = """
import resource, sys
import numpy as np
import torch
from probekit.models import load_encoder
from probekit.models.encoder import Batch
torch.set_num_threads(1)
encoder = load_encoder(sys.argv[1], device="cpu", dtype="bfloat16", onednn=False)
n = int(sys.argv[2])
batch = Batch(np.arange(n) % 900 + 5, np.zeros(n, np.uint8), np.full(n // 128, 128))
encoder.encode(batch, lambda i, rows: None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def per_card(config: object, cards: int) -> tuple[int, int]:
    """Parameters of the model, and those that each of so many GPUs holds."""
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    plan = [re.compile(name.replace(".", r"\.").replace("*", r"\d+") + r"(\.|$)") for name in model.tp_plan]
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    split = sum(size for name, size in sizes.items() if any(part.match(name) for part in plan))
    whole = sum(sizes.values())
    return whole, whole - split + -(-split // cards)


def bytes_of_a_piece(width: int) -> float:
    """Peak bytes for each piece of a batch, in bfloat16, of a Llama with the proportions of the 70B."""
    scale = width / LLAMA["hidden_size"]
    shape = {"model_type": "llama", "num_hidden_layers": 2} | {name: int(size * scale) for name, size in LLAMA.items()}
    shape["num_key_value_heads"] = max(1, int(shape["num_key_value_heads"]))
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as work:
        folder = new_encoder(shape, Path(work) / "model", tokenizer="minilm")
        small, large = (
            float(subprocess.run([sys.executable, "-c", PIECE, str(folder), str(n)], capture_output=True, text=True,
                                 check=True, env=env).stdout.splitlines()[-1])
            for n in (16_384, 65_536)
        )  # fmt: skip
    return (large - small) / 49_152


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", help="config.json; by default the shapes of Llama-2-70B")
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    if args.measure:
        for width in (1024, 2048):
            found = bytes_of_a_piece(width)
            print(f"width {width}: {found:,.0f} bytes a piece, {found / width:.1f} a piece and dimension")
        return
    config = (
        LlamaConfig(**LLAMA, num_hidden_layers=80, vocab_size=32000)
        if args.config is None
        else AutoConfig.from_pretrained(Path(args.config).parent, trust_remote_code=False)
    )
    print("| GPUs | parameters on each | bfloat16, GB | 8 bits, GB |\n|---|---|---|---|")
    for cards in (1, 2, 4, 8):
        whole, own = per_card(config, cards)
        print(f"| {cards} | {own / 1e9:.2f} of {whole / 1e9:.2f} billion | {own * 2 / 1e9:.1f} | {own / 1e9:.1f} |")


if __name__ == "__main__":
    main()
