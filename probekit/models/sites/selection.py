"""Choose the sites that an encoder reads, after they have been proven."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from probekit.errors import UsageError
from probekit.models.encoder import Batch
from probekit.models.sites.proof import Proof, Proofs, prove
from probekit.models.sites.recording import eager
from probekit.runtime import torch_threads
from probekit.sites import CROSS, RESIDUAL, Site, layer_list, site_names


@torch_threads(1)
def choose_sites(encoder: Any, sites: Sequence[str] | str, blocks: Iterable[int | str] | str | None = None) -> Proofs:
    """Prove the sites of an encoder, and let it read the chosen ones instead of the residual stream.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The encoder; its ``sites``, ``widths`` and ``spec`` change.
    sites : sequence of str or str
        Names ("attn_out": in all blocks, or in ``blocks``) and single sites ("attn_out.3"); a text is split at commas.
    blocks : iterable or str, optional
        Blocks from 0, ranges ("4-6", "8:24:4") or negative numbers, which count from the last.

    Returns
    -------
    Proofs
        The proofs of all sites of the model.

    Raises
    ------
    UsageError
        If a site or block does not exist, or if a chosen site is not proven; the message says why.
    """
    names, wanted_blocks = site_names(sites), None if blocks is None else layer_list(blocks)
    numbers = range(encoder.depth) if wanted_blocks is None else _blocks(wanted_blocks, encoder)
    asked = [(name, _asked(name, numbers, encoder)) for name in names]
    proofs = prove(encoder)
    chosen: set[Site] = set()
    for name, wanted in asked:
        chosen |= _proven(name, wanted, proofs, encoder.name)
    kept = [proof for site, proof in proofs.proofs.items() if site in chosen]
    copied = frozenset(proof.site for proof in kept if proof.copied)
    widths = {proof.site: proof.width for proof in kept}
    encoder.read_sites(widths, proofs.found.taps, proofs.found.blocks, copied)
    encoder.spec["sites"] = [*names]
    if wanted_blocks is not None:
        encoder.spec["blocks"] = [*map(str, wanted_blocks)]
    encoder.proofs = proofs
    return proofs


def _blocks(blocks: Iterable[Site | int | str], encoder: Any) -> list[int]:
    """The numbers of blocks."""
    found = []
    for item in blocks:
        try:
            number = int(str(item))
        except ValueError:
            raise UsageError(
                f"{item!r} is not a block; with sites, layers are the numbers of blocks, such as 0,4-6,8:24:4."
            ) from None
        if not -encoder.depth <= number < encoder.depth:
            raise UsageError(
                f"{encoder.name} has no block {number}; it has 0 … {encoder.depth - 1}. Block l turns layer l into "
                "layer l + 1."
            )
        found.append(number % encoder.depth)
    return [*dict.fromkeys(found)]


def _asked(name: str, blocks: Sequence[int], encoder: Any) -> list[Site]:
    """The sites that a name stands for."""
    base, _, number = name.partition(".")
    if base in ("embeddings", "final_norm"):
        return [Site(base)]
    return [Site(base, block + (base == RESIDUAL)) for block in (_blocks([number], encoder) if number else blocks)]


def _proven(name: str, wanted: Sequence[Site], proofs: Proofs, model: str) -> set[Site]:
    """The wanted sites that are proven; blocks that lack a site which others have are left out."""
    why = (
        "its blocks attend to no encoder (load T5's decoder with --decoder)"
        if name.partition(".")[0] in CROSS
        else "it was not found"
    )
    given = [proofs.proofs.get(site, Proof(site, refusal=why, lacking=True)) for site in wanted]
    failed = [proof for proof in given if proof.refusal and not proof.lacking]
    lacking = [proof for proof in given if proof.refusal]
    if failed:
        raise UsageError(f"{model}: {failed[0].name} cannot be trusted: {failed[0].refusal}.")
    if len(lacking) == len(given):
        raise UsageError(f"{model} has no {name}: {lacking[0].refusal}.")
    return {proof.site for proof in given if not proof.refusal}


@torch_threads(1)
def read_alone(encoder: Any, batch: Batch, proofs: Proofs | None = None) -> dict[Site, torch.Tensor]:
    """All proven sites of one sequence, with the model's own eager attention, on the CPU.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The encoder.
    batch : Batch
        One sequence.
    proofs : Proofs, optional
        From :func:`choose_sites` or :func:`~probekit.models.sites.proof.prove`; by default the sites are proven anew.

    Returns
    -------
    dict of Site to torch.Tensor
        (t, width) each; (heads, t, t) for ``attn_probs``.
    """
    proofs = proofs or prove(encoder)
    sites = [site for site, proof in proofs.proofs.items() if not proof.refusal]
    read: dict[Site, torch.Tensor] = {}

    def sink(i: int, rows: torch.Tensor) -> None:
        read[encoder.sites[i]] = rows.to("cpu", copy=True)

    with encoder.reading(sites, proofs.found.taps, proofs.found.blocks), eager(encoder):
        encoder.encode(batch, sink)
        with torch.inference_mode():
            output = encoder.model(**encoder.inputs(batch), output_attentions=True)
    for site in sites:
        if site.name == "attn_probs":
            read[site] = output.attentions[site.layer][0].to("cpu", copy=True)
    return {site: read[site] for site in sites}
