"""Load any model that probekit reads, by folder, hub id or published files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probekit.errors import UsageError
from probekit.models.conversion import BILSTM, ELMO, SKIP_THOUGHTS, reads_apart
from probekit.models.encoder import Encoder, Text, Tokens
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.transformers.encoder import Packing, choice, load_transformer
from probekit.models.transformers.encoder import text_reader as piece_reader
from probekit.runtime import Dtype

__all__ = ["TextReader", "load_encoder", "parts_pairs", "text_reader"]


class TextReader(Protocol):
    """Turns texts into a model's input: word pieces, or words.

    Attributes
    ----------
    max_length : int
        Maximum number of pieces in a sequence.
    type_ids : bool
        Whether the model reads the segment of a piece.
    padding_id : int
        The id of padding, for callers that pad.
    """

    max_length: int
    type_ids: bool
    padding_id: int

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The pieces of each text; raises UsageError if an item is not a text."""


def text_reader(folder: Path, config: Any, max_length: int | None = None) -> TextReader:
    """The reader for a model folder; it truncates at the model's maximum length (from ``config``) or ``max_length``.

    Raises
    ------
    ModelError
        If the folder lacks files that are needed to read a text.
    UsageError
        If the model does not support ``max_length``.
    """
    if config.model_type == ELMO:
        from probekit.models.elmo.characters import character_reader

        return character_reader(folder, max_length)
    if config.model_type == SKIP_THOUGHTS:
        from probekit.models.skip_thoughts.encoder import word_reader

        return word_reader(folder, config, max_length)
    if config.model_type == BILSTM:
        from probekit.models.bilstm.reader import bilstm_reader

        reader: TextReader = bilstm_reader(folder, config, max_length)
        return reader
    return piece_reader(folder, config, max_length)


def parts_pairs(folder: Path) -> bool:
    """Whether a model reads the sentences of a pair in one sequence with a separator between them, like BERT."""
    if reads_apart(model_type(folder)):
        return False
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    special = text_reader(folder, config)([("a", "a")]).special
    text_pieces = np.flatnonzero(special == 0)
    return bool(len(text_pieces)) and bool(special[text_pieces[0] : text_pieces[-1]].any())


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
    decoder: bool = False,
    sites: Sequence[str] | str | None = None,
    blocks: Sequence[int | str] | str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
) -> Encoder:
    """Load a model with its tokenizer.

    Parameters
    ----------
    model : str | Path
        Hub id, local folder, ``elmo:OPTIONS,WEIGHTS`` or ``skip-thoughts:FOLDER``.
    dtype : Dtype | str, default Dtype.FLOAT32
        Precision of the model: float32, float16 or bfloat16.
    device : str, default "auto"
        auto, cpu, cuda, cuda:N or mps.
    random_weights : int, optional
        Re-initialise the model with this seed instead of reading its weights (a control).
    revision : str, optional
        Branch, tag or commit of the model on the hub.
    max_length : int, optional
        Truncate sequences to fewer pieces than the model can read.
    packing : Packing | str, default Packing.AUTO
        How sequences share a forward pass; AUTO takes the fast path if the architecture is known and a self-check
        agrees with the model's own forward pass, one sequence at a time.
    onednn : bool, default True
        On a CPU, prepack the weights of linear layers for oneDNN if it is available.
    compile : bool, default False
        Run each block through ``torch.compile`` (and not oneDNN); the last bits then depend on the batch.
    batch_tokens : int, optional
        Number of pieces in a batch; None takes a fast default.
    stateful : int, default 0
        For ELMo: 0 begins each sentence with an empty state. Another number is the size of batches that carry their
        state over to the next batch, as in the original.
    device_map : str | Mapping[str, Any], optional
        Spread a transformers model that is larger than one GPU over several, as transformers does it: "auto", or a
        device for each module. Hidden states are handed out on the first one.
    decoder : bool, default False
        Of an encoder-decoder, read the decoder instead of the encoder: both read the text, the decoder one piece later
        (see :class:`~probekit.models.transformers.text_decoder.TextDecoder`).

    Returns
    -------
    Encoder
        The model in inference mode, with ``tokenize`` and ``encode``.

    Raises
    ------
    ModelError
        If the model or its tokenizer cannot be loaded, or weights are missing.
    UsageError
        If dtype, device or packing is unknown, the model does not support ``max_length``, an option is for other kinds
        of models, or a site does not exist or is not proven.
    """
    folder = resolve_model(model, revision)
    kind = model_type(folder)
    dtype, packing = choice(Dtype, dtype), choice(Packing, packing)
    if stateful < 0:
        raise UsageError(f"stateful is {stateful}; expected the number of sentences in a batch, or 0.")
    if kind != ELMO and stateful:
        raise UsageError(f"stateful is for ELMo, whose LSTMs can carry over their state; {model} is of type {kind!r}.")
    if decoder and reads_apart(kind):
        raise UsageError(f"decoder is for encoder-decoders; {model} is of type {kind!r}.")
    if blocks is not None and sites is None:
        raise UsageError("blocks are those of sites; give sites, such as attn_out.")
    if not reads_apart(kind):
        encoder = load_transformer(
            model, dtype=dtype, device=device, random_weights=random_weights, revision=revision, max_length=max_length,
            packing=packing, onednn=onednn, compile=compile, batch_tokens=batch_tokens,
            device_map=device_map, decoder=decoder,
        )  # fmt: skip
        if sites is not None:
            from probekit.models.sites.selection import choose_sites

            choose_sites(encoder, sites, blocks)
        return encoder
    if device_map is not None:
        raise UsageError(f"device_map is for transformers; {model} is of type {kind!r}, which fits on one device.")
    if sites is not None:
        raise UsageError(f"sites are those of transformers; {model} is of type {kind!r}, which has only layers.")
    if packing is Packing.GROUPED or compile:
        option = "compile" if compile else "packing='grouped'"
        raise UsageError(f"{option} is for transformers; {model} is of type {kind!r}, which always runs packed.")
    from probekit.models.bilstm.encoder import load_bilstm
    from probekit.models.elmo.encoder import load_elmo
    from probekit.models.skip_thoughts.encoder import load_skip_thoughts

    arguments: dict[str, Any] = {
        "dtype": dtype, "device": device, "random_weights": random_weights, "revision": revision,
        "max_length": max_length, "onednn": onednn, "batch_tokens": batch_tokens,
    }  # fmt: skip
    if kind == ELMO:
        return load_elmo(model, stateful=stateful, **arguments)
    return load_bilstm(model, **arguments) if kind == BILSTM else load_skip_thoughts(model, **arguments)
