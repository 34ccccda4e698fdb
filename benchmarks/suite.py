"""Ten tasks by one suite, beside a loop of transformers and scikit-learn: the same sentences, layers, probes, controls.

    python benchmarks/suite.py --data-dir DATA                      five tasks of sentences, five of words and spans
    python benchmarks/suite.py --data-dir DATA --sets 1 --layers 3  the loop fits one label set on one layer, scaled up
    python benchmarks/suite.py --data-dir DATA --folds 5 --controls 10 --sets 1 --layers 3      as probekit probe does
    python benchmarks/suite.py --tasks grammar:sentiment,grammar:acceptability --limit 60      does it run?

Ours is ``probekit suite run`` as a process of its own: it starts, reads the tasks, caches all of their sentences, fits,
evaluates with intervals and p-values, and writes rows, figure, table and page. Theirs is what people write: for each
task a forward pass over its sentences in padded batches of 32 in the order of the file, the mean of the pieces of each
sentence or span (the first piece of each word for tags) at each layer, and on each layer, for gold and shuffled labels,
StandardScaler and LogisticRegression for each C, chosen on a held-out fifth of train or by ``--folds 5``, fitted again
and evaluated on dev (GridSearchCV); no control tasks, no intervals, no p-values, no files. It is given the texts and
labels that ours reads. Each runs on one core. With ``--sets`` and ``--layers`` the loop fits only so many label sets
and layers, and its fits are counted as often as there are label sets and layers; the output says so.
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
    f"treebank:{n}:en_ewt" for n in ("sentence-length", "tree-depth", "bigram-shift", "past-present", "odd-man-out")
]
TASKS = [*SENTENCES, "ud", "ud-relations", "conll2000", "semeval2010", "dpr"]
CS = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
HELD_OUT, BATCH, GOAL = 0.2, 32, 20.0
SUITE = """title = "Benchmark"
of = ["pretrained"]
"""
SECTION = """[[tasks]]
group = "{group}"
tasks = {tasks}
limit = {limit}
limit_dev = {limit}
options = {{ controls = {controls}, {chosen}, penalties = {Cs}{span} }}
"""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def _one_core() -> None:
    """Keep this process and those that it starts on one core, so that neither side uses more."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


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
        vectors = {split: _vectors(model, tokenizer, of["inputs"], of["spans"]) for split, of in splits.items()}
        inside["model"] += time.perf_counter() - at
        at = time.perf_counter()
        train, dev = (np.array(splits[split]["labels"]) for split in ("train", "dev"))
        layers = range(len(vectors["train"])) if job["layers"] is None else job["layers"]
        found[name] = {
            layer: _accuracy(vectors["train"][layer], train, vectors["dev"][layer], dev, job["sets"], job["folds"])
            for layer in layers
        }
        inside["probes"] += (time.perf_counter() - at) * len(vectors["train"]) / len(layers)
        print(f"loop: {name} {inside}", file=sys.stderr, flush=True)
    wall = time.perf_counter() - began
    return {"wall": wall, "cpu": sum(cpu_seconds()) - used, "peak": memory("VmHWM"), "accuracy": found, **inside}


def _vectors(model: Any, tokenizer: Any, inputs: list[Any], spans: list[Any] | None) -> np.ndarray:
    """Float32 (layers, n, d): means of sentences, of spans (side by side), or first pieces of words (spans "words")."""
    import torch

    parts = []
    for start in range(0, len(inputs), BATCH):
        of = inputs[start : start + BATCH]
        split = not isinstance(of[0], str)
        batch = tokenizer(
            of, padding=True, truncation=True, return_tensors="pt", return_special_tokens_mask=True,
            return_offsets_mapping=True, is_split_into_words=split,
        )  # fmt: skip
        special, offsets = batch.pop("special_tokens_mask").bool(), batch.pop("offset_mapping").tolist()
        with torch.no_grad():
            states = torch.stack(model(**batch, output_hidden_states=True).hidden_states)
        if spans is None:
            keep = (batch["attention_mask"].bool() & ~special).float()[..., None]
            parts.append(((states * keep).sum(2) / keep.sum(1)).numpy())
            continue
        for i, example in enumerate(of):
            places = [(w, w + 1) if w is not None else (0, 0) for w in batch.word_ids(i)] if split else offsets[i]
            for target in [[[w, w + 1]] for w in range(len(example))] if spans == "words" else spans[start + i]:
                pieces = [[p for p, (x, y) in enumerate(places) if x < b and y > a] for a, b in target]
                kept = [some[:1] if spans == "words" else some for some in pieces]
                parts.append(torch.cat([states[:, i, some].mean(1) for some in kept], 1).numpy()[:, None])
    return np.concatenate(parts, axis=1)


