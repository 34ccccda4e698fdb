"""How many words a second ELMo gets through, beside a straightforward loop over the same cells.

    python benchmarks/elmo.py           the published model's size, random weights, sentences of CoLA; some minutes
    python benchmarks/elmo.py --quick   a tiny model: a look at whether everything runs, not a measurement

"loop" reads batches of 32 sentences as they come, padded; each occurrence of a word goes through the character CNN,
all 50 places of it; every step of an LSTM computes all rows of the batch. The other sides are `probekit
cache-activations` without one thing each: the table of words, the sorting by length, oneDNN; "torch.nn.LSTM" has
torch's own LSTM with a projection in place of our loop (with weights this small no limit is reached, and none of its
work is thrown away). "whole" is the command itself, from text to a file that is on the disk.

Each side runs in a process of its own, on as many lanes of one thread each as there are processors, which is the
fastest for all of them; the sides take turns, and the median round counts. What they give, the mean of each sentence's
words in each layer, is compared. Loading is outside the clock. Rates count words, boundaries and padding left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from cache import SHARED, Goal, show_goals, table
from measures import memory

from probekit.activations import cache_activations
from probekit.activations.writing.plan import batches
from probekit.models import load_encoder
from probekit.models.elmo.characters import BEGIN, END
from probekit.models.elmo.encoder import ElmoEncoder
from probekit.models.elmo.lstm import ProjectedLSTM
from probekit.models.elmo.model import ElmoConfig, ElmoModel
from probekit.models.encoder import Batch, Tokens
from probekit.models.transformers.onednn import onednn_available, prepack
from probekit.tasks import Split, Task, load_task

SIDES = ("loop", "ours", "no table", "no sorting", "no oneDNN", "torch.nn.LSTM", "whole")


@dataclass(frozen=True)
class Job:
    """One side, in a process of its own."""

    side: str
    model: str
    work: str
    data: str | None
    rows: int
    threads: int

    def task(self) -> tuple[Task, str]:
        name, split = ("grammar:acceptability", "train") if self.data is None else ("cola", "train")
        task = load_task(name, data_dir=self.data)
        some = Split(split, task.split(split).examples[: self.rows])
        return Task(task.name, task.kind, {split: some}, task.label_names), split


class Means:
    """Mean vectors of sentences, (layers, sentences, d)."""

    def __init__(self, encoder: ElmoEncoder, sentences: int) -> None:
        self.found = np.zeros((len(encoder.sites), sentences, encoder.widths[0]), np.float32)

    def put(self, layer: int, sentences: np.ndarray, hidden: torch.Tensor, length: np.ndarray) -> None:
        parts = hidden.split(length.tolist())
        self.found[layer, sentences] = torch.stack([part.mean(0) for part in parts]).numpy()


def batch_of(tokens: Tokens, sentences: np.ndarray) -> Batch:
    start = np.cumsum(tokens.length) - tokens.length
    ids = np.concatenate([tokens.token_ids[start[i] : start[i] + tokens.length[i]] for i in sentences])
    return Batch(ids, np.zeros(len(ids), np.uint8), tokens.length[sentences], tokens.characters)


def loop(model: ElmoModel, batch: Batch) -> Iterable[torch.Tensor]:
    """Layers (t, 2 d) of a batch, the straightforward way."""
    assert batch.characters is not None
    length = batch.length + 2
    mask = np.arange(length.max()) < length[:, None]
    characters = np.zeros((*mask.shape, BEGIN.size), np.int64)
    start = np.cumsum(batch.length) - batch.length
    for row, (first, n) in enumerate(zip(start, batch.length, strict=True)):
        characters[row, 0], characters[row, n + 1] = BEGIN, END
        characters[row, 1 : n + 1] = batch.characters[batch.token_ids[first : first + n]]
    net = model.embeddings
    embedded = net.characters(torch.from_numpy(characters)).flatten(2).flatten(0, 1)
    size = net.characters.embedding_dim
    filters = zip(net.widths, net.filters.values(), strict=True)
    read = [linear(embedded.unfold(1, width * size, size)).amax(1) for width, linear in filters]
    vectors = net.projection(net.highways(net.activation(torch.cat(read, -1)))).unflatten(0, mask.shape)
    kept = torch.from_numpy(mask)
    inner = kept.clone()
    inner[:, 0] = False
    inner[torch.arange(len(length)), torch.from_numpy(length - 1)] = False
    hidden = vectors.repeat(1, 1, 2)
    yield hidden[inner]
    for layer in model.layers:
        ways = []
        pairs = zip((layer.forward_lstm, layer.backward_lstm), hidden.chunk(2, -1), (1, -1), strict=True)
        for cell, x, way in pairs:
            h, c, out = x.new_zeros(len(x), x.shape[-1]), x.new_zeros(len(x), cell.cells), torch.zeros_like(x)
            for k in range(mask.shape[1])[::way]:
                i, f, g, o = (cell.input(x[:, k]) + cell.recurrent(h)).chunk(4, -1)
                new_c = (i.sigmoid() * g.tanh() + f.sigmoid() * c).clamp(-cell.cell_clip, cell.cell_clip)
                new_h = cell.projection(o.sigmoid() * new_c.tanh()).clamp(-cell.proj_clip, cell.proj_clip)
                on = kept[:, k, None]
                h, c = torch.where(on, new_h, h), torch.where(on, new_c, c)
                out[:, k] = h
            ways.append(out)
        hidden = torch.cat(ways, -1) + (hidden if layer.skip else 0)
        yield hidden[inner]


def here(job: Job) -> dict[str, Any]:
    """Run one side; returns seconds, and leaves its vectors in ``work``."""
    torch.set_num_threads(1)
    task, split = job.task()
    plain = job.side in ("loop", "no oneDNN", "torch.nn.LSTM")
    encoder = load_encoder(job.model, random_weights=0, device="cpu", onednn=not plain)
    assert isinstance(encoder, ElmoEncoder)
    texts = [e.text for e in task.split(split)]
    tokens = encoder.tokenize(texts)
    means = Means(encoder, len(texts))
    if job.side == "no table":
        encoder.table.capacity = 0
    if job.side == "torch.nn.LSTM":
        for cell in (m for m in encoder.model.modules() if isinstance(m, ProjectedLSTM)):
            cell.fused = True
        by_library = ProjectedLSTM._by_library

        def without_limits(*given: Any) -> Any:
            found = by_library(*given)
            assert found is not None, "a limit was reached"
            return found

        ProjectedLSTM._by_library = without_limits
    before = memory("VmRSS")
    began, cpu = perf_counter(), process_time()
    if job.side == "whole":
        torch.set_num_threads(job.threads)
        with cache_activations(encoder, task, split, out=Path(job.work) / "whole.h5", overwrite=True) as cache:
            means.found = np.stack([cache.layer(i) for i in cache.layers])
    else:
        order = (
            np.arange(len(texts)) if job.side in ("loop", "no sorting") else np.argsort(tokens.length, kind="stable")
        )
        if job.side == "loop":
            parts = [order[i : i + 32] for i in range(0, len(order), 32)]
        elif job.side == "no sorting":
            cut = np.searchsorted(np.cumsum(tokens.length), np.arange(2048, tokens.length.sum(), 2048))
            parts = [part for part in np.split(order, cut) if len(part)]
        else:
            parts = [order[part] for part in batches(tokens.length[order], encoder.batch_tokens, mixed=True)]

        def work(some: np.ndarray) -> None:
            with torch.inference_mode():
                batch = batch_of(tokens, some)
                if job.side == "loop":
                    for layer, hidden in enumerate(loop(encoder.model, batch)):
                        means.put(layer, some, hidden, batch.length)
                else:
                    encoder.encode(batch, lambda layer, hidden: means.put(layer, some, hidden, batch.length))

        with ThreadPoolExecutor(job.threads, initializer=lambda: torch.set_num_threads(1)) as lanes:
            list(lanes.map(work, parts))
    seconds, cpu = perf_counter() - began, process_time() - cpu
    np.save(Path(job.work) / f"{job.side}.npy", means.found)
    return {
        "seconds": seconds, "cpu": cpu, "words": len(tokens.token_ids), "types": len(np.unique(tokens.token_ids)),
        "peak": memory("VmHWM"), "above": memory("VmHWM") - before,
    }  # fmt: skip


def apart(job: Job) -> dict[str, Any]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(job.threads)}
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job))]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.side} failed with status {done.returncode}.")
    return json.loads(done.stdout)


def floor(config: ElmoConfig, words: int, sentences: int, types: int) -> tuple[float, float]:
    """Products that the work asks for, in GFLOP: of the LSTMs for every word and boundary, of the characters once."""
    p, n = config.projection_dim, config.cells
    lstm = 2 * config.num_hidden_layers * (2 * p * 4 * n + n * p)
    total = sum(count for _, count in config.filters)
    places = sum((50 - width + 1) * width * config.char_dim * count for width, count in config.filters)
    return 2e-9 * lstm * (words + 2 * sentences), 2e-9 * (places + config.n_highway * 2 * total**2 + total * p) * types


def speed(threads: int) -> float:
    """GFLOP/s of a large product as oneDNN does it, on all lanes."""
    layer = torch.nn.Sequential(torch.nn.Linear(512, 16384, bias=False))
    if onednn_available(torch.float32):
        prepack(layer)
    x = torch.randn(1024, 512)

    def work(_: int) -> None:
        with torch.inference_mode():
            layer(x)

    with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as lanes:
        list(lanes.map(work, range(2 * threads)))
        began = perf_counter()
        list(lanes.map(work, range(20 * threads)))
    return 20 * threads * 2e-9 * 1024 * 512 * 16384 / (perf_counter() - began)


def main() -> None:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data-dir", default=str(SHARED / "cola"), help="folder of CoLA")
    parser.add_argument("--rows", type=int, default=2000, help="sentences")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="loop and ours are wanted at least")
    parser.add_argument("--threads", type=int, default=threads, help="lanes; all processors by default")
    parser.add_argument("--quick", action="store_true", help="a tiny model, 100 built-in sentences, one round")
    parser.add_argument("--work", type=Path, help="folder for what is written; a temporary one by default")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(here(Job(**json.loads(args.job)))))
        return
    if not args.quick and not Path(args.data_dir).is_dir():
        raise SystemExit(f"skipped: CoLA is not at {args.data_dir}; give --data-dir, or --quick.")
    tiny = {"char_dim": 4, "filters": [[1, 8], [3, 24]], "projection_dim": 32, "cells": 64}
    config = ElmoConfig(**tiny) if args.quick else ElmoConfig()
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in args.sides}
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as work:
        model = Path(work) / "model"
        config.save_pretrained(model)
        (model / "tokenizer_config.json").write_text('{"words": "treebank"}')
        rows, rounds = (100, 1) if args.quick else (args.rows, args.rounds)
        job = Job("", str(model), work, None if args.quick else args.data_dir, rows, args.threads)
        for turn in range(rounds):
            for side in args.sides:
                print(f"round {turn + 1}: {side}", file=sys.stderr, flush=True)
                found[side].append(apart(replace(job, side=side)))
        vectors = {side: np.load(Path(work) / f"{side}.npy") for side in args.sides}
    show(found, vectors, config, rows, args.threads)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def show(
    found: dict[str, list[dict[str, Any]]], vectors: dict[str, np.ndarray], config: ElmoConfig, rows: int, threads: int
) -> None:
    one = found["ours"][0]
    lstm, characters = floor(config, one["words"], rows, one["types"])
    rate = speed(threads)
    print(
        f"{rows:,} sentences, {one['words']:,} words of {one['types']:,} types, {threads} lanes. Floor: {lstm:,.0f} "
        f"GFLOP of the LSTMs and {characters:,.0f} of the character CNN at {rate:,.0f} GFLOP/s: "
        f"{(lstm + characters) / rate:.1f} s."
    )
    base = median(r["seconds"] for r in found["loop"])
    lines = [
        ["side", "seconds", "words/s", "times the loop", "rounds", "floors", "largest difference", "MB above the model"]
    ]
    for side, rounds in found.items():
        seconds = median(r["seconds"] for r in rounds)
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(found["loop"], rounds, strict=True)]
        lines.append(
            [
                side, f"{seconds:.2f}", f"{one['words'] / seconds:,.0f}", f"{base / seconds:.2f}",
                f"{min(ratios):.2f}-{max(ratios):.2f}", f"{seconds * rate / (lstm + characters):.2f}",
                f"{np.abs(vectors[side] - vectors['loop']).max():.1e}", f"{max(r['above'] for r in rounds):,.0f}",
            ]
        )  # fmt: skip
    print(table(lines))
    if config.cells == ElmoConfig().cells:
        show_goals([Goal("ELMo, words/s, ours ÷ loop", base / median(r["seconds"] for r in found["ours"]), least=5.0)])


if __name__ == "__main__":
    main()
