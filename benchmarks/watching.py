"""What it costs to score texts with a kept probe, and to watch a model with probes while it writes.

    python benchmarks/watching.py score                a probe of MiniLM on 600 texts, beside transformers: minutes
    python benchmarks/watching.py write                a random Llama of 12 blocks, width 512: two minutes
    python benchmarks/watching.py write --blocks 2 --width 64 --rounds 1      does everything run?

``score``: each way runs in a process of its own, on one thread, once to warm up and then in rounds; CPU seconds are
their median, without loading. Memory is the peak above what the process has once the model is loaded. transformers
reads batches of 64 texts of similar length, padded, or one text at a time, and its last layer is averaged by text.

``write``: generation with and without probes takes turns in one process on one thread; ratios are those of each round,
and their median is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import torch
from measures import memory
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import probekit
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


WAYS = (
    "transformers, padded batches", "apply, layer 6", "apply, layer 2", "apply, layer 6, each piece",
    "transformers, one text at a time", "monitor, layer 6", "monitor, layer 2",
)  # fmt: skip


def drawn(count: int) -> list[str]:
    """Texts of 3 to 120 words, most of them short."""
    known = [
        "time",
        "year",
        "people",
        "way",
        "day",
        "man",
        "thing",
        "woman",
        "life",
        "child",
        "world",
        "school",
        "state",
        "family",
        "student",
        "group",
    ]
    rng = np.random.default_rng(0)
    length = np.clip(rng.lognormal(3, 0.7, size=count), 3, 120).astype(int)
    return [" ".join(rng.choice(known, size=n)) for n in length]


def plain(model: str, batch: int) -> Callable[[Sequence[str]], object]:
    """The means of the last layer, with transformers."""
    from probekit.models.find import resolve_model

    folder = str(resolve_model(model))
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def run(texts: Sequence[str]) -> list[torch.Tensor]:
        texts, found = sorted(texts, key=len), []
        for i in range(0, len(texts), batch):
            given = tokenizer(texts[i : i + batch], padding=True, return_tensors="pt")
            mask = given["attention_mask"][..., None]
            found.append((network(**given).last_hidden_state * mask).sum(1) / mask.sum(1))
        return found

    return run


def ours(model: str, way: str) -> Callable[[Sequence[str]], object]:
    """Scores of a probe of random direction."""
    encoder = probekit.load_encoder(model, device="cpu")
    [probe] = probes_of(1, encoder.width, 1)
    about = {"layer": way.split("layer ")[1][0], "encoder": {**encoder.spec, "pooling": "mean"}}
    probe = Probe(probe.weights, {**probe.card, **about})
    if way.startswith("monitor"):
        return lambda texts: list(probekit.monitor(probe, texts, model=encoder, anyway=True))
    by = "piece" if "piece" in way else "text"
    return lambda texts: probe.score(texts, model=encoder, by=by, anyway=True)


def one(way: str, args: argparse.Namespace) -> None:
    """Print CPU seconds and MB of a way."""
    torch.set_num_threads(1)
    texts, times = drawn(args.texts), []
    apart = way.startswith("transformers")
    run = plain(args.model, 1 if "one text" in way else 64) if apart else ours(args.model, way)
    run(texts[:64])
    loaded = memory("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    for _ in range(args.rounds):
        begin = process_time()
        run(texts)
        times.append(process_time() - begin)
    print(json.dumps([median(times), memory("VmHWM") - loaded]))


def scoring(args: argparse.Namespace) -> None:
    """Print the table of scores of texts."""
    print("| way | CPU seconds | ratio | MB above the model |\n|---|---|---|---|")
    bare = 0.0
    for way in WAYS:
        command = [sys.executable, __file__, "score", "--texts", str(args.texts), "--rounds", str(args.rounds)]
        done = subprocess.run(
            [*command, "--model", args.model, "--way", way], capture_output=True, text=True, check=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        seconds, mb = json.loads(done.stdout.splitlines()[-1])
        bare = seconds if way.startswith("transformers") else bare
        print(f"| {way} | {seconds:.2f} | {seconds / bare:.2f} | {mb:.0f} |", flush=True)


def writing(args: argparse.Namespace) -> None:
    """Print the table of generation."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("score", "write"))
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--way", help="this way alone, in this process")
    args = parser.parse_args()
    if args.what == "write":
        writing(args)
    elif args.way:
        one(args.way, args)
    else:
        scoring(args)


if __name__ == "__main__":
    main()
