"""Options for activation caches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from probekit.activations.generation import Generation
from probekit.constraint import Checked, Count, Ge, Into, Natural, Seed, Threads
from probekit.errors import UsageError
from probekit.recipe import option
from probekit.runtime import DtypeName, dtype_name
from probekit.sites import LayerNames, site_names
from probekit.tasks.context import Context

NO_POOLING = ("none",)
GROUPS = ("auto", "none", "domain")
"""How to group the examples of a cache: as declared or found, not at all, or by domain."""


@dataclass(frozen=True, slots=True)
class ReadOptions(Checked):
    """Which texts a model reads, which parts of them, and where in the model their vectors are taken."""

    data_dir: str | None = option(None, "Folder with the task's files; by default the Hugging Face hub.")
    limit: Count | None = option(
        None, "Use only N examples of a split, drawn at random; minimal pairs stay whole.", metavar="N"
    )
    stream: bool = option(
        False,
        "Read the examples of a task file a part at a time, not whole: JSON lines, or a data set of the hub. Files of "
        "texts (.txt, .jsonl, .gz) as --task are always read so.",
    )
    positions: str | None = option(
        None,
        "The pieces that are used: all, first, last (of the prompt), last:N, special, span (or answer: the spans that "
        "the label is about), or roles:assistant,user of conversations. Default: all, of which mean and max leave out "
        "special ones.",
    )
    chat_template: str | None = option(
        None, "Jinja file to render conversations with, instead of the model's own chat template.", metavar="FILE"
    )
    pairs: str = option(
        "auto", "Sentence pairs: joint (one sequence), separate (two sequences), or auto (joint if possible)."
    )
    layers: LayerNames | None = option(
        None, "Layers, such as 0,4-8,12 or 8:24:4; by default all. With --sites: their blocks, from 0."
    )
    sites: Annotated[tuple[str, ...], Into(site_names)] | None = option(
        None,
        "Sites instead of the residual stream, such as resid_post,attn_out,mlp_out,z (see probekit sites); each is "
        "proven first.",
    )
    dtype: DtypeName = option("float32", "Precision of the model: float32, float16 or bfloat16 (fp32, fp16, bf16).")
    random_weights: Seed | None = option(None, "Control: re-initialise the model with this seed.", metavar="SEED")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    model_name: str | None = option(None, "Name of the model in tables and file names.")
    max_length: Count | None = option(None, "Maximum number of pieces in a sequence.")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    batch_tokens: Count | None = option(None, "Number of pieces in a batch (default: a fast number).")


@dataclass(frozen=True, slots=True)
class CacheOptions(ReadOptions):
    """Which vectors are stored, and how the computation runs."""

    pooling: tuple[str, ...] | None = option(
        None,
        "One or more of mean, mean-all, first, last, max, ema:DECAY (exponential moving average), sentence (that of a "
        "folder of sentence-transformers), separated by commas, or none. Default: mean (Skip-thoughts: last).",
    )
    tokens: bool | None = option(
        None, "Also store a vector for every token (by default only for tasks that label words)."
    )
    token_level: str | None = option(
        None,
        "The unit of token vectors: piece, word-pieces (no special pieces), word-first (first piece of each word) "
        "or word-mean. Default: word-first for tasks that label words, otherwise piece.",
    )
    generate: str | None = option(
        None,
        "Let the model continue each text, and store the states of what it wrote: max_new_tokens=N, for sampling "
        "temperature=T,seed=S, and together=N for the texts written in step.",
        metavar="HOW",
    )
    context: str = option(
        "none", "Context of labelled words: none, or document (as many neighbouring sentences as fit)."
    )
    store: Annotated[str, Into(partial(dtype_name, name="store"))] | None = option(
        None, "Precision of the stored numbers; by default that of --dtype."
    )
    decoder: bool = option(
        False,
        "Of an encoder-decoder (T5, BART): the decoder, which reads the text one piece later than the encoder, instead "
        "of the encoder.",
    )
    data_seed: Natural = option(0, "Seed for the random draw of --limit.", metavar="SEED")
    shard_size: Count | None = option(
        None,
        "Write a folder of shards of N examples each instead of one file; any number of processes given the same "
        "command share the work. Default: 100,000 for more texts than that from a file of texts, standard input or "
        "--stream, unless --out ends in .h5.",
        metavar="N",
    )
    patience: Annotated[float, Ge(1)] = option(
        300.0, "With --shard-size: seconds after which the shard of a silent process on another machine is taken over."
    )
    workers: Threads = option(1, "Number of worker processes.")
    backend: str = option(
        "loky", "With --shard-size: loky (processes on this machine) or dask (a job on each worker of a Dask cluster)."
    )
    scheduler: str | None = option(None, "Address of the dask scheduler, with --backend dask, such as tcp://host:8786.")
    device_map: str | None = option(
        None, "auto: spread a model that is larger than one GPU over all of them, as transformers does."
    )
    tp_plan: str | None = option(
        None,
        "auto: the processes that torchrun starts share the model, each with a slice of every weight (tensor "
        "parallelism); the first one writes.",
    )
    stateful: bool = option(False, "ELMo: carry the LSTMs' state over from batch to batch, as in the original.")
    batch_size: Count | None = option(None, "With --stateful: examples in a batch; default 64.")
    on_truncate: str = option("keep", "Texts that are too long: keep (truncate and count them) or error.")
    allow_nonfinite: bool = option(False, "Store NaN and infinity instead of stopping.")
    compress: bool = option(False, "Compress the vectors with zstd (slower to read).")
    compile: bool = option(False, "Use torch.compile.")
    onednn: bool = option(True, "On a CPU, prepack the weights of linear layers for oneDNN if it is available.")

    def together(self) -> None:
        from probekit.activations.positions import Positions

        if self.pooling is not None:
            object.__setattr__(self, "pooling", self.pooling or NO_POOLING)
        if self.layers == ():
            raise UsageError("--layers is empty; leave it out to store all layers.")
        if self.sites is not None and self.compile:
            raise UsageError("--compile hides what is inside a block; leave it out, or leave out --sites.")
        if self.batch_size is not None and not self.stateful:
            raise UsageError(
                "--batch-size is only for --stateful, where the numbers depend on it; otherwise use --batch-tokens."
            )
        if (positions := Positions.parse(self.positions)) is not None and "mean-all" in (self.pooling or ()):
            raise UsageError("with --positions, every pooling is of the chosen pieces; use mean instead of mean-all.")
        if positions is not None and any(str(name).startswith("sentence") for name in self.pooling or ()):
            raise UsageError("with --positions, every pooling is of the chosen pieces; leave out sentence.")
        object.__setattr__(self, "positions", None if positions is None else str(positions))
        generation = Generation.parse(self.generate)
        object.__setattr__(self, "generate", None if generation is None else str(generation))
        if generation is not None and (self.compile or self.stateful):
            raise UsageError("--generate does not go with --compile or --stateful; leave them out.")
        _one_of("on_truncate", self.on_truncate, "keep", "error")
        _one_of("pairs", self.pairs, "auto", "joint", "separate")
        _one_of("context", self.context, *Context)
        if self.context != Context.NONE and self.tokens and self.token_level in (None, "piece"):
            raise UsageError("the pieces of a context are not stored; with --context use --token-level word-pieces.")
        _one_of("backend", self.backend, "loky", "dask")
        if (self.backend == "dask") != (self.scheduler is not None):
            raise UsageError("--backend dask and --scheduler ADDRESS must be given together.")
        if self.backend == "dask" and self.shard_size is None:
            raise UsageError("--backend dask shares shards; add --shard-size.")
        if self.device_map is not None:
            _one_of("device_map", self.device_map, "auto", "balanced", "sequential")
            if self.workers > 1:
                raise UsageError("--device-map spreads one model over all GPUs; leave out --workers.")
        if self.tp_plan is not None:
            if self.tp_plan != "auto":
                raise UsageError(f"tp_plan is {self.tp_plan!r}; expected auto, the plan of transformers.")
            for name in ("device_map", "random_weights", "compile", "stateful", "decoder"):
                if getattr(self, name) is not None and getattr(self, name) is not False:
                    raise UsageError(f"--tp-plan does not go with --{name.replace('_', '-')}; leave one out.")
            if self.workers > 1 or self.backend == "dask":
                raise UsageError("with --tp-plan, all processes are one worker; leave out --workers and --backend.")
        if self.stateful and self.shard_size:
            raise UsageError(
                "--stateful carries the state through the whole task; leave out --shard-size or --stateful."
            )

    @property
    def carried(self) -> int:
        """Sentences in a batch whose state the next batch begins with; 0 without --stateful."""
        return (self.batch_size or 64) if self.stateful else 0


@dataclass(frozen=True, slots=True)
class CertifyOptions(Checked):
    """How to load the model to certify."""

    dtype: DtypeName = option("float32", "float32, float16 or bfloat16 (fp32, fp16, bf16).")
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    revision: str | None = option(None, "Branch, tag or commit of the model on the hub.")
    random_weights: Seed | None = option(None, "Re-initialise the model with this seed.", metavar="SEED")


def _one_of(name: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise UsageError(f"{name} is {value!r}; expected {', '.join(choices[:-1])} or {choices[-1]}.")
