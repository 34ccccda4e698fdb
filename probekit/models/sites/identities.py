"""The identities that connect a model's sites with its residual stream.

Each is computed from sites as they were handed out, the model's weights and its norms. It speaks for one site, and
rests on others: what attention and MLP add rests on the stream, what they write on what they add, what their
projections read on what these write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from probekit.models.sites.errors import exact, sum_error, vector_error
from probekit.models.sites.find import EMBEDDINGS, Found, Layout
from probekit.models.sites.heads import attended
from probekit.models.sites.projections import product, whole
from probekit.sites import FINAL_NORM, RESID_PRE, RESIDUAL, Site

Values = Mapping[Site, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity that was computed.

    Attributes
    ----------
    site : Site
        The site that it speaks for.
    text : str
        The identity, in the names of sites.
    error : float
        By how much it is wrong, relative.
    rests_on : tuple of Site
        The sites that must be proven themselves.
    """

    site: Site
    text: str
    error: float
    rests_on: tuple[Site, ...] = ()


class _Block:
    """Collects the identities of one block."""

    def __init__(self, number: int, module: nn.Module, values: Values) -> None:
        self.number, self.module, self.values = number, module, values
        self.found: list[Identity] = []

    def site(self, name: str) -> Site:
        return Site(name, self.number + (name == RESIDUAL))

    def check(
        self, names: str, text: str, of: str, error: Callable[..., float], *, rests_on: str = "", last: Any = None
    ) -> None:
        """Add an identity for each site of ``names``, whose error is a function of the values of the sites ``of``."""
        values = [self.values.get(self.site(name)) for name in of.split()]
        if any(value is None for value in values):
            return
        try:
            wrong = error(*values) if last is None else error(*values, last)
        except (AttributeError, RuntimeError):  # the shapes do not fit, or there are no weights
            wrong = float("inf")
        rests = tuple(self.site(name) for name in rests_on.split())
        self.found += [Identity(self.site(name), text, wrong, rests) for name in names.split()]

    def submodule(self, path: str) -> Any:
        return self.module.get_submodule(path)


def block_identities(
    number: int, module: nn.Module, layout: Layout, values: Values, probabilities: torch.Tensor | None
) -> list[Identity]:
    """The identities of a block.

    Parameters
    ----------
    number : int
        The block, from 0.
    module : nn.Module
        Its module.
    layout : Layout
        How it computes.
    values : mapping of Site to torch.Tensor
        (t, width), copied when they were handed out.
    probabilities : torch.Tensor, optional
        (heads, t, t), the attention probabilities that the model returns.
    """
    block = _Block(number, module, values)
    _sums(block, layout)
    for branch, norm in (("attn", layout.attn_norm), ("mlp", layout.mlp_norm)):
        raw, post = f"{branch}_out", f"{branch}_out_post"
        if norm is None:
            block.check(raw, f"{raw} = {post}", f"{raw} {post}", vector_error, rests_on=post)
        else:
            error = _function_error(block.submodule(norm))
            block.check(raw, f"norm({raw}) = {post}", f"{raw} {post}", error, rests_on=post)
            block.check(raw, f"{raw} = input of the norm", f"{raw} {branch}_normed", vector_error)
    if layout.out is not None:
        error = _product_error(block.submodule(layout.out))
        block.check("z", "W_O z = attn_out", "z attn_out", error, rests_on="attn_out")
    if layout.down is not None:
        error = _product_error(block.submodule(layout.down))
        block.check("mlp_act", "W_down mlp_act = mlp_out", "mlp_act mlp_out", error, rests_on="mlp_out")
    if layout.router is not None:
        error = _product_error(block.submodule(layout.router))
        block.check("router_logits", "W_router x = router_logits", "router_in router_logits", error)
    if probabilities is not None:
        for name in ("value", "attn_probs") if layout.out is not None else ("value", "attn_probs", "z"):
            rests = "" if name == "z" else "z"
            block.check(name, "attn_probs · value = z", "value z", _heads_error, rests_on=rests, last=probabilities)
    return block.found


