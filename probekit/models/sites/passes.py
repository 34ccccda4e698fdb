"""The forward passes of a proof: every site of random sequences as it is handed out, and what identities follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from probekit.models.encoder import Batch
from probekit.models.sites.errors import vector_error
from probekit.models.sites.find import Found
from probekit.models.sites.identities import Identity, block_identities, model_identities
from probekit.models.sites.recording import eager, probabilities_of
from probekit.models.sites.taps import Tap
from probekit.models.transformers.ranks import SAME
from probekit.sites import RESID_PRE, Site, residual_stream

__all__ = ["Pass", "Passes", "random_batches", "run_passes", "slices_of"]

PATH_TOLERANCE = {torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""Relative error of a vector between the model's own attention and the encoder's, 1e-4 in other precisions; as in the
self-check of the encoder."""


@dataclass(slots=True)
class Pass:
    """The sites of a batch as they were handed out.

    Attributes
    ----------
    copies : dict of Site to torch.Tensor
        (t, width) each, copied at once.
    overwritten : set of Site
        Those whose tensor was changed later in the pass.
    twice : set of Site
        Those that were handed out more than once.
    """

    copies: dict[Site, torch.Tensor] = field(default_factory=dict)
    overwritten: set[Site] = field(default_factory=set)
    twice: set[Site] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Passes:
    """All passes of a proof.

    Attributes
    ----------
    alone : list of Pass
        One sequence at a time, with the model's own eager attention.
    together : Pass
        The way of the encoder: packed, if it does so.
    identities : list of Identity
        The identities of all passes.
    different : dict of Site to float
        The values and z of heads in which the two ways differ, and by how much.
    """

    alone: list[Pass]
    together: Pass
    identities: list[Identity]
    different: dict[Site, float]

    def __iter__(self) -> Any:
        return iter([*self.alone, self.together])


def random_batches(encoder: Any) -> list[Batch]:
    """Two random sequences of different lengths."""
    rng, vocabulary = np.random.default_rng(0), encoder.model.config.vocab_size
    return [
        Batch(rng.integers(vocabulary, size=k), rng.integers(2, size=k).astype(np.uint8), np.array([k]))
        for k in (min(5, encoder.max_length), min(9, encoder.max_length))
    ]


def run_passes(encoder: Any, found: Found, batches: Sequence[Batch]) -> Passes:
    """Read all sites of each batch, of one sequence, alone and together."""
    stream = residual_stream(encoder.depth, final_norm=encoder.final_norm)
    pre = [Site(RESID_PRE, b) for b in range(encoder.depth)]
    taps = {**{Site("block_out", b): Tap(b, "") for b in range(encoder.depth)}, **found.taps}
    joined = Batch(*(np.concatenate([getattr(b, f) for b in batches]) for f in ("token_ids", "type_ids", "length")))
    with encoder.reading([*stream, *pre, *taps], taps, found.blocks):
        with eager(encoder):
            alone = [_read(encoder, batch) for batch in batches]
        together = _read(encoder, joined if encoder.mixed_lengths else batches[-1])
    identities = [x for batch, one in zip(batches, alone, strict=True) for x in _identities(encoder, found, one, batch)]
    identities += _identities(encoder, found, together, None)
    return Passes(alone, together, identities, _different(encoder, found, alone, together))


def slices_of(encoder: Any, found: Found, batch: Batch) -> dict[Site, tuple[int, ...]]:
    """The sites of which the processes that share a model see different rows, and their widths in each.

    Every process runs the same pass, and compares each site with the others. A slice of heads or of the MLP's
    activations is different, and so is a term of a sum that is not yet added up.
    """
    with encoder.reading([*found.taps], found.taps, found.blocks):
        rows = _read(encoder, batch).copies
    return {
        site: encoder.ranks.widths(rows[site])
        for site in found.taps
        if site in rows and encoder.ranks.different(rows[site]) > SAME
    }


def whole_heads(encoder: Any, probabilities: torch.Tensor) -> torch.Tensor:
    """The attention probabilities (heads, t, t) of all heads, if each process has those of some."""
    if encoder.ranks is None or encoder.ranks.different(probabilities.flatten(1).T) <= SAME:
        return probabilities
    joined: torch.Tensor = encoder.ranks.joined(probabilities.permute(1, 2, 0))
    return joined.permute(2, 0, 1)


def _read(encoder: Any, batch: Batch) -> Pass:
    """Read all sites of a batch, and note which were overwritten after they were handed out."""
    values, handed = Pass(), dict[Site, torch.Tensor]()

    def sink(i: int, rows: torch.Tensor) -> None:
        site = encoder.sites[i]
        if site in handed:
            values.twice.add(site)
        handed[site], values.copies[site] = rows, rows.clone()

    encoder.encode(batch, sink)
    values.overwritten = {site for site, rows in handed.items() if not torch.equal(rows, values.copies[site])}
    return values


def _identities(encoder: Any, found: Found, run: Pass, batch: Batch | None) -> list[Identity]:
    """The identities of a pass; of one that ran the model's own way also those of attention and hidden states."""
    probabilities: Sequence[torch.Tensor | None] = [None] * encoder.depth
    own = ids = None
    with torch.inference_mode():
        if batch is not None:
            ids = torch.from_numpy(np.asarray(batch.token_ids, dtype=np.int64))
            with eager(encoder):
                inputs = encoder.inputs(batch)
                states = encoder.model(**inputs, output_hidden_states=True).hidden_states
                attended = encoder.model(**inputs, output_attentions=True)  # may run otherwise (Falcon)
            own = [hidden.reshape(-1, encoder.width) for hidden in states]
            attentions = probabilities_of(attended, encoder.depth, len(ids))
            probabilities = [None if part is None else whole_heads(encoder, part) for part in attentions]
        blocks = [
            x
            for b, layout in enumerate(found.layouts)
            for x in block_identities(b, found.blocks[b], layout, run.copies, probabilities[b])
        ]
        return [*model_identities(encoder, found, run.copies, own, ids), *blocks]


def _different(encoder: Any, found: Found, alone: Sequence[Pass], together: Pass) -> dict[Site, float]:
    """The values and z that differ between the model's own attention and the encoder's, and by how much.

    It may be that only the attention probabilities connect them with the stream, and only eager attention returns
    these. A router may choose other experts after a difference of one bit, so mixtures of experts are left out.
    """
    if any(layout.router for layout in found.layouts):
        return {}
    runs = alone if encoder.mixed_lengths else alone[-1:]
    different = {}
    for site, rows in together.copies.items():
        if site.name in ("value", "z") and all(site in run.copies for run in runs):
            error = vector_error(rows, torch.cat([run.copies[site] for run in runs]))
            if error > PATH_TOLERANCE.get(rows.dtype, 1e-4):
                different[site] = error
    return different
