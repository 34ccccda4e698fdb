"""How many examples a second fine-tuning gets through, beside a bare transformers Trainer with the same settings.

    python benchmarks/fine_tuning.py             on MRPC of the shared data sets
    python benchmarks/fine_tuning.py --grammar   on the built-in grammar:paraphrase
    python benchmarks/fine_tuning.py --quick     a look at whether everything runs, not a measurement

The bare Trainer has AutoModelForSequenceClassification, DataCollatorWithPadding and texts that were tokenised
beforehand; ours is what `probekit train` runs. Both have the same texts, batch size, number of steps, dropout, fused
AdamW, clipping and linear schedule, and as many threads. "without oneDNN" is ours with torch's own matrix products;
"grouped" puts texts of like length together, which neither of the sides that are compared does.

`--ways` measures other ways to adapt, too (or only those named after it): gradient checkpointing, LoRA (the bare
Trainer has peft's, with the same layers, rank and initial weights' scale) and bottleneck adapters (which peft lacks:
the bare Trainer has ours in its model). Each has the default learning rate of probekit, and the bare side freezes and
trains the same weights.

Each side runs in a process of its own; the sides take turns, and the best of the rounds counts. The clock runs
over one whole epoch, so that every text is read once however they are grouped, from before the Trainer starts (ours: is
made) to the end of the last step; evaluation and saving are outside. CPU seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from cache import SHARED, Goal, show_goals, table
from feature_extraction import clocks
from measures import memory
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

from probekit.adaptation.methods.adapt import target_layers
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.adaptation.training.trainer import fit, own_randomness
from probekit.models.adapted.bottleneck import add_adapters
from probekit.tasks import Split, Task, load_task

Told = Callable[..., None]
"""Called when training begins, and at the end of each step."""


@dataclass(frozen=True)
class Job:
    """One side, in a process of its own."""

    side: str
    model: str
    work: str
    data: str | None
    rows: int
    batch_size: int
    way: str = "full"
    device: str = "cpu"

    def task(self) -> Task:
        return load_task("grammar:paraphrase" if self.data is None else "mrpc", data_dir=self.data)


def first(task: Task, split: str, n: int) -> Split:
    """The first examples of a split."""
    return Split(split, task.split(split).examples[:n])


WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "lora": {"method": "lora"},
    "adapter": {"method": "adapter"},
}
"""The options of `probekit train` for each way to adapt."""


def ours(job: Job, told: Told, *, group: bool = False) -> int:
    """Train as `probekit train` does; returns how many word pieces were read, padding left out."""
    task = job.task()
    train, dev = first(task, "train", job.rows), first(task, "dev", job.batch_size)
    options = TrainOptions(epochs=1, batch_size=job.batch_size, group=group, device=job.device, **WAYS[job.way])
    with own_randomness(0), tempfile.TemporaryDirectory(dir=job.work) as out:
        training = prepare_fine_tuning(job.model, task, train, dev, options)
        told()
        fit(
            training,
            Path(out),
            lambda *_: None,
            progress=lambda stage, *_, **__: told() if stage == "training" else None,
        )
    return int(training.objectives[0].train.length.sum())


def plain(job: Job, told: Told) -> int:
    """The same with torch's own matrix products."""
    with patch("probekit.adaptation.training.trainer.onednn_available", return_value=False):
        return ours(job, told)


def bare(job: Job, told: Told, *, sampling: str = "random") -> int:
    """Train as transformers' examples do."""

    class Steps(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            told()

    task = job.task()
    train = first(task, "train", job.rows)
    tokenizer = AutoTokenizer.from_pretrained(job.model)
    limit = AutoConfig.from_pretrained(job.model).max_position_embeddings
    texts = tokenizer([e.text for e in train], [e.pair for e in train], truncation=True, max_length=limit)
    labels = task.labels("train")
    data = [{k: v[i] for k, v in texts.items()} | {"label": int(labels[i])} for i in range(len(train))]
    defaults = TrainOptions(**WAYS[job.way])
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(job.model, num_labels=len(task.label_names))
    if job.way in ("lora", "adapter"):
        model = adapted(model, job.way)
    with tempfile.TemporaryDirectory(dir=job.work) as out:
        args = TrainingArguments(
            output_dir=out, num_train_epochs=1, per_device_train_batch_size=job.batch_size, optim="adamw_torch_fused",
            learning_rate=defaults.learning_rate, weight_decay=defaults.weight_decay, warmup_steps=0.1,
            lr_scheduler_type="linear", max_grad_norm=1.0, train_sampling_strategy=sampling, seed=0,
            use_cpu=job.device == "cpu", save_strategy="no", eval_strategy="no",
            logging_steps=max(1, len(data) // job.batch_size // 10),
            disable_tqdm=True, report_to="none", dataloader_pin_memory=False,
            gradient_checkpointing=job.way == "gradient checkpointing",
        )  # fmt: skip
        trainer = Trainer(
            model=model, args=args, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Steps()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        told()
        trainer.train()
    return int(np.sum([len(x) for x in texts["input_ids"]]))


def adapted(model: Any, way: str) -> Any:
    """The bare Trainer's model with LoRA from peft, or with bottleneck adapters; head and pooler are trained."""
    options = TrainOptions(**WAYS[way])
    if way == "lora":
        from peft import LoraConfig, get_peft_model

        layers = [name.removeprefix("bert.") for name in target_layers(model.base_model, "lora", None)]
        config = LoraConfig(
            r=options.rank, lora_alpha=options.alpha, target_modules=layers, modules_to_save=["classifier", "pooler"]
        )
        return get_peft_model(model, config)
    model.base_model.requires_grad_(requires_grad=False)
    for name in add_adapters(model.base_model, bottleneck=options.bottleneck, placement=options.placement):
        model.base_model.get_parameter(name).requires_grad_(requires_grad=True)
    model.base_model.pooler.requires_grad_(requires_grad=True)
    return model


SIDES: dict[str, Callable[..., int]] = {
    "bare Trainer": bare,
    "probekit": ours,
    "probekit, without oneDNN": plain,
    "bare Trainer, grouped": lambda job, told: bare(job, told, sampling="group_by_length"),
    "probekit, grouped": lambda job, told: ours(job, told, group=True),
}


def here(job: Job) -> dict[str, float]:
    """Examples a second of one side, by the wall and by CPU time, word pieces, and peak memory."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    ends: list[tuple[float, float]] = []
    pieces = SIDES[job.side](job, lambda *_, **__: ends.append(clocks()))
    wall, cpu = (b - a for a, b in zip(ends[0], ends[-1], strict=True))
    return {
        "wall": job.rows / wall, "cpu": job.rows / cpu, "steps": len(ends) - 1, "pieces": pieces,
        "peak": memory("VmHWM"),
    }  # fmt: skip


def apart(job: Job) -> dict[str, float]:
    """What :func:`here` measures, in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job))]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job.side} failed with status {done.returncode}.")
    return json.loads(done.stdout.splitlines()[-1])


