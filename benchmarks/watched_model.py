"""Do probes that watch a model while it writes give the scores of reading the finished text again?

    python benchmarks/watched_model.py --text Dracula.txt --other wiki.valid.tokens
    python benchmarks/watched_model.py … --run models/tiny     a model that it has pretrained before

A Llama of 4 blocks, width 128, is pretrained on both texts (a few CPU minutes), and monitors learn, from pieces of
passages, which of the two a passage is from. It then goes on from the beginnings of passages that no probe was fitted
on, in each way that a user may ask for. The second table is about alarms: calibrated on passages of the second text,
how many further passages they would stop, and how many continuations of them and of the first text.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import probekit
from probekit.models.encoder import Batch
from probekit.monitors import Probe
from probekit.monitors.alarm import highest
from probekit.probes.solvers.scores import Score

SHAPE = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 384, "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip
WORDS, PROMPT, NEW = 40, 12, 40
RULES = ("max", "mean", "ema:0.9", "rolling:10", "cusum:1")


def passages(path: Path) -> list[str]:
    """Passages of 40 words of running text."""
    words = path.read_text(encoding="utf-8").split()
    return [" ".join(words[i : i + WORDS]) for i in range(0, len(words) - WORDS, WORDS)]


def pretrained(text: Path, other: Path, folder: Path) -> Path:
    """The folder of a small language model of both texts."""
    (folder / "config.json").write_text(json.dumps(SHAPE))
    run = probekit.pretrain(
        [text, other], folder / "model", config=str(folder / "config.json"), tokenizer="train:4000", context=128,
        epochs=2.0, learning_rate=2e-3,
    )  # fmt: skip
    print(f"{run.card['parameters']:,} weights; perplexity {run.metrics['perplexity']:.0f} a piece of held-out text\n")
    return Path(run.path)


def monitors(model: Path, parts: Sequence[list[str]], folder: Path) -> tuple[Probe, ...]:
    """Probes of each layer, fitted on 600 passages of both texts and evaluated on 400."""
    of: dict[str, list[probekit.Example]] = {"train": [], "dev": []}
    for y in (0, 1):
        for i, text in enumerate(parts[y]):
            of["dev" if i % 5 > 2 else "train"].append(probekit.Example(f"{y}-{i}", text, y))
    splits = {name: probekit.Split(name, tuple(those)) for name, those in of.items()}
    task = probekit.Task("texts", "classification", splits, ("second", "first"))
    caches = [
        probekit.cache_activations(model, task, split, tokens=True, out=folder / f"{split}.h5", device="cpu")
        for split in splits
    ]
    probekit.probe(*caches, estimator="monitor", controls=0, keep=folder / "kept", resamples=0)
    return probekit.monitors.load_probes(folder / "kept")


def ways(prompts: list[str], tokenizer: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """What is asked of generate, and the prompts."""
    alone = tokenizer(prompts[0], return_tensors="pt")
    several = tokenizer(prompts, return_tensors="pt", padding=True)
    greedy, sampled = {"do_sample": False}, {"do_sample": True}
    yield "greedy, one text", greedy, alone
    yield "sampled, one text", sampled, alone
    yield "three texts of a prompt", sampled | {"num_return_sequences": 3}, alone
    yield "8 prompts, padded on the left", sampled, several
    yield "8 prompts, three texts each", sampled | {"num_return_sequences": 3}, several
    yield "without a cache", greedy | {"use_cache": False}, several
    yield "the prompt in parts of 5 pieces", sampled | {"prefill_chunk_size": 5}, several
    yield "a static cache", greedy | {"cache_implementation": "static"}, several


def largest_difference(
    watch: Any, out: torch.Tensor, given: Any, probes: Sequence[Probe], encoder: Any
) -> tuple[float, int]:
    """Between scores while writing and those of reading again, relative to their standard deviation; and the pieces."""
    worst, pieces, times = 0.0, 0, len(out) // len(given["input_ids"])
    for row, ids in enumerate(out):
        begin = int((given["attention_mask"][row // times] == 0).sum())
        own = ids[begin:-1]
        batch, states = Batch(own.numpy(), np.zeros(len(own), np.uint8), np.array([len(own)])), {}
        encoder.encode(batch, lambda i, x, to=states: to.__setitem__(str(encoder.sites[i]), x.clone().numpy()))
        for probe, scores in zip(probes, watch.scores, strict=True):
            right = probe.weights.of_pieces(states[probe.layer])[:, 0]
            seen = scores[row, begin:]
            assert np.isnan(scores[row, :begin]).all()
            kept = ~np.isnan(seen)
            pieces += int(kept.sum()) if probe is probes[0] else 0
            worst = max(worst, float(abs(seen - right)[kept].max() / right.std()))
    return worst, pieces


def exactness(model: Any, tokenizer: Any, probes: Sequence[Probe], prompts: list[str], encoder: Any) -> None:
    """Print the first table."""
    print("| way | pieces | largest difference |\n|---|---|---|")
    for name, options, given in ways(prompts, tokenizer):
        torch.manual_seed(0)
        with probes[0].attach(model, *probes[1:]) as watch:
            out = model.generate(**given, max_new_tokens=NEW, stopping_criteria=[watch], **options)
        worst, pieces = largest_difference(watch, out, given, probes, encoder)
        print(f"| {name} | {pieces:,} | {worst:.1e} |", flush=True)


def alarms(model: Any, tokenizer: Any, probe: Probe, parts: Sequence[list[str]], encoder: Any) -> None:
    """Print the second table: of further passages, and of continuations of both texts."""
    harmless, further = parts[0][:300], parts[0][300:600]
    print("\n| rule | stated | further passages | continuations of them | continuations of the first text |")
    print("|---|---|---|---|---|")
    said = probe.score(further, model=encoder, by="piece")
    length = said.groupby("id", sort=False).size().to_numpy()
    for rule in RULES:
        alarm = probe.alarm(harmless, rule=rule, rate=0.05, model=encoder)
        share = (highest(Score.parse(rule), said["score"].to_numpy(), length) > alarm.threshold).mean()
        stopped = []
        for texts in (further, parts[1][:300]):
            beginnings = [" ".join(text.split()[:PROMPT]) for text in texts]
            given = tokenizer(beginnings, return_tensors="pt", padding=True)
            torch.manual_seed(0)
            with probe.attach(model, alarm=alarm) as watch:
                model.generate(**given, max_new_tokens=NEW, do_sample=True, stopping_criteria=[watch])
            stopped.append(watch.stopped.mean())
        interval = f"{alarm.rate:.0%} [{alarm.low:.1%}, {alarm.high:.1%}]"
        print(f"| `{rule}` | {interval} | {share:.1%} | {stopped[0]:.1%} | {stopped[1]:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="the model of an earlier call")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = args.run or pretrained(args.text, args.other, folder)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
        tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.pad_token or tokenizer.eos_token
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        every = [passages(args.other), passages(args.text)]
        fitted, rest = [part[:500] for part in every], [part[500:1100] for part in every]
        probes = monitors(path, fitted, folder)
        encoder = probekit.load_encoder(path, device="cpu")
        beginnings = [" ".join(text.split()[: 3 + k]) for k, text in enumerate([*rest[0][:4], *rest[1][:4]])]
        exactness(model, tokenizer, probes, beginnings, encoder)
        alarms(model, tokenizer, probekit.load_probe(folder / "kept"), rest, encoder)


if __name__ == "__main__":
    main()
