"""How a cache is made again: its command, from what it says of itself, and whether its sources are known."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from probekit.errors import ProbekitError
from probekit.models.folder import config_digest, tokenizer_digest, weights_digest
from probekit.tasks import DATASETS, GRAMMARS, Task, load_task, task_folders

__all__ = [
    "Data",
    "cache_command",
    "forget",
    "how_made",
    "option",
    "recorded",
    "records",
    "study_told",
    "unknown_sources",
]

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
    spec: Mapping[str, Any],
    models: Iterable[str | Path] = (),
    data_dir: Path | None = None,
    *,
    told: Data | None = None,
    verify: bool = True,
) -> tuple[str, str | Path | None, Data | None]:
    """What would be wanting to make a cache of this spec again ("" where nothing is), and its model and data.

    The model must be one of ``models``, folders or names of the hub, or in the hub's local cache by the spec's name;
    the task must be ``told`` or go by a name, and its split have the digest of the spec, as read from ``data_dir``, a
    folder in it that is called like the task, or the hub's local cache. Nothing is fetched.
    verify : whether the files of the hub's model are read, too, and have the digests of the spec
    """
    task = str(spec["task"])
    base, _, part = task.partition(":")
    places = [told] if told else []
    if part in GRAMMARS if base == "grammar" else base in DATASETS:
        if data_dir is not None and base != "grammar":
            places += [(task, folder) for folder in task_folders(base, data_dir)]
        places.append((task, None))  # the hub's local cache, or nowhere for what is generated
    if not places:
        return "its task goes by no name that finds its data", None, None
    wanted = spec.get("weights_digest"), spec.get("tokenizer_digest")
    random, revision = spec.get("random_weights") is not None, spec.get("revision")
    found = ((m, Path(m) if Path(m).is_dir() else _in_hub_cache(str(m), revision)) for m in models)
    model = next((m for m, folder in found if folder and digests(folder, random=random) == wanted), None)
    if model is None:
        here = None if "step" in spec else _in_hub_cache(str(spec["model"]), revision)
        if not here or (verify and digests(here, random=random) != wanted):
            return "the folder of its model is not known (--model)", None, None
    now = {place: data_digest(*place, str(spec["split"]), int(spec["n"])) for place in dict.fromkeys(places)}
    for place, digest in now.items():
        if digest and digest == spec.get("data_digest"):
            return "", model, place
    return "its data are not what they were" if any(now.values()) else "its data are not here (--data-dir)", model, None


@lru_cache(maxsize=64)
def records(study: Path) -> dict[str, dict[str, Any]]:
    """What a study notes of the steps that it has done, by the names of the files; none of any other folder."""
    found = {}
    for file in sorted((study / "steps").glob("*.json")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            words = [str(word) for word in told["command"]]
            found[file.stem] = {"step": str(told["step"]), "command": words, "left": list(dict(told["left"]))}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not of a study
    return found


@lru_cache(maxsize=64)
def study_told(study: Path) -> dict[str, Any]:
    """Title and names of the steps of the study in a folder; nothing where there is none."""
    try:
        told = json.loads((study / "study.json").read_text(encoding="utf-8"))
        return {"title": str(told["title"]), "steps": [str(step["step"]) for step in told["steps"]]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def recorded(path: Path) -> list[str]:
    """The words of the command of the study's step that made ``STUDY/caches/NAME.h5``; none where none is noted.

    What they name in the study's folder is named where that is now.
    """
    study, leaf = path.absolute().parent.parent, f"{path.parent.absolute().name}/{path.name}"
    for record in records(study).values():
        if leaf in record["left"]:
            words = record["command"]
            out = next((word.removesuffix(leaf) for word in words if word.endswith(f"/{leaf}")), None)
            return [f"{study}/{w.removeprefix(out)}" if out and w.startswith(out) else w for w in words]
    return []


def option(words: Sequence[str], name: str) -> str | None:
    """What a command's words say after --name."""
    return next((value for word, value in pairwise(words) if word == f"--{name}"), None)


@lru_cache(maxsize=256)
def data_digest(task: str, folder: Path | None, split: str, n: int) -> str | None:
    """Of the first ``n`` examples of a split, as the spec of a cache holds it; None where they cannot be read here."""
    from probekit.activations.writing.request import data_digest as digest_of

    loaded = _load(task, folder)
    if loaded is None or split not in loaded.splits:
        return None
    return digest_of(loaded.split(split).head(n).digest(), loaded.label_names)


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
    for kept in (digests, data_digest, _load, records, study_told):
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
