"""Any model that probekit reads, by its folder, hub id or published files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probekit.errors import UsageError
from probekit.models.conversion import ELMO, SKIP_THOUGHTS, reads_apart
from probekit.models.encoder import Encoder, Text, Tokens
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.transformers.encoder import Packing, choice, load_transformer
from probekit.models.transformers.encoder import text_reader as piece_reader
from probekit.runtime import Dtype

__all__ = ["TextReader", "load_encoder", "parts_pairs", "text_reader"]


class TextReader(Protocol):
    """What turns texts into what a model reads: word pieces, or words.

    Attributes
    ----------
    max_length : int
        The most pieces of a sequence.
    type_ids : bool
        Whether the model wants to know the segment of a piece.
    padding_id : int
        What stands at padding, where others pad.
    """

    max_length: int
    type_ids: bool
    padding_id: int

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The pieces of each text; raises UsageError for what is not a text."""


def text_reader(folder: Path, config: Any, max_length: int | None = None) -> TextReader:
    """The reader of a model folder, cutting where the model of this ``config`` (or ``max_length``) does.

    Raises
    ------
    ModelError
        Where the folder lacks what is needed to read a text.
    UsageError
        For a maximal length that the model does not have.
    """
    if config.model_type == ELMO:
        from probekit.models.elmo.characters import character_reader

        return character_reader(folder, max_length)
    if config.model_type == SKIP_THOUGHTS:
        from probekit.models.skip_thoughts.encoder import word_reader

        return word_reader(folder, config, max_length)
    return piece_reader(folder, config, max_length)


def parts_pairs(folder: Path) -> bool:
    """Whether a model reads the sentences of a pair in one sequence with a piece between them, as BERT does."""
    if reads_apart(model_type(folder)):
        return False
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    special = text_reader(folder, config)([("a", "a")]).special
    own = np.flatnonzero(special == 0)
    return bool(len(own)) and bool(special[own[0] : own[-1]].any())


def load_encoder(
    model: str | Path,
    *,
    dtype: Dtype | str = Dtype.FLOAT32,
    device: str = "auto",
    random_weights: int | None = None,
    revision: str | None = None,
    max_length: int | None = None,
    packing: Packing | str = Packing.AUTO,
    onednn: bool = True,
    compile: bool = False,
    batch_tokens: int | None = None,
    stateful: int = 0,
) -> Encoder:
    """Load a model with its tokenizer.

    Parameters
    ----------
    model : str | Path
        Hub id, local folder, ``elmo:OPTIONS,WEIGHTS`` or ``skip-thoughts:FOLDER``.
    random_weights : int, optional
        re-initialise the model with this seed instead of reading weights (the control of the paper).
    max_length : int, optional
        Cut sequences at fewer pieces than the model could read.
    packing : Packing | str, default Packing.AUTO
        How sequences share a forward pass; AUTO takes the fast path where the architecture is known and a self-check
        against the stock forward, one sequence at a time, agrees.
    onednn : bool, default True
        On a CPU, lay the weights of linear layers out for oneDNN where it is available.
    compile : bool, default False
        Run each block through ``torch.compile`` (and not oneDNN); bits then depend on the batch.
    batch_tokens : int, optional
        Pieces a batch should hold; None takes what was measured to be fast.
    stateful : int, default 0
        Of ELMo, sentences in a batch whose state the next batch begins with, as the original does; 0 for none.

    Raises
    ------
    ModelError
        Where the model or its tokenizer cannot be loaded, or weights are missing.
    UsageError
        For an unknown dtype, device or packing, a maximal length that the model does not have, or an option that is for
        other models.
    """
    folder = resolve_model(model, revision)
    kind = model_type(folder)
    dtype, packing = choice(Dtype, dtype), choice(Packing, packing)
    if stateful < 0:
        raise UsageError(f"stateful is {stateful}; it is the number of sentences in a batch, or 0.")
    if kind != ELMO and stateful:
        raise UsageError(f"stateful is for ELMo, whose LSTMs can carry their state on; {model} is of type {kind!r}.")
    if kind not in (ELMO, SKIP_THOUGHTS):
        return load_transformer(
            model, dtype=dtype, device=device, random_weights=random_weights, revision=revision, max_length=max_length,
            packing=packing, onednn=onednn, compile=compile, batch_tokens=batch_tokens,
        )  # fmt: skip
    if packing is Packing.GROUPED or compile:
        what = "compile" if compile else "packing='grouped'"
        raise UsageError(f"{what} is for transformers; {model} is of type {kind!r}, which is run packed as it is.")
    from probekit.models.elmo.encoder import load_elmo
    from probekit.models.skip_thoughts.encoder import load_skip_thoughts

    how: dict[str, Any] = {
        "dtype": dtype, "device": device, "random_weights": random_weights, "revision": revision,
        "max_length": max_length, "onednn": onednn, "batch_tokens": batch_tokens,
    }  # fmt: skip
    return load_elmo(model, stateful=stateful, **how) if kind == ELMO else load_skip_thoughts(model, **how)
