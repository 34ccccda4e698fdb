"""Structural probes by probekit beside the loop of their authors, on the same vectors of one layer.

    python benchmarks/structural.py ud.train.h5 ud.dev.h5 [--layer 3] [--ranks 64,384] [--epochs 30] [--share 1.0]

The loop is written after Hewitt & Manning's code (github.com/john-hewitt/structural-probes, task.py, probe.py, loss.py,
regimen.py), which is not copied: batches of 20 padded sentences in a new order each epoch, the differences of all pairs
of words, the L1 loss, Adam with a learning rate of 0.001, a tenth of it after each epoch without a lower loss on dev,
at most 30 epochs, stopped 5 epochs after the best. Its best epoch is chosen on dev, ours on a tenth of train. Only
distances are fitted; both sides are scored by the same code on dev. Each fit has a process of its own with one thread;
reading and scoring are not timed. CPU seconds count, because neighbours can slow the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measures import memory
from torch.nn.utils.rnn import pad_sequence

from probekit.activations import ActivationCache
from probekit.analyses.structural.trees import Treebank, treebank
from probekit.probes.trees.fit import StructuralProbe, Trees, fit, predict
from probekit.probes.trees.gold import distances, sentences
from probekit.probes.trees.options import StructuralOptions
from probekit.probes.trees.scores import uuas_counts

BATCH, PATIENCE, LEAST = 20, 4, 1e-4
"""Sentences in a batch; epochs after the best one before the loop stops; how much lower a loss must be to be better."""

Sentence = tuple[torch.Tensor, torch.Tensor]
"""Vectors (n, d) and distances (n, n)."""


def batches(data: list[Sentence], order: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Padded vectors (b, n, d), distances (b, n, n), padded by -1, and lengths (b,)."""
    for at in range(0, len(order), BATCH):
        some = [data[i] for i in order[at : at + BATCH]]
        length = torch.tensor([len(x) for x, _ in some])
        gold = torch.full((len(some), int(length.max()), int(length.max())), -1.0)
        for one, (_, its) in zip(gold, some, strict=True):
            one[: len(its), : len(its)] = its
        yield pad_sequence([x for x, _ in some], batch_first=True), gold, length


