"""A model's folder: its files and their digests, without loading the model or importing torch."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probekit.errors import ModelError, first_line
from probekit.files import digest, read_json
from probekit.models.adapted.record import adapted
from probekit.models.kinds import kinds

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
    """The model_type in config.json: "bert", "elmo" …; empty if it is missing."""
    try:
        return str(read_json(folder / "config.json").get("model_type", ""))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder} cannot be loaded as a model: config.json cannot be read ({error}).") from error


def check_config(folder: Path) -> None:
    """Refuse a config.json with implausible numbers before a model of that size is allocated.

    Raises
    ------
    ModelError
        If it is not a JSON object, or declares more layers, labels or rows than probekit reads.
    """
    path = folder / "config.json"
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} cannot be loaded as a model: config.json cannot be read ({error}).") from error
    if not isinstance(config, dict):
        raise ModelError(
            f"{path} holds a {type(config).__name__}; expected the configuration of a model, a JSON object."
        )
    parts: list[Any] = [config]
    while parts:
        part = parts.pop()
        values = part.values() if isinstance(part, dict) else part
        parts += [value for value in values if isinstance(value, dict | list)]
        for key, value in part.items() if isinstance(part, dict) else ():
            most = LAYERS if _COUNTS.search(key) else LABELS if key == "num_labels" else (1 << 31) - 1
            if isinstance(value, int) and abs(value) > most:
                raise ModelError(f"{path}: {key} is {value}; expected at most {most:,}.")


def quantisation(folder: Path) -> str:
    """How the weights in a folder are quantised, by config.json: "fp8", "bitsandbytes 4bit" …; "" if they are not."""
    return quantised_by(read_json(folder / "config.json").get("quantization_config"))


def quantised_by(how: Any) -> str:
    """The same, of the entry of a configuration, a dict; "" for others."""
    if not isinstance(how, dict):
        return ""
    method = str(how.get("quant_method") or "bitsandbytes")  # which earlier versions of transformers left out
    if method == "bitsandbytes":
        return f"{method} {'4bit' if how.get('load_in_4bit') or how.get('_load_in_4bit') else '8bit'}"
    return f"{method} {how['bits']}bit" if isinstance(how.get("bits"), int) else method


def text_config(config: Any) -> Any:
    """The part of a model's configuration that describes what reads texts: all of it, or that of its text tower.

    Parameters
    ----------
    config : PreTrainedConfig
        The configuration of transformers.
    """
    from transformers import PreTrainedConfig

    chosen = type(config).get_text_config is not PreTrainedConfig.get_text_config
    if not chosen and not isinstance(getattr(config, "text_config", None), PreTrainedConfig):
        return config
    found = config.get_text_config()
    return text_config(found) if found is not config else config


LAYERS, LABELS = 10_000, 1_000_000
_COUNTS = re.compile(r"layers?$|n_layer|num_blocks|_groups$|n_highway|depth|num_experts")


@contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Turn what safetensors and torch raise where ``path`` cannot be written into the OSError that they hide."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None and "PytorchStreamWriter" not in str(error) and "unexpected pos" not in str(error):
            if isinstance(error, SafetensorError):
                raise OSError(f"{path} cannot be written: {error}") from error
            raise
        code = int(number[1]) if number else errno.ENOSPC
        raise OSError(code, os.strerror(code), str(path)) from error


def text_values(folder: Path) -> dict[str, Any]:
    """What config.json says, or, of a model that reads images or sounds, too, what it says of the text part alone."""
    values: dict[str, Any] = read_json(folder / "config.json")
    if values.get("model_type") in kinds():
        return values
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if (text := text_config(whole)) is whole:
        return values
    values = json.loads(text.to_json_string())
    if crossing := values.get("cross_attention_layers"):  # blocks that only look at images
        values |= {"cross_attention_layers": [], "num_hidden_layers": text.num_hidden_layers - len(crossing)}
    return values


def configuration(folder: Path) -> Any:
    """The configuration of what reads texts in a folder; no code of the folder runs, and nothing is fetched.

    Raises
    ------
    ModelError
        If config.json cannot be read, or is not that of a model.
    """
    from transformers import AutoConfig

    check_config(folder)
    try:
        return text_config(AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True))
    except Exception as error:  # transformers raises OSError, ValueError, KeyError, TypeError, its own …
        raise ModelError(f"{folder / 'config.json'} cannot be read: {first_line(error)}") from error


def save_tensors(tensors: Mapping[str, Any], path: Path, **about: str) -> None:
    """Write arrays or tensors as safetensors that other users may read (``save_file`` makes them private).

    Parameters
    ----------
    **about
        Metadata, as strings.

    Raises
    ------
    OSError
        If the file cannot be written, for instance because the disk is full.
    """
    import numpy as np

    if all(isinstance(x, np.ndarray) for x in tensors.values()):
        from safetensors.numpy import save_file
    else:
        from safetensors.torch import save_file  # type: ignore[assignment]
    with writing_tensors(path):
        save_file(dict(tensors), path, metadata=about or None)
    path.chmod(path.parent.stat().st_mode & 0o666)


def weights_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json and the bytes of the safetensors files.

    For a run that holds only changed weights: of these, how they are applied, and the digest of its base in the card.
    """
    if (run := adapted(folder)) is not None:
        return run.digest()
    return digest([folder / "config.json", *weight_files(folder)])


def config_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json only: with the seed, it determines a re-initialised model."""
    return digest([folder / "config.json"])


def tokenizer_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of the tokenizer's files; raises ModelError if there are none."""
    return digest(tokenizer_files(folder))


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a folder's tokenizer; raises ModelError if there are none."""
    files = sorted({file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)})
    if not files:
        raise ModelError(
            f"{folder} has no tokenizer (tokenizer.json, or a vocabulary); save it there with save_pretrained."
        )
    return files


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model (the shards in the index, if there is one), checked to be complete.

    Raises
    ------
    ModelError
        If one is missing or truncated, or there are only pickled weights.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            names = sorted(set(read_json(index)["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index} cannot be read as an index of weights ({error}); download it again.") from error
        files = [folder / name for name in names]
    else:
        pickles = [*folder.glob("pytorch_model*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
        if pickles:
            raise ModelError(
                f"{folder} has only pickled weights ({pickles[0].name}), which can run arbitrary code when loaded. If "
                "you trust them, convert them once: AutoModel.from_pretrained(…).save_pretrained(…)."
            )
        raise ModelError(f"{folder} has no weights; expected model.safetensors, or shards with an index.")
    for file in files:
        _check_complete(file)
    return files


def _check_complete(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise ModelError(f"{file} is missing, although the index names it; download the model again.")
    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is damaged or truncated ({error}); download or convert it again.") from error
