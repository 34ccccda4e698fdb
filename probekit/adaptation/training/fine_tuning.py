"""Fine-tuning: train the encoder with a small head (Peters, Ruder & Smith 2019, section 3.1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from safetensors.torch import load_file

from probekit.adaptation.data.reading import check_reading, data_for, reading_of
from probekit.adaptation.data.task_spec import TaskSpec
from probekit.adaptation.heads.library import POOLER, bare_layout, library_layout
from probekit.adaptation.heads.spec import choose_head, head_spec, reads_apart
from probekit.adaptation.methods.adapt import adapt, changed_layout, reinitialise_top
from probekit.adaptation.methods.options import Attention, Method
from probekit.adaptation.options import Regime, TrainOptions
from probekit.adaptation.pretraining.options import LanguageModelling
from probekit.adaptation.runs.folder import HEAD
from probekit.adaptation.signals.language_model import own_head
from probekit.adaptation.training.groups import layer_names
from probekit.adaptation.training.learners import FineTuning
from probekit.adaptation.training.objective import Objective, Training, rating_scale
from probekit.errors import UsageError, did_you_mean, reading
from probekit.models import conversion
from probekit.models.adapted.composing import parts_of
from probekit.models.adapted.depth import drop_blocks
from probekit.models.adapted.direction import attend, reads_ahead
from probekit.models.adapted.record import JOIN, adapted
from probekit.models.conversion import BILSTM, ELMO, SKIP_THOUGHTS
from probekit.models.find import resolve_model
from probekit.models.folder import configuration, model_type, quantisation
from probekit.models.identity import identify
from probekit.models.loading import text_reader
from probekit.models.scalar_mix import ScalarMix
from probekit.models.transformers.quantised import check_available
from probekit.models.transformers.stock import load_model
from probekit.models.transformers.tokens import load_tokenizer
from probekit.tasks.context import Context
from probekit.tasks.task import Split, Task


def prepare_fine_tuning(
    model: str | Path, task: Task, train: Split, dev: Split, options: TrainOptions, *, test: Split | None = None
) -> Training:
    """The encoder with its head, and the splits as word pieces.

    Raises
    ------
    ModelError, UsageError
        As from loading.
    UsageError
        For a head that does not fit the task.
    """
    folder = resolve_model(model, options.revision)
    spec = TaskSpec.of_task(task, train.name)
    name = choose_head(options, spec, Regime.FINE_TUNE, model_type(folder))
    apart = reads_apart(options, name, spec, model_type(folder))
    if options.context is not Context.NONE and conversion.reads_apart(model_type(folder)):
        raise UsageError(f"{model_type(folder)} reads one sentence at a time; leave out --context.")
    _check_method(options, folder)
    check_reading(options, spec, model_type(folder))
    encoder, changes = _changed_encoder(folder, options)
    pooling = pooling_of(encoder, options)
    _check(options, encoder, pooling)
    scale = rating_scale(spec, *(replace(task, splits={s.name: s}).labels(s.name) for s in (train, dev)))
    width = int(encoder.config.hidden_size)
    head = head_spec(options, name, width=width, apart=apart, pooling=pooling, scale=scale)
    own = _response_head(options, encoder, folder) if name == "response" else None
    if own is not None:
        head = replace(head, **own[0])
    built = head.build(spec)
    if own is not None and options.random_weights is None:
        built.get_submodule("output").load_state_dict(own[1].state_dict())
    method = adapt(encoder, options, folder)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler.requires_grad_(requires_grad=head.pooling == "pooler")  # otherwise it is not used
    if options.gradient_checkpointing:
        newer = getattr(encoder, "activation_checkpointing_enable", None)  # its name since transformers 5
        (newer or encoder.gradient_checkpointing_enable)()
    reader = text_reader(folder, encoder.config, options.max_length)
    data = [
        None if split is None else data_for(task, split, reader, options, head, seed=options.seed)
        for split in (train, dev, test)
    ]
    assert data[0] is not None
    assert data[1] is not None
    layers = _mixed(encoder, options) if options.mix else ()
    mix = ScalarMix(len(layers), layer_norm=options.layer_norm) if layers else None
    learner = FineTuning(encoder, built, mix, layers)
    layout = library_layout(encoder, head, spec, mixed=options.mix) or bare_layout(
        encoder, spec, "encoder." if getattr(configuration(folder), "is_encoder_decoder", False) else ""
    )
    layout = replace(layout, config={**layout.config, **changes})
    about: dict[str, Any] = {}
    if method is not None:
        layout = changed_layout(method, layout.config)
        learner.changed = frozenset(layout.names.values()) | _pooler_names(encoder, head.pooling, folder)
        about = {"adapted": {"method": str(method.method), "settings": method.settings}, "base": _base(model, options)}
    return Training(
        learner,
        (Objective(spec, head, data[0], data[1], data[2]),),
        options,
        encoder=identity_of(model, options)
        | {"max_length": reader.max_length, "context": str(options.context)}
        | reading_of(options),
        source=folder,
        layout=layout,
        facts=about,
    )


def _changed_encoder(folder: Path, options: TrainOptions) -> tuple[Any, dict[str, Any]]:
    """The encoder with the blocks and the attention that the options ask for, and what config.json says of these."""
    encoder = encoder_of(folder, options.random_weights, dropout=options.encoder_dropout, quantise=options.quantise)
    if options.random_weights is None:
        _read_pooler(encoder, folder)
    changes = {} if options.keep_layers is None else drop_blocks(encoder, options.keep_layers)
    if options.attention is not None:
        changes |= attend(encoder, causal=options.attention == Attention.CAUSAL)
    if options.reinit_top:
        reinitialise_top(encoder, options.reinit_top, options.seed)
    return encoder, changes


def _response_head(options: TrainOptions, encoder: Any, folder: Path) -> tuple[dict[str, Any], Any]:
    """What a :class:`HeadSpec` says of a causal language model's own head, and that head."""
    if options.method is not Method.FULL or options.mix or options.signals() or options.penalty or options.mixout:
        raise UsageError(
            "responses are learned by fine-tuning the whole language model; leave out --method, --mix, --penalty, "
            "--mixout and further signals."
        )
    head = own_head(folder, encoder, LanguageModelling.CAUSAL_LM) if _causal_model(encoder) else None
    end = load_tokenizer(folder).eos_token_id
    if head is None or end is None:
        lacks = "head of a causal language model" if head is None else "piece for the end of text"
        raise UsageError(
            f"{folder} has no {lacks}, which responses need; give a model such as gpt2, or one from probekit pretrain."
        )
    tied = head.weight is encoder.get_input_embeddings().weight
    return {
        "vocabulary": int(cast("Any", head).out_features),
        "end": int(end),
        "tied": tied,
        "bias": head.bias is not None,
    }, head


