"""How fast a small language model trains, beside a plain transformers loop, and its perplexity beside an n-gram model.

    python benchmarks/language_models.py --threads 1           pieces per second
    python benchmarks/language_models.py --run models/mini     perplexity of a run of probekit pretrain, and of a 5-gram
    python benchmarks/language_models.py --small               a look at whether everything runs, not a measurement

The plain loop is transformers' own GPT2LMHeadModel with its own loss, AdamW and gradient clipping; ours is what
`probekit pretrain` runs. All sides have the model of the shipped configuration gpt2-mini with the same initial weights,
the same batches of random pieces, rates and number of threads, in one process in which they take turns; the fastest of
the rounds counts. Random pieces cost what text costs. The first side has GPT-2's own dropout and GELU, so its losses
differ. Peak memory is that of a process with one side only. The floor is the time of the matrix products of a step
alone (forward, and two backward), with the fastest kernels that we know of.

The n-gram model is an interpolated modified Kneser-Ney 5-gram over the same pieces of the same text as the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cache import table
from feature_extraction import clocks
from kneser_ney import KneserNey
from measures import memory
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from probekit.adaptation.pretraining.language_model import Objective, config_values, use_fast_kernels
from probekit.adaptation.pretraining.loop import BETAS, groups
from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.pretraining.text import open_text, to_pieces
from probekit.models.transformers.onednn import onednn_linear
from probekit.runtime import Dtype

VOCABULARY, CONTEXT, BATCH = 8000, 256, 16
STOCK = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "activation_function": "gelu_new"}
"""GPT-2's settings, which gpt2-mini changes."""
SIDES = {
    "transformers, float32, GPT-2's dropout and GELU": ("stock", False),
    "transformers, float32": ("plain", False),
    "probekit, float32": ("ours", False),
    "transformers, bfloat16": ("plain", True),
    "probekit, bfloat16": ("ours", True),
}
PLAIN = "transformers, float32"


def make_side(name: str, small: bool) -> Callable[[int], float]:
    """The steps of one side: a function from the number of a step to its loss."""
    kind, bfloat16 = SIDES[name]
    values = config_values("gpt2-mini") | ({"n_embd": 32, "n_layer": 2} if small else {})
    values |= STOCK if kind == "stock" else {}
    config = AutoConfig.for_model(
        values.pop("model_type"), vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **values
    )
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config).train()
    objective = Objective(LanguageModelling.CAUSAL_LM, VOCABULARY, separable=True)
    if kind == "ours":
        use_fast_kernels(model, Dtype.BFLOAT16 if bfloat16 else Dtype.FLOAT32, CONTEXT)
    optimizer = torch.optim.AdamW(groups(model, 0.1), lr=1e-3, betas=BETAS, fused=True if kind == "ours" else None)

    def step(number: int) -> float:
        draw = torch.Generator().manual_seed(number)
        blocks = torch.randint(VOCABULARY, (2 if small else BATCH, CONTEXT), generator=draw)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = objective.loss(model, blocks, 0) if kind == "ours" else model(input_ids=blocks, labels=blocks).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def floor(bfloat16: bool) -> float:
    """CPU seconds of the matrix products of a step, without anything else."""
    dtype, rows = (torch.bfloat16 if bfloat16 else torch.float32), BATCH * CONTEXT
    shapes = [*[(256, 768), (256, 256), (256, 1024), (1024, 256)] * 4, (256, VOCABULARY)]
    tensors = [
        (torch.randn(rows, a).to(dtype), torch.randn(b, a).to(dtype), torch.randn(rows, b).to(dtype))
        for a, b in shapes[:4]
    ]
    tensors = tensors * 4 + [
        (
            torch.randn(rows, 256).to(dtype),
            torch.randn(VOCABULARY, 256).to(dtype),
            torch.randn(rows, VOCABULARY).to(dtype),
        )
    ]
    turned = [(x, w, g, w.T.contiguous(), g.T.contiguous(), x.T.contiguous()) for x, w, g in tensors]
    best = float("inf")
    for _ in range(4):
        began = time.process_time()
        for x, w, g, w_turned, g_turned, x_turned in turned:
            onednn_linear(x, w)
            onednn_linear(g, w_turned)
            onednn_linear(g_turned, x_turned)
        best = min(best, time.process_time() - began)
    return best


