"""Sizes and switches of the BiLSTM encoder of Bowman et al. (2018)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from probekit.errors import UsageError
from probekit.models.elmo.model import ElmoConfig


class Input(StrEnum):
    """What the first LSTM reads."""

    CHARACTERS = "characters"  # the vectors of ELMo's character CNN
    ELMO = "elmo"  # all layers of ELMo, frozen, in a learned mix
    PIECES = "pieces"  # embeddings of a tokenizer's word pieces
    WORDS = "words"  # embeddings of the words of a vocabulary


class Directions(StrEnum):
    """What the LSTMs above the first layer read."""

    JOINT = "joint"  # both directions of the layer below, like a stacked torch.nn.LSTM
    SEPARATE = "separate"  # their own direction, as language models must


ELMO_SIZES = tuple(name for name in inspect.signature(ElmoConfig).parameters if name != "kwargs")
"""The settings of an ELMo, all of which config.json holds."""


class BiLSTMConfig(PretrainedConfig):
    """Sizes and switches; the defaults are those of Bowman et al. (2018, section 4).

    Attributes
    ----------
    input : Input
        Input of the first LSTM.
    cells : int, default 1024
        Size of each direction of each LSTM.
    num_hidden_layers : int, default 2
        LSTM layers.
    directions : Directions, default Directions.JOINT
        Whether layers above the first read both directions of the layer below, or only their own.
    skip : bool, default True
        Append the input to the states of the top layer: the output is [top; input].
    dropout : float, default 0.2
        Probability in training, on the input (once, for the LSTM and the skip connection) and on the top layer's
        states, as in the original; there is none between the layers.
    embedding_size : int, default 512
        Width of the input: of trained embeddings, or as ``elmo`` determines it.
    embedding_std : float, optional
        Standard deviation of the initial trained embeddings (default: Glorot uniform, as in the original, which for a
        large vocabulary is so small that a task model learns next to nothing from the untrained encoder).
    vocab_size : int, optional
        Rows of the trained embeddings.
    elmo : dict[str, Any], optional
        Settings of :class:`~probekit.models.elmo.model.ElmoConfig` for the inputs "characters" (without LSTMs) and
        "elmo".
    frozen : bool, default True
        Whether the weights of ``elmo`` come from an ELMo and are never changed: neither by training nor by random
        weights, which are Bowman et al.'s baseline.
    frozen_digest : str, optional
        Digest of the frozen weights.
    """

    model_type = "bilstm"

    def __init__(
        self,
        input: Input | str = Input.CHARACTERS,
        cells: int = 1024,
        num_hidden_layers: int = 2,
        directions: Directions | str = Directions.JOINT,
        skip: bool = True,
        dropout: float = 0.2,
        embedding_size: int = 512,
        embedding_std: float | None = None,
        vocab_size: int | None = None,
        elmo: Mapping[str, Any] | None = None,
        frozen: bool = True,
        frozen_digest: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.input = str(_member("input", Input, input))
        self.directions = str(_member("directions", Directions, directions))
        sizes = {"cells": cells, "num_hidden_layers": num_hidden_layers, "embedding_size": embedding_size}
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                raise UsageError(f"{name} is {size!r}; expected a whole number of at least 1.")
        if not 0 <= dropout < 1:
            raise UsageError(f"dropout is {dropout!r}; expected a number from 0 to below 1.")
        self.cells, self.num_hidden_layers, self.skip, self.dropout = cells, num_hidden_layers, skip, dropout
        if embedding_std is not None and not 0 < embedding_std < inf:
            raise UsageError(f"embedding_std is {embedding_std!r}; expected a number above 0.")
        self.embedding_std = embedding_std
        self.vocab_size, self.frozen, self.frozen_digest = vocab_size, frozen, frozen_digest
        self.elmo: dict[str, Any] = {}
        if self.reads_characters:
            if unknown := {*(elmo or {})} - {*ELMO_SIZES}:
                raise UsageError(f"elmo has no setting {min(unknown)!r}; expected some of {', '.join(ELMO_SIZES)}.")
            full = ElmoConfig(**(elmo or {}))
            self.elmo = {name: getattr(full, name) for name in ELMO_SIZES}
            if self.input == Input.CHARACTERS:
                self.elmo["num_hidden_layers"] = 0
            embedding_size = full.projection_dim * (2 if self.input == Input.ELMO else 1)
        self.embedding_size = embedding_size
        width = 2 * cells + skip * embedding_size
        if kwargs.pop("hidden_size", width) != width:
            raise UsageError(
                f"hidden_size is the width of the output, here {width}; leave it out and set cells, the size of each "
                "direction."
            )
        self.hidden_size = width
        super().__init__(**{**kwargs, "tie_word_embeddings": False})

    @property
    def reads_characters(self) -> bool:
        """Whether the input is computed from the characters of words."""
        return self.input in (Input.CHARACTERS, Input.ELMO)


def _member(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}; expected one of {', '.join(kind)}.") from None


AutoConfig.register(BiLSTMConfig.model_type, BiLSTMConfig)
