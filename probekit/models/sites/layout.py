"""How a block adds up: which of its modules' outputs are what attention and MLP add to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from probekit.models.sites.errors import sum_error
from probekit.models.sites.projections import is_norm
from probekit.models.sites.recording import Call

__all__ = ["Sums", "find_sums", "first_equal", "same"]


@dataclass(frozen=True, slots=True)
class Sums:
    """The two additions of a block.

    Attributes
    ----------
    attention, mlp : Call
        The modules that return what is added.
    middle : tuple of (Call, bool) or None
        The module that returns (True) or reads (False) the stream between the two; None in a parallel block.
    norms : tuple of (Call, Call) or None
        The norms behind the two additions (BERT); None if the stream itself is not normed.
    cross : Call or None
        In a decoder that reads an encoder: the module that returns what the cross-attention adds.
    between : tuple of (Call, bool) or None
        There: the module that reads or returns the stream between the two attentions.
    """

    attention: Call
    mlp: Call
    middle: tuple[Call, bool] | None
    norms: tuple[Call, Call] | None = None
    cross: Call | None = None
    between: tuple[Call, bool] | None = None


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both are tensors with the same bits."""
    return one is not None and other is not None and one.shape == other.shape and torch.equal(one, other)


def first_equal(calls: Sequence[Call], value: torch.Tensor | None) -> Call | None:
    """The first call that returns ``value``: of a module, its dropout and what wraps both, the innermost."""
    return next((call for call in calls if same(call.returned, value)), None)


def find_sums(calls: Sequence[Call], attention: Sequence[Call], tolerance: float) -> Sums | None:
    """The additions of a block; None if no two outputs add up to its output.

    Parameters
    ----------
    calls : sequence of Call
        The calls in the block, the last of which is the block's.
    attention : sequence of Call
        The calls that may return what the attention adds.
    tolerance : float
        The largest error that counts as equal.
    """
    stream, block = calls[-1].given, calls[-1]
    branches = list(_distinct(calls[:-1], stream))
    return (
        _normed(calls, stream, block, branches, attention, tolerance)
        or _added(calls, stream, block, branches, attention, tolerance)
        or _crossed(calls, stream, block, branches, attention, tolerance)
    )


def _distinct(calls: Sequence[Call], stream: torch.Tensor | None) -> Iterator[Call]:
    """The calls that return vectors of the stream's shape, the first of those that return the same."""
    seen: list[torch.Tensor] = []
    for call in calls:
        if call.returned is None or stream is None or call.returned.shape != stream.shape:
            continue
        if not any(same(call.returned, other) for other in (*seen, stream)):
            seen.append(call.returned)
            yield call


def _added(
    calls: Sequence[Call],
    stream: torch.Tensor | None,
    block: Call,
    branches: Sequence[Call],
    attention: Sequence[Call],
    tolerance: float,
) -> Sums | None:
    """Both are added to a stream that is not normed: GPT-2, Llama, Gemma, OLMo-2, T5; parallel: GPT-NeoX."""
    for one in attention:
        for other in branches:
            terms = (stream, one.returned, other.returned)
            if other is not one and _is_sum(block.returned, terms, tolerance):
                middle = _middle(calls[:-1], (stream, one.returned), tolerance)
                return Sums(one, other, middle)
    return None


def _crossed(
    calls: Sequence[Call],
    stream: torch.Tensor | None,
    block: Call,
    branches: Sequence[Call],
    attention: Sequence[Call],
    tolerance: float,
) -> Sums | None:
    """Self-attention, cross-attention and MLP are added in turn, and each stream in between is read: T5's decoder."""
    for one in attention:
        if (between := _middle(calls[:-1], (stream, one.returned), tolerance)) is None:
            continue
        for cross in (call for call in branches if call is not one):
            middle = _middle(calls[:-1], (stream, one.returned, cross.returned), tolerance)
            for other in branches if middle is not None else ():
                terms = (stream, one.returned, cross.returned, other.returned)
                if other is not one and other is not cross and _is_sum(block.returned, terms, tolerance):
                    return Sums(one, other, middle, cross=cross, between=between)
    return None


def _middle(
    calls: Sequence[Call], terms: tuple[torch.Tensor | None, ...], tolerance: float
) -> tuple[Call, bool] | None:
    """The first module that reads or returns the sum."""
    for call in calls:
        for output, tensor in ((False, call.given), (True, call.returned)):
            if _is_sum(tensor, terms, tolerance):
                return call, output
    return None


def _normed(
    calls: Sequence[Call],
    stream: torch.Tensor | None,
    block: Call,
    branches: Sequence[Call],
    attention: Sequence[Call],
    tolerance: float,
) -> Sums | None:
    """A norm follows each addition: BERT and its kin."""
    norms = [call for call in calls if is_norm(call.module)]
    last = next((call for call in norms if same(call.returned, block.returned)), None)
    for middle in norms if last is not None else ():
        one = next((x for x in attention if _is_sum(middle.given, (stream, x.returned), tolerance)), None)
        for other in branches if one is not None else ():
            summed = _is_sum(last.given, (middle.returned, other.returned), tolerance) if last is not None else False
            if summed and last is not None and one is not None and other is not one:
                return Sums(one, other, (middle, True), (middle, last))
    return None


def _is_sum(total: torch.Tensor | None, terms: tuple[torch.Tensor | None, ...], tolerance: float) -> bool:
    given = [term for term in terms if term is not None]
    if total is None or len(given) < len(terms) or any(term.shape != total.shape for term in given):
        return False
    return sum_error(total, *given) <= tolerance
