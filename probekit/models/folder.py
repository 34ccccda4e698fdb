"""A model's folder: which files it holds, and exactly which they are, without loading the model or importing torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probekit.errors import ModelError
from probekit.files import digest, read_json

__all__ = [
    "check_config",
    "config_digest",
    "model_type",
    "save_tensors",
    "tokenizer_digest",
    "weight_files",
    "weights_digest",
]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)


def model_type(folder: Path) -> str:
    """What config.json says the model is: "bert", "elmo" …; empty where it does not say."""
    try:
        return str(read_json(folder / "config.json").get("model_type", ""))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder} cannot be loaded as a model: config.json cannot be read ({error}).") from error


def check_config(folder: Path) -> None:
    """Refuse a config.json whose numbers no model has, before anything is made as large as they say.

    Raises
    ------
    ModelError
        It is no JSON object, or declares more layers, labels or rows than are ever read.
    """
    path = folder / "config.json"
    try:
        told = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} cannot be loaded as a model: config.json cannot be read ({error}).") from error
    if not isinstance(told, dict):
        raise ModelError(f"{path} holds a {type(told).__name__}; wanted the configuration of a model.")
    parts: list[Any] = [told]
    while parts:
        part = parts.pop()
        values = part.values() if isinstance(part, dict) else part
        parts += [value for value in values if isinstance(value, dict | list)]
        for key, value in part.items() if isinstance(part, dict) else ():
            most = LAYERS if _COUNTS.search(key) else LABELS if key == "num_labels" else (1 << 31) - 1
            if isinstance(value, int) and abs(value) > most:
                raise ModelError(f"{path}: {key} is {value}; {most:,} is the most that is read.")


LAYERS, LABELS = 10_000, 1_000_000
_COUNTS = re.compile(r"layers?$|n_layer|num_blocks|_groups$|n_highway|depth|num_experts")


def save_tensors(tensors: Mapping[str, Any], path: Path, **about: str) -> None:
    """Write arrays or tensors as safetensors, which its own ``save_file`` lets nobody else read.

    Parameters
    ----------
    **about
        Texts that go along; raises OSError where the disk is full, in the library's words.
    """
    import numpy as np
    from safetensors import SafetensorError

    if all(isinstance(x, np.ndarray) for x in tensors.values()):
        from safetensors.numpy import save_file
    else:
        from safetensors.torch import save_file  # type: ignore[assignment]
    try:
        save_file(dict(tensors), path, metadata=about or None)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    path.chmod(path.parent.stat().st_mode & 0o666)


def weights_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json and the bytes of the safetensors files."""
    return digest([folder / "config.json", *weight_files(folder)])


def config_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json alone: all that determines a re-initialised model beside its seed."""
    return digest([folder / "config.json"])


def tokenizer_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of the tokenizer's files; raises ModelError where there are none."""
    files = sorted({file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)})
    if not files:
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json, or a vocabulary); save it beside the model.")
    return digest(files)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, those of the index where it is sharded; each is complete.

    Raises
    ------
    ModelError
        Where one is missing or cut short, and where there are only pickled weights.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            names = sorted(set(read_json(index)["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index} cannot be read as an index of weights ({error}); fetch it again.") from error
        files = [folder / name for name in names]
    else:
        pickles = [*folder.glob("pytorch_model*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        if pickles:
            raise ModelError(
                f"{folder} has only pickled weights ({pickles[0].name}), which could run any code when read. "
                "Where you trust them, convert them once: AutoModel.from_pretrained(…).save_pretrained(…)."
            )
        raise ModelError(f"{folder} has no weights: wanted model.safetensors, or its shards with their index.")
    for file in files:
        _check_complete(file)
    return files


def _check_complete(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise ModelError(f"{file} is missing, though the index names it; fetch the model again.")
    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is damaged or cut short ({error}); fetch or convert it again.") from error