def _causal_model(encoder: Any) -> bool:
    return not conversion.reads_apart(encoder.config.model_type) and not reads_ahead(encoder)


def identity_of(model: str | Path, options: TrainOptions) -> dict[str, Any]:
    """The identity of the pretrained model of a training."""
    about = identify(model, revision=options.revision, random_weights=options.random_weights, name=options.model_name)
    return about if options.quantise is None else about | {"quantise": options.quantise}


def encoder_of(
    folder: Path, random_weights: int | None = None, *, dropout: float | None = None, quantise: str | None = None
) -> Any:
    """The transformers model in a folder, in float32 and ready for training; for encoder-decoders the encoder.

    A model with quantised layers is frozen.
    """
    encoder = load_model(folder, random_weights=random_weights, dropout=dropout, quantise=quantise)
    encoder.requires_grad_(requires_grad=not getattr(encoder, "is_quantized", False))
    return encoder


def _check_method(options: TrainOptions, folder: Path) -> None:
    """Refuse changes of encoders that are no transformers, and of a model whose adapters cannot be merged."""
    kind, run = model_type(folder), adapted(folder)
    changed = [f"--method {options.method}"] if options.method is not Method.FULL else []
    changed += ["--keep-layers"] if options.keep_layers is not None else []
    changed += ["--reinit-top"] if options.reinit_top else []
    changed += ["--attention"] if options.attention is not None else []
    if changed and conversion.reads_apart(kind):
        raise UsageError(f"{changed[0]} is for transformers; {folder} is of type {kind!r}.")
    if options.quantise is not None:
        check_available(options.quantise)
    if options.random_weights is None and (how := quantisation(folder)):
        raise UsageError(
            f"{folder} holds quantised weights ({how}), which are not trained. Train a head on its frozen layers "
            "(--regime feature-extraction), or give the original model, with --quantise."
        )
    if run is None or options.random_weights is not None:
        return
    if not run.mergeable:
        base = "base" if run.quantise is None else f"{run.quantise} base"
        raise UsageError(
            f"{folder} holds {run.method} weights, which cannot be merged with their {base}, so it is not trained "
            f"further. Fine-tune its base, {run.base}, or train its frozen layers: --regime feature-extraction."
        )
    if options.quantise is not None:
        raise UsageError(
            f"{folder} holds changed weights, which are not quantised. Merge it first: probekit merge {folder} --out "
            "FOLDER; then give that folder as --model."
        )


