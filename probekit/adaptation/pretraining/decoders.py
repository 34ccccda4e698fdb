"""Decoders in the folder of a run: their output words beside their weights, and both read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from probekit.adaptation.heads.decoder import DecoderHead
from probekit.adaptation.pretraining.objective import PretrainingObjective
from probekit.adaptation.pretraining.outputs import BEGIN, END, Vocabulary, vocabulary_on_file
from probekit.adaptation.runs.folder import load_weights, read_card
from probekit.errors import ModelError, UsageError
from probekit.files import FileKind, digest_of_content, read_json, write

__all__ = ["read_decoder", "write_vocabularies"]


def _is_vocabularies(path: Path) -> bool:
    stored = read_json(path)
    return isinstance(stored, dict) and all({*one} <= {"words", "tokenizer"} for one in stored.values())


VOCABULARIES = FileKind("the output words of decoders", _is_vocabularies)
FILE = "outputs.json"


def write_vocabularies(objectives: Sequence[PretrainingObjective], folder: Path) -> dict[str, str]:
    """Write the output words of all decoders, if there are any; returns what a card says of the file."""
    found = {one.name: one.outputs.on_file() for one in objectives if one.outputs is not None}
    if not found:
        return {}
    write(folder / FILE, json.dumps(found, ensure_ascii=False) + "\n", VOCABULARIES)
    return {FILE: digest_of_content(folder / FILE)}


def read_decoder(run: str | Path, objective: str) -> tuple[DecoderHead, Vocabulary]:
    """The decoder that a run trained for an objective, and its output words.

    Parameters
    ----------
    run : path
        The folder of a finished run of :func:`probekit.pretrain_encoder`.
    objective : str
        An objective of the run, such as "translate:multi30k-en-de".

    Raises
    ------
    UsageError
        If the run has no decoder for this objective.
    ModelError
        If a file is missing or damaged.
    """
    folder = Path(run)
    card, path = read_card(folder), folder / FILE
    modules = {one["objective"]: one["module"] for one in card.get("objectives", ()) if "attention" in one}
    if objective not in modules:
        which = f"those of {', '.join(modules)}" if modules else "none"
        raise UsageError(f"{folder} has no decoder for {objective!r}; it has {which}.")
    if not path.is_file() or digest_of_content(path) != card.get(FILE):
        raise ModelError(f"{path} is missing or damaged. Train it again with --overwrite.")
    prefix = f"{modules[objective]}."
    state = {k.removeprefix(prefix): v for k, v in load_weights(folder, encoder=False).items() if k.startswith(prefix)}
    (size, width), (outputs, embedding_size) = state["start.weight"].shape, state["embeddings.weight"].shape
    head = DecoderHead(
        width, outputs, begin=BEGIN, end=END, hidden_size=size // 2, embedding_size=embedding_size,
        attention="attention.keys.weight" in state,
    )  # fmt: skip
    head.load_state_dict(state)
    return head.eval(), vocabulary_on_file(read_json(path)[objective])
