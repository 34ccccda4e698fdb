"""Prompts to what a decoder computes while it continues them, beside transformers' ``generate``, in one run.

    python benchmarks/generation.py --make FOLDER    writes a random GPT-2 small and a Llama of 4 layers, width 512
    python benchmarks/generation.py --model FOLDER/llama-4x512 --model FOLDER/gpt2-small
    python benchmarks/generation.py --model FOLDER/llama-4x512 --prompts 8 --new 8 --rounds 1    does everything run?

transformers runs ``generate(output_hidden_states=True, return_dict_in_generate=True)``, greedily, with so many prompts
in a batch (--batch; padded on the left, as they come); the means of the hidden states of each text stay in memory.
probekit writes the pieces and the means to a file. All on one thread; the ways take turns, and a ratio compares two of
the same round. The last lines say whether the pieces are the same, and how far the means are apart.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

Found = tuple[list[list[int]], np.ndarray]
"""The pieces that were written after each prompt, and float32 (layers, n, d) means."""


def prompts(n: int, seed: int = 0) -> list[str]:
    """Texts of 5 to 30 words of MiniLM's vocabulary, each a piece."""
    rng = np.random.default_rng(seed)
    words = ["time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"]
    return [" ".join(rng.choice(words, size=size)) for size in rng.integers(5, 31, size=n)]


def of_transformers(folder: str, new: int, *, batch: int) -> Callable[[list[str]], Found]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"

    def run(texts: list[str]) -> Found:
        written, means = [], []
        for start in range(0, len(texts), batch):
            given = tokenizer(texts[start : start + batch], padding=True, return_tensors="pt")
            mask = given["attention_mask"]
            with torch.inference_mode():
                out = model.generate(
                    **given, max_new_tokens=new, do_sample=False, output_hidden_states=True,
                    return_dict_in_generate=True, pad_token_id=0,
                )  # fmt: skip
            states = [torch.cat(layer, 1) for layer in zip(*out.hidden_states, strict=True)]
            read = torch.cat([mask, mask.new_ones(len(mask), new - 1)], 1)[..., None]
            means.append(torch.stack([(layer * read).sum(1) / read.sum(1) for layer in states]).numpy())
            written += out.sequences[:, mask.shape[1] :].tolist()
        return written, np.concatenate(means, 1)

    return run


def of_probekit(folder: str, new: int, work: str) -> Callable[[list[str]], Found]:
    from probekit import cache_activations
    from probekit.models import load_encoder
    from probekit.tasks.task import Example, Split, Task, TaskKind

    encoder, out = load_encoder(folder, device="cpu"), Path(work) / "cache.h5"

    def run(texts: list[str]) -> Found:
        examples = tuple(Example(str(i), text, label=0) for i, text in enumerate(texts))
        task = Task("benchmark", TaskKind.CLASSIFICATION, {"all": Split("all", examples)}, ("none",))
        how: dict[str, Any] = {"pooling": ["mean-all"], "generate": f"max_new_tokens={new}", "overwrite": True}
        with cache_activations(encoder, task, "all", out=out, **how) as cache:
            layers = [name for name in cache.layers if name != str(encoder.depth)]  # theirs is after the final norm
            means = np.stack([np.array(cache.layer(name)) for name in layers])
            return [pieces.tolist() for pieces in cache.generated_pieces], means

    return run


def compare(folder: str, count: int, new: int, rounds: int, batches: list[int]) -> None:
    """One table of a model."""
    texts = prompts(count)
    with tempfile.TemporaryDirectory() as work:
        ways = {"probekit, to a file": of_probekit(folder, new, work)}
        ways |= {f"transformers, batches of {b}": of_transformers(folder, new, batch=b) for b in batches}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        found: dict[str, Found] = {}
        for run in ways.values():
            run(texts[:2])
        for _ in range(rounds):
            for name, run in ways.items():
                began = time.process_time()
                found[name] = run(texts)
                seconds[name].append(time.process_time() - began)
    ours, *_ = seconds.values()
    print(f"\n{Path(folder).name}: {count} prompts, {new} new pieces each\n\n| way | CPU seconds | times probekit's |")
    print("|---|---|---|")
    for name, times in seconds.items():
        print(f"| {name} | {median(times):.2f} | {median(t / o for t, o in zip(times, ours, strict=True)):.2f} |")
    (pieces, means), *others = found.values()
    for name, (theirs, right) in zip([*found][1:], others, strict=True):
        same = sum(one == other for one, other in zip(pieces, theirs, strict=True))
        rows = [one == other for one, other in zip(pieces, theirs, strict=True)]
        off = np.linalg.norm(means - right, axis=-1) / np.linalg.norm(right, axis=-1)
        print(f"{name}: {same} of {count} continuations are the same; their means differ by {off[:, rows].max():.1e}")


def make(folder: Path) -> None:
    """The models of benchmarks/sites.py, whose tokenizer ends no text and whose generation never ends early."""
    from sites import make as make_models
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_models(folder)
    for path in sorted(folder.iterdir()):
        tokenizer = AutoTokenizer.from_pretrained(path)
        start = [("[CLS]", tokenizer.cls_token_id or 101)]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=start)
        tokenizer.save_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path)
        model.config.eos_token_id = model.generation_config.eos_token_id = None
        model.save_pretrained(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="folder of a decoder with its head")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--new", type=int, default=64, help="new pieces")
    parser.add_argument("--batch", type=int, action="append", help="prompts in a batch of transformers (1, 16, 64)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="write two random decoders and end")
    args = parser.parse_args()
    if args.make:
        make(args.make)
        return
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, one thread, {args.rounds} rounds")
    for folder in args.model:
        compare(folder, args.prompts, args.new, args.rounds, args.batch or [1, 16, 64])


if __name__ == "__main__":
    main()
