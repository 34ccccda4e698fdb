"""How much faster a task model trains on cached layers than with its frozen encoder run anew in each epoch.

    python benchmarks/feature_extraction.py                every task model below, on the shared data sets
    python benchmarks/feature_extraction.py --head crf     only this one (may be repeated)
    python benchmarks/feature_extraction.py --grammar      on built-in tasks, which need no data
    python benchmarks/feature_extraction.py --quick        a look at whether everything runs, not a measurement

Both sides are `probekit.adaptation.training.trainer.fit`: the same Trainer, batches, order, seed, mix of layers, head
and dropout, on as many threads. They differ in what a batch holds and in where the layers come from: vectors of the
token cache, or pieces, tokenised beforehand, for AutoModel with ``output_hidden_states``, in evaluation
mode and without gradients. Batches are grouped by length on both sides, which is to the encoder's good. "prepacked" is
the same encoder with its linear layers laid out for oneDNN, as probekit runs it when it fills a cache.

Each side runs in a process of its own; the sides take turns. An epoch's time is from the end of the epoch before to the
last step, without the first epoch, and of all rounds the shortest; input is the time in which a batch is read. The
floor, of the linear heads and the CRF, is one copy of the vectors that an epoch reads, and 6 operations a weight of the
head for each of them, at the speed at which this machine copies and multiplies.

The two task models of Bowman et al. (2018) read their BiLSTM of two layers of 1,024 cells a direction; it has no other
form, so "prepacked" is left out.

The losses of BCN and ESIM are the same for some steps, to the last bit; then rounding grows from step to step, as it
does between the two encoders, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cache import SHARED, Goal, show_goals, table
from measures import memory
from torch import nn
from transformers import AutoModel
from transformers.utils import logging

from probekit import ActivationCache, cache_activations
from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.head import States
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.training.feature_extraction import prepare_feature_extraction
from probekit.adaptation.training.learners import FeatureExtraction, Inputs
from probekit.adaptation.training.trainer import fit, own_randomness
from probekit.models.loading import text_reader
from probekit.models.new import new_encoder
from probekit.models.transformers import stock
from probekit.models.transformers.onednn import PrepackedLinear, onednn_available, prepack
from probekit.tasks import Example, Split, Task, TaskKind, load_task

SIDES = {"cache": "cached", "encoder": "encoder", "prepacked": "prepacked"}

SPANS = ("O", "B-NP", "I-NP")


@dataclass(frozen=True)
class Case:
    """A head on a task, of the shared data (``folder``) or built in (``grammar``)."""

    name: str
    head: str
    task: str
    folder: str
    grammar: str
    pooled: bool = False
    goal: bool = False
    bilstm: bool = False
    hidden_size: int | None = None

    @property
    def apart(self) -> bool:
        """Whether the sentences of pairs are encoded separately."""
        return self.head in ("esim", "attention-max-mlp")


CASES = [
    Case("linear, pooled", "linear", "sst2", "sst2", "sentiment", pooled=True, goal=True),
    Case("linear, tokens", "linear", "sst2", "sst2", "sentiment", goal=True),
    Case("crf", "crf", "wnut17", "wnut17", "chunks", goal=True),
    Case("bilstm-crf", "bilstm-crf", "wnut17", "wnut17", "chunks"),
    Case("bcn", "bcn", "sst2", "sst2", "sentiment"),
    Case("esim", "esim", "mrpc", "mrpc", "paraphrase"),
    Case("max-mlp, BiLSTM", "max-mlp", "sst2", "sst2", "sentiment", goal=True, bilstm=True, hidden_size=256),
    Case("attention-max-mlp, BiLSTM", "attention-max-mlp", "mrpc", "mrpc", "paraphrase", bilstm=True, hidden_size=512),
]


@dataclass(frozen=True)
class Job:
    """One side of a case, in a process of its own."""

    case: Case
    side: str
    model: str
    work: str
    data: str | None
    rows: int
    epochs: int
    batch_size: int

    def task(self) -> Task:
        if self.data is not None:
            return load_task(self.case.task, data_dir=Path(self.data) / self.case.folder)
        return chunks() if self.case.grammar == "chunks" else load_task(f"grammar:{self.case.grammar}")

    def cache(self, split: str) -> Path:
        pairs = ("separate" if self.case.apart else "joint") + ("-bilstm" if self.case.bilstm else "")
        return Path(self.work) / f"{self.task().name.replace(':', '-')}.{split}.{pairs}.{self.case.pooled}.h5"

    def limit(self, split: str) -> int:
        return self.rows if split == "train" else 64


def chunks() -> Task:
    """Tags for the words of a built-in task: an article and what follows are a span."""

    def tagged(example: Example) -> Example:
        words = tuple(example.text.split())
        articles = [word.lower() in ("the", "a", "an") for word in words]
        tags = tuple(1 if a else 2 if i and articles[i - 1] else 0 for i, a in enumerate(articles))
        return Example(id=example.id, text=" ".join(words), words=words, label=tags)

    source = load_task("grammar:acceptability")
    splits = {name: Split(name, [tagged(e) for e in split]) for name, split in source.splits.items()}
    return Task("chunks", TaskKind.SEQUENCE_LABELLING, splits, label_names=SPANS, metrics=("span-f1",))


class Frozen(FeatureExtraction):
    """The same task model, on the layers of an encoder that is run each time."""

    def __init__(self, encoder: nn.Module, learner: FeatureExtraction) -> None:
        super().__init__(learner.mix, learner.head)
        self.frozen = (encoder.eval(),)  # in a tuple: neither trained, nor saved, nor put into training mode

    def states(self, inputs: Inputs) -> States:
        own = {k: v for k, v in inputs.items() if k in ("input_ids", "attention_mask", "token_type_ids")}
        with torch.no_grad():
            if self.frozen[0].config.model_type == "bilstm":
                hidden = self.frozen[0](**own).last_hidden_state[None]
            else:
                hidden = torch.stack(self.frozen[0](**own, output_hidden_states=True).hidden_states)
        mask = inputs["attention_mask"] > 0
        return States(self.mix(hidden, mask), mask, inputs["special"], inputs.get("words"))


def clocks() -> tuple[float, float]:
    """Seconds now: of the wall, and of this process on all processors."""
    return time.perf_counter(), time.process_time()


class Timed:
    """Data whose reading is timed."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.reads: list[tuple[tuple[float, float], tuple[float, float]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, rows: list[int]) -> Any:
        start = clocks()
        batch = self.data.__getitems__(rows)
        self.reads.append((start, clocks()))
        return batch


