"""How a cache is made again: its command, from what it says of itself, and whether its sources are known."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from probekit.errors import ProbekitError
from probekit.models.folder import config_digest, tokenizer_digest, weights_digest
from probekit.tasks import DATASETS, GRAMMARS, Task, load_task

__all__ = ["Data", "cache_command", "forget", "how_made", "unknown_sources"]

Data = tuple[str, Path | None]
"""A task as :func:`load_task` takes it: by name, and from which folder."""


def cache_command(
    spec: Mapping[str, Any], out: str | Path, model: str | Path | None = None, data: Data | None = None
) -> str:
    """The ``probekit cache-activations`` that makes a cache of this spec, to be pasted into a shell.

    model : the folder of the model, where its name is not what finds it; a run that was trained here has no other, so
        that without it RUN-FOLDER stands in its place
    data : by what name and in which folder its task is found; a spec does not know
    """
    task, data_dir = data or (spec["task"], None)
    named = "RUN-FOLDER" if "step" in spec else spec["model"]
    words = ["probekit", "cache-activations", "--model", str(model or named)]
    options: dict[str, Any] = {
        "task": task,
        "data-dir": data_dir,
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


def how_made(spec: Mapping[str, Any], out: str | Path) -> str:
    """What a cache was made of and by, where no more is known than its spec; and what that leaves open."""
    begin = "it was made by"
    lacks = [] if str(spec["task"]).startswith("grammar:") else ["--data-dir, where its data were in a folder"]
    if "step" in spec:
        run = f"the run {spec.get('checkpoint')} at step {spec['step']}"
        begin = f"it was made of {run}, whose folder must be found, or trained first:"
    elif "/" not in str(spec["model"]):
        lacks.append(f"the model's folder, where {spec['model']} is no model of the hub")
    return f"{begin} {cache_command(spec, out)}" + (f" (not known: {'; '.join(lacks)})" if lacks else "")


def unknown_sources(
    spec: Mapping[str, Any], models: Iterable[Path] = (), data_dir: Path | None = None, *, verify: bool = True
) -> tuple[str, Path | None, Data | None]:
    """What would be wanting to make a cache of this spec again ("" where nothing is), and its model and data.

    The model must be one of ``models``, or in the hub's local cache by its name; the task must go by a name, and its
    split have the digest of the spec, as read from ``data_dir`` or a folder in it that is called like the task, or
    from the hub's local cache. Nothing is fetched.
    verify : whether the files of the hub's model are read, too, and have the digests of the spec
    """
    task = str(spec["task"])
    base, _, part = task.partition(":")
    if not (part in GRAMMARS if base == "grammar" else base in DATASETS):
        return "its task goes by no name that finds its data", None, None
    wanted = spec.get("weights_digest"), spec.get("tokenizer_digest")
    random = spec.get("random_weights") is not None
    model = next((folder for folder in models if digests(folder, random=random) == wanted), None)
    if model is None:
        found = None if "step" in spec else _in_hub_cache(str(spec["model"]), spec.get("revision"))
        if not found or (verify and digests(found, random=random) != wanted):
            return "the folder of its model is not known (--model)", None, None
    others = False
    for folder in _folders(base, data_dir):
        if (digest_now := data_digest(task, folder, str(spec["split"]), int(spec["n"]))) is not None:
            if digest_now == spec.get("data_digest"):
                return "", model, (task, folder)
            others = True
    return "its data are not what they were" if others else "its data are not here (--data-dir)", model, None


def _folders(base: str, data_dir: Path | None) -> Iterator[Path | None]:
    """Where the files of a task may be; None is the hub's local cache, or nowhere for what is generated."""
    if data_dir is not None and base != "grammar":
        yield data_dir
        own = _plain(base)
        for folder in sorted(data_dir.iterdir()):
            name = _plain(folder.name)
            if folder.is_dir() and name and (own.startswith(name) or name.startswith(own)):
                yield folder
    yield None


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


@lru_cache(maxsize=256)
def data_digest(task: str, folder: Path | None, split: str, n: int) -> str | None:
    """Of the first ``n`` examples of a split, as the spec of a cache holds it; None where they cannot be read here."""
    from probekit.activations.job import digest

    loaded = _load(task, folder)
    if loaded is None or split not in loaded.splits:
        return None
    part = loaded.split(split).head(n)
    return digest({"examples": part.digest(), "labels": list(loaded.label_names)})


@lru_cache(maxsize=2)
def _load(task: str, folder: Path | None) -> Task | None:
    try:
        with nullcontext() if task.startswith("grammar:") else _no_network():
            return load_task(task, folder)
    except (ProbekitError, OSError):
        return None


@contextmanager
def _no_network() -> Iterator[None]:
    """What the hub's libraries are told by HF_HUB_OFFLINE, which they read when they are imported."""
    import huggingface_hub.constants as hub
    from datasets import config

    before = hub.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


def forget() -> None:
    """Look again at models and data, which may have changed."""
    for kept in (digests, data_digest, _load):
        kept.cache_clear()


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
