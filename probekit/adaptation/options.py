"""Options of training, evaluation and search, checked when they are created. Importing this module is cheap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from probekit.adaptation.data.options import ReadingOptions
from probekit.adaptation.methods.options import METHOD_DEFAULTS, Method, MethodOptions
from probekit.adaptation.optimisation.options import OptimisationOptions
from probekit.adaptation.signals.options import SignalOptions
from probekit.constraint import (
    OR_VALUE,
    Checked,
    Commas,
    Count,
    Ge,
    Gt,
    Into,
    Le,
    Most,
    Natural,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Size,
    Threads,
    Written,
)
from probekit.errors import UsageError, did_you_mean
from probekit.recipe import option
from probekit.runtime import Dtype
from probekit.sites import Layers
from probekit.tasks.context import Context

if TYPE_CHECKING:  # None may be passed where the regime has a default; an instance always holds a number
    Epochs = int
    Rate = float
    Decay = float
    Factor = float  # names of factors may be passed
else:
    Epochs, Rate, Decay = Size | None, Positive | None, NotNegative | None
    Factor = Annotated[float | str, Into(lambda given: _factor(given)), Gt(0), Le(1)]


class Regime(StrEnum):
    """Whether the encoder is trained with the head (Peters, Ruder & Smith 2019)."""

    FINE_TUNE = "fine-tune"
    FEATURE_EXTRACTION = "feature-extraction"


class Optimizer(StrEnum):
    """AdamW (Loshchilov & Hutter 2019), BERT's variant without bias correction, or AMSGrad (Reddi et al. 2018)."""

    ADAMW = "adamw"
    BERT_ADAMW = "bert-adamw"
    AMSGRAD = "amsgrad"


class Schedule(StrEnum):
    """How the learning rate changes from update to update."""

    CONSTANT = "constant"
    LINEAR = "linear"  # warm-up, then a line from the peak to zero
    COSINE = "cosine"  # warm-up, then half a cosine from the peak to zero
    BERT = "bert"  # as in BERT's code: a line from the peak at update 1 to zero, replaced by the warm-up at first
    SLANTED_TRIANGULAR = "slanted-triangular"  # ULMFiT's
    PLATEAU = "plateau"  # halved when evaluations no longer improve


class Preset(StrEnum):
    """Published settings that depend on the task; see :func:`probekit.adaptation.targets.target_options`."""

    BOWMAN_2018 = "bowman-2018"


class Unfreezing(StrEnum):
    """The order in which layers are trained; the head is the top."""

    ALL = "all"  # everything, always
    TOP = "top"  # the head only
    GRADUAL = "gradual"  # the head, then one layer more in each epoch (Howard & Ruder 2018, section 3.3)
    CHAIN_THAW = "chain-thaw"  # the head, then each other layer by itself from the bottom, then all (Felbo et al. 2017)
    SEQUENTIAL = "sequential"  # the head, then all but the embeddings, then all (Chronopoulou et al. 2019)


class Keep(StrEnum):
    """Which weights a run keeps: those of the best evaluation on dev, or the last ones."""

    BEST = "best"
    LAST = "last"


REGIME_DEFAULTS: dict[Regime, dict[str, Any]] = {
    Regime.FINE_TUNE: {"epochs": 3, "learning_rate": 5e-5, "weight_decay": 0.01},
    Regime.FEATURE_EXTRACTION: {"epochs": 20, "learning_rate": 1e-3, "weight_decay": 0.0},
}
"""The values that replace None in each regime; in feature extraction, ``PLAIN`` heads use ``PLAIN_RATE``."""

LAYER_FACTORS = {"ulmfit": 1 / 2.6, "electra": 0.9, "electra-base": 0.8}
"""Published ratios of the rates of successive layers: ULMFiT (Howard & Ruder 2018, section 3.2), and ELECTRA-large and
-base (Clark et al. 2020, table 7)."""

LOWEST_RATE = 1e-6
"""A training with a plateau schedule ends when its rate falls below this (Bowman et al. 2018, section 4)."""

PLAIN, PLAIN_RATE = ("linear", "softmax", "crf", "pair", "rating"), 1e-2
"""Heads without a hidden layer, for which 1e-3 is too low on frozen layers: the mix stays uniform."""