def show(found: dict[str, list[dict[str, float]]]) -> None:
    most = {side: {of: max(one[of] for one in rounds) for of in ("wall", "cpu")} for side, rounds in found.items()}
    base = most["bare Trainer"]
    rows = [["side", "examples/s", "examples/CPU-s", "÷ bare", "÷ bare, CPU", "peak MB"]]
    for side, rates in most.items():
        ratios = (f"{rates[of] / base[of]:.3f}" for of in ("wall", "cpu"))
        peak = max(one["peak"] for one in found[side])
        rows.append([side, f"{rates['wall']:.1f}", f"{rates['cpu']:.1f}", *ratios, f"{peak:,.0f}"])
    print("\n" + table(rows))
    goals = []
    for side in (side for side in ("probekit", "probekit, without oneDNN") if side in most):
        for of, name in (("wall", "examples/s"), ("cpu", "examples/CPU-s")):
            goals.append(Goal(f"{side} / bare Trainer, {name}", most[side][of] / base[of], least=1.0))
    if "probekit, grouped" not in most:
        show_goals(goals)
        return
    gain = {of: most["probekit, grouped"][of] / most["probekit"][of] for of in ("wall", "cpu")}
    goals.append(
        Goal("grouped / not grouped, examples/CPU-s", gain["cpu"], least=1.0, remark=f"wall {gain['wall']:.3f}")
    )
    show_goals(goals)


def main() -> None:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", help="folder of a model; MiniLM of the extra demo by default")
    parser.add_argument("--data-dir", default=str(SHARED / "mrpc"), help="folder of MRPC")
    parser.add_argument("--grammar", action="store_true", help="grammar:paraphrase instead")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=threads, help="all of the processor's by default")
    parser.add_argument("--quick", action="store_true", help="56 rows, batches of 8, one round: does it run?")
    parser.add_argument("--ways", nargs="*", choices=WAYS, help="these ways, or all: gradient checkpointing, lora …")
    parser.add_argument("--work", type=Path, help="folder for what is written; a temporary one by default")
    parser.add_argument("--json", type=Path, help="all measurements go here too")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(here(Job(**json.loads(args.job)))))
        return
    if not args.grammar and not Path(args.data_dir).is_dir():
        raise SystemExit(f"skipped: MRPC is not at {args.data_dir}; give --data-dir, or --grammar.")
    if args.model is None:
        from probekit.models.find import minilm_folder

        args.model = str(minilm_folder())
    rows, size, rounds = (56, 8, 1) if args.quick else (args.rows, args.batch_size, args.rounds)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    ways = ["full"] if args.ways is None else args.ways or [*WAYS]
    every: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="probekit-benchmark-", dir=args.work) as work:
        job = Job("", args.model, work, None if args.grammar else args.data_dir, rows, size)
        for way in ways:
            sides = list(SIDES) if way == "full" else ["bare Trainer", "probekit"]
            found = every[way] = {side: [] for side in sides}
            for turn in range(rounds):
                for side in sides:
                    print(f"{way}, round {turn + 1}: {side}", file=sys.stderr, flush=True)
                    found[side].append(apart(replace(job, side=side, way=way)))
            one = found["probekit"][0]
            same = {(r["steps"], r["pieces"]) for several in found.values() for r in several}
            assert len(same) == 1, "not the same work"
            print(f"{way}: {rows:,} texts of {one['pieces'] / rows:.0f} pieces, {one['steps']} steps, ", end="")
            print(f"{args.threads} threads.")
            show(found)
    if args.json:
        args.json.write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
