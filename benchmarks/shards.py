"""Caches in shards: what kills, shards and the number of texts cost.

    python benchmarks/shards.py kills --count 200      four workers on one folder, killed at random moments
    python benchmarks/shards.py overhead               shards beside one file, of the same texts
    python benchmarks/shards.py memory 100000 1000000  peak memory of streams of so many texts
    python benchmarks/shards.py one-file 100000 1000000    that of one file, above the texts themselves

*kills*: the parent loads a tiny model, forks four workers, kills one of them at a time with SIGKILL after random times
and forks another, until enough are killed; then the last ones finish. Each round ends when the folder is finished, and
is compared with the folder of one process that was left alone: the bytes of every file, the rows, what was left
behind. In every other round workers cannot ask the system whether a holder lives and wait for their patience, one
second, as they do for another machine. *overhead* takes CPU seconds of whole processes in turns, so that other
programs matter little. *memory* and *one-file* write the texts first, and measure each number in a process of its own;
*one-file* loads the texts, sets the process's peak back, and makes the cache (Linux).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ["SOURCE_DATE_EPOCH"] = "0"
sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "activations")]
WORKERS, A_ROUND = 4, 25
"""Workers at a time, and kills in a round."""


def digests(folder: Path) -> dict[str, str]:
    """Each file of a folder, hidden ones too, and the digest of its bytes."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def in_child(work: Callable[[], object]) -> int:
    """Fork a child that runs ``work``; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(f"worker: {error!r}", file=sys.stderr)
        os._exit(1)


def kills(count: int, seed: int, folder: Path) -> dict[str, Any]:
    """Rounds of four workers, one of whom is killed at a time."""
    import torch
    from tiny import tiny_model
    from toys import toy_task

    from probekit.activations import ActivationCache, cache_activations, verify
    from probekit.activations.writing import leases
    from probekit.models import load_encoder

    torch.set_num_threads(1)
    encoder, task = load_encoder(tiny_model("bert", folder / "model"), device="cpu"), toy_task(1200)
    options: dict[str, Any] = {"shard_size": 50, "tokens": True, "pooling": ["mean", "max"]}

    def make(out: Path, patience: float = 1.0) -> None:
        cache_activations(encoder, task, out=out, patience=patience, **options).close()

    make(folder / "warm")
    shutil.rmtree(folder / "warm")
    os.waitpid(in_child(lambda: make(folder / "alone")), 0)
    truth, rng = digests(folder / "alone"), random.Random(seed)
    out = folder / "many"
    one = partial(make, out)
    report = {"shards": len(truth) - 1, "kills": 0, "rounds": 0, "wrong": 0, "left behind": 0, "failed": 0}
    began = time.monotonic()
    while report["kills"] < count:
        shutil.rmtree(out, ignore_errors=True)
        if report["rounds"] % 2:
            leases.machine = lambda: ""  # nobody can tell from here whether a holder lives
        running = {in_child(one) for _ in range(WORKERS)}
        while running:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended:
                running.discard(ended)
                report["failed"] += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
                continue
            time.sleep(rng.uniform(0, 0.5))
            if (
                report["kills"] < min(count, (report["rounds"] + 1) * A_ROUND)
                and running
                and not (out / "manifest.json").exists()
            ):
                os.kill(victim := rng.choice(sorted(running)), signal.SIGKILL)
                report["kills"] += os.WIFSIGNALED(os.waitpid(victim, 0)[1])  # not if it had just ended
                running.discard(victim)
                running.add(in_child(one))
        make(out)
        found = digests(out)
        report["rounds"] += 1
        report["left behind"] += len(found.keys() - truth.keys())
        with ActivationCache(out) as cache:
            rows = cache.ids.tolist() == [e.id for e in task.split("train")]
        same = {name: found.get(name) for name in truth} == truth
        report["wrong"] += not (same and rows and verify(out).ok)
        print(f"  round {report['rounds']}: {report['kills']} kills so far, {report}", flush=True)
    return report | {"seconds": round(time.monotonic() - began)}


def texts(path: Path, count: int) -> Path:
    """A file of so many different texts of seven words, JSON lines."""
    import numpy as np
    from toys import WORDS

    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for first in range(0, count, 10_000):
            words = rng.integers(0, len(WORDS), (min(10_000, count - first), 6))
            lines = (" ".join(WORDS[k] for k in row) for row in words)
            file.writelines(f'{{"text": "{line} {first + i}"}}\n' for i, line in enumerate(lines))
    return path


def measured(job: dict[str, Any]) -> dict[str, Any]:
    """A call of ``cache_activations`` in a process of its own: CPU seconds of the call, and the peak of its memory."""
    done = subprocess.run(
        [sys.executable, __file__, "job", json.dumps(job)], stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def job(arguments: dict[str, Any]) -> None:
    """What :func:`measured` runs."""
    from probekit.activations import cache_activations
    from probekit.models import load_encoder

    encoder, task, before = load_encoder(arguments.pop("model"), device="cpu"), arguments.pop("task"), 0.0
    if arguments.pop("load", False):
        task = loaded(task)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
    shutil.rmtree(arguments["out"], ignore_errors=True)
    Path(arguments["out"]).unlink(missing_ok=True)
    model = [0.0]
    encode = encoder.encode

    def timed(*args: Any) -> None:
        began = time.thread_time()
        encode(*args)
        model[0] += time.thread_time() - began

    encoder.encode = timed
    began, wall = time.process_time(), time.monotonic()
    cache = cache_activations(encoder, task, arguments.pop("split"), **arguments)
    seconds, peak = time.process_time() - began, resident("VmHWM")
    found = {
        "cpu": seconds,
        "model": model[0],
        "wall": time.monotonic() - wall,
        "peak": peak,
        "pieces": cache.spec["counts"]["pieces"],
    }
    found |= {"size": cache.nbytes} | ({"before": before, "above": peak - before} if before else {})
    print(json.dumps(found))


def loaded(path: str) -> Any:
    """A task with all texts of a file in memory."""
    from probekit.tasks.files.stream import stream_task
    from probekit.tasks.task import Task

    task = stream_task(path)
    part: Any = task.split("train")
    return Task(task.name, task.kind, {"train": part.whole()})


def resident(what: str) -> float:
    """Memory of this process in MB: VmRSS now, VmHWM its peak."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[what].split()[0]) / 1024


