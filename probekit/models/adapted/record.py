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
        "lora", "dora", "ia3", "prefix", "prompt", "bitfit", "adapter", "norms" or "last".
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
    """

    folder: Path
    method: str
    settings: dict[str, Any]
    base: str
    revision: str | None
    random_weights: int | None
    base_digest: str
    quantise: str | None = None

    @property
    def mergeable(self) -> bool:
        """Whether the weights can be added to the base."""
        return self.method in MERGEABLE and self.quantise is None

    @property
    def weights(self) -> Path:
        """The file of the changed weights."""
        return self.folder / (ADAPTER_WEIGHTS if self.method in LIBRARY else CHANGED_WEIGHTS)

    def configuration(self) -> dict[str, Any]:
        """The settings, from adapter_config.json for a method of peft; raises ModelError if it cannot be read."""
        if self.method not in LIBRARY:
            return self.settings
        try:
            found = dict(read_json(self.folder / ADAPTER_CONFIG))
        except (OSError, ValueError, TypeError) as error:
            raise ModelError(
                f"{self.folder / ADAPTER_CONFIG} cannot be read ({error}). Train the run again."
            ) from error
        if found.get("megatron_config") or found.get("megatron_core") not in (None, "megatron.core"):
            raise ModelError(
                f"{self.folder / ADAPTER_CONFIG} names Megatron's modules, which peft would import; probekit does not "
                "load such a run."
            )
        return found

    def digest(self) -> str:
        """xxh3 digest (32 hex digits) of everything that determines the model, wherever its base is."""
        import xxhash

        if not self.weights.is_file():
            raise ModelError(f"{self.weights} is missing; copy the whole folder of the run, or train it again.")
        drop = ("base_model_name_or_path", "revision")
        how = {key: value for key, value in self.configuration().items() if key not in drop}
        own = digest([self.folder / "config.json", self.weights])
        base = self.base_digest if self.quantise is None else [self.base_digest, self.quantise]
        text = json.dumps([self.method, how, base, own], sort_keys=True)
        return xxhash.xxh3_128_hexdigest(text.encode())


def adapted(folder: Path) -> Adapted | None:
    """What a folder's card says of its base; None if the folder holds a whole model.

    Raises
    ------
    ModelError
        If the card cannot be read.
    """
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
