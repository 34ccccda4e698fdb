"""How something is trained: frozen values, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from probekit.adaptation.training.schedules import Schedule, Unfreezing
from probekit.errors import UsageError, did_you_mean
from probekit.runtime import Dtype

__all__ = ["HeadOptions", "Keep", "Optimizer", "Regime", "TrainOptions", "options_of"]


class Regime(StrEnum):
    """Whether the encoder is trained, too (Peters, Ruder & Smith 2019)."""

    FINE_TUNE = "fine-tune"
    FEATURE_EXTRACTION = "feature-extraction"


class Optimizer(StrEnum):
    """AdamW of Loshchilov & Hutter (2019), or BERT's own, without bias correction (Devlin et al. 2019)."""

    ADAMW = "adamw"
    BERT_ADAMW = "bert-adamw"


class Keep(StrEnum):
    """Which weights a run ends with: those of the epoch that was best on dev, or of the last."""

    BEST = "best"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """The task model.

    head : a name of :data:`probekit.adaptation.heads.HEADS`, or "auto". Fine-tuning: a linear layer, on each word's
        first piece where words are tagged; of ELMo and Skip-thoughts bi-attention for pairs, and a CRF where the tags
        are spans. Feature extraction: those of the paper, BCN for sentences, ESIM for pairs, BiLSTM-CRF for tags
        (without the CRF where tags are no spans)
    pooling : of the linear head, pair and rating: pooler, first, last, mean, mean-all or max; auto takes, when the
        encoder is trained, the maximum of ELMo, the encoder's pooler, the last piece of a decoder and of Skip-thoughts,
        the first of other encoders; of cached layers the mean, of Skip-thoughts the last
    hidden_size, dropout : of the head; its own default for None
    mix : when the encoder is trained, let the head read a learned mix of all its layers (what enters each block, and
        its last hidden states) instead of the last; cached layers are always mixed
    layer_norm : normalise each layer before they are mixed
    pairs : read the sentences of a pair "joint" (one sequence, which ESIM and bi-attention cut in two) or "separate"
        (two); auto reads apart for heads that compare sentences and encoders of one at a time (ELMo, Skip-thoughts)
    """

    head: str = "auto"
    pooling: str = "auto"
    hidden_size: int | None = None
    dropout: float | None = None
    mix: bool = False
    layer_norm: bool = False
    pairs: str = "auto"

    def __post_init__(self) -> None:
        _check(self.pairs in ("auto", "joint", "separate"), "pairs", self.pairs, "auto, joint or separate")
        _check(self.hidden_size is None or self.hidden_size >= 1, "hidden_size", self.hidden_size, "1 or more")
        _check(self.dropout is None or 0 <= self.dropout < 1, "dropout", self.dropout, "from 0 to below 1")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """The training.

    epochs, learning_rate, weight_decay : None takes the regime's default: 3, 5e-5 and 0.01 in fine-tuning; 20, 1e-3 and
        0 in feature extraction, where heads without a hidden layer learn at 1e-2
    accumulation : batches whose gradients are added up before each step
    max_grad_norm : clip gradients at this norm; 0 for not at all
    schedule, warmup : of the learning rate; warm-up as a share of all steps. cut, ratio : of the slanted triangle
    layer_factor : the learning rate of each layer over that of the layer above
    unfreezing : which layers are trained when
    dtype : float32, or mixed precision in bfloat16 or float16
    group : put texts of like length together
    window : bytes of a token cache that are shuffled as one
    patience : epochs without a better dev metric after which training ends; never for None
    save_at : steps at which to leave a checkpoint: "10,20,50", "epochs", "log-spaced"; none for ""
    """

    epochs: int | None = None
    batch_size: int = 32
    learning_rate: float | None = None
    weight_decay: float | None = None
    accumulation: int = 1
    max_grad_norm: float = 1.0
    optimizer: Optimizer = Optimizer.ADAMW
    schedule: Schedule = Schedule.LINEAR
    warmup: float = 0.1
    cut: float = 0.1
    ratio: float = 32.0
    layer_factor: float = 1.0
    unfreezing: Unfreezing = Unfreezing.ALL
    dtype: Dtype = Dtype.FLOAT32
    group: bool = True
    window: int = 2 << 30
    gradient_checkpointing: bool = False
    seed: int = 0
    keep: Keep = Keep.BEST
    patience: int | None = None
    save_at: str = ""

    def __post_init__(self) -> None:
        kinds = {"optimizer": Optimizer, "schedule": Schedule, "unfreezing": Unfreezing, "dtype": Dtype, "keep": Keep}
        for name, kind in kinds.items():
            object.__setattr__(self, name, _choice(kind, getattr(self, name), name))
        for name in ("epochs", "batch_size", "accumulation", "patience", "window"):
            value = getattr(self, name)
            _check(value is None or value >= 1, name, value, "1 or more")
        _check(self.learning_rate is None or self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        _check(self.weight_decay is None or self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        _check(self.max_grad_norm >= 0, "max_grad_norm", self.max_grad_norm, "0 or more")
        _check(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 to below 1")
        _check(0 <= self.cut < 1, "cut", self.cut, "from 0 to below 1")
        _check(self.ratio >= 1, "ratio", self.ratio, "1 or more")
        _check(0 < self.layer_factor <= 1, "layer_factor", self.layer_factor, "above 0, at most 1")


DEFAULTS: dict[Regime, dict[str, Any]] = {
    Regime.FINE_TUNE: {"epochs": 3, "learning_rate": 5e-5, "weight_decay": 0.01},
    Regime.FEATURE_EXTRACTION: {"epochs": 20, "learning_rate": 1e-3, "weight_decay": 0.0},
}
"""The defaults of each regime; in feature extraction some heads have ``LINEAR_RATE`` instead."""

LINEAR, LINEAR_RATE = ("linear", "softmax", "crf", "pair", "rating"), 1e-2
"""Heads without a hidden layer, which learn too little of frozen layers at a rate of 1e-3: the mix stays even."""


def options_of(regime: Regime, given: dict[str, Any]) -> tuple[HeadOptions, TrainOptions]:
    """Both kinds of options from one mapping, the regime's defaults filled in; UsageError for an unknown name."""
    names = {kind: {f.name for f in fields(kind)} for kind in (HeadOptions, TrainOptions)}
    known = sorted(names[HeadOptions] | names[TrainOptions])
    for name in given:
        if name not in known:
            raise UsageError(f"there is no option {name!r} of training; {did_you_mean(name, known, most=2)}")
    set_ = {k: v for k, v in given.items() if v is not None}
    if regime is Regime.FEATURE_EXTRACTION and given.get("head") in LINEAR:
        set_ = {"learning_rate": LINEAR_RATE} | set_
    head = HeadOptions(**{k: v for k, v in set_.items() if k in names[HeadOptions]})
    return head, TrainOptions(**DEFAULTS[regime] | {k: v for k, v in set_.items() if k in names[TrainOptions]})


def _choice(kind: type[StrEnum], value: str, name: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(kind)}.") from None


def _check(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        raise UsageError(f"{name} is {value}; it must be {wanted}.")
