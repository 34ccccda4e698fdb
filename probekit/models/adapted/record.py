"""What a folder with changed weights alone says of itself: its method, its base, and their digests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probekit.errors import ModelError
from probekit.files import digest, read_json
from probekit.models.card import CARD

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of peft."""
CHANGED_WEIGHTS = "changed.safetensors"
"""The changed weights of other methods, by the names of the encoder's parameters."""

JOIN = "+"
"""Between the name of a base and those of the adapters on it."""

COMPOSITION = "adapters.json"
"""What a base and adapters of peft are, in a folder that stands for both."""

PROMPTS = frozenset({"PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING"})
"""The methods of peft that read trained vectors before a text."""

LIBRARY = frozenset({"lora", "dora", "ia3", "prefix", "prompt"})
"""Methods of the library peft."""
MERGEABLE = frozenset({"lora", "dora", "ia3", "bitfit", "norms", "last"})
"""Methods whose weights can be added to a base in full precision, so that the model has its usual modules again."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """A folder that holds only changed weights.

    Attributes
    ----------
    folder : Path
        The folder.
    method : str
        "lora", "dora", "ia3", "prefix", "prompt", "bitfit", "adapter", "norms" or "last"; of others' adapters the names
        that peft gives.
    settings : dict
        What the weights alone do not tell, such as where bottleneck adapters are; for methods of peft it is in
        adapter_config.json.
    base : str
        Path or hub id of the model that was adapted.
    revision : str, optional
        Its revision on the hub.
    random_weights : int, optional
        The seed, if its weights were drawn at random.
    base_digest : str
        The digest that its weights must have.
    quantise : str, optional
        "8bit" or "4bit" if the base was quantised in training.
    adapters : tuple of Path
        The folders of adapters of peft that others made, in the order in which they are applied.
    """

    folder: Path
    method: str
    settings: dict[str, Any]
    base: str
    revision: str | None
    random_weights: int | None
    base_digest: str
    quantise: str | None = None
    adapters: tuple[Path, ...] = ()

    @property
    def mergeable(self) -> bool:
        """Whether the weights can be added to the base."""
        if self.adapters:
            return not any(peft_type(adapter) in PROMPTS for adapter in self.adapters)
        return self.method in MERGEABLE and self.quantise is None

    @property
    def weights(self) -> Path:
        """The file of the changed weights."""
        return self.folder / (ADAPTER_WEIGHTS if self.method in LIBRARY else CHANGED_WEIGHTS)

    def configuration(self) -> dict[str, Any]:
        """The settings, from adapter_config.json for a method of peft; raises ModelError if it cannot be read."""
        if self.method not in LIBRARY:
            return self.settings
        return adapter_configuration(self.folder)

    def digest(self) -> str:
        """xxh3 digest (32 hex digits) of everything that determines the model, wherever its base is."""
        import xxhash

        if self.adapters:
            parts = [self.base_digest, digest([self.folder / "config.json"]), *map(adapter_digest, self.adapters)]
            return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())
        if not self.weights.is_file():
            raise ModelError(f"{self.weights} is missing; copy the whole folder of the run, or train it again.")
        how = {key: value for key, value in self.configuration().items() if key not in _OF_THE_BASE}
        own = digest([self.folder / "config.json", self.weights])
        base = self.base_digest if self.quantise is None else [self.base_digest, self.quantise]
        text = json.dumps([self.method, how, base, own], sort_keys=True)
        return xxhash.xxh3_128_hexdigest(text.encode())


def adapter_configuration(folder: Path) -> dict[str, Any]:
    """What adapter_config.json says; raises ModelError if it cannot be read, or makes peft import other code."""
    path = folder / ADAPTER_CONFIG
    try:
        found = dict(read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path} cannot be read ({error}). Train the run again, or download the adapter again."
        ) from error
    if found.get("megatron_config") or found.get("megatron_core") not in (None, "megatron.core"):
        raise ModelError(f"{path} names Megatron's modules, which peft would import; probekit does not load it.")
    return found


def peft_type(adapter: Path) -> str:
    """The method of an adapter as peft names it: "LORA", "PREFIX_TUNING" …"""
    return str(adapter_configuration(adapter).get("peft_type", ""))


def adapter_digest(adapter: Path) -> str:
    """xxh3 digest (32 hex digits) of an adapter's weights and of how they are applied, whatever its base."""
    import xxhash

    how = {key: value for key, value in adapter_configuration(adapter).items() if key not in _OF_THE_BASE}
    text = json.dumps([how, digest([adapter / ADAPTER_WEIGHTS])], sort_keys=True)
    return xxhash.xxh3_128_hexdigest(text.encode())


_OF_THE_BASE = ("base_model_name_or_path", "revision")


def adapted(folder: Path) -> Adapted | None:
    """What a folder says of its base; None if the folder holds a whole model.

    Raises
    ------
    ModelError
        If the card cannot be read.
    """
    if (folder / COMPOSITION).is_file():
        return _composition(folder)
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        card = read_json(path)
        if "adapted" not in card:
            return None
        base, how = card["base"], card["adapted"]
        seed = base["random_weights"]
        return Adapted(
            folder, how["method"], dict(how["settings"]), str(base["model"]), base["revision"], seed,
            str(base["weights_digest"]), base.get("quantise"),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as the card of an adapted model ({error!r}).") from error


def _composition(folder: Path) -> Adapted:
    """The base and the adapters of a folder that :func:`probekit.models.adapted.composing.composed` has written."""
    path = folder / COMPOSITION
    try:
        found = read_json(path)
        base = found["base"]
        adapters = tuple(Path(one["folder"]) for one in found["adapters"])
        made = Adapted(
            folder,
            JOIN.join(map(peft_type, adapters)),
            {},
            str(base["folder"]),
            None,
            None,
            str(base["digest"]),
            adapters=adapters,
        )
        expected = [str(one["digest"]) for one in found["adapters"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read ({error!r}); delete {folder}.") from error
    for adapter, right in zip(adapters, expected, strict=True):
        if not (adapter / ADAPTER_WEIGHTS).is_file() or adapter_digest(adapter) != right:
            raise ModelError(
                f"the adapter {adapter} has changed or is gone since {folder} was made of it; name it again."
            )
    return made
