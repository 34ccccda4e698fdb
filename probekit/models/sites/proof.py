"""The proof of a model's sites: identities that hold if each was read at the right place and time, and only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from probekit.errors import UsageError
from probekit.models.adapted.virtual import virtual_tokens
from probekit.models.encoder import Batch
from probekit.models.sites.errors import TOLERANCE, vector_error
from probekit.models.sites.find import Found, find_sites
from probekit.models.sites.identities import Identity, block_identities, model_identities
from probekit.models.sites.recording import eager, record
from probekit.models.sites.taps import Tap
from probekit.sites import NAMES, RESID_PRE, RESIDUAL, Site, residual_stream

__all__ = ["PATH_TOLERANCE", "Proof", "Proofs", "prove"]

PATH_TOLERANCE = {torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""Relative error of a vector between the model's own attention and the encoder's, 1e-4 in other precisions; as in the
self-check of the encoder."""

INTERNAL = ("block_out", "router_in", "attn_normed", "mlp_normed")
"""What identities are computed with, beside the sites."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was shown of one site.

    Attributes
    ----------
    site : Site
        The site.
    width : int
        Its width; 0 if it was not read, or has none.
    error : float or None
        The largest error of its identities, relative; None if none could be computed.
    identity : str
        The identities, in the names of sites.
    refusal : str
        Why it is not handed out; "" if it is proven.
    lacking : bool
        Whether it is not handed out because the model has no such site, or none that can be found.
    copied : bool
        Whether the model overwrites it later, so that a copy is handed out.
    """

    site: Site
    width: int = 0
    error: float | None = None
    identity: str = ""
    refusal: str = ""
    lacking: bool = False
    copied: bool = False

    @property
    def name(self) -> str:
        """The site's name and its block, or only the name: "resid_post.3" is layer 4."""
        if self.site.layer is None:
            return self.site.name
        return f"{self.site.name}.{self.site.layer - (self.site.name == RESIDUAL)}"


@dataclass(slots=True)
class Proofs:
    """The proofs of all sites of a model, in the order in which it computes them, those it lacks last.

    Attributes
    ----------
    found : Found
        Where they are read.
    proofs : dict of Site to Proof
        The proofs.
    """

    found: Found
    proofs: dict[Site, Proof] = field(default_factory=dict)


@dataclass(slots=True)
class _Values:
    """The sites of a batch as they were handed out, copied at once."""

    copies: dict[Site, torch.Tensor] = field(default_factory=dict)
    overwritten: set[Site] = field(default_factory=set)
    twice: set[Site] = field(default_factory=set)


def prove(encoder: Any, found: Found | None = None) -> Proofs:
    """Find a model's sites, read them as analyses do, and prove them.

    The encoder reads two random sequences with the model's own eager attention, one at a time, and then in its own way
    (packed). In each pass, identities connect every site with the residual stream, which is compared with the hidden
    states that the model itself returns.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The model.
    found : Found, optional
        Where the sites are; by default :func:`find_sites` finds them.

    Raises
    ------
    UsageError
        If trained vectors are read before each text, or the blocks are compiled: neither is read module by module.
    """
    if virtual_tokens(encoder.model.config):
        raise UsageError(f"{encoder.name} reads trained vectors before each text; only its layers can be read.")
    if encoder.spec.get("compile"):
        raise UsageError(f"{encoder.name} is compiled; load it without compile to read sites inside its blocks.")
    batches = _random(encoder)
    found = found or find_sites(encoder.model, record(encoder, batches[-1]))
    stream = residual_stream(encoder.depth, final_norm=encoder.final_norm)
    pre = [Site(RESID_PRE, b) for b in range(encoder.depth)]
    outputs = {Site("block_out", b): Tap(b, "") for b in range(encoder.depth)}
    taps = {**outputs, **found.taps}
    with encoder.reading([*stream, *pre, *taps], taps, found.blocks):
        with eager(encoder):
            alone = [_read(encoder, batch) for batch in batches]
        together = _read(encoder, _joined(batches) if encoder.mixed_lengths else batches[-1])
    identities = [
        *(x for batch, run in zip(batches, alone, strict=True) for x in _identities(encoder, found, run, batch)),
        *_identities(encoder, found, together, None),
    ]
    different = _different(encoder, found, alone, together)
    return _conclude(encoder, found, [*alone, together], identities, different)


def _random(encoder: Any) -> list[Batch]:
    """Two random sequences of different lengths."""
    rng, vocabulary = np.random.default_rng(0), encoder.model.config.vocab_size
    return [
        Batch(rng.integers(vocabulary, size=k), rng.integers(2, size=k).astype(np.uint8), np.array([k]))
        for k in (min(5, encoder.max_length), min(9, encoder.max_length))
    ]


def _joined(batches: Sequence[Batch]) -> Batch:
    return Batch(*(np.concatenate([getattr(b, f) for b in batches]) for f in ("token_ids", "type_ids", "length")))