def regime_defaults(regime: Regime, head: str, method: Method = Method.FULL) -> dict[str, Any]:
    """The default epochs, learning rate and weight decay of a regime, a head and a method."""
    plain = regime is Regime.FEATURE_EXTRACTION and head in PLAIN
    return REGIME_DEFAULTS[regime] | ({"learning_rate": PLAIN_RATE} if plain else {}) | METHOD_DEFAULTS.get(method, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions(Checked):
    """The task model.

    If the encoder is trained, the head "auto" is a linear layer, applied to each word's first piece for word tags;
    with ELMo and Skip-thoughts it is bi-attention for pairs, and a CRF if the tags are spans. On cached layers it is
    the paper's: BCN for sentences, ESIM for pairs, BiLSTM-CRF for tags (without the CRF if the tags are not spans).

    If the encoder is trained, the pooling "auto" is the maximum for ELMo, the encoder's pooler if it has one, the last
    piece for decoders and Skip-thoughts, and the first piece for other encoders. On cached layers it is the mean, for
    Skip-thoughts the last piece.
    """

    head: str = option(
        "auto",
        "auto, linear, bcn, max-mlp; for pairs esim, bi-attention; for pairs encoded separately pair, rating, "
        "attention-max-mlp (all but rating also for several labels or numbers); for word tags softmax, crf, bilstm, "
        "bilstm-crf; for marked words (WiC) marked; for questions span; for multiple choice choice. auto fine-tunes "
        "with linear, softmax, marked, span or choice (ELMo and Skip-thoughts: bi-attention for pairs, crf for spans); "
        "for feature extraction it takes the paper's heads: bcn, esim, bilstm-crf.",
    )
    pooling: str = option(
        "auto", "Pooling for linear, pair and rating: auto, pooler, first, last, mean, mean-all or max."
    )
    pairs: Literal["auto", "joint", "separate"] = option(
        "auto",
        "How pairs are encoded: joint (one sequence, which esim and bi-attention split in two), separate, or auto "
        "(frozen layers joint if model and head allow it; separate for ELMo and Skip-thoughts, and when fine-tuning "
        "with bi-attention or esim).",
    )
    context: Context = option(
        Context.NONE, "Context of labelled words: none, or document (as many surrounding sentences as fit the model)."
    )
    hidden_size: Size | None = option(None, "Hidden size of the head (default: depends on the head).")
    dropout: Part | None = option(None, "Dropout of the head (default: depends on the head).")
    mix: bool = option(False, "Fine-tune with a head that reads a learned mix of all layers instead of the last one.")
    layer_norm: bool = option(False, "Normalise each layer before the mix.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters(HeadOptions, ReadingOptions, MethodOptions, OptimisationOptions, SignalOptions):
    """The hyperparameters of a training, which a search may vary.

    If ``epochs``, ``learning_rate`` or ``weight_decay`` is None, it is replaced by the default of the regime and the
    head (:func:`regime_defaults`), so an instance always holds numbers.
    """

    regime: Regime = option(Regime.FINE_TUNE, "fine-tune or feature-extraction (frozen encoder).")
    preset: Preset | None = option(
        None,
        "Feature extraction: replace defaults by published settings for the task. bowman-2018: the task models of "
        "Bowman et al. (2018), of three sizes, with AMSGrad and a plateau schedule.",
    )
    epochs: Epochs = option(None, "Epochs (default: 3 for fine-tuning, 20 for feature extraction).")
    batch_size: Size = option(32, "Examples in a batch.")
    accumulation: Size = option(1, "Gradient accumulation: batches per update.")
    learning_rate: Rate = option(
        None,
        "Peak learning rate (default: 5e-5 for fine-tuning; 1e-3 for feature extraction, 1e-2 with heads without a "
        "hidden layer; with --method lora and dora 5e-4, ia3 3e-3, prefix 5e-3, prompt 3e-2, bitfit and norms 1e-3, "
        "adapter 3e-4).",
    )
    weight_decay: Decay = option(
        None,
        "Weight decay, not applied to biases and norms (default: .01 for fine-tuning, otherwise 0, as for ia3, prefix "
        "and prompt).",
    )
    optimizer: Optimizer = option(Optimizer.ADAMW, "adamw, bert-adamw (without bias correction) or amsgrad.")
    schedule: Schedule = option(
        Schedule.LINEAR, "linear, cosine, constant, bert, slanted-triangular, or plateau (halved without improvement)."
    )
    warmup: Part = option(0.1, "Warm-up of linear, cosine and bert, as a share of all updates.")
    plateau_patience: Natural = option(
        4, "Plateau: the rate is halved after more than this many evaluations without improvement."
    )
    cut: Part = option(0.1, "Slanted triangle: share of the updates with a rising rate.")
    ratio: Annotated[float, Ge(1)] = option(32.0, "Slanted triangle: highest over lowest rate.")
    layer_factor: Factor = option(
        1.0,
        "Discriminative rates: rate of a layer over that of the layer above, such as 0.4; or ulmfit (1/2.6), electra "
        "(.9, its large models) or electra-base (.8).",
        metavar="NUMBER|NAME",
    )
    unfreezing: Unfreezing = option(Unfreezing.ALL, "all, top (frozen encoder), gradual, chain-thaw or sequential.")
    sequential_head: Natural = option(
        1, "Sequential unfreezing: epochs that train only the head.", needs="unfreezing=sequential"
    )
    sequential_body: Natural = option(
        1, "Sequential unfreezing: epochs that then train all but the embeddings.", needs="unfreezing=sequential"
    )
    encoder_dropout: Part | None = option(
        None, "Fine-tuning: dropout of the encoder's layers and attention (default: the model's configuration)."
    )
    max_grad_norm: NotNegative = option(1.0, "Norm at which gradients are clipped; 0 for no clipping.")
    dtype: Dtype = option(Dtype.FLOAT32, "float32, or mixed precision in bfloat16 or float16.")
    group: bool = option(True, "Batch texts of similar length together.")
    window: Count = option(2 << 30, "Bytes of a token cache that are shuffled together in memory.")
    gradient_checkpointing: bool = option(False, "Use less memory and more time, for large encoders.")
    evaluate_every: Count | None = option(
        None, "Steps (updates) between evaluations on dev (default: once per epoch).", metavar="STEPS"
    )
    keep: Keep = option(Keep.BEST, "Weights to keep: best (evaluation on dev) or last.")
    patience: Count | None = option(None, "Stop after this many evaluations without improvement.")
    save_at: Commas = option("", "Checkpoints to save: steps such as 10,20,50, or epochs, or log-spaced.")
    seed: Seed = option(0, "Seed of initial weights, order and dropout.")

    def together(self) -> None:
        if self.order and self.unfreezing is not Unfreezing.ALL:
            raise UsageError("order and unfreezing both say which layers are trained when; give one of them.")
        if self.preset is not None and self.regime is not Regime.FEATURE_EXTRACTION:
            raise UsageError(f"the preset {self.preset} is for frozen encoders; add --regime feature-extraction.")
        for name, value in regime_defaults(self.regime, self.head, self.method).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.schedule is Schedule.PLATEAU and self.learning_rate < LOWEST_RATE:
            raise UsageError(
                f"learning_rate is {self.learning_rate}; it must be at least {LOWEST_RATE:g}, where a plateau schedule "
                "ends."
            )
        if self.encoder_dropout is not None and self.regime is not Regime.FINE_TUNE:
            raise UsageError("encoder_dropout is for fine-tuning; cached layers are computed without dropout.")

    def numbers(self) -> dict[str, Any]:
        """The hyperparameters by name, without the preset, and the data, model and paths of :class:`TrainOptions`."""
        names = {f.name for f in fields(Hyperparameters)} - {"preset"}
        return {name: value for name, value in asdict(self).items() if name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(Hyperparameters):
    """All options of ``probekit train`` except the task, the model and the run folder."""

    data_dir: Path | None = option(None, "Folder with the task's files (default: the hub).")
    fisher_data_dir: Path | None = option(
        None, "EWC: folder with the files of the old task (default: --data-dir).", metavar="FOLDER", needs="fisher_task"
    )
    train: str = option("train", "Split to train on.")
    dev: str = option("dev", "Split to evaluate on after each epoch, or as --evaluate-every says.")
    test: str | None = option(None, "Split to evaluate on once, at the end.")
    limit: Count | None = option(None, "Train on only N examples, drawn at random.", metavar="N")
    fraction: Annotated[float, Gt(0), Le(1)] | None = option(
        None,
        "Train on only this share of the examples, drawn at random; smaller shares are parts of larger ones.",
        metavar="SHARE",
    )
    seeds: Annotated[int, Ge(1), Most(10_000)] = option(
        1,
        "Train with this many seeds, from --seed on: a run for each in one folder, with mean and standard deviation of "
        "the metrics, and the share of failed runs.",
    )
    validation: Share | None = option(
        None,
        "Share of train held out to choose the epoch instead of dev: stratified by class, groups stay whole (default: "
        ".1 if the task has no dev split).",
        metavar="SHARE",
    )
    data_seed: Natural = option(0, "Seed of the examples that limit and validation draw.", metavar="SEED")
    revision: str | None = option(None, "Branch, tag or commit of a hub model.")
    random_weights: Seed | None = option(
        None, "Control: start from an encoder with random weights drawn with this seed.", metavar="SEED"
    )
    max_length: Count | None = option(None, "Maximum number of pieces per sequence.")
    model_name: str | None = option(None, "Name of the model in tables.")
    run_name: str | None = option(None, "Name of the run in tables (default: the name of its folder).")
    variant: str = option(
        "", "Name in tables that distinguishes the run from others with the same task, model and regime."
    )
    layers: Layers | None = option(
        None,
        "Layers to mix, in feature extraction or with --mix, such as 0,4-8,12 (default: all; if their widths differ, "
        "the widest).",
    )
    caches: Annotated[Path | None, Written(always=True)] = option(
        None, "Folder for the caches of feature extraction (default: data_cache/).", metavar="FOLDER"
    )
    cache: tuple[Path, ...] | None = option(
        None,
        "Feature extraction: existing caches of train, dev and, if there is one, test, separated by commas.",
        metavar="TRAIN.h5,DEV.h5",
    )
    encoder_dtype: Dtype = option(Dtype.FLOAT32, "Feature extraction: precision in which the frozen encoder computes.")
    store: Dtype | None = option(None, "Precision of the numbers in the caches (default: that of --encoder-dtype).")
    compress: bool = option(False, "Compress the caches with zstd (slower to read).")
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:N or mps.")
    report_to: str = option("none", "Where to log the training: tensorboard, wandb …, as in transformers.")
    overwrite: bool = option(False, "Replace an existing run.")

    def together(self) -> None:
        if self.quantise is not None and self.random_weights is not None:
            raise UsageError("random weights are drawn in full precision; leave out --quantise or --random-weights.")
        if self.fraction is not None and self.limit is not None:
            raise UsageError("--fraction and --limit both say how many examples to train on; give one of them.")
        if self.validation is not None and self.dev not in ("dev", "validation"):
            raise UsageError(f"--validation replaces --dev {self.dev}; give one of them.")
        if self.validation is None and self.keep is Keep.BEST and self.dev.startswith("test"):
            raise UsageError(
                f"--dev {self.dev}: the best epoch would be chosen on {self.dev}. Give --test {self.dev} instead, "
                "with --validation .1 if the task has no dev split; or keep the last epoch (--keep last)."
            )
        for role, split in (("evaluate", self.dev if self.validation is None else None), ("test", self.test)):
            if split == self.train:
                raise UsageError(f"the split to {role} on, {split!r}, is also the training split; choose another.")
        unmixed = None if self.mix else self.layers
        frozen = self.caches, self.cache, unmixed, self.store, self.compress or None
        if self.regime is Regime.FINE_TUNE and (set(frozen) != {None} or self.encoder_dtype is not Dtype.FLOAT32):
            raise UsageError(
                "caches, cache, layers, encoder_dtype, store and compress are for feature extraction; fine-tuning runs "
                "the encoder itself (and mixes chosen layers with --mix)."
            )
        if self.cache is not None:
            roles = ["train", *([] if self.validation else ["dev"]), *(["test"] if self.test else [])]
            if len(self.cache) != len(roles):
                raise UsageError(f"--cache needs one cache each for {', '.join(roles)}; {len(self.cache)} are given.")
            if self.caches is not None or self.store is not None or self.compress:
                raise UsageError("with --cache no cache is written; leave out --caches, --store and --compress.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions(Checked):
    """The task or cache to evaluate a run on, with which model and on which device."""

    task: tuple[Annotated[str, OR_VALUE], ...] | None = option(
        None, "Task of the run, or one with the same labels (default: the tasks of the run); may be repeated."
    )
    split: str = option("test", "Split of the task.")
    by_domain: bool = option(False, "Also evaluate on the examples of each domain (genre, category), as TASK:DOMAIN.")
    slices: Path | None = option(
        None,
        "Also evaluate on slices, as TASK:SLICE: a TOML file of named conditions on examples; and say which are worse "
        "than the other examples.",
        metavar="FILE.toml",
    )
    text: tuple[Path, ...] | None = option(
        None,
        "Instead of a task: UTF-8 text files, separated by commas, whose perplexity is measured with the pretrained "
        "model's language-model head, before and after the training.",
        metavar="FILES",
    )
    calibrate: bool = option(
        False, "Also measure calibration, before and after scaling by a temperature fitted on the run's dev split."
    )
    data_dir: Path | None = option(None, "Folder with the task's files (default: the hub).")
    cache: Path | None = option(
        None, "Feature extraction: a cache of the same model, instead of a task.", metavar="CACHE.h5"
    )
    model: str | None = option(None, "Path of the frozen or (for --text) the pretrained model, if it was moved.")
    caches: Annotated[Path | None, Written(always=True)] = option(
        None, "Folder for the caches of feature extraction (default: data_cache/)."
    )
    batch_size: Size = option(32, "Examples in a batch.")
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:N or mps.")

    def together(self) -> None:
        if self.cache is not None and self.task:
            raise UsageError("--cache and --task both say what to evaluate on; give one of them.")
        if self.cache is not None and self.slices is not None:
            raise UsageError("--slices needs texts, which a cache does not hold; give --task instead of --cache.")
        if self.text is not None:
            for name in ("task", "cache", "slices", "calibrate", "by_domain"):
                if getattr(self, name):
                    raise UsageError(f"{name} is for labelled examples, and text is plain text; leave out one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageOptions(Checked):
    """Which of the runs are averaged, and where the average is evaluated."""

    greedy: bool = option(
        False, "Greedy soup: begin with the best run on dev, and add each other if the mean is not worse on dev."
    )
    batch_size: Size = option(32, "Examples in a batch.")
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:N or mps.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(Checked):
    """Values that replace keys of a search space file, and where the trials run."""

    task: str | None = option(None, "Task, instead of the one in the file.")
    model: str | None = option(None, "Model, instead of the one in the file.")
    data_dir: Path | None = option(None, "Folder of the task's files.")
    limit: Count | None = option(None, "Train on only this many examples, drawn at random.")
    validation: Share | None = option(
        None, "Share of train held out to choose by, instead of dev (default: .1 if the task has no dev split)."
    )
    data_seed: Natural | None = option(None, "Seed of the examples that limit and validation draw.")
    trials: Count | None = option(
        None,
        "Settings to try (default: the file's number, or 20). The best is chosen on dev, where its score is therefore "
        "biased upwards: see --test.",
    )
    sampler: str | None = option(
        None,
        "How settings are drawn: tpe (from the results so far) or random (independently, as expected performance "
        "assumes); default: the file's, or tpe.",
    )
    seeds: Annotated[int, Ge(1), Most(10_000)] | None = option(
        None, "Seeds with which the best setting is trained again (default: the file's number, or 5)."
    )
    seed: Seed | None = option(None, "Seed of the search, and first seed of the best setting.")
    test: str | None = option(None, 'Split on which the best setting is evaluated, once per seed; "" for none.')
    workers: Threads = option(1, "Processes that train in parallel; with cuda or auto, they share the GPUs.")
    device: str = option("auto", "Device: auto, cpu, cuda, cuda:N or mps.")

    def instead(self) -> dict[str, Any]:
        """The values that replace keys of the space."""
        given = {name: value for name, value in asdict(self).items() if name not in ("workers", "device")}
        return given | {"data_dir": None if self.data_dir is None else str(self.data_dir)}


def check_names(given: Iterable[str], known: type[HeadOptions] = Hyperparameters) -> None:
    """Raise UsageError for the first name that is not a training option."""
    names = sorted(f.name for f in fields(known))
    for name in given:
        if name not in names:
            raise UsageError(f"training has no option {name!r}; {did_you_mean(name, names, most=2)}")


def _factor(given: float | str) -> float:
    """The number of a ratio that has a name."""
    if given in LAYER_FACTORS:
        return LAYER_FACTORS[str(given)]
    if isinstance(given, str):
        names = ", ".join(LAYER_FACTORS)
        raise UsageError(f"layer_factor is {given!r}; it must be a number above 0, at most 1, or one of {names}.")
    return given
