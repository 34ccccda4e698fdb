"""Settings for the target tasks of frozen encoders: Bowman et al. (2018, section 4 and appendix B)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from probekit.adaptation.options import Optimizer, Preset, Schedule, TrainOptions, regime_defaults

SIZES: dict[str, dict[str, Any]] = {
    "small": {"head": "max-mlp", "hidden_size": 128, "dropout": 0.4, "evaluate_every": 100},
    "medium": {"head": "max-mlp", "hidden_size": 256, "dropout": 0.2, "evaluate_every": 100},
    "large": {"head": "attention-max-mlp", "hidden_size": 512, "dropout": 0.2, "evaluate_every": 1000},
}
"""The task models by size; the attention of the large ones includes a BiLSTM."""
TASKS = {
    **dict.fromkeys(("rte", "wnli"), "small"),
    **dict.fromkeys(("cola", "sst2", "mrpc"), "medium"),
    **dict.fromkeys(("stsb", "qqp", "mnli", "qnli"), "large"),
}
"""The sizes of the nine GLUE tasks."""
FEW, MANY = 3000, 5000
SHARED: dict[str, Any] = {
    "optimizer": Optimizer.AMSGRAD, "learning_rate": 3e-4, "weight_decay": 0.0, "max_grad_norm": 5.0, "batch_size": 32,
    "schedule": Schedule.PLATEAU, "plateau_patience": 4, "patience": 20,
}  # fmt: skip
EVALUATIONS = 1000
"""The most evaluations; patience and the lowest rate end a training long before."""


def target_options(task: str, examples: int, *, paired: bool, preset: Preset = Preset.BOWMAN_2018) -> dict[str, Any]:
    """The options of ``probekit train`` in which a preset differs from the defaults, for a task.

    Parameters
    ----------
    task : str
        Its name. GLUE tasks have the paper's sizes, whatever ``examples`` is; other tasks are small below 3,000
        training examples, large for pairs from 5,000 examples, and otherwise medium, as all nine are.
    examples : int
        Number of training examples.
    paired : bool
        Whether it has sentence pairs, which are then encoded separately.

    Examples
    --------
    >>> target_options("rte", 2490, paired=True)["hidden_size"]
    128
    >>> target_options("sick-e", 4500, paired=True)["head"]
    'max-mlp'
    """
    by_data = "small" if examples < FEW else "large" if paired and examples >= MANY else "medium"
    size = SIZES[TASKS.get(task.partition(":")[0], by_data)]
    steps = ceil(examples / SHARED["batch_size"])
    epochs = ceil(EVALUATIONS * size["evaluate_every"] / steps)
    return SHARED | size | {"epochs": epochs} | ({"pairs": "separate"} if paired else {})


def with_preset(options: TrainOptions, task: str, examples: int, *, paired: bool) -> TrainOptions:
    """The options with those of their preset; options that differ from their defaults stay."""
    if options.preset is None:
        return options
    defaults = TrainOptions(regime=options.regime).numbers() | regime_defaults(options.regime, options.head)
    found = target_options(task, examples, paired=paired, preset=options.preset)
    return replace(options, **{k: v for k, v in found.items() if getattr(options, k) == defaults[k]})
