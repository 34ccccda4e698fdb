"""A requested cache: its texts, model and stored vectors, and the digest that identifies it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit import files
from probekit.activations.options import NO_POOLING, CacheOptions
from probekit.activations.pooling import TokenLevel, poolings
from probekit.activations.sentence import with_own
from probekit.activations.writing.loading import Loading
from probekit.errors import UsageError
from probekit.models.conversion import default_pooling, reads_apart
from probekit.models.encoder import Encoder
from probekit.models.options import LoadOptions, ScorerOptions
from probekit.recipe import Recipe
from probekit.runtime import Dtype, processes
from probekit.tasks.context import Context, in_context
from probekit.tasks.files.stream import StreamedSplit
from probekit.tasks.targets import reads_words
from probekit.tasks.task import Split, Task, TaskKind
from probekit.tasks.union import Union

if TYPE_CHECKING:
    from probekit.models.chat import ChatTemplate

IDENTITY = ("revision", "weights_digest", "tokenizer_digest", "random_weights", "dtype", "device", "cut_at")
"""Keys of ``Encoder.spec`` that, with its name, determine an encoder's numbers."""

NEEDS_TOKENS = {TaskKind.SEQUENCE_LABELLING: TokenLevel.WORD_FIRST, TaskKind.SPAN_LABELLING: TokenLevel.PIECE}
"""The kinds of tasks that need vectors of tokens, and the unit by default."""

NOT_ALWAYS = (
    "checkpoint",
    "step",
    "compile",
    "onednn",
    "sites",
    "blocks",
    "part",
    "imported",
    "device_map",
    "tp_plan",
    "tp_size",
    "base",
    "adapters",
    "doubts",
    "quantised",
    "attention",
)
"""Optional keys that determine them, too: the checkpoint, whether it is compiled, the sites that it reads,
where its numbers were imported from, the adapters on a base and whether it is theirs, how its weights are quantised.
"""


@dataclass(frozen=True)
class Request:
    """A requested cache.

    Attributes
    ----------
    task, part : Task or Split or StreamedSplit
        The task, and the examples to read.
    model : Loading | Encoder
        The arguments for loading the model, or a loaded encoder.
    want : Mapping[str, Any]
        The part of the spec that determines the numbers.
    spec_id : str
        Its digest.
    path : Path
        Path of the cache.
    about : Mapping[str, Any]
        Attributes that do not affect the numbers: the origin of the model, and the recipe.
    template : ChatTemplate, optional
        The chat template that conversations are read through.
    certificate : Mapping[str, Any], optional
        The model's certificate, where one is made for many files; None to make one with the file's texts.
    """

    task: Task
    part: Any
    model: Loading | Encoder
    want: Mapping[str, Any]
    spec_id: str
    path: Path
    options: CacheOptions
    about: Mapping[str, Any]
    template: ChatTemplate | None = None
    certificate: Mapping[str, Any] | None = None

    @property
    def stateful(self) -> int:
        """Sentences in a batch whose state the next batch begins with; 0 if no state is carried over."""
        return int(self.want.get("stateful", 0))


def make_request(
    model: str | Path | Encoder, task: Task, split: str, options: CacheOptions, out: str | Path | None, recipe: Recipe
) -> Request:
    """The request; raises UsageError for options that do not fit, ModelError if the model does not exist."""
    if not task.kind.cacheable:
        raise UsageError(
            f"{task.name} is a task of {task.kind}, which has no label of a text or of words to store beside vectors. "
            "Train on it (probekit train --regime fine-tune), or cache another task."
        )
    task = in_context(task, options.context)
    options = replace(options, pooling=with_own(options.pooling, model, options.revision))
    part = _part(task, split, options)
    if count_of(part) == 0:
        raise UsageError(f"{task.name} {split} has no examples; choose another split.")
    of_data = _of_data(task, part, options, type_of(model, options.revision), _dtype(model, options))
    loading, identity = of_model(model, options)
    want = of_data | identity
    if (template := template_of(model, part, options)) is not None:
        want["chat_template"] = template.digest()
    if _by_blanks(model, task, part, want, options):
        want["words"] = "white space"
    if want.get("stateful") and options.workers > 1:
        raise UsageError(
            "--stateful carries the state from batch to batch in one process; leave out --workers or --stateful."
        )
    about = {"origin": origin_of(model, options), "recipe": _stored_recipe(recipe)}
    spec_id = digest(want)
    return Request(task, part, loading, want, spec_id, _path(out, want, spec_id), options, about, template)


