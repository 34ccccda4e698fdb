"""Untrained models: write a model folder with random weights and a tokenizer."""

from __future__ import annotations

import filecmp
import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probekit.constraint import File, MadeOut
from probekit.errors import ModelError, UsageError, did_you_mean, first_line
from probekit.files import draft, new_folder, read_json
from probekit.models.conversion import BILSTM, ELMO
from probekit.models.find import resolve_model
from probekit.models.folder import check_config, model_type, save_tensors, tokenizer_files
from probekit.models.untrained import UNTRAINED, write_untrained
from probekit.models.words import Splitting
from probekit.public import public

_VALUES = {
    "tokenizer": "a model folder or hub id with its tokenizer, such as --tokenizer minilm",
    "elmo": "a folder with an ELMo or its published files, such as --elmo elmo:OPTIONS,WEIGHTS",
    "vocabulary": "a text file with one word per line, such as --vocabulary words.txt",
}
"""What to give for a source that is missing."""


@public()
def new_encoder(
    config: File | Mapping[str, Any],
    out: MadeOut,
    *,
    tokenizer: str | Path | None = None,
    elmo: str | Path | None = None,
    vocabulary: File | None = None,
    words: Splitting = Splitting.TREEBANK,
    lower_case: bool = False,
    seed: int = 0,
) -> Path:
    """Write an untrained encoder: a BiLSTM as in Bowman et al. (2018), or any model type of transformers.

    The folder (config.json, model.safetensors, tokenizer) is a model for every command; ``probekit pretrain-encoder``
    trains it. It appears when it is complete. The file untrained.json states the seed, so caches and figures call the
    encoder "untrained". The same configuration and seed give the same bytes; a folder that holds them already is left
    as it is.

    Parameters
    ----------
    config : str, Path or mapping
        The model's configuration, a JSON file (in Python also its content). Its model_type is bilstm, or a type that
        transformers knows. Without vocab_size, and without the numbers of padding, first and last token, these are
        those of the tokenizer.
    out : path
        The folder to write.
    tokenizer : str or Path, optional
        A model folder or hub id, whose tokenizer is copied; for transformers, and the input "pieces" of a BiLSTM.
    elmo : str or Path, optional
        For the inputs "characters" and "elmo" of a BiLSTM: an ELMo, whose weights are copied and frozen. Without it,
        the input "characters" begins with random characters, which are trained.
    vocabulary : str or Path, optional
        For the input "words" of a BiLSTM: a text file with one word per line.
    words : Splitting, default Splitting.TREEBANK
        How plain text is split into words, if the model does not read word pieces.
    lower_case : bool, default False
        For the input "words": convert words to lower case.
    seed : int, default 0
        Seed of the initial weights.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    UsageError
        If ``out`` exists with other content, or an argument is missing, superfluous or not valid.
    ModelError
        If the configuration is not valid, or a source cannot be read.

    See Also
    --------
    probekit.models.bilstm.config.BiLSTMConfig : The configuration of a BiLSTM.

    Examples
    --------
    >>> probekit.new_encoder("bilstm.json", "models/bilstm", tokenizer="minilm")  # doctest: +SKIP

    On the command line::

        probekit new-encoder --config bilstm.json --tokenizer minilm --out models/bilstm
        probekit new-encoder --config gpt2-mini.json --tokenizer gpt2 --seed 1 --out models/mini
    """
    values, name = _values(config)
    source = {"tokenizer": tokenizer, "elmo": elmo, "vocabulary": vocabulary}
    place = Path(out)
    there = (place / "config.json").is_file()
    with draft(place) if there else new_folder(place) as folder:
        if values.get("model_type") == BILSTM:
            _bilstm(values, folder, source, words, lower_case=lower_case)
        else:
            _check_source("a model of transformers", source, "tokenizer")
            _copy_tokenizer(tokenizer, values, folder)
        (folder / "config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        check_config(folder)
        _write_weights(folder, name, seed, None if elmo is None else resolve_model(elmo))
        write_untrained(folder, seed)
        if there and not _same_files(folder, place):
            raise UsageError(f"{place} exists, and differs from the requested encoder; choose another folder.")
    return place


def _same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files with the same bytes."""
    names, there = ({path.name for path in folder.iterdir()} for folder in (one, other))
    _, different, failed = filecmp.cmpfiles(one, other, names & there, shallow=False)
    return names ^ there <= {UNTRAINED} and not different and not failed  # earlier versions wrote no such file


def _values(config: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The configuration, and its name in messages."""
    if isinstance(config, Mapping):
        return dict(config), "the configuration"
    try:
        values = read_json(Path(config))
    except FileNotFoundError:
        raise ModelError(f"{config} does not exist; expected a file with a model's configuration as JSON.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{config} cannot be read ({error}); expected a model's configuration as JSON.") from error
    if not isinstance(values, dict):
        raise ModelError(f"{config} holds a {type(values).__name__}; expected a model's configuration, a JSON object.")
    return values, str(config)


def _bilstm(
    values: dict[str, Any], folder: Path, source: Mapping[str, Any], words: Splitting, *, lower_case: bool
) -> None:
    """Write the tokenizer of a BiLSTM into the folder, and complete its configuration."""
    from probekit.models.bilstm.config import ELMO_SIZES, BiLSTMConfig, Input
    from probekit.models.bilstm.reader import MARKERS, check_vocabulary

    known = set(inspect.signature(BiLSTMConfig).parameters) - {"kwargs"}
    if unknown := sorted(set(values) - known - {"model_type", "hidden_size"}):
        raise UsageError(f"a BiLSTM has no setting {unknown[0]!r}; {did_you_mean(unknown[0], sorted(known))}")
    kind = Input(BiLSTMConfig(**{k: v for k, v in values.items() if k in ("input", "directions")}).input)
    if source["tokenizer"] is not None and "input" not in values:
        raise UsageError('a tokenizer needs "input": "pieces" in the configuration; the default is "characters".')
    needs = {Input.PIECES: "tokenizer", Input.WORDS: "vocabulary"}.get(kind, "elmo")
    _check_source(f"the input {str(kind)!r}", source, needs, optional=kind is Input.CHARACTERS)
    if lower_case and kind is not Input.WORDS:
        raise UsageError(f"lower_case is for the input 'words'; the input is {str(kind)!r}.")
    if kind is Input.PIECES:
        _copy_tokenizer(source["tokenizer"], values, folder)
        return
    settings: dict[str, Any] = {"words": words}
    if kind is Input.WORDS:
        found = [word for word in check_vocabulary(Path(source["vocabulary"])) if word not in MARKERS]
        rows = list(dict.fromkeys(word.lower() for word in found)) if lower_case else found
        (folder / "vocab.txt").write_text("\n".join([*MARKERS, *rows]) + "\n", encoding="utf-8")
        values["vocab_size"], settings["lower_case"] = len(MARKERS) + len(rows), lower_case
    elif source["elmo"] is not None:
        if "elmo" in values:
            raise UsageError("the ELMo determines its own sizes; leave elmo out of the configuration.")
        at = resolve_model(source["elmo"])
        if model_type(at) != ELMO:
            raise ModelError(f"{at} is of type {model_type(at)!r}; expected an ELMo.")
        theirs = read_json(at / "config.json")
        values["elmo"] = {key: theirs[key] for key in ELMO_SIZES if key in theirs}
    if kind is Input.CHARACTERS:
        values["frozen"] = source["elmo"] is not None
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _check_source(reader: str, source: Mapping[str, Any], needs: str, *, optional: bool = False) -> None:
    """Raise UsageError unless exactly the needed source is given."""
    if source[needs] is None and not optional:
        raise UsageError(f"{reader} needs {needs}: {_VALUES[needs]}.")
    if extra := [key for key, value in source.items() if value is not None and key != needs]:
        raise UsageError(f"{reader} does not read {extra[0]}; leave it out.")


def _copy_tokenizer(tokenizer: Any, values: dict[str, Any], folder: Path) -> None:
    """Copy a tokenizer's files, and fill in its numbers in the configuration.

    Raises
    ------
    ModelError
        If it has more pieces than the configuration has rows.
    """
    from probekit.models.transformers.tokens import load_tokenizer

    at = Path(tokenizer) if Path(tokenizer).is_dir() else resolve_model(tokenizer)
    for file in tokenizer_files(at):
        shutil.copyfile(file, folder / file.name)
    loaded = load_tokenizer(at)
    values.setdefault("vocab_size", len(loaded))
    if values["vocab_size"] < len(loaded):
        raise ModelError(
            f"vocab_size is {values['vocab_size']}, but the tokenizer in {at} has {len(loaded)} pieces; leave "
            "vocab_size out to take this number."
        )
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        values.setdefault(key, getattr(loaded, key))


def _write_weights(folder: Path, name: str, seed: int, elmo: Path | None) -> None:
    """Initialise the model of config.json, and write it with its complete configuration."""
    from safetensors.torch import load_file

    from probekit.models.folder import configuration, weight_files
    from probekit.models.transformers.stock import load_model

    try:
        model = load_model(folder, random_weights=seed)
    except ModelError as error:
        raise ModelError(f"{name}: {first_line(error).replace(str(folder), 'the model')}") from error
    config = configuration(folder)
    if config.is_encoder_decoder:
        raise ModelError(f"{name} describes an encoder with a decoder; expected a model with one stack of layers.")
    if elmo is not None:
        from probekit.models.bilstm.model import FROZEN, frozen_digest

        stored = {key: tensor for file in weight_files(elmo) for key, tensor in load_file(file).items()}
        model.elmo.load_state_dict({key: stored[key] for key in model.elmo.state_dict()})
        config.frozen_digest = frozen_digest({FROZEN + key: x for key, x in model.elmo.state_dict().items()})
    config.architectures, config.dtype = [type(model).__name__], "float32"
    config.save_pretrained(folder)
    tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    save_tensors(tensors, folder / "model.safetensors", format="pt")
