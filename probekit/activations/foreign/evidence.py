"""How far the arrays of a file are from each recomputed site, and from what programs make of it by mistake.

The model reads one text at a time. As soon as a site is computed, every array is compared with it: in each order of
axes that fits, at the last or first positions if it has fewer, with each range of columns if it is narrower, and with
what norms make of the site. Only distances are kept, so memory does not grow with the number of sites.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from probekit.activations.foreign.source import Source
from probekit.models.encoder import Batch
from probekit.models.sites.projections import is_norm
from probekit.models.sites.proof import Proofs
from probekit.sites import RESID_PRE, RESIDUAL, Site

SCREENED, NEAR, ALIGNED = 4, 0.5, 0.99
"""Before all rows are compared: how many are, the relative error above which they are not near, and the cosine from
which they may be a multiple."""
SCALED = "scaled"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What an array may be.

    Attributes
    ----------
    site : Site
        The recomputed site.
    change : str
        What was done to it, in words; "" for nothing.
    axes : str
        The order of axes in the file; "" for that of the format.
    rows : str
        The positions that are there: "" for all, "last", "first", or "more" if there are more than pieces.
    start : int
        The first column that is there; 0 if all are.
    width : int
        The number of columns of the site, if not all are there; else 0.
    """

    site: Site
    change: str = ""
    axes: str = ""
    rows: str = ""
    start: int = 0
    width: int = 0

    @property
    def mistakes(self) -> int:
        """In how many ways it departs from the site as it is."""
        return sum(map(bool, (self.change, self.axes, self.rows, self.width)))


@dataclass(slots=True)
class Distance:
    """How far an array is from a hypothesis, text by text.

    Attributes
    ----------
    relative : list of np.ndarray
        |difference| / |recomputed vector| of each row.
    absolute : list of np.ndarray
        The largest absolute difference of each row.
    pieces : list of int
        The pieces of each text.
    width : int
        The columns that were compared.
    factors : list of float
        The factor, if it is a multiple.
    correlation : list of float
        The correlation of the numbers.
    """

    relative: list[np.ndarray] = field(default_factory=list)
    absolute: list[np.ndarray] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    width: int = 0
    factors: list[float] = field(default_factory=list)
    correlation: list[float] = field(default_factory=list)


Evidence = dict[Hypothesis, Distance]


def streamed(site: Site) -> Site:
    """The site under one name: what enters block l is layer l."""
    return Site(RESIDUAL, site.layer) if site.name == RESID_PRE else site


def collect(encoder: Any, proofs: Proofs, source: Source, batch: Batch, i: int, found: Mapping[int, Evidence]) -> None:
    """Compare the arrays' vectors of text i with all proven sites, and add the distances to ``found``.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The model.
    proofs : Proofs
        The proofs of its sites.
    source : Source
        The arrays.
    batch : Batch
        The pieces of the text.
    i : int
        Its number in the file.
    found : mapping of int to Evidence
        The distances of each array.
    """
    arrays = source.arrays
    given = [(k, view.axes, view.rows(i)) for k, array in enumerate(arrays) for view in array.views]
    if source.texts:  # rows after the last piece are padding
        given = [(k, axes, rows[: len(batch.token_ids)]) for k, axes, rows in given]
    sites = [s for s, proof in proofs.proofs.items() if not proof.refusal and s.name not in ("attn_probs", RESID_PRE)]
    changes = _Changes(encoder, proofs)

    def sink(j: int, hidden: torch.Tensor) -> None:
        site = encoder.sites[j]
        right = hidden.detach().to("cpu", copy=True).double()
        for change, changed in changes.of(site, hidden.detach().clone(), right):
            for k, axes, rows in given:
                array, claim = arrays[k], Hypothesis(site, change, axes)
                said = not change and array.site is not None and streamed(array.site) == site
                _compare(rows, changed, claim, found[k], always=said)

    with encoder.reading(sites, proofs.found.taps, proofs.found.blocks):
        encoder.encode(batch, sink)


