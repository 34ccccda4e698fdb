"""Ten tasks by one suite, beside a loop of transformers and scikit-learn: the same sentences, layers, probes, controls.

    python benchmarks/suite.py --data-dir DATA                      the ten sentence tasks made from a UD treebank
    python benchmarks/suite.py --data-dir DATA --limit 500 --json out.json
    python benchmarks/suite.py --tasks grammar:sentiment,grammar:acceptability --limit 60      does it run?

Ours is ``probekit suite run`` as a process of its own: it starts, reads the tasks, caches all of their sentences, fits,
evaluates with intervals and p-values, and writes rows, figure, table and page. Theirs is what people write: for each
task a forward pass over its sentences in padded batches of 32 in the order of the file, the mean of the pieces of each
layer, and on each layer, for gold and shuffled labels, StandardScaler and LogisticRegression for each C, chosen on the
same held-out share of train, fitted again and evaluated on dev; no intervals, no p-values, no files. It is given the
texts and labels that ours reads. Each runs on one thread. ``--sets 1`` lets the loop fit gold labels only and counts
its fits as often as there are label sets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measures import cpu_seconds, memory

SENTENCES = [
    *("sentence-length", "word-content", "tree-depth", "bigram-shift", "past-present", "subj-number", "obj-number"),
    *("odd-man-out", "coordination-inversion"),
]
TASKS = [*(f"treebank:{name}:en_ewt" for name in SENTENCES), "trec-6"]
CS = [1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0]
HELD_OUT, BATCH, GOAL = 0.2, 32, 20.0
SUITE = """title = "Benchmark"
of = ["pretrained"]
limit = {limit}
limit_dev = {limit}
[[tasks]]
group = "all"
tasks = {tasks}
options = {{ controls = {controls}, held-out = {held_out}, penalties = {Cs} }}
"""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def loop(job: dict[str, Any]) -> dict[str, Any]:
    """The loop over the tasks: seconds in the model and in the probes, and the accuracy of each layer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    began, used = time.perf_counter(), sum(cpu_seconds())
    found, inside = {}, {"model": 0.0, "probes": 0.0}
    for name, splits in job["tasks"].items():
        at = time.perf_counter()
        tokenizer, model = AutoTokenizer.from_pretrained(job["model"]), AutoModel.from_pretrained(job["model"]).eval()
        vectors = {split: _vectors(model, tokenizer, texts) for split, (texts, _) in splits.items()}
        inside["model"] += time.perf_counter() - at
        at = time.perf_counter()
        train, dev = splits["train"], splits["dev"]
        found[name] = [
            _accuracy(x, np.array(train[1]), x_dev, np.array(dev[1]), job["sets"])
            for x, x_dev in zip(vectors["train"], vectors["dev"], strict=True)
        ]
        inside["probes"] += time.perf_counter() - at
    wall = time.perf_counter() - began
    return {"wall": wall, "cpu": sum(cpu_seconds()) - used, "peak": memory("VmHWM"), "accuracy": found, **inside}


def _vectors(model: Any, tokenizer: Any, texts: list[str]) -> np.ndarray:
    """Means over the pieces without special ones, float32 (layers, n, d)."""
    import torch

    parts = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH], padding=True, truncation=True, return_tensors="pt",
            return_special_tokens_mask=True,
        )  # fmt: skip
        special = batch.pop("special_tokens_mask").bool()
        keep = (batch["attention_mask"].bool() & ~special).float()[..., None]
        with torch.no_grad():
            states = model(**batch, output_hidden_states=True).hidden_states
        parts.append(torch.stack([(h * keep).sum(1) / keep.sum(1) for h in states]).numpy())
    return np.concatenate(parts, axis=1)


