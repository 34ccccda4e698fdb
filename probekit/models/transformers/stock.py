"""The transformers model in a folder: loaded completely or not at all, never from a pickle or with custom code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from probekit.calls import keywords
from probekit.errors import ModelError, UsageError, first_line
from probekit.files import in_words
from probekit.models.adapted.record import adapted
from probekit.models.find import resolve_model
from probekit.models.folder import check_config, model_type, quantisation, text_config, weight_files
from probekit.models.identity import identify
from probekit.models.kinds import kinds
from probekit.models.options import LoadOptions
from probekit.models.transformers.first_blocks import class_of_first
from probekit.models.transformers.prepared import drop_projection, set_language
from probekit.models.transformers.quantised import (
    EXPANDED,
    bits_of,
    check_available,
    checkpoint_options,
    quantised,
    reading_options,
)
from probekit.models.transformers.towers import class_for, drop_crossing, make, text_part
from probekit.plugins import load
from probekit.recipe import option
from probekit.runtime import Dtype, memory, resolve_device


class TextDecoder(nn.Module):
    """T5's or BART's decoder, given the text that it is to write.

    The encoder reads the text, and the decoder reads the same text, or another one, one piece later: its start piece,
    then all pieces but the last (teacher forcing). At position i, it has read the pieces before piece i, and predicts
    piece i. This is how BART reads a text to classify it (Lewis et al. 2020, section 3.1).

    Parameters
    ----------
    model : PreTrainedModel
        The encoder-decoder, without a head.

    Raises
    ------
    UsageError
        If it is no encoder-decoder, or its config.json names no start piece.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        if not config.is_encoder_decoder or getattr(config, "decoder_start_token_id", None) is None:
            raise UsageError(
                f"{type(model).__name__} has no decoder beside an encoder, or config.json names no "
                "decoder_start_token_id; leave out --decoder."
            )
        self.decoder, self.encoder = model.get_decoder(), model.get_encoder()  # in this order: its blocks come first
        self.config = deepcopy(config)
        depth = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", None)
        self.config.num_hidden_layers = depth
        self.start = int(config.decoder_start_token_id)
        self._can_record_outputs = getattr(self.decoder, "_can_record_outputs", None)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return next(self.parameters()).dtype

    def get_input_embeddings(self) -> nn.Module:
        """The embedding matrix of the decoder."""
        found: nn.Module = self.decoder.get_input_embeddings()
        return found

    def set_attn_implementation(self, name: str) -> None:
        """Choose the attention function of both parts."""
        self.decoder.set_attn_implementation(name)
        self.encoder.set_attn_implementation(name)
        self.config._attn_implementation = name

    def forward(self, input_ids: torch.Tensor, decoder_ids: torch.Tensor | None = None, **wanted: Any) -> Any:
        """The decoder's output for texts (b, t) of one length.

        Parameters
        ----------
        input_ids : torch.Tensor
            int64 (b, t), what the encoder reads.
        decoder_ids : torch.Tensor, optional
            int64 (b, u), what the decoder reads, one piece later; by default the same text.
        **wanted
            ``output_hidden_states``, ``output_attentions``.
        """
        read = self.encoder(input_ids=input_ids).last_hidden_state
        own = self.later(input_ids if decoder_ids is None else decoder_ids)
        return self.decoder(input_ids=own, encoder_hidden_states=read, use_cache=False, **wanted)

    def later(self, input_ids: torch.Tensor) -> torch.Tensor:
        """What the decoder reads of texts (b, t): the start piece, and all pieces but the last."""
        return torch.cat([input_ids.new_full((len(input_ids), 1), self.start), input_ids[:, :-1]], 1)


logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)  # it warns of a kernel that is not used here


