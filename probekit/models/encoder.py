"""What the rest of probekit asks of a model: text in, one vector a layer and a position out, never any padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from probekit.display import facts_html
from probekit.errors import UsageError
from probekit.sites import Site

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Edit", "Encoder", "Shown", "Sink", "Text", "Tokens", "begin_states", "edited", "join", "padded"]

Words = tuple[str, ...]
Text = str | tuple[str, str] | tuple[Words] | tuple[Words, Words, Words]
"""What is read as one sequence: a sentence, a pair read jointly, (in a tuple of one) the words of a sentence, or these
between words of its context, of which as many are read as there is room for: they count as special, and as no word."""

Sink = Callable[[int, "torch.Tensor"], None]
"""Called as ``sink(i, hidden)`` once a site, in order; ``hidden`` (t, widths[i]) belongs to ``sites[i]``."""

Edit = Callable[[Site, "torch.Tensor"], "torch.Tensor"]
"""Called as ``edit(site, hidden)`` once a site, in order, with the rows (t, width) of the batch. It returns what
goes on in their place, the same tensor or another of its shape, dtype and device, and changes nothing in place."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sequences of word pieces, one after another. t pieces in s sequences.

    Attributes
    ----------
    token_ids : np.ndarray
        int32 (t,).
    length : np.ndarray
        int64 (s,), pieces of each sequence, special ones counted; 0 where the model reads nothing.
    special : np.ndarray
        Bool (t,), whether the tokenizer added the piece ([CLS], <s>, …).
    type_ids : np.ndarray
        uint8 (t,), the segment a piece belongs to, as the model is told (0 or 1).
    word_index : np.ndarray
        int32 (t,), index of the word that the piece is part of: of the given words, or of the words that the
        tokenizer's own pre-tokenizer finds in plain text; -1 for special pieces. Words of the second sentence of a pair
        count on from those of the first.
    char_start, char_end : np.ndarray
        int32 (t,), characters of the sentence (or the given word) that the piece covers; 0, 0 for special pieces.
    truncated : np.ndarray
        Bool (s,), whether something of the text was cut off.
    characters : np.ndarray, optional
        int16 (v, 50), where the vocabulary is open (ELMo): the distinct words, which ``token_ids`` number.
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
    """Whole sequences, one after another, without padding; sequences of equal length stand together.

    Attributes
    ----------
    token_ids : np.ndarray
        int32 (t,).
    type_ids : np.ndarray
        uint8 (t,).
    length : np.ndarray
        int64 (s,), ascending, none of them 0, summing to t; for a stateful encoder in any order, with zeros.
    characters : np.ndarray, optional
        int16 (v, 50), what ``token_ids`` number where the vocabulary is open; see :class:`Tokens`.
    """

    token_ids: np.ndarray
    type_ids: np.ndarray
    length: np.ndarray
    characters: np.ndarray | None = None


@runtime_checkable
class Encoder(Protocol):
    """A model that gives every layer's hidden states.

    Attributes
    ----------
    name : str
        For tables and file names.
    spec : dict[str, Any]
        What determines the numbers, JSON values: revision, weights_digest, tokenizer_digest, random_weights (seed or
        None), dtype, device ("cpu", "cuda", …), cut_at (a maximal length that was asked for, or None), and more.
    versions : dict[str, Any]
        What else is worth knowing (library versions, certificate), JSON values.
    sites : tuple[Site, ...]
        What ``encode`` emits, in order: usually the layers 0 … L of the residual stream, then the final norm where
        there is one. Layer 0 is what enters block 1, layer l the residual stream after block l.
    widths : tuple[int, ...]
        D of each site.
    max_length : int
        The most pieces of a sequence, special ones counted.
    mixed_lengths : bool
        Whether one batch may hold sequences of different lengths (packed); if not, all are equal.
    batch_tokens : int
        Pieces a batch should hold for good speed.
    stateful : int
        Sentences in a batch of an encoder that carries its state from batch to batch, which are then run in order; 0
        for all others, where the attribute may be missing.
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
        """Run the model and hand each site's hidden states, (t, width) in the batch's order, to ``sink``.

        What ``edit`` returns of a site is what the sink is given and what all that is above is computed from.
        """


class Shown:
    """How an encoder shows itself: what it is, not its weights."""

    def __repr__(self: Encoder) -> str:
        told = self.spec
        return f"<{self.name}: layers {told['layers'][0]} … {told['layers'][-1]}, {told['dtype']} on {told['device']}>"

    def _repr_html_(self: Encoder) -> str:
        told = ("model_type", "class", "checkpoint", "step", "random_weights", "dtype", "device", "path", "max_length")
        facts = {name.replace("_", " "): self.spec[name] for name in told if self.spec.get(name) is not None}
        widths = dict.fromkeys(self.widths)
        layers = {"layers": ", ".join(map(str, self.sites)), "width": ", ".join(map(str, widths))}
        return facts_html(f"Model {self.name}", layers | facts)


def edited(edit: Edit | None, site: Site, hidden: torch.Tensor) -> torch.Tensor:
    """What an edit makes of hidden states; UsageError where that does not fit in their place."""
    if edit is None:
        return hidden
    new = edit(site, hidden)
    if (new.shape, new.dtype, new.device) != (hidden.shape, hidden.dtype, hidden.device):
        raise UsageError(
            f"the edit of {site} gave {tuple(new.shape)} {new.dtype} on {new.device}; wanted "
            f"{tuple(hidden.shape)} {hidden.dtype} on {hidden.device}."
        )
    return new


def join(parts: Sequence[Tokens]) -> Tokens:
    """The sequences of all parts, one part after another; words of an open vocabulary are numbered anew."""
    columns = {f.name: [getattr(p, f.name) for p in parts] for f in fields(Tokens)}
    tables = columns.pop("characters")
    if any(table is not None for table in tables):
        seen: dict[bytes, int] = {}
        numbers = [np.array([seen.setdefault(row.tobytes(), len(seen)) for row in table], np.int32) for table in tables]
        columns["token_ids"] = [new[old] for new, old in zip(numbers, columns["token_ids"], strict=True)]
        wide = tables[0].shape[1]
        table = np.frombuffer(b"".join(seen), np.int16).reshape(-1, wide)
        return Tokens(**{name: np.concatenate(x) for name, x in columns.items()}, characters=table)
    return Tokens(**{name: np.concatenate(x) for name, x in columns.items()})


def begin_states(encoder: Encoder) -> int:
    """Let a stateful encoder forget what it has read; returns how many sentences its batches have, 0 of all others."""
    stateful = int(getattr(encoder, "stateful", 0))
    if stateful:
        encoder.state = None  # type: ignore[attr-defined]  # of stateful encoders only
    return stateful


def padded(batch: Batch, longest: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of a batch side by side, int64 (s, longest) with 0 at padding on the right, and bool, what is none."""
    mask = np.arange(max(longest, int(batch.length.max(initial=0)))) < batch.length[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = batch.token_ids
    return ids, mask
