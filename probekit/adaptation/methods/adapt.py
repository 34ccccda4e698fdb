"""Make an encoder train only the weights of a method, and say how a run keeps them; draw its top blocks anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probekit.adaptation.heads.library import Layout
from probekit.adaptation.methods.options import Method, MethodOptions
from probekit.adaptation.training.groups import layer_groups
from probekit.errors import UsageError, did_you_mean
from probekit.models.adapted.bottleneck import add_adapters
from probekit.models.adapted.library import add_tuner, name_in_file
from probekit.models.adapted.record import ADAPTER_CONFIG, ADAPTER_WEIGHTS, CHANGED_WEIGHTS, LIBRARY
from probekit.models.adapted.structure import block_linears, linear_names
from probekit.models.transformers.blocks import find_blocks


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A method on an encoder.

    Attributes
    ----------
    names : tuple[str, ...]
        The encoder's parameters that the method trains.
    settings : dict
        What a run's card keeps of it.
    configuration : dict
        The content of adapter_config.json; empty if the method is not one of peft.
    """

    method: Method
    names: tuple[str, ...]
    settings: dict[str, Any]
    configuration: dict[str, Any]

    def names_in_file(self) -> dict[str, str]:
        """The learner's names of the parameters, by their names in the run's file."""
        rename = name_in_file if self.method in LIBRARY else str
        return {rename(name): f"encoder.{name}" for name in self.names}


