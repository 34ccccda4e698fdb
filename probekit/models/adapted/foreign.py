"""Apply adapters of peft that others made: their modules in a model, by the names of their weights.

What an adapter changes follows from its weights, not from the patterns in its configuration. It may have been trained
on a model with a head; the head's own weights are left out.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from probekit.errors import ModelError, UsageError, reading
from probekit.models.adapted.library import add_tuner, name_in_model
from probekit.models.adapted.record import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PROMPTS, adapter_configuration

log = logging.getLogger(__name__)

_PREFIX = "base_model.model."
READ = PROMPTS | {
    *("LORA", "ADALORA", "IA3", "LOHA", "LOKR", "OFT", "BOFT", "VERA", "LN_TUNING", "FOURIERFT", "HRA", "MISS"),
    *("RANDLORA", "C3A", "SHIRA", "VBLORA", "ROAD", "WAVEFT", "DELORA", "GRALORA"),
}
"""The methods that are read; those not in PROMPTS are merged with the base."""
_REFUSED = ("layer_replication", "alora_invocation_tokens", "arrow_config", "target_parameters", "use_qalora")
_INITIAL = (True, False, None, "gaussian", "orthogonal", "eva")
"""How LoRA's weights may have begun: the other ways change the base, too."""
_NAME = re.compile(r"\^?[\w.\\-]+\$?")


class _Shell(nn.Module):
    """Modules around a model, so that its parts have the names that they have in a model with a head."""

    def __init__(self, place: str, model: nn.Module) -> None:
        super().__init__()
        first, _, rest = place.partition(".")
        self.add_module(first, _Shell(rest, model) if rest else model)

    def forward(self, *_: Any, **__: Any) -> None:
        """It is never run."""


def apply_adapter(model: Any, adapter: Path) -> Any:
    """A model with an adapter: merged, or with trained vectors before each text.

    Parameters
    ----------
    model : Any
        A model of transformers in full precision, with or without its head; it is changed.
    adapter : Path
        The folder of the adapter.

    Raises
    ------
    ModelError
        If probekit does not read the method, the weights are damaged, or they do not fit the model.
    """
    how, kind = adapter_configuration(adapter), type(model).__name__
    method = str(how.get("peft_type"))
    if method not in READ:
        raise ModelError(
            f"{adapter} is an adapter of the method {method}, which probekit does not read; it reads "
            f"{', '.join(sorted(READ))}."
        )
    _check_configuration(how, adapter)
    file = adapter / ADAPTER_WEIGHTS
    with reading(file, "safetensors"):
        weights = {name: x.to(model.dtype) if x.is_floating_point() else x for name, x in load_file(file).items()}
    _check_library(how, model, adapter)
    if getattr(model, "is_quantized", False) and method not in PROMPTS:
        raise ModelError(
            f"{adapter} is merged with its base, which quantised weights would round; give the original base."
        )
    try:
        found = (_prompt if method in PROMPTS else _merged)(model, how, weights, adapter)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # peft raises ValueError, RuntimeError, TypeError, KeyError …
        why = " ".join(str(error).split())
        raise ModelError(f"{adapter} does not fit {kind}, or peft cannot read it: {why:.300}") from error
    return found.eval().requires_grad_(requires_grad=False)


def _check_configuration(how: Mapping[str, Any], adapter: Path) -> None:
    path = adapter / ADAPTER_CONFIG
    if given := [key for key in _REFUSED if how.get(key)]:
        raise ModelError(f"{path} has {given[0]}, which probekit does not read.")
    if (initial := how.get("init_lora_weights")) not in _INITIAL:
        raise ModelError(
            f"{path}: init_lora_weights is {initial!r}, which changes the base, too. Save the adapter again as a plain "
            "one (path_initial_model_for_weight_conversion in peft)."
        )
    for key in ("rank_pattern", "alpha_pattern"):
        given_patterns = how.get(key) or {}
        if strange := [name for name in given_patterns if not _NAME.fullmatch(str(name))]:
            raise ModelError(f"{path}: {key} has {strange[0]!r:.80}; probekit reads names of layers, not patterns.")


def _check_library(how: Mapping[str, Any], model: Any, adapter: Path) -> None:
    """Refuse a base whose code is not that of the adapter's base, if the adapter says which that was."""
    said = (how.get("auto_mapping") or {}).get("parent_library")
    own = [type(model).__module__, *getattr(model, "part_of", ())[1:]]
    ours = [each.split(".")[2] for each in own if each.startswith("transformers.models.")]
    if isinstance(said, str) and said.startswith("transformers.models.") and ours:
        theirs = said.split(".")[2]
        if theirs not in ours:
            raise ModelError(
                f"{adapter} was trained on a model of type {theirs!r}; its base here is of type {ours[0]!r}."
            )
    if any(getattr(part, "renumbered", False) for part in model.modules()):
        raise ModelError(
            f"{adapter} is not read on its base: the blocks that look at images are left out there, and the others "
            "have new numbers. Merge the adapter with peft, and save the whole model."
        )


