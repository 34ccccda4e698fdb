"""``prove_sites``: which sites a model has, and what proves each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from probekit.errors import UsageError
from probekit.models.conversion import reads_apart
from probekit.models.encoder import Encoder
from probekit.models.options import SiteOptions
from probekit.models.sites.proof import Proof
from probekit.public import public
from probekit.sites import NAMES, RESIDUAL


@dataclass(frozen=True, slots=True)
class SiteLine:
    """A site in neighbouring blocks with the same outcome.

    Attributes
    ----------
    site : str
        Its name.
    blocks : tuple of int
        The blocks, from 0; () for a site outside the blocks.
    width : int
        Its width; 0 if it has none.
    error : float or None
        The largest error of its identities in these blocks.
    identity : str
        The identities that were computed.
    refusal : str
        Why it is not handed out; "" if it is proven.
    lacking : bool
        Whether that is because the model has no such site, or none that can be found.
    copied : bool
        Whether the model overwrites it later, so that a copy is handed out.
    """

    site: str
    blocks: tuple[int, ...]
    width: int
    error: float | None
    identity: str
    refusal: str
    lacking: bool
    copied: bool


@dataclass(frozen=True, slots=True)
class SiteReport:
    """The sites of a model.

    Attributes
    ----------
    model : str
        Its name.
    spec : dict
        How it was loaded.
    blocks : int
        The number of blocks.
    proofs : tuple of Proof
        One for each site and block.
    passed : bool
        Whether the identities of all sites that were found hold.
    """

    model: str
    spec: dict[str, Any]
    blocks: int
    proofs: tuple[Proof, ...]
    passed: bool

    @property
    def lines(self) -> list[SiteLine]:
        """The sites in the order of :data:`probekit.sites.NAMES`; neighbouring blocks with one outcome together."""
        order = [*NAMES]
        shown = sorted(self.proofs, key=lambda p: (order.index(p.site.name), p.site.layer or 0))
        kept = [p for p in shown if (p.site.name, p.site.layer) != (RESIDUAL, 0)]  # resid_pre.0
        return [_line([*group]) for _, group in groupby(kept, key=_alike)]

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        lines = [asdict(line) | {"blocks": list(line.blocks)} for line in self.lines]
        return {"model": self.model, "spec": self.spec, "blocks": self.blocks, "passed": self.passed, "sites": lines}

    def __iter__(self) -> Iterator[SiteLine]:
        return iter(self.lines)


@public(options=SiteOptions)
def prove_sites(model: str | Path | Encoder, /, *, options: SiteOptions) -> SiteReport:
    """Show the sites of a transformer (residual stream, attention, MLP, heads), and what proves each.

    The model reads two random sequences, and each site must satisfy an identity; its error is relative. Blocks are
    counted from 0: resid_post.l is layer l + 1. On the command line, the exit status is 1 if a site was found whose
    identity does not hold.

    For a block that adds to its stream, ``resid_pre + attn_out_post = resid_mid`` and ``resid_mid + mlp_out_post =
    resid_post``; where a norm follows each addition (BERT), ``norm(resid_pre + attn_out_post) = resid_mid`` and so on.
    Then ``W_O z = attn_out``, ``W_down mlp_act = mlp_out`` and ``attn_probs · value = z``. A site that no identity
    connects with the stream, or whose identity does not hold, is refused.

    Parameters
    ----------
    model : str, path or Encoder
        Hub id or folder of a transformer; in Python also a loaded encoder.
    options : SiteOptions
        ``dtype``, ``device`` …; you can also pass them as keyword arguments.

    Returns
    -------
    SiteReport
        ``lines`` says of each site in which blocks it is proven, with which error, or why it is refused.

    Raises
    ------
    ModelError
        If the model cannot be loaded.
    UsageError
        If the model is no transformer.

    Examples
    --------
    >>> report = probekit.prove_sites("gpt2")  # doctest: +SKIP
    >>> report.lines[3]  # doctest: +SKIP
    SiteLine(site='attn_probs', blocks=(0, 1, 2, …), width=0, error=4.1e-07, …)

    On the command line::

        probekit sites gpt2
        probekit sites bert-base-uncased --dtype bfloat16
        probekit sites google-t5/t5-small --decoder
        probekit sites ./my-llama --random-weights 0 --json
    """
    from probekit.models.loading import load_encoder
    from probekit.models.sites.proof import prove

    encoder: Any = load_encoder(model, **asdict(options)) if isinstance(model, (str, Path)) else model
    if reads_apart(encoder.spec.get("model_type", "")):
        raise UsageError(f"{encoder.name} is no transformer; its layers are {', '.join(map(str, encoder.sites))}.")
    found = prove(encoder)
    failed = any(proof.refusal and not proof.lacking for proof in found.proofs.values())
    return SiteReport(encoder.name, dict(encoder.spec), encoder.depth, tuple(found.proofs.values()), not failed)


def _alike(proof: Proof) -> tuple[Any, ...]:
    return proof.site.name, proof.width, proof.identity, proof.refusal, proof.lacking, proof.copied


def _line(proofs: list[Proof]) -> SiteLine:
    first = proofs[0]
    numbers = tuple(p.site.layer - (p.site.name == RESIDUAL) for p in proofs if p.site.layer is not None)
    error = max((p.error for p in proofs if p.error is not None), default=None)
    return SiteLine(
        first.site.name, numbers, first.width, error, first.identity, first.refusal, first.lacking, first.copied
    )