def _by_blanks(
    model: str | Path | Encoder, task: Task, part: Any, want: Mapping[str, Any], options: CacheOptions
) -> bool:
    """Whether rows are words that white space separates, since the tokenizer finds none in plain texts."""
    if want["tokens"] not in (TokenLevel.WORD_FIRST, TokenLevel.WORD_MEAN) or reads_words(part[0], task.kind):
        return False
    if not isinstance(model, (str, Path)):
        return not getattr(getattr(model, "tokenizer", None), "finds_words", True)
    if reads_apart(type_of(model, options.revision)):
        return False
    from probekit.models.find import resolve_model
    from probekit.models.transformers.tokens import finds_words, load_tokenizer

    return not finds_words(load_tokenizer(resolve_model(model, options.revision)).backend_tokenizer)


def template_of(model: str | Path | Encoder, part: Any, options: CacheOptions) -> ChatTemplate | None:
    """The chat template of a model, if the examples are conversations."""
    if not any(e.chat for e in (part[:1] if isinstance(part, StreamedSplit) else part)):
        if options.chat_template is not None:
            raise UsageError("--chat-template is for conversations, but the examples are texts; leave it out.")
        return None
    from probekit.models.chat import load_template
    from probekit.models.find import resolve_model

    kind = type_of(model, options.revision)
    if reads_apart(kind):
        raise UsageError(f"{kind} reads sentences, not conversations; choose a model with a chat template.")
    named = isinstance(model, (str, Path))
    folder = resolve_model(model, options.revision) if named else model.folder  # type: ignore[union-attr, arg-type]
    name = str(model) if named else model.name  # type: ignore[union-attr]
    return load_template(folder, name, options.chat_template)


def _part(task: Task, split: str, options: CacheOptions) -> Any:
    """The examples to read; of several tasks, at most ``limit`` of each."""
    if isinstance(task, Union):
        return task.split(split, options.limit, options.data_seed)
    part = task.split(split).sample(options.limit, options.data_seed)
    return part.whole() if isinstance(part, StreamedSplit) and options.shard_size is None else part


def count_of(part: Split | StreamedSplit) -> int | None:
    """The number of examples; None if only reading to the end tells it."""
    return part.count if isinstance(part, StreamedSplit) else len(part)


SHARD = 100_000
"""Examples in a shard, where nobody says how many; as many are one file."""


def shard_size(task: Task, split: str, options: CacheOptions, out: str | Path | None) -> int | None:
    """The size of shards: the option, or a default for many examples that are read in parts; None for one file."""
    part: Any = task.splits.get(split)
    if options.shard_size is not None or options.stateful or not isinstance(part, StreamedSplit):
        return options.shard_size
    few = part.count is not None and min(part.count, options.limit or part.count) <= SHARD
    return None if few or str(out or "").endswith(".h5") else SHARD


def _stored_recipe(recipe: Recipe) -> dict[str, Any]:
    """The recipe as stored in the file: without options that do not affect its bytes."""
    parts = {"arguments": recipe.arguments, "defaults": recipe.defaults}
    stored = {
        part: {k: v for k, v in of.items() if k not in _NOT_STORED and not (k in _LATER and not v)}
        for part, of in parts.items()
    }
    return {"function": recipe.function, **stored}


_NOT_STORED = ("workers", "batch_tokens", "overwrite", "patience", "backend", "scheduler")
_LATER = ("sites", "positions", "chat_template", "generate", "decoder", "shard_size", "stream", "device_map", "tp_plan")
"""Options of later versions, stored where they are given: without them, the file is as before."""


def _of_data(task: Task, part: Split, options: CacheOptions, kind: str, dtype: str) -> dict[str, Any]:
    """The part of the spec that depends on texts, pooling and precision."""
    pairs = pairs_read(options.pairs, kind)
    names = () if options.pooling == NO_POOLING else options.pooling
    want = {
        "task": task.name,
        "split": part.name,
        "data_digest": data_digest(part.digest(), task.label_names),
        "n": count_of(part),
        "kind": str(task.kind),
        "pairs": pairs if part.paired else None,
        "sentences": 2 if part.paired and pairs == "separate" else 1,
        "pooling": [str(p) for p in poolings(default_pooling(kind) if names is None else names)],
        "tokens": _token_level(options, task.kind),
        "store": options.store or dtype,
    }
    if options.sites is not None:
        want["sites"] = list(options.sites)
    if options.layers is not None:
        want["only" if options.sites is None else "blocks"] = list(map(str, options.layers))
    if options.positions is not None:
        want |= _positions(options.positions, want, task)
    if options.generate is not None:
        want["generate"] = _generation(options.generate, want, task, part, kind)
    if options.context != Context.NONE:
        if reads_apart(kind):
            raise UsageError(f"{kind} reads one sentence at a time; leave out --context.")
        want["context"] = options.context
    if options.data_seed and options.limit is not None and count_of(part) == options.limit:
        want["data_seed"] = options.data_seed
    if isinstance(task, Union):
        want |= {"limit": options.limit, "data_seed": options.data_seed}
    if options.shard_size is not None:
        want["shard_size"] = options.shard_size
    if not want["pooling"] and not want["tokens"]:
        raise UsageError("there is nothing to store; use --pooling, --tokens, or both.")
    return want