def overhead(model: str, count: int, sizes: list[int], rounds: int, folder: Path) -> dict[str, Any]:
    """CPU seconds of shards of several sizes, as a share of those of one file: in all, and outside the model."""
    source = texts(folder / "texts.jsonl", count)
    base = {"model": model, "task": str(source), "split": "train", "out": str(folder / "cache")}
    ratios: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(rounds):
        one = measured(base)
        print(f"  one file: {one}", flush=True)
        for size in sizes:
            many = measured({**base, "shard_size": size})
            more = (many["cpu"] - many["model"]) - (one["cpu"] - one["model"])
            ratios[size].append((many["cpu"] / one["cpu"], more / one["cpu"]))
            print(
                f"  shards of {size:,}: {ratios[size][-1][0]:.3f}, outside the model {more:+.2f} s: {many}", flush=True
            )
    medians = {size: [median(one) for one in zip(*found, strict=True)] for size, found in ratios.items()}
    return {f"shards of {size:,}": {"whole": whole, "outside": more} for size, (whole, more) in medians.items()}


def memory(counts: list[int], how: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Peak memory, in MB, of so many texts, in shards or in one file."""
    from tiny import tiny_model

    model, found = str(tiny_model("bert", folder / "model", num_hidden_layers=1)), {}
    for count in counts:
        source = texts(folder / "texts.jsonl", count)
        options = {"task": str(source), "split": "train", "out": str(folder / "cache"), **how}
        found[f"{count:,}"] = measured({"model": model, **options})
        print(f"  {count:,}: {found[f'{count:,}']}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["kills", "overhead", "memory", "one-file", "job"])
    parser.add_argument("more", nargs="*")
    parser.add_argument("--count", type=int, default=200, help="of kills, or of texts")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shard-size", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "job":
        job(json.loads(options.more[0]))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if options.what == "kills":
            print(json.dumps(kills(options.count, options.seed, folder)))
        elif options.what == "overhead":
            print(json.dumps(overhead(options.model, options.count, options.sizes, options.rounds, folder)))
        else:
            how = {"shard_size": options.shard_size} if options.what == "memory" else {"load": True}
            print(json.dumps(memory([int(x) for x in options.more], how, folder)))


if __name__ == "__main__":
    main()
