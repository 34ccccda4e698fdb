"""Fine-tuning: the encoder is trained with a small head on it (Peters, Ruder & Smith 2019, section 3.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads import pools
from probekit.adaptation.heads.scalar_mix import ScalarMix
from probekit.adaptation.options import HeadOptions, Regime, TrainOptions
from probekit.adaptation.training.groups import layer_groups, layer_names
from probekit.adaptation.training.learners import FineTuning
from probekit.adaptation.training.objective import Target, build_head, choose_head, describe, reads_apart, scale_of
from probekit.adaptation.training.parts import Parts
from probekit.errors import UsageError
from probekit.models.conversion import ELMO, SKIP_THOUGHTS
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.identity import identify
from probekit.models.loading import text_reader
from probekit.models.transformers.stock import load_model
from probekit.tasks.task import Split, Task

__all__ = ["encoder_of", "prepare_fine_tuning"]


def prepare_fine_tuning(
    model: str | Path,
    task: Task,
    train: Split,
    dev: Split,
    head: HeadOptions,
    options: TrainOptions,
    *,
    revision: str | None = None,
    random_weights: int | None = None,
    max_length: int | None = None,
    model_name: str | None = None,
) -> Parts:
    """The encoder with its head, and both splits as word pieces.

    random_weights : train from scratch: seed of a re-initialisation
    Raises ModelError and UsageError as loading does, and UsageError for a head that does not fit the task.
    """
    folder = resolve_model(model, revision)
    target = Target.of_task(task, train.name)
    name = choose_head(head, target, Regime.FINE_TUNE, model_type(folder))
    apart = reads_apart(head, name, target, model_type(folder))
    encoder = encoder_of(folder, random_weights)
    pooling = _pooling(encoder, mixed=head.mix) if head.pooling == "auto" else head.pooling
    _check(head, options, encoder, pooling)
    scale = scale_of(target, *(Task(task.name, task.kind, {s.name: s}).labels(s.name) for s in (train, dev)))
    made = build_head(head, name, target, _width(encoder), apart=apart, pooling=pooling, scale=scale)
    if not (pools(name) and pooling == "pooler") and getattr(encoder, "pooler", None) is not None:
        encoder.pooler.requires_grad_(requires_grad=False)  # nothing reads it
    if options.gradient_checkpointing:
        newer = getattr(encoder, "activation_checkpointing_enable", None)  # its name from transformers 5 on
        (newer or encoder.gradient_checkpointing_enable)()
    reader = text_reader(folder, encoder.config, max_length)

    def read(split: Split) -> TextData:
        return TextData(task, split, reader, apart=apart)

    layers = layer_names(encoder) if head.mix else ()
    learner = FineTuning(encoder, made, ScalarMix(len(layers), layer_norm=head.layer_norm) if layers else None)
    about = identify(model, revision=revision, random_weights=random_weights, name=model_name)
    return Parts(
        learner, read(train), read(dev), target, layer_groups(encoder, made, learner.mix), folder,
        prefix="encoder." if _encoder_of_two(folder) else "",
        identity=about | {"max_length": reader.max_length},
        head=describe(head, name, width=_width(encoder), apart=apart, pooling=pooling, scale=scale),
        read=read, layers=layers,
    )  # fmt: skip


def encoder_of(folder: Path, random_weights: int | None = None) -> Any:
    """The transformers model of a folder, in float32 and ready to be trained; of an encoder-decoder its encoder."""
    encoder = load_model(folder, random_weights=random_weights)
    encoder.requires_grad_(requires_grad=True)
    return encoder


def _check(head: HeadOptions, options: TrainOptions, encoder: Any, pooling: str) -> None:
    kind = encoder.config.model_type
    if head.layer_norm and not head.mix:
        raise UsageError("layer_norm is of the mix of the layers; give mix as well, or leave both out.")
    if head.mix and kind == SKIP_THOUGHTS:
        raise UsageError(f"the layers of {kind} differ in width, so that there is no mix of them; leave mix out.")
    if head.mix and pooling == "pooler":
        raise UsageError("the encoder's pooler reads its last layer; choose another pooling to read the mix of all.")
    if options.gradient_checkpointing and not encoder.supports_gradient_checkpointing:
        raise UsageError(f"{type(encoder).__name__} knows no gradient checkpointing; leave it out.")


def _pooling(encoder: Any, *, mixed: bool) -> str:
    if encoder.config.model_type == ELMO:
        return "max"
    if getattr(encoder, "pooler", None) is not None and not mixed:
        return "pooler"
    return "last" if _causal(encoder) else "first"


def _causal(encoder: Any) -> bool:
    return any(getattr(module, "is_causal", False) for module in encoder.modules())


def _width(encoder: Any) -> int:
    return int(encoder.config.hidden_size)


def _encoder_of_two(folder: Path) -> bool:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    return bool(getattr(config, "is_encoder_decoder", False))
