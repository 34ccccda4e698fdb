"""How something is trained: frozen values, checked when they are made. Importing them costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option
from probekit.runtime import Dtype
from probekit.tasks.context import Context

__all__ = [
    "PLAIN",
    "REGIME_DEFAULTS",
    "HeadOptions",
    "Hyperparameters",
    "Keep",
    "Optimizer",
    "Regime",
    "Schedule",
    "SearchOptions",
    "TrainOptions",
    "Unfreezing",
    "check_names",
    "regime_defaults",
]


if TYPE_CHECKING:  # None may be given for what regimes have defaults of; an instance holds a number
    Count = int
    Rate = float
else:
    Count, Rate = int | None, float | None


class Regime(StrEnum):
    """Whether the encoder is trained, too (Peters, Ruder & Smith 2019)."""

    FINE_TUNE = "fine-tune"
    FEATURE_EXTRACTION = "feature-extraction"


class Optimizer(StrEnum):
    """AdamW of Loshchilov & Hutter (2019), or BERT's own, without bias correction (Devlin et al. 2019)."""

    ADAMW = "adamw"
    BERT_ADAMW = "bert-adamw"


class Schedule(StrEnum):
    """How the learning rate changes from update to update."""

    CONSTANT = "constant"
    LINEAR = "linear"  # warm-up, then a line from the peak to zero
    COSINE = "cosine"  # warm-up, then half a cosine from the peak to zero
    BERT = "bert"  # BERT's own: a line from the peak at the first update to zero, cut off by the warm-up
    SLANTED_TRIANGULAR = "slanted-triangular"  # ULMFiT's


class Unfreezing(StrEnum):
    """In what order the layers are trained; the top is the head."""

    ALL = "all"  # everything, always
    TOP = "top"  # the head only
    GRADUAL = "gradual"  # the head, then one layer more in each epoch (Howard & Ruder 2018, section 3.3)
    CHAIN_THAW = "chain-thaw"  # the head, then each other layer alone from the bottom, then all (Felbo et al. 2017)
    SEQUENTIAL = "sequential"  # the head, then all but the embeddings, then all (Chronopoulou et al. 2019)


class Keep(StrEnum):
    """Which weights a run ends with: those of the epoch that was best on dev, or of the last."""

    BEST = "best"
    LAST = "last"


REGIME_DEFAULTS: dict[Regime, dict[str, Any]] = {
    Regime.FINE_TUNE: {"epochs": 3, "learning_rate": 5e-5, "weight_decay": 0.01},
    Regime.FEATURE_EXTRACTION: {"epochs": 20, "learning_rate": 1e-3, "weight_decay": 0.0},
}
"""What stands for None in each regime; in feature extraction the ``PLAIN`` heads learn at ``PLAIN_RATE`` instead."""

PLAIN, PLAIN_RATE = ("linear", "softmax", "crf", "pair", "rating"), 1e-2
"""Heads without a hidden layer, which learn too little of frozen layers at a rate of 1e-3: the mix stays even."""