def _accuracy(x: np.ndarray, y: np.ndarray, x_dev: np.ndarray, y_dev: np.ndarray, sets: int) -> float:
    """Of gold labels; the same is done with shuffled ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng, gold = np.random.default_rng(0), float("nan")
    for i in range(sets):
        y_now = y if i == 0 else rng.permutation(y)
        a, b, y_a, y_b = train_test_split(x, y_now, test_size=HELD_OUT, random_state=0)
        pipes = [make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000)) for C in CS]
        best = max(pipes, key=lambda pipe: pipe.fit(a, y_a).score(b, y_b))
        score = best.fit(x, y_now).score(x_dev, y_dev)
        gold = score if i == 0 else gold
    return float(gold)


def ours(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """The suite as a process of its own."""
    text = SUITE.format(
        limit=words.limit, tasks=json.dumps(words.tasks), controls=words.controls, held_out=HELD_OUT, Cs=CS
    )
    (folder / "benchmark.toml").write_text(text)
    command = [sys.executable, "-m", "probekit", "suite", "run", str(folder / "benchmark.toml")]
    command += ["--model", words.model, "--out", str(folder / "suite")]
    command += ["--data-dir", words.data_dir] if words.data_dir else []
    began, used = time.perf_counter(), sum(cpu_seconds())
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD)
    if done.returncode:
        sys.exit(done.stderr)
    wall = time.perf_counter() - began
    from probekit.rows import read_rows

    board = read_rows(folder / "suite/rows/scoreboard.parquet")
    layers = board[board["metric"].str.startswith("normalised(")]
    accuracy = {line: part["raw"].tolist() for line, part in layers.groupby("line", sort=False)}
    seconds = {"cache": 0.0, "probe": 0.0, "rest": 0.0}
    for record in (folder / "suite/steps").glob("*.json"):
        kind = record.name.partition("-")[0]
        seconds[kind if kind in seconds else "rest"] += float(json.loads(record.read_text()).get("seconds", 0))
    return {"wall": wall, "cpu": sum(cpu_seconds()) - used, "accuracy": accuracy, "steps": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=TASKS)
    parser.add_argument("--limit", type=int, default=2000, help="sentences of train and of dev for each task")
    parser.add_argument("--controls", type=int, default=3)
    parser.add_argument("--sets", type=int, default=0, help="label sets that the loop fits (default: all)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.loop:
        print(json.dumps(loop(json.loads(Path(words.loop).read_text()))))
        return
    with tempfile.TemporaryDirectory() as folder:
        out = compared(Path(folder), words)
    if words.json:
        words.json.write_text(json.dumps(out, indent=1))


def compared(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Both sides, printed."""
    from probekit import load_task
    from probekit.models.find import resolve_model

    mine = ours(folder, words)
    tasks = {}
    for name in words.tasks:
        task = load_task(name, words.data_dir or None)
        dev = "dev" if "dev" in task.splits else "test"
        parts = {"train": task.split("train").sample(words.limit, 0), "dev": task.split(dev).sample(words.limit, 0)}
        tasks[task.name] = {k: ([e.text for e in part], [e.label for e in part]) for k, part in parts.items()}
    every = words.controls + 1
    sets = words.sets or every
    (folder / "job.json").write_text(
        json.dumps({"model": str(resolve_model(words.model)), "tasks": tasks, "sets": sets})
    )
    command = [sys.executable, __file__, "--loop", str(folder / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD)
    theirs = json.loads(done.stdout.splitlines()[-1])
    whole = theirs["model"] + theirs["probes"] * every / sets
    gaps = [abs(a - b) for name, values in theirs["accuracy"].items()
            for a, b in zip(values, mine["accuracy"][name], strict=True)]  # fmt: skip
    scaled = f" (fits of {sets} of {every} label sets measured, scaled up)" * (sets < every)
    print(f"{len(tasks)} tasks, {len(gaps) // len(tasks)} layers, {every} label sets, {len(CS)} penalties")
    print(
        f"suite   {mine['wall']:8.1f} s   caches {mine['steps']['cache']:.1f} s, probes {mine['steps']['probe']:.1f} s"
    )
    print(f"loop    {whole:8.1f} s   model {theirs['model']:.1f} s, probes {whole - theirs['model']:.1f} s{scaled}")
    print(f"ratio   {whole / mine['wall']:8.1f}     aim {GOAL:g}")
    print(f"difference of accuracies: mean {np.mean(gaps):.4f}, largest {np.max(gaps):.4f}")
    return {"suite": mine, "loop": theirs, "ratio": whole / mine["wall"], "gap": float(np.mean(gaps))}


if __name__ == "__main__":
    main()