def _positions(positions: str, want: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The part of the spec that the choice of pieces changes; raises UsageError if the data do not allow it."""
    if want["tokens"] not in (None, TokenLevel.PIECE):
        raise UsageError(
            f"--positions chooses pieces, but the token vectors are of {want['tokens']}; use --token-level piece, or "
            "--no-tokens."
        )
    if want["tokens"] and task.kind is TaskKind.SPAN_LABELLING and positions != "span":
        raise UsageError(
            f"{task.name} labels spans, whose pieces must all be stored; use --positions span, or leave it out."
        )
    return {"positions": positions} | ({"tokens": str(TokenLevel.CHOSEN)} if want["tokens"] else {})


def _generation(generate: str, want: Mapping[str, Any], task: Task, part: Split, kind: str) -> str:
    """``generate``; raises UsageError for data and models that are not continued."""
    if part.paired or task.kind in NEEDS_TOKENS:
        raise UsageError(f"--generate continues single texts and conversations, not the pairs or words of {task.name}.")
    if reads_apart(kind):
        raise UsageError(f"{kind} reads and does not write; --generate needs a decoder with its head.")
    if want["tokens"] not in (None, TokenLevel.PIECE, TokenLevel.CHOSEN):
        raise UsageError("what a model writes is stored piece by piece; leave out --token-level.")
    return generate


def _token_level(options: CacheOptions, kind: TaskKind) -> str | None:
    """The unit of the stored tokens, None for no tokens; a task that labels words or spans needs them."""
    level = options.token_level
    if level == TokenLevel.CHOSEN:
        raise UsageError("--token-level chosen is what --positions gives with --token-level piece; write these.")
    if options.tokens is None and kind in NEEDS_TOKENS:
        return _choice(TokenLevel, level or NEEDS_TOKENS[kind], "token_level")
    if options.tokens:
        return _choice(TokenLevel, level or TokenLevel.PIECE, "token_level")
    if level not in (None, TokenLevel.PIECE):
        raise UsageError(f"--token-level {level} applies to token vectors; add --tokens.")
    return None


def of_model(model: str | Path | Encoder, options: CacheOptions) -> tuple[Loading | Encoder, dict[str, Any]]:
    """The arguments for loading a model, or the loaded one, and the part of the spec that it determines."""
    if isinstance(model, (str, Path)):
        return _of_named_model(model, options)
    return model, _of_encoder(model, options)


def _of_named_model(model: str | Path, options: CacheOptions) -> tuple[Loading, dict[str, Any]]:
    """The arguments for loading a model, and the part of the spec that it determines."""
    from probekit.models.identity import identify
    from probekit.runtime import own_device, resolve_device

    where, seed, cut = resolve_device(options.device), options.random_weights, options.max_length
    where = own_device(where) if options.device_map is None else where
    how = LoadOptions(
        dtype=Dtype(options.dtype), device=where, random_weights=seed, revision=options.revision, max_length=cut,
        compile=options.compile, stateful=options.carried, decoder=options.decoder, sites=options.sites,
        onednn=options.onednn, blocks=None if options.sites is None else options.layers, device_map=options.device_map,
        tp_plan=options.tp_plan, last=_last(options),
    )  # fmt: skip
    want = identify(model, revision=options.revision, random_weights=seed, name=options.model_name)
    want |= {"dtype": options.dtype, "device": where.partition(":")[0], "cut_at": cut}
    want |= {"compile": True} if options.compile else {}
    want |= {"onednn": False} if not options.onednn else {}
    want |= {} if options.device_map is None else {"device_map": options.device_map}
    want |= {} if options.tp_plan is None else {"tp_plan": options.tp_plan, "tp_size": processes()[1]}
    want |= {"part": "decoder"} if options.decoder else {}
    return Loading(str(model), how), want | ({"stateful": options.carried} if options.stateful else {})


def _last(options: CacheOptions) -> int | None:
    """The last layer that is read; None if the whole model is needed, or what it has is not known before it is loaded.

    What is written needs its head; of sites the whole model is proven; -1 and final_norm depend on its depth.
    """
    names = [str(layer) for layer in options.layers or ()]
    if options.sites is not None or options.generate is not None or not all(map(str.isdecimal, names)):
        return None
    return max(map(int, names), default=None)


def _of_encoder(encoder: Encoder, options: CacheOptions) -> dict[str, Any]:
    """The part of the spec that a loaded encoder determines."""
    if options.workers > 1:
        raise UsageError("each of several workers loads the model; give its name or folder, not a loaded encoder.")
    for name in ("max_length", "stateful", "compile", "decoder", "sites", "device_map", "tp_plan"):
        if getattr(options, name):
            raise UsageError(f"{name} does not apply to a loaded encoder; pass {name} to load_encoder.")
    want = {"model": options.model_name or encoder.name, **{key: encoder.spec[key] for key in IDENTITY}}
    want |= {key: encoder.spec[key] for key in NOT_ALWAYS if key in encoder.spec}
    return want | ({"stateful": int(encoder.spec["stateful"])} if encoder.spec.get("stateful") else {})


def origin_of(model: str | Path | Encoder, options: CacheOptions | ScorerOptions) -> dict[str, Any]:
    """The training that produced a model's weights; {} if there was none."""
    from probekit.models.find import resolve_model
    from probekit.models.identity import trained_by

    if isinstance(model, (str, Path)):
        return trained_by(resolve_model(model, options.revision)) if options.random_weights is None else {}
    folder = getattr(model, "folder", None)
    return trained_by(folder) if folder is not None and model.spec["random_weights"] is None else {}


def _path(out: str | Path | None, want: Mapping[str, Any], spec_id: str) -> Path:
    """The file: ``out``, or the default name (inside ``out`` if that is a folder); of shards, the folder."""
    shards = "shard_size" in want
    if out is not None and not ((Path(out).is_dir() and not shards) or str(out).endswith(("/", os.sep))):
        return Path(out)
    names = [want["model"], *((want["checkpoint"], "step", str(want["step"])) if "step" in want else ())]
    if (seed := want["random_weights"]) is not None:
        names.append(f"random-{seed}")
    path = files.cache_path(want["task"], want["split"], "-".join(names), spec_id, Path(out or files.DATA_CACHE))
    return path.with_suffix("") if shards else path


def type_of(model: str | Path | Encoder, revision: str | None) -> str:
    """The model type."""
    if isinstance(model, (str, Path)):
        from probekit.models.find import resolve_model
        from probekit.models.folder import model_type

        return model_type(resolve_model(model, revision))
    return str(model.spec.get("model_type", ""))


def pairs_read(option: str, kind: str) -> str:
    """How a model of this type reads the sentences of pairs."""
    if option == "joint" and reads_apart(kind):
        raise UsageError(f"{kind} reads one sentence at a time; leave out --pairs, or use --pairs separate.")
    return ("separate" if reads_apart(kind) else "joint") if option == "auto" else option


def data_digest(examples: str, label_names: Sequence[str]) -> str:
    """The spec's data_digest: of the digest of the examples, and the names of their labels."""
    return digest({"examples": examples, "labels": list(label_names)})


def digest(want: Mapping[str, Any]) -> str:
    """The spec_id: 32 hex digits of SHA-256 of everything that determines the numbers, as canonical JSON."""
    return hashlib.sha256(json.dumps(want, sort_keys=True).encode()).hexdigest()[:32]


def _choice(kind: Any, value: str, name: str) -> str:
    try:
        return str(kind(str(value)))
    except ValueError:
        raise UsageError(f"{name} is {value!r}; expected one of {', '.join(kind)}.") from None


def _dtype(model: str | Path | Encoder, options: CacheOptions) -> str:
    """The precision of the model."""
    return _choice(Dtype, options.dtype if isinstance(model, (str, Path)) else model.spec["dtype"], "dtype")


def recipe_of(model: Any, task: Any, split: str, options: CacheOptions, out: Any) -> Recipe:
    """The recipe of a call, also of one by another public function."""
    return Recipe.of("cache_activations", {"model": model, "task": task, "split": split, **asdict(options), "out": out})