def _base(model: str | Path, options: TrainOptions) -> dict[str, Any]:
    """The base of a run with changed weights: where it is, and the digest of its weights."""
    places = [(name, Path(name).expanduser()) for name in parts_of(str(model))]
    about = identity_of(model, options)
    where = JOIN.join(str(place.resolve()) if place.exists() else name for name, place in places)
    quantise = {} if options.quantise is None else {"quantise": options.quantise}
    return {"model": where} | {key: about[key] for key in ("revision", "random_weights", "weights_digest")} | quantise


def _pooler_names(encoder: Any, pooling: str | None, folder: Path) -> frozenset[str]:
    """The pooler's weights that a run with changed weights keeps: trained ones, and ones beside the base's file."""
    if getattr(encoder, "pooler", None) is None or not (pooling == "pooler" or (folder / HEAD).is_file()):
        return frozenset()
    return frozenset(f"{POOLER}{name}" for name in encoder.pooler.state_dict())


def _mixed(encoder: Any, options: TrainOptions) -> tuple[str, ...]:
    """The names of the layers to mix."""
    names = layer_names(encoder)
    if options.layers is None:
        return names
    chosen = tuple(map(str, options.layers))
    if strange := [name for name in chosen if name not in names]:
        raise UsageError(f"--layers: the model has no hidden state {strange[0]!r}; {did_you_mean(strange[0], names)}")
    return chosen


def _read_pooler(encoder: Any, folder: Path) -> None:
    """Load the pooler of a run's encoder if the library's class of the run has none."""
    if (folder / HEAD).is_file():
        with reading(folder / HEAD, "safetensors"):
            beside = load_file(folder / HEAD)
            pooler = {k.removeprefix("encoder."): w for k, w in beside.items() if k.startswith(POOLER)}
            encoder.load_state_dict(pooler, strict=False)


def _check(options: TrainOptions, encoder: Any, pooling: str) -> None:
    kind = encoder.config.model_type
    if options.layer_norm and not options.mix:
        raise UsageError("layer_norm applies to the mix of layers; give mix as well, or leave out both.")
    if options.mix and kind in (SKIP_THOUGHTS, BILSTM):
        raise UsageError(f"the layers of {kind} differ in width and cannot be mixed; leave out mix.")
    if options.mix and pooling == "pooler":
        raise UsageError("the encoder's pooler reads only its last layer; choose another pooling for the mix.")
    if options.gradient_checkpointing and not encoder.supports_gradient_checkpointing:
        raise UsageError(
            f"{type(encoder).__name__} does not support gradient checkpointing; leave out --gradient-checkpointing."
        )


def pooling_of(encoder: Any, options: TrainOptions) -> str:
    """The pooling of the options, or the default for an encoder."""
    return _pooling(encoder, mixed=options.mix) if options.pooling == "auto" else options.pooling


def _pooling(encoder: Any, *, mixed: bool) -> str:
    if encoder.config.model_type in (ELMO, BILSTM):
        return "max"
    if _causal(encoder):
        return "last"
    if getattr(encoder, "pooler", None) is not None and not mixed:
        return "pooler"
    return "mean" if getattr(encoder.config, "is_causal", None) is False else "first"


def _causal(encoder: Any) -> bool:
    stated = getattr(encoder.config, "is_causal", None)
    return any(getattr(module, "is_causal", False) for module in encoder.modules()) if stated is None else stated
