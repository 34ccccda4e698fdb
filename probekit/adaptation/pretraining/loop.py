"""The steps of a pretraining: batches, updates, evaluations and checkpoints from which it resumes to the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, cos, inf, pi
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from probekit.adaptation.pretraining.options import PretrainOptions
from probekit.adaptation.runs.digests import seal, whole_checkpoints
from probekit.adaptation.runs.folder import RESUME
from probekit.adaptation.training.checkpointing import save_steps
from probekit.errors import NonFiniteError
from probekit.files import remove
from probekit.models.folder import writing_tensors
from probekit.runtime import Dtype, Progress

FLOOR = 0.1
"""The last learning rate over the highest."""
BETAS = (0.9, 0.95)


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The batches of a text, each determined by seed and step.

    Attributes
    ----------
    blocks : np.ndarray
        int32 (n, t), the sequences.
    size : int
        Sequences in a batch.
    seed : int
        Seed of the order, which differs in each epoch.
    """

    blocks: np.ndarray
    size: int
    seed: int
    _order: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return ceil(len(self.blocks) / self.size)

    def batch(self, step: int) -> Tensor:
        """The batch of a step, counted from 0, int64 (b, t)."""
        epoch, at = divmod(step, len(self))
        if epoch not in self._order:
            self._order.clear()
            self._order[epoch] = np.random.default_rng((self.seed, epoch)).permutation(len(self.blocks))
        rows = self._order[epoch][at * self.size : (at + 1) * self.size]
        return torch.from_numpy(self.blocks[rows].astype(np.int64))


@dataclass(frozen=True, slots=True)
class History:
    """What happened: ``log`` has a mapping for each evaluation, with ``step``; ``seconds`` those of this process."""

    log: list[dict[str, float]]
    steps: int
    seconds: float


def optimise(
    model: nn.Module,
    loss: Callable[[Tensor, int], Tensor],
    stream: Stream,
    check: Callable[[], dict[str, float]],
    save: Callable[[int, Mapping[str, float]], None],
    options: PretrainOptions,
    out: Path,
    progress: Progress,
) -> History:
    """Train for the epochs of the options, and evaluate and write checkpoints on the way.

    Parameters
    ----------
    loss : callable
        ``loss(blocks, seed)``, the mean loss of a batch; ``seed`` differs in each step.
    check : callable
        The metrics on held-out text.
    save : callable
        ``save(step, metrics)`` writes the current weights as a checkpoint of the run.

    Raises
    ------
    NonFiniteError
        If the loss is NaN or infinite; the message gives the step and its learning rate.
    """
    steps = max(1, round(options.epochs * len(stream)))
    saved = set(save_steps(options.save_at, len(stream), steps))
    optimizer = torch.optim.AdamW(
        groups(model, options.weight_decay), lr=options.learning_rate, betas=BETAS, fused=True
    )
    log, first = resume(model, optimizer, out)
    began, device = monotonic(), next(model.parameters()).device
    bfloat16 = options.dtype is Dtype.BFLOAT16
    mean = torch.zeros((), device=device)
    if not log and (0 in saved or options.model is not None):
        log.append({"step": 0, **check()})
        if 0 in saved:
            save(0, log[-1])
    for step in range(first, steps):
        rate = options.learning_rate * _share(step, steps, options.warmup)
        for group in optimizer.param_groups:
            group["lr"] = rate
        seed = (options.seed << 32) + step
        torch.manual_seed(seed)  # of dropout: an interrupted training has the same in this step
        blocks = stream.batch(step).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            value = loss(blocks, seed)
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm or inf)
        if not torch.isfinite(value.detach() + norm):
            raise NonFiniteError(
                f"the loss is {value.item():g} and the norm of its gradient {norm.item():g} at step {step + 1} of "
                f"{steps}, at a learning rate of {rate:.3g}. Try a lower --learning-rate, more --warmup, or --dtype "
                "float32."
            )
        optimizer.step()
        optimizer.zero_grad()
        mean += value.detach()
        done = step + 1
        progress("training", done, steps, pieces=(done - first) * blocks.numel())
        due = done % options.evaluate_every == 0 or done == steps
        if due or done in saved:
            since = done - (int(log[-1]["step"]) if log else 0)
            log.append({"step": done, "loss": float(mean) / since, **check()})
            mean.zero_()
            if done in saved:
                save(done, log[-1])
            if due and done < steps:
                write_checkpoint(model, optimizer, log, out, done)
    return History(log, steps, monotonic() - began)


def _share(step: int, steps: int, warmup: float) -> float:
    """The learning rate of an update, counted from 0, over the highest: a line up, then a cosine down to a tenth."""
    rising = int(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    return FLOOR + (1 - FLOOR) * (1 + cos(pi * (step - rising) / max(1, steps - rising))) / 2


def groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters with weight decay, and biases and norms without."""
    wide = [p for p in model.parameters() if p.ndim > 1]
    narrow = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": wide, "weight_decay": weight_decay}, {"params": narrow, "weight_decay": 0.0}]


def write_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, log: list[dict[str, Any]], out: Path, step: int
) -> None:
    """Write a checkpoint of the run ``out``; the previous one stays in case this one is damaged."""
    folder = out / RESUME / f"checkpoint-{step}"
    remove(folder)
    folder.mkdir(parents=True)
    with writing_tensors(folder / "model.safetensors"):
        save_model(model, str(folder / "model.safetensors"))
    state = {
        f"{name}.{what}": value.contiguous()
        for name, parameter in _parameters(optimizer)
        for what, value in optimizer.state.get(parameter, {}).items()
    }
    with writing_tensors(folder / "optimizer.safetensors"):
        save_file(state, str(folder / "optimizer.safetensors"))
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}), encoding="utf-8")
    seal(folder)
    known = sorted((out / RESUME).glob("checkpoint-*"), key=lambda f: int(f.name[11:]))
    for old in known[:-2]:
        remove(old)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path) -> tuple[list[dict[str, Any]], int]:
    """Restore the newest complete checkpoint; returns its log and the next step."""
    for log, folder in whole_checkpoints(out / RESUME, lambda _: True):
        load_model(model, folder / "model.safetensors")
        stored = load_file(folder / "optimizer.safetensors")
        for name, parameter in _parameters(optimizer):
            state: dict[str, Tensor] = {
                key.rpartition(".")[2]: value.to(parameter.device)
                for key, value in stored.items()
                if key.rpartition(".")[0] == name
            }
            if state:
                optimizer.state[parameter] = state
        return list(log), int(folder.name[11:])
    return [], 0


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """The trained parameters with names by group and place."""
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            yield f"{i}.{j}", parameter
