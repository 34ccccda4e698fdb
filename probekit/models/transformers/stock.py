"""The stock transformers model of a folder: loaded whole or not at all, never from a pickle or with code of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from probekit.errors import ModelError, first_line
from probekit.files import in_words
from probekit.models.find import resolve_model
from probekit.models.folder import check_config, model_type, weight_files
from probekit.models.identity import identify
from probekit.runtime import Dtype, resolve_device

__all__ = ["find_blocks", "load_described", "load_model", "quiet_transformers"]

OWN = {"elmo": "probekit.models.elmo.model", "skip-thoughts": "probekit.models.skip_thoughts.model"}
"""The modules that make known to transformers the types of model that it lacks."""


def load_described(
    model: str | Path,
    *,
    dtype: Dtype,
    device: str,
    random_weights: int | None,
    revision: str | None,
    max_length: int | None,
) -> tuple[Any, Path, dict[str, Any]]:
    """The model, its folder, and what the ``spec`` of every encoder says of it; arguments as of ``load_encoder``."""
    where, folder = torch.device(resolve_device(device)), resolve_model(model, revision)
    net = load_model(folder, dtype=dtype, device=where, random_weights=random_weights)
    spec = {
        **identify(model, revision=revision, random_weights=random_weights),
        "model_type": net.config.model_type,
        "class": type(net).__name__,
        "dtype": str(dtype),
        "device": where.type,
        "cut_at": max_length,
    }
    return net, folder, spec


def load_model(
    folder: Path,
    *,
    dtype: Dtype = Dtype.FLOAT32,
    device: torch.device | str = "cpu",
    random_weights: int | None = None,
    attention: str | None = None,
    dropout: float | None = None,
) -> Any:
    """The model, ready to infer; of an encoder-decoder its encoder.

    Parameters
    ----------
    random_weights : int, optional
        Seed to initialise the model with, in float32 on the CPU, instead of reading weights.
    attention : str, optional
        "eager", "sdpa" … as transformers names them; None takes the library's choice.
    dropout : float, optional
        Of its layers and its attention in training, instead of what config.json says.

    Raises
    ------
    ModelError
        Where the folder is damaged, needs its own code, or lacks weights that a hidden state depends on.
    """
    options: dict[str, Any] = {} if attention is None else {"attn_implementation": attention}
    check_config(folder)
    files = weight_files(folder) if random_weights is None else []
    if (kind := model_type(folder)) in OWN:
        import_module(OWN[kind])
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
            _check_size(folder, config, files)
            if dropout is not None:
                _set_dropout(config, dropout)
            if random_weights is None:
                model, missing = _read(folder, config, dtype, options)
            else:
                torch.default_generator.manual_seed(random_weights)  # and not the generators of other devices
                model, missing = AutoModel.from_config(config, dtype=torch.float32, **options), set()
    except ModelError:
        raise
    except (
        Exception
    ) as error:  # transformers raises OSError, ValueError, KeyError, RuntimeError, ImportError, its own …
        raise ModelError(f"{folder} cannot be loaded as a model: {first_line(error)}") from error
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        missing = {key.removeprefix("encoder.") for key in missing if not key.startswith("decoder.")}
    needed = {name for name in model.state_dict() if "pooler" not in name}
    if lacking := sorted(missing & needed):
        raise ModelError(
            f"{', '.join(map(str, files))} lacks {len(lacking)} of the weights that config.json asks for "
            f"({', '.join(lacking[:5])}{', …' if len(lacking) > 5 else ''}); they would be random. "
            "Do the weights belong to this config?"
        )
    model.config.use_cache = False
    return model.to(device=device, dtype=getattr(torch, dtype)).eval().requires_grad_(requires_grad=False)


DROPOUTS = (
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "activation_dropout"),
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate", "hidden_dropout", "embedding_dropout"),
)
"""What configurations call the dropout of layers, attention and embeddings."""


def _set_dropout(config: Any, dropout: float) -> None:
    """Change all that a configuration says of dropout; raises ModelError where it says nothing."""
    names = [name for name in DROPOUTS if isinstance(getattr(config, name, None), int | float)]
    if not names:
        raise ModelError(f"a model of type {config.model_type} has no dropout that could be set.")
    for name in names:
        setattr(config, name, dropout)


def _check_size(folder: Path, config: Any, files: Sequence[Path]) -> None:
    """Raise ModelError where the model is larger than its weights, or, without weights, than this machine's memory.

    A part of an architecture may have no weights in a file that was saved of another part, such as T5's decoder.
    """
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in AutoModel.from_config(config).parameters())
    stored = sum(file.stat().st_size for file in files)
    if files and wanted > 4 * stored + SMALL:
        raise ModelError(
            f"{folder / 'config.json'} describes a model of {wanted:,} numbers, and {stored:,} bytes of weights are "
            "there. Do the weights belong to this config?"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if not files and 4 * wanted > memory:
        raise ModelError(
            f"{folder / 'config.json'} describes a model of {wanted:,} numbers, which need {in_words(4 * wanted)}; "
            f"this machine has {in_words(memory)}."
        )


SMALL = 1 << 26


def find_blocks(model: Any) -> list[nn.Module]:
    """The transformer blocks of a model, in order (of ALBERT the groups, which are run repeatedly).

    Raises
    ------
    ModelError
        Where there is no list of as many equal modules as the config has layers.
    """
    depths = {getattr(model.config, name, None) for name in ("num_hidden_layers", "num_hidden_groups")} - {None}
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) in depths and len(set(map(type, module))) == 1:
            return list(module)
    raise ModelError(
        f"{type(model).__name__} has no list of {' or '.join(map(str, depths)) or 'num_hidden_layers'} equal blocks; "
        "this architecture is not supported."
    )


def _read(folder: Path, config: Any, dtype: Dtype, options: dict[str, Any]) -> tuple[Any, set[str]]:
    model, report = AutoModel.from_pretrained(
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
    """No progress bar and no warnings of transformers: what matters is raised."""
    from transformers.utils import logging as theirs

    level, bars = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if bars:
            theirs.enable_progress_bar()
