"""Find a model: a folder, a hub id, or the published files of an older encoder."""

from __future__ import annotations

from pathlib import Path

from probekit.errors import ModelError
from probekit.models.conversion import converted_folder

__all__ = ["resolve_model"]

_WANTED = ("*.json", "*.safetensors", "*.txt", "*.model")


def resolve_model(model: str | Path, revision: str | None = None) -> Path:
    """The local folder of ``model``: the folder itself, or the hub's snapshot of a model id, fetched where needed.

    Only JSON, text, vocabulary and safetensors files are fetched, never code or pickles. The published files of an
    older encoder, such as ``elmo:OPTIONS,WEIGHTS``, are converted (see :mod:`probekit.models.conversion`).

    Raises
    ------
    ModelError
        Where there is neither such a folder nor such a model, or a file that is needed is missing.
    """
    folder = converted_folder(str(model)) or Path(model).expanduser()
    if not folder.is_dir():
        if folder.exists() or folder.is_absolute() or str(model).startswith("."):
            raise ModelError(f"{model} is not a folder; wanted a hub id or a folder with config.json and safetensors.")
        folder = _snapshot(str(model), revision)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json, so it is not a model folder (save_pretrained writes one).")
    return folder


def _snapshot(model: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(_WANTED), ignore_patterns=["*/*"]))
    except HFValidationError as error:
        raise ModelError(f"{model!r} is neither a folder here nor a hub id such as bert-base-uncased.") from error
    except (OSError, ValueError) as error:  # offline, not found, gated, no such revision: all of them derive from these
        at = f" at revision {revision!r}" if revision else ""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{model!r}{at} is no folder here and could not be fetched from the hub ({reason}). "
            "Check the name and the network, or give the path of a local folder."
        ) from error
