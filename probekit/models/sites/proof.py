"""The proof of a model's sites: identities that hold if each was read at the right place and time, and only then."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from probekit.errors import UsageError
from probekit.models.adapted.virtual import virtual_tokens
from probekit.models.encoder import Batch
from probekit.models.sites.errors import TOLERANCE
from probekit.models.sites.find import Found, find_sites
from probekit.models.sites.identities import Identity
from probekit.models.sites.passes import Passes, random_batches, run_passes, slices_of
from probekit.models.sites.recording import record
from probekit.sites import NAMES, RESIDUAL, Site

__all__ = ["Proof", "Proofs", "prove"]

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
        If trained vectors are read before each text, or the blocks are compiled: neither is read module by module.
    """
    if virtual_tokens(encoder.model.config):
        raise UsageError(f"{encoder.name} reads trained vectors before each text; only its layers can be read.")
    if encoder.spec.get("compile"):
        raise UsageError(f"{encoder.name} is compiled; load it without compile to read sites inside its blocks.")
    batches = random_batches(encoder)
    found = found or find_sites(encoder.model, record(encoder, batches[-1]))
    if encoder.ranks is not None:
        _share_out(encoder, found, batches[-1])
    verdicts = _Verdicts(encoder, found, run_passes(encoder, found, batches))
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