def load_described(
    model: str | Path, options: LoadOptions, *, processes: int = 1, blocks: int | None = None
) -> tuple[Any, Path, dict[str, Any]]:
    """The model, of which each of several processes reads slices, its folder, and its entries in an encoder's spec.

    With ``blocks``, only its first blocks are read.
    """
    where, folder = torch.device(resolve_device(options.device)), resolve_model(model, options.revision)
    dtype, weights, on = Dtype(options.dtype), options.random_weights, options.device_map
    net = load_model(
        folder, dtype=dtype, device=where, random_weights=weights, device_map=on, processes=processes,
        decoder=options.decoder, blocks=blocks, attention=options.attention, quantise=options.quantise,
    )  # fmt: skip
    spec = {
        **({"part": "decoder"} if options.decoder else {}),
        **identify(model, revision=options.revision, random_weights=weights),
        "model_type": net.config.model_type,
        "class": type(net).__name__,
        **({"left_out": left} if (left := getattr(net, "left_out", None)) else {}),
        **({} if (language := getattr(net.config, "default_language", None)) is None else {"language": language}),
        **({} if (compared := getattr(net, "compared", None)) is None else {"compared_with_whole": compared}),
        "dtype": str(dtype),
        "device": where.type,
        "cut_at": options.max_length,
        **({} if options.attention is None else {"attention": options.attention}),
        **({} if options.quantise is None else {"quantised": f"bitsandbytes {options.quantise}"}),
        **({} if options.onednn else {"onednn": False}),
        **({} if on is None else {"device_map": on if isinstance(on, str) else "given"}),
        **({"tp_plan": "auto", "tp_size": processes} if processes > 1 else {}),
    }
    return net, folder, spec


@dataclass(frozen=True, slots=True)
class StockOptions:
    """How the model in a folder is loaded."""

    dtype: Dtype = option(Dtype.FLOAT32, "Precision of the weights.")
    device: torch.device | str = option("cpu", "Where they are.")
    random_weights: int | None = option(
        None, "Seed for the initialisation, in float32 on the CPU, instead of reading weights."
    )
    attention: str | None = option(
        None, '"eager", "sdpa" … as transformers names them; None takes the library\'s choice.'
    )
    dropout: float | None = option(
        None, "Dropout of layers and attention in training, instead of the value in config.json."
    )
    quantise: str | None = option(None, 'Bits of the weights of the blocks\' linear layers: "8bit" or "4bit".')
    device_map: str | Mapping[str, Any] | None = option(
        None, 'How transformers spreads the modules over devices, instead of ``device``: "auto", or devices by module.'
    )
    processes: int = option(1, "Processes that share the model, each of which reads its slices (tensor parallelism).")
    decoder: bool = option(False, "Of an encoder-decoder, the decoder.")
    blocks: int | None = option(None, "Read only so many blocks, the first ones, of a model in its folder.")

    def check(self, folder: Path, *, changed: bool) -> None:
        """Refuse to spread or share out what cannot be: ``changed`` says that the folder holds changed weights only."""
        partly = self.random_weights is not None or changed
        if self.device_map is not None and partly:
            raise ModelError("device_map spreads a whole model that is read from its folder; leave it out.")
        if self.device_map is not None and self.decoder:
            raise UsageError("the decoder of an encoder-decoder is not spread over devices; leave out --device-map.")
        if self.processes > 1 and (partly or self.decoder or self.quantise is not None):
            raise UsageError(
                "--tp-plan slices a whole model that is read from its folder: no random weights, no decoder of an "
                "encoder-decoder, no run that holds changed weights only; leave it out."
            )
        if self.decoder and changed:
            raise UsageError(f"{folder} is a run that holds changed weights only, of which no decoder is read.")


@keywords(options=StockOptions)
def load_model(folder: Path, *, options: StockOptions) -> Any:
    """The model in inference mode; of an encoder-decoder only the encoder, or with ``decoder`` a :class:`TextDecoder`.

    A run that holds only changed weights is loaded with its base, quantised as in training, and merged with a base in
    full precision if its method allows that.

    Parameters
    ----------
    folder : Path
        Its folder.

    Raises
    ------
    UsageError
        If the model cannot be spread or shared out.
    ModelError
        If the folder is damaged, needs custom code, lacks weights on which a hidden state depends, or if the
        package is not installed that reads its quantised weights.
    """
    check_config(folder)
    run = adapted(folder) if options.random_weights is None else None
    options.check(folder, changed=run is not None)
    if run is not None:
        from probekit.models.adapted.loading import load_adapted

        model = load_adapted(run, load_model, attention=options.attention, dropout=options.dropout)
        return placed(model, options.device, options.dtype)
    model, how = _whole(folder, options), quantisation(folder) if options.random_weights is None else ""
    model.config.use_cache = False
    if (bits := options.quantise or bits_of(how)) is not None:
        model = quantised(model, bits)
    if how and how not in EXPANDED and bits is None:
        return model.eval().requires_grad_(requires_grad=False)  # transformers has put it where it is
    if options.device_map is not None or options.processes > 1:
        _check_spread(model, folder)
    else:
        model = placed(model, options.device, options.dtype)
    return model.eval().requires_grad_(requires_grad=False)