def _accuracy(x: np.ndarray, y: np.ndarray, x_dev: np.ndarray, y_dev: np.ndarray, sets: int, folds: int) -> float:
    """Of gold labels; the same is done with shuffled ones."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    parts = KFold(folds, shuffle=True, random_state=0) if folds else ShuffleSplit(1, test_size=HELD_OUT, random_state=0)
    rng, gold = np.random.default_rng(0), float("nan")
    for i in range(sets):
        y_now = y if i == 0 else rng.permutation(y)
        pipe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        score = GridSearchCV(pipe, {"logisticregression__C": CS}, cv=parts).fit(x, y_now).score(x_dev, y_dev)
        gold = score if i == 0 else gold
    return float(gold)


def _read(name: str, words: argparse.Namespace) -> tuple[str, dict[str, Any], str]:
    """The name of a task, what the loop reads of its splits, and the section of the suite that it belongs to."""
    from probekit import load_task
    from probekit.tasks import TaskKind

    task = load_task(name, words.data_dir or None)
    dev = "dev" if "dev" in task.splits else "test"
    kind = {TaskKind.SEQUENCE_LABELLING: "words", TaskKind.SPAN_LABELLING: "spans"}.get(task.kind, "sentences")
    limit = words.limit if kind == "sentences" else words.limit_words
    parts = {}
    for split, part in (("train", task.split("train").sample(limit, 0)), ("dev", task.split(dev).sample(limit, 0))):
        labels = [e.label for e in part]
        spans: Any = None if kind == "sentences" else "words"
        if kind == "words":
            labels = [tag for of in labels for tag in of]
        if kind == "spans":
            labels = [target.label for e in part for target in e.targets]
            spans = [[[[span.start, span.end] for span in target.spans] for target in e.targets] for e in part]
        inputs = [list(e.words) if e.words else e.text for e in part]
        parts[split] = {"inputs": inputs, "labels": labels, "spans": spans}
    return task.name, parts, kind


def ours(folder: Path, words: argparse.Namespace, groups: dict[str, list[str]]) -> dict[str, Any]:
    """The suite as a process of its own."""
    text = SUITE
    for group, names in groups.items():
        limit = words.limit if group == "sentences" else words.limit_words
        span = ', span = "mean"' if group == "spans" else ""
        text += SECTION.format(
            group=group, limit=limit, tasks=json.dumps(names), controls=words.controls, Cs=CS, span=span,
            chosen=f"folds = {words.folds}" if words.folds else f"held-out = {HELD_OUT}",
        )  # fmt: skip
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
    layers = board[board["metric"].isin(["normalised(accuracy)", "normalised(token-accuracy)"])]
    accuracy = {
        line: dict(zip(map(int, part["layer"]), part["raw"], strict=True)) for line, part in layers.groupby("line")
    }
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
    parser.add_argument("--limit", type=int, default=1000, help="sentences of train and of dev of tasks of sentences")
    parser.add_argument("--limit-words", type=int, default=300, help="the same for tasks of words and spans")
    parser.add_argument("--controls", type=int, default=3)
    parser.add_argument(
        "--folds", type=int, default=0, help="folds that choose the penalty (default: a fifth held out)"
    )
    parser.add_argument("--sets", type=int, default=0, help="label sets that the loop fits (default: all)")
    parser.add_argument("--layers", type=lambda text: [*map(int, text.split(","))], help="layers that the loop fits on")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    words = parser.parse_args()
    _one_core()
    if words.loop:
        print(json.dumps(loop(json.loads(Path(words.loop).read_text()))))
        return
    with tempfile.TemporaryDirectory() as folder:
        out = compared(Path(folder), words)
    if words.json:
        words.json.write_text(json.dumps(out, indent=1))


def compared(folder: Path, words: argparse.Namespace) -> dict[str, Any]:
    """Both sides, printed."""
    from probekit.models.find import resolve_model

    tasks: dict[str, Any] = {}
    groups: dict[str, list[str]] = {}
    for given in words.tasks:
        name, tasks[name], kind = _read(given, words)
        groups.setdefault(kind, []).append(given)
    mine = ours(folder, words, groups)
    every = words.controls + 1
    sets = words.sets or every
    job = {
        "model": str(resolve_model(words.model)),
        "tasks": tasks,
        "sets": sets,
        "layers": words.layers,
        "folds": words.folds,
    }
    (folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, __file__, "--loop", str(folder / "job.json")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | ONE_THREAD)
    theirs = json.loads(done.stdout.splitlines()[-1])
    whole = theirs["model"] + theirs["probes"] * every / sets
    count = len(next(iter(mine["accuracy"].values())))
    gaps = [abs(value - mine["accuracy"][name][int(layer)]) for name, values in theirs["accuracy"].items()
            if name in mine["accuracy"] for layer, value in values.items()]  # fmt: skip
    part = f"{sets} of {every} label sets, {len(words.layers or range(count))} of {count} layers"
    scaled = f" (fits of {part} measured, scaled up)" * (sets < every or words.layers is not None)
    print(f"{len(tasks)} tasks, {count} layers, {every} label sets, {len(CS)} penalties")
    print(f"suite {mine['wall']:9.1f} s, {mine['cpu']:.1f} CPU s; seconds of steps: {_listed(mine['steps'])}")
    print(f"loop  {whole:9.1f} s: model {theirs['model']:.1f}, probes {whole - theirs['model']:.1f}{scaled}")
    print(f"ratio {whole / mine['wall']:9.1f}     aim {GOAL:g}")
    print(f"difference of accuracies: mean {np.mean(gaps):.4f}, largest {np.max(gaps):.4f}")
    return {"suite": mine, "loop": theirs, "ratio": whole / mine["wall"], "gap": float(np.mean(gaps))}


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())


if __name__ == "__main__":
    main()
