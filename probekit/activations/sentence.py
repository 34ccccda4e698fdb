"""The sentence vector of a model of sentence-transformers: its modules, as a pooling."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probekit.activations.pooling import Sentence
from probekit.errors import ModelError, UsageError
from probekit.files import read_json
from probekit.models.encoder import Encoder

log = logging.getLogger(__name__)

_LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def with_own(
    pooling: tuple[str, ...] | None, model: str | Path | Encoder, revision: str | None = None
) -> tuple[str, ...] | None:
    """Names of poolings, with the model's own in place of "sentence".

    Raises
    ------
    UsageError
        If the model is not one of sentence-transformers, or its vectors are not only pooled pieces.
    ModelError
        If its files cannot be read.
    """
    if pooling is None or not any(name.strip() == "sentence" for name in pooling):
        return pooling
    from probekit.models.find import resolve_model

    if isinstance(model, (str, Path)):
        folder = resolve_model(str(model).removeprefix("random:"), revision)
    else:
        folder = getattr(model, "folder", Path())
    own = own_pooling(folder)
    return tuple(own if name.strip() == "sentence" else name for name in pooling)


def own_pooling(folder: Path) -> Sentence:
    """The pooling that the modules of sentence-transformers in a model's folder describe; errors as in `with_own`."""
    path = folder / "modules.json"
    if not path.is_file():
        raise UsageError(
            f"{folder} has no modules.json, so it is not a model of sentence-transformers, whose vectors are those of "
            "--pooling sentence; choose another pooling."
        )
    modules = [(str(one.get("type")).rpartition(".")[2], str(one.get("path"))) for one in _read(path, list)]
    kinds = [kind for kind, _ in modules if kind != "Dropout"]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UsageError(
            f"{path} names the modules {', '.join(kinds)}; --pooling sentence reads a Transformer, a Pooling and a "
            "Normalize. The vectors before the other modules are those of another pooling, such as mean-all."
        )
    where = next(place for kind, place in modules if kind == "Pooling")
    if not re.fullmatch(r"\w[\w.-]*", where):
        raise ModelError(f"{path} names the folder {where!r:.80}, which is not one inside it.")
    if not (folder / where).is_dir():
        raise ModelError(
            f"{folder} has no folder {where}, which {path.name} names. Fetch the whole model, on a machine with a "
            "network: hf download MODEL."
        )
    mode = _mode(_read(folder / where / "config.json", dict), folder / where / "config.json")
    _check_texts(folder)
    found = Sentence(f"sentence:{mode}" + (":unit" if "Normalize" in kinds else ""))
    log.info("%s: its sentence vector is the pooling %s of each layer", folder.name, found)
    return found


def _mode(config: Mapping[str, Any], path: Path) -> str:
    """The one mode of a Pooling module."""
    given = config.get("pooling_mode", [mode for key, mode in _LEGACY.items() if config.get(key)] or "mean")
    modes: Any = [given] if isinstance(given, str) else given
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in Sentence.MODES:
        raise UsageError(
            f"{path} pools by {modes!r:.120}; --pooling sentence reads one of {', '.join(Sentence.MODES)}, and no "
            "several side by side."
        )
    return str(modes[0])


def _check_texts(folder: Path) -> None:
    """Refuse a model that changes texts before it reads them; say where it cuts them."""
    path = folder / "config_sentence_transformers.json"
    config = _read(path, dict) if path.is_file() else {}
    if (name := config.get("default_prompt_name")) and (config.get("prompts") or {}).get(name):
        raise UsageError(
            f"{path} puts the prompt {name!r} before each text, which --pooling sentence does not; write it into the "
            "texts, and choose the pooling by its name (sentence:mean:unit)."
        )
    path = folder / "sentence_bert_config.json"
    config = _read(path, dict) if path.is_file() else {}
    tokenizer = folder / "tokenizer.json"
    if config.get("do_lower_case") and not (
        tokenizer.is_file() and "lowercase" in str(_read(tokenizer, dict).get("normalizer")).lower()
    ):
        raise UsageError(f"{path} writes texts in lower case first; --pooling sentence does not.")
    if isinstance(most := config.get("max_seq_length"), int):
        log.info("%s reads at most %d pieces in sentence-transformers: --max-length %d", folder.name, most, most)


def _read(path: Path, kind: Any) -> Any:
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}).") from error
    whole = isinstance(found, kind) and all(isinstance(one, dict) for one in (found if kind is list else ()))
    if not whole:
        raise ModelError(f"{path} does not hold what sentence-transformers writes.")
    return found
