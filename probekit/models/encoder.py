"""The interface of a model: text in, one vector per layer and position out, without padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from probekit.display import facts_html
from probekit.errors import UsageError
from probekit.sites import Site

if TYPE_CHECKING:
    import torch

Words = tuple[str, ...]
Text = str | tuple[str, str] | tuple[Words] | tuple[Words, Words, Words]
"""Input for one sequence: a sentence, a pair read jointly, the words of a sentence (in a tuple of one), or
(context before, words, context after). As many context words as fit are read; these count as special pieces. A text
that already has its special pieces is a :class:`Rendered`."""


class Rendered(str):
    """A text with all its special pieces, as a chat template writes it: the tokenizer adds none.

    The special pieces in it count as special.
    """

    __slots__ = ()


Sink = Callable[[int, "torch.Tensor"], None]
"""Called as ``sink(i, hidden)`` once per site, in order; ``hidden`` (t, widths[i]) belongs to ``sites[i]``."""

Edit = Callable[[Site, "torch.Tensor"], "torch.Tensor"]
"""Called as ``edit(site, hidden)`` once per site, in order, with the rows (t, width) of the batch. It returns
their replacement, the same tensor or one with the same shape, dtype and device, and does not modify ``hidden``."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Concatenated sequences of word pieces: t pieces in s sequences.

    Attributes
    ----------
    token_ids : np.ndarray
        int32 (t,).
    length : np.ndarray
        int64 (s,), pieces of each sequence, including special ones; 0 if the model reads nothing.
    special : np.ndarray
        Bool (t,), whether the tokenizer added the piece ([CLS], <s>, …).
    type_ids : np.ndarray
        uint8 (t,), the segment of each piece (0 or 1), which the model reads as token type.
    word_index : np.ndarray
        int32 (t,), index of the word that the piece is part of: among the given words, or among those that the
        tokenizer's pre-tokenizer finds in plain text (without one, as in Gemma and Llama 2: that white space
        separates); -1 for special pieces. In a pair, the numbering continues in the second sentence.
    char_start, char_end : np.ndarray
        int32 (t,), the characters of the sentence (or of the given word) that the piece covers; 0, 0 for special
        pieces.
    truncated : np.ndarray
        Bool (s,), whether the text was truncated.
    characters : np.ndarray, optional
        int16 (v, 50), for an open vocabulary (ELMo): the characters of the distinct words, which ``token_ids`` index.
    """

    token_ids: np.ndarray
    length: np.ndarray
    special: np.ndarray
    type_ids: np.ndarray
    word_index: np.ndarray
    char_start: np.ndarray
    char_end: np.ndarray
    truncated: np.ndarray
    characters: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Concatenated whole sequences without padding; sequences of equal length are adjacent.

    Attributes
    ----------
    token_ids : np.ndarray
        int32 (t,).
    type_ids : np.ndarray
        uint8 (t,).
    length : np.ndarray
        int64 (s,), ascending, none of them 0, summing to t; for a stateful encoder in any order, with zeros.
    characters : np.ndarray, optional
        int16 (v, 50), the rows that ``token_ids`` index if the vocabulary is open; see :class:`Tokens`.
    """

    token_ids: np.ndarray
    type_ids: np.ndarray
    length: np.ndarray
    characters: np.ndarray | None = None


@runtime_checkable
class Encoder(Protocol):
    """A model that returns the hidden states of every layer.

    Attributes
    ----------
    name : str
        Name in tables and file names.
    spec : dict[str, Any]
        What determines the numbers, JSON values: revision, weights_digest, tokenizer_digest, random_weights (seed or
        None), dtype, device ("cpu", "cuda", …), cut_at (the max_length that was requested, or None), and more.
    versions : dict[str, Any]
        Further information (library versions, certificate), JSON values.
    sites : tuple[Site, ...]
        The sites that ``encode`` emits, in order: usually layers 0 … L of the residual stream, then the final norm if
        there is one. Layer 0 is the input of block 1, layer l the residual stream after block l.
    widths : tuple[int, ...]
        Width of each site.
    max_length : int
        Maximum number of pieces in a sequence, including special ones.
    mixed_lengths : bool
        Whether a batch may hold sequences of different lengths (packed); if not, all lengths are equal.
    batch_tokens : int
        Number of pieces in a batch for good speed.
    stateful : int
        Sentences per batch, for an encoder that carries its state from batch to batch (batches are then run in order);
        0 for other encoders, where the attribute may be missing.
    stops : bool
        Whether ``encode`` takes ``wanted``, the numbers of the sites that the caller keeps, and does not run the model
        beyond the last of them; may be missing.
    """

    name: str
    spec: dict[str, Any]
    versions: dict[str, Any]
    sites: tuple[Site, ...]
    widths: tuple[int, ...]
    max_length: int
    mixed_lengths: bool
    batch_tokens: int

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Word pieces of each text, as this model reads them."""

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Run the model and pass each site's hidden states, (t, width) in the batch's order, to ``sink``.

        The hidden states that ``edit`` returns replace those of the site, in the sink and in the rest of the model.
        """


class Shown:
    """The repr of an encoder: its properties, not its weights."""

    def __repr__(self: Encoder) -> str:
        spec = self.spec
        return f"<{self.name}: layers {spec['layers'][0]} … {spec['layers'][-1]}, {spec['dtype']} on {spec['device']}>"

    def _repr_html_(self: Encoder) -> str:
        shown_keys = (
            "model_type",
            "class",
            "checkpoint",
            "step",
            "random_weights",
            "dtype",
            "device",
            "path",
            "max_length",
        )
        facts = {name.replace("_", " "): self.spec[name] for name in shown_keys if self.spec.get(name) is not None}
        widths = dict.fromkeys(self.widths)
        layers = {"layers": ", ".join(map(str, self.sites)), "width": ", ".join(map(str, widths))}
        return facts_html(f"Model {self.name}", layers | facts)


def edited(edit: Edit | None, site: Site, hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states after an edit; raises UsageError if their shape, dtype or device differ."""
    if edit is None:
        return hidden
    new = edit(site, hidden)
    if (new.shape, new.dtype, new.device) != (hidden.shape, hidden.dtype, hidden.device):
        raise UsageError(
            f"the edit of {site} returned {tuple(new.shape)} {new.dtype} on {new.device}; expected "
            f"{tuple(hidden.shape)} {hidden.dtype} on {hidden.device}."
        )
    return new


def begin_states(encoder: Encoder) -> int:
    """Reset the state of a stateful encoder; returns the number of sentences in its batches, 0 for other encoders."""
    stateful = int(getattr(encoder, "stateful", 0))
    if stateful:
        encoder.state = None  # type: ignore[attr-defined]  # only stateful encoders have it
    return stateful


def padded(batch: Batch, longest: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of a batch as a matrix, int64 (s, longest), padded with 0 on the right, and a bool mask."""
    mask = np.arange(max(longest, int(batch.length.max(initial=0)))) < batch.length[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = batch.token_ids
    return ids, mask