def here(job: Job) -> dict[str, Any]:
    """Epochs of one side: seconds, seconds of input, the loss of each step, peak memory."""
    logging.disable_progress_bar()
    splits = ("train", "dev")
    with ActivationCache(job.cache("train")) as train, ActivationCache(job.cache("dev")) as dev, own_randomness(0):
        options = TrainOptions(
            regime=Regime.FEATURE_EXTRACTION, head=job.case.head, epochs=job.epochs, learning_rate=1e-3,
            batch_size=job.batch_size, device="cpu", hidden_size=job.case.hidden_size,
        )  # fmt: skip
        training = prepare_feature_extraction(train, dev, options)
        (objective,) = training.objectives
        learner, data = training.learner, [objective.train, objective.dev]
        weights = sum(p.numel() for p in learner.head.parameters())
        vectors = float(np.sum(objective.train.length))
        floor = {"bytes": objective.train.nbytes * len(objective.train), "flops": 6.0 * weights * vectors}
        if job.side != "cache" or job.case.pooled:
            model = stock.load_model(Path(job.model))
            reader = text_reader(Path(job.model), model.config, None)
            task = job.task()
            texts = [TextData(task, task.split(s).sample(job.limit(s)), reader, apart=job.case.apart) for s in splits]
            for ours, text in zip(data, texts, strict=True):
                if job.case.pooled:
                    ours.length = text.length  # so that both sides group their batches in the same way
                assert np.array_equal(ours.length, text.length)
                text.order = ours.order
            if job.side != "cache":
                encoder = model if job.case.bilstm else AutoModel.from_pretrained(job.model)
                if job.side == "prepacked":
                    prepack(encoder)
                learner, data = Frozen(encoder, learner), list(texts)
        timed = Timed(data[0])
        losses: list[torch.Tensor] = []
        learner.register_forward_hook(
            lambda module, _, out: losses.append(out["loss"].detach()) if module.training else None
        )
        steps: list[tuple[float, float]] = []
        ends: list[tuple[float, float]] = []
        with tempfile.TemporaryDirectory(dir=job.work) as out:
            objective = replace(objective, train=timed, dev=data[1])
            fit(
                replace(training, learner=learner, objectives=(objective,)), Path(out), lambda *_: None,
                watcher=lambda *_: ends.append(clocks()),
                progress=lambda stage, *_, **__: steps.append(clocks()) if stage == "training" else None,
            )  # fmt: skip
    per = len(steps) // job.epochs
    epochs = [(ends[e - 1], steps[(e + 1) * per - 1]) for e in range(1, job.epochs)]
    reads = [[(x[1], y[1]) for x, y in timed.reads if a <= x < b] for a, b in epochs]
    return {
        "epochs": [b[0] - a[0] for a, b in epochs], "cpu": [b[1] - a[1] for a, b in epochs],
        "input": [sum(y - x for x, y in read) for read in reads], "steps": per,
        "losses": torch.stack(losses).tolist(), "peak": memory("VmHWM"), "mapped": memory("RssFile"), **floor,
    }  # fmt: skip