def _compare(given: torch.Tensor, right: torch.Tensor, what: Hypothesis, found: Evidence, *, always: bool) -> None:
    """Compare rows with those of a site, wherever they fit."""
    (t, width), (pieces, full) = given.shape, right.shape
    if width > full or not t or width < 2:
        return
    start = 0
    if width < full:
        start = _first_column(given, right)
    columns = right[:, start : start + width]
    for rows, part, side in _aligned(given, columns):
        hypothesis = Hypothesis(what.site, what.change, what.axes, rows, start, full if width < full else 0)
        near, multiple = _screen(part[-SCREENED:].double(), side[-SCREENED:])
        if near or (always and not rows and width == full):
            _add(found, hypothesis, part.double(), side, pieces)
        if multiple and not what.change:
            part, hypothesis = part.double(), replace(hypothesis, change=SCALED)
            factor = float((part * side).sum() / side.square().sum())
            if abs(factor - 1) > 0.01:
                _add(found, hypothesis, part, side * factor, pieces)
                found[hypothesis].factors.append(factor)


def _first_column(given: torch.Tensor, right: torch.Tensor) -> int:
    """The columns of a site to which narrower rows are nearest, at the last position that both have."""
    row = given[min(len(given), len(right)) - 1].double()
    windows = right[-1].unfold(0, given.shape[1], 1)
    return int((windows - row).norm(dim=1).argmin())


def _aligned(given: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """The positions that the rows may stand for."""
    t, pieces = len(given), len(right)
    if t == pieces:
        yield "", given, right
    elif t < pieces:
        yield "last", given, right[pieces - t :]
        yield "first", given, right[:t]
    else:
        yield "more", given[:pieces], right


def _screen(given: torch.Tensor, right: torch.Tensor) -> tuple[bool, bool]:
    """Whether some of a few rows are near, and whether all point in the same direction."""
    size = right.norm(dim=1).clamp_min(1e-300)
    near = (given - right).norm(dim=1) / size
    cosine = (given * right).sum(1) / (size * given.norm(dim=1).clamp_min(1e-300))
    return bool((near < NEAR).any()), bool((cosine.abs() > ALIGNED).all())


def _add(found: Evidence, hypothesis: Hypothesis, given: torch.Tensor, right: torch.Tensor, pieces: int) -> None:
    distance, off = found.setdefault(hypothesis, Distance()), given - right
    relative = off.norm(dim=1) / right.norm(dim=1).clamp_min(1e-300)
    distance.relative.append(relative.nan_to_num(nan=np.inf).numpy())
    distance.absolute.append(off.abs().amax(1).nan_to_num(nan=np.inf).numpy())
    distance.pieces.append(pieces)
    distance.width = given.shape[1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        distance.correlation.append(float(np.corrcoef(given.reshape(-1).numpy(), right.reshape(-1).numpy())[0, 1]))


class _Changes:
    """What programs make of a site, by mistake or on purpose."""

    def __init__(self, encoder: Any, proofs: Proofs) -> None:
        self.encoder, self.found = encoder, proofs.found
        self.before: dict[str, torch.Tensor] = defaultdict()

    def of(self, site: Site, hidden: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The site itself (""), and in the residual stream what norms make of it, and what it was before its own."""
        yield "", right
        before, self.before[site.name] = dict(self.before), right
        if site.name not in (RESIDUAL, "resid_mid"):
            return
        centred = right - right.mean(1, keepdim=True)
        yield "centred", centred
        yield "divided by its root mean square", right / right.square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)
        yield "standardised", centred / centred.square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)
        if self.found.final_norm is not None:
            yield "after the final norm", self._normed(self.encoder.model.get_submodule(self.found.final_norm), hidden)
        block = site.layer if site.layer is not None and site.layer < self.encoder.depth else None
        if block is not None:
            for path, module in self.found.blocks[block].named_modules():
                if is_norm(module) and getattr(module, "weight", hidden).shape[-1] == hidden.shape[-1]:
                    yield f"after {path} of block {block}", self._normed(module, hidden)
        yield from self._unnormed(site, before)

    def _unnormed(self, site: Site, before: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """The sum that the norm of a post-norm block reads (BERT)."""
        block = (site.layer or 0) - (site.name == RESIDUAL)
        if block < 0 or self.found.layouts[block].norms is None:
            return
        stream, added = ("resid_mid", "mlp_out_post") if site.name == RESIDUAL else (RESIDUAL, "attn_out_post")
        if stream in before and added in before:
            yield "before its norm", before[stream] + before[added]

    def _normed(self, module: Any, hidden: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            normed: torch.Tensor = module.forward(hidden).to("cpu").double()  # not its hooks, which read sites
            return normed
