"""The training of both regimes: transformers' Trainer with our batches, schedules and checkpoints."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_callback import PrinterCallback

from probekit.adaptation.data.batches import Batches, Data
from probekit.adaptation.options import Keep, Optimizer, TrainOptions
from probekit.adaptation.runs.folder import RESUME, kept
from probekit.adaptation.training.groups import LayerGroup, param_groups
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.objective import Score
from probekit.adaptation.training.optimiser import BertAdamW
from probekit.adaptation.training.schedules import build
from probekit.adaptation.training.unfreezing import Unfreezing
from probekit.errors import NonFiniteError, UsageError
from probekit.models.transformers.onednn import onednn_available, train_with_onednn
from probekit.models.transformers.stock import quiet_transformers
from probekit.runtime import Dtype, Progress, no_progress, processes

__all__ = ["Fitted", "Watcher", "fit", "own_randomness", "save_steps"]

Save = Callable[[Path, int, Mapping[str, float]], None]
"""Writes the weights as they are into a folder: ``save(folder, step, metrics)``."""

Watcher = Callable[[int, Mapping[str, float]], None]
"""Told the metrics of each epoch, ``watcher(epoch, metrics)``; what it raises ends the training."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What training leaves in memory.

    log : what the Trainer logged, one mapping an entry: losses, rates, gradient norms, ``eval_…`` metrics, each with
        ``step`` and ``epoch``
    step : of the weights that are kept; total : steps of the whole run; metrics : on dev, of the weights that are kept
    seconds : of training and evaluation, without loading; of this process alone where the run was resumed
    """

    log: list[dict[str, Any]]
    step: int
    total: int
    metrics: dict[str, float]
    seconds: float


def save_steps(text: str, steps_per_epoch: int, total: int) -> tuple[int, ...]:
    """The steps at which to leave checkpoints: of "10,20,50", "epochs" or "log-spaced" (0, 1, 2, 4, … and the last).

    Raises UsageError for anything else, and for steps beyond the last.
    """
    if not text:
        return ()
    if text == "epochs":
        return tuple(range(0, total + 1, steps_per_epoch))
    if text == "log-spaced":
        return tuple(sorted({0, total} | {1 << k for k in range(total.bit_length()) if 1 << k <= total}))
    try:
        steps = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"save_at is {text!r}; it is steps such as 10,20,50, or epochs, or log-spaced.") from None
    if steps[0] < 0 or steps[-1] > total:
        raise UsageError(f"save_at asks for step {steps[0] if steps[0] < 0 else steps[-1]}; the run has 0 to {total}.")
    return tuple(steps)


def fit(
    learner: Learner,
    train: Data,
    dev: Data,
    *,
    score: Score,
    metric: tuple[str, bool],
    groups: list[LayerGroup],
    options: TrainOptions,
    out: Path,
    save: Save,
    device: str = "cpu",
    report_to: str = "none",
    watcher: Watcher | None = None,
    progress: Progress = no_progress,
) -> Fitted:
    """Train ``learner``, evaluate it after each epoch and at each saved step, and keep the best or the last weights.

    metric : the name of the metric that chooses the epoch, and whether higher is better
    groups : the layers, bottom to top; out : the run's folder, where an interrupted training goes on
    Raises NonFiniteError with the step and its learning rate where the loss is no number.
    """
    epochs = int(options.epochs or 1)
    batches = len(Batches(train, options.batch_size, window=options.window))
    steps_per_epoch = ceil(ceil(batches / processes()[1]) / options.accumulation)
    total = epochs * steps_per_epoch
    optimizer = _optimizer(groups, options)
    scheduler, thaw = build(
        optimizer, groups, schedule=options.schedule, unfreezing=options.unfreezing, epochs=epochs,
        steps_per_epoch=steps_per_epoch, warmup=options.warmup, cut=options.cut, ratio=options.ratio,
    )  # fmt: skip
    watch = _Watch(
        metric,
        save_steps(options.save_at, steps_per_epoch, total),
        steps_per_epoch,
        options,
        out,
        save,
        watcher,
        progress,
    )
    log, last = _unfinished(out / RESUME)
    first = last is None and 0 in watch.saved
    arguments = _arguments(options, epochs, steps_per_epoch, out, device, first)
    if device.startswith("cuda") and processes()[1] == 1:
        if ":" in device:
            torch.cuda.set_device(device)
        arguments._n_gpu = 1  # the Trainer would split batches among all GPUs, which those of cached layers do not bear
    trainer = _Trainer(
        model=learner, args=arguments, options=options,
        train_dataset=train, eval_dataset=dev, optimizers=(optimizer, scheduler),
        compute_metrics=_scoring(score, learner),
        callbacks=[watch, *([thaw] if thaw else []), *_reporters(report_to)],
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    if device == "cpu" and onednn_available(torch.float32):
        train_with_onednn(learner)
    watch.recall(log)
    if last is not None and watch.out_of_patience:  # it was interrupted after its last epoch
        load_model(learner, Path(last) / "model.safetensors")
        step, seconds = int(log[-1]["step"]), 0.0
    else:
        with quiet_transformers():
            seconds = float(trainer.train(resume_from_checkpoint=last).metrics["train_runtime"])
        log, step = trainer.state.log_history, trainer.state.global_step
    if options.keep is Keep.LAST:
        watch.keep(step, watch.metrics)
    trainer.accelerator.wait_for_everyone()
    return Fitted(log, watch.kept[0], step, watch.kept[1], seconds)


class _Trainer(Trainer):
    """Trainer over :class:`Batches`, which stops where the loss is no number."""

    def __init__(self, *, options: TrainOptions, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.options = options
        self._bad = torch.tensor(torch.inf, device=self.args.device)  # the first step whose loss was no number

    def _loader(self, data: Data, size: int, *, shuffle: bool) -> DataLoader:
        options = self.options
        batches = Batches(data, size, seed=options.seed, shuffle=shuffle, group=options.group, window=options.window)
        loader: DataLoader = DataLoader(
            data, batch_sampler=batches, collate_fn=_same, pin_memory=self.args.device.type == "cuda",  # type: ignore[arg-type]
            generator=torch.Generator(),  # torch's own is for dropout: an evaluation more must change nothing
        )  # fmt: skip
        return self.accelerator.prepare(loader)

    def get_train_dataloader(self) -> DataLoader:
        return self._loader(self.train_dataset, self.args.per_device_train_batch_size, shuffle=True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        return self._loader(eval_dataset or self.eval_dataset, self.args.per_device_eval_batch_size, shuffle=False)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        step = self.state.global_step + 1
        self._bad = torch.minimum(self._bad, torch.where(torch.isfinite(loss), torch.inf, step))
        if loss.device.type == "cpu" or step % self.args.logging_steps == 0:  # elsewhere to ask is to wait
            self._check()
        return loss

    def _check(self) -> None:
        if torch.isfinite(self._bad):
            raise _no_number("the loss", "no number", int(self._bad), self.state, _rate(self.optimizer))

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self._check()
        try:
            super()._save_checkpoint(*args, **kwargs)
        except (SafetensorError, RuntimeError) as error:  # what safetensors and torch make of a full disk
            raise OSError(f"{self.args.output_dir}: what a run goes on from cannot be written: {error}") from error

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.accelerator.unwrap_model(self.model), str(folder / "model.safetensors"))


class _Watch(TrainerCallback):
    """Says when to evaluate; saves what is asked for, keeps the best, ends training early, tells the progress."""

    def __init__(
        self, metric: tuple[str, bool], saved: tuple[int, ...], steps_per_epoch: int, options: TrainOptions, out: Path,
        save: Save, watcher: Watcher | None, progress: Progress,
    ) -> None:  # fmt: skip
        (self.metric, self.higher), self.saved, self.steps_per_epoch = metric, saved, steps_per_epoch
        self.options, self.out, self.save, self.watcher, self.progress = options, out, save, watcher, progress
        self.kept: tuple[int, dict[str, float]] = (0, {})
        self.best = -np.inf
        self.since = 0
        self.rate = 0.0  # of the last update; the schedule is ahead of it
        self.metrics: dict[str, float] = {}

    def recall(self, log: list[dict[str, Any]]) -> None:
        """Take up what an interrupted run knew from what its Trainer had logged."""
        for entry in log:
            if f"eval_{self.metric}" in entry and entry["step"] and entry["step"] % self.steps_per_epoch == 0:
                self._better(entry["step"], _evaluated(entry))

    def keep(self, step: int, metrics: dict[str, float]) -> None:
        """Make the weights as they are those that the run ends with."""
        self.kept = step, metrics
        self.save(kept(self.out), step, metrics)

    def _better(self, step: int, metrics: dict[str, float]) -> bool:
        value = metrics[self.metric] * (1 if self.higher else -1)
        self.metrics = metrics
        if value > self.best or not self.kept[1]:
            self.best, self.since, self.kept = (value if value == value else -np.inf), 0, (step, metrics)
            return True
        self.since += 1
        return False

    @property
    def out_of_patience(self) -> bool:
        """Whether the metric has not been better for too long."""
        return self.options.patience is not None and self.since >= self.options.patience

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        self.rate = _rate(optimizer)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step
        each = self.options.batch_size * self.options.accumulation * processes()[1]
        self.progress("training", step, state.max_steps, examples=step * each)
        ends = step % self.steps_per_epoch == 0
        control.should_evaluate = step in self.saved or ends
        control.should_log |= ends  # what a resumed run would not know of is told

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        step, found = state.global_step, _evaluated(metrics)
        if not np.isfinite(found["loss"]):
            raise _no_number("the loss on dev", found["loss"], step, state, self.rate)
        if step in self.saved:
            self.save(self.out / f"step-{step}", step, found)
        if not step or step % self.steps_per_epoch:
            return
        if self._better(step, found) and self.options.keep is Keep.BEST:
            self.keep(step, found)
        control.should_training_stop |= self.out_of_patience
        if self.watcher is not None:
            self.watcher(step // self.steps_per_epoch, found)


def _rate(optimizer: Any) -> float:
    return max(group["lr"] for group in optimizer.param_groups)


def _no_number(what: str, value: float | str, step: int, state: Any, rate: float) -> NonFiniteError:
    return NonFiniteError(
        f"{what} is {value} at step {step} of {state.max_steps}, at a learning rate of {rate:.3g}. "
        "Try a lower --learning-rate, more --warmup, or --dtype float32."
    )


def _unfinished(folder: Path) -> tuple[list[dict[str, Any]], str | None]:
    """The log and the folder of the last whole checkpoint of an interrupted run; its state is what is written last."""
    for state in sorted(folder.glob("checkpoint-*/trainer_state.json"), key=lambda f: -int(f.parent.name[11:])):
        try:
            return json.loads(state.read_text(encoding="utf-8"))["log_history"], str(state.parent)
        except (ValueError, KeyError):
            continue
    return [], None


def _evaluated(entry: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an entry of the log, without the Trainer's prefix and its timings."""
    drop = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
    found = {k.removeprefix("eval_"): float(v) for k, v in entry.items() if k.startswith("eval_")}
    last = ("loss",)  # the task's metric comes first
    chosen = [*(k for k in found if k not in (*drop, *last) and not k.startswith("mix_")), *last]
    return {k: found[k] for k in chosen}