def _merged(model: Any, how: Mapping[str, Any], weights: Mapping[str, torch.Tensor], adapter: Path) -> Any:
    """The model with the adapter's changes in its own weights."""
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING

    mark = PEFT_TYPE_TO_PREFIX_MAPPING[how["peft_type"]]
    modules = {name: _module(name, mark) for name in weights}
    if (inner := model.base_model) is not model and not _placed(model, modules.values()):
        _merged(inner, how, weights, adapter)  # trained without the head that this model has
        return model
    place = _place(model, modules.values(), adapter)
    whole = _Shell(place, model) if place else model
    there = dict(whole.named_modules())
    out = _left_out(model, modules.values(), place, there)
    mine = {name: x for name, x in weights.items() if modules[name] not in out}
    if out:
        level = logging.INFO if str(how.get("task_type")) in _CLASSIFIERS else logging.WARNING
        log.log(level, "%s: what it changes in %s is left out, no part of the base here", adapter, ", ".join(out[:3]))
    targets = {m for name, m in modules.items() if m in there and f"{m}.{mark}" in name}
    _check_targets(how, {m for m in there if _inside(m, place)}, targets, adapter)
    settings = {**how, **_settings(how, weights, modules, targets, there)}
    config: Any = PeftConfig.from_peft_type(**{k: v for k, v in settings.items() if k not in _DROPPED})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = get_peft_model(whole, config, low_cpu_mem_usage=True)
        found: Any = set_peft_model_state_dict(tuner, mine, low_cpu_mem_usage=True)
    lacking = [name for name, x in (*tuner.named_parameters(), *tuner.named_buffers()) if x.is_meta]
    if lacking or found.unexpected_keys:
        what = (
            f"it lacks {lacking[0].removeprefix(_PREFIX)}"
            if lacking
            else f"it changes {str(found.unexpected_keys[0]).removeprefix(_PREFIX)}, which the base does not have"
        )
        raise ModelError(f"{adapter} is no adapter of {type(model).__name__} as its base is configured: {what}.")
    merged = tuner.merge_and_unload()
    return model if place else merged


_CLASSIFIERS = {"SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS"}
_DROPPED = ("auto_mapping", "task_type", "base_model_name_or_path", "revision", "peft_version", "runtime_config")


def _settings(
    how: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    modules: Mapping[str, str],
    targets: set[str],
    there: Mapping[str, nn.Module],
) -> dict[str, Any]:
    """The configuration, with the layers by the names of their weights."""
    found: dict[str, Any] = {"inference_mode": True, "target_modules": sorted(targets), "exclude_modules": None}
    found |= {key: None for key in ("layers_to_transform", "layers_pattern") if key in how}
    if how["peft_type"] == "IA3":
        ahead = {modules[name] for name, x in weights.items() if name.endswith("ia3_l") and x.shape[0] == 1}
        found["feedforward_modules"] = sorted(ahead & targets)
    tokens, wrapped = how.get("trainable_token_indices"), [n for n in weights if ".token_adapter." in n]
    if isinstance(tokens, list) and wrapped:
        found["trainable_token_indices"] = {wrapped[0].removeprefix(_PREFIX).partition(".token_adapter.")[0]: tokens}
    if saved := how.get("modules_to_save"):
        found["modules_to_save"] = [m for m in saved if any(n == m or n.endswith(f".{m}") for n in there)] or None
    return found


def _module(name: str, mark: str) -> str:
    """The module that a weight belongs to: the one that is changed, or the one that is kept whole.

    Examples
    --------
    >>> _module("base_model.model.layer.0.query.lora_A.weight", "lora_")
    'layer.0.query'
    >>> _module("base_model.vera_A", "vera_")
    ''
    """
    if not name.startswith(_PREFIX):
        return ""
    parts = name.removeprefix(_PREFIX).split(".")
    end = next((i for i, part in enumerate(parts) if part.startswith(mark)), len(parts) - 1)
    return ".".join(parts[:end])


def _inside(module: str, place: str) -> bool:
    return not place or module == place or module.startswith(f"{place}.")


def _left_out(model: Any, modules: Iterable[str], place: str, there: Mapping[str, nn.Module]) -> list[str]:
    """The changed modules that are no part of the model: another head, or what reads images or sounds."""
    base = getattr(model, "base_model_prefix", "") if model.base_model is not model else ""
    emptied = [name for name, part in there.items() if getattr(part, "probekit_emptied", False)]
    return sorted(
        module
        for module in set(modules) - {""}
        if any(_inside(module, part) for part in emptied)
        or (module not in there and not _inside(module, place or base))
    )


