"""Load any model that probekit reads, by folder, hub id or published files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probekit.calls import keywords
from probekit.errors import UsageError
from probekit.models.encoder import Encoder, Text, Tokens
from probekit.models.find import resolve_model
from probekit.models.folder import model_type
from probekit.models.kinds import kinds
from probekit.models.options import LoadOptions, Packing
from probekit.models.transformers.encoder import load_layers
from probekit.models.transformers.encoder import text_reader as piece_reader
from probekit.plugins import load


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
    if config.model_type in kinds():
        reader: TextReader = load(kinds()[config.model_type].reader)(folder, config, max_length)
        return reader
    return piece_reader(folder, config, max_length)


def parts_pairs(folder: Path) -> bool:
    """Whether a model reads the sentences of a pair in one sequence with a separator between them, like BERT."""
    if model_type(folder) in kinds():
        return False
    from probekit.models.folder import configuration

    config = configuration(folder)
    special = text_reader(folder, config)([("a", "a")]).special
    text_pieces = np.flatnonzero(special == 0)
    return bool(len(text_pieces)) and bool(special[text_pieces[0] : text_pieces[-1]].any())


@keywords(options=LoadOptions)
def load_encoder(model: str | Path, *, options: LoadOptions) -> Encoder:
    """Load a model with its tokenizer.

    Parameters
    ----------
    model : str | Path
        Hub id, local folder, ``BASE+ADAPTER`` of peft, ``elmo:OPTIONS,WEIGHTS``, ``skip-thoughts:FOLDER`` or
        ``vectors:FILE``.
    options : LoadOptions
        ``dtype``, ``device`` …, as keyword arguments.

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
    kind = model_type(resolve_model(model, options.revision))
    own = kinds().get(kind)
    if options.stateful and not (own and own.stateful):
        raise UsageError(f"stateful is for ELMo, whose LSTMs can carry over their state; {model} is of type {kind!r}.")
    if own is None:
        encoder = load_layers(model, options)
        if options.sites is not None:
            from probekit.models.sites.selection import choose_sites

            choose_sites(encoder, options.sites, options.blocks)
        return encoder
    if options.decoder:
        raise UsageError(f"decoder is for encoder-decoders; {model} is of type {kind!r}.")
    for name in ("attention", "quantise"):
        if getattr(options, name) is not None:
            raise UsageError(f"{name} is for transformers; {model} is of type {kind!r}.")
    if options.tp_plan is not None:
        raise UsageError(f"tp_plan is for transformers; {model} is of type {kind!r}, which fits on one device.")
    if options.device_map is not None:
        raise UsageError(f"device_map is for transformers; {model} is of type {kind!r}, which fits on one device.")
    if options.sites is not None:
        raise UsageError(f"sites are those of transformers; {model} is of type {kind!r}, which has only layers.")
    if options.packing is Packing.GROUPED or options.compile:
        option = "compile" if options.compile else "packing='grouped'"
        raise UsageError(f"{option} is for transformers; {model} is of type {kind!r}, which always runs packed.")
    loaded: Encoder = load(own.load)(model, options)
    return loaded