def regime_defaults(regime: Regime, head: str) -> dict[str, Any]:
    """The epochs, the learning rate and the weight decay of a regime and a head where none are asked for."""
    plain = regime is Regime.FEATURE_EXTRACTION and head in PLAIN
    return REGIME_DEFAULTS[regime] | ({"learning_rate": PLAIN_RATE} if plain else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions:
    """The task model.

    The head "auto" is, where the encoder is trained, a linear layer, on each word's first piece where words are
    tagged; of ELMo and Skip-thoughts bi-attention for pairs, and a CRF where the tags are spans. On cached layers it is
    the paper's: BCN for sentences, ESIM for pairs, BiLSTM-CRF for tags (without the CRF where tags are no spans).

    The pooling "auto" is, where the encoder is trained, the maximum of ELMo, the encoder's pooler, the last piece of a
    decoder and of Skip-thoughts, the first of other encoders; of cached layers the mean, of Skip-thoughts the last.
    """

    head: str = option(
        "auto",
        "auto, linear, bcn; of pairs esim, bi-attention, of pairs read apart pair, rating; of word tags "
        "softmax, crf, bilstm, bilstm-crf. auto fine-tunes with linear or softmax (of ELMo and Skip-"
        "thoughts, bi-attention for pairs and crf for spans), and extracts with the paper's: bcn, esim, "
        "bilstm-crf.",
    )
    pooling: str = option("auto", "Of linear, pair and rating: auto, pooler, first, last, mean, mean-all or max.")
    pairs: str = option(
        "auto",
        "auto (frozen layers joint where model and head can; of ELMo and Skip-thoughts, and fine-tuning with "
        "bi-attention or esim, separate), joint (esim and bi-attention cut it in two) or separate.",
    )
    context: Context = option(
        Context.NONE, "Of labelled words: none, or document, the sentences around as far as the model has room."
    )
    hidden_size: int | None = option(None, "Of the head.")
    dropout: float | None = option(None, "Of the head.")
    mix: bool = option(False, "Fine-tune with a head that reads a learned mix of all layers, not the last one.")
    layer_norm: bool = option(False, "Normalise each layer before the mix.")

    def __post_init__(self) -> None:
        _check(self.pairs in ("auto", "joint", "separate"), "pairs", self.pairs, "auto, joint or separate")
        object.__setattr__(self, "context", _choice(Context, self.context, "context"))
        _check(self.hidden_size is None or self.hidden_size >= 1, "hidden_size", self.hidden_size, "1 or more")
        _check(self.dropout is None or 0 <= self.dropout < 1, "dropout", self.dropout, "from 0 to below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters(HeadOptions):
    """What determines the numbers of a training beside its data and its model; what a search may vary.

    ``epochs``, ``learning_rate`` and ``weight_decay`` may be given as None: they become those of the regime and the
    head (:func:`regime_defaults`), so that whoever reads them finds numbers.
    """

    regime: Regime = option(Regime.FINE_TUNE, "fine-tune, or feature-extraction (frozen encoder).")
    epochs: Count = option(None, "3 for fine-tuning, 20 for feature extraction.")
    batch_size: int = option(32, "Examples in a batch.")
    accumulation: int = option(1, "Batches before each step.")
    learning_rate: Rate = option(
        None,
        "Its peak: 5e-5 for fine-tuning; 1e-3 for feature extraction, 1e-2 with heads without a hidden layer.",
    )
    weight_decay: Rate = option(None, "Not of biases and norms: .01 for fine-tuning, else 0.")
    optimizer: Optimizer = option(Optimizer.ADAMW, "adamw, or bert-adamw (without bias correction).")
    schedule: Schedule = option(Schedule.LINEAR, "linear, cosine, constant, bert or slanted-triangular.")
    warmup: float = option(0.1, "Share of the steps.")
    cut: float = option(0.1, "Of the slanted triangle: share of the steps that rise.")
    ratio: float = option(32.0, "Of the slanted triangle: highest over lowest rate.")
    layer_factor: float = option(1.0, "Discriminative rates: each layer's over that of the one above, such as 0.4.")
    unfreezing: Unfreezing = option(Unfreezing.ALL, "all, top (frozen encoder), gradual, chain-thaw or sequential.")
    sequential_head: int = option(1, "With sequential unfreezing: epochs of the head alone.")
    sequential_body: int = option(1, "With sequential unfreezing: epochs of all but the embeddings, before all train.")
    encoder_dropout: float | None = option(
        None, "In fine-tuning, of the encoder's layers and attention; as its configuration has it without it."
    )
    max_grad_norm: float = option(1.0, "Clip gradients; 0 for not at all.")
    dtype: Dtype = option(Dtype.FLOAT32, "float32, or mixed precision in bfloat16 or float16.")
    group: bool = option(True, "Batch texts of like length together.")
    window: int = option(2 << 30, "Bytes of a token cache that are shuffled as one.")
    gradient_checkpointing: bool = option(False, "Less memory for more time, for large encoders.")
    keep: Keep = option(Keep.BEST, "Weights of the best epoch on dev, or of the last.")
    patience: int | None = option(None, "End after so many epochs without a better one.")
    save_at: str = option("", "Checkpoints: steps such as 10,20,50, or epochs, or log-spaced.")
    seed: int = option(0, "Of initial weights, order and dropout.")

    def __post_init__(self) -> None:
        HeadOptions.__post_init__(self)
        kinds = {
            "regime": Regime, "optimizer": Optimizer, "schedule": Schedule, "unfreezing": Unfreezing, "dtype": Dtype,
            "keep": Keep,
        }  # fmt: skip
        for name, kind in kinds.items():
            object.__setattr__(self, name, _choice(kind, getattr(self, name), name))
        for name, value in regime_defaults(self.regime, self.head).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for name in ("epochs", "batch_size", "accumulation", "patience", "window"):
            value = getattr(self, name)
            _check(value is None or value >= 1, name, value, "1 or more")
        _check(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        _check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        _check(self.max_grad_norm >= 0, "max_grad_norm", self.max_grad_norm, "0 or more")
        _check(0 <= self.warmup < 1, "warmup", self.warmup, "from 0 to below 1")
        _check(0 <= self.cut < 1, "cut", self.cut, "from 0 to below 1")
        _check(self.ratio >= 1, "ratio", self.ratio, "1 or more")
        for name in ("sequential_head", "sequential_body"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
            if getattr(self, name) != 1 and self.unfreezing is not Unfreezing.SEQUENTIAL:
                raise UsageError(f"{name} is of sequential unfreezing; the unfreezing is {self.unfreezing}.")
        dropout = self.encoder_dropout
        _check(dropout is None or 0 <= dropout < 1, "encoder_dropout", dropout, "from 0 to below 1")
        if dropout is not None and self.regime is not Regime.FINE_TUNE:
            raise UsageError("encoder_dropout is for fine-tuning; cached layers are computed without dropout.")
        _check(0 < self.layer_factor <= 1, "layer_factor", self.layer_factor, "above 0, at most 1")

    def numbers(self) -> dict[str, Any]:
        """The hyper-parameters alone, by name: of :class:`TrainOptions` not the data, the model and the places."""
        names = {f.name for f in fields(Hyperparameters)}
        return {name: value for name, value in asdict(self).items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(Hyperparameters):
    """All that ``probekit train`` takes beside the task, the model and the run's folder."""

    data_dir: Path | None = option(None, "Folder with the task's files; the hub without it.")
    train: str = option("train", "Split to learn from.")
    dev: str = option("dev", "Split to evaluate on after each epoch.")
    test: str | None = option(None, "Split to evaluate on once, at the end.")
    limit: int | None = option(None, "Learn from N examples only, drawn at random.", metavar="N")
    validation: float | None = option(
        None,
        "Share of train that is set apart to choose the epoch by, instead of dev: by class, groups as wholes. .1 where "
        "the task has no dev split.",
        metavar="SHARE",
    )
    data_seed: int = option(0, "Of the examples that limit and validation draw.", metavar="SEED")
    revision: str | None = option(None, "Branch, tag or commit of a hub model.")
    random_weights: int | None = option(None, "Control: begin with a re-initialised encoder.", metavar="SEED")
    max_length: int | None = option(None, "Most pieces of a sequence.")
    model_name: str | None = option(None, "Name in tables.")
    run_name: str | None = option(None, "Name of the run in tables; its folder's without it.")
    variant: str = option("", "Name in tables of what sets the run apart from others of its task, model and regime.")
    layers: tuple[int | str, ...] | None = option(
        None,
        "Layers to mix in feature extraction, such as 0,6,12; all without it, the widest where they differ in width.",
    )
    caches: Path | None = option(
        None, "Folder for the caches of feature extraction; data_cache/ without it.", metavar="FOLDER"
    )
    cache: tuple[Path, ...] | None = option(
        None,
        "For feature extraction: caches of train, dev and, if there is one, test that are there already, with commas.",
        metavar="TRAIN.h5,DEV.h5",
    )
    encoder_dtype: Dtype = option(Dtype.FLOAT32, "For feature extraction: what the frozen encoder computes in.")
    store: Dtype | None = option(None, "Numbers in its caches; as --encoder-dtype without it.")
    compress: bool = option(False, "Pack its caches with zstd (slower to read).")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    report_to: str = option("none", "tensorboard, wandb …, as transformers names them.")
    overwrite: bool = option(False, "Replace another run.")

    def __post_init__(self) -> None:
        Hyperparameters.__post_init__(self)
        _check(self.limit is None or self.limit >= 1, "limit", self.limit, "1 or more")
        _check(self.data_seed >= 0, "data_seed", self.data_seed, "0 or more")
        _check(self.validation is None or 0 < self.validation < 1, "validation", self.validation, "between 0 and 1")
        if self.validation is not None and self.dev not in ("dev", "validation"):
            raise UsageError(f"--validation takes the place of --dev {self.dev}; give one of them.")
        if self.validation is None and self.keep is Keep.BEST and self.dev.startswith("test"):
            raise UsageError(
                f"{self.dev} would choose the epoch. Leave --dev out, with --validation .1 where the task has no dev "
                f"split, and give --test {self.dev}; or keep the last epoch (--keep last)."
            )
        for role, split in (("evaluate", self.dev), ("test", self.test)):
            if split == self.train:
                raise UsageError(f"the split to {role} on is {split!r}, which is what is learned from; choose another.")
        object.__setattr__(self, "encoder_dtype", _choice(Dtype, self.encoder_dtype, "encoder_dtype"))
        if self.store is not None:
            object.__setattr__(self, "store", _choice(Dtype, self.store, "store"))
        frozen = self.caches, self.cache, self.layers, self.store, self.compress or None
        if self.regime is Regime.FINE_TUNE and (set(frozen) != {None} or self.encoder_dtype is not Dtype.FLOAT32):
            raise UsageError(
                "caches, cache, layers, encoder_dtype, store and compress are for feature extraction; fine-tuning runs "
                "the encoder itself."
            )
        if self.cache is not None:
            told = self.cache.split(",") if isinstance(self.cache, str) else self.cache
            object.__setattr__(self, "cache", tuple(map(Path, told)))
            wanted = ["train", *([] if self.validation else ["dev"]), *(["test"] if self.test else [])]
            if len(self.cache) != len(wanted):
                raise UsageError(f"{len(self.cache)} caches are given; wanted {len(wanted)}: {', '.join(wanted)}.")
            if self.caches is not None or self.store is not None or self.compress:
                raise UsageError("with --cache nothing is cached; leave --caches, --store and --compress out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """On what a run is evaluated, and with which model and device."""

    task: tuple[str, ...] | None = option(
        None, "Task with the labels of the one that it learned, which it is without it; may be repeated."
    )
    split: str = option("test", "Split of the task.")
    data_dir: Path | None = option(None, "Folder with the task's files; the hub without it.")
    cache: Path | None = option(
        None, "For feature extraction: a cache of the same model, instead of a task.", metavar="CACHE.h5"
    )
    model: str | None = option(None, "For feature extraction: where the frozen model is, if it was moved.")
    caches: Path | None = option(None, "Folder for the caches of feature extraction; data_cache/ without it.")
    batch_size: int = option(32, "Examples in a batch.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")

    def __post_init__(self) -> None:
        _check(self.batch_size >= 1, "batch_size", self.batch_size, "1 or more")
        if self.cache is not None and self.task:
            raise UsageError("--cache and --task both say what to evaluate on; give one of them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What replaces the keys of a space, and where its trials run."""

    task: str | None = option(None, "Instead of the file's.")
    model: str | None = option(None, "Instead of the file's.")
    data_dir: Path | None = option(None, "Folder of the task's files.")
    limit: int | None = option(None, "Learn from so many examples only, drawn at random.")
    validation: float | None = option(
        None, "Share of train that is set apart to choose by, instead of dev; .1 where the task has no dev split."
    )
    data_seed: int | None = option(None, "Of the examples that limit and validation draw.")
    trials: int | None = option(
        None,
        "How many settings to try; the file's, or 20. Chosen by dev, the best looks too good there: see --test.",
    )
    seeds: int | None = option(None, "How often the best is trained again; the file's, or 5.")
    seed: int | None = option(None, "Of the search, and the first of the best.")
    test: str | None = option(None, 'Split that the best is evaluated on, once a seed; "" for none.')
    workers: int = option(1, "Processes that train at the same time; with cuda or auto, they share the GPUs.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")

    def __post_init__(self) -> None:
        _check(self.workers >= 1, "workers", self.workers, "1 or more")

    def instead(self) -> dict[str, Any]:
        """What replaces the keys of a space."""
        own = {name: value for name, value in asdict(self).items() if name not in ("workers", "device")}
        return own | {"data_dir": None if self.data_dir is None else str(self.data_dir)}


def check_names(given: Iterable[str], known: type[HeadOptions] = Hyperparameters) -> None:
    """Raise UsageError for the first name that is no option of training."""
    names = sorted(f.name for f in fields(known))
    for name in given:
        if name not in names:
            raise UsageError(f"there is no option {name!r} of training; {did_you_mean(name, names, most=2)}")


def _choice(kind: type[StrEnum], value: str, name: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}; it is one of {', '.join(kind)}.") from None


def _check(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        raise UsageError(f"{name} is {value}; it must be {wanted}.")
