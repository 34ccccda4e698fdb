"""Where in a model vectors are taken: sites, by name and number.

The residual stream is the usual place. ``Site("resid_post", 3)`` is layer 3: layer 0 is what enters block 1, layer l
the stream after block l. It is written "3", as datasets of a cache and rows that are shown call it. Other sites are
written by their name and, where they have one, their block, counted from 0: "final_norm", "attn_out.2".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probekit.errors import UsageError

__all__ = ["FINAL_NORM", "RESIDUAL", "Site", "choose", "choose_all", "residual_stream"]

RESIDUAL = "resid_post"


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a model.

    Attributes
    ----------
    name : str
        "resid_post", "final_norm", "attn_out" …; letters, digits and ``_``.
    layer : int or None
        Its number: of "resid_post" the layer 0 … L, of others the block, from 0. None where there is only one.

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
                f"there is no site of the name {self.name!r} and the number {self.layer!r}; wanted a name of letters, "
                f"digits and _, and a number of 0 or more, which {RESIDUAL} must have."
            )

    @classmethod
    def parse(cls, told: Site | int | str) -> Site:
        """The site that is written so.

        Parameters
        ----------
        told : Site, int or str
            A number is a layer of the residual stream. "resid_post.2", by the block that it leaves, is layer 3.

        Raises
        ------
        UsageError
            No site is written so.
        """
        if isinstance(told, Site):
            return told
        name, dot, number = str(told).partition(".")
        if name.isdecimal() and not dot:
            return cls(RESIDUAL, int(name))
        if dot and not number.isdecimal():
            raise UsageError(f"{told!r} is no site; wanted a layer's number, or a name such as final_norm, attn_out.2.")
        return cls(name, int(number) + (name == RESIDUAL) if dot else None)

    def __str__(self) -> str:
        if self.name == RESIDUAL:
            return str(self.layer)
        return self.name if self.layer is None else f"{self.name}.{self.layer}"


FINAL_NORM = Site("final_norm")
"""The last hidden state behind the final norm of GPT-2, Llama …; it is no layer of the residual stream."""


def residual_stream(depth: int, *, final_norm: bool = False) -> tuple[Site, ...]:
    """The layers 0 … depth of the residual stream and, where there is one, the final norm."""
    return (*(Site(RESIDUAL, layer) for layer in range(depth + 1)), *([FINAL_NORM] if final_norm else []))


def choose(told: Site | int | str, sites: Sequence[Site], what: str = "the model") -> Site:
    """One of some sites; the one rule for how a layer is named.

    Parameters
    ----------
    told : Site, int or str
        Number, name, or a negative number, which counts back from the last layer of the residual stream.
    sites : sequence of Site
        Those there are.
    what : str
        What has them, for the message.

    Raises
    ------
    UsageError
        There is none such; the message names those there are.

    Examples
    --------
    >>> choose(-1, residual_stream(12, final_norm=True))
    Site(name='resid_post', layer=12)
    """
    text = str(told)
    if re.fullmatch(r"-\d+", text):
        stream = [site for site in sites if site.name == RESIDUAL]
        if int(text[1:]) <= len(stream):
            return stream[int(text)]
    elif (found := _read(told)) in sites:
        return found  # type: ignore[return-value]
    raise UsageError(f"{what} has no layer {told!r}; it has {', '.join(map(str, sites))}.")


def choose_all(
    told: Iterable[Site | int | str] | None, sites: Sequence[Site], what: str = "the model"
) -> tuple[Site, ...]:
    """Several of some sites, in the order asked for, each once; all for None. UsageError where none is asked for."""
    if told is None:
        return tuple(sites)
    if not (found := tuple(dict.fromkeys(choose(one, sites, what) for one in told))):
        raise UsageError(f"no layer was asked for; {what} has {', '.join(map(str, sites))}.")
    return found


def _read(told: Site | int | str) -> Site | None:
    try:
        return Site.parse(told)
    except UsageError:
        return None