def _whole(folder: Path, options: StockOptions) -> Any:
    """The part of a model that is asked for, with all its weights."""
    files = weight_files(folder) if options.random_weights is None else []
    kind = model_type(folder)
    if (own := kinds().get(kind)) and own.model:
        load(own.model)
    elif own:
        raise ModelError(
            f"{folder} is of type {kind!r}, which is not trained; train a head on its vectors: --regime "
            "feature-extraction."
        )
    if options.quantise is not None and (how := quantisation(folder)):
        raise ModelError(f"{folder} holds quantised weights ({how}); leave out --quantise, or give the original model.")
    if options.quantise is not None:
        check_available(options.quantise)
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            model, missing = _made(folder, files, options)
    except ModelError:
        raise
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, RuntimeError, ImportError …
        if options.processes > 1 and isinstance(error, UsageError):
            raise
        raise ModelError(f"{folder} cannot be loaded as a model: {first_line(error)}") from error
    set_language(model, folder)
    drop_projection(model)
    model, path = text_part(model, folder)
    missing = {key.removeprefix(f"{path}.") for key in missing}
    if options.decoder:
        model = TextDecoder(model)
    elif model.config.is_encoder_decoder:
        model = model.get_encoder()
        if not hasattr(model, "config"):
            raise ModelError(f"{folder} is of type {kind!r}, whose encoder does not stand alone in transformers.")
        missing = {key.removeprefix("encoder.") for key in missing if not key.startswith("decoder.")}
    if getattr(model.config, "num_hidden_layers", None) is None:
        raise ModelError(f"{folder} cannot be read: config.json says no number of layers of type {kind!r}.")
    computed = {f"{name}.weight" for name, part in model.named_modules() if hasattr(part, "create_weight")}  # sines
    needed = {name for name in model.state_dict() if "pooler" not in name} - computed
    if lacking := sorted(missing & needed):
        raise ModelError(
            f"{', '.join(map(str, files))} lacks {len(lacking)} of the weights that config.json declares "
            f"({', '.join(lacking[:5])}{', …' if len(lacking) > 5 else ''}); they would be random. Do the weights and "
            "config.json belong together?"
        )
    drop_crossing(model)
    return model


def _made(folder: Path, files: Sequence[Path], options: StockOptions) -> tuple[Any, set[str]]:
    """The model of transformers, with weights that were read or drawn, and the names of those that were not there."""
    given: dict[str, Any] = {} if options.attention is None else {"attn_implementation": options.attention}
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    _check_size(folder, config, files)
    if options.dropout is not None:
        _set_dropout(text_config(config), options.dropout)
    if options.random_weights is not None:
        config.__dict__.pop("quantization_config", None)
        torch.default_generator.manual_seed(options.random_weights)  # not the generators of other devices
        model = make(config, dtype=torch.float32, **given)
        if hasattr(model, "read_frozen"):
            model.read_frozen(folder)
        return model, set()
    if options.device_map is not None:
        given["device_map"] = options.device_map
    if options.processes > 1:
        from transformers.distributed import DistributedConfig

        check_plan(folder, config, options.processes)
        given["distributed_config"] = DistributedConfig(tp_plan="auto", tp_size=options.processes)
    if options.quantise is not None:
        given |= reading_options(config, options.quantise)
    given = checkpoint_options(config, quantisation(folder), options.device) | given
    made = class_for(config) if options.blocks is None else class_of_first(config, options.blocks)
    return _read(folder, made, config, options.dtype, given)


