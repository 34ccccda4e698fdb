"""Adapters of peft as models: a folder that names a base and the adapters on it stands for both.

It holds the configuration of the base and a tokenizer; base and adapters stay where they are, and their digests are
checked when they are read.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from probekit import files
from probekit.errors import ModelError, UsageError
from probekit.models.adapted.record import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    COMPOSITION,
    JOIN,
    PROMPTS,
    Adapted,
    adapted,
    adapter_configuration,
    adapter_digest,
    peft_type,
)
from probekit.models.folder import model_type, tokenizer_files, weights_digest
from probekit.models.kinds import kinds

LAYOUT = 1
"""Version of the folder; it changes when what is written changes."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def parts_of(model: str) -> list[str]:
    """A model's name, or the names of a base and of the adapters on it: ``BASE+ADAPTER+ADAPTER``."""
    return [model] if JOIN not in model or Path(model).expanduser().is_dir() else model.split(JOIN)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter of peft and no model."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def named_base(adapter: Path) -> tuple[str, str | None]:
    """The base that an adapter names, and its revision: a folder of a model here, or a hub id.

    Raises
    ------
    ModelError
        If it names none, or something else, which may be a stranger's.
    """
    config = adapter_configuration(adapter)
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    name_it = f"Name the model that it was trained on: BASE{JOIN}{adapter}."
    if not isinstance(name, str) or not name:
        raise ModelError(f"{adapter} is an adapter (peft) that names no base. {name_it}")
    here = Path(name)
    if not name.startswith(("//", "\\\\")) and (here / "config.json").is_file():
        return str(here), None
    if not _HUB_ID.fullmatch(name) or ".." in name:
        raise ModelError(
            f"{adapter} is an adapter (peft) of {name!r:.120}, which is no folder of a model here. {name_it}"
        )
    plain = isinstance(revision, str) and re.fullmatch(r"[\w.-]+", revision) and ".." not in revision
    return name, revision if plain else None


def composed(base: tuple[str, Path], adapters: Sequence[tuple[str, Path]], doubts: Sequence[str] = ()) -> Path:
    """The folder below data_cache/models that stands for a base and the adapters on it, written if it is not there.

    Parameters
    ----------
    base : tuple of str and Path
        The name, and the folder of a whole model, of a run, or of an earlier composition.
    adapters : sequence of tuple
        Names and folders of adapters, in the order in which they are applied.
    doubts : sequence of str
        Sentences on adapters of which nobody knows whether this is their base.

    Raises
    ------
    ModelError
        If one holds no adapter of peft in safetensors, if the base cannot be adapted, or if probekit trained an adapter
        on other weights.
    """
    folder, folders = base[1], [one for _, one in adapters]
    if (kind := model_type(folder)) in kinds():
        raise ModelError(f"{folder} is of type {kind!r}; adapters of peft are for transformers.")
    for i, adapter in enumerate(folders):
        _check(adapter, last=i == len(adapters) - 1)
        if (run := adapted(adapter)) is not None:
            _check_base(run, base, adapters[:i])

    def said(name: str, place: Path, digest: str) -> dict[str, str]:
        return {"name": short_name(name), "folder": str(place.resolve()), "digest": digest}

    made_of = [said(*base, weights_digest(folder)), *(said(*one, adapter_digest(one[1])) for one in adapters)]
    about = {"base": made_of[0], "adapters": made_of[1:], **({"doubts": list(doubts)} if doubts else {})}
    text = json.dumps(about, indent=2) + "\n"
    name = JOIN.join(one["name"] for one in made_of)
    tokenizer = next((one for one in reversed(folders) if (one / "tokenizer.json").is_file()), folder)
    copied = [folder / "config.json", *tokenizer_files(tokenizer), *tokenizer.glob("*.jinja")]
    digest = hashlib.sha256((text + files.digest(copied)).encode()).hexdigest()
    out = files.DATA_CACHE / "models" / f"{files.slug(name)}.{digest[:8]}.{LAYOUT}"
    if not out.is_dir():
        try:
            with files.new_folder(out) as new:
                for file in (*copied, *folder.glob("generation_config.json")):
                    shutil.copyfile(file, new / file.name)
                (new / COMPOSITION).write_text(text, encoding="utf-8")
        except (UsageError, OSError) as error:  # another process was faster, or there is no space
            if not out.is_dir():
                raise ModelError(f"{out} cannot be written ({error}).") from error
    return out


def short_name(model: str) -> str:
    """The name of a base or an adapter: the hub id, also of a folder in the hub's cache, or a folder's last part."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    cached = _IN_HUB_CACHE.search(folder.resolve().as_posix())
    return cached[1].replace("--", "/") if cached else folder.name


_IN_HUB_CACHE = re.compile(r"/models--([^/]+)/snapshots/[^/]+$")


def _check_base(run: Adapted, base: tuple[str, Path], before: Sequence[tuple[str, Path]]) -> None:
    """Raise ModelError if a run's card says that its changed weights belong to another base.

    That is the base itself, or the base with the adapters before this one.
    """
    own = [base[1], *([composed(base, before)] if before else [])]
    digests = [] if run.random_weights is not None else [weights_digest(folder) for folder in own]
    if run.base_digest not in digests:
        drawn = "" if run.random_weights is None else f"random weights (seed {run.random_weights}) of "
        raise ModelError(
            f"{run.folder} was trained on {drawn}{run.base} (digest {run.base_digest}), but {base[0]} has other "
            f"weights ({', '.join(map(weights_digest, own))}). Give {run.folder} alone: it is read on its own base. "
            f"To try it on others, give a folder with nothing but its {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}."
        )


def _check(adapter: Path, *, last: bool) -> None:
    """Raise ModelError for a folder that is no adapter, or one whose weights are pickled or damaged."""
    if not (adapter / ADAPTER_CONFIG).is_file():
        raise ModelError(
            f"{adapter} has no {ADAPTER_CONFIG}, so it is not an adapter of peft. With {JOIN}, a model is "
            f"BASE{JOIN}ADAPTER."
        )
    if not (adapter / ADAPTER_WEIGHTS).is_file():
        pickled = next(iter(sorted(adapter.glob("*.bin"))), None)
        raise ModelError(
            f"{adapter} has no {ADAPTER_WEIGHTS}. "
            + (
                "Download it again, or save it with PeftModel.save_pretrained. On the hub it may have only pickled "
                f"weights ({Path(ADAPTER_WEIGHTS).stem}.bin), which can run arbitrary code when loaded and are not "
                "fetched: if you trust them, load them once with peft, and save them."
                if pickled is None
                else f"It has only pickled weights ({pickled.name}), which can run arbitrary code when loaded. If you "
                "trust them, load them once with peft, and save them: PeftModel.save_pretrained."
            )
        )
    if not last and peft_type(adapter) in PROMPTS:
        raise ModelError(
            f"{adapter} puts trained vectors before each text ({peft_type(adapter)}); give it as the last adapter."
        )