def apart(job: Job) -> dict[str, Any]:
    """What :func:`here` measures, in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.case.name}, {job.side}: failed with status {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1])


def fill(job: Job) -> None:
    """Make the caches of a case where they are not there yet."""
    how: dict[str, Any] = {"pooling": ["mean"]} if job.case.pooled else {"pooling": [], "tokens": True}
    pairs = "separate" if job.case.apart else "auto" if job.case.bilstm else "joint"
    for split in ("train", "dev"):
        limit = job.limit(split)
        cache_activations(job.model, job.task(), split, limit=limit, out=job.cache(split), pairs=pairs, **how).close()


def bilstm(work: Path, tokenizer: str) -> Path:
    """The encoder of Bowman et al. (2018) with random weights, which reads the pieces of a tokenizer."""
    folder = work / "bilstm"
    if not folder.exists():
        new_encoder({"model_type": "bilstm", "input": "pieces"}, folder, tokenizer=tokenizer)
    return folder


def machine() -> dict[str, float]:
    """Bytes copied and floating-point operations a CPU second, by the faster of torch and oneDNN."""
    block, other = np.ones(1 << 26, dtype=np.uint8), np.ones(1 << 26, dtype=np.uint8)
    square = torch.ones(1024, 1024)
    layers = [nn.Linear(1024, 1024), *([PrepackedLinear(square, None)] if onednn_available(torch.float32) else [])]

    def quickest(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(9):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    with torch.inference_mode():
        multiply = min(quickest(lambda layer=layer: layer(square)) for layer in layers)
    return {
        "copied": len(block) / quickest(lambda: np.copyto(other, block)),
        "multiplied": 2.0 * len(square) ** 3 / multiply,
    }


def measure(job: Job, sides: list[str], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """All rounds of a case by side; the slow sides run once."""
    print(f"{job.case.name}: caches", file=sys.stderr, flush=True)
    fill(job)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sides if not turn else ["cache"]:
            print(f"{job.case.name}, round {turn + 1}: {side}", file=sys.stderr, flush=True)
            found[side].append(apart(replace(job, side=side)))
    return found


def shortest(rounds: list[dict[str, Any]], of: str) -> float:
    return min(seconds for one in rounds for seconds in one[of])


def share(one: dict[str, Any]) -> float:
    return float(np.median(np.divide(one["input"], one["cpu"])))


def apart_by(found: dict[str, list[dict[str, Any]]], side: str) -> tuple[float, float]:
    """The largest difference of a step's loss between the sides: in nats, and relative to the loss."""
    ours, theirs = (np.array(found[name][0]["losses"]) for name in ("cache", side))
    return float(np.abs(ours - theirs).max()), float(np.abs(ours / theirs - 1).max())