@dataclass(frozen=True, slots=True)
class ChangedLayout(Layout):
    """The layout of a run that holds only changed weights.

    Attributes
    ----------
    names : Mapping[str, str]
        The learner's names of the changed weights, by their names in the file.
    configuration : Mapping[str, Any]
        The content of adapter_config.json; empty if the method is not one of peft.
    """

    configuration: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The name of the file of the changed weights."""
        return ADAPTER_WEIGHTS if self.configuration else CHANGED_WEIGHTS

    @property
    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """peft's description of the weights, for its methods."""
        return {ADAPTER_CONFIG: self.configuration} if self.configuration else {}

    def weights(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The changed weights by their names in the file, and all others by the learner's names."""
        changed = set(self.names.values())
        return {key: state[name] for key, name in self.names.items()}, {
            key: weight for key, weight in state.items() if key not in changed
        }


def adapt(encoder: Any, options: MethodOptions, base: str | Path) -> Adaptation | None:
    """Freeze an encoder except for the weights of the method, after adding its modules; None for full fine-tuning.

    Parameters
    ----------
    base : str | Path
        The base's path or hub id, for adapter_config.json.

    Raises
    ------
    UsageError
        If the method does not fit the model, or a target matches no layer.
    ModelError
        If the parts of the model's blocks are not recognised.
    """
    method, settings, configuration = options.method, {}, dict[str, Any]()
    if method is Method.FULL:
        return None
    if method is Method.LAST:
        names = _last(encoder, options.last)
        encoder.requires_grad_(requires_grad=False)
    else:
        encoder.requires_grad_(requires_grad=False)
        if method in LIBRARY:
            configuration = _configuration(encoder, options) | {"base_model_name_or_path": str(base)}
            tuner, names = add_tuner(encoder, configuration)
            configuration = _plain(tuner.active_peft_config.to_dict()) | {"inference_mode": True}
        elif method is Method.ADAPTER:
            settings = {"bottleneck": options.bottleneck, "placement": str(options.placement)}
            names = add_adapters(encoder, bottleneck=options.bottleneck, placement=options.placement)
        else:
            names = _biases(encoder) if method is Method.BITFIT else _norms(encoder)
    if not names:
        raise UsageError(f"--method {method}: {encoder.config.model_type} has no such weights; choose another method.")
    for name in names:
        encoder.get_parameter(name).requires_grad_(requires_grad=True)
    return Adaptation(method, tuple(names), settings, configuration)


def changed_layout(adaptation: Adaptation, config: Mapping[str, Any]) -> ChangedLayout:
    """The layout of a run of the method; ``config`` holds the changes to config.json."""
    return ChangedLayout(names=adaptation.names_in_file(), config=config, configuration=adaptation.configuration)


def _configuration(encoder: Any, options: MethodOptions) -> dict[str, Any]:
    """The configuration for peft."""
    shared: dict[str, Any] = {"task_type": "FEATURE_EXTRACTION"}
    if options.method in (Method.LORA, Method.DORA):
        layers = target_layers(encoder, "lora", options.targets)
        return shared | {
            "peft_type": "LORA", "r": options.rank, "lora_alpha": options.alpha, "lora_dropout": options.method_dropout,
            "target_modules": layers, "use_dora": options.method is Method.DORA, "fan_in_fan_out": _transposed(encoder),
        }  # fmt: skip
    if options.method is Method.IA3:
        layers = target_layers(encoder, "ia3", options.targets)
        down = [name for name in target_layers(encoder, "ia3", "down") if name in layers]
        return shared | {
            "peft_type": "IA3", "target_modules": layers, "feedforward_modules": down,
            "fan_in_fan_out": _transposed(encoder),
        }  # fmt: skip
    shared |= {"num_virtual_tokens": options.virtual_tokens}
    if options.method is Method.PREFIX:
        return shared | {"peft_type": "PREFIX_TUNING"}
    return shared | {"peft_type": "PROMPT_TUNING", "token_dim": encoder.get_input_embeddings().embedding_dim}


def _transposed(encoder: Any) -> bool:
    """Whether the blocks' layers store their weights as (in, out), as GPT-2's do."""
    return not any(isinstance(module, nn.Linear) for module in find_blocks(encoder)[0].modules())


def _plain(value: Any) -> Any:
    """A configuration as JSON values, sets in order."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or type(value) in (bool, int, float, str) else str(getattr(value, "value", value))


def _biases(encoder: Any) -> list[str]:
    return [name for name, _ in encoder.named_parameters() if name.rpartition(".")[2] == "bias" and _body(name)]


def _norms(encoder: Any) -> list[str]:
    """The parameters of layer norms, by the names of the modules' classes."""
    norms = [n for n, m in encoder.named_modules() if "norm" in type(m).__name__.lower() and not list(m.children())]
    return [f"{norm}.{name}" for norm in norms for name, _ in encoder.get_submodule(norm).named_parameters()]


def _last(encoder: Any, last: int) -> list[str]:
    """The parameters of the last blocks, and of a norm after them."""
    depth = int(encoder.config.num_hidden_layers)
    if len(find_blocks(encoder)) != depth:
        raise UsageError(f"{encoder.config.model_type} runs the same block several times; choose another method.")
    if last > depth:
        raise UsageError(f"--last is {last}; the model has {depth} blocks.")
    top = {f"block {i}" for i in range(depth - last + 1, depth + 1)}
    members = [name for group, found in layer_groups(encoder) if group in top for name, _ in found]
    return [name.removeprefix("encoder.") for name in members]


def _body(name: str) -> bool:
    return "pooler" not in name.split(".")


ROLES = ("q", "k", "v", "o", "down", "all")
"""Names by what a layer does; see :class:`~probekit.models.adapted.structure.BlockLinears`."""
DEFAULT = {"lora": ("q", "v"), "ia3": ("k", "v", "down")}
"""LoRA: Hu et al. (2022), table 9. IA3: H. Liu et al. (2022), section 3.3. DoRA takes those of LoRA."""


def target_layers(encoder: Any, method: str, targets: str | None) -> list[str]:
    """The names of the layers to change, in the order of the model.

    Parameters
    ----------
    targets : str, optional
        Ends of names of linear layers inside the blocks, or roles, separated by commas; a name comes before a role.

    Raises
    ------
    UsageError
        If one matches no layer; it gives the nearest names.
    ModelError
        If the parts of a block are not recognised.
    """
    names = list(linear_names(encoder))
    wanted = DEFAULT[method] if targets is None else tuple(one.strip() for one in targets.split(","))
    chosen: set[str] = set()
    for one in wanted:
        named = [] if targets is None else [name for name in names if name == one or name.endswith(f".{one}")]
        if not named and one in ROLES:
            blocks = block_linears(encoder)
            named = [n for block in blocks for n in (block.all if one == "all" else [getattr(block, one)])]
        if not named:
            known = [*ROLES, *dict.fromkeys(name.rpartition(".")[2] for name in names), *names]
            raise UsageError(
                f"--targets: {one!r} matches no linear layer in the blocks of {encoder.config.model_type}; "
                + did_you_mean(one, known, most=3)
            )
        chosen |= set(named)
    return [name for name in names if name in chosen]


def reinitialise_top(encoder: Any, top: int, seed: int) -> None:
    """Draw the weights of the top blocks and of the pooler anew, as the model's class does for a new model.

    A cure for unstable fine-tuning on few examples (Zhang et al. 2021, section 5).

    Parameters
    ----------
    top : int
        The number of blocks.
    seed : int
        The seed of the weights.

    Raises
    ------
    UsageError
        If the model has fewer blocks, or one block that runs several times.
    """
    blocks, depth = find_blocks(encoder), int(encoder.config.num_hidden_layers)
    if len(blocks) != depth:
        raise UsageError(f"{encoder.config.model_type} runs the same block several times; leave out reinit_top.")
    if top > depth:
        raise UsageError(f"reinit_top is {top}; the model has {depth} blocks.")
    pooler = getattr(encoder, "pooler", None)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for part in (*blocks[depth - top :], *([] if pooler is None else [pooler])):
            for weight in part.parameters():
                weight.__dict__.pop("_is_hf_initialized", None)  # with this mark transformers leaves them as they are
            for module in reversed(list(part.modules())):  # inner ones first, as transformers does
                module.__dict__.pop("_is_hf_initialized", None)
                encoder._init_weights(module)