def check_plan(folder: Path, config: Any, processes: int) -> None:
    """Raise UsageError if transformers has no plan for a model, or heads that it splits do not divide equally."""
    with torch.device("meta"):
        plan: Mapping[str, str] = make(config).tp_plan
    if config.is_encoder_decoder or not plan or text_config(config) is not config:
        raise UsageError(
            f"{folder} is of type {config.model_type!r}, for which transformers has no plan of tensor parallelism that "
            "probekit uses; use --device-map auto instead of --tp-plan."
        )
    if not any(style == "colwise" and "att" in name for name, style in plan.items()):
        return
    for key, what in (("num_attention_heads", "attention heads"), ("num_key_value_heads", "heads of keys and values")):
        count = getattr(config, key, None)
        if isinstance(count, int) and count % processes:
            raise UsageError(f"{folder} has {count} {what}, which {processes} processes cannot share out equally.")


def placed(model: Any, device: torch.device | str, dtype: Dtype) -> Any:
    """A model on a device, its weights in a precision except for quantised ones.

    What it computes itself and does not store, such as the frequencies of rotary positions, keeps transformers'
    precision: rounded to bfloat16, they turn a position 1,000 by another angle.
    """
    if getattr(model, "is_quantized", False):
        own = list(model.parameters())
    else:
        own = [tensor for tensor in model.state_dict(keep_vars=True).values() if isinstance(tensor, torch.Tensor)]
    for tensor in own:
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(getattr(torch, dtype))
    return model.to(device=device)


def _check_spread(model: Any, folder: Path) -> None:
    """Refuse a model of which a part has no place on the devices, and would be moved in each forward pass."""
    away = [name for name, parameter in model.named_parameters() if parameter.device.type == "meta"]
    if away:
        raise ModelError(
            f"{folder} does not fit on the devices: {len(away)} of its weights ({away[0]} …) would be read from main "
            "memory or disk in each pass. Use more devices, or --dtype bfloat16."
        )


DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "activation_dropout"),
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate", "hidden_dropout", "embedding_dropout"),
)
"""Names of the dropout of layers, attention and embeddings in configurations."""


def _set_dropout(config: Any, dropout: float) -> None:
    """Set every dropout in a configuration; raises ModelError if it has none."""
    names = [name for name in DROPOUTS if isinstance(getattr(config, name, None), int | float)]
    if not names:
        raise ModelError(f"a model of type {config.model_type} has no dropout setting; leave out dropout.")
    for name in names:
        setattr(config, name, dropout)


def _check_size(folder: Path, config: Any, files: Sequence[Path]) -> None:
    """Raise ModelError if the model is larger than its weights or, without weights, than this machine's memory.

    A file saved from one part of an architecture may lack the weights of another part, such as T5's decoder.
    """
    kind: Any = type(config)
    n_parameters = _parameters(kind, config.to_json_string())
    stored = sum(file.stat().st_size for file in files)
    if files and n_parameters > 4 * stored + SMALL:
        raise ModelError(
            f"{folder / 'config.json'} describes a model of {n_parameters:,} parameters, but the weights have only "
            f"{stored:,} bytes. Do the weights and config.json belong together?"
        )
    if not files and 4 * n_parameters > memory():
        raise ModelError(
            f"{folder / 'config.json'} describes a model of {n_parameters:,} parameters, which need "
            f"{in_words(4 * n_parameters)}; this "
            f"machine has {in_words(memory())}."
        )


@lru_cache(maxsize=8)
def _parameters(kind: Any, described: str) -> int:
    """The number of parameters of the model that a configuration describes, given by its class and its JSON."""
    with torch.device("meta"):
        model = make(kind.from_dict(kind._decode_special_floats(json.loads(described))))
    return sum(parameter.numel() for parameter in model.parameters())


SMALL = 1 << 26


def _read(folder: Path, made: Any, config: Any, dtype: Dtype, options: dict[str, Any]) -> tuple[Any, set[str]]:
    model, report = made.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, dtype),
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        **options,
    )
    return model, set(report["missing_keys"])


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bar and warnings of transformers; errors are still raised."""
    from transformers.utils import logging as hf_logging

    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()
