"""The steps of a training on several objectives: each step has a batch of one, drawn by the mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import nn

from probekit.adaptation.data.batches import Batched, Batches
from probekit.adaptation.mixtures import Mixture, macro_average, since_best
from probekit.adaptation.pretraining.objectives import PretrainingObjective
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.pretraining.resuming import resume, write_checkpoint
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.training.learners import Learner
from probekit.errors import NonFiniteError
from probekit.runtime import Progress

__all__ = ["MixtureHistory", "train_mixture"]

FACTOR, BAD_CHECKS, LEAST, THRESHOLD = 0.5, 4, 1e-6, 1e-4
"""The learning rate is halved after more than 4 validations without an improvement of .0001, and training ends below
1e-6 (Bowman et al. 2018, section 4; jiant's threshold)."""


@dataclass(frozen=True, slots=True)
class MixtureHistory:
    """What happened.

    Attributes
    ----------
    log : list[dict[str, Any]]
        For each validation: ``step``, ``learning_rate``, ``macro``, and ``objectives``: for each its metrics on dev,
        ``trained`` (mean loss on train since the last validation) and ``batches``.
    best : int
        Index in the log of the kept weights.
    stopped : str
        Why the training ended.
    seconds : float
        Time of this process.
    """

    log: list[dict[str, Any]]
    best: int
    stopped: str
    seconds: float


def _batches(data: Batched, size: int, seed: int, first: int) -> Iterator[list[int]]:
    """The batches of an objective from number ``first`` on, in all epochs."""
    batches = Batches(data, size, seed=seed)
    epoch, at = divmod(first, len(batches))
    while True:
        batches.set_epoch(epoch)
        yield from islice(batches, at, None)
        epoch, at = epoch + 1, 0


def train_mixture(
    learner: Learner,
    objectives: Sequence[PretrainingObjective],
    mixture: Mixture,
    save: Callable[[int, dict[str, Any]], None],
    options: EncoderOptions,
    out: Path,
    progress: Progress,
) -> MixtureHistory:
    """Train until the last step, or until the macro average of the validation metrics stops rising.

    Parameters
    ----------
    save : callable
        ``save(step, entry)`` keeps the current weights, which are the best so far.
    out : Path
        The run's folder, from which an interrupted training resumes.

    Raises
    ------
    NonFiniteError
        If a loss is NaN or infinite; the message names the objective, the step and the learning rate.
    """
    device = options.device
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=options.rate([one.metric for one in objectives]), amsgrad=True, fused=True)
    log, first = resume(learner, optimizer, out)
    began, every = monotonic(), options.evaluate_every * len(objectives)
    drawn = mixture.draw(options.steps, options.seed)
    taken = [int((drawn[:first] == i).sum()) for i in range(len(objectives))]
    batches = [_batches(one.train, options.batch_size, options.seed + i, taken[i]) for i, one in enumerate(objectives)]
    losses = [torch.zeros((), device=device) for _ in objectives]
    since = [0] * len(objectives)
    rate = _rate(log, optimizer)
    stopped, scales = "", mixture.scales
    learner.train()
    for step in range(first, options.steps):
        i = int(drawn[step])
        one = objectives[i]
        torch.manual_seed((options.seed << 32) + step)  # of dropout: an interrupted training has the same in this step
        batch = on_device(device, one.train.__getitems__(next(batches[i])))
        loss = learner(**batch, module=one.module)["loss"]
        (loss * scales[i]).backward()
        if options.max_grad_norm:
            nn.utils.clip_grad_norm_(trained, options.max_grad_norm)
        if not torch.isfinite(loss.detach()):
            raise NonFiniteError(
                f"the loss of {one.name} is {loss.item():g} at step {step + 1} of {options.steps}, at a learning rate "
                f"of {rate:.3g}. Try a lower --learning-rate, or leave this objective out."
            )
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        taken[i] += 1
        since[i] += 1
        losses[i] += loss.detach()
        done = step + 1
        progress("pretraining", done, options.steps)
        if done % every and done < options.steps:
            continue
        found = {
            one.name: one.score(learner, options.batch_size, device)
            | {"trained": float(losses[k]) / since[k] if since[k] else float("nan"), "batches": taken[k]}
            for k, one in enumerate(objectives)
        }
        learner.train()
        losses, since = [torch.zeros((), device=device) for _ in objectives], [0] * len(objectives)
        main = [found[one.name][one.metric.name] for one in objectives]
        macro = macro_average(main, [one.metric.better == "higher" for one in objectives])
        log.append({"step": done, "learning_rate": rate, "macro": macro, "objectives": found})
        rate = _rate(log, optimizer)
        if not since_best(_macros(log)):
            save(done, log[-1])
        if stopped := _ends(log, rate, options):
            break
        if done < options.steps:
            write_checkpoint(learner, optimizer, log, out, done)
    return MixtureHistory(log, int(np.argmax(_macros(log))), stopped or "the last step", monotonic() - began)


def _macros(log: Sequence[dict[str, Any]]) -> list[float]:
    return [entry["macro"] for entry in log]


def _rate(log: Sequence[dict[str, Any]], optimizer: torch.optim.Optimizer) -> float:
    """The learning rate after the validations of the log, by torch's ReduceLROnPlateau."""
    highest = optimizer.defaults["lr"]
    fresh = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=highest)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        fresh, mode="max", factor=FACTOR, patience=BAD_CHECKS, threshold=THRESHOLD, threshold_mode="abs"
    )
    for macro in _macros(log):
        schedule.step(macro)
    return float(fresh.param_groups[0]["lr"])


def _ends(log: Sequence[dict[str, Any]], rate: float, options: EncoderOptions) -> str:
    """Why the training ends after the last validation of the log; "" if it does not."""
    if since_best(_macros(log)) > options.patience:
        return f"no improvement in {options.patience} validations"
    return f"a learning rate below {LEAST:g}" if rate < LEAST else ""
