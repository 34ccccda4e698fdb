"""The steps of a training on several objectives: each step has a batch of one, drawn by the mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, nan
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probekit.adaptation.data.batches import Batched, Batches
from probekit.adaptation.mixtures import Mixture, macro_average, since_best
from probekit.adaptation.pretraining.loop import resume, write_checkpoint
from probekit.adaptation.pretraining.objective import PretrainingObjective
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.runs.predictions import on_device
from probekit.adaptation.training.learners import Learner
from probekit.adaptation.training.schedules import plateau
from probekit.errors import NonFiniteError
from probekit.runtime import Progress

BAD_CHECKS, LEAST = 4, 1e-6
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


def order_seed(seed: int, objective: int) -> int:
    """The seed of the order of one objective's examples: no two seeds or objectives share it."""
    return int(np.random.SeedSequence((seed, objective)).generate_state(1)[0])


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
        If a loss, a gradient or a metric on dev is NaN or infinite; the message names the objective, the step and the
        learning rate.
    """
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=options.rate([one.metric for one in objectives]), amsgrad=True, fused=True)
    log, first = resume(learner, optimizer, out)
    began, every, stopped = monotonic(), options.evaluate_every * len(objectives), ""
    turns = _Turns(objectives, mixture, options, first)
    rate = _rate(log, optimizer)
    learner.train()
    for step in range(first, options.steps):
        done = step + 1
        for group in optimizer.param_groups:
            group["lr"] = rate
        names = []
        for turn in range(step * options.accumulation, done * options.accumulation):
            torch.manual_seed((options.seed << 32) + turn)  # of dropout: an interrupted training has the same here
            i, batch = turns.next(turn)
            names.append(objectives[i].name)
            loss = learner(**on_device(options.device, batch), module=objectives[i].module)["loss"]
            _check_finite(f"the loss of {names[-1]}", loss.detach(), done, options, rate)
            (loss * (mixture.scales[i] / options.accumulation)).backward()
            turns.note(i, loss)
        norm = nn.utils.clip_grad_norm_(trained, options.max_grad_norm or inf)
        _check_finite(f"the gradient of {' and '.join(dict.fromkeys(names))}", norm, done, options, rate)
        optimizer.step()
        optimizer.zero_grad()
        progress("pretraining", done, options.steps)
        if done % every and done < options.steps:
            continue
        found = _validation(learner, objectives, turns, done, options, rate)
        log.append({"step": done, "learning_rate": rate, **found})
        rate = _rate(log, optimizer)
        if not since_best(_macros(log)):
            save(done, log[-1])
        if stopped := _ends(log, rate, options):
            break
        if done < options.steps:
            write_checkpoint(learner, optimizer, log, out, done)
    return MixtureHistory(log, int(np.argmax(_macros(log))), stopped or "the last step", monotonic() - began)


class _Turns:
    """The batches of all objectives in the order of the mixture, and their losses since the last validation."""

    def __init__(
        self, objectives: Sequence[PretrainingObjective], mixture: Mixture, options: EncoderOptions, first: int
    ) -> None:
        self.objectives, n = objectives, len(objectives)
        self.drawn = mixture.draw(options.steps * options.accumulation, options.seed)
        self.taken = np.bincount(self.drawn[: first * options.accumulation], minlength=n).tolist()
        self.batches = [
            _batches(one.train, options.batch_size, order_seed(options.seed, i), self.taken[i])
            for i, one in enumerate(objectives)
        ]
        self.losses: list[list[Tensor]] = [[] for _ in objectives]

    def next(self, turn: int) -> tuple[int, Mapping[str, Any]]:
        """The objective of a turn, and its next batch."""
        i = int(self.drawn[turn])
        return i, self.objectives[i].train.__getitems__(next(self.batches[i]))

    def note(self, i: int, loss: Tensor) -> None:
        """Count a batch of an objective."""
        self.taken[i] += 1
        self.losses[i].append(loss.detach())

    def means(self) -> list[float]:
        """The mean loss of each objective since the last call; NaN if it had no batch."""
        found = [float(torch.stack(losses).mean()) if losses else nan for losses in self.losses]
        self.losses = [[] for _ in self.objectives]
        return found


def _validation(
    learner: Learner, objectives: Sequence[PretrainingObjective], turns: _Turns, step: int, options: EncoderOptions,
    rate: float,
) -> dict[str, Any]:  # fmt: skip
    """The metrics of each objective on dev, and their macro average."""
    found, main = {}, []
    for one, trained, taken in zip(objectives, turns.means(), turns.taken, strict=True):
        metrics = one.score(learner, options.batch_size, options.device)
        main.append(metrics[one.metric.name])
        _check_finite(f"the loss of {one.name} on dev", torch.tensor(metrics["loss"] + main[-1]), step, options, rate)
        found[one.name] = metrics | {"trained": trained, "batches": taken}
    learner.train()
    return {"macro": macro_average(main, [one.metric.better == "higher" for one in objectives]), "objectives": found}


def _check_finite(what: str, value: Tensor, step: int, options: EncoderOptions, rate: float) -> None:
    """Raise NonFiniteError if a value is NaN or infinite."""
    if not torch.isfinite(value):
        raise NonFiniteError(
            f"{what} is {value.item():g} at step {step} of {options.steps}, at a learning rate of {rate:.3g}. Try a "
            "lower --learning-rate, or leave this objective out."
        )


def _macros(log: Sequence[dict[str, Any]]) -> list[float]:
    return [entry["macro"] for entry in log]


def _rate(log: Sequence[dict[str, Any]], optimizer: torch.optim.Optimizer) -> float:
    """The learning rate after the validations of the log."""
    highest = optimizer.defaults["lr"]
    fresh = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=highest)
    schedule = plateau(fresh, BAD_CHECKS)
    for macro in _macros(log):
        schedule.step(macro)
    return float(fresh.param_groups[0]["lr"])


def _ends(log: Sequence[dict[str, Any]], rate: float, options: EncoderOptions) -> str:
    """Why the training ends after the last validation of the log; "" if it does not."""
    if since_best(_macros(log)) >= options.patience:
        return f"no improvement in {options.patience} validations"
    return f"a learning rate below {LEAST:g}" if rate < LEAST else ""
