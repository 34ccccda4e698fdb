"""Evaluation during training, saved and kept weights, early stopping, and what a training costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from transformers import TrainerCallback

from probekit.adaptation.options import LOWEST_RATE, Keep
from probekit.adaptation.runs.digests import check_weights
from probekit.adaptation.runs.folder import kept, read_card
from probekit.adaptation.training.objective import Save, Training, Watcher
from probekit.errors import ModelError, NonFiniteError, UsageError
from probekit.runtime import Progress, processes


def save_steps(text: str, steps_per_epoch: int, total: int) -> tuple[int, ...]:
    """The steps of checkpoints, from "10,20,50", "epochs" or "log-spaced" (0, 1, 2, 4, … and the last).

    Raises
    ------
    UsageError
        For anything else, and for steps beyond the last.
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
        raise UsageError(f"save_at is {text!r}; it must be steps such as 10,20,50, or epochs, or log-spaced.") from None
    if steps[0] < 0 or steps[-1] > total:
        raise UsageError(
            f"save_at contains step {steps[0] if steps[0] < 0 else steps[-1]}; the run has steps 0 to {total}."
        )
    return tuple(steps)


class Checkpointing(TrainerCallback):
    """Triggers evaluation, saves checkpoints, keeps the best weights, stops early and reports progress.

    An evaluation that is due (after each epoch, or every ``evaluate_every`` steps and at the end) chooses the kept
    weights, counts for patience, and steps a plateau schedule; one at a saved step does not.

    Attributes
    ----------
    out : Path
        The run's folder.
    save : Save
        Writes the current weights.
    kept : tuple
        The step of the kept weights, and their metrics on dev.
    """

    def __init__(
        self, training: Training, out: Path, save: Save, *, scheduler: LRScheduler, steps_per_epoch: int,
        watcher: Watcher | None, progress: Progress,
    ) -> None:  # fmt: skip
        self.options, self.metric = training.options, training.objectives[0].metric
        self.out, self.save, self.watcher, self.progress = out, save, watcher, progress
        self.plateau = scheduler if isinstance(scheduler, ReduceLROnPlateau) else None
        self.every, self.total = self.options.evaluate_every or steps_per_epoch, self.options.epochs * steps_per_epoch
        self.saved = save_steps(self.options.save_at, steps_per_epoch, self.total)
        self.kept: tuple[int, dict[str, float]] = (0, {})
        self.best = -np.inf
        self.since = 0
        self.rate = 0.0  # of the last update; the schedule is ahead of it
        self.metrics: dict[str, float] = {}

    def recall(self, log: list[dict[str, Any]]) -> None:
        """Restore the state of an interrupted run from its Trainer's log."""
        for entry in self._evaluations(log):
            self._better(entry["step"], _evaluated(entry))

    def has_kept(self, log: list[dict[str, Any]]) -> bool:
        """Whether the best weights in an interrupted run's log exist, or better ones that training will reach again."""
        evaluated = self._evaluations(log)
        if not evaluated:
            return True
        best = max(evaluated, key=lambda entry: entry[f"eval_{self.metric.name}"] * self.metric.sign)
        try:
            card = read_card(kept(self.out))
            check_weights(kept(self.out), card)
        except ModelError:
            return False
        return bool(card["step"] >= best["step"])

    def keep(self, step: int, metrics: dict[str, float]) -> None:
        """Keep the current weights as those of the run."""
        self.kept = step, metrics
        self.save(kept(self.out), step, metrics)

    def _is_due(self, step: int) -> bool:
        return step > 0 and (step % self.every == 0 or step == self.total)

    def _evaluations(self, log: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries of the evaluations that were due."""
        return [entry for entry in log if f"eval_{self.metric.name}" in entry and self._is_due(entry["step"])]

    def _better(self, step: int, metrics: dict[str, float]) -> bool:
        value = metrics[self.metric.name] * self.metric.sign
        self.metrics = metrics
        if self.plateau is not None:
            self.plateau.step(metrics[self.metric.name])
        if value > self.best or not self.kept[1]:
            self.best, self.since, self.kept = (value if value == value else -np.inf), 0, (step, metrics)
            return True
        self.since += 1
        return False

    @property
    def out_of_patience(self) -> bool:
        """Whether the metric has not improved for too long, or the rate on the plateau is too low."""
        if self.plateau is not None and rate_of(self.plateau.optimizer) < LOWEST_RATE:
            return True
        return self.options.patience is not None and self.since >= self.options.patience

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        self.rate = rate_of(optimizer)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step
        each = self.options.batch_size * self.options.accumulation * processes()[1]
        self.progress("training", step, state.max_steps, examples=step * each)
        due = self._is_due(step)
        control.should_evaluate = step in self.saved or due
        control.should_log |= due  # log what a resumed run needs
        control.should_save = due  # to resume here

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        step, found = state.global_step, _evaluated(metrics)
        if not np.isfinite(found["loss"]):
            raise not_finite("the loss on dev", found["loss"], step, state, self.rate)
        if step in self.saved:
            self.save(self.out / f"step-{step}", step, found)
        if not self._is_due(step):
            return
        if self._better(step, found) and self.options.keep is Keep.BEST:
            self.keep(step, found)
        control.should_training_stop |= self.out_of_patience
        if self.watcher is not None:
            self.watcher(ceil(step / self.every), found)


def rate_of(optimizer: Any) -> float:
    """The highest learning rate of an optimiser's groups."""
    return max(group["lr"] for group in optimizer.param_groups)


def not_finite(what: str, value: float | str, step: int, state: Any, rate: float) -> NonFiniteError:
    """The error that ends a training with a NaN or infinite loss."""
    return NonFiniteError(
        f"{what} is {value} at step {step} of {state.max_steps}, at a learning rate of {rate:.3g}. "
        "Try a lower --learning-rate, more --warmup, or --dtype float32."
    )


def _evaluated(entry: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an entry of the log, without the Trainer's prefix and its timings."""
    drop = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")
    found = {k.removeprefix("eval_"): float(v) for k, v in entry.items() if k.startswith("eval_")}
    last = ("loss",)  # the task's metric comes first
    chosen = [*(k for k in found if k not in (*drop, *last) and not k.startswith("mix_")), *last]
    return {k: found[k] for k in chosen}


_STATUS, _REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Cost:
    """The cost of a training in this process.

    Attributes
    ----------
    cpu_seconds : float
        Processor time of all threads, in seconds.
    peak_memory : int, optional
        Largest memory in bytes: of the GPU if it trains there, otherwise resident memory of the process, with all that
        it held before. None where the system does not tell it.
    """

    cpu_seconds: float = 0.0
    peak_memory: int | None = None


@contextmanager
def measured(device: str) -> Iterator[Cost]:
    """Measure the cost of the block, which trains on a device; the numbers are there when it ends."""
    cost, began = Cost(), process_time()
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # not on Linux, or not allowed: the peak is then that of the whole process
            _REFERENCES.write_text("5")  # begin to measure the peak anew (man 5 proc)
    try:
        yield cost
    finally:
        cost.cpu_seconds = round(process_time() - began, 3)
        cost.peak_memory = torch.cuda.max_memory_allocated(device) if on_gpu else _peak()


def _peak() -> int | None:
    """The largest resident memory of this process in bytes."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