def _sums(block: _Block, layout: Layout) -> None:
    """What is added to the stream, and the stream in between."""
    if not layout.changed_after:
        block.check(RESIDUAL, "resid_post = output of the block", f"block_out {RESIDUAL}", vector_error)
    if layout.norms is not None:
        first, second = (_function_error(block.submodule(path), add=True) for path in layout.norms)
        text, of = "norm(resid_pre + attn_out_post) = resid_mid", "resid_pre attn_out_post resid_mid"
        block.check("attn_out_post resid_mid", text, of, first, rests_on=RESID_PRE)
        text, of = "norm(resid_mid + mlp_out_post) = resid_post", "resid_mid mlp_out_post block_out"
        block.check("mlp_out_post resid_mid", text, of, second, rests_on=RESID_PRE)
    elif block.site("resid_mid") in block.values:
        if layout.crossed:
            text, of = "resid_pre + attn_out_post = resid_cross", "resid_cross resid_pre attn_out_post"
            block.check("attn_out_post resid_cross", text, of, sum_error, rests_on=RESID_PRE)
            text, of = "resid_cross + cross_out_post = resid_mid", "resid_mid resid_cross cross_out_post"
            block.check("cross_out_post resid_mid", text, of, sum_error, rests_on=RESID_PRE)
        else:
            text, of = "resid_pre + attn_out_post = resid_mid", "resid_mid resid_pre attn_out_post"
            block.check("attn_out_post resid_mid", text, of, sum_error, rests_on=RESID_PRE)
        text, of = "resid_mid + mlp_out_post = resid_post", "block_out resid_mid mlp_out_post"
        block.check("mlp_out_post resid_mid", text, of, sum_error, rests_on=RESID_PRE)
    else:
        text = "resid_pre + attn_out_post + mlp_out_post = resid_post"
        of = "block_out resid_pre attn_out_post mlp_out_post"
        block.check("attn_out_post mlp_out_post", text, of, sum_error, rests_on=RESID_PRE)


def model_identities(
    encoder: Any, found: Found, values: Values, own: Sequence[torch.Tensor] | None, token_ids: torch.Tensor | None
) -> list[Identity]:
    """The identities of the residual stream, the embeddings and the final norm.

    Parameters
    ----------
    encoder : HuggingFaceEncoder
        The model.
    found : Found
        Where its sites are.
    values : mapping of Site to torch.Tensor
        (t, width), copied when they were handed out.
    own : sequence of torch.Tensor, optional
        The hidden states that the model itself returns, (t, width) each; the last has passed the final norm.
    token_ids : torch.Tensor, optional
        int64 (t,), the pieces.
    """
    identities = []
    last = Site(RESIDUAL, encoder.depth)
    own_layers = range(encoder.own_begins, encoder.depth + (encoder.own_begins or not encoder.final_norm))
    for layer, hidden in zip(own_layers, own or (), strict=False):
        for site in (Site(RESIDUAL, layer), Site(RESID_PRE, layer)):
            if site in values:
                text = f"{site.name} = the model's own hidden state"
                identities.append(Identity(site, text, vector_error(values[site], hidden)))
    if found.final_norm is not None and {last, FINAL_NORM} <= values.keys():
        normed = encoder.model.get_submodule(found.final_norm)(values[last])
        error = vector_error(normed, values[FINAL_NORM])
        identities.append(Identity(FINAL_NORM, "norm(resid_post) = final_norm", error, (last,)))
        if own:
            text = "norm(resid_post) = the model's own last hidden state"
            identities.append(Identity(last, text, vector_error(normed, own[-1])))
    if token_ids is not None and EMBEDDINGS in values:
        token_ids = token_ids.to(encoder.device)
        if encoder.spec.get("part") == "decoder":
            token_ids = encoder.model.later(token_ids[None])[0]
        rows = whole(encoder.model.get_input_embeddings().weight)[token_ids]
        error, text = _multiple(rows, values[EMBEDDINGS])
        identities.append(Identity(EMBEDDINGS, text, error))
    return identities


def _multiple(rows: torch.Tensor, found: torch.Tensor) -> tuple[float, str]:
    """The error of ``found`` as a multiple of ``rows``: some models scale their embeddings (Gemma)."""
    if torch.equal(rows, found):
        return 0.0, "embeddings = E[pieces]"
    factor = float((exact(rows) * exact(found)).sum() / exact(rows).square().sum())
    return vector_error(found, exact(rows) * factor), f"embeddings = {factor:.4g} E[pieces]"


def _function_error(function: Any, *, add: bool = False) -> Callable[..., float]:
    """The error of ``function(x) = right``, or of ``function(x + y) = right``, in the model's precision."""

    def error(*values: torch.Tensor) -> float:
        *terms, right = values
        return vector_error(function(terms[0] + terms[1] if add else terms[0]), right)

    return error


def _product_error(module: Any) -> Callable[..., float]:
    return lambda x, right: vector_error(product(module, x), right)


def _heads_error(values: torch.Tensor, z: torch.Tensor, probabilities: torch.Tensor) -> float:
    return vector_error(attended(probabilities, values, z.shape[1]), z)