def _read(encoder: Any, batch: Batch) -> _Values:
    """Read all sites of a batch, and note which were overwritten after they were handed out."""
    values, handed = _Values(), dict[Site, torch.Tensor]()

    def sink(i: int, rows: torch.Tensor) -> None:
        site = encoder.sites[i]
        if site in handed:
            values.twice.add(site)
        handed[site], values.copies[site] = rows, rows.clone()

    encoder.encode(batch, sink)
    values.overwritten = {site for site, rows in handed.items() if not torch.equal(rows, values.copies[site])}
    return values


def _identities(encoder: Any, found: Found, run: _Values, batch: Batch | None) -> list[Identity]:
    """The identities of a pass; of one that ran the model's own way also those of attention and hidden states."""
    probabilities: Sequence[torch.Tensor | None] = [None] * encoder.depth
    own = ids = None
    with torch.inference_mode():
        if batch is not None:
            ids = torch.from_numpy(np.asarray(batch.token_ids, dtype=np.int64))
            with eager(encoder):
                output = encoder.model(**encoder._inputs(batch), output_hidden_states=True, output_attentions=True)
            own = [hidden.reshape(-1, encoder.width) for hidden in output.hidden_states]
            if output.attentions is not None and len(output.attentions) == encoder.depth:
                probabilities = [None if part is None else part[0] for part in output.attentions]
        blocks = [
            x
            for b, layout in enumerate(found.layouts)
            for x in block_identities(b, found.blocks[b], layout, run.copies, probabilities[b])
        ]
        return [*model_identities(encoder, found, run.copies, own, ids), *blocks]


def _different(encoder: Any, found: Found, alone: Sequence[_Values], together: _Values) -> dict[Site, float]:
    """The values of the heads that differ between the model's own attention and the encoder's, by how much.

    No identity but that of the attention probabilities connects them with the stream, and only eager attention returns
    these. A router may choose other experts after a difference of one bit, so mixtures of experts are left out.
    """
    if any(layout.router for layout in found.layouts):
        return {}
    runs = alone if encoder.mixed_lengths else alone[-1:]
    different = {}
    for site, rows in together.copies.items():
        if site.name == "value" and all(site in run.copies for run in runs):
            error = vector_error(rows, torch.cat([run.copies[site] for run in runs]))
            if error > PATH_TOLERANCE.get(rows.dtype, 1e-4):
                different[site] = error
    return different


def _conclude(
    encoder: Any,
    found: Found,
    runs: Sequence[_Values],
    identities: Sequence[Identity],
    different: Mapping[Site, float],
) -> Proofs:
    """Proofs of all sites: each of its identities holds, and all sites that they rest on are proven."""
    proofs: dict[Site, Proof] = {}
    by_site: dict[Site, list[Identity]] = {}
    for identity in identities:
        by_site.setdefault(identity.site, []).append(identity)
    probabilities = [Site("attn_probs", b) for b in range(encoder.depth)]
    order = [s for s in dict.fromkeys([*runs[-1].copies, *found.taps, *probabilities]) if s.name not in INTERNAL]

    def proof(site: Site) -> Proof:
        if site not in proofs:
            proofs[site] = _proof(site)
        return proofs[site]

    def _proof(site: Site) -> Proof:
        own, tap = by_site.get(site, []), found.taps.get(site)
        rows = runs[-1].copies.get(site)
        width = 0 if rows is None else rows.shape[-1]
        error = max((x.error for x in own), default=None)
        text = "; ".join(dict.fromkeys(x.text for x in own))
        copied = any(site in run.overwritten for run in runs)
        why = found.missing.get(site, "")
        if tap is not None and any(site not in run.copies for run in runs):
            why = f"the module {tap.path or 'of the block'} is not called in every pass"
        elif any(site in run.twice for run in runs):
            why = "its module is called more than once in a block"
        elif not why and error is None:
            why = "no identity connects it with the residual stream"
        elif not why and error is not None and error > (allowed := TOLERANCE[next(encoder.model.parameters()).dtype]):
            worst = max(own, key=lambda x: x.error)
            why = f"{worst.text} is wrong by {worst.error:.1e} (rounding explains {allowed:.0e})"
        elif not why and site in different:
            why = f"it differs by {different[site]:.1e} between the model's own attention and the encoder's"
        elif not why:
            unproven = [x for identity in own for x in identity.rests_on if proof(x).refusal]
            why = f"it is checked by {proof(unproven[0]).name}, which is not proven" if unproven else ""
        return Proof(site, width, error, text, why, site in found.missing, copied)

    for site in order:
        proof(site)
    everything = {name: i for i, name in enumerate(NAMES)}
    for site in sorted(found.missing.keys() - proofs.keys(), key=lambda s: (s.layer or 0, everything[s.name])):
        proofs[site] = Proof(site, refusal=found.missing[site], lacking=True)
    return Proofs(found, {site: proofs[site] for site in [*order, *proofs] if site in proofs})