def mean_loss(x: torch.Tensor, gold: torch.Tensor, length: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """The authors' loss of a batch: all differences (b, n, n, k), squared and summed."""
    z = (x @ projection).unsqueeze(2).expand(-1, -1, x.shape[1], -1)
    predicted = (z - z.transpose(1, 2)).pow(2).sum(-1)
    there = (gold != -1).float()
    error = (predicted * there - gold * there).abs().sum((1, 2))
    return (error / length.float() ** 2).sum() / len(length)


def authors(train: list[Sentence], dev: list[Sentence], rank: int, epochs: int) -> tuple[np.ndarray, int]:
    """The projection of their best epoch, and the number of epochs."""
    torch.manual_seed(0)
    projection = torch.nn.Parameter(torch.empty(train[0][0].shape[1], rank).uniform_(-0.05, 0.05))
    adam = torch.optim.Adam([projection], lr=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, mode="min", factor=0.1, patience=0)
    best, best_epoch, kept = float("inf"), -1, projection.detach().clone()
    rng, epoch = np.random.default_rng(0), 0
    for epoch in range(epochs):
        for batch in batches(train, rng.permutation(len(train))):
            adam.zero_grad()
            mean_loss(*batch, projection).backward()
            adam.step()
        with torch.no_grad():
            every = [(float(mean_loss(*one, projection)), len(one[2])) for one in batches(dev, np.arange(len(dev)))]
        loss = sum(mean * count for mean, count in every)
        plateau.step(loss)
        if loss / len(dev) < best - LEAST:
            best, best_epoch, kept = loss / len(dev), epoch, projection.detach().clone()
        elif best_epoch < epoch - PATIENCE:
            break
    return kept.numpy(), epoch + 1


def banks(args: argparse.Namespace) -> list[tuple[Treebank, np.ndarray]]:
    """Trees and vectors of train and dev; of train the first sentences, as many as ``--share`` says."""
    found = []
    for path, share in ((args.train, args.share), (args.dev, 1.0)):
        with ActivationCache(path) as cache:
            bank = treebank(cache)
            x, kept = bank.layers[args.layer](), round(share * len(bank.length))
        words = int(bank.length[:kept].sum())
        found.append((replace(bank, length=bank.length[:kept], heads=bank.heads[:words]), x[:words]))
    return found


def side(args: argparse.Namespace) -> dict[str, Any]:
    """One fit: its seconds, memory beyond the vectors, epochs and UUAS."""
    torch.set_num_threads(1)
    (train, x), (dev, x_dev) = banks(args)
    gold = [[distances(bank.heads[rows]) for rows in sentences(bank.length)] for bank in (train, dev)]
    fit(x_dev[: int(dev.length[:40].sum())], Trees(dev.length[:40], gold[1][:40]), [2])  # imports and kernels
    rank, centre = min(args.rank, x.shape[1]), np.zeros(x.shape[1], np.float32)
    its = [
        [(torch.from_numpy(v[rows]), torch.from_numpy(d).float())
         for rows, d in zip(sentences(bank.length), one, strict=True)]
        for bank, v, one in zip((train, dev), (x, x_dev), gold, strict=True)
    ] if args.side == "authors" else []  # fmt: skip
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    if args.side == "authors":
        projection, epochs = authors(its[0], its[1], rank, args.epochs)
        probe = StructuralProbe(projection, "distance", centre)
    else:
        (probe,) = fit(x, Trees(train.length, gold[0]), [rank])
        epochs = StructuralOptions().epochs
    used = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "peak": memory("VmHWM") - before}
    counted = [dev.counted[rows] for rows in sentences(dev.length)]
    said = predict(probe, x_dev, dev.length)
    hits, total = np.sum([uuas_counts(*one) for one in zip(said, gold[1], counted, strict=True)], 0)
    return {**used, "epochs": epochs, "uuas": hits / total, "sentences": len(train.length), "words": len(x)}


def processor() -> str:
    """The name of the processor, as the system says it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="cache of ud-relations to fit on")
    parser.add_argument("dev", help="cache to evaluate on")
    parser.add_argument("--layer", default="3")
    parser.add_argument("--ranks", default="64,384", help="a rank above the width is the width")
    parser.add_argument("--epochs", type=int, default=30, help="of the authors' loop, at most")
    parser.add_argument("--share", type=float, default=1.0, help="of the sentences of train, on both sides")
    parser.add_argument("--json", type=Path, help="write the numbers")
    parser.add_argument("--side", choices=("probekit", "authors"), help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(side(args)))
        return
    found: dict[str, dict[str, Any]] = {}
    print(f"{processor()}, one thread, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}; layer {args.layer}")
    print("| rank | side | CPU s | wall s | peak MB | epochs | UUAS on dev |\n|---|---|---|---|---|---|---|")
    for rank in map(int, args.ranks.split(",")):
        for name in ("probekit", "authors"):
            command = [sys.executable, __file__, *sys.argv[1:], "--side", name, "--rank", str(rank)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
            one = found[f"{rank}, {name}"] = json.loads(done.stdout.splitlines()[-1])
            print(f"| {rank} | {name} | {one['cpu']:.1f} | {one['wall']:.1f} | {one['peak']:.0f} | {one['epochs']} | "
                  f"{one['uuas']:.4f} |", flush=True)  # fmt: skip
        ours, theirs = (found[f"{rank}, {name}"] for name in ("probekit", "authors"))
        print(f"rank {rank}: {theirs['cpu'] / ours['cpu']:.1f} times the CPU time, {theirs['wall'] / ours['wall']:.1f} "
              f"times the wall, UUAS {ours['uuas'] - theirs['uuas']:+.4f}; {ours['sentences']:,} sentences, "
              f"{ours['words']:,} words", flush=True)  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
