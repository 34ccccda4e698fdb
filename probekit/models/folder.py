"""A model's folder: which files it holds, and exactly which they are, without loading the model or importing torch."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from probekit.errors import ModelError, UsageError

__all__ = [
    "config_digest",
    "file_digest",
    "model_type",
    "new_folder",
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
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type", ""))
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder} cannot be loaded as a model: config.json cannot be read ({error}).") from error


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, which becomes ``out`` at the end.

    What processes left that were killed meanwhile is removed. Raises UsageError where ``out`` is there already, OSError
    where the disk is full.
    """
    from safetensors import SafetensorError

    if out.exists():
        raise UsageError(f"{out} is there already; give another folder.")
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{out.name}.*"):
        if not _runs(left.suffix[1:].partition("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    beside = out.with_name(f".{out.name}.{os.getpid()}-{threading.get_ident()}")
    beside.mkdir()
    try:
        yield beside
        for file in beside.iterdir():
            file.chmod(0o666 & ~_umask())  # safetensors lets nobody else read its files
        beside.rename(out)
    except SafetensorError as error:
        raise OSError(f"{out} cannot be written: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _runs(pid: str) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def weights_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json and the bytes of the safetensors files."""
    return file_digest([folder / "config.json", *weight_files(folder)])


def config_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of config.json alone: all that determines a re-initialised model beside its seed."""
    return file_digest([folder / "config.json"])


def tokenizer_digest(folder: Path) -> str:
    """xxh3 digest (32 hex digits) of the tokenizer's files; raises ModelError where there are none."""
    files = sorted({file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)})
    if not files:
        raise ModelError(f"{folder} has no tokenizer (tokenizer.json, or a vocabulary); save it beside the model.")
    return file_digest(files)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, those of the index where it is sharded; each is complete.

    Raises ModelError where one is missing or cut short, and where there are only pickled weights.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
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


def file_digest(files: Iterable[Path]) -> str:
    """xxh3 digest (32 hex digits) of the names, sizes and bytes of files."""
    state = xxhash.xxh3_128()
    for file in files:
        state.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while piece := stream.read(1 << 22):
                state.update(piece)
    return state.hexdigest()
