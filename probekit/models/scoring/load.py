"""Language models with their heads, from a folder or the hub; a checkpoint without a head is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from probekit.calls import keywords
from probekit.errors import ModelError, UsageError, first_line
from probekit.files import read_json
from probekit.models.adapted.loading import base_folder, with_adapters
from probekit.models.adapted.record import adapted
from probekit.models.find import resolve_model
from probekit.models.folder import check_config, configuration, quantisation, text_config, weight_files
from probekit.models.identity import identify
from probekit.models.options import ScorerOptions
from probekit.models.scoring.head import Head
from probekit.models.scoring.scorer import Scorer
from probekit.models.transformers.encoder import raise_in_words, text_reader
from probekit.models.transformers.prepared import set_language
from probekit.models.transformers.quantised import bits_of, checkpoint_options, quantised
from probekit.models.transformers.stock import placed, quiet_transformers
from probekit.models.transformers.tokens import load_tokenizer
from probekit.models.transformers.towers import class_for, drop_crossing, language_model_of, left_out, make
from probekit.runtime import Dtype, resolve_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CAUSAL = ("ForCausalLM", "LMHeadModel")
MASKED = ("ForMaskedLM", "ForPreTraining")
"""Ends of the names of classes with a head that predicts the next piece, or masked pieces."""
WRITES = "ForConditionalGeneration"
"""The end of the names of encoder-decoders, and of models with a decoder that reads images or sounds, too."""


def is_causal(model: str | Path, purpose: str, revision: str | None = None) -> bool:
    """Whether a language model predicts the next piece; otherwise it predicts masked ones.

    Raises
    ------
    UsageError
        If config.json names no class with a head of a language model; the message ends with ``purpose``.
    """
    folder = resolve_model(model, revision)
    config = read_json(folder / "config.json")
    names = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith("WithLMHeadModel") for name in names) and not config.get("causal"):  # XLM, Flaubert
        return False
    if any(name.endswith(CAUSAL) for name in names):
        return True
    if any(name.endswith(WRITES) for name in names) and not configuration(folder).is_encoder_decoder:
        return True
    if any(name.endswith(MASKED) for name in names):
        return False
    raise UsageError(
        f"{model} has no head of a language model (its config.json names {', '.join(names) or 'no class'}), so "
        f"{purpose}."
    )


@keywords(options=ScorerOptions)
def load_scorer(model: str | Path, *, options: ScorerOptions) -> Scorer:
    """A language model that scores sentences.

    Parameters
    ----------
    model : str or path
        Hub id, or the folder of a causal or masked language model with its head.
    options : ScorerOptions
        ``device``, ``dtype``, ``random_weights``, ``revision`` and ``batch_tokens``; each may be given as a keyword.
        Probabilities are computed in float32. Sequences of one length share a batch (for causal models, of similar
        length).

    Raises
    ------
    ModelError
        If the folder is damaged, or lacks weights of the head.
    UsageError
        If config.json names no class with a head.

    Examples
    --------
    >>> scorer = load_scorer("gpt2")  # doctest: +SKIP
    >>> scorer.score(["The dog barks.", "The dog bark."])["log-probability"]  # doctest: +SKIP
    """
    folder = resolve_model(model, options.revision)
    causal = is_causal(
        model, "it cannot score sentences. Give a model that was pretrained as a language model", options.revision
    )
    where = torch.device(resolve_device(options.device))
    net = load_language_model(folder, causal=causal, random_weights=options.random_weights)
    net = placed(net, where, Dtype(options.dtype))
    tokenizer = load_tokenizer(folder)
    if not causal and tokenizer.mask_token_id is None:
        raise UsageError(f"the tokenizer of {model} has no piece for masks, without which it predicts nothing.")
    spec = identify(model, revision=options.revision, random_weights=options.random_weights)
    return Scorer(
        Head(net, causal=causal),
        tokenizer,
        text_reader(folder, text_config(net.config)).max_length,
        causal=causal,
        spec={**spec, "dtype": options.dtype, "device": where.type},
        batch_tokens=options.batch_tokens,
    )


def load_language_model(
    folder: Path, *, causal: bool, random_weights: int | None, head_only: bool = False
) -> PreTrainedModel:
    """A language model with its head, in float32 on the CPU; raises ModelError if it lacks weights.

    With ``head_only``, of its blocks just the first is read, so that its head fits where its layers do not. Of a run
    with adapters, all are.
    """
    from transformers import AutoConfig

    run = adapted(folder) if random_weights is None else None
    if run is not None and run.adapters:
        if not run.mergeable:
            raise ModelError(f"{folder} reads trained vectors before each text; only its layers are read.")
        base = load_language_model(base_folder(run), causal=causal, random_weights=None)
        adapted_model: PreTrainedModel = with_adapters(base, run)
        return adapted_model
    check_config(folder)
    where: Any = {"trust_remote_code": False, "local_files_only": True}
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            config = AutoConfig.from_pretrained(folder, **where)
            if head_only:
                _first_block(text_config(config))
            if random_weights is not None:
                config.__dict__.pop("quantization_config", None)
                torch.default_generator.manual_seed(random_weights)
                model, missing = make(config, causal=causal, dtype=torch.float32), []
            else:
                weight_files(folder)
                how = quantisation(folder)
                given = where | checkpoint_options(config, how, "cpu")
                model, report = class_for(config, causal=causal).from_pretrained(
                    folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **given
                )
                if (bits := bits_of(how)) is not None:
                    model = quantised(model, bits)
                missing = sorted(report["missing_keys"])
            left_out(model, folder)
            set_language(model, folder)
            model = language_model_of(model)
            drop_crossing(model)
    except ModelError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, its own …
        raise ModelError(f"{folder} cannot be loaded as a language model: {first_line(error)}") from error
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} weights of its language model ({', '.join(missing[:3])}"
            f"{', …' if len(missing) > 3 else ''}); they would be random, and so would the scores."
        )
    model.config.use_cache = False
    found: PreTrainedModel = model.eval().requires_grad_(requires_grad=False)
    if text_config(found.config) is not found.config:  # its own code may want a part that was left out
        try:
            with torch.inference_mode():
                found(input_ids=torch.tensor([[1, 2]]))
        except Exception as error:
            raise_in_words(str(folder), error)
    return found


def _first_block(config: Any) -> None:
    """Let a configuration have one block."""
    config.num_hidden_layers = 1
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = config.layer_types[:1]