def _scoring(score: Score, learner: Learner) -> Callable[[EvalPrediction], dict[str, float]]:
    """Metrics for the Trainer; where layers are mixed, their weights, too, so that they are logged."""

    def compute(found: EvalPrediction) -> dict[str, float]:
        metrics = score(np.asarray(found.predictions), np.asarray(found.label_ids))
        if learner.mix is not None:
            weights = learner.mix.weights.detach().float().cpu()
            metrics |= {f"mix_{i}": float(w) for i, w in enumerate(weights)}
            metrics["mix_gamma"] = float(learner.mix.gamma.detach())
        return metrics

    return compute


def _optimizer(groups: list[LayerGroup], options: TrainOptions) -> torch.optim.Optimizer:
    made = param_groups(
        groups, lr=float(options.learning_rate or 0), weight_decay=float(options.weight_decay or 0),
        layer_factor=options.layer_factor,
    )  # fmt: skip
    return BertAdamW(made) if options.optimizer is Optimizer.BERT_ADAMW else torch.optim.AdamW(made, fused=True)


def _arguments(
    options: TrainOptions, epochs: int, steps_per_epoch: int, out: Path, device: str, first: bool
) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(out / RESUME),
        num_train_epochs=epochs,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulation,
        max_grad_norm=options.max_grad_norm,
        bf16=options.dtype is Dtype.BFLOAT16,
        fp16=options.dtype is Dtype.FLOAT16,
        use_cpu=device == "cpu",
        seed=options.seed,
        eval_strategy="no",  # _Watch says when
        eval_on_start=first,
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=max(1, steps_per_epoch // 10),
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=processes()[1] > 1 and options.unfreezing is not Unfreezing.ALL,
        report_to="none",  # _reporters
    )


def _reporters(names: str) -> list[TrainerCallback]:
    """transformers' own callbacks of these names; raises UsageError where one is unknown or not installed."""
    chosen = [name.strip() for name in names.split(",") if name.strip() not in ("", "none")]
    try:
        return [made() for made in get_reporting_integration_callbacks(chosen)]
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"report_to is {names!r}: {error}") from error


def _same(batch: Any) -> Any:
    return batch


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Begin with ``seed``; leave the generators of Python, numpy and torch, which the Trainer sets, as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
