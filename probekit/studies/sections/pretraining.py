"""Encoders that the study makes: untrained ones, and those that it pretrains."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.errors import UsageError
from probekit.files import slug
from probekit.studies.file import arguments_of
from probekit.studies.schema import Pretrain
from probekit.studies.sections.names import Plan, encoder_name, guarded, pretraining_name
from probekit.studies.steps import Inside, Outside, Step

__all__ = ["pretraining_steps"]

PIECES = 25.0
"""Approximate number of pieces of a text."""


def pretraining_steps(plan: Plan, block: Pretrain) -> Iterator[Step]:
    """The untrained encoders of a section, one for each seed, and the training of each on its objectives."""
    encoder = plan.encoder(block)
    for seed in block.seeds:
        name = encoder_name(encoder, seed)
        leaves = tuple(f"encoders/{name}/{file}" for file in ("config.json", "model.safetensors"))
        yield guarded(f"encoder {name}", leaves, partial(_new, plan, encoder, seed, leaves))
        for model, objectives in block.on.items():
            if objectives:
                run = pretraining_name(model, seed)
                leaves_of_run = tuple(f"runs/{run}/{file}" for file in ("probekit.json", "rows.parquet"))
                yield guarded(run, leaves_of_run, partial(_pretrain, plan, block, model, seed, leaves_of_run))


def _new(plan: Plan, encoder: str, seed: int, leaves: tuple[str, ...]) -> Step:
    arguments = dict(plan.study.encoders[encoder])
    for key in ("tokenizer", "elmo"):
        if key in arguments:
            arguments[key] = Outside(arguments[key], plan.sources.model_digest(arguments[key]))
    for key in ("config", "vocabulary"):
        if isinstance(arguments.get(key), str):
            arguments[key] = Outside(arguments[key], plan.sources.file_digest(arguments[key]))
    name = f"encoder {encoder_name(encoder, seed)}"
    return Step(
        name, "new_encoder", {**arguments, "seed": seed, "out": Inside(leaves[0].rpartition("/")[0])}, leaves=leaves
    )


def _pretrain(plan: Plan, block: Pretrain, model: str, seed: int, leaves: tuple[str, ...]) -> Step:
    data_dir = plan.sources.data_dir
    given = arguments_of("pretrain_encoder", block.options)
    options = EncoderOptions(**given, data_dir=data_dir)
    if twice := {slug(one) for one in block.on if one != model} & {slug(model)}:
        raise UsageError(f"two encoders have the file name {twice.pop()}; give them different names.")
    untrained = encoder_name(plan.encoder(block), seed)
    arguments: dict[str, Any] = {
        "model": Inside(f"encoders/{untrained}"),
        "on": [plan.sources.objective(name, options) for name in block.on[model]],
        **given, **({} if data_dir is None else {"data_dir": Outside(str(data_dir))}),
        "seed": seed, "run_name": model, "out": Inside(leaves[0].rpartition("/")[0]),
    }  # fmt: skip
    work = _work(plan, options, model, block.on[model])
    return Step(leaves[0].split("/")[1], "pretrain_encoder", arguments, (f"encoder {untrained}",), leaves, work, 10.0)


def _work(plan: Plan, options: EncoderOptions, model: str, objectives: list[str]) -> float:
    """A rough estimate of the floating-point operations of a pretraining, validations included."""
    size, words = plan.size(model), options.batch_size * PIECES
    predicts = sum(name.split(":")[0] in GENERATIVE for name in objectives) / len(objectives)
    outputs = predicts * options.outputs * size.width
    return 6 * options.steps * words * (1.3 * size.weights + outputs)


GENERATIVE = ("language-model", "masked-language-model", "translate", "skip-thought", "reply", "denoise")
"""Objectives that predict words."""