def rows_of(case: Case, found: dict[str, list[dict[str, Any]]], speed: dict[str, float]) -> list[list[str]]:
    one = found["cache"][0]
    floor = one["bytes"] / speed["copied"] + one["flops"] / speed["multiplied"]
    rows = []
    for side, rounds in found.items():
        wall, cpu = shortest(rounds, "epochs"), shortest(rounds, "cpu")
        mine = side == "cache"
        rows.append([
            case.name if mine else "", SIDES[side], f"{wall:.2f}", f"{cpu:.2f}", f"{1e3 * cpu / one['steps']:.1f}",
            *(["", ""] if mine else [f"{wall / shortest(found['cache'], 'epochs'):.1f}",
                                     f"{cpu / shortest(found['cache'], 'cpu'):.1f}"]),
            "" if mine else "{:.1e} ({:.0e})".format(*apart_by(found, side)),
            f"{share(rounds[0]):.0%}" if mine else "", f"{floor:.3f}" if mine and case.goal else "",
            f"{rounds[0]['peak']:,.0f} ({rounds[0]['mapped']:,.0f})",
        ])  # fmt: skip
    return rows


def goals(found: dict[Case, dict[str, list[dict[str, Any]]]]) -> list[Goal]:
    rows = []
    for case, sides in found.items():
        ratio = shortest(sides["encoder"], "epochs") / shortest(sides["cache"], "epochs")
        off, relative = apart_by(sides, "encoder")
        if case.goal:
            rows.append(Goal(f"{case.name}: encoder / cache, an epoch", ratio, least=10))
            rows.append(
                Goal(f"{case.name}: loss, largest difference", off, most=1e-4, remark=f"relative {relative:.0e}")
            )
        rows.append(Goal(f"{case.name}: input, share of CPU time", max(map(share, sides["cache"])), most=0.2))
    return rows


def main() -> None:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", help="folder of a model; MiniLM of the extra demo by default")
    parser.add_argument("--head", action="append", choices=[c.head for c in CASES], help="may be repeated")
    parser.add_argument("--data-dir", default=str(SHARED), help="folder of the data sets' folders")
    parser.add_argument("--grammar", action="store_true", help="built-in tasks instead")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3, help="the first is not timed")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3, help="of the cached side; the encoder runs once")
    parser.add_argument("--threads", type=int, default=threads, help="all of the processor's by default")
    parser.add_argument("--quick", action="store_true", help="64 rows, linear and crf: does it run?")
    parser.add_argument("--work", type=Path, help="folder on the disk in question; a temporary one by default")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job = json.loads(args.job)
        print(json.dumps(here(Job(**job | {"case": Case(**job["case"])}))))
        return
    if not args.grammar and not Path(args.data_dir).is_dir():
        raise SystemExit(f"skipped: the shared data sets are not at {args.data_dir}; give --data-dir, or --grammar.")
    if args.model is None:
        from probekit.models.find import minilm_folder

        args.model = str(minilm_folder())
    rows, epochs, rounds = (64, 2, 1) if args.quick else (args.rows, args.epochs, args.rounds)
    chosen = [c for c in CASES if c.head in (args.head or (["linear", "crf"] if args.quick else [c.head]))]
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    torch.set_num_threads(args.threads)
    found: dict[Case, dict[str, list[dict[str, Any]]]] = {}
    shown = [
        ["task model", "layers", "s/epoch", "CPU s", "CPU ms/step", "÷ cached", "÷, CPU", "loss differs (relative)",
         "input", "floor, CPU s", "MB (mapped)"]
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as work:
        data = None if args.grammar else str(args.data_dir)
        for case in chosen:
            model = str(bilstm(Path(work), args.model)) if case.bilstm else args.model
            job = Job(case, "cache", model, work, data, rows, epochs, args.batch_size)
            found[case] = measure(job, [side for side in SIDES if side != "prepacked" or not case.bilstm], rounds)
            shown += rows_of(case, found[case], machine())
    print(f"up to {rows:,} examples, batches of {args.batch_size}, {args.threads} threads; input: share of CPU time.")
    print("\n" + table(shown))
    show_goals(goals(found))
    if args.json:
        args.json.write_text(json.dumps({case.name: sides for case, sides in found.items()}, indent=1))


if __name__ == "__main__":
    main()
