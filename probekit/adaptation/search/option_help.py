"""Help with the options of a search, for error messages: their values, an example line, the closest name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, get_args, get_origin, get_type_hints

from probekit.adaptation.options import Hyperparameters
from probekit.errors import close_names

__all__ = ["OPTIONS", "described", "example_line", "no_such_option"]


def _kind(hint: Any) -> type:
    """The type of an option, None left out; the one of words is text."""
    if get_origin(hint) is Literal:
        return str
    return next((kind for kind in get_args(hint) if kind is not type(None)), hint)


OPTIONS: dict[str, type] = {name: _kind(hint) for name, hint in get_type_hints(Hyperparameters).items()}
"""The type of each option of training and of its head."""
ELSEWHERE = {
    "lr": "learning_rate", "num_train_epochs": "epochs", "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size", "gradient_accumulation_steps": "accumulation", "warmup_ratio": "warmup",
    "lr_scheduler_type": "schedule", "wd": "weight_decay", "bs": "batch_size", "optim": "optimizer",
    "layerwise_decay": "layer_factor", "early_stopping_patience": "patience", "hidden_dropout_prob": "encoder_dropout",
}  # fmt: skip
"""Names of options in other programs, transformers above all."""
CHOICES = {
    "learning_rate": "[1e-5, 3e-5, 1e-4]", "batch_size": "[16, 32]", "epochs": "[2, 3, 4]",
    "dropout": "[0.0, 0.1, 0.2]",
    "weight_decay": "[0.0, 0.01, 0.1]", "encoder_dropout": "[0.0, 0.1]", "layer_factor": "[1.0, 0.4]",
    "ratio": "[16.0, 32.0]", "hidden_size": "[100, 200, 300]", "head": '["linear", "bcn"]',
    "pooling": '["first", "mean"]', "pairs": '["joint", "separate"]',
    "teacher": '["runs/teacher"]', "unlabelled": '["texts.txt"]', "pseudo_labels": '["runs/teacher"]',
    "slices": '["slices.toml"]',
    "order": '["head,all", "gradual"]', "fisher_task": '["mnli"]', "fisher_split": '["train"]',
    "penalty_strength": "[0.01, 0.1]", "targets": '["q,v", "all"]',
    "also": '["rte", "rte,mrpc"]', "sampling": '["uniform", "proportional"]',
}  # fmt: skip
RANGES = {
    "learning_rate": "{ low = 1e-5, high = 1e-4, log = true }", "batch_size": "{ low = 8, high = 64, log = true }",
    "epochs": "{ low = 2, high = 10 }", "hidden_size": "{ low = 100, high = 400 }",
    "ratio": "{ low = 8, high = 64, log = true }", "window": "{ low = 1000000, high = 1000000000, log = true }",
}  # fmt: skip
OFTEN = ("learning_rate", "batch_size", "epochs", "dropout", "weight_decay", "schedule")


def described(name: str) -> str:
    """The values of an option, in words."""
    kind = OPTIONS[name]
    if issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(kind, "a text in quotation marks")


def example_line(name: str, *, as_range: bool = False) -> str:
    """A line of [space] that is right for an option: choices, or a range."""
    kind = OPTIONS[name]
    if as_range:
        example = RANGES.get(name, "{ low = 1, high = 4 }" if kind is int else "{ low = 0.1, high = 0.5 }")
    elif issubclass(kind, StrEnum):
        example = "[" + ", ".join(f'"{member}"' for member in list(kind)[:2]) + "]"
    else:
        by_kind = {int: "[1, 2]", float: "[0.1, 0.5]", bool: "[true, false]"}
        example = CHOICES.get(name) or by_kind[kind]
    return f"{name} = {example}"


def no_such_option(name: str) -> str:
    """An error for an unknown option: the one that was probably meant, its kind, and a line that is right."""
    near = ELSEWHERE.get(name.lower()) or next(iter(close_names(name, OPTIONS)), None)
    if near is None:
        often = f"Options that are often searched: {', '.join(OFTEN)}"
        return f"training has no option {name!r}. {often}; probekit train --help shows all."
    return (
        f"training has no option {name!r}; did you mean {near}? List the values to try, each "
        f"{described(near)}, for example {example_line(near)}."
    )
