"""What a process of the benchmark measures: a way's seconds and memory, reading, errors, what the machine can do."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from ways import WAYS, Job, encoder_of, example, joined, on_lanes, stock


def cpu_seconds() -> tuple[float, float]:
    """User and system seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime for u in used), sum(u.ru_stime for u in used)


def memory(field: str) -> float:
    """MB of a field of /proc/self/status (VmRSS now, VmHWM at most); the peak by getrusage elsewhere."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1024)


def pieces(job: Job, texts: list[Any]) -> int:
    """How many word pieces the texts have for the model, special ones counted."""
    from probekit.models.find import resolve_model
    from probekit.models.transformers.tokens import load_tokenizer

    tokenizer = load_tokenizer(resolve_model(job.model))
    return sum(map(len, tokenizer(joined(texts, tokenizer), truncation=True).input_ids))


def time_way(job: Job) -> dict[str, Any]:
    texts = json.loads((Path(job.work) / "texts.json").read_text())[: job.limit]
    run = WAYS[job.way].start(job)
    loaded = memory("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    run(texts[:: max(1, len(texts) // 128)])
    times = []
    for _ in range(job.repeats):
        wall, (user, system) = time.perf_counter(), cpu_seconds()
        run(texts)
        now = cpu_seconds()
        times.append((time.perf_counter() - wall, now[0] - user, now[1] - system))
    return {"times": times, "loaded": loaded, "peak": memory("VmHWM"), "pieces": pieces(job, texts)}


def best(work: Callable[[], Any], times: int) -> float:
    """The shortest of several runs, in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def time_reading(job: Job) -> dict[str, float]:
    """One layer of the token cache, and rows of it, against a copy of as many bytes within memory."""
    import h5py

    from probekit import ActivationCache

    path = Path(job.work) / "tokens.h5"
    with ActivationCache(path) as cache, h5py.File(path) as file:
        mapped, dataset = cache.tokens(3).values, file["/tokens/3"]
        target, source = np.empty_like(mapped), np.array(mapped)
        rows = np.random.default_rng(0).integers(0, len(mapped), 256)
        ways: dict[str, tuple[Callable[[], Any], int]] = {
            "memcpy": (lambda: np.copyto(target, source), 15),
            "map": (lambda: np.copyto(target, mapped), 15),
            "h5py": (lambda: dataset.read_direct(target), 15),
            "rows": (lambda: mapped[rows], 200),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(3):
            for name, (work, times) in ways.items():
                seconds[name].append(best(work, times))
        same = np.array_equal(target.view(np.uint16), source.view(np.uint16))
    return {name: median(s) for name, s in seconds.items()} | {"bytes": mapped.nbytes, "same": same}


def measure_floor(job: Job) -> dict[str, Any]:
    """FLOPs of the model, and what this machine does a CPU second: matrix products, copies, writing."""
    import torch
    from torch import nn
    from transformers import AutoModel

    from probekit.models.transformers.onednn import PrepackedLinear, onednn_available

    encoder = encoder_of(replace(job, dtype="float32"))
    texts = json.loads((Path(job.work) / "texts.json").read_text())
    length = encoder.tokenize([example(t) for t in texts]).length
    model = AutoModel.from_pretrained(job.model)
    linears = [m for name, m in model.named_modules() if isinstance(m, nn.Linear) and "pooler" not in name]
    weights = sum(m.weight.numel() for m in linears)
    flops = 2.0 * weights * int(length.sum()) + 4.0 * encoder.widths[0] * encoder.depth * int((length**2).sum())

    def rate(dtype: torch.dtype, *, prepacked: bool) -> float:
        """FLOP a CPU second of the model's own products, a batch of pieces a time, one thread a lane."""
        inputs = {m.in_features: torch.randn(encoder.batch_tokens, m.in_features, dtype=dtype) for m in linears}
        layers = [
            PrepackedLinear(m.weight.to(dtype), m.bias.to(dtype)) if prepacked
            else nn.Linear(m.in_features, m.out_features, dtype=dtype) for m in linears
        ]  # fmt: skip

        def products(_: int = 0) -> None:
            with torch.inference_mode():
                for layer in layers:
                    layer(inputs[layer.in_features])

        on_lanes(job, products, range(job.threads))
        times, start = job.repeats * 4 * job.threads, sum(cpu_seconds())
        on_lanes(job, products, range(times))
        return 2.0 * encoder.batch_tokens * weights * times / (sum(cpu_seconds()) - start)

    rates = {"torch": rate(torch.float32, prepacked=False)}
    rates |= {
        name: rate(dtype, prepacked=True)
        for name, dtype in [("oneDNN", torch.float32), ("oneDNN bf16", torch.bfloat16)]
        if onednn_available(dtype)
    }
    block, other = np.ones(1 << 26, dtype=np.uint8), np.ones(1 << 26, dtype=np.uint8)
    copy = len(block) / best(lambda: np.copyto(other, block), 5)

    def write() -> None:
        with (Path(job.work) / "disk").open("wb") as file:
            file.write(block)
            os.fdatasync(file.fileno())

    return {"flops": flops, "rates": rates, "memcpy": copy, "disk": len(block) / best(write, 3),
            "pieces": int(length.sum()), "layers": len(encoder.sites), "width": encoder.widths[0],
            "batch": encoder.batch_tokens}  # fmt: skip


def measure_error(job: Job) -> dict[str, float]:
    """How far our packed layers are from the stock forward, one sentence at a time."""
    import torch

    from probekit.activations.writing.plan import batches
    from probekit.models.encoder import Batch

    texts = [example(t) for t in json.loads((Path(job.work) / "texts.json").read_text())[::20]]
    encoder = encoder_of(job)
    _, model = stock(replace(job, dtype="float32"))
    tokens = encoder.tokenize(texts)
    start = np.cumsum(tokens.length) - tokens.length
    order = np.argsort(tokens.length, kind="stable")
    off, size, worst = 0.0, 0.0, 0.0
    for part in batches(tokens.length[order], encoder.batch_tokens, mixed=encoder.mixed_lengths):
        cuts = [slice(start[i], start[i] + tokens.length[i]) for i in order[part]]
        fields = [np.concatenate([a[c] for c in cuts]) for a in (tokens.token_ids, tokens.type_ids)]
        ours: list[Any] = []
        encoder.encode(Batch(*fields, tokens.length[order[part]]), lambda _, h, o=ours: o.append(h.double().clone()))
        with torch.inference_mode():
            right = [
                torch.stack(
                    model(
                        input_ids=torch.from_numpy(tokens.token_ids[c].astype(np.int64))[None],
                        token_type_ids=torch.from_numpy(tokens.type_ids[c].astype(np.int64))[None],
                        output_hidden_states=True,
                    ).hidden_states
                )[:, 0].double()
                for c in cuts
            ]
        truth, found = torch.cat(right, 1), torch.stack(ours)
        off, size = off + (found - truth).square().sum((1, 2)), size + truth.square().sum((1, 2))
        worst = max(worst, float(((found - truth).norm(dim=-1) / truth.norm(dim=-1)).max()))
    return {"layer": float((off / size).sqrt().max()), "vector": worst}


OTHERS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "reading": time_reading, "floor": measure_floor, "error": measure_error, "error-bf16": measure_error,
}  # fmt: skip


def here(job: Job) -> dict[str, Any]:
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(job.threads)
    return (OTHERS.get(job.way) or time_way)(job)