def _check_targets(how: Mapping[str, Any], there: set[str], changed: set[str], adapter: Path) -> None:
    """Refuse a base with blocks whose modules the adapter should change by its configuration, and has no weights for.

    Modules outside the blocks depend on the head that the base had in training.
    """
    from peft import PeftConfig
    from peft.tuners.tuners_utils import check_target_module_exists

    targets = how.get("target_modules")
    if not targets or targets == "all-linear" or how["peft_type"] in PROMPTS:
        return
    if isinstance(targets, str) and re.search(r"\)[+*{]", targets):  # it might take for ever
        log.warning("%s: target_modules is a pattern that is not compared with the modules of the base.", adapter)
        return
    config: Any = PeftConfig.from_peft_type(**{k: v for k, v in how.items() if k not in _DROPPED})
    numbered = sorted(m for m in there - changed if re.search(r"(^|\.)\d+\.", m))
    if lacking := [m for m in numbered if check_target_module_exists(config, m)]:
        raise ModelError(
            f"{adapter} has no weights for {lacking[0]}, which its configuration says it changes; its base is another "
            "model, perhaps one with fewer blocks."
        )


def _placed(model: Any, modules: Iterable[str]) -> Counter[str]:
    """For each place where the model may have been in another one, how many modules have their names there.

    Of an encoder-decoder, the model is the encoder; its decoder has modules of the same names.
    """
    own = {name for name, _ in model.named_modules() if name}
    found: Counter[str] = Counter()
    for module in sorted(set(modules)):
        parts = module.split(".")
        start = next((i for i in range(len(parts)) if ".".join(parts[i:]) in own), None)
        if start is not None and "decoder" not in parts[:start]:
            found[".".join(parts[:start])] += 1
    return found


def _place(model: Any, modules: Iterable[str], adapter: Path) -> str:
    """Where the model was in the model that the adapter was trained on: "" if it is the same, else "model", "bert" …

    A part that reads images may have modules of the same names as the part that reads texts; its place is no place.

    Raises
    ------
    ModelError
        If the model has none of the adapter's modules, they may be at several places, or it was another kind of model.
    """
    kind, found = model.config.model_type, _placed(model, modules)
    if not found:
        raise ModelError(f"{adapter} changes no part of a model of type {kind!r}; its base is another model.")
    prefix = getattr(model, "base_model_prefix", "")
    (path, _) = getattr(model, "part_of", ("", ""))
    right = {name: count for name, count in found.items() if _may_be(name, path, prefix)}
    if not right:
        raise ModelError(
            f"{adapter} changes a model whose parts begin with {min(found)!r}, but those of a model of type {kind!r} "
            f"with {path or prefix!r}; its base is another model."
        )
    places = [name for name, count in right.items() if count == max(right.values())]
    if len(places) > 1:
        raise ModelError(f"{adapter} changes {places[0]!r} and {places[1]!r}; which of them is its base is not known.")
    return places[0]


def _may_be(place: str, path: str, prefix: str) -> bool:
    """Whether a place is that of the model: of a part the path to it, in this or another version of transformers.

    Examples
    --------
    >>> _may_be("language_model.model", "model.language_model", "model")
    True
    >>> _may_be("model.vision_tower.encoder", "model.language_model", "model")
    False
    """
    steps = set(place.split(".")) - {"", "model"}
    if path:
        return not steps or steps == set(path.split(".")) - {"model"}
    return steps <= {prefix, "encoder", "language_model"}


def _prompt(model: Any, how: Mapping[str, Any], weights: Mapping[str, torch.Tensor], adapter: Path) -> Any:
    """The model with trained vectors before each text."""
    prefix = how["peft_type"] == "PREFIX_TUNING"
    (vectors,) = (x for name, x in weights.items() if name == "prompt_embeddings")
    if how.get("num_transformer_submodules") not in (None, 1):
        raise ModelError(f"{adapter} has vectors of an encoder and of a decoder, which probekit does not read.")
    settings = {
        "peft_type": "PREFIX_TUNING" if prefix else "PROMPT_TUNING",
        "task_type": "FEATURE_EXTRACTION",
        "num_virtual_tokens": len(vectors),
        **{key: how.get(key) for key in ("token_dim", "num_layers", "num_attention_heads")},
    }
    try:
        _, names = add_tuner(model, settings)
    except UsageError as error:
        raise ModelError(f"{adapter}: {error}") from error
    _, strange = model.load_state_dict({name_in_model("prompt_embeddings"): vectors}, strict=False)
    if strange or names != [name_in_model("prompt_embeddings")]:
        raise ModelError(f"{adapter} does not fit {type(model).__name__}.")
    return model