def speeds(names: list[str], rounds: int, steps: int, small: bool) -> dict[str, Any]:
    """Pieces per second of each side, losses and peak memory."""
    sides = {name: make_side(name, small) for name in names}
    found: dict[str, Any] = {name: {"cpu": [], "wall": [], "losses": [side(0)]} for name, side in sides.items()}
    for turn in range(rounds):
        for name, side in sides.items():
            wall, cpu = clocks()
            found[name]["losses"] += [side(1 + turn * steps + i) for i in range(steps)]
            now = clocks()
            found[name]["wall"].append(now[0] - wall)
            found[name]["cpu"].append(now[1] - cpu)
    pieces = steps * (2 if small else BATCH) * CONTEXT
    for name, one in found.items():
        one["pieces_per_second"] = {clock: pieces / min(one[clock]) for clock in ("cpu", "wall")}
        own = [sys.executable, __file__, "--memory-of", name, "--threads", str(torch.get_num_threads())]
        done = subprocess.run([*own, *(["--small"] if small else [])], capture_output=True, text=True, check=True)
        one["megabytes"] = float(done.stdout.split()[-1])
    return found


def show_speeds(found: dict[str, Any], small: bool) -> None:
    plain = found[PLAIN]
    floors = {False: 0.0, True: 0.0} if small else {bfloat16: floor(bfloat16) for bfloat16 in (False, True)}
    rows = [["side", "pieces/CPU-s", "÷ plain", "pieces/s", "share of the floor", "largest difference of a loss", "MB"]]
    for name, one in found.items():
        speed, base = one["pieces_per_second"], plain["pieces_per_second"]
        difference = np.abs(np.subtract(one["losses"], plain["losses"])).max()
        share = floors[SIDES[name][1]] * speed["cpu"] / (BATCH * CONTEXT)
        rows.append([
            name, f"{speed['cpu']:,.0f}", f"{speed['cpu'] / base['cpu']:.2f}", f"{speed['wall']:,.0f}",
            "" if small else f"{share:.0%}", f"{difference:.1e}", f"{one['megabytes']:,.0f}",
        ])  # fmt: skip
    print(table(rows))


def perplexities(run: Path) -> dict[str, Any]:
    """Perplexity and bits per byte of a run and of a 5-gram of the same pieces, on the run's held-out text."""
    card = json.loads((run / "probekit.json").read_text())
    arguments = card["recipe"]["arguments"]
    tokenizer = AutoTokenizer.from_pretrained(run)
    texts = [open_text(Path(file)) for file in arguments["text"]]
    dev = [open_text(Path(file)) for file in arguments.get("dev") or ()]
    if not dev:
        share = card["identity"]["validation"]
        texts, dev = zip(*(text.divide(share) for text in texts), strict=True)
    pieces, held = to_pieces(tokenizer, texts), to_pieces(tokenizer, dev)
    found: dict[str, Any] = {}
    for order in (3, 5):
        nats = -np.log(KneserNey(pieces.ids, len(tokenizer), order).probabilities(held.ids)[1:])
        found[f"Kneser-Ney {order}-gram"] = {
            "perplexity": float(np.exp(nats.mean())), "bits-per-byte": float(nats.sum() / np.log(2) / held.bytes)
        }  # fmt: skip
    sequences = len(pieces.ids) // card["identity"]["context"]
    epochs = card["step"] * card["identity"]["batch_size"] / sequences
    name = f"{card['model']}, {card['parameters']:,} weights, {epochs:.2f} epochs"
    found[name] = {key: card["metrics"][key] for key in ("perplexity", "bits-per-byte")}
    rows = [["model", "perplexity per piece", "bits per byte"]]
    rows += [[key, f"{one['perplexity']:.2f}", f"{one['bits-per-byte']:.4f}"] for key, one in found.items()]
    print(f"{len(pieces.ids):,} pieces to learn from, {len(held.ids):,} held out\n")
    print(table(rows))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run of probekit pretrain: perplexities instead of speeds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sides", default="", help="a part of the names of the sides to run, beside the plain loop")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.memory_of:
        side = make_side(given.memory_of, given.small)
        for number in range(3):
            side(number)
        print(memory("VmHWM"))
        return
    if given.run:
        found = perplexities(given.run)
    else:
        names = [name for name in SIDES if given.sides in name or name == PLAIN]
        found = speeds(names, 1 if given.small else given.rounds, 1 if given.small else given.steps, given.small)
        show_speeds(found, given.small)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
