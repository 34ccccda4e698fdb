"""Sites: the places in a model where vectors are taken, by name and number.

The usual place is the residual stream. ``Site("resid_post", 3)`` is layer 3: layer 0 is the input of block 1, layer l
the stream after block l. It is written "3" in caches and tables. Other sites are written as their name and, if they
have one, their block, counted from 0: "final_norm", "attn_out.2".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

from probekit.constraint import Into
from probekit.errors import UsageError, did_you_mean

RESIDUAL = "resid_post"
RESID_PRE = "resid_pre"

NAMES: dict[str, str] = {
    "embeddings": "the row of the embedding matrix of each piece, before positions and norms",
    RESID_PRE: "the residual stream that enters the block",
    "value": "values of the attention heads, side by side (fewer than heads if heads share them)",
    "attn_probs": "attention probabilities of each head",
    "z": "attended values of the heads, side by side, before the output projection",
    "attn_out": "output of the attention, as its output projection writes it",
    "attn_out_post": "what the attention adds to the residual stream (after a norm, if there is one in between)",
    "resid_cross": "in a decoder that reads an encoder: the residual stream between self-attention and cross-attention",
    "cross_out_post": "there: what the cross-attention adds to the residual stream",
    "resid_mid": "the residual stream between attention and MLP",
    "router_logits": "scores of the experts, before the softmax",
    "mlp_act": "input of the MLP's down projection",
    "mlp_out": "output of the MLP, as its down projection writes it",
    "mlp_out_post": "what the MLP adds to the residual stream (after a norm, if there is one in between)",
    RESIDUAL: "the residual stream that leaves the block: layer l + 1 for block l",
    "final_norm": "the residual stream after the last block and the final norm",
}
"""The sites of a transformer and what they hold; numbered by block from 0, except the first and the last."""


CROSS = ("resid_cross", "cross_out_post")
"""Those of a decoder that reads an encoder; other models have none."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a model.

    Attributes
    ----------
    name : str
        "resid_post", "final_norm", "attn_out" …; letters, digits and ``_``.
    layer : int or None
        Its number: for "resid_post" the layer 0 … L, for others the block, from 0. None if there is only one.

    Examples
    --------
    >>> Site.parse("3"), str(Site.parse("attn_out.2")), Site.parse("final_norm").layer
    (Site(name='resid_post', layer=3), 'attn_out.2', None)
    """

    name: str = RESIDUAL
    layer: int | None = None

    def __post_init__(self) -> None:
        numbered = self.layer is not None or self.name != RESIDUAL
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name) or not numbered or (self.layer or 0) < 0:
            raise UsageError(
                f"there is no site with the name {self.name!r} and the number {self.layer!r}; expected a name with "
                f"letters, digits and _, and a number of 0 or more (required for {RESIDUAL})."
            )

    @classmethod
    def parse(cls, text: Site | int | str) -> Site:
        """The site in its written form.

        Parameters
        ----------
        text : Site, int or str
            A number is a layer of the residual stream. "resid_post.2", the output of block 2 counted from 0, is layer
            3.

        Raises
        ------
        UsageError
            If it is not a site.
        """
        if isinstance(text, Site):
            return text
        name, dot, number = str(text).partition(".")
        if name.isdecimal() and not dot:
            return cls(RESIDUAL, int(name))
        if dot and not number.isdecimal():
            raise UsageError(
                f"{text!r} is not a site; expected the number of a layer, or a name such as final_norm, attn_out.2."
            )
        return cls(name, int(number) + (name == RESIDUAL) if dot else None)

    def __str__(self) -> str:
        if self.name == RESIDUAL:
            return str(self.layer)
        return self.name if self.layer is None else f"{self.name}.{self.layer}"


FINAL_NORM = Site("final_norm")
"""The last hidden state after the final norm of GPT-2, Llama …; it is not a layer of the residual stream."""


def residual_stream(depth: int, *, final_norm: bool = False) -> tuple[Site, ...]:
    """The layers 0 … depth of the residual stream and, if there is one, the final norm."""
    return (*(Site(RESIDUAL, layer) for layer in range(depth + 1)), *([FINAL_NORM] if final_norm else []))


def in_order(site: Site) -> tuple[float, int]:
    """The place of a site in a forward pass, to sort by."""
    at = {"embeddings": -1.0, "final_norm": inf}.get(site.name, float(site.layer or 0))
    return at - (site.name == RESIDUAL), [*NAMES].index(site.name)


def choose(layer: Site | int | str, sites: Sequence[Site], what: str = "the model") -> Site:
    """Choose a site by name or number; all layer arguments follow this rule.

    Parameters
    ----------
    layer : Site, int or str
        Number, name, or a negative number, which counts from the last layer of the residual stream.
    sites : sequence of Site
        The sites to choose from.
    what : str
        Their owner, for messages.

    Raises
    ------
    UsageError
        If there is no such site; the message lists the sites.

    Examples
    --------
    >>> choose(-1, residual_stream(12, final_norm=True))
    Site(name='resid_post', layer=12)
    """
    text = str(layer)
    if re.fullmatch(r"-\d+", text):
        stream = [site for site in sites if site.name == RESIDUAL]
        if int(text[1:]) <= len(stream):
            return stream[int(text)]
    elif (found := _read(layer)) in sites:
        return found  # type: ignore[return-value]
    raise UsageError(f"{what} has no layer {layer!r}; it has {', '.join(map(str, sites))}.")


def layer_list(layers: Iterable[Site | int | str] | str) -> tuple[Site | int | str, ...]:
    """Layers with ranges written out; a text is split at commas.

    "4-6" is 4, 5, 6. "8:24:4" is a slice as in Python: from 8 to below 24 in steps of 4.

    Raises
    ------
    UsageError
        For a range in reverse, or an empty slice.

    Examples
    --------
    >>> layer_list("0,4-6,final_norm"), layer_list("8:24:4")
    (('0', 4, 5, 6, 'final_norm'), (8, 12, 16, 20))
    """
    found: list[Site | int | str] = []
    for layer in layers.split(",") if isinstance(layers, str) else layers:
        text = layer.strip() if isinstance(layer, str) else layer
        if isinstance(text, str) and (ends := re.fullmatch(r"(\d+):(\d+)(?::(\d+))?", text)):
            first, stop, step = int(ends[1]), int(ends[2]), int(ends[3] or 1)
            if first >= stop or not step:
                raise UsageError(f"layers {text}: a slice is FIRST:STOP:STEP with FIRST below STOP, such as 8:24:4.")
            found += range(first, stop, step)
            continue
        ends = re.fullmatch(r"(\d+)-(\d+)", text) if isinstance(text, str) else None
        if ends and int(ends[1]) > int(ends[2]):
            raise UsageError(f"layers {text}: a range begins with the lower layer; write {ends[2]}-{ends[1]}.")
        found += range(int(ends[1]), int(ends[2]) + 1) if ends else [text]
    return tuple(found)


Layers = Annotated[tuple[int | str, ...], Into(layer_list)]
"""Layers of an option, ranges written out."""
LayerNames = Annotated[tuple[int | str, ...], Into(lambda layers: tuple(map(str, layer_list(layers))))]
"""The same as texts."""


def site_names(sites: Iterable[str] | str) -> tuple[str, ...]:
    """Names of a transformer's sites, checked; a text is split at commas.

    A name stands for its site in several blocks, "attn_out.3" for that in block 3.

    Raises
    ------
    UsageError
        If there is no such site, or none that is stored (attention probabilities).

    Examples
    --------
    >>> site_names("attn_out, z.3")
    ('attn_out', 'z.3')
    """
    names = tuple(name.strip() for name in (sites.split(",") if isinstance(sites, str) else map(str, sites)))
    for name in names:
        base, dot, number = name.partition(".")
        if base not in NAMES or bool(dot) != number.isdecimal() or (dot and base in ("embeddings", "final_norm")):
            raise UsageError(f"there is no site {name!r}; {did_you_mean(base, NAMES, most=3)}")
        if base == "attn_probs":
            raise UsageError(
                "attn_probs has a number for each pair of pieces and each head, and is not stored; "
                "probekit.models.sites.selection.read_alone reads it for one text."
            )
    if not names:
        raise UsageError(f"the list of sites is empty; there are {', '.join(NAMES)}.")
    return names


def choose_all(
    layers: Iterable[Site | int | str] | str | None, sites: Sequence[Site], what: str = "the model"
) -> tuple[Site, ...]:
    """Choose several sites, in the given order without duplicates; None for all. Raises UsageError if none is given.

    Parameters
    ----------
    layers : iterable or str, optional
        Layers; :func:`layer_list` writes out ranges such as "4-6" and "8:24:4".
    """
    if layers is None:
        return tuple(sites)
    if not (found := tuple(dict.fromkeys(choose(layer, sites, what) for layer in layer_list(layers)))):
        raise UsageError(f"the list of layers is empty; {what} has {', '.join(map(str, sites))}.")
    return found


def _read(layer: Site | int | str) -> Site | None:
    try:
        return Site.parse(layer)
    except UsageError:
        return None
