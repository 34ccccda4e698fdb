"""The proof of a model's sites: identities that hold if each was read at the right place and time, and only then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
from probekit.models.sites.recording import eager, probabilities_of, record
from probekit.models.sites.taps import Tap
from probekit.models.transformers.ranks import SAME
from probekit.sites import NAMES, RESID_PRE, RESIDUAL, Site, residual_stream

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
        If trained vectors are read before each text, or padding after it, or the blocks are compiled: none of these is
        read module by module.
    ModelError
        If the model's own code fails, for example with eager attention.
    """
    from probekit.models.transformers.encoder import raise_in_words  # which imports the taps

    if virtual_tokens(encoder.model.config):
        raise UsageError(f"{encoder.name} reads trained vectors before each text; only its layers can be read.")
    if encoder.filled:
        raise UsageError(f"{encoder.name} fills up each text to a multiple of a window; only its layers can be read.")
    if encoder.spec.get("compile"):
        raise UsageError(f"{encoder.name} is compiled; load it without compile to read sites inside its blocks.")
    batches = random_batches(encoder)
    try:
        found = found or find_sites(encoder.model, record(encoder, batches[-1]))
        if encoder.ranks is not None:
            _share_out(encoder, found, batches[-1])
        passes = run_passes(encoder, found, batches)
    except Exception as error:  # eager attention that is wrong in transformers itself …
        raise_in_words(encoder.name, error)
    verdicts = _Verdicts(encoder, found, passes)
    return Proofs(found, {site: verdicts.proof(site) for site in verdicts.sites})


def _share_out(encoder: Any, found: Found, batch: Batch) -> None:
    """Let an encoder of several processes join the sites of which each sees a slice; the proof then is of the whole.

    Raises
    ------
    UsageError
        If the processes do not find the same sites.
    """
    if not encoder.ranks.agree(repr((sorted(map(str, found.taps)), found.layouts, found.final_norm))):
        raise UsageError(f"{encoder.name}: the processes that share the model do not find the same sites in it.")
    encoder.slices = {}
    encoder.slices = slices_of(encoder, found, batch)


class _Verdicts:
    """Decides which sites are proven: all their identities hold, and all sites that these rest on are proven."""

    def __init__(self, encoder: Any, found: Found, passes: Passes) -> None:
        self.found, self.passes, self.proofs, self.slices = found, passes, dict[Site, Proof](), encoder.slices
        self.identities: dict[Site, list[Identity]] = defaultdict(list)
        for identity in passes.identities:
            self.identities[identity.site].append(identity)
        read, names = passes.together.copies, [*NAMES]
        self.allowed = TOLERANCE[read[Site(RESIDUAL, 0)].dtype]
        lacking = sorted(found.missing, key=lambda site: (site.layer or 0, names.index(site.name)))
        probabilities = [Site("attn_probs", b) for b in range(encoder.depth)]
        order = dict.fromkeys([*read, *found.taps, *probabilities, *lacking])
        self.sites = [site for site in order if site.name not in INTERNAL]

    def proof(self, site: Site) -> Proof:
        """The proof of a site, or why there is none."""
        if site not in self.proofs:
            identities, rows = self.identities[site], self.passes.together.copies.get(site)
            self.proofs[site] = Proof(
                site,
                0 if rows is None else rows.shape[-1],
                max((x.error for x in identities), default=None),
                "; ".join(dict.fromkeys(x.text for x in identities)),
                self.refusal(site, identities),
                site in self.found.missing,
                any(site in one.overwritten for one in self.passes),
            )
        return self.proofs[site]

    def refusal(self, site: Site, identities: list[Identity]) -> str:
        """Why a site is not handed out; "" if it is proven."""
        if site in self.found.missing:
            return self.found.missing[site]
        if site.name == "attn_probs" and Site("z", site.layer) in self.slices:
            return "each process that shares the model sees some of the heads"
        tap, different = self.found.taps.get(site), self.passes.different.get(site)
        if tap is not None and any(site not in one.copies for one in self.passes):
            return f"the module {tap.path or 'of the block'} is not called in every pass"
        if any(site in one.twice for one in self.passes):
            return "its module is called more than once in a block"
        if not identities:
            return "no identity connects it with the residual stream"
        worst = max(identities, key=lambda x: x.error)
        if worst.error > self.allowed:
            return f"{worst.text} is wrong by {worst.error:.1e} (rounding explains {self.allowed:.0e})"
        if different is not None:
            return f"it differs by {different:.1e} between the model's own attention and the encoder's"
        unproven = [x for identity in identities for x in identity.rests_on if self.proof(x).refusal]
        return f"it is checked by {self.proof(unproven[0]).name}, which is not proven" if unproven else ""
