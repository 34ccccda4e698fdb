"""How a cache is made again: its command, from what it says of itself, and whether its sources are known."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from probekit.errors import ProbekitError
from probekit.models.folder import config_digest, tokenizer_digest, weights_digest
from probekit.tasks import DATASETS, GRAMMARS

__all__ = ["cache_command", "unknown_sources"]


def cache_command(spec: Mapping[str, Any], out: str | Path, model: str | Path | None = None) -> str:
    """The ``probekit cache-activations`` that makes a cache of this spec, to be pasted into a shell.

    model : the folder of the model, where its name is not what finds it
    The files of a data set may lie in a folder (``--data-dir``); a spec does not know which.
    """
    words = ["probekit", "cache-activations", "--model", str(model or spec["model"])]
    options: dict[str, Any] = {
        "task": spec["task"],
        "split": spec["split"],
        "limit": spec["n"],  # of a whole split, too: it is as many as there were
        "pooling": ",".join(spec["pooling"]) or "none",
        "token-level": spec["tokens"],
        "pairs": spec["pairs"],
        "dtype": spec.get("dtype"),
        "store": spec["store"],
        "device": None if spec.get("device") in (None, "cpu") else spec["device"],
        "random-weights": spec.get("random_weights"),
        "revision": spec.get("revision"),
        "model-name": None if model is None or "step" in spec else spec["model"],
        "max-length": spec.get("cut_at"),
        "batch-size": spec.get("stateful"),
        "out": out,
    }
    flags = {"tokens": spec["tokens"], "stateful": spec.get("stateful"), "allow-nonfinite": spec.get("allow_nonfinite")}
    words += [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join([*words, *(f"--{name}" for name, wanted in flags.items() if wanted)])


def unknown_sources(
    spec: Mapping[str, Any], models: Iterable[Path] = (), *, verify: bool = True
) -> tuple[str, Path | None]:
    """What would be wanting to make a cache of this spec again ("" where nothing is), and the model's folder.

    A task is known that has a name; a model, that is one of ``models``, or of the hub's local cache by its name.
    Nothing is fetched.
    verify : whether the files of the hub's model are read, too, and have the digests of the spec
    """
    base, _, part = str(spec["task"]).partition(":")
    if not (part in GRAMMARS if base == "grammar" else base in DATASETS):
        return "its task goes by no name that finds its data", None
    wanted = spec.get("weights_digest"), spec.get("tokenizer_digest")
    random = spec.get("random_weights") is not None
    for folder in models:
        if digests(folder, random=random) == wanted:
            return "", folder
    found = None if "step" in spec else _in_hub_cache(str(spec["model"]), spec.get("revision"))
    if found and (not verify or digests(found, random=random) == wanted):
        return "", None
    return "the folder of its model is not known (--model)", None


@lru_cache(maxsize=4096)
def digests(folder: Path, *, random: bool) -> tuple[str, str] | None:
    """Of weights and tokenizer, as a spec holds them; None where the folder holds no model."""
    try:
        return (config_digest if random else weights_digest)(folder), tokenizer_digest(folder)
    except (ProbekitError, OSError):
        return None


def _in_hub_cache(model: str, revision: str | None) -> Path | None:
    """The folder of a model of the hub that is on this disk."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None
